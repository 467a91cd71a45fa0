"""The live peer: mistakes inside, timers, peers without a link, large messages, and its end."""

import asyncio
import socket
import time
from typing import Any

import pytest
from msgspec import structs

from tests.cores import pure_only
from tests.drivers.live import datagrams
from tests.drivers.live.net import until
from tests.drivers.live.pairs import Pair, run
from tests.errors import raises
from wend.drivers.live.transport import wire
from wend.model.events import Event, EventId, Subscription, SubscriptionId
from wend.model.publication import Publication
from wend.model.units import MS
from wend.protocol.messages import (
    TX_SHIFT,
    Ack,
    Control,
    Data,
    PlainMessage,
)
from wend.protocol.plugins import FLOODED
from wend.protocol.ports import (
    Effect,
    Paused,
    Received,
    Send,
    WakeAt,
    Woken,
)
from wend.strategies.subscriptions.table import PeerInterest
from wend.strategies.tdo.messages import ProbePing


@pure_only
def test_a_mistake_inside_is_counted_and_the_peer_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene() -> None:
        place = Pair()
        real = place.peer.peer.handle

        def broken(now: int, event: Any) -> Any:
            raise ZeroDivisionError("inside")

        monkeypatch.setattr(place.peer.peer, "handle", broken)
        place.say(datagrams.encode(wire.make_header(1, 0, 1), Ack(1)))
        await until(lambda: place.peer.counters.failed["handle-input"] == 1)
        with raises("internal", match="failed inside"):
            place.peer.publish(Publication({"topic": "x"}))
        assert "goes on" in caplog.text
        monkeypatch.setattr(place.peer.peer, "handle", real)
        assert place.peer.publish(Publication({"topic": "x"})).id.publisher == 0
        place.close()

    run(scene())


def test_a_peer_with_an_address_and_no_link_is_sent_to_and_heard() -> None:
    async def scene() -> None:
        place = Pair()
        other = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        other.bind(("127.0.0.1", 0))
        other.setblocking(False)
        place.peer.add_peer(2, other.getsockname())
        message = PlainMessage("tdo-random", ProbePing(1))
        place.peer.perform([Send(2, message), Send(3, message)])
        types = wire.MessageTypes({"tdo-random": ProbePing}, None)
        await asyncio.sleep(0)  # what a peer sends in one turn of the event loop leaves when the turn ends
        assert datagrams.decode(other.recv(2000), types) == ((0, 2, place.peer.incarnation), message)
        refused = place.peer.counters.refused
        assert refused == {"no-address": 1}
        other.sendto(datagrams.encode(wire.make_header(2, 0, 1), message), place.peer.address)
        other.sendto(datagrams.encode(wire.make_header(2, 0, 1), Ack(1)), place.peer.address)
        await until(lambda: refused.total() == 3)
        assert refused["not-neighbour"] == 1 and not refused["stranger"]
        other.close()
        place.close()

    run(scene())


@pure_only
def test_the_newest_wake_up_counts() -> None:
    async def scene() -> None:
        place = Pair()
        peer, woken = place.peer, []

        def handle(now: int, event: Any) -> list[Effect]:
            if type(event) is not Paused:  # the machine that runs the tests may be busy
                woken.append(now)
            return []

        peer.peer.handle = handle  # type: ignore[method-assign]
        begin = time.monotonic_ns()
        for wait in (500, 30, 5, 60):  # the timer is set for 5 ms, and once more for the rest
            peer.perform([WakeAt(begin + wait * MS)])
        await until(lambda: bool(woken))
        assert woken[0] >= begin + 60 * MS
        assert peer.timer.wake_ns is None and not peer.timer.is_set
        peer.perform([WakeAt(begin + 10_000_000 * MS), WakeAt(begin)])
        await until(lambda: len(woken) == 2)
        place.close()

    run(scene())


@pure_only
def test_what_an_ack_in_the_socket_calls_off_does_not_wake_the_peer() -> None:
    async def scene() -> None:
        place = Pair()
        peer, told = place.peer, []
        now = time.monotonic_ns()
        later = now + 40 * MS

        def handle(now: int, event: Any) -> list[Effect]:
            if type(event) is not Paused:  # the machine that runs the tests may be busy
                told.append((type(event), now))
            return [WakeAt(later)] if type(event) is Received else []

        peer.peer.handle = handle  # type: ignore[method-assign]
        place.say(datagrams.encode(wire.make_header(1, 0, 1), Ack(7)))
        peer.perform([WakeAt(now)])
        peer.timer.fire()
        assert [kind for kind, _ in told] == [Received]
        await until(lambda: len(told) == 2)
        assert told[1][0] is Woken and told[1][1] >= later
        place.close()

    run(scene())


def a_wish(text: str) -> PeerInterest:
    return PeerInterest(1, (1, 1), (Subscription(SubscriptionId(1, 1), text),), ())


def test_what_no_datagram_carries_is_refused_and_counted() -> None:
    async def scene() -> None:
        place = Pair()
        peer = place.peer
        peer.perform([Send(1, Data(1, Event(EventId(0, 1, 1), {}, bytes(70_000)), 0, (1,)))])
        assert peer.counters.refused["oversize"] == 1
        wide = {str(i): "x" * 1000 for i in range(59)}  # beside its destinations and its path it is too much
        peer.perform(peer.peer.handle(0, Received(1, Control(1 << TX_SHIFT, FLOODED, a_wish("true")))))
        peer.perform(peer.peer.handle(0, Publication(wide | {"y": "y" * 1000})))
        assert (peer.counters.refused["oversize"], peer.counters.drops["unsendable"]) == (2, 1)
        status = peer.peer.status()
        assert ([link.state for link in status.links], status.in_flight) == (["up"], 0)
        place.close()

    run(scene())


@pure_only
def test_stopping_waits_a_moment_for_what_was_not_acknowledged(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        place = Pair()
        waits, status = iter([1, 1, 0]), place.peer.peer.status()
        monkeypatch.setattr(place.peer.peer, "status", lambda: structs.replace(status, in_flight=next(waits)))
        await place.peer.stop()
        assert next(waits, None) is None
        place.socket.close()

    run(scene())


def test_a_busy_peer_acknowledges_many_packets_in_one() -> None:
    async def scene() -> None:
        place = Pair()
        for number in range(1, 101):  # all there before the peer looks
            event = Event(EventId(1, 1, number), {"topic": "x"})
            place.say(datagrams.encode(wire.make_header(1, 0, 1), Data((1 << TX_SHIFT) + number, event, 0, (0,), (1,))))
        acked: list[int] = []
        count = 0
        place.socket.setblocking(False)
        while len(acked) < 100:
            await asyncio.sleep(0.01)
            try:
                messages = wire.decode_messages(place.socket.recv(65_536))
            except BlockingIOError:
                continue
            found = [m.tx & 0xFFFF for m in messages if isinstance(m, Ack)]
            count += bool(found)
            acked += found
        assert sorted(acked) == list(range(1, 101))
        assert count < 30
        place.close()

    run(scene())
