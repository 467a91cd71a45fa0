"""What was stored is there after a crash, wherever the crash came."""

import errno
import itertools
import os
import random
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.errors import raises
from wend.drivers.live.store import compaction
from wend.drivers.live.store import store as stores
from wend.drivers.live.store.store import Store
from wend.model.events import DurableOptions, Event, EventId, Qos
from wend.model.units import SECOND
from wend.protocol.records import (
    ConfirmedRecord,
    DeliveredRecord,
    DurableRecord,
    MissedRecord,
    PendingRecord,
    QueuedRecord,
    Record,
    ReleasedRecord,
    StateRecord,
)
from wend.strategies.link_state.plugin import LinkState


def kept(sequence: int, born_ns: int | None = None) -> PendingRecord:
    born = time.monotonic_ns() if born_ns is None else born_ns
    return PendingRecord(Event(EventId(1, 1, sequence), {"topic": "a"}, b"p", {"a": "b"}), born, (2, 3))


def state(origin: int, version: int) -> StateRecord:
    return StateRecord("link-state", origin, LinkState(origin, (1, version), ()))


def ids(store: Store) -> list[int]:
    return [record.event.id.sequence for record in store.records if isinstance(record, PendingRecord)]


def test_records_come_back_in_order_without_what_is_done(tmp_path: Path) -> None:
    store = Store(tmp_path / "s")
    for sequence in (1, 2, 3):
        store.append(kept(sequence))
    store.append(ReleasedRecord(EventId(1, 1, 2)))
    store.append(DeliveredRecord(EventId(9, 1, 1)))
    store.append(state(4, 1))
    store.append(state(4, 2))
    store.append(StateRecord("flooded", 4, None))
    store.close()
    again = Store(tmp_path / "s")
    assert ids(again) == [1, 3]
    assert DeliveredRecord(EventId(9, 1, 1)) in again.records
    states = [r for r in again.records if isinstance(r, StateRecord)]
    assert [(r.plugin, r.key) for r in states] == [("link-state", 4), ("flooded", 4)]
    assert msgspec.convert(states[0].body, LinkState) == LinkState(4, (1, 2), ())
    again.close()


def test_every_start_has_a_larger_incarnation(tmp_path: Path) -> None:
    incarnations = []
    for _ in range(5):
        store = Store(tmp_path / "s")
        incarnations.append(store.incarnation)
        store.close()
    assert sorted(set(incarnations)) == incarnations


def test_a_torn_record_is_ignored(tmp_path: Path) -> None:
    path = tmp_path / "s"
    store = Store(path)
    store.append(kept(1))
    whole = len(path.read_bytes())
    store.append(kept(2))
    store.close()
    content = path.read_bytes()
    for end in range(whole + 1, len(content), 9):  # test_store_faults.py cuts it at every byte
        path.write_bytes(content[:end])
        torn = Store(path)
        assert (ids(torn), torn.damaged) == ([1], ((whole, end - whole),))
        torn.close()


def test_times_are_translated_between_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path / "s")
    store.append(kept(1))
    store.close()
    real = time.monotonic_ns
    monkeypatch.setattr(stores.time, "monotonic_ns", lambda: real() - 1000 * SECOND)  # another boot
    again = Store(tmp_path / "s")
    (record,) = again.records
    assert isinstance(record, PendingRecord)
    assert 0 <= stores.time.monotonic_ns() - record.born_ns < 100 * SECOND
    again.close()


class AtOnce:
    """A disk that is done with a file before anybody asks."""

    def __init__(self, file: Any) -> None:
        os.fsync(file.fileno())

    def is_done(self) -> bool:
        return True


