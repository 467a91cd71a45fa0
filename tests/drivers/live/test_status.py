"""The status snapshot: the state of links, and its way to a client."""

import msgspec
import pytest

import wend
from tests.drivers.live.net import PAIR, known, overlay, run
from tests.protocol.talk import A, B, C, D, S, Talk, event, tx
from wend.drivers.live.addressing.addresses import format_address
from wend.drivers.live.status import StatusSnapshot
from wend.model.units import MS
from wend.protocol.messages import Ack, Data, Hello
from wend.protocol.ports import Received, Send


def links(talk: Talk) -> dict[int, int]:
    found = talk.peer.status().links
    assert [link.up for link in found] == [link.state == "up" for link in found]
    return {link.neighbour: int(link.up) for link in found if link.neighbour in (B, C, D)}


def states(talk: Talk) -> dict[int, str]:
    return {link.neighbour: link.state for link in talk.peer.status().links if link.neighbour in (B, C, D)}


def test_a_neighbour_that_was_never_heard_is_not_up() -> None:
    talk = Talk("dcrd")
    assert links(talk) == {B: 1, C: 0, D: 0}
    assert states(talk) == {B: "up", C: "unknown", D: "unknown"}
    talk.hear(0, C, Data(tx(1), event(publisher=C), 0, (A,), (C,)))
    talk.hear(0, D, Hello(1, True))
    assert links(talk) == {B: 1, C: 1, D: 1}


def test_without_probes_one_that_does_not_answer_is_suspected_until_it_is_heard() -> None:
    talk = Talk("dcrd")
    for peer in (C, D):
        talk.hear(0, peer, Hello(1, True))
    effects = talk.hear(0, B, Data(tx(99), event(), 0, (S,), (B,)))
    number = next(e.message.tx for e in effects if isinstance(e, Send) and isinstance(e.message, Data))
    talk.wake(21 * MS)  # a round trip to C, and no answer
    assert links(talk) == {B: 1, C: 0, D: 1}
    assert states(talk)[C] == "suspected"
    talk.hear(30 * MS, C, Ack(number))
    assert links(talk) == {B: 1, C: 1, D: 1}


@pytest.mark.parametrize("hears", [True, False])
def test_with_probes_both_directions_count(hears: bool) -> None:
    talk = Talk("adaptive", quiet=False)
    talk.peer.handle(0, Received(C, Hello(1, hears)))
    assert links(talk) == {B: 1, C: int(hears), D: 0}
    assert states(talk)[C] == ("up" if hears else "one-way")


def test_a_client_gets_the_snapshot_that_the_peer_made() -> None:
    async def scene() -> None:
        async with (
            overlay(PAIR) as (a, b),
            wend.connect(a.url) as here,
            wend.connect(b.url) as there,
            there.subscribe("topic = 'x'"),
        ):
            await known(here, "x", 1)
            found = await here.status()
            assert isinstance(found, wend.StatusSnapshot)
            assert (found.version, found.peer, found.software) == (1, 0, wend.__version__)
            assert found.incarnation == a.peer.incarnation
            assert [(link.neighbour, link.state, link.up) for link in found.links] == [(1, "up", True)]
            assert found.data >= 1 and found.control["acks"] >= 1 and found.clients == {"connected": 1, "now": 1}
            assert found.link(1) == found.links[0] and found.link(7) is None
            assert (found.strategy, found.interest, found.membership) == ("adaptive", "flooded", None)
            assert found.address == format_address(a.peer.address) and found.links[0].address == format_address(
                b.peer.address
            )
            assert 0 <= found.links[0].changed_ns <= found.uptime_ns
            assert found.links[0].rtt_ns == 2 * found.links[0].delay_ns and found.links[0].loss == 0.0
            assert found.published >= 1 and (found.delivered, found.subscriptions) == (0, 0)
            other = await there.status()
            assert (other.subscriptions, other.published) == (1, 0)

    run(scene())


def test_flat_has_a_dotted_name_for_every_number() -> None:
    snapshot = StatusSnapshot(
        peer=3,
        incarnation=9,
        software="0",
        links=(wend.LinkStatus(5, "up", True, 10, 1.0), wend.LinkStatus(6, "down", False, 10, 0.5)),
        subscriptions=2,
        published=3,
        delivered=4,
        late=1,
        in_flight=5,
        data=7,
        data_unicast=8,
        control={"probes": 1, "acks": 2},
        drops={"no-route": 3},
        clients={"now": 4, "connected": 5},
        shaper={"lost": 6},
        plugins={"trees": {"generation": 2, "0.5": 1}},
    )
    counters = {
        "published": 3,
        "delivered": 4,
        "late": 1,
        "data": 7,
        "data_unicast": 8,
        "control.acks": 2,
        "control.probes": 1,
        "drops.no-route": 3,
        "clients.connected": 5,
        "shaper.lost": 6,
    }
    assert snapshot.counters() == counters
    state = {
        "subscriptions": 2,
        "in_flight": 5,
        "waiting": 0,
        "clients.now": 4,
        "links.5": 1,
        "links.6": 0,
        "trees.generation": 2,
        "trees.0.5": 1,
    }
    assert snapshot.flat() == counters | state


def test_a_snapshot_of_a_later_version_can_still_be_read() -> None:
    later = {"version": 2, "peer": 3, "incarnation": 1, "software": "9", "data": 4, "from_the_future": [1]}
    found = msgspec.msgpack.decode(msgspec.msgpack.encode(later), type=StatusSnapshot)
    assert (found.version, found.data, found.links) == (2, 4, ())
