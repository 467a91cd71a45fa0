"""The send queue of a link: what leaves first, what goes back, and how much may wait."""

from hypothesis import given
from hypothesis import strategies as st

from wend.model.units import FOREVER, MS, SECOND
from wend.protocol.link.congestion import Controller
from wend.protocol.link.link_sender import PROBE_NS, LinkSender

SIZE = 100


class Fixed(Controller):
    """A window of one packet, and a round trip of 10 ms."""

    def __init__(self, window: float = SIZE) -> None:
        super().__init__(0)
        self.window = window
        self.least_ns = self.standing_ns = 10 * MS
        self.srtt_ns = float(10 * MS)


def sender(window: float = SIZE, limit: int = 10_000) -> LinkSender:
    return LinkSender(Fixed(window), limit)


def drained(one: LinkSender, now: int = 0) -> list[object]:
    """What leaves, one after the other, each acknowledged at once."""
    found = []
    while (popped := one.pop(now)) is not None:
        found.append(popped[0])
    return found


def test_a_packet_passes_at_once_while_the_window_is_open() -> None:
    one = sender(window=2 * SIZE)
    assert one.try_send(0, SIZE)
    assert one.try_send(0, SIZE)
    assert not one.try_send(0, SIZE)
    one.on_ack(10 * MS, SIZE, 10 * MS)
    assert one.try_send(10 * MS, SIZE)


def test_no_packet_overtakes_those_that_wait() -> None:
    one = sender()
    assert one.push("waits", SIZE, 1, FOREVER)
    assert not one.try_send(0, SIZE)


def test_the_most_urgent_packet_leaves_first_and_those_without_deadline_last() -> None:
    one = sender(window=1000)
    one.push("whenever", SIZE, 1, FOREVER)
    one.push("soon", SIZE, 1, 50 * MS)
    one.push("now", SIZE, 1, 20 * MS)
    assert drained(one) == ["now", "soon", "whenever"]
    assert one.queued_bytes == 0


def test_publishers_without_deadlines_take_turns() -> None:
    one = sender(window=10_000)
    for number in range(4):
        one.push(f"busy {number}", SIZE, 1, FOREVER)
    one.push("quiet", SIZE, 2, FOREVER)
    assert drained(one)[:2] == ["busy 0", "quiet"]


def test_a_packet_that_cannot_be_in_time_comes_back() -> None:
    one = sender()
    one.push("late", SIZE, 1, 12 * MS)
    assert one.pop_late(0) is None
    assert one.pop_late(8 * MS) == "late"
    assert one.pop_late(8 * MS) is None


def test_who_comes_behind_others_arrives_later() -> None:
    one = sender()
    one.push("first", SIZE, 1, 100 * MS)
    assert one.expected_ns(0, 50 * MS) == 5 * MS
    assert one.expected_ns(0, 200 * MS) == 15 * MS  # a window of one packet needs a round trip for each
    assert one.wait_ns == 10 * MS


def test_the_queue_has_room_for_so_many_bytes() -> None:
    one = sender(limit=250)
    assert one.push("a", SIZE, 1, FOREVER)
    assert not one.is_crowded
    assert one.push("b", SIZE, 1, 5 * SECOND)
    assert one.is_crowded
    assert not one.push("c", SIZE, 1, FOREVER)
    assert one.waiting() == ["b", "a"]
    assert one.clear() == ["b", "a"]
    assert one.queued_bytes == 0


def test_two_probes_are_in_flight_over_a_link_that_is_down_one_after_the_other() -> None:
    one = sender(window=1000)
    one.stop()
    assert [one.try_send(now * PROBE_NS, SIZE) for now in (0, 0, 1, 1, 2)] == [True, False, True, False, False]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 500), st.integers(1, 300)), max_size=40))
def test_bytes_are_counted_right_whatever_happens(steps: list[tuple[int, int, int]]) -> None:
    one = sender(window=600, limit=2000)
    flight: list[int] = []
    waiting: dict[int, int] = {}
    for number, (what, due, size) in enumerate(steps):
        now = number * MS
        if what == 0 and one.try_send(now, size):
            flight.append(size)
        elif what == 1 and one.push(number, size, due % 3, due * MS if due < 250 else FOREVER):
            waiting[number] = size
        elif what == 2 and flight:
            one.on_ack(now, flight.pop(), 10 * MS)
        elif what == 3 and (popped := one.pop(now)) is not None:
            one.count_sent(now, popped[1])
            flight.append(waiting.pop(popped[0]))
        assert one.flight_bytes == sum(flight)
        assert one.queued_bytes == sum(waiting.values()) <= 2000
        assert sorted(one.waiting()) == sorted(waiting)
