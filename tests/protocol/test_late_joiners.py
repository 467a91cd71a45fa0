"""Who is heard of after an event was published: for whom it is remembered, how long, and what makes room."""

from tests.protocol.talk import event
from wend.model.events import event_bytes
from wend.model.units import SECOND
from wend.protocol.delivery.late_joiners import LateJoiners
from wend.strategies.trees.queue import HOLD_NS, SETTLE_NS

FRIEND, STRANGER, OTHER = 5, 6, 7


def remembering(limit: int = 10, told: tuple[int, ...] = (FRIEND,), limit_bytes: int = 10**9) -> LateJoiners:
    late = LateJoiners(limit, limit_bytes)
    late.begin(0, frozenset(), told)
    return late


def test_one_that_was_spoken_of_is_waited_for_however_long_it_takes() -> None:
    late = remembering()
    assert late.on_published(SECOND, event(1))
    assert late.on_interest(2 * SECOND, STRANGER) == [(event(1), SECOND)]
    later = 10 * HOLD_NS
    assert late.on_published(later, event(2)) and late.forget_unneeded(later) == []
    assert late.on_interest(later, OTHER) == [(event(2), later)]  # nobody spoke of it: what is old is not for it
    assert late.on_interest(later, FRIEND) == [(event(1), SECOND), (event(2), later)]
    assert late.on_interest(later, FRIEND) == []


def test_with_nobody_to_wait_for_what_is_old_is_forgotten_and_after_a_while_all() -> None:
    late = remembering(told=())
    assert late.on_published(0, event(1)) and late.on_published(HOLD_NS, event(2))
    late.on_interest(HOLD_NS, STRANGER)
    assert late.forget_unneeded(HOLD_NS + 1) == [(event(1).id, ())]
    assert not late.on_published(HOLD_NS + SETTLE_NS, event(3))
    assert late.forget_unneeded(HOLD_NS + SETTLE_NS) == [(event(2).id, ())]
    assert late.on_interest(HOLD_NS + SETTLE_NS, OTHER) == []


def test_what_has_to_make_room_is_named_with_those_who_are_waited_for() -> None:
    late = remembering(limit=2)
    for number in range(1, 5):
        assert late.on_published(0, event(number))
    assert late.forget_unneeded(0) == [(event(1).id, (FRIEND,)), (event(2).id, (FRIEND,))]
    assert [one.id.sequence for one, _ in late.on_interest(0, FRIEND)] == [3, 4]


def test_a_limit_of_bytes_makes_room_as_well() -> None:
    late = remembering(limit_bytes=2 * event_bytes(event(1)))
    for number in range(1, 5):
        assert late.on_published(0, event(number))
    assert late.forget_unneeded(0) == [(event(1).id, (FRIEND,)), (event(2).id, (FRIEND,))]
    assert late.forget_unneeded(0) == []
    assert [one.id.sequence for one, _ in late.on_interest(0, FRIEND)] == [3, 4]
