"""What a live peer's file says of overlays, and the file of paths."""

from pathlib import Path

import pytest

from tests.errors import raises
from wend.drivers.live.config import load_peer_file
from wend.drivers.live.paths import table

# ---------------------------------------------------------------- the file of paths


def test_a_path_holds_both_ways(tmp_path: Path) -> None:
    file = tmp_path / "paths"
    file.write_text("1 2  r1 r7 r2   # over the bridge\n\n1 3  r1 * r3\n3 1  r3 r1\n")
    paths = table.read_paths(file)
    assert paths.find_path(1, 2) == ("r1", "r7", "r2")
    assert paths.find_path(2, 1) == ("r2", "r7", "r1")
    assert paths.find_path(1, 3) == ("r1", None, "r3") and paths.find_path(3, 1) == ("r3", "r1")
    assert paths.find_path(2, 3) is None


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("1\n", r"line 1: a path starts with two peers, got '1'"),
        ("\none two r1\n", r"line 2: a path starts with two peers"),
        ("1 2\n", r"line 1: a path has two different peers and at least one router"),
        ("1 1 r1\n", r"line 1: a path has two different peers and at least one router"),
    ],
)
def test_a_line_that_is_no_path_is_named(tmp_path: Path, text: str, sentence: str) -> None:
    (tmp_path / "paths").write_text(text)
    with raises("invalid-setting", match=sentence):
        table.read_paths(tmp_path / "paths")
    with raises("unreadable", match="cannot read the paths in"):
        table.read_paths(tmp_path / "none")


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ('membership = "ring"', "unknown membership 'ring': choose one of tdo-landmark"),
        ("trees = 0", "trees must be at least 1, got 0"),
        ('membership_period = "1ms"', "membership_period must be at least 0.02 s, got 1ms"),
        ("reliability = 0", "reliability must be above 0, got 0"),
        ("failure_probability = 1.0", "failure_probability must be below 1, got 1.0"),
        ('covering = "some"', "covering must be identity, covering or merging, got 'some'"),
    ],
)
def test_an_overlay_that_cannot_be_is_named(tmp_path: Path, line: str, sentence: str) -> None:
    file = tmp_path / "peer.toml"
    file.write_text(f"id = 1\n{line}\n")
    with raises("invalid-setting", match=sentence):
        load_peer_file(file)
