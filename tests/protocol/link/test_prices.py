"""Prices of links: they rise while a link is full, fall while it has room, and go away."""

from wend.model.units import MS
from wend.protocol.config import PeerConfig
from wend.protocol.link.congestion import Controller
from wend.protocol.link.link import Link
from wend.protocol.link.prices import HIGHEST_NS, PERIOD_NS, LinkPrices
from wend.protocol.link.send_queue import LinkSender
from wend.protocol.timers import Timers

SIZE = 100


class Network:
    """One link that takes ten packets in a period."""

    def __init__(self) -> None:
        self.sender = LinkSender(Controller(0), 1 << 20)
        self.timers = Timers()
        self.told = 0
        self.loaded: list[bool] = []
        links = {1: Link(1, 10 * MS, 1.0, PeerConfig(peer=0), sender=self.sender)}
        self.prices = LinkPrices(links, self.timers, self._changed, self.loaded.append)
        self.now = 0

    def _changed(self, now: int, effects: object) -> None:
        self.told += 1

    def period(self, offered: int) -> int:
        """A period passes in which so many packets are offered. Returns the price then."""
        for number in range(offered):
            self.sender.controller.window = float(10 * SIZE)
            if not self.sender.take(self.now, SIZE):
                self.prices.crowded(self.now)
            assert self.sender.flight_bytes <= 10 * SIZE or number >= 10
        self.sender.flight_bytes = 0
        self.now += PERIOD_NS
        self.timers.run(self.now, [])
        return self.sender.price_ns


def test_a_link_without_a_queue_has_no_price_and_needs_no_timer() -> None:
    network = Network()
    assert [network.period(8) for _ in range(3)] == [0, 0, 0]
    assert network.timers.heap == []
    assert network.loaded == []


def test_a_price_rises_with_the_load_and_falls_when_there_is_room() -> None:
    network = Network()
    rising = [network.period(30) for _ in range(3)]
    assert 0 < rising[0] < rising[1] < rising[2]
    slower = network.period(20) - rising[2]
    assert 0 < slower < rising[1] - rising[0]
    high = network.sender.price_ns
    assert network.period(4) < high
    for _ in range(100):
        network.period(2)
    assert network.sender.price_ns == 0
    assert network.loaded == [True, False]
    assert network.timers.heap == []
    assert network.told > 5


def test_a_price_has_a_limit() -> None:
    network = Network()
    assert [network.period(1000) for _ in range(50)][-1] == HIGHEST_NS


def test_a_link_that_starts_slowly_after_an_outage_gets_no_price_for_that() -> None:
    network = Network()
    network.sender.stop()
    network.sender.restart(0)
    assert network.period(30) == 0
    assert network.period(30) > 0
