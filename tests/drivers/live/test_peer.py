"""The live peer among strangers, neighbours that lie, and its own mistakes: it counts and goes on."""

import asyncio
import errno
import itertools
import os
import random
import socket
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

import wend
from tests.cores import pure_only
from tests.drivers.live.net import Record, known, overlay, until
from wend.drivers.live import store_writer, wire
from wend.drivers.live.addresses import bind, resolve
from wend.drivers.live.peer import LivePeer
from wend.drivers.live.store import Store
from wend.model.errors import ConfigError, Refused, WireError
from wend.model.events import Event, EventId, Subscription, SubscriptionId
from wend.model.units import MS
from wend.protocol.config import PeerConfig
from wend.protocol.graph.link_state import LinkState
from wend.protocol.interest.subscriptions import PeerInterest
from wend.protocol.membership.messages import ProbePing
from wend.protocol.messages import (
    TX_SHIFT,
    Ack,
    Control,
    Data,
    Hello,
    PlainMessage,
)
from wend.protocol.plugins import FLOODED, LINK_STATE
from wend.protocol.ports import (
    Deliver,
    Effect,
    LocalSubscription,
    Neighbour,
    Paused,
    Persist,
    Published,
    Receipt,
    Received,
    Send,
    Started,
    WakeAt,
    Woken,
)
from wend.protocol.records import DeliveredRecord, StateRecord

DATAGRAMS = int(os.environ.get("WEND_TEST_DATAGRAMS", "10000"))


