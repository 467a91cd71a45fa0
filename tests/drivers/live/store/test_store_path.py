"""A store that is no regular file is refused, and nothing in its place is touched."""

import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

import wend
from tests.errors import raises
from wend.drivers.live.config import PeerFile
from wend.drivers.live.process import PeerProcess
from wend.drivers.live.store import store as stores
from wend.drivers.live.store.store import Store
from wend.model.events import EventId
from wend.protocol.records import ReleasedRecord


def null_device(path: Path) -> None:
    try:
        os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("only root makes device nodes")


def unix_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


OTHER_KINDS: dict[str, Callable[[Path], None]] = {
    "a folder": Path.mkdir,
    "a FIFO": os.mkfifo,
    "a device": null_device,
    "a socket": unix_socket,
}


@pytest.mark.parametrize("beside", ["", ".lock", ".new"])
@pytest.mark.parametrize("kind", OTHER_KINDS)
def test_a_file_that_is_not_regular_is_refused_and_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, beside: str
) -> None:
    monkeypatch.chdir(tmp_path)  # the path of a socket is short
    OTHER_KINDS[kind](Path("s" + beside))
    before = os.lstat("s" + beside)
    with raises("unwritable") as refused:
        Store(tmp_path / "s")
    assert str(refused.value) == f"cannot use the store {tmp_path}/s: s{beside} is {kind}, not a regular file"
    after = os.lstat("s" + beside)
    assert (after.st_mode, after.st_ino, after.st_rdev) == (before.st_mode, before.st_ino, before.st_rdev)
    assert os.listdir() == ["s" + beside]


@pytest.mark.parametrize("path", ["/", "", ".", "a\0b"])
def test_a_path_that_names_no_file_is_refused(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(wend.ConfigError, match="cannot use the store"):
        Store(Path(path))
    assert not os.listdir()


def test_a_symbolic_link_leads_to_the_store_and_stays(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    link = tmp_path / "s"
    link.symlink_to("disk/real")
    store = Store(link)
    first = store.incarnation
    store.close()
    assert link.is_symlink() and (tmp_path / "disk" / "real").is_file()
    store = Store(tmp_path / "disk" / "real")
    assert store.incarnation > first
    with raises("store-in-use"):
        Store(link)
    store.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["disk", "s"]


@pytest.mark.parametrize("beside", [".lock", ".new"])
def test_a_symbolic_link_in_place_of_a_file_beside_the_store_is_refused(tmp_path: Path, beside: str) -> None:
    (tmp_path / "other").write_bytes(b"of somebody else")
    (tmp_path / f"s{beside}").symlink_to("other")
    with raises("unwritable", match=f"s{beside} is a symbolic link, not a regular file"):
        Store(tmp_path / "s")
    assert (tmp_path / "other").read_bytes() == b"of somebody else"
    assert (tmp_path / f"s{beside}").is_symlink()


def test_a_link_that_leads_to_itself_or_to_a_fifo_is_refused(tmp_path: Path) -> None:
    (tmp_path / "s").symlink_to("s")
    with raises("unwritable"):
        Store(tmp_path / "s")
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "t").symlink_to("fifo")
    with raises("unwritable"):
        Store(tmp_path / "t")


def test_a_compaction_replaces_nothing_but_a_regular_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(stores, "GROWTH_BYTES", 100)
    store = Store(tmp_path / "s")
    os.mkfifo(tmp_path / "s.new")
    for sequence in range(200):
        store.append(ReleasedRecord(EventId(1, 1, sequence)))
    store.close()
    assert "cannot be compacted and keeps growing: [Errno 22] s.new is a FIFO, not a regular file" in caplog.text
    assert stat.S_ISFIFO(os.lstat(tmp_path / "s.new").st_mode)


def test_a_peer_with_such_a_store_does_not_start(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "s")
    with raises("unwritable"):
        PeerProcess(PeerFile(id=1, listen="127.0.0.1:0", store=str(tmp_path / "s")))
