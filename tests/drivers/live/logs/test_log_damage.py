"""What damage costs a log: the records that it hits, and no others. No position ever names two events."""

import errno
import os
import shutil
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.drivers.live.log_events import WallClock, crash, make_event, numbers, open_log, read_all
from wend.drivers.live.logs.cursor import LogCursor
from wend.drivers.live.logs.log import Log
from wend.drivers.live.logs.record import count_of
from wend.drivers.live.logs.retention import Bounds
from wend.drivers.live.logs.segment import HEADER_BYTES

EVENTS = 12
BOUNDS = Bounds(max_events=16 * 5)
"""Five events in a segment."""


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a log whose process was killed."""
    folder = tmp_path_factory.mktemp("original") / "log"
    log = open_log(folder, BOUNDS)
    for number in range(1, EVENTS + 1):
        log.append(make_event(number))
    crash(log)
    return folder


def copy(original: Path, to: Path) -> list[Path]:
    """A copy of the log. Returns its segments."""
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(original, to)
    return sorted(to.glob("*.segment"))


def check_continues(folder: Path, held: list[int]) -> None:
    """The log holds these events, and the next ones get positions that no event had."""
    log = open_log(folder, BOUNDS)
    records, cursor = read_all(log, 1)
    assert numbers(records) == held
    assert {record.position for record in records if record.position <= EVENTS} == {*held}
    assert cursor.damaged + len(records) == count_of(log.next_position) - 1
    position = log.append(make_event(100))
    assert position > EVENTS
    crash(log)
    again = open_log(folder, BOUNDS)
    assert numbers(read_all(again, 1)[0]) == [*held, 100]
    assert read_all(again, position)[0][0].event() == make_event(100)
    crash(again)


def test_truncated_at_any_byte(original: Path, tmp_path: Path) -> None:
    size = copy(original, tmp_path / "log")[-1].stat().st_size
    frame = (size - HEADER_BYTES) // 2
    for end in range(size - 1):
        os.truncate(copy(original, tmp_path / "log")[-1], end)
        whole = max(0, end - HEADER_BYTES) // frame
        log = open_log(tmp_path / "log", BOUNDS)
        records, _ = read_all(log, 1)
        assert numbers(records) == list(range(1, 11 + whole))
        is_clean = end == HEADER_BYTES + frame * whole and whole
        assert log.append(make_event(50)) >= (11 + whole if is_clean else 2**40)
        crash(log)


def test_a_log_that_was_closed_knows_its_end(original: Path, tmp_path: Path) -> None:
    copy(original, tmp_path / "log")
    open_log(tmp_path / "log", BOUNDS).close()
    segment = sorted((tmp_path / "log").glob("*.segment"))[-1]
    os.truncate(segment, HEADER_BYTES + (segment.stat().st_size - HEADER_BYTES) // 2)
    check_continues(tmp_path / "log", list(range(1, EVENTS)))


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_flipped_bytes_cost_the_records_that_they_hit(
    original: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.getbasetemp() / "flipped"
    segments = copy(original, folder)
    number = data.draw(st.integers(0, len(segments) - 1))
    content = bytearray(segments[number].read_bytes())
    frame = (len(content) - HEADER_BYTES) // (2 if number == 2 else 5)
    hit = set()
    for at in data.draw(st.lists(st.integers(0, len(content) - 1), min_size=1, max_size=4, unique=True)):
        content[at] ^= data.draw(st.integers(1, 255))
        if at >= HEADER_BYTES:
            hit.add(5 * number + 1 + (at - HEADER_BYTES) // frame)
    segments[number].write_bytes(content)
    check_continues(folder, [each for each in range(1, EVENTS + 1) if each not in hit])


@pytest.mark.parametrize("lost", [".index", "log.json"])
@pytest.mark.parametrize("how", ["removed", "zeros", "cut"])
def test_files_beside_the_segments_are_not_needed(original: Path, tmp_path: Path, lost: str, how: str) -> None:
    copy(original, tmp_path / "log")
    for path in (each for each in (tmp_path / "log").iterdir() if each.name.endswith(lost)):
        if how == "removed":
            path.unlink()
        else:
            path.write_bytes(bytes(path.stat().st_size) if how == "zeros" else path.read_bytes()[:9])
    check_continues(tmp_path / "log", list(range(1, EVENTS + 1)))


def test_a_large_segment_without_an_index(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for number in range(1, 401):
        log.append(make_event(number, 5000))
    crash(log)
    path = log.segments[0].index_path
    written = path.read_bytes()
    path.unlink()
    again = open_log(tmp_path)
    assert again.next_position == 401
    assert numbers(read_all(again, 390)[0]) == list(range(390, 401))
    crash(again)
    assert len(path.read_bytes()) > len(written) // 2


def test_a_segment_that_vanished_is_counted(original: Path, tmp_path: Path) -> None:
    copy(original, tmp_path / "log")[1].unlink()
    log = open_log(tmp_path / "log", BOUNDS)
    records, cursor = read_all(log, 1)
    assert numbers(records) == [1, 2, 3, 4, 5, 11, 12]
    assert cursor.damaged == 5


def test_a_disk_without_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(tmp_path, Bounds(max_events=16 * 50))
    space = 0
    pwrite = os.pwrite

    def write(file: int, data: bytes, at: int) -> int:
        nonlocal space
        if not space:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = pwrite(file, data[:space], at)
        space -= written
        return written

    monkeypatch.setattr(os, "pwrite", write)
    appended = 0
    for step in range(400):
        space = 37 * step % 400
        with suppress(OSError):
            appended += log.append(make_event(appended + 1)) > 0
    assert 20 < appended < 380
    assert numbers(read_all(log, 1)[0]) == list(range(1, appended + 1))
    crash(log)
    assert numbers(read_all(open_log(tmp_path, Bounds(max_events=16 * 50)), 1)[0]) == list(range(1, appended + 1))


def test_pages_that_the_disk_cannot_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(tmp_path)
    for number in range(1, 401):
        log.append(make_event(number, 1000))
    crash(log)
    pread = os.pread

    def read(file: int, size: int, at: int) -> bytes:
        if at <= 100_000 < at + size:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return pread(file, size, at)

    monkeypatch.setattr(os, "pread", read)
    again = open_log(tmp_path)
    again.tail.clear()
    records, cursor = read_all(again, 1)
    assert 2 <= cursor.damaged <= 6
    assert len(records) + cursor.damaged == 400


def test_a_reader_that_retention_overtakes_counts_what_it_lost(tmp_path: Path) -> None:
    log = open_log(tmp_path, Bounds(max_events=160), WallClock())
    for number in range(1, 11):
        log.append(make_event(number))
    log.tail.clear()
    one = LogCursor(log, 1)
    assert numbers(one.read(3)) == [1, 2, 3]
    for number in range(11, 400):
        log.append(make_event(number))
    rest = []
    while not one.is_at_end:
        rest += one.read(50)
    assert one.dropped == log.first_position - 4
    assert numbers(rest) == list(range(log.first_position, 400))


def test_another_log_in_the_folder_is_not_read(original: Path, tmp_path: Path) -> None:
    segments = copy(original, tmp_path / "log")
    log: Log = open_log(tmp_path / "other")
    log.append(make_event(500))
    crash(log)
    shutil.copy(log.segments[0].path, segments[1])
    again = open_log(tmp_path / "log", BOUNDS)
    assert 500 not in numbers(read_all(again, 1)[0])
