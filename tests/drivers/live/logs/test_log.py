"""A log reads as the list of what was appended, whatever is opened, closed, read and dropped in between."""

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.drivers.live.log_events import BEGIN_NS, WallClock, crash, make_event, numbers, open_log, read_all
from tests.errors import raises
from wend.drivers.live.logs.backwards import blocks_backwards
from wend.drivers.live.logs.cursor import LogCursor
from wend.drivers.live.logs.log import Log
from wend.drivers.live.logs.record import count_of
from wend.drivers.live.logs.retention import Bounds
from wend.model.units import SECOND

BOUNDS = Bounds(keep_ns=100 * SECOND, max_bytes=16 * 1000, max_events=160)


class LogMachine(RuleBasedStateMachine):
    """A log beside a list of (position, time, number of the event)."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.clock = WallClock()
        self.log = open_log(self.folder, BOUNDS, self.clock)
        self.known: list[tuple[int, int, int]] = []
        self.next = 0
        self.seen = 0
        """The last position that a reader has seen."""

    def teardown(self) -> None:
        self.log.close()
        shutil.rmtree(self.folder)

    @rule(count=st.integers(1, 30), size=st.integers(0, 300), step=st.integers(-SECOND, 2 * SECOND))
    def append(self, count: int, size: int, step: int) -> None:
        for _ in range(count):
            self.clock.now += step
            self.next += 1
            position = self.log.append(make_event(self.next, size), 5)
            time_ns = max(self.clock.now, self.known[-1][1] if self.known else 0, self.log.newest_ns)
            self.known.append((position, time_ns, self.next))
        self._follow_retention()

    @rule(back=st.integers(0, 20))
    def append_again(self, back: int) -> None:
        if back < len(self.known):
            assert self.log.append(make_event(self.known[-1 - back][2])) == 0

    @rule(seconds=st.integers(0, 120))
    def wait(self, seconds: int) -> None:
        self.clock.now += seconds * SECOND
        self.log.drop_old()
        self._follow_retention()

    def _follow_retention(self) -> None:
        first = self.log.first_position
        dropped = [each for each in self.known if each[0] < first]
        self.known = self.known[len(dropped) :]
        beyond_age = self.clock.now - BOUNDS.keep_ns if BOUNDS.keep_ns else 0
        oldest = self.log.segments[0].time_ns if self.log.segments else self.clock.now
        assert oldest >= beyond_age - BOUNDS.segment_ns or self.log.newest_ns >= beyond_age
        assert self.log.size <= 16 * 1000
        assert len(self.known) <= 160

    @rule(killed=st.booleans())
    def reopen(self, killed: bool) -> None:
        if killed:
            crash(self.log)
        else:
            self.log.close()
        self.log = open_log(self.folder, BOUNDS, self.clock)

    @rule(data=st.data(), most=st.integers(1, 40))
    def read(self, data: st.DataObject, most: int) -> None:
        position = data.draw(st.integers(1, self.log.next_position))
        records, cursor = read_all(self.log, position, most)
        expected = [each for each in self.known if each[0] >= position]
        assert [(r.position, r.time_ns, r.event().id.sequence) for r in records] == expected
        assert all(r.age_ns == 5 for r in records)
        assert cursor.dropped == max(0, count_of(self.log.first_position) - position)
        assert cursor.damaged == 0

    @rule(data=st.data())
    def find_time(self, data: st.DataObject) -> None:
        times = [each[1] for each in self.known] or [BEGIN_NS]
        time_ns = data.draw(st.integers(times[0] - 2, times[-1] + 2) | st.sampled_from(times))
        expected = next((each[0] for each in self.known if each[1] >= time_ns), self.log.next_position)
        assert self.log.position_at(time_ns) == expected

    @rule()
    def read_backwards(self) -> None:
        blocks = list(blocks_backwards(self.log))
        assert [record.position for block in reversed(blocks) for record in block] == [each[0] for each in self.known]

    @invariant()
    def positions_go_on(self) -> None:
        if self.known:
            assert self.log.next_position == self.known[-1][0] + 1
            assert self.log.first_position == self.known[0][0]
        assert self.log.events == len(self.known)


LogMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=20, deadline=None)
test_log_is_a_list = LogMachine.TestCase


def test_follows_the_end_without_reading_files(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.append(make_event(1))
    cursor = LogCursor(log, 1)
    assert numbers(cursor.read()) == [1]
    assert cursor.read() == []
    for number in (2, 3):
        log.append(make_event(number))
    log.segments[0].path.unlink()
    assert numbers(cursor.read()) == [2, 3]
    assert cursor.is_at_end


def test_one_process_at_a_time(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    with raises("log-in-use", "is in use by another peer"):
        open_log(tmp_path)
    log.close()
    open_log(tmp_path).close()


def test_closing_again_changes_nothing(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.append(make_event(1))
    log.close()
    again = open_log(tmp_path)
    again.append(make_event(2))
    content = (tmp_path / "log.json").read_bytes()
    log.close()
    assert (tmp_path / "log.json").read_bytes() == content


def test_a_newer_version_is_refused_and_unchanged(tmp_path: Path) -> None:
    open_log(tmp_path).close()
    path = tmp_path / "log.json"
    content = path.read_bytes().replace(b'"version":1', b'"version":2')
    path.write_bytes(content)
    with raises("log-unreadable", "a log of a newer version of Wend"):
        open_log(tmp_path)
    assert path.read_bytes() == content


def test_positions_of_a_log_that_was_emptied_are_not_used_again(tmp_path: Path) -> None:
    clock = WallClock()
    log = open_log(tmp_path, Bounds(keep_ns=SECOND), clock)
    for number in range(5):
        log.append(make_event(number))
    clock.now += 10 * SECOND
    assert log.drop_old() == 5
    crash(log)
    log = open_log(tmp_path, Bounds(keep_ns=SECOND), clock)
    assert (log.first_position, log.append(make_event(9))) == (6, 6)


def test_a_host_that_lost_power_begins_another_epoch(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.append(make_event(1))
    crash(log)
    again = open_log(tmp_path, boot="two")
    position = again.append(make_event(2))
    assert position > 2**40
    assert count_of(position) == 2
    assert numbers(read_all(again, 1)[0]) == [1, 2]
    assert again.id == log.id


def test_memory_holds_few_records(tmp_path: Path) -> None:
    log: Log = open_log(tmp_path)
    for number in range(10_000):
        log.append(make_event(number))
    assert len(log.tail) <= 2048


@pytest.mark.parametrize("count", [0, 1, 5, 9, 10, 50])
def test_position_by_count(tmp_path: Path, count: int) -> None:
    log = open_log(tmp_path, Bounds(max_events=64))
    for number in range(10):
        log.append(make_event(number))
    assert log.position_of_count(count) == (0 if count < 1 else min(count, 11))
