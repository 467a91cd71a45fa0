"""Datagrams of strangers and of neighbours that lie: the live peer counts them and goes on."""

import itertools
import os
import random
import socket
from typing import Any

import pytest
from msgspec import structs

import wend
from tests.cores import pure_only
from tests.drivers.live import datagrams
from tests.drivers.live.net import known, overlay, until
from tests.drivers.live.pairs import Pair, run
from tests.errors import raises
from wend.drivers.live.peer import LivePeer
from wend.drivers.live.transport import wire
from wend.model.events import Event, EventId, Subscription, SubscriptionId
from wend.model.publication import Publication
from wend.protocol.messages import (
    TX_SHIFT,
    Ack,
    Control,
    Data,
    Hello,
)
from wend.protocol.plugins import FLOODED
from wend.strategies.subscriptions.table import PeerInterest

DATAGRAMS = int(os.environ.get("WEND_TEST_DATAGRAMS", "10000"))


def bundled(header: tuple[int, int, int], bodies: list[bytes]) -> bytes:
    """An open datagram with encoded messages."""
    kind, body = wire.join_bodies(bodies)
    return wire.frame_datagram(wire.make_header(*header, kind), body)


async def flood(sender: socket.socket, peer: LivePeer, seed: int) -> None:
    """As fast as the peer can refuse: what the kernel throws away proves nothing."""
    rng = random.Random(seed)
    refused = peer.counters.refused
    for sent in range(DATAGRAMS):
        head = wire.make_header(1, 0, 1) if rng.random() < 0.5 else b""
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
        place.say(datagrams.encode(wire.make_header(7, 0, 1), Ack(1)))
        place.say(datagrams.encode(wire.make_header(1, 9, 1), Ack(1)))
        await until(lambda: refused["misdirected"] == 2)
        place.say(datagrams.encode(wire.make_header(1, 0, 5), Hello(5, True)))
        place.say(datagrams.encode(wire.make_header(1, 0, 4), Hello(4, True)))
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
        bundles = [bundled((1, 0, 1), bodies[:count]) for count in (1, 2, 3)]
        for number in range(3_000):
            datagram = bytearray(rng.choice(bundles))
            for bit in rng.sample(range(8 * len(datagram)), rng.choice((1, 1, 2, 3, 20))):
                datagram[bit // 8] ^= 1 << bit % 8
            place.deliver(bytes(datagram))
            assert not heard and peer.counters.refused.total() == number + 1
            place.deliver(rng.choice(bundles))  # its header is verified from now on
            assert heard
            heard.clear()
        refused = peer.counters.refused
        assert set(refused) == {"garbage", "corrupted", "other-version"} and refused["corrupted"] > 2_000
        place.close()

    run(scene())


def test_a_peer_of_another_version_is_refused_in_a_sentence(caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        place = Pair()
        old = wire.make_header(1, 0, 1)[:2] + b"\x02" + wire.make_header(1, 0, 1)[3:] + wire.encode_message(Ack(7))
        place.deliver(old)
        assert place.peer.counters.refused == {"other-version": 1}
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
            said = rng.choice((1, 1, 2))
            datagram = bundled((says, to, incarnation), [body] * said)
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
        from tests.drivers.live.client.test_clients import MONSTERS

        place = Pair()
        head, refused = wire.make_header(1, 0, 1), place.peer.counters.refused
        many = Event(EventId(1, 1, 1), {str(number): True for number in range(8_000)})
        place.say(datagrams.encode(head, Data((1 << TX_SHIFT) + 1, many, 0, (0,))))
        await until(lambda: refused["garbage"] == 1)
        filters = [text for text, _ in MONSTERS if len(text) < 50_000]
        assert len(filters) == 3
        for number, text in enumerate(filters, 1):
            wanted = PeerInterest(1, (1, number), (Subscription(SubscriptionId(1, 1), text),), ())
            place.say(datagrams.encode(head, Control((1 << TX_SHIFT) + 1 + number, FLOODED, wanted)))
        await until(lambda: refused["filter-syntax"] == len(filters))
        with raises("malformed", match="length <= 1024"):
            datagrams.decode(datagrams.encode(head, Data((1 << TX_SHIFT) + 9, many, 0, (0,))))
        assert not place.peer.counters.failed
        assert place.peer.publish(Publication({"topic": "x"})).id.publisher == 0
        place.close()

    run(scene())


def test_well_formed_nonsense_from_a_neighbour_does_not_end_the_peer() -> None:
    async def scene() -> None:
        from hypothesis import HealthCheck, Phase, given, settings

        from tests.drivers.live.transport.test_wire import messages

        place = Pair()
        head, numbers = wire.make_header(1, 0, 1), itertools.count(1)

        @settings(max_examples=300, phases=[Phase.generate], deadline=None, suppress_health_check=list(HealthCheck))
        @given(messages)
        def say(message: Any) -> None:
            if not isinstance(message, Hello):  # numbered as by one incarnation, or nearly all would be refused
                message = structs.replace(message, tx=(1 << TX_SHIFT) + next(numbers))
            place.deliver(datagrams.encode(head, message))

        say()
        assert place.peer.publish(Publication({"topic": "x"})).id.publisher == 0
        place.close()

    run(scene())
