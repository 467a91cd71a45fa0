"""Scenarios whose peers complete their traced paths by an inferred topology."""

from pathlib import Path as File
from typing import Any

import pytest

from tests.errors import raises
from tests.topology.inferred_links import infer_links, trace_all, write_links
from wend.drivers.scenario_underlay import place_peers
from wend.drivers.scenarios import Scenario
from wend.drivers.sim import simulate
from wend.drivers.sim.checks import check
from wend.drivers.world import build_world
from wend.pipeline.scenario_rows import scenario_key
from wend.topology.traceroute import Tracer


def on(underlay: str | None, **changes: Any) -> Scenario:
    fields = {"peers": 16, "topics": 3, "duration": "4s", "drain": "4s", "warmup": "20s", "underlay": underlay}
    fields |= {"topology": "full-mesh", "membership": "tdo-landmark", "strategy": "adaptive", "pf": 0.0}
    return Scenario().with_(**{**fields, **changes})


def write_topology(folder: File, scenario: Scenario) -> str:
    """Write what the job infers from traces between all peers of the scenario."""
    placement = place_peers(scenario)
    tracer = Tracer(placement, seed=scenario.seed, anonymous=scenario.anonymous, loss=scenario.traceroute_loss)
    return str(write_links(folder, infer_links(trace_all(placement, tracer, 4), least=3)))


def test_paths_get_the_routers_that_were_inferred(tmp_path: File) -> None:
    for number, flaws in enumerate(({"traceroute_loss": 0.2}, {"anonymous": 0.2})):
        blind = on("power-law", **flaws)
        world = build_world(blind.with_(inferred_topology=write_topology(tmp_path / str(number), blind)))
        assert world.placement is not None
        silent: dict[str, set[int]] = {}
        holes = filled = right = 0
        for a in range(16):
            for b in range(16):
                traced = world.find_path(a, b, attempt=9)
                if a == b or traced is None:
                    continue
                completed = world.complete_path(a, b, traced)
                for hop, router, now in zip(world.placement.path(a, b), traced, completed, strict=True):
                    assert router in (None, now)
                    holes += router is None
                    filled += router is None and now is not None
                    if isinstance(now, str):
                        silent.setdefault(now, set()).add(hop)
                    elif now is not None:
                        right += router is None and now == hop
        assert filled > 0.6 * holes > 0  # of two silent routers in a row nothing is known
        if "anonymous" in flaws:
            assert silent and right == 0
            assert all(len(routers) == 1 for routers in silent.values()), "a name is that of one router"
        else:
            assert right > 0.95 * filled


def test_a_run_counts_the_paths_that_were_completed(tmp_path: File) -> None:
    blind = on("power-law", anonymous=0.15)
    knowing = blind.with_(inferred_topology=write_topology(tmp_path / "network", blind))
    outcome = simulate(knowing)
    assert check(outcome) == []
    assert outcome.summary.delivery == 1.0
    assert outcome.summary.notices["paths-inferred"] > outcome.summary.notices["paths-incomplete"]
    assert not simulate(blind).summary.notices.keys() & {"paths-inferred", "paths-incomplete"}


def test_a_scenario_is_another_one_with_another_topology(tmp_path: File) -> None:
    one = on("power-law", inferred_topology=write_topology(tmp_path / "network", on("power-law", anonymous=0.15)))
    before = scenario_key(one)
    write_topology(tmp_path / "other", on("power-law", anonymous=0.3))
    (tmp_path / "network" / "links").rename(tmp_path / "former")
    (tmp_path / "other" / "links").rename(tmp_path / "network" / "links")
    assert scenario_key(one) != before


@pytest.mark.parametrize(
    ("underlay", "code", "sentence"),
    [
        (None, "invalid-setting", "inferred_topology concerns routers"),
        ("power-law", "unreadable", "nowhere is not an output of `wend data topology`: it has no folder links"),
    ],
)
def test_a_topology_that_helps_nobody_is_refused(underlay: str | None, code: str, sentence: str) -> None:
    with raises(code, match=sentence):
        build_world(on(underlay, inferred_topology="nowhere"))