@pytest.fixture
def compacts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stores that are compacted all the time, in small steps that do not depend on the disk."""
    monkeypatch.setattr(stores, "GROWTH_BYTES", 1_000)
    monkeypatch.setattr(compaction, "STEP_BYTES", 100)
    monkeypatch.setattr(compaction, "TAIL_BYTES", 300)
    monkeypatch.setattr(compaction, "BackgroundSync", AtOnce)


def test_the_file_does_not_grow_forever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compacts: None) -> None:
    monkeypatch.setattr(stores, "GROWTH_BYTES", 10_000)
    store = Store(tmp_path / "s")
    for sequence in range(2000):
        store.append(kept(sequence))
        store.append(ReleasedRecord(EventId(1, 1, sequence)))
    assert (tmp_path / "s").stat().st_size < 25_000
    store.append(kept(5000))
    store.close()
    again = Store(tmp_path / "s")
    assert ids(again) == [5000]
    again.close()


def test_nothing_is_swapped_before_the_disk_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compacts: None
) -> None:
    done = False
    monkeypatch.setattr(AtOnce, "is_done", lambda _: done)
    store = Store(tmp_path / "s")
    file = (tmp_path / "s").stat().st_ino
    for sequence in range(60):
        store.append(kept(sequence))
        store.append(ReleasedRecord(EventId(1, 1, sequence)))
    assert (tmp_path / "s").stat().st_ino == file
    done = True
    store.append(kept(60))
    assert (tmp_path / "s").stat().st_ino != file
    store.close()
    again = Store(tmp_path / "s")
    assert ids(again) == [60]
    again.close()


def diary(count: int) -> list[Record]:
    """Events that come, go on and are handed over or wait for clients, links that change; some of it matters at the
    end."""
    rng, found = random.Random(7), list[Record]()
    found += [DurableRecord(number, "topic = 'a'", Qos(), DurableOptions(f"{number}", 9, 9, 9)) for number in (1, 2)]
    for sequence in range(count):
        found.append(QueuedRecord(kept(sequence).event, sequence, ((1, sequence), (2, sequence))))
        for number in (1, 2):
            confirmed = tuple(past for past in range(sequence) if rng.random() < 0.2)
            found.append(ConfirmedRecord(number, confirmed, rng.choice([None, "expired"])))
        found.append(kept(sequence, born_ns=sequence))
        found.append(DeliveredRecord(EventId(9, 1, sequence)))
        found.append(state(rng.randrange(3), sequence))
        found += [ReleasedRecord(EventId(1, 1, past)) for past in range(sequence) if rng.random() < 0.2]
    return found


def matters(records: Iterable[Record]) -> tuple[object, ...]:
    """By brute force."""
    told = list(records)
    waits = {
        (r.event.id.sequence, entry)
        for i, r in enumerate(told)
        if isinstance(r, QueuedRecord)
        for entry in r.entries
        if not any(
            isinstance(later, ConfirmedRecord) and later.number == entry[0] and entry[1] in later.positions
            for later in told[i:]
        )
    }
    missed = Counter[int]()
    for r in told:
        if isinstance(r, MissedRecord):
            missed[r.number] = sum(r.counts.values())
        elif isinstance(r, ConfirmedRecord) and r.missed:
            missed[r.number] += len(r.positions)
    subscriptions = {r.number: r for r in told if isinstance(r, DurableRecord)}
    owed = {
        r.event.id
        for i, r in enumerate(told)
        if isinstance(r, PendingRecord) and ReleasedRecord(r.event.id) not in told[i:]
    }
    links = {r.key: msgspec.convert(msgspec.to_builtins(r.body), LinkState) for r in told if isinstance(r, StateRecord)}
    delivered = {r.id for r in told if isinstance(r, DeliveredRecord)}
    return owed, delivered, links, waits, +missed, subscriptions


class Killed(BaseException):
    """The process ends here, and nothing of it is carried out any more."""


def killing(real: Callable[..., Any], at: Iterator[int]) -> Callable[..., Any]:
    """Kill before the step whose number is 0 and, where a file is written, half-way through it."""

    def step(*args: Any, **words: Any) -> Any:
        number = next(at)
        if number == 0 and real is compaction_write:
            real(args[0], args[1][: len(args[1]) // 2])
        if number <= 0:
            raise Killed
        return real(*args, **words)

    return step


compaction_write = compaction.write_whole


def test_wherever_it_is_killed_what_was_stored_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compacts: None
) -> None:
    records, swaps, last = diary(25), list[Path](), False
    replace = Path.replace

    def swap(beside: Path, path: Path) -> None:
        swaps.append(path)
        replace(beside, path)

    for killed_at in itertools.count(1):
        path, left = tmp_path / str(killed_at), tmp_path / f"{killed_at} left"
        store, stored = Store(path), 0
        countdown = itertools.count(killed_at, -1)
        with monkeypatch.context() as patch, suppress(Killed):
            patch.setattr(compaction, "write_whole", killing(compaction_write, countdown))
            patch.setattr(os, "fsync", killing(os.fsync, countdown))
            patch.setattr(Path, "replace", killing(swap, countdown))
            patch.setattr(Path, "unlink", killing(Path.unlink, countdown))
            for record in records:
                stored += 1  # the record itself is stored before anything of this comes
                store.append(record)
            last = True
        for beside in ("", ".new"):  # the files that the killed process leaves
            if path.with_name(path.name + beside).exists():
                shutil.copy(path.with_name(path.name + beside), left.with_name(left.name + beside))
        store.close()
        again = Store(left)
        assert matters(again.records) == matters(records[:stored]), f"killed at step {killed_at}"
        assert again.damaged == ()
        again.close()
        if last:
            break
    assert swaps.count(path) >= 3 and killed_at > 30


class FullDisk:
    """A disk that has room for so many bytes, which stores write to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, room: int) -> None:
        self.room = room
        monkeypatch.setattr(stores, "write_whole", lambda file, data: compaction_write(FullFile(file, self), data))


