"""Prices of links: they follow the load, and go away where there is room."""

from wend.model.units import MS
from wend.protocol.config import PeerConfig
from wend.protocol.link.congestion import Controller
from wend.protocol.link.link import Link
from wend.protocol.link.link_sender import LinkSender
from wend.protocol.link.prices import FULL_NS, HIGHEST_NS, LinkPrices
from wend.protocol.timers import Timers

SIZE = 100


class Network:
    """One link that takes ten packets in a tenth of a second."""

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

    def period(self, offered: int, late: bool = False) -> int:
        """A tenth of a second passes in which so many packets are offered. Returns the price then."""
        self.sender.controller.window = float(10 * SIZE)
        for _ in range(offered):
            if not self.sender.try_send(self.now, SIZE, late):
                self.prices.on_packet_waiting(self.now)
        for _ in range(10):
            self.now += 10 * MS
            if self.sender.flight_bytes:
                self.sender.on_ack(self.now, SIZE, 100 * MS)
            self.timers.run(self.now, [])
        return self.sender.price_ns


def test_a_link_without_a_queue_has_no_price_and_needs_no_timer() -> None:
    network = Network()
    assert [network.period(8) for _ in range(3)] == [0, 0, 0]
    assert network.timers.heap == []
    assert network.loaded == []


def test_a_price_follows_the_load_and_ends_when_there_is_room() -> None:
    network = Network()
    high = [network.period(30) for _ in range(8)][-1]
    middle = [network.period(20) for _ in range(8)][-1]
    low = [network.period(12) for _ in range(8)][-1]
    assert high > middle > low > 0
    assert high > FULL_NS
    for _ in range(20):
        network.period(2)
    assert network.sender.price_ns == 0
    assert network.loaded == [True, False]
    assert network.timers.heap == []
    assert network.told > 5


def test_a_price_has_a_limit() -> None:
    network = Network()
    assert [network.period(1000) for _ in range(10)][-1] == HIGHEST_NS


def test_late_packets_are_no_load() -> None:
    network = Network()
    for _ in range(10):
        network.period(30)
    assert [network.period(30, late=True) for _ in range(20)][-1] == 0


def test_a_link_that_starts_slowly_after_an_outage_gets_no_price_for_that() -> None:
    network = Network()
    network.sender.stop()
    network.sender.restart(0)
    assert network.period(30) == 0
    assert max(network.period(30) for _ in range(3)) > 0
