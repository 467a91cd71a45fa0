"""However copies of an event are made and wherever they meet, one of them always goes on."""

from hypothesis import given
from hypothesis import strategies as st

from wend.model.events import EventId
from wend.protocol.plugins.copy_ranks import ForwardedCopies, fork, hedge, is_hedged

ID = EventId(1, 1, 1)


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 4), st.booleans()), max_size=40),
    st.sampled_from([1, 2**15, 2**16]),
)
def test_the_highest_copy_is_never_dropped(steps: list[tuple[int, int, bool]], apart: int) -> None:
    """Copies walk between peers in any order; at each step one moves, and may leave a new copy behind.

    Ids that lie far `apart` do not tell all peers apart in a mark.
    """
    peers = [ForwardedCopies() for _ in range(6)]
    copies = [0]
    for to, which, splits in steps:
        place = which % len(copies)
        mark = copies.pop(place)
        if splits:
            copies.append(mark)
            mark = fork(mark, apart * to)
        dests, ranks = peers[to].record(ID, (9,), (mark,) if mark else ())
        if dests:
            copies.append(ranks[0] if ranks else 0)
        assert copies, "the last copy was dropped"


@given(st.integers(0, 2**40), st.integers(0, 2**16 - 1))
def test_a_new_copy_ranks_above_the_one_it_was_made_from(mark: int, peer: int) -> None:
    assert fork(mark, peer) >> 1 > mark >> 1
    assert is_hedged(fork(mark, peer)) == is_hedged(mark)
    assert is_hedged(hedge(mark)) and hedge(mark) >> 1 == mark >> 1


def test_a_lower_copy_is_dropped_where_a_higher_one_has_been() -> None:
    taken = ForwardedCopies()
    assert taken.record(ID, (8, 9), (fork(0, 1), 0)) == ((8, 9), (fork(0, 1), 0))
    assert taken.record(ID, (8, 9), ()) == ((9,), (0,))
    assert taken.record(ID, (8,), (fork(0, 2),)) == ((8,), (fork(0, 2),))


def test_what_went_back_is_welcome_again() -> None:
    taken = ForwardedCopies()
    taken.record(ID, (8,), (fork(0, 1),))
    taken.give_back(ID, (8,))
    assert taken.record(ID, (8,), ())[0] == (8,)


def test_old_events_are_forgotten() -> None:
    taken = ForwardedCopies(limit=3)
    for sequence in range(10):
        taken.record(EventId(1, 1, sequence), (8,), (fork(0, 1),))
        assert len(taken) <= 6
    for recent in (7, 8, 9):
        assert taken.record(EventId(1, 1, recent), (8,), ())[0] == ()
    assert taken.record(EventId(1, 1, 0), (8,), ())[0] == (8,)
