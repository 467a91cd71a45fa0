"""`wend up` with strategies that need trees: nothing is published, and nothing fails, before they stand."""

import asyncio

import pytest

from wend.console import up
from wend.drivers.live import comparison
from wend.drivers.live.comparison import Comparison
from wend.drivers.scenarios import make_scenario
from wend.drivers.world import build
from wend.model.units import MS


def run(**fields: object) -> Comparison:
    world = build(make_scenario({"peers": 6, "degree": 3, "pl": 0.0, "warmup": "0.3s", "rate": 10.0, **fields}))

    async def play() -> Comparison:
        made = Comparison(world, ("mrst", "dcrd"))
        await made.run()
        return made

    return asyncio.run(play())


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "GRACE_NS", 200 * MS)


def test_publishing_begins_when_the_trees_stand() -> None:
    """The warm-up is too short for them."""
    done = run(duration="0.5s", pf=0.0)
    assert done.waits_for == ()
    assert [overlay.meter.notices["queued"] for overlay in done.overlays] == [0, 0]
    assert "did not stand" not in up.closing(done)


def test_trees_are_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "TREES_NS", 1)
    done = run(duration="0.1s", pf=0.0)
    assert done.waits_for == ("mrst",)
    assert done.overlays[0].meter.notices["queued"] > 0
    assert "The trees of mrst did not stand in time, and first events waited for them." in up.closing(done)


def test_no_link_fails_while_trees_are_waited_for() -> None:
    """All links fail from the first publication on, so trees that stand were built before."""
    at_once = {"up": {"kind": "fixed", "mean_s": 1e-9}, "down": {"kind": "fixed", "mean_s": 100.0}}
    done = run(duration="0.3s", outages=at_once)
    assert done.waits_for == ()
    assert [overlay.meter.totals.delivered for overlay in done.overlays] == [0, 0]
