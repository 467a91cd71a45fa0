"""Conversations with a peer that runs `multipath`: full copies on several routes, and blocks of large events."""

import random

import pytest

from tests.protocol.talk import A, B, C, D, S, T, Talk, event, sent, tx
from wend.model.blocks import join_blocks
from wend.model.events import Event
from wend.model.publication import Publication
from wend.model.units import MS
from wend.protocol.messages import Data, Fragment
from wend.protocol.ports import Drop, Notice

PAYLOAD = random.Random(1).randbytes(2000)
# To S over C takes 20 ms, over D 30 ms, over B 40 ms.
GRAPH = {(A, B): 10, (A, C): 10, (A, D): 20, (B, S): 30, (C, S): 10, (D, S): 10}


def publish(talk: Talk, payload: bytes = PAYLOAD) -> list[tuple[int, Data]]:
    effects = talk(0, Publication({"topic": "t"}, payload))
    return [(hop, message) for hop, message in sent(effects) if isinstance(message, Data)]


@pytest.mark.parametrize(("copies", "hops"), [(1, [C]), (2, [C, D]), (3, [B, C, D]), (4, [B, C, D])])
def test_each_copy_takes_its_own_route(copies: int, hops: list[int]) -> None:
    packets = publish(Talk("multipath", GRAPH, (S,), copies=copies), b"small")
    assert sorted(hop for hop, _ in packets) == hops


def test_blocks_take_as_many_routes_as_the_rate_names() -> None:
    packets = publish(Talk("multipath", GRAPH, (S,), coding="2/3"))
    by_hop: dict[int, list[Event]] = {}
    for hop, packet in packets:
        by_hop.setdefault(hop, []).append(packet.event)
    assert {hop: len(blocks) for hop, blocks in by_hop.items()} == {B: 1, C: 1, D: 1}
    for lost in (B, C, D):  # any two routes are enough
        arrived = [block for hop, blocks in by_hop.items() if hop != lost for block in blocks]
        whole = join_blocks({block.block.index: block for block in arrived if block.block is not None})
        assert whole is not None
        assert whole.payload == PAYLOAD


def test_without_a_rate_and_for_small_events_there_are_copies() -> None:
    for talk, payload in (
        (Talk("multipath", GRAPH, (S,)), PAYLOAD),
        (Talk("multipath", GRAPH, (S,), coding="off"), PAYLOAD),
        (Talk("multipath", GRAPH, (S,), coding="1/2"), PAYLOAD[:1100]),
        (Talk("multipath", GRAPH, (S,), coding="1/2", persistence=True), PAYLOAD),
    ):
        messages = [m for _, m in sent(talk(0, Publication({"topic": "t"}, payload))) if isinstance(m, Data | Fragment)]
        assert len(messages) == 2 * -(-len(payload) // 1100)
        assert all(isinstance(m, Fragment) or m.event.block is None for m in messages)


def test_the_least_size_is_a_setting() -> None:
    packets = publish(Talk("multipath", GRAPH, (S,), coding="1/2", coding_least_bytes=100), PAYLOAD[:100])
    assert [len(packet.event.payload) for _, packet in packets] == [50] * 4


def test_a_subscriber_without_a_route_is_dropped_once() -> None:
    talk = Talk("multipath", GRAPH, (S, T), coding="2/3")
    effects = talk(0, Publication({"topic": "t"}, PAYLOAD))
    assert Notice("coded", A) in effects
    assert [e for e in effects if isinstance(e, Drop)] == [Drop(event(1, A).id, (T,), "no-route")]


def test_a_block_in_transit_stays_on_its_route() -> None:
    there = Talk("multipath", GRAPH, (S,), coding="2/3")
    _, packet = publish(there)[0]
    talk = Talk("multipath", GRAPH, (S,))
    header = type(packet.header)(((S,),))
    onward = talk.hear(0, B, Data(tx(100), packet.event, 5 * MS, (S,), (B,), header))
    forwarded = [(hop, m.event) for hop, m in sent(onward) if isinstance(m, Data)]
    assert forwarded == []  # A has no link to S
    header = type(packet.header)(((C, S),))
    onward = talk.hear(0, B, Data(tx(101), packet.event, 5 * MS, (S,), (B,), header))
    assert [(hop, m.event) for hop, m in sent(onward) if isinstance(m, Data)] == [(C, packet.event)]
