"""A damaged store loses what the damage hit and nothing else, says so, and leaves the damaged file where it is."""

import errno
import os
import re
import struct
import time
from itertools import accumulate
from pathlib import Path
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.drivers.live.store_records import damage, pending
from tests.errors import raises
from wend.drivers.live.store import compaction
from wend.drivers.live.store.format import (
    DamagedBytes,
    Framing,
    IncarnationRecord,
    StoredRecord,
    StoreReader,
    encode_record,
)
from wend.drivers.live.store.store import Store
from wend.model.events import DurableOptions, EventId, Qos
from wend.model.units import SECOND
from wend.protocol.records import (
    DeliveredRecord,
    DurableRecord,
    PendingRecord,
    QueuedRecord,
    Record,
    ReleasedRecord,
    StateRecord,
)

HOUR = 3600 * SECOND
MARKER = b"\x9e\x01\xfe\x77"


RECORDS: list[StoredRecord] = [
    IncarnationRecord(7),
    pending(1, b"some content"),
    DeliveredRecord(EventId(9, 1, 1)),
    StateRecord("link-state", 4, [1, 2, 3]),
    pending(2, b"\xa4type" * 4),
    ReleasedRecord(EventId(1, 1, 1)),
]


def frame_2(record: StoredRecord) -> bytes:
    body = encode_record(record)
    return struct.pack("!II", len(body), crc32(body)) + body


