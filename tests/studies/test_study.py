"""The study of dcrd has the settings of section IV of the paper."""

import pytest

from wend.drivers.scenarios import Scenario
from wend.drivers.world import build_world
from wend.model.errors import ConfigError
from wend.pipeline.scenario_rows import scenario_key
from wend.studies import STUDIES, find_study
from wend.studies.claims import load_claims
from wend.studies.dcrd.study import DCRD, make_crash_fields
from wend.studies.study_model import Axis, Figure, Panel, Series, Size
from wend.studies.study_run import collect_runs

EVERY = DCRD.strategies()
DEFAULT = DCRD.find_size("default")


def axis_values(name: str) -> tuple[float, ...]:
    figure = next(figure for figure in DCRD.figures if figure.name == name)
    assert figure.axis is not None
    return figure.axis.values


def test_what_the_paper_varies() -> None:
    assert [figure.name for figure in DCRD.figures] == [*"2345678", "mean degree", "measured", "crashes"]
    assert axis_values("2") == axis_values("3") == (0.0, 0.02, 0.04, 0.06, 0.08, 0.10)
    assert axis_values("4") == (3, 4, 5, 6, 7, 8, 9, 10)
    assert axis_values("5") == (10, 20, 40, 80, 120, 160)
    assert {1.5, 2.0, 3.0, 4.0} <= set(axis_values("6"))
    assert axis_values("8") == (1e-5, 1e-4, 1e-3, 1e-2, 1e-1)


def test_peers_crash_as_often_as_the_axis_says() -> None:
    runs = collect_runs(DCRD.select(["crashes"], EVERY), DEFAULT, [], EVERY)
    assert {run.strategy for run in runs if isinstance(run, Scenario)} == {"oracle", "dcrd", "adaptive"}
    shares = set()
    for run in runs:
        assert isinstance(run, Scenario) and run.peer_outages is not None and run.pf == 0.0
        up, down = run.peer_outages.up.mean_s, run.peer_outages.down.mean_s
        shares.add(round(down / (up + down), 9))
    assert shares == {0.02, 0.04, 0.06, 0.08, 0.10}
    world = build_world(Scenario(peers=20, duration="600s", peer_outages=make_crash_fields(0.1)))
    lost = sum(until - start for _, start, until in world.peer_faults.outages())
    assert lost / (20 * (world.end_ns - world.begin_ns)) == pytest.approx(0.1, rel=0.25)


def test_both_values_of_pf_that_the_paper_has_for_figure_8_are_shown() -> None:
    runs = collect_runs(DCRD.select(["8"], EVERY), DEFAULT, [], EVERY)
    shown = {(run.pf, run.strategy) for run in runs if isinstance(run, Scenario) and run.settings["ack"] == "free"}
    assert shown == {(pf, name) for pf in (0.01, 0.1) for name in ("dcrd", "r-tree", "d-tree", "multipath")}


def test_other_readings_stand_beside_the_paper() -> None:
    runs = collect_runs(DCRD, DEFAULT, [], EVERY)
    random = {run.degree for run in runs if isinstance(run, Scenario) and run.topology == "random"}
    assert random == {3, 4, 5, 6, 8, 10}
    estimators = {run.settings["estimator"] for run in runs if isinstance(run, Scenario) and run.strategy == "dcrd"}
    assert estimators == {"nominal", "measured"}


def test_a_coarse_size_runs_fewer_points_on_axes_that_say_so() -> None:
    fine = Size(name="fine", seeds=1)
    coarse = Size(name="coarse", seeds=1, coarse=True)
    thin = Size(name="thin", seeds=1, coarse=True, thin=True)
    axis = Axis("peers", (10, 20, 40), (10,), "peers", coarse=(10, 40))
    assert [axis.run_values(size) for size in (fine, coarse, thin)] == [(10, 20, 40), (10, 40), (10,)]
    assert [axis.shown_values(size) for size in (fine, coarse, thin)] == [(10, 20, 40), (10, 20, 40), (10,)]
    assert Axis("peers", (10, 20), (10,), "peers").run_values(coarse) == (10, 20)


