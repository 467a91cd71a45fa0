"""Blocks of coded events at the peer of a subscriber: they wait for enough others, in bounded memory, for a while."""

import random

import msgspec
import pytest

from tests.protocol.talk import A, B, C, S, Talk, event, tx
from wend.model.blocks import cut_event
from wend.model.events import CodedBlock, Event
from wend.model.units import MS, SECOND, Nanos
from wend.protocol.delivery.block_reassembly import MAX_BYTES, WAIT_NS, BlockReassembly
from wend.protocol.link.window import DuplicateFilter
from wend.protocol.messages import Data
from wend.protocol.notices import DropCode, RefusalCode
from wend.protocol.ports import Deliver, Drop, Effect, LocalSubscription, Notice, Refuse, WakeAt, Woken
from wend.protocol.timers import Timers

PAYLOAD = random.Random(1).randbytes(3000)
MINE = (LocalSubscription(1, "topic = 't'"),)


def large(sequence: int = 1, payload: bytes = PAYLOAD) -> Event:
    return msgspec.structs.replace(event(sequence), payload=payload)


def delivered(effects: list[Effect]) -> list[Event]:
    return [effect.event for effect in effects if isinstance(effect, Deliver)]


def refusals(effects: list[Effect]) -> list[tuple[int, str]]:
    return [(effect.peer, effect.code) for effect in effects if isinstance(effect, Refuse)]


class Blocks:
    """A reassembly at A, with its timers."""

    def __init__(self) -> None:
        self.timers = Timers()
        self.delivered = DuplicateFilter()
        self.reassembly = BlockReassembly(A, self.timers, self.delivered)

    def add(self, block: Event, now: Nanos = 0) -> tuple[Event | None, list[Effect]]:
        effects: list[Effect] = []
        return self.reassembly.add(now, block, effects), effects

    def wait(self, until: Nanos) -> list[Effect]:
        effects: list[Effect] = []
        while self.timers.heap and self.timers.heap[0][0] <= until:
            self.timers.run(self.timers.heap[0][0], effects)
        return effects


def incomplete(sequence: int = 1) -> Drop:
    code: DropCode = "code-incomplete"
    return Drop(event(sequence).id, (A,), code)


# ---------------------------------------------------------------- the part alone


def test_the_last_needed_block_completes_the_event() -> None:
    blocks, made = Blocks(), cut_event(large(), 3, 5)
    assert [blocks.add(made[index])[0] for index in (4, 1, 3)] == [None, None, large()]
    assert blocks.reassembly.size == 0
    assert blocks.reassembly.ids == ()


def test_a_block_that_arrives_again_counts_once() -> None:
    blocks, made = Blocks(), cut_event(large(), 2, 4)
    blocks.add(made[0])
    assert blocks.add(made[0]) == (None, [Notice("surplus-block", A)])
    assert blocks.add(made[1])[0] == large()


@pytest.mark.parametrize("other", [large(payload=PAYLOAD[:-1] + b"x"), large(payload=PAYLOAD[:-1])])
def test_blocks_of_two_versions_do_not_mix(other: Event) -> None:
    blocks = Blocks()
    blocks.add(cut_event(large(), 2, 4)[0])
    for index in (1, 2):
        assert blocks.add(cut_event(other, 2, 4)[index]) == (None, [Refuse(B, "block-mismatch")])
    assert blocks.add(cut_event(large(), 3, 4)[1]) == (None, [Refuse(B, "block-mismatch")])
    assert blocks.add(cut_event(large(), 2, 4)[3])[0] == large()


def test_a_corrupt_block_is_found_when_the_event_is_complete() -> None:
    blocks, made = Blocks(), cut_event(large(), 2, 4)
    blocks.add(made[0])
    forged = msgspec.structs.replace(made[1], payload=bytes(len(made[1].payload)))
    assert blocks.add(forged) == (None, [Refuse(B, "corrupt-blocks"), incomplete()])
    assert blocks.reassembly.size == 0


def test_an_event_that_gets_no_more_blocks_is_dropped() -> None:
    blocks, made = Blocks(), cut_event(large(), 3, 5)
    blocks.add(made[0])
    blocks.add(made[1], 20 * SECOND)
    assert blocks.wait(20 * SECOND + WAIT_NS - 1) == []
    assert blocks.wait(20 * SECOND + WAIT_NS) == [incomplete()]
    assert blocks.reassembly.size == 0
    assert blocks.timers.heap == []


