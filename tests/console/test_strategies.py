"""A plug-in is one file and one line: what commands know of it, they know from its declarations."""

import re
import sys
from typing import ClassVar

import pytest

from tests.errors import raises
from wend.console.app import main
from wend.console.scenario_flags import print_unused
from wend.console.up_command import _parse_strategies
from wend.drivers.live.config import PeerFile
from wend.drivers.scenarios import Scenario
from wend.drivers.sim import simulate
from wend.model.settings import Settings
from wend.pipeline.sweeps.simulations import SIMULATIONS
from wend.protocol.plugins import Needs
from wend.strategies.adaptive.plugin import AdaptiveSettings
from wend.strategies.registry import ROUTING, STRATEGIES
from wend.strategies.source_trees.plugin import DelayTree


class Mine(DelayTree):
    settings: ClassVar[type[Settings]] = AdaptiveSettings
    effort: ClassVar[float] = 4.0
    about: ClassVar[str] = "of a test"


class Steered(DelayTree):
    needs: ClassVar[Needs] = Needs(plan=True)


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, kind in (("mine", Mine), ("steered", Steered)):
        monkeypatch.setitem(ROUTING, name, kind)
    monkeypatch.setattr("wend.drivers.sim.run.STRATEGIES", tuple(STRATEGIES))
    monkeypatch.setattr("wend.drivers.sim.STRATEGIES", tuple(STRATEGIES))


@pytest.mark.usefixtures("registered")
def test_help_names_every_strategy(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["wend", "sim", "--help"])
    with pytest.raises(SystemExit):
        main()
    shown = re.sub(r"[\s│]+", " ", capsys.readouterr().out)
    assert "adaptive (Wend's own), dcrd, d-tree, r-tree, multipath, planned (needs a plan), " in shown
    assert "planned-failover (needs a plan), mrst, spt-k, " in shown
    assert "mine (of a test), steered (needs a plan), oracle (what is possible at best), or MODULE:CLASS" in shown


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize(
    ("strategies", "flags", "said"),
    [
        (("mine",), {"redundancy": "none"}, ""),
        (("mine",), {"trees": 3}, "--trees changes nothing here: it is for mrst and spt-k, not for mine"),
        (("mrst",), {"trees": 3, "covering": "merging"}, ""),
        (
            ("dcrd",),
            {"redundancy": "none"},
            "--redundancy changes nothing here: it is for adaptive, clusters-adaptive and mine, not for dcrd",
        ),
        (("mine",), {"detection": "90ms"}, "--detection changes nothing here: mine does not use the failure detector"),
        (
            ("mine",),
            {"plan": "x"},
            "--plan changes nothing here: only planned, planned-failover or steered follows a plan, not mine",
        ),
        (("steered",), {"plan": "x"}, ""),
        (("dcrd", "mine"), {"redundancy": "none"}, ""),
        (("dcrd", "adaptive"), {"redundancy": "none", "detection": "90ms"}, ""),
        (
            ("d-tree", "dcrd"),
            {"detection": "90ms"},
            "--detection changes nothing here: d-tree does not use the failure detector",
        ),
        (
            ("dcrd",),
            {"membership_k": 2},
            "--membership-k changes nothing here: it is for membership tdo-landmark, tdo-random, tdo-nearest, "
            "tdo-farthest, random or chain",
        ),
        (("mine",), {"trace_paths": False}, "--trace-paths changes nothing here: there is no --underlay"),
    ],
)
def test_a_flag_changes_nothing_where_no_strategy_heeds_it(
    strategies: tuple[str, ...], flags: dict[str, object], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    print_unused(Scenario(strategy=strategies[0]), flags, strategies)
    assert capsys.readouterr().err == (f"wend: {said}\n" if said else "")


@pytest.mark.usefixtures("registered")
def test_who_follows_a_plan_says_so_itself() -> None:
    with raises("invalid-setting", match="steered follows a plan, and an overlay of `wend up` has none"):
        _parse_strategies("steered")
    with raises("invalid-setting", match=r"choose from adaptive, .*, mine, or MODULE:CLASS$"):
        _parse_strategies("none")
    with raises("invalid-setting", match='by strategy = "planned" or "planned-failover" or "steered", not by \'mine\''):
        PeerFile(id=1, strategy="mine", plan="x").check()
    PeerFile(id=1, strategy="steered", plan="x").check()


@pytest.mark.usefixtures("registered")
def test_it_runs_and_a_sweep_knows_what_it_takes() -> None:
    scenario = Scenario(strategy="d-tree", duration="1s")
    assert simulate(scenario.with_(strategy="mine")).summary.delivered == simulate(scenario).summary.delivered > 0
    assert SIMULATIONS.cost(scenario.with_(strategy="mine")) == 4 * SIMULATIONS.cost(scenario)
    assert 0 < SIMULATIONS.cost(scenario.with_(strategy="oracle")) < SIMULATIONS.cost(scenario)
