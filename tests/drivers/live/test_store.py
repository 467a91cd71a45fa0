"""What was stored is there after a crash, wherever the crash came."""

import errno
import time
from pathlib import Path
from typing import Any

import pytest

from wend.drivers.live import store as stores
from wend.drivers.live.store import Store
from wend.model.errors import ConfigError
from wend.model.events import Event, EventId
from wend.model.units import SECOND
from wend.protocol.messages import Done, Kept, Learned, LinkState, Notified


def kept(sequence: int, born_ns: int | None = None) -> Kept:
    born = time.monotonic_ns() if born_ns is None else born_ns
    return Kept(Event(EventId(1, 1, sequence), {"topic": "a"}, b"p", {"a": "b"}), born, (2, 3))


def ids(store: Store) -> list[int]:
    return [record.event.id.sequence for record in store.records if isinstance(record, Kept)]


def test_records_come_back_in_order_without_what_is_done(tmp_path: Path) -> None:
    store = Store(tmp_path / "s")
    for sequence in (1, 2, 3):
        store.append(kept(sequence))
    store.append(Done(EventId(1, 1, 2)))
    store.append(Notified(EventId(9, 1, 1)))
    store.append(Learned(LinkState(4, (1, 1), ())))
    store.append(Learned(LinkState(4, (1, 2), ())))
    store.close()
    again = Store(tmp_path / "s")
    assert ids(again) == [1, 3]
    assert Notified(EventId(9, 1, 1)) in again.records
    assert [r for r in again.records if isinstance(r, Learned)] == [Learned(LinkState(4, (1, 2), ()))]
    again.close()


def test_every_life_has_a_larger_incarnation(tmp_path: Path) -> None:
    lives = []
    for _ in range(5):
        store = Store(tmp_path / "s")
        lives.append(store.incarnation)
        store.close()
    assert sorted(set(lives)) == lives


def test_a_torn_record_is_ignored_at_every_byte(tmp_path: Path) -> None:
    path = tmp_path / "s"
    store = Store(path)
    store.append(kept(1))
    whole = len(path.read_bytes())
    store.append(kept(2))
    store.close()
    content = path.read_bytes()
    for end in range(whole + 1, len(content)):
        path.write_bytes(content[:end])
        torn = Store(path)
        assert (ids(torn), torn.torn) == ([1], 1)
        torn.close()


def test_a_damaged_record_ends_the_replay(tmp_path: Path) -> None:
    path = tmp_path / "s"
    store = Store(path)
    store.append(kept(1))
    store.append(kept(2))
    store.close()
    content = bytearray(path.read_bytes())
    content[-3] ^= 0xFF
    path.write_bytes(content)
    again = Store(path)
    assert (ids(again), again.torn) == ([1], 1)
    again.append(kept(3))
    again.close()
    last = Store(path)
    assert (ids(last), last.torn) == ([1, 3], 0)
    last.close()


def test_times_are_translated_between_lives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path / "s")
    store.append(kept(1))
    store.close()
    real = time.monotonic_ns
    monkeypatch.setattr(stores.time, "monotonic_ns", lambda: real() - 1000 * SECOND)  # another boot
    again = Store(tmp_path / "s")
    (record,) = again.records
    assert isinstance(record, Kept)
    assert 0 <= stores.time.monotonic_ns() - record.born_ns < 100 * SECOND
    again.close()


def test_the_file_does_not_grow_forever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "GROWTH_BYTES", 10_000)
    store = Store(tmp_path / "s")
    for sequence in range(2000):
        store.append(kept(sequence))
        store.append(Done(EventId(1, 1, sequence)))
    assert (tmp_path / "s").stat().st_size < 25_000
    store.append(kept(5000))
    store.close()
    again = Store(tmp_path / "s")
    assert ids(again) == [5000]
    again.close()


class FullDisk:
    """A file on a disk that has room for so many bytes."""

    def __init__(self, file: Any, room: int) -> None:
        self._file = file
        self.room = room

    def write(self, data: bytes) -> int:
        if not self.room:
            raise OSError(errno.ENOSPC, "No space left on device")
        taken: int = self._file.write(data[: self.room])
        self.room -= taken
        return taken

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


@pytest.mark.parametrize("room", [0, 1, 7, 30])
def test_a_full_disk_leaves_whole_records_and_says_no(tmp_path: Path, room: int) -> None:
    store = Store(tmp_path / "s")
    store.append(kept(1))
    whole = (tmp_path / "s").stat().st_size
    disk = FullDisk(store._file, room)
    store._file = disk  # type: ignore[assignment]
    with pytest.raises(OSError, match="No space left"):
        store.append(kept(2))
    assert (tmp_path / "s").stat().st_size == whole
    disk.room = 10_000
    store.append(kept(3))
    store.close()
    again = Store(tmp_path / "s")
    assert (ids(again), again.torn) == ([1, 3], 0)
    again.close()


def test_what_could_not_be_taken_back_at_once_is_taken_back_before_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path / "s")
    disk = FullDisk(store._file, 5)
    store._file = disk  # type: ignore[assignment]

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
    assert (ids(again), again.torn) == ([2], 0)
    again.close()


def test_a_file_that_cannot_be_compacted_serves_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "GROWTH_BYTES", 1_000)
    store = Store(tmp_path / "s", sync=True)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(OSError(errno.ENOSPC, "No space left")))
        for sequence in range(100):
            store.append(kept(sequence))
    assert not (tmp_path / "s.new").exists()
    for sequence in range(100, 200):
        store.append(kept(sequence))
    store.close()
    again = Store(tmp_path / "s")
    assert ids(again) == list(range(200))
    again.close()


def test_mistakes_are_one_sentence(tmp_path: Path) -> None:
    store = Store(tmp_path / "s")
    with pytest.raises(ConfigError, match="in use by another peer"):
        Store(tmp_path / "s")
    store.close()
    (tmp_path / "other").write_bytes(b"something else")
    with pytest.raises(ConfigError, match="not a store"):
        Store(tmp_path / "other")
    with pytest.raises(ConfigError, match="cannot use the store"):
        Store(tmp_path / "missing" / "s")