def run(scene: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(200):
            await scene

    asyncio.run(bounded())


class Pair:
    """A live peer (0) and a plain socket that is its neighbour (1)."""

    def __init__(self, store: Store | None = None, wanted: tuple[LocalSubscription, ...] = ()) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.peer = LivePeer(PeerConfig(peer=0, strategy="dcrd", persistency=store is not None), store=store)
        self.peer.add_peer(1, self.socket.getsockname())
        self.peer.start(Started((Neighbour(1, 1 * MS),), wanted))

    def say(self, datagram: bytes) -> None:
        self.socket.sendto(datagram, self.peer.address)

    def deliver(self, datagram: bytes) -> None:
        """Past the sockets, at once."""
        self.peer.receive(memoryview(datagram), self.socket.getsockname())

    def close(self) -> None:
        self.peer.close()
        self.socket.close()


async def flood(sender: socket.socket, peer: LivePeer, seed: int) -> None:
    """As fast as the peer can refuse: what the kernel throws away proves nothing."""
    rng = random.Random(seed)
    refused = peer.counters.refused
    for sent in range(DATAGRAMS):
        head = wire.header(1, 0, 1) if rng.random() < 0.5 else b""
        sender.sendto(head + rng.randbytes(rng.randrange(1, 200)), peer.address)
        if sent % 50 == 49:
            await until(lambda sent=sent: refused.total() + peer.counters.failed.total() > sent - 50)  # type: ignore[misc]
    await until(lambda: refused.total() >= DATAGRAMS * 0.99)


def test_random_datagrams_from_strangers_are_counted_and_the_peer_goes_on() -> None:
    async def scene() -> None:
        async with overlay([(0, 1)]) as (a, b), wend.connect(a.url) as here, wend.connect(b.url) as there:
            stranger = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            await flood(stranger, b.peer, 1)
            assert b.peer.counters.refused["stranger"] >= DATAGRAMS * 0.99
            async with there.subscribe("topic = 'x'") as events:
                await known(here, "x", 1)
                assert (await anext(events)).payload == b"are you there"
            assert not b.peer.counters.failed
            stranger.close()

    run(scene())


def test_random_datagrams_from_a_neighbours_address_are_counted_too() -> None:
    async def scene() -> None:
        place = Pair()
        await flood(place.socket, place.peer, 2)
        counters = place.peer.counters
        assert counters.refused["garbage"] + counters.refused["corrupted"] >= DATAGRAMS * 0.99
        assert set(counters.refused) == {"garbage", "corrupted"}
        assert not counters.failed
        place.close()

    run(scene())


def test_a_neighbour_that_is_not_who_it_says_is_refused() -> None:
    async def scene() -> None:
        place = Pair()
        refused = place.peer.counters.refused
        place.say(wire.encode(wire.header(7, 0, 1), Ack(1)))
        place.say(wire.encode(wire.header(1, 9, 1), Ack(1)))
        await until(lambda: refused["misdirected"] == 2)
        place.say(wire.encode(wire.header(1, 0, 5), Hello(5, True)))
        place.say(wire.encode(wire.header(1, 0, 4), Hello(4, True)))
        await until(lambda: refused["stale"] == 1)
        place.close()

    run(scene())


@pure_only
def test_a_corrupted_datagram_never_reaches_the_state_machine() -> None:
    async def scene() -> None:
        rng, place = random.Random(4), Pair()
        peer, heard = place.peer, []
        peer.peer.handle = lambda now, event: heard.append(event) or []  # type: ignore
        bodies = [wire.encode_message(message) for message in (Ack(7), Hello(1, True), Ack(9))]
        datagrams = [wire.bundle(wire.header(1, 0, 1), bodies[:count]) for count in (1, 2, 3)]
        for number in range(3_000):
            datagram = bytearray(rng.choice(datagrams))
            for bit in rng.sample(range(8 * len(datagram)), rng.choice((1, 1, 2, 3, 20))):
                datagram[bit // 8] ^= 1 << bit % 8
            place.deliver(bytes(datagram))
            assert not heard and peer.counters.refused.total() == number + 1
            place.deliver(rng.choice(datagrams))  # its header is verified from now on
            assert heard
            heard.clear()
        refused = peer.counters.refused
        assert set(refused) == {"garbage", "corrupted", "another version"} and refused["corrupted"] > 2_000
        place.close()

    run(scene())


def test_a_peer_of_another_version_is_refused_in_a_sentence(caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        place = Pair()
        old = wire.header(1, 0, 1)[:2] + b"\x02" + wire.header(1, 0, 1)[3:] + wire.encode_message(Ack(7))
        place.deliver(old)
        assert place.peer.counters.refused == {"another version": 1}
        at = "{}:{}".format(*place.socket.getsockname())
        assert f"peer 0 refuses a datagram of version 2, this peer speaks version 3, from {at}" in caplog.text
        place.close()

    run(scene())


@pure_only
def test_a_verified_header_proves_nothing_for_another_incarnation_or_neighbour() -> None:
    """A header is checked once; every datagram must be judged as if its header were checked again."""

    async def scene() -> None:
        rng, place = random.Random(3), Pair()
        peer, heard = place.peer, []
        places = {place.socket.getsockname(): 1, ("127.0.0.1", 9): 2}
        peer.add_peer(2, ("127.0.0.1", 9))
        peer.peer.handle = lambda now, event: heard.append(event.sender) or []  # type: ignore
        right = wire.encode_message(Ack(7))
        bodies, incarnations = [right, b"", b"nonsense", bytes(wire.MAX_DATAGRAM_BYTES)], {1: 0, 2: 0}
        for number in range(2_000):
            address, says, to = rng.choice(sorted(places)), rng.choice((1, 1, 2, 2, 3)), rng.choice((0, 0, 0, 5))
            incarnation, body = number // 100 + rng.choice((0, 1, 1)), rng.choices(bodies, (20, 1, 1, 1))[0]
            head, said = wire.header(says, to, incarnation), rng.choice((1, 1, 2))
            datagram = wire.bundle(head, [body] * said)
            refused, heard[:] = peer.counters.refused.copy(), []
            peer.receive(memoryview(datagram), address)
            if len(datagram) == wire.HEADER_BYTES + wire.CHECKSUM_BYTES:
                wrong = "garbage"
            elif says != places[address] or to != 0:
                wrong = "misdirected"
            elif incarnation < incarnations[says]:
                wrong = "stale"
            else:
                wrong = "" if body is right else "garbage"
            if wrong:
                assert peer.counters.refused - refused == {wrong: 1} and not heard
            else:
                incarnations[says] = incarnation
                assert peer.counters.refused == refused and heard == [says] * said
        assert set(peer.counters.refused) == {"garbage", "misdirected", "stale"}
        place.close()

    run(scene())


def test_a_neighbours_events_and_filters_without_measure_are_refused_and_counted() -> None:
    async def scene() -> None:
        from tests.drivers.live.test_clients import MONSTERS

        place = Pair()
        head, refused = wire.header(1, 0, 1), place.peer.counters.refused
        many = Event(EventId(1, 1, 1), {str(number): True for number in range(8_000)})
        place.say(wire.encode(head, Data((1 << TX_SHIFT) + 1, many, 0, (0,))))
        await until(lambda: refused["garbage"] == 1)
        filters = [text for text, _ in MONSTERS if len(text) < 50_000]
        assert len(filters) == 3
        for number, text in enumerate(filters, 1):
            wanted = PeerInterest(1, (1, number), (Subscription(SubscriptionId(1, 1), text),), ())
            place.say(wire.encode(head, Control((1 << TX_SHIFT) + 1 + number, FLOODED, wanted)))
        await until(lambda: refused["a filter that cannot be read"] == len(filters))
        with pytest.raises(WireError, match="length <= 1024"):
            wire.decode(wire.encode(head, Data((1 << TX_SHIFT) + 9, many, 0, (0,))))
        assert not place.peer.counters.failed
        assert place.peer.publish({"topic": "x"}).id.publisher == 0
        place.close()

    run(scene())


def test_well_formed_nonsense_from_a_neighbour_does_not_end_the_peer() -> None:
    async def scene() -> None:
        from hypothesis import HealthCheck, Phase, given, settings

        from tests.drivers.live.test_wire import messages

        place = Pair()
        head, numbers = wire.header(1, 0, 1), itertools.count(1)

        @settings(max_examples=300, phases=[Phase.generate], deadline=None, suppress_health_check=list(HealthCheck))
        @given(messages)
        def say(message: Any) -> None:
            if not isinstance(message, Hello):  # numbered as by one incarnation, or nearly all would be refused
                message = structs.replace(message, tx=(1 << TX_SHIFT) + next(numbers))
            place.deliver(wire.encode(head, message))

        say()
        assert place.peer.publish({"topic": "x"}).id.publisher == 0
        place.close()

    run(scene())


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
        place.say(wire.encode(wire.header(1, 0, 1), Ack(1)))
        await until(lambda: place.peer.counters.failed["handle Received"] == 1)
        with pytest.raises(Refused, match="failed inside"):
            place.peer.publish({"topic": "x"})
        assert "goes on" in caplog.text
        monkeypatch.setattr(place.peer.peer, "handle", real)
        assert place.peer.publish({"topic": "x"}).id.publisher == 0
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
        assert wire.decode(other.recv(2000), types) == ((0, 2, place.peer.incarnation), message)
        refused = place.peer.counters.refused
        assert refused == {"no address": 1}
        other.sendto(wire.encode(wire.header(2, 0, 1), message), place.peer.address)
        other.sendto(wire.encode(wire.header(2, 0, 1), Ack(1)), place.peer.address)
        await until(lambda: refused.total() == 3)
        assert refused["not a neighbour"] == 1 and not refused["stranger"]
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
        place.say(wire.encode(wire.header(1, 0, 1), Ack(7)))
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
        peer.perform(peer.peer.handle(0, Published(wide | {"y": "y" * 1000})))
        assert (peer.counters.refused["oversize"], peer.counters.drops["cannot be sent"]) == (2, 1)
        status = peer.peer.status()
        assert ([link.state for link in status.links], status.in_flight) == (["up"], 0)
        place.close()

    run(scene())


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left"), OverflowError("too large")])
def test_while_nothing_can_be_stored_nothing_is_acknowledged_or_promised(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene() -> None:
        heard = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        heard.bind(("127.0.0.1", 0))
        heard.setblocking(False)
        store, seen = Store(tmp_path / "s"), Record()
        peer = LivePeer(PeerConfig(peer=0, persistency=True), store=store)  # not started: nothing but what follows
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
            assert peer.counters.failed == {"carry out Persist": 1, "withheld ACK": 1}
            assert not delivered and [r.kept for r in receipts] == [False]
            assert peer.timer.wake_ns is not None, "time goes on"
            peer.perform([Send(1, Ack(7))])  # the sender tried again
            assert peer.counters.failed["withheld ACK"] == 2
        await until(lambda: len(delivered) == 1)
        peer.perform(effects[2:4])
        assert receipts[-1].kept
        assert wire.decode(heard.recv(2000)).message == Ack(7)
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
                place.deliver(wire.encode(wire.header(1, 0, 1), data))

        def full(_: Any) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(store_writer, "MAX_HELD", 6)
        with monkeypatch.context() as patch:
            patch.setattr(store, "append", full)
            arrive(0)
            with pytest.raises(Refused, match="no more events can wait"):
                peer.publish({"topic": "x"})
            peer.perform([Persist(StateRecord(LINK_STATE, 1, LinkState(1, (1, 1), ())))])
            assert (got(), acks()) == ([], 0)
            assert peer.counters.refused == {"no room to store": 7}
            assert peer.counters.failed["lost state record"] == 1
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
            peer = LivePeer(PeerConfig(peer=0, persistency=True), store=store)
            peer.observe(seen)
            peer.perform([Receipt(EventId(0, 1, 1), targets, True)])
            assert [r.kept for r in seen.receipts] == [said]
            peer.close()

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


def test_a_name_is_resolved_in_the_family_of_the_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    known = [
        (socket.AF_INET6, socket.SOCK_DGRAM, 17, "", ("::1", 5, 0, 0)),
        (socket.AF_INET, socket.SOCK_DGRAM, 17, "", ("127.0.0.1", 5)),
    ]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, family=0, **__: [k for k in known if family in (0, k[0])])
    assert resolve(("both", 5)) == ("::1", 5)
    assert resolve(("both", 5), socket.AF_INET) == ("127.0.0.1", 5)


def test_an_address_of_another_family_is_one_sentence() -> None:
    peer = LivePeer(PeerConfig(peer=0))
    with pytest.raises(ConfigError, match=r"cannot reach \[::1\]:5 from a peer that listens on an IPv4 address"):
        peer.add_peer(1, ("::1", 5))
    peer.close()


def test_no_more_sockets_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(*_: Any) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(socket, "socket", none_left)
    with pytest.raises(ConfigError, match="may not open more files"):
        bind(("127.0.0.1", 0), socket.SOCK_DGRAM)


def test_only_loopback_unless_the_owner_knows() -> None:
    with pytest.raises(ConfigError, match=r"refusing to listen on 0\.0\.0\.0:0 without keys"):
        LivePeer(PeerConfig(peer=0), listen=("0.0.0.0", 0))
    LivePeer(PeerConfig(peer=0), listen=("0.0.0.0", 0), insecure=True).close()
    LivePeer(PeerConfig(peer=0), listen=("localhost", 0)).close()


def test_a_port_in_use_is_one_sentence() -> None:
    first = LivePeer(PeerConfig(peer=0))
    with pytest.raises(ConfigError, match="the port is in use"):
        LivePeer(PeerConfig(peer=1), listen=first.address)
    first.close()


def test_a_busy_peer_acknowledges_many_packets_in_one() -> None:
    async def scene() -> None:
        place = Pair()
        for number in range(1, 101):  # all there before the peer looks
            event = Event(EventId(1, 1, number), {"topic": "x"})
            place.say(wire.encode(wire.header(1, 0, 1), Data((1 << TX_SHIFT) + number, event, 0, (0,), (1,))))
        acked: list[int] = []
        datagrams = 0
        place.socket.setblocking(False)
        while len(acked) < 100:
            await asyncio.sleep(0.01)
            try:
                messages = wire.decode_messages(place.socket.recv(65_536))
            except BlockingIOError:
                continue
            found = [m.tx & 0xFFFF for m in messages if isinstance(m, Ack)]
            datagrams += bool(found)
            acked += found
        assert sorted(acked) == list(range(1, 101))
        assert datagrams < 30
        place.close()

    run(scene())
