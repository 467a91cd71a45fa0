"""The rule of election, as functions: who stays, who takes over, and where it comes to rest."""

from hypothesis import given, settings
from hypothesis import strategies as st

from wend.strategies.clusters.membership.election import (
    first_slots,
    is_first,
    reassign,
    succession,
    takeover_delay,
    wins,
)
from wend.strategies.clusters.membership.messages import Roster, Slot, Slots, are_slots_invalid, slot_holders

PEERS = st.lists(st.integers(0, 30), min_size=1, max_size=12, unique=True).map(sorted)


def rest(slots: Slots, live: list[int], backups: int) -> Slots:
    """The slots when the head has looked again until nothing changes."""
    for _ in range(10):
        after = reassign(slots, live, (), backups, slots[0].term, True)
        if after == slots:
            return slots
        slots = after
    raise AssertionError("the slots never come to rest")


@settings(max_examples=300)
@given(st.integers(1, 4), st.integers(0, 3), st.lists(st.tuples(PEERS, st.booleans()), min_size=1, max_size=6))
def test_slots_of_any_history(trees: int, backups: int, history: list[tuple[list[int], bool]]) -> None:
    slots, before = first_slots(history[0][0][0], trees), history[0][0]
    for term, (live, rests) in enumerate(history, 2):
        fresh = [peer for peer in live if peer not in before]
        after = reassign(slots, live, fresh, backups, term, False)
        assert not are_slots_invalid(after, trees) and {*slot_holders(after)} <= {*live}
        for old, new in zip(slots, after, strict=True):
            stateful = [peer for peer in old.holders if peer in live and peer not in fresh]
            if stateful:
                assert new.active == (old.active if old.active in stateful else new.active)
                assert new.active in stateful
            assert [peer for peer in old.backups if peer in stateful and peer != new.active] == [
                peer for peer in new.backups if peer in old.backups
            ]
        if rests:
            after = rest(after, live, backups)
            assert len({slot.active for slot in after}) == min(trees, len(live))
            assert {len(slot.backups) for slot in after} == {min(backups, len(live) - 1)}
            assert reassign(after, live, (), backups, term, False) == after
        slots, before = after, live


def test_a_tree_changes_hands_only_to_one_that_was_a_backup_before() -> None:
    alone = first_slots(1, 2)
    two = reassign(alone, [1, 2], [2], 1, 2, False)
    assert [(slot.active, slot.backups) for slot in two] == [(1, (2,)), (1, (2,))]
    ready = reassign(two, [1, 2], (), 1, 3, True)
    assert [(slot.active, slot.backups) for slot in ready] == [(1, (2,)), (2, (1,))]
    four = reassign(ready, [1, 2, 3, 4], [3, 4], 1, 4, False)
    assert [(slot.active, slot.backups) for slot in four] == [(1, (2, 3)), (2, (1, 4))]
    assert [slot.backups for slot in reassign(four, [1, 2, 3, 4], (), 1, 5, True)] == [(3,), (4,)]


def test_an_heir_that_coordinates_nothing_goes_first() -> None:
    slots = (Slot(1, (2, 3), 5), Slot(2, (1, 4), 5))
    after = reassign(slots, [2, 3, 4], (), 2, 6, False)
    assert [slot.active for slot in after] == [3, 2]
    assert reassign(slots, [2, 4], (), 1, 6, False)[0].active == 2


def test_succession() -> None:
    slots = (Slot(5, (7,), 3), Slot(2, (9,), 3))
    roster = Roster(3, 2, tuple((peer, 1) for peer in (1, 2, 4, 5, 7, 9)), slots)
    assert succession(roster) == (2, 5, 7, 9, 1, 4)
    assert is_first(roster, 2, ()) and not is_first(roster, 5, ()) and is_first(roster, 7, (2, 5))
    assert [takeover_delay(roster, peer, ()) for peer in (1, 4)] == [0, 1]


def test_of_two_rosters_exactly_one_wins() -> None:
    assert wins(4, 9, 3, 1) and not wins(3, 1, 4, 9)
    assert wins(4, 1, 4, 9) and not wins(4, 9, 4, 1)
