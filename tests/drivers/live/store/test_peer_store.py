"""The live peer and its disk: what is not stored is neither acknowledged nor promised."""

import errno
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from tests.drivers.live import datagrams
from tests.drivers.live.net import Record, until
from tests.drivers.live.pairs import Pair, run
from tests.errors import raises
from wend.drivers.live.peer import LivePeer
from wend.drivers.live.store import writer as store_writer
from wend.drivers.live.store.store import Store
from wend.drivers.live.transport import wire
from wend.model.events import Event, EventId, SubscriptionId
from wend.model.publication import Publication
from wend.protocol.config import PeerConfig
from wend.protocol.messages import (
    TX_SHIFT,
    Ack,
    Data,
)
from wend.protocol.plugins import LINK_STATE
from wend.protocol.ports import (
    Deliver,
    Effect,
    LocalSubscription,
    Persist,
    Receipt,
    Send,
    WakeAt,
)
from wend.protocol.records import DeliveredRecord, StateRecord
from wend.strategies.link_state.plugin import LinkState


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left"), OverflowError("too large")])
def test_while_nothing_can_be_stored_nothing_is_acknowledged_or_promised(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene() -> None:
        heard = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        heard.bind(("127.0.0.1", 0))
        heard.setblocking(False)
        store, seen = Store(tmp_path / "s"), Record()
        peer = LivePeer(PeerConfig(peer=0, persistence=True), store=store)  # not started: nothing but what follows
        peer.observe(seen)
        delivered, receipts = seen.deliveries, seen.receipts
        peer.add_peer(1, heard.getsockname())
        id_ = EventId(1, 1, 1)
        effects: list[Effect] = [
            Persist(DeliveredRecord(id_)),
            Deliver(SubscriptionId(0, 1), Event(id_, {}, b""), 0, None),
            Receipt(id_, (1,), True),
            Send(1, Ack(7)),
            WakeAt(time.monotonic_ns() + 10**12),
        ]

        def full(_: Any) -> None:
            raise error

        with monkeypatch.context() as patch:
            patch.setattr(store, "append", full)
            peer.perform(effects)
            assert peer.counters.failed == {"store-record": 1, "withheld-ack": 1}
            assert not delivered and [r.kept for r in receipts] == [False]
            assert peer.timer.wake_ns is not None, "time goes on"
            peer.perform([Send(1, Ack(7))])  # the sender tried again
            assert peer.counters.failed["withheld-ack"] == 2
        await until(lambda: len(delivered) == 1)
        peer.perform(effects[2:4])
        assert receipts[-1].kept
        assert datagrams.decode(heard.recv(2000)).message == Ack(7)
        peer.close()
        heard.close()
        again = Store(tmp_path / "s")
        assert again.records == (DeliveredRecord(id_),)
        again.close()

    run(scene())


def test_what_a_full_disk_has_no_room_for_is_left_to_its_sender(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene() -> None:
        place = Pair(store := Store(tmp_path / "s"), (LocalSubscription(1, "topic = 'x'"),))
        peer, seen = place.peer, Record()
        peer.observe(seen)

        def got() -> list[int]:
            return [delivery.event.id.sequence for delivery in seen.deliveries]

        def acks() -> int:
            return peer.counters.control["acks"]

        def arrive(first_tx: int) -> None:
            for number in range(1, 11):
                event = Event(EventId(1, 1, number), {"topic": "x"})
                data = Data((1 << TX_SHIFT) + first_tx + number, event, 0, (0,), (1,))
                place.deliver(datagrams.encode(wire.make_header(1, 0, 1), data))

        def full(_: Any) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(store_writer, "MAX_HELD", 6)
        with monkeypatch.context() as patch:
            patch.setattr(store, "append", full)
            arrive(0)
            with raises("store-full"):
                peer.publish(Publication({"topic": "x"}))
            peer.perform([Persist(StateRecord(LINK_STATE, 1, LinkState(1, (1, 1), ())))])
            assert (got(), acks()) == ([], 0)
            assert peer.counters.refused == {"store-full": 7}
            assert peer.counters.failed["lost-state-record"] == 1
        await until(lambda: len(got()) == 3)
        arrive(100)
        assert (got(), acks()) == (list(range(1, 11)), 10)
        place.close()

    run(scene())


def test_kept_is_said_only_of_what_a_crash_leaves(tmp_path: Path) -> None:
    async def scene() -> None:
        for store, targets, said in (
            (None, (1,), False),
            (Store(tmp_path / "a"), (), False),
            (Store(tmp_path / "b"), (0,), False),
            (Store(tmp_path / "c"), (0, 1), True),
        ):
            seen = Record()
            peer = LivePeer(PeerConfig(peer=0, persistence=True), store=store)
            peer.observe(seen)
            peer.perform([Receipt(EventId(0, 1, 1), targets, True)])
            assert [r.kept for r in seen.receipts] == [said]
            peer.close()

    run(scene())