def test_an_event_that_arrived_as_a_whole_is_not_dropped() -> None:
    blocks, made = Blocks(), cut_event(large(), 3, 5)
    blocks.add(made[0])
    blocks.delivered.add(event().id)
    assert blocks.reassembly.ids == ()
    assert blocks.wait(WAIT_NS) == []
    assert blocks.reassembly.size == 0


def test_surplus_and_foreign_blocks_do_not_prolong_the_wait() -> None:
    blocks, made = Blocks(), cut_event(large(), 3, 5)
    blocks.add(made[0])
    for second in range(1, 30):
        blocks.add(made[0], second * SECOND)
        blocks.add(cut_event(large(payload=b"other"), 2, 3)[0], second * SECOND)
    assert blocks.wait(WAIT_NS) == [incomplete()]


def test_the_event_that_waited_longest_makes_room() -> None:
    blocks, payload = Blocks(), bytes(200_000)
    found: list[Effect] = []
    for sequence in range(1, 400):
        found += blocks.add(cut_event(large(sequence, payload), 2, 3)[0], sequence * MS)[1]
        assert blocks.reassembly.size <= MAX_BYTES
    kept = len(blocks.reassembly.ids)
    assert 100 < kept < 200
    assert found == [incomplete(sequence) for sequence in range(1, 400 - kept)]


# ---------------------------------------------------------------- a peer


def blocks_over(talk: Talk, numbered: list[tuple[int, int, Event]], dests: tuple[int, ...] = (A,)) -> list[Effect]:
    """What the peer does when these blocks arrive: sender, transmission number and block."""
    effects: list[Effect] = []
    for sender, number, block in numbered:
        effects += talk.hear(0, sender, Data(tx(number), block, 5 * MS, dests))
    return effects


def test_a_peer_delivers_a_coded_event_once_and_drops_the_rest() -> None:
    talk = Talk(mine=MINE)
    made = cut_event(large(), 2, 4)
    effects = blocks_over(talk, [(B, 100, made[3]), (C, 100, made[0]), (B, 101, made[1]), (C, 101, made[2])])
    assert delivered(effects) == [large()]
    assert effects.count(Notice("surplus-block", A)) == 2


def test_a_whole_copy_overtakes_the_blocks() -> None:
    talk = Talk(mine=MINE)
    made = cut_event(large(), 2, 4)
    effects = blocks_over(talk, [(B, 100, made[0]), (C, 100, large()), (B, 101, made[1])])
    assert delivered(effects) == [large()]
    assert effects.count(Notice("surplus-block", A)) == 1
    assert event().id not in talk.peer.unfinished()


def test_a_peer_is_responsible_for_an_event_that_lacks_blocks() -> None:
    talk = Talk(mine=MINE)
    effects = blocks_over(talk, [(B, 100, cut_event(large(), 2, 4)[0])])
    assert delivered(effects) == []
    assert event().id in talk.peer.unfinished()
    now = 0
    while not (drops := [effect for effect in effects if isinstance(effect, Drop)]):
        now = next(effect.time_ns for effect in reversed(effects) if isinstance(effect, WakeAt))
        effects = talk(now, Woken())
    assert drops == [incomplete()]
    assert WAIT_NS <= now <= WAIT_NS + SECOND


@pytest.mark.parametrize("dests", [(A,), (S,), (A, S)])
@pytest.mark.parametrize(
    ("change", "size"), [({"index": -1}, 0), ({"index": 256}, 0), ({"needed": 1}, 0), ({"length": 0}, 0), ({}, 1)]
)
def test_a_peer_refuses_impossible_blocks_also_in_transit(
    change: dict[str, int], size: int, dests: tuple[int, ...]
) -> None:
    talk = Talk("multipath", mine=MINE)
    good = cut_event(large(), 2, 4)[0]
    assert isinstance(good.block, CodedBlock)
    block = msgspec.structs.replace(good.block, **change)
    bad = msgspec.structs.replace(good, block=block, payload=good.payload[size:])
    code: RefusalCode = "invalid-block"
    assert blocks_over(talk, [(B, 100, bad)], dests) == [Refuse(B, code)]


def test_blocks_of_a_plugin_message_are_checked_as_well() -> None:
    blocks = Blocks()
    bad = msgspec.structs.replace(cut_event(large(), 2, 4)[0], payload=b"")
    assert refusals(blocks.add(bad)[1]) == [(B, "invalid-block")]
