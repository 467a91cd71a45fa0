"""Twelve peers as twelve processes on two trees: a link is cut, a peer is killed, and every event arrives, once.

The test runs the example, so that it is one that works.
"""

import asyncio
from pathlib import Path
from types import ModuleType

import pytest

import wend
from tests.drivers.live.examples import load_example
from tests.drivers.live.processes import Process

EVENTS = 300


@pytest.fixture(scope="module")
def example() -> ModuleType:
    return load_example("trees")


@pytest.mark.slow
def test_a_cut_link_and_a_dead_peer_lose_no_event(example: ModuleType, tmp_path: Path) -> None:
    class ForkedScene(example.Scene):  # type: ignore[misc,name-defined]
        async def launch(self, config: Path) -> Process:
            return await Process.start(config)

    scene = ForkedScene(tmp_path, "mrst", EVENTS, 100.0)
    assert asyncio.run(example.play(scene)) == []
    assert scene.cut is not None and scene.victim not in (-1, example.PUBLISHER)
    assert len(scene.living()) >= 2 * (len(example.SUBSCRIBERS) - 1)
    for peer, text in scene.living():
        assert sum(scene.got[peer, text].values()) >= (EVENTS if text == example.ALL else EVENTS // 2)


def test_the_example_starts_and_kills_peers(example: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "peer.toml").write_text('id = 3\nlisten = "127.0.0.1:0"\nclients = "127.0.0.1:0"\n')

    async def run() -> None:
        async with example.Scene(tmp_path, "mrst", 1, 1.0) as scene:
            process = await scene.launch(tmp_path / "peer.toml")
            async with wend.connect(process.url) as client:
                assert client.peer == 3
            await process.kill()

    asyncio.run(run())


def test_what_is_missing_or_doubled_is_told(example: ModuleType, tmp_path: Path) -> None:
    scene = example.Scene(tmp_path, "mrst", 60, 100.0)
    for text in (example.ALL, example.HALF):
        scene.got[3, text] = example.Counter({b"%d" % n: 1 for n in range(60) if text == example.ALL or n >= 50})
    assert scene.wrong() == []
    del scene.got[3, example.ALL][b"7"], scene.got[3, example.ALL][b"8"]
    scene.got[3, example.HALF][b"55"] += 1
    scene.got[3, example.HALF][b"1"] += 1
    assert scene.wrong() == [
        "peer 3, topic = 'power': lacks 7-8, has twice nothing, unasked []",
        "peer 3, topic = 'power' and load >= 50: lacks nothing, has twice 55, unasked [b'1']",
    ]
    scene.victim = 3
    assert scene.wrong() == []
