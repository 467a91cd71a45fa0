"""What a peer says of its links: up only where somebody was heard there."""

import pytest

from tests.protocol.talk import A, B, C, D, S, Talk, event, tx
from wend.drivers.live.status import standing
from wend.model.units import MS
from wend.protocol.messages import Ack, Data, Hello
from wend.protocol.ports import Received, Send


def links(talk: Talk) -> dict[int, int]:
    return {peer: standing(talk.peer)[f"links.{peer}"] for peer in (B, C, D)}


def test_a_neighbour_that_was_never_heard_is_not_up() -> None:
    talk = Talk("dcrd")
    assert links(talk) == {B: 1, C: 0, D: 0}
    talk.hear(0, C, Data(tx(1), event(publisher=C), 0, (A,), (C,)))
    talk.hear(0, D, Hello(1, True))
    assert links(talk) == {B: 1, C: 1, D: 1}


def test_without_probes_one_that_does_not_answer_is_down_until_it_is_heard() -> None:
    talk = Talk("dcrd")
    for peer in (C, D):
        talk.hear(0, peer, Hello(1, True))
    effects = talk.hear(0, B, Data(tx(99), event(), 0, (S,), (B,)))
    number = next(e.message.tx for e in effects if isinstance(e, Send) and isinstance(e.message, Data))
    talk.wake(21 * MS)  # a round trip to C, and no answer
    assert links(talk) == {B: 1, C: 0, D: 1}
    talk.hear(30 * MS, C, Ack(number))
    assert links(talk) == {B: 1, C: 1, D: 1}


@pytest.mark.parametrize("hears", [True, False])
def test_with_probes_both_directions_count(hears: bool) -> None:
    talk = Talk("adaptive", quiet=False)
    talk.peer.handle(0, Received(C, Hello(1, hears)))
    assert links(talk) == {B: 1, C: int(hears), D: 0}
