"""Peers as processes on a ring that are killed and return: every stored event reaches every live subscriber, once.

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
    return load_example("ring")


@pytest.mark.slow
def test_killed_peers_lose_no_stored_event(
    example: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(example, "PATIENCE_S", 200.0)  # it tells what is missing before the test's own time is over

    class ForkedScene(example.Scene):  # type: ignore[misc,name-defined]
        async def launch(self, config: Path) -> Process:
            return await Process.start(config)

    scene = ForkedScene(tmp_path, peers=10, subscriptions=40, events=144, rate=36.0)
    assert asyncio.run(example.play(scene)) == []
    assert len(scene.killed) == 4 and len(scene.returned) == 2
    assert len(scene.kept) > 100
    assert sum(len(scene.expected(wanted)) for wanted in scene.judged()) > 100


def test_what_is_missing_or_doubled_is_told(example: ModuleType, tmp_path: Path) -> None:
    scene = example.Scene(tmp_path, peers=9, subscriptions=0, events=60, rate=100.0)
    wanted = example.Wanted(3, (10.0, 20.0), None)
    scene.wanted.append(wanted)
    scene.kept = {b"%d" % n: {"price": float(n), "volume": 1.0} for n in range(60)}
    wanted.got.update(b"%d" % n for n in range(10, 21))
    assert scene.wrong() == []
    del wanted.got[b"12"]
    wanted.got[b"13"] += 1
    wanted.got[b"50"] += 1
    assert scene.wrong() == [
        "peer 3, price >= 10.0 and price <= 20.0: lacks 12, has twice 13, unasked 50, its buffer dropped 0"
    ]
    scene.killed, wanted.got = [3], example.Counter()
    assert scene.wrong() == []
    scene.returned[3] = 20
    assert scene.wrong() == [
        "peer 3, price >= 10.0 and price <= 20.0: lacks 20, has twice nothing, unasked nothing, its buffer dropped 0"
    ]
