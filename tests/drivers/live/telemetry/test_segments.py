"""Segments on the disk: whole ones only, bounded, and never in the way of the peer."""

import errno
import threading
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.drivers.live.telemetry.tables import rows
from tests.errors import raises
from wend.drivers.live.telemetry import segments
from wend.drivers.live.telemetry.row_batch import RowBatch
from wend.drivers.live.telemetry.segments import SegmentFolder, SegmentWriter
from wend.model.telemetry import Segment, parse_segment_name

WIDTH = 8
BOUND = 20_000


def batch(count: int, table: str = "deliveries", first: int = 0) -> RowBatch:
    made = RowBatch(table, 0)
    for number in range(first, first + count):
        made.add((number, *range(1, len(made.columns))))
    return made


def opened(folder: Path, incarnation: int = 7, most_bytes: int = 10**9) -> SegmentFolder:
    return SegmentFolder(folder, 3, incarnation, most_bytes, {})


@settings(deadline=None, max_examples=20)
@given(
    st.lists(
        st.lists(st.tuples(st.sampled_from(["deliveries", "hops"]), st.integers(1, 300)), max_size=8),
        min_size=1, max_size=3,
    ),
    st.integers(1, BOUND),
)  # fmt: skip
def test_the_newest_segments_stay_within_the_bound_whatever_is_written(
    incarnations: list[list[tuple[str, int]]], most_bytes: int
) -> None:
    with TemporaryDirectory() as name:
        folder, written, removed = Path(name), [], 0
        for incarnation, batches in enumerate(incarnations, 1):
            here = opened(folder, incarnation, most_bytes)
            for number, (table, count) in enumerate(batches, 1):
                here.write(batch(count, table), number)
                written.append((Segment(table, 1, 3, incarnation, number).name, count))
                found = {path.name: path.stat().st_size for path in folder.glob("*.parquet")}
                assert sum(found.values()) <= most_bytes or len(found) == 1
            removed += here.removed
            here.end(0)
        found = {path.name for path in folder.glob("*.parquet")}
        newest = written[len(written) - len(found) :]
        assert {name for name, _ in newest} == found, "others than the oldest were removed"
        assert removed == len(written) - len(found)
        kept = {
            table: sum(count for name, count in newest if name.startswith(table)) for table in ("deliveries", "hops")
        }
        assert {table: len(rows(folder, table)) for table in kept} == kept
        assert not list(folder.glob(".*"))


def test_what_a_crash_left_behind_is_removed_and_counted_at_the_next_start(tmp_path: Path) -> None:
    mine, other = (Segment("links", 1, peer, 5, 1).name for peer in (3, 4))
    for name in (mine, other):
        (tmp_path / f".{name}.part").write_bytes(b"half a segment")
    (tmp_path / mine).write_bytes(b"whole")
    here = opened(tmp_path)
    assert here.left_over == 1
    assert sorted(path.name for path in tmp_path.glob(".*")) == [f".{other}.part"]
    assert here.size_bytes == 5


def test_a_segment_that_cannot_be_written_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = opened(tmp_path)
    monkeypatch.setattr(segments.os, "fsync", _full)
    with pytest.raises(OSError, match="No space"):
        here.write(batch(5), 1)
    assert [path.name for path in tmp_path.iterdir()] == ["manifest-3-7.json"]
    monkeypatch.undo()
    here.write(batch(5), 2)
    assert len(rows(tmp_path, "deliveries")) == 5


def _full(_: int) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_folder_that_cannot_be_used_gets_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with raises("invalid-setting", match=r"cannot write telemetry to .*file"):
        opened(tmp_path / "file")


def test_a_full_disk_costs_rows_and_they_are_counted(tmp_path: Path) -> None:
    disk_full = threading.Event()
    disk_full.set()
    folder = opened(tmp_path)

    def write(made: RowBatch, number: int) -> None:
        if disk_full.is_set():
            _full(0)
        folder.write(made, number)

    tried = _Steps(write)
    writer = SegmentWriter(tried, 10**6)
    writer.offer(batch(5))
    tried.wait(1)
    writer.offer(batch(7))
    tried.wait(2)
    disk_full.clear()
    writer.offer(batch(11, first=100))
    writer.end()
    assert writer.join(60)
    assert (writer.unwritten, writer.failures) == (12, 2)
    assert [row["time_ns"] for row in rows(tmp_path, "deliveries")] == list(range(100, 111))
    assert [parse_segment_name(path.name).number for path in tmp_path.glob("*.parquet")] == [3]  # type: ignore[union-attr]


class _Steps:
    """A writer whose calls can be waited for."""

    def __init__(self, write: Callable[[RowBatch, int], None]) -> None:
        self._write = write
        self._calls = 0
        self._changed = threading.Condition()

    def __call__(self, made: RowBatch, number: int) -> None:
        try:
            self._write(made, number)
        finally:
            with self._changed:
                self._calls += 1
                self._changed.notify_all()

    def wait(self, calls: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self._calls >= calls, 60)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=30), st.integers(0, 20_000))
def test_a_disk_that_hangs_never_blocks_and_memory_stays_bounded(counts: list[int], most_bytes: int) -> None:
    hangs, began, written = threading.Event(), threading.Event(), []

    def write(made: RowBatch, number: int) -> None:
        began.set()
        assert hangs.wait(60)
        written.append((number, made.rows))

    writer = SegmentWriter(write, most_bytes)
    writer.offer(batch(1))
    assert began.wait(60)  # the thread hangs on the first one, and the others wait or are dropped
    room, taken = most_bytes, []
    for number, count in enumerate(counts, 2):
        writer.offer(batch(count))
        size = batch(count).size_bytes
        if size <= room or not taken:
            taken.append((number, count))
            room -= size
    assert writer.unwritten == sum(counts) - sum(count for _, count in taken)
    hangs.set()
    writer.end()
    assert writer.join(60)
    assert written == [(1, 1), *taken]


def test_a_writer_that_has_ended_takes_nothing_more() -> None:
    told: list[int] = []
    writer = SegmentWriter(lambda *_: None, 10**6, told.append)
    writer.end()
    writer.offer(batch(5))
    assert writer.join(60)
    assert writer.unwritten == 5
