"""Peers as processes that are killed and stopped again and again: durable subscriptions get every stored event, once.

The tests run the example, smaller than it runs by itself.
"""

import asyncio
from collections import Counter
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests.drivers.live.examples import load_example
from tests.drivers.live.processes import Process


@pytest.fixture(scope="module")
def example() -> ModuleType:
    return load_example("restarts")


def forked(example: ModuleType, folder: Path, **options: Any) -> Any:
    class ForkedScene(example.Scene):  # type: ignore[misc,name-defined]
        async def launch(self, config: Path) -> Process:
            return await Process.start(config)

    return ForkedScene(folder, **options)


def test_peers_that_are_killed_and_stopped_lose_no_stored_event(example: ModuleType, tmp_path: Path) -> None:
    scene = forked(example, tmp_path, peers=4, events=60, rate=40.0)
    assert asyncio.run(example.play(scene, kills=2, stops=2)) == []
    assert scene.ended == {"killed": 2, "stopped": 2}
    assert len(scene.kept) > 40


def test_a_rolling_restart_loses_and_doubles_nothing(example: ModuleType, tmp_path: Path) -> None:
    scene = forked(example, tmp_path, peers=4, events=120, rate=40.0)
    assert asyncio.run(example.play(scene, kills=0, stops=0, rolling=True)) == []
    assert scene.ended == {"stopped": 4}
    assert len(scene.kept) > 100


def test_what_is_missing_or_doubled_is_told(example: ModuleType, tmp_path: Path) -> None:
    scene = example.Scene(tmp_path, peers=8, events=10, rate=10.0)
    scene.kept = {b"1": 3, b"2": 9}
    scene.unsure = {b"3": 3}
    beside, steady, restless, half = scene.readers
    mine: set[bytes] = set()
    beside.take(arrived(b"2"), mine)
    for reader in (steady, restless, half):
        reader.take(arrived(b"1"), set())
    assert scene.wrong() == []
    restless.take(arrived(b"1"), set())  # to another client, since the former one had not acknowledged it
    assert scene.wrong() == []
    restless.sure.add(b"1")
    restless.take(arrived(b"1"), set())
    beside.take(arrived(b"2"), mine)
    steady.got = Counter([b"3"])
    half.take(arrived(b"2"), set())
    assert scene.wrong() == [
        "beside a publisher, at peer 0: lacks nothing, has twice 2, unasked nothing",
        "steady, at peer 2: lacks 1, has twice nothing, unasked nothing",
        "restless, at peer 7: lacks nothing, has twice 1, unasked nothing",
        "half, at peer 5: lacks nothing, has twice nothing, unasked 2",
    ]


def arrived(payload: bytes) -> SimpleNamespace:
    return SimpleNamespace(payload=payload, age=0.0, redelivered=False)
