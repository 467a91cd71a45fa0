"""Large events of `adaptive`: blocks and parity while links lose packets, and whole events otherwise."""

import math
import random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies.adaptive.test_adaptive import FAR, LEFT, ME, RIGHT, Talk, data, hops, notices
from wend.model.blocks import join_blocks
from wend.model.events import Event, EventId
from wend.model.publication import Publication
from wend.model.units import MS
from wend.protocol.messages import TX_SHIFT, Data, Fragment
from wend.protocol.plugins import fork
from wend.protocol.ports import Effect, Send
from wend.strategies.adaptive.parity import choose_parity

PAYLOAD = random.Random(1).randbytes(4000)


class LossyTalk(Talk):
    """The same peer, with links that lose a share of the packets."""

    def __init__(self, deadline_ms: int | None, loss: float = 0.05, **config: Any) -> None:
        super().__init__(deadline_ms, **config)
        for link in self.peer.links.values():
            link.reliability = 1.0 - loss

    def publish_large(self, payload: bytes = PAYLOAD) -> list[Effect]:
        return self(Publication({"topic": "t"}, payload))


def fragments(effects: list[Effect]) -> list[Fragment]:
    return [e.message for e in effects if isinstance(e, Send) and isinstance(e.message, Fragment)]


def late_probability(needed: int, parity: int, loss: float) -> float:
    """Of `needed` + `parity` blocks, too few are in time."""
    count = needed + parity
    return sum(math.comb(count, n) * loss**n * (1 - loss) ** (count - n) for n in range(parity + 1, count + 1))


@given(
    st.integers(2, 40),
    st.lists(st.floats(0.0, 0.5), max_size=4),
    st.floats(1e-4, 0.1),
)
def test_parity_is_the_cheapest_of_all_choices(needed: int, losses: list[float], price: float) -> None:
    def total(parity: int) -> float:
        return price * parity + sum(late_probability(needed, parity, loss) for loss in losses)

    chosen = choose_parity(needed, losses, price)
    assert 0 <= chosen <= needed
    assert total(chosen) <= min(total(parity) for parity in range(needed + 1)) + 1e-9


def test_no_loss_needs_no_parity() -> None:
    assert choose_parity(15, [0.0, 0.0], 1e-6) == 0
    assert choose_parity(15, [], 1e-6) == 0


def test_a_large_event_travels_in_blocks_with_parity() -> None:
    talk = LossyTalk(deadline_ms=45)
    effects = talk.publish_large()
    packets = data(effects)
    assert "coded" in notices(effects)
    assert not fragments(effects)
    blocks = {packet.event.block.index: packet.event for _, packet in packets if packet.event.block is not None}
    assert len(blocks) == len(packets) > 4
    assert join_blocks(dict(list(blocks.items())[-4:])) == Event(EventId(ME, 1, 1), {"topic": "t"}, PAYLOAD)


@pytest.mark.parametrize(
    ("deadline_ms", "loss", "payload", "config"),
    [
        (45, 0.0, PAYLOAD, {}),
        (None, 0.05, PAYLOAD, {}),
        (10_000, 0.05, PAYLOAD, {}),
        (45, 0.05, PAYLOAD[:1100], {}),
        (45, 0.05, PAYLOAD, {"coding": "off"}),
        (45, 0.05, PAYLOAD, {"redundancy": "none"}),
        (45, 0.05, PAYLOAD, {"persistence": True}),
        (45, 0.05, PAYLOAD, {"persistence": True, "coding": "2/3"}),
    ],
)
def test_other_events_stay_whole(deadline_ms: int | None, loss: float, payload: bytes, config: dict[str, Any]) -> None:
    effects = LossyTalk(deadline_ms, loss, **config).publish_large(payload)
    assert "coded" not in notices(effects)
    assert all(packet.event.block is None for _, packet in data(effects))
    assert fragments(effects) or len(payload) <= 1100


def test_a_given_rate_codes_every_large_event() -> None:
    effects = LossyTalk(None, 0.0, coding="2/3").publish_large()
    assert "coded" in notices(effects)
    assert hops(data(effects)) == [LEFT] * 6


def test_blocks_in_transit_are_not_copies_of_each_other() -> None:
    """Peers drop copies of lower rank, by event and destination. Two blocks of an event are no copies."""
    blocks = [packet.event for _, packet in data(LossyTalk(45, coding="1/2").publish_large())]
    blocks = [msgspec.structs.replace(block, id=EventId(9, 1, 1)) for block in blocks]
    talk, higher = Talk(45), fork(0, 9)
    found = [hear(talk, number, block, higher) for number, block in enumerate(blocks)]
    assert [hops(data(effects)) for effects in found] == [[LEFT]] * 8
    again = [hear(talk, 100 + number, block, 0) for number, block in enumerate(blocks)]
    assert [notices(effects) for effects in again] == [["duplicate"]] * 8


def hear(talk: Talk, number: int, event: Event, rank: int) -> list[Effect]:
    return talk.hear(RIGHT, Data((1 << TX_SHIFT) + 100 + number, event, 1 * MS, (FAR,), (9,), None, (rank,)))
