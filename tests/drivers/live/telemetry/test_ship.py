"""Shipping: each segment once, whole, whatever happens in between."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.errors import raises
from wend.drivers.live.telemetry.ship import LocalDestination, Shipper, open_destination
from wend.model.telemetry import Segment


def segment(folder: Path, number: int, table: str = "links", size: int = 10) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / Segment(table, 1, 3, 7, number).name
    path.write_bytes(bytes([number]) * size)
    return path


def shipped(to: Path) -> dict[str, bytes]:
    found = [path for path in (to / "raw").rglob("*.parquet") if not path.name.startswith(".")]
    assert len({path.name for path in found}) == len(found), "a segment was copied twice"
    for path in found:
        assert path.parent.name.startswith("hour=") and path.parent.parent.name.startswith("date=")
        assert path.parent.parent.parent.name == path.name.partition("-")[0]
    return {path.name: path.read_bytes() for path in found}


def test_segments_are_copied_once_by_table_and_hour(tmp_path: Path) -> None:
    here, to = tmp_path / "here", tmp_path / "to"
    paths = [segment(here / "peer-3", 1), segment(here / "peer-3", 2, "hops"), segment(here, 3)]
    (here / "peer-3" / f".{paths[0].name}.part").write_bytes(b"half")
    (here / "notes.parquet").write_bytes(b"no segment")
    (here / "peer-3" / "manifest-3-7.json").write_text("{}")
    assert Shipper(here, str(to)).ship() == {"copied": 3, "bytes": 30}
    assert shipped(to) == {path.name: path.read_bytes() for path in paths}
    assert (to / "raw" / "manifests" / "manifest-3-7.json").read_text() == "{}"
    again = Shipper(here, str(to))
    assert again.ship() == {"there": 3}
    late = segment(here, 4)
    assert again.ship() == {"there": 3, "copied": 1, "bytes": 10}
    assert late.name in shipped(to)


def test_without_the_index_segments_that_are_there_are_found(tmp_path: Path) -> None:
    here, to = tmp_path / "here", tmp_path / "to"
    segment(here, 1)
    Shipper(here, str(to)).ship()
    for index in here.glob(".shipped-*"):
        index.unlink()
    segment(here, 2)
    assert Shipper(here, str(to)).ship() == {"there": 1, "copied": 1, "bytes": 10}
    shipped(to)


def test_a_copy_that_a_crash_cut_short_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, to = tmp_path / "here", tmp_path / "to"
    for number in (1, 2, 3):
        segment(here, number)
    put, calls = LocalDestination.copy_file, []

    def crash(self: LocalDestination, file: Path, path: str) -> None:
        calls.append(path)
        if len(calls) == 2:
            raise KeyboardInterrupt
        put(self, file, path)

    monkeypatch.setattr(LocalDestination, "copy_file", crash)
    with pytest.raises(KeyboardInterrupt):
        Shipper(here, str(to)).ship()
    assert len(shipped(to)) == 1
    assert Shipper(here, str(to)).ship() == {"there": 1, "copied": 2, "bytes": 20}
    assert len(shipped(to)) == 3


def test_shipped_segments_are_removed_on_request_and_others_may_vanish(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, to = tmp_path / "here", tmp_path / "to"
    segment(here, 1)
    Shipper(here, str(to)).ship()
    gone = segment(here, 2)
    put = LocalDestination.copy_file

    def vanish(self: LocalDestination, file: Path, path: str) -> None:
        os.unlink(gone)
        put(self, file, path)

    monkeypatch.setattr(LocalDestination, "copy_file", vanish)
    assert Shipper(here, str(to), delete=True).ship() == {"there": 1, "deleted": 1, "gone": 1}
    assert not list(here.glob("*.parquet"))
    assert len(shipped(to)) == 1


def test_an_address_that_nobody_can_reach_gets_a_sentence(tmp_path: Path) -> None:
    with raises("invalid-setting", match=r"PyArrow cannot reach gopher://x/y: .*copy the files"):
        open_destination("gopher://x/y")
    with raises("unreadable", match="there is no folder"):
        Shipper(tmp_path / "nowhere", str(tmp_path))
    segment(tmp_path / "here", 1)
    (tmp_path / "file").write_text("")
    with raises("unwritable", match=r"cannot ship telemetry: .*Not a directory"):
        Shipper(tmp_path / "here", str(tmp_path / "file" / "x")).ship()


def test_addresses_are_written_by_arrow(tmp_path: Path) -> None:
    from wend.drivers.live.telemetry.ship import ArrowDestination

    here, to = segment(tmp_path / "here", 1), tmp_path / "to"
    there = ArrowDestination(f"file://{to}")
    there.copy_file(here, "raw/links/x/a.parquet")
    assert there.file_size("raw/links/x/a.parquet") == 10 and there.file_size("raw/links/x/b.parquet") is None
    assert list(there.list_names("raw/links")) == ["a.parquet"] and list(there.list_names("raw/hops")) == []
    assert [path.name for path in to.rglob("*") if path.is_file()] == ["a.parquet"]


def test_the_command_says_what_it_did(tmp_path: Path) -> None:
    here, to = tmp_path / "here", tmp_path / "to"
    segment(here, 1)
    command = [sys.executable, "-m", "wend.console.start", "telemetry", "ship", str(here), "--to", str(to)]
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == {"copied": 1, "bytes": 10, "there": 0, "gone": 0, "deleted": 0}
    done = subprocess.run([*command, "--delete"], capture_output=True, text=True, check=True)
    assert done.stdout == "0 segments copied (0.0 MB), 1 were there already, 1 removed here\n"
    done = subprocess.run([*command[:-1], "gopher://x"], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and done.stderr.startswith("wend: PyArrow cannot reach gopher://x")