def test_a_figure_shows_what_claims_run_beyond_its_own_points() -> None:
    series = (Series("dcrd", {"strategy": "dcrd"}),)
    axis = Axis("peers", (10, 20), (10,), "peers", coarse=(10,))
    figure = Figure("1", "Size", "", {}, (Panel("Delivery", "%", "delivery"),), series, axis)
    coarse = Size(name="coarse", seeds=1, coarse=True)
    only = Size(name="only", seeds=1, shows_only=frozenset({"1"}))
    ((_, points),) = figure.points_by_series(figure.panels[0], coarse)
    assert [point.x for point in points] == [10, 20]
    assert list(figure.settings(coarse)) == [{"strategy": "dcrd", "peers": 10}]
    assert not list(figure.settings(only))
    assert list(figure.points_by_series(figure.panels[0], only)) == [(series[0], points)]


def test_the_default_of_a_study_has_seeds_for_an_interval_of_every_claim() -> None:
    for study in STUDIES.values():
        size = study.find_size("default")
        for claim in load_claims(study.name):
            for fields in claim.settings():
                if fields.get("kind") not in size.leaves_out:
                    assert len(size.make_runs(fields)) >= 4, claim.id


def test_sizes() -> None:
    assert [(size.name, size.duration_s, size.seeds) for size in DCRD.sizes] == [
        ("smoke", 20.0, 2),
        ("default", 120.0, 5),
        ("full", 7200.0, 10),
    ]


def test_the_paper_has_free_acknowledgements_and_round_trips_stand_beside() -> None:
    scenarios = collect_runs(DCRD, DEFAULT, load_claims("dcrd"), EVERY)
    kinds = {(scenario.strategy, scenario.settings["ack"]) for scenario in scenarios}
    free = {(name, "free") for name in ("dcrd", "r-tree", "d-tree", "multipath", "oracle")}
    assert kinds == free | {("dcrd", "round-trip"), ("adaptive", "round-trip")}


def test_strategies_are_compared_on_the_same_topologies() -> None:
    scenarios = collect_runs(DCRD, DEFAULT, [], EVERY)
    assert {scenario.seed for scenario in scenarios} == {1, 2, 3, 4, 5}


def test_settings_that_figures_share_run_once() -> None:
    scenarios = collect_runs(DCRD, DEFAULT, load_claims("dcrd"), EVERY)
    keys = [scenario_key(scenario) for scenario in scenarios]
    assert len(set(keys)) == len(keys)
    # Full mesh at Pf 0.06 is in Figures 2 and 7, degree 8 in 4, 5, 6 and 7.
    apart = sum(len(collect_runs(DCRD.select([f.name], EVERY), DEFAULT, [], EVERY)) for f in DCRD.figures)
    assert apart > len(keys)


def test_claims_bring_the_settings_that_no_figure_has() -> None:
    with_claims = collect_runs(DCRD, DEFAULT, load_claims("dcrd"), EVERY)
    assert any(scenario.peers == 160 and scenario.pf == 0.10 for scenario in with_claims)
    assert not any(s.peers == 160 and s.pf == 0.10 for s in collect_runs(DCRD, DEFAULT, [], EVERY))


def test_a_quick_look_is_small() -> None:
    smoke = collect_runs(DCRD, DCRD.find_size("smoke"), load_claims("dcrd"), EVERY)
    assert len(smoke) < 300
    assert max(scenario.peers for scenario in smoke) <= 40


def test_fewer_seeds_are_a_part_of_the_study() -> None:
    some = collect_runs(DCRD, DEFAULT.with_seeds(2), [], EVERY)
    assert {scenario.seed for scenario in some} == {1, 2}
    assert {*map(scenario_key, some)} < {*map(scenario_key, collect_runs(DCRD, DEFAULT, [], EVERY))}
    with pytest.raises(ConfigError, match="at least one seed, got 0"):
        DEFAULT.with_seeds(0)


def test_claims_alone_need_fewer_runs() -> None:
    claims = load_claims("dcrd")
    alone = collect_runs(DCRD.without_figures(), DEFAULT, claims, EVERY)
    every = {scenario_key(scenario) for scenario in collect_runs(DCRD, DEFAULT, claims, EVERY)}
    assert {scenario_key(scenario) for scenario in alone} < every
    assert DCRD.without_figures().shares() == DCRD.shares()


def test_a_part_of_the_study() -> None:
    part = DCRD.select(["7"], frozenset({"dcrd"}))
    assert [figure.name for figure in part.figures] == ["7"]
    assert {s.strategy for s in collect_runs(part, DEFAULT, [], frozenset({"dcrd"}))} == {"dcrd"}


def test_unknown_names_are_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="no figure '9'; it has 2, 3"):
        DCRD.select(["9"], EVERY)
    with pytest.raises(ConfigError, match="no study 'other'; the studies are campr, dcrd"):
        find_study("other")