class FullFile:
    def __init__(self, file: Any, disk: FullDisk) -> None:
        self._file = file
        self._disk = disk

    def write(self, data: bytes) -> int:
        if not self._disk.room:
            raise OSError(errno.ENOSPC, "No space left on device")
        written: int = self._file.write(data[: self._disk.room])
        self._disk.room -= written
        return written


@pytest.mark.parametrize("room", [0, 1, 7, 30])
def test_a_full_disk_leaves_whole_records_and_says_no(
    tmp_path: Path, room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path / "s")
    store.append(kept(1))
    whole = (tmp_path / "s").stat().st_size
    disk = FullDisk(monkeypatch, room)
    with pytest.raises(OSError, match="No space left"):
        store.append(kept(2))
    assert (tmp_path / "s").stat().st_size == whole
    disk.room = 10_000
    store.append(kept(3))
    store.close()
    again = Store(tmp_path / "s")
    assert (ids(again), again.damaged) == ([1, 3], ())
    again.close()


def test_what_could_not_be_taken_back_at_once_is_taken_back_before_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path / "s")
    disk = FullDisk(monkeypatch, 5)

    def broken(*_: Any) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(stores.os, "ftruncate", broken)
        with pytest.raises(OSError, match="No space left"):
            store.append(kept(1))
    disk.room = 10_000
    store.append(kept(2))
    store.close()
    again = Store(tmp_path / "s")
    assert (ids(again), again.damaged) == ([2], ())
    again.close()


def test_a_file_that_cannot_be_compacted_serves_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compacts: None, caplog: pytest.LogCaptureFixture
) -> None:
    store = Store(tmp_path / "s", sync=True)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(OSError(errno.ENOSPC, "No space left")))
        for sequence in range(100):
            store.append(kept(sequence))
    assert "cannot be compacted and keeps growing" in caplog.text
    for sequence in range(100, 200):
        store.append(kept(sequence))
    store.close()
    assert not (tmp_path / "s.new").exists()
    again = Store(tmp_path / "s")
    assert ids(again) == list(range(200))
    again.close()


def test_a_disk_that_fails_while_it_is_waited_for_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(stores, "GROWTH_BYTES", 1_000)
    store = Store(tmp_path / "s")

    def broken(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", broken)
    for sequence in itertools.count():
        store.append(kept(sequence))
        if "Input/output error" in caplog.text:
            break
    monkeypatch.undo()
    store.close()
    again = Store(tmp_path / "s")
    assert ids(again) == list(range(sequence + 1))
    again.close()


def test_mistakes_are_one_sentence(tmp_path: Path) -> None:
    store = Store(tmp_path / "s")
    with raises("store-in-use"):
        Store(tmp_path / "s")
    store.close()
    (tmp_path / "other").write_bytes(b"something else")
    with raises("store-unreadable"):
        Store(tmp_path / "other")
    with raises("unwritable"):
        Store(tmp_path / "missing" / "s")
