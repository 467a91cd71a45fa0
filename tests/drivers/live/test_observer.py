"""Observers of a live peer: any number, each told of all that it asks for, none able to harm another."""

from tests.drivers.live.net import Record, run
from wend.drivers.live.observer import Observer
from wend.drivers.live.peer import LivePeer
from wend.model.events import Event, EventId, SubscriptionId
from wend.protocol.config import PeerConfig
from wend.protocol.ports import Deliver, Effect, Notice, Receipt

DELIVER = Deliver(SubscriptionId(0, 1), Event(EventId(1, 1, 1), {}), 5, None)
RECEIPT = Receipt(EventId(0, 1, 1), (1,), False)
NOTICES = [
    Notice("link-down", 1),
    Notice("reroute", 1),
    Notice("link-up", 1),
    Notice("linked", 2),
    Notice("unlinked", 1),
]


class Deliveries(Observer):
    def __init__(self) -> None:
        self.seen: list[Deliver] = []

    def on_delivered(self, effect: Deliver) -> None:
        self.seen.append(effect)


class Broken(Observer):
    def on_delivered(self, effect: Deliver) -> None:
        raise ZeroDivisionError

    def on_published(self, receipt: Receipt) -> None:
        raise ZeroDivisionError

    def on_notice(self, notice: Notice) -> None:
        raise ZeroDivisionError

    def on_link_change(self, neighbour: int, up: bool) -> None:
        raise ZeroDivisionError


def test_all_observers_are_told_in_the_order_in_which_they_came() -> None:
    async def scene() -> None:
        peer, all_, some = LivePeer(PeerConfig(peer=0)), Record(), Deliveries()
        effects: list[Effect] = [DELIVER, RECEIPT, *NOTICES]
        peer.perform(effects)  # to nobody
        peer.observe(all_)
        peer.observe(some)
        peer.perform(effects)
        peer.unobserve(all_)
        peer.perform([DELIVER])
        assert (all_.deliveries, all_.receipts, all_.notices) == ([DELIVER], [RECEIPT], NOTICES)
        assert all_.link_changes == [(1, False), (1, True), (2, True), (1, False)]
        assert some.seen == [DELIVER] * 2
        assert not peer.counters.failed
        peer.close()

    run(scene())


def test_an_observer_that_fails_is_counted_and_the_others_are_told() -> None:
    async def scene() -> None:
        peer, all_ = LivePeer(PeerConfig(peer=0)), Record()
        peer.observe(Broken())
        peer.observe(all_)
        peer.perform([DELIVER, RECEIPT, NOTICES[0]])
        assert (all_.deliveries, all_.receipts, all_.link_changes) == ([DELIVER], [RECEIPT], [(1, False)])
        assert peer.counters.failed == {"tell-observer": 4}
        peer.close()

    run(scene())