def _common(a: bytes, b: bytes) -> int:
    """How many bytes both begin with."""
    return next((at for at, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


class File:
    """The bytes of a store, and where each record ends."""

    def __init__(self, version: int, records: list[StoredRecord]) -> None:
        if version == 2:
            pieces = [b"wend-store 2\n", *map(frame_2, records)]
        else:
            framing = Framing(MARKER)
            pieces = [framing.header, *(framing.frame(encode_record(record)) for record in records)]
        self.records = records
        self.content = b"".join(pieces)
        self.ends = list(accumulate(map(len, pieces)))

    def left_in(self, content: bytes) -> list[StoredRecord]:
        """The records whose bytes are all in this content, before or behind the damage."""
        same = _common(self.content, content)
        behind = _common(self.content[same:][::-1], content[same:][::-1])
        return self.without(same, len(self.content) - behind)

    def without(self, begin: int, end: int) -> list[StoredRecord]:
        """The records that these bytes are no piece of."""
        return [
            record
            for record, first, last in zip(self.records, self.ends, self.ends[1:], strict=False)
            if last <= begin or end <= first
        ]


def read(content: bytes) -> tuple[list[StoredRecord], list[DamagedBytes]]:
    reader = StoreReader(Path("s"))
    return [record for record, _ in reader.read_records(content)], reader.damaged


@pytest.mark.parametrize("version", [2, 3])
def test_any_bit_that_flips_costs_the_record_that_it_hits(version: int) -> None:
    file = File(version, RECORDS)
    assert read(file.content) == (RECORDS, [])
    for bit in range(8 * len(file.content)):
        content = bytearray(file.content)
        content[bit // 8] ^= 1 << bit % 8
        found, damaged = read(bytes(content))
        assert found == file.without(bit // 8, bit // 8 + 1), f"bit {bit}"
        assert any(at <= bit // 8 < at + size for at, size in damaged), f"bit {bit} is not reported"


@pytest.mark.parametrize("version", [2, 3])
def test_a_file_cut_short_at_any_byte_costs_what_was_cut_off(version: int) -> None:
    file = File(version, RECORDS)
    for end in range(file.ends[0], len(file.content)):
        found, damaged = read(file.content[:end])
        assert found == file.without(end, len(file.content))
        whole = max(each for each in file.ends if each <= end)
        assert damaged == ([DamagedBytes(whole, end - whole)] if end > whole else [])


records = st.lists(
    st.one_of(
        st.builds(pending, st.integers(0, 2**40), st.binary(max_size=60)),
        st.builds(DeliveredRecord, st.builds(EventId, *[st.integers(0, 2**40)] * 3)),
        st.builds(StateRecord, st.text(max_size=9), st.integers(0, 99), st.lists(st.text(max_size=9), max_size=3)),
    ),
    min_size=3,
    max_size=12,
)


@settings(max_examples=60)
@given(records, st.sampled_from([2, 3]), st.data())
def test_damage_of_any_size_costs_the_records_that_it_hits(
    records: list[StoredRecord], version: int, data: st.DataObject
) -> None:
    file = File(version, records)
    begin = data.draw(st.integers(0, len(file.content) - 1))
    end = begin + data.draw(st.integers(1, 200).filter(lambda size: begin + size <= len(file.content)) | st.just(1))
    rubbish = data.draw(st.sampled_from([bytes(end - begin), b"\xff" * (end - begin)]) | st.binary(max_size=200))
    content = file.content[:begin] + rubbish + file.content[end:]
    expected = file.left_in(content)
    if content == file.content or (not expected and begin < file.ends[0]):
        return  # it is not damaged, or nothing says that it is a store
    found, damaged = read(content)
    assert found == expected
    assert damaged or content == file.content[: len(content)]


@pytest.mark.parametrize("version", [2, 3])
def test_a_copy_of_a_store_in_a_payload_is_not_mistaken_for_records(version: int) -> None:
    copies = [struct.pack("!4sI", b"none", 1), frame_2(pending(5))] if version == 3 else []
    payload = b"".join([*copies, Framing(b"othr").frame(encode_record(pending(6)))])
    file = File(version, [pending(1), pending(2, payload), pending(3)])
    for at in range(file.ends[1], file.ends[2]):
        content = bytearray(file.content)
        content[at] ^= 0x55
        assert read(bytes(content))[0] == [pending(1), pending(3)]


# ---------------------------------------------------------------- what the store does and says


def pending_of(store: Store) -> list[int]:
    return [record.event.id.sequence for record in store.records if isinstance(record, PendingRecord)]


def stored(path: Path, *sequences: int) -> None:
    store = Store(path)
    for sequence in sequences:
        store.append(pending(sequence, bytes(100)))
    store.close()


def asides(path: Path) -> list[Path]:
    return sorted(path.parent.glob(f"{path.name}.damaged-*"))


def test_the_rest_is_used_and_the_damaged_file_stays(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "s"
    stored(path, 1, 2, 3)
    for lost, left in ((2, [1, 3]), (1, [3, 20])):
        at = 0

        def flip(content: bytearray, lost: int = lost) -> None:
            nonlocal at
            body = encode_record(EventId(1, 1, lost))
            at = bytes(content).index(body)
            content[at] ^= 1

        content = damage(path, flip)
        store = Store(path)
        assert pending_of(store) == left
        ((begin, size),) = store.damaged
        assert begin < at < begin + size
        assert f"{size} bytes at byte {begin} cannot be read" in caplog.text
        assert asides(path)[-1].read_bytes() == content
        assert f"the damaged file was kept as {asides(path)[-1]}" in caplog.text
        store.append(pending(10 * lost))
        store.close()
    again = Store(path)
    assert (pending_of(again), again.damaged, len(asides(path))) == ([3, 20, 10], (), 2)
    again.close()


def test_a_file_of_which_nothing_can_be_read_is_said_and_stays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "s"
    stored(path, 1)

    def erase(content: bytearray) -> None:
        content[21:] = bytes(len(content) - 21)

    content = damage(path, erase)
    store = Store(path)
    assert store.records == () and "cannot be read at all" in caplog.text
    assert [aside.read_bytes() for aside in asides(path)] == [content]
    store.close()


def test_a_file_without_its_beginning_is_known_by_its_records(tmp_path: Path) -> None:
    path = tmp_path / "s"
    stored(path, 1, 2, 3)

    def erase(content: bytearray) -> None:
        content[:100] = bytes(100)

    damage(path, erase)
    store = Store(path)
    assert pending_of(store) == [1, 2, 3]
    store.close()


def test_where_links_cannot_be_made_the_damaged_file_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "s"
    stored(path, 1, 2)
    content = damage(path, lambda content: content.__delitem__(slice(-1, None)))

    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    Store(path).close()
    assert [aside.read_bytes() for aside in asides(path)] == [content]


def _header(line: bytes) -> bytes:
    return line + MARKER + struct.pack("!I", crc32(line + MARKER))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (_header(b"wend-store 4\n"), r"newer version of Wend: it has format 4, .* reads formats 2 and 3"),
        (_header(b"wend-store 12\n") + b"anything", r"newer version of Wend: it has format 12, "),
        (b"wend-store 5\nof another kind", "newer version of Wend: it has format 5"),
        (b"wend-store 1\n" + bytes(100), "older version of Wend: it has format 1"),
        (b"something else", "is not the store of a Wend peer"),
        (b"wend-st", "is not the store of a Wend peer"),
    ],
)
def test_a_store_of_another_version_is_refused_and_not_changed(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "s"
    path.write_bytes(content)
    with raises("store-unreadable", match=says):
        Store(path)
    assert path.read_bytes() == content and not asides(path)


def test_a_store_of_version_2_is_rewritten(tmp_path: Path) -> None:
    path = tmp_path / "s"
    now = time.time_ns()
    path.write_bytes(
        File(2, [IncarnationRecord(2**50), pending(1, born_ns=now - HOUR), pending(2, born_ns=now)]).content
    )
    store = Store(path)
    assert store.incarnation == 2**50 + 1
    assert path.read_bytes().startswith(b"wend-store 3\n")
    ages = [time.monotonic_ns() - record.born_ns for record in store.records if isinstance(record, PendingRecord)]
    assert HOUR <= ages[0] < 2 * HOUR and 0 <= ages[1] < HOUR
    store.close()


def test_a_disk_that_is_full_at_the_start_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "s"
    stored(path, 1, 2)
    content = path.read_bytes()

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(compaction, "write_whole", full)
        with raises("unwritable", match=f"cannot use the store {path}: No space left on device"):
            Store(path)
    assert path.read_bytes() == content and not path.with_name("s.new").exists()
    again = Store(path)
    assert pending_of(again) == [1, 2]
    again.close()


# ---------------------------------------------------------------- durable subscriptions

FILTER = b"topic = 'a'"


def with_backlog(path: Path) -> list[Record]:
    records: list[Record] = [DurableRecord(1, FILTER.decode(), Qos(), DurableOptions("n", 10, 1000, HOUR))]
    records += [QueuedRecord(pending(n).event, 5, ((1, n),)) for n in (1, 2)]
    store = Store(path)
    for record in records:
        store.append(record)
    store.close()
    return records


@pytest.mark.parametrize("copies", [[0], [1], [0, 1]])
@pytest.mark.parametrize("restarts", [0, 1])
def test_a_backlog_outlives_damage_to_the_record_of_its_subscription(
    tmp_path: Path, copies: list[int], restarts: int
) -> None:
    path = tmp_path / "s"
    records = with_backlog(path)
    for _ in range(restarts):
        Store(path).close()
    places = [found.start() for found in re.finditer(FILTER, path.read_bytes())]
    assert len(places) == 2

    def flip(content: bytearray) -> None:
        for copy in copies:
            content[places[copy]] ^= 1

    damage(path, flip)
    store = Store(path)
    assert store.records == (tuple(records) if len(copies) == 1 else ()), "without the subscription nobody wants them"
    store.close()


def test_events_are_in_memory_once(tmp_path: Path) -> None:
    with_backlog(tmp_path / "s")
    store = Store(tmp_path / "s")
    handed, again = ([one.event for one in store.records if isinstance(one, QueuedRecord)] for _ in range(2))
    assert len(handed) == 2
    assert all(a is b for a, b in zip(handed, again, strict=True)), "the peer has the same objects as the store"
    store.close()
