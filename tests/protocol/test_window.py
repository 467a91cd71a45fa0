"""Duplicate detection: windows of sequence numbers, the filter for events, and ranks of copies."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cores import pure_only
from tests.holdings import held
from tests.protocol.talk import A, B, Talk, event, tx
from wend.model.events import EventId
from wend.protocol.link.window import DuplicateFilter, SequenceWindow
from wend.protocol.messages import Data
from wend.protocol.plugins.copy_ranks import ForwardedCopies, fork, hedge, is_hedged, ranks_below
from wend.protocol.ports import Deliver, LocalSubscription, Notice


@given(st.lists(st.integers(0, 60), max_size=200))
def test_a_wide_window_is_a_plain_set(numbers: list[int]) -> None:
    window, seen = SequenceWindow(100), set()
    for number in numbers:
        assert (number in window) == (number in seen)
        assert window.add(number) == (number not in seen)
        seen.add(number)
        assert number in window


@given(st.integers(1, 8), st.lists(st.integers(0, 400), max_size=400))
def test_a_narrow_window_knows_its_last_numbers_and_calls_all_older_ones_seen(size: int, numbers: list[int]) -> None:
    window, seen = SequenceWindow(size), set()
    for number in numbers:
        old = bool(seen) and number <= max(seen) - size
        assert window.add(number) == (number not in seen and not old)
        seen.add(number)


def test_a_number_beyond_all_reason_is_called_seen_and_harms_nothing() -> None:
    window = SequenceWindow()
    assert not window.add(2**64)
    assert window.add(1)


@given(st.lists(st.tuples(st.integers(0, 3), st.sets(st.integers(0, 5))), max_size=40))
def test_equal_copies_are_never_dropped(arrivals: list[tuple[int, set[int]]]) -> None:
    copies = ForwardedCopies()
    for sequence, dests in arrivals:
        assert copies.record((0, 1, sequence), tuple(sorted(dests)), ())[0] == tuple(sorted(dests))


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=40))
def test_a_copy_is_dropped_only_where_a_higher_one_has_been(made: list[tuple[int, int]]) -> None:
    copies = ForwardedCopies()
    highest = -1
    for by, peer in made:
        rank = 0
        for _ in range(by + 1):
            rank = fork(rank, peer)
        fresh, _ = copies.record((0, 1, 1), (7,), (rank,))
        assert (fresh == ()) == (highest >= 0 and ranks_below(rank, highest))
        if fresh:
            highest = rank


def test_a_fork_ranks_above_and_a_hedge_does_not() -> None:
    assert ranks_below(0, fork(0, 3))
    assert ranks_below(fork(0, 3), fork(fork(0, 3), 1))
    assert not ranks_below(0, hedge(0))
    assert is_hedged(fork(hedge(0), 3))


def test_what_was_given_back_is_welcome_again() -> None:
    copies = ForwardedCopies()
    copies.record((0, 1, 1), (4, 5), (fork(0, 1), fork(0, 1)))
    assert copies.record((0, 1, 1), (4, 5), ()) == ((), ())
    copies.give_back((0, 1, 1), (4,))
    assert copies.record((0, 1, 1), (4, 5), ())[0] == (4,)


def test_an_event_too_old_to_know_is_told_from_a_duplicate() -> None:
    seen = DuplicateFilter()
    assert seen.add(EventId(1, 1, 5))
    assert not seen.add(EventId(1, 1, 5))
    assert not seen.is_too_old(EventId(1, 1, 5))
    assert seen.add(EventId(1, 1, 10_000))
    assert not seen.add(EventId(1, 1, 6))
    assert seen.is_too_old(EventId(1, 1, 6))
    assert seen.add(EventId(1, 2, 6)), "another incarnation counts anew"


@pure_only
@given(st.integers(1, 5000), st.lists(st.tuples(st.integers(0, 12), st.integers(-3, 1030)), max_size=200))
def test_a_window_across_blocks_is_a_set_of_its_last_numbers_and_no_larger_than_it_must_be(
    size: int, numbers: list[tuple[int, int]]
) -> None:
    window, seen, highest = SequenceWindow(size), set(), -1
    for block, within in numbers:
        number = max(0, block * 1024 + within)
        old = number <= highest - size
        assert (number in window) == (number in seen or old)
        assert window.add(number) == (number not in seen and not old)
        seen.add(number)
        highest = max(highest, number)
        assert (window.highest, window.is_too_old(number)) == (highest, number <= highest - size)
        assert max(held(window).values()) <= max(1024, size // 1024 + 2)


@given(st.lists(st.integers(-20, 20), max_size=50))
def test_a_window_tells_negative_numbers_apart(numbers: list[int]) -> None:
    """No honest sender has them, but an event of a hostile one may."""
    window, seen = SequenceWindow(), set()
    for number in numbers:
        assert (number in window) == (number in seen)
        assert window.add(number) == (number not in seen)
        seen.add(number)


@pure_only
def test_a_window_takes_memory_as_numbers_come() -> None:
    window, sizes = SequenceWindow(), []
    for number in range(20_000):
        if number in (0, 20, 500, 19_999):
            sizes.append(sum(held(window).values()))
        window.add(number)
    assert sizes == [0, 32, 512, 1024 + 4]


@given(st.integers(1, 5), st.lists(st.integers(0, 12), max_size=100))
def test_the_filter_remembers_the_incarnations_seen_last_and_bounds_their_number(most: int, came: list[int]) -> None:
    seen = DuplicateFilter(incarnations=most)
    last: list[int] = []
    for incarnation in came:
        new = seen.add(EventId(1, incarnation, 1))
        assert not (new and incarnation in last[-most:])
        last = [other for other in last if other != incarnation] + [incarnation]
        assert len(seen) <= 2 * most


@given(st.lists(st.one_of(st.integers(-5, 130), st.integers(4000, 4200)), max_size=80))
def test_the_filter_knows_the_first_numbers_of_a_publisher_as_a_window_does(numbers: list[int]) -> None:
    seen, window = DuplicateFilter(), SequenceWindow()
    for number in numbers:
        id_ = EventId(1, 1, number)
        assert (id_ in seen) == (number in window)
        assert seen.add(id_) == window.add(number)
        assert seen.is_too_old(id_) == window.is_too_old(number)


@pytest.mark.parametrize("retry_limit", [10_000, 1_000_000])
def test_with_any_retry_limit_a_duplicate_is_known_among_many_publishers(retry_limit: int) -> None:
    talk = Talk(persistence=True, retry_limit=retry_limit, mine=(LocalSubscription(0, "topic = 't'"),))
    packets = [Data(tx(1000 + p), event(1, publisher=p), 0, (A,), (B,)) for p in range(100, 400)]
    again = [Data(tx(2000 + p), event(1, publisher=p), 0, (A,), (B,)) for p in range(100, 400)]
    first, second = (
        Counter(type(e) for packet in batch for e in talk.hear(0, B, packet)) for batch in (packets, again)
    )
    assert (first[Deliver], second[Deliver], second[Notice]) == (300, 0, 300)
