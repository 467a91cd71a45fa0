"""Peers as processes in three clusters: coordinators are killed, a link is cut, and every stored event arrives, once.

The test runs the example, smaller than it runs by itself.
"""

import asyncio
from pathlib import Path
from types import ModuleType

import pytest

from tests.drivers.live.examples import load_example
from tests.drivers.live.processes import Process


@pytest.fixture(scope="module")
def example() -> ModuleType:
    return load_example("clusters")


@pytest.mark.slow
def test_killed_coordinators_and_a_cut_lose_no_stored_event(
    example: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(example, "PATIENCE_S", 200.0)  # it tells what is missing before the test's own time is over

    class ForkedScene(example.Scene):  # type: ignore[misc,name-defined]
        async def launch(self, config: Path) -> Process:
            return await Process.start(config)

    scene = ForkedScene(tmp_path, events=150, rate=30.0)
    assert asyncio.run(example.play(scene)) == []
    assert len(scene.killed) == 2
    assert len(scene.kept) > 100


def test_what_is_missing_or_doubled_is_told(example: ModuleType, tmp_path: Path) -> None:
    scene = example.Scene(tmp_path, events=10, rate=10.0)
    scene.processes = dict.fromkeys(range(4))
    scene.kept = {b"1": "alarms", b"2": "readings"}
    for peer in range(4):
        scene.got[peer].update([b"1", b"2"])
    assert scene.wrong() == []
    scene.got[3].update([b"2"])
    del scene.got[2][b"1"]
    scene.killed = [0]
    del scene.got[0][b"1"]
    assert scene.wrong() == [
        "peer 2 at west lacks 1, has twice nothing",
        "peer 3 at north lacks nothing, has twice 2",
    ]
