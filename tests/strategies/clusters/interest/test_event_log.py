"""Logs of numbered streams against sets of numbers."""

from hypothesis import given
from hypothesis import strategies as st

from wend.model.events import Event, EventId
from wend.strategies.clusters.interest.event_log import EventLog, Logged, StreamLog

STREAM = (1, 1, "topic t")
MOST = 12
HUGE = 1 << 60
numbers = st.integers(1, MOST)
ranges = st.tuples(numbers, numbers).map(lambda pair: (min(pair), max(pair)))
steps = st.lists(st.one_of(numbers, ranges), max_size=20)


def logged(number: int, born_ns: int = 0) -> Logged:
    return Logged(Event(EventId(1, 1, number), {}), born_ns, "home")


def flat(found: list[tuple[int, int]]) -> list[int]:
    return [number for low, high in found for number in range(low, high + 1)]


@given(steps, numbers)
def test_what_a_peer_has_and_lacks(done: list[int | tuple[int, int]], last: int) -> None:
    log, has = StreamLog(), set[int]()
    for step in done:
        if isinstance(step, int):
            assert log.add(step) == (step not in has)
            has.add(step)
        else:
            log.skip(step)
            has.update(range(step[0], step[1] + 1))
    log.last = max(log.last, last)
    known = range(1, max([last, *has]) + 1)
    assert [number for number in known if log.has(number)] == sorted(has)
    assert flat(log.missing(MOST)) == [number for number in known if number not in has]
    assert log.has_gaps == (len(has) < len(known))
    assert log.complete == next(number for number in range(MOST + 1) if number + 1 not in has)


@given(st.lists(st.tuples(numbers, st.integers(0, 3))), ranges, st.integers(0, 4), st.sets(numbers))
def test_what_a_peer_gives(added: list[tuple[int, int]], asked: tuple[int, int], oldest: int, gone: set[int]) -> None:
    """Each number that it had is given or gone; others are neither."""
    log, held = EventLog(room=100), dict[int, int]()
    stream = log.open_stream(0, STREAM)
    for number, born in added:
        if stream.add(number):
            log.hold(0, STREAM, number, logged(number, born))
            held[number] = born
    had = set(held)
    for number in gone & held.keys():
        del stream.events[number], held[number]
    found, missing = log.select(STREAM, asked, oldest)
    inside = range(asked[0], asked[1] + 1)
    assert [number for number, _ in found] == [n for n in inside if n in held and held[n] >= oldest]
    assert sorted(flat(missing)) == [n for n in inside if n in had and (n not in held or held[n] < oldest)]


def test_numbers_that_no_peer_can_have_cost_nothing() -> None:
    """A peer may claim any number: nobody counts up to it."""
    log = EventLog(room=10)
    stream = log.open_stream(0, STREAM)
    for number in (1, 2, HUGE):
        stream.add(number)
        log.hold(0, STREAM, number, logged(number))
    assert stream.missing(4) == [(3, HUGE - 1)]
    found, gone = log.select(STREAM, (-HUGE, HUGE), 0)
    assert [number for number, _ in found] == [1, 2, HUGE] and gone == []
    stream.skip((5, HUGE - 5))
    assert stream.complete == 2
    stream.skip((3, HUGE - 1))
    assert (stream.complete, stream.has_gaps) == (HUGE, False)


def test_a_full_log_forgets_the_oldest_event() -> None:
    log = EventLog(room=2)
    assert [log.hold(n, STREAM, n, logged(n)) for n in (1, 2, 3)] == [False, False, True]
    assert sorted(log.streams[STREAM].events) == [2, 3]
    log.forget_before(3)
    assert (len(log), sorted(log.streams[STREAM].events)) == (1, [3])
    log.forget_idle(10)
    assert STREAM in log.streams  # something of it is held
    log.forget_before(4)
    log.forget_idle(10)
    assert not log.streams
