"""Section VI of dmm: the workload is the paper's, what is due is found by brute force, and rows add up."""

from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from tests.drivers.sim.delivery_accounts import brute_force
from wend.drivers.sim.dht_workload import Workload
from wend.model.errors import ConfigError
from wend.model.units import SECOND
from wend.studies.claims import Estimate, judge_claims, load_claims
from wend.studies.dmm.crash import CRASH_METRICS, CrashTrial, compute_recovery_s, make_crash_setting, run_crash
from wend.studies.dmm.range_workload import (
    ATTRIBUTES,
    HIGHEST,
    draw_publications,
    draw_rounds,
    draw_subscriptions,
    find_matches,
    make_timed_publications,
    make_timed_subscriptions,
)
from wend.studies.dmm.runs import STRATEGIES, place_peers, play_run
from wend.studies.dmm.study import DMM_STUDY
from wend.studies.dmm.trials import SCALE_METRICS, TRIALS, ScaleTrial, make_scale_setting, run_scale
from wend.studies.study_report import write_report
from wend.studies.study_run import StudyResults, collect_runs

SMALL = {"peers": 40, "subscriptions": 60, "publishers": 8, "domains": 3}
PEERS = np.arange(50)


def drawn(distribution: str = "uniform", predicates: int = 0, count: int = 400) -> tuple:  # type: ignore[type-arg]
    subscriptions = draw_subscriptions(3, count, PEERS, distribution, predicates)  # type: ignore[arg-type]
    publisher, times = draw_rounds(3, np.arange(50, 60), 0, 10 * SECOND, 10)
    return subscriptions, draw_publications(3, publisher, times, distribution, predicates > 0)  # type: ignore[arg-type]


# ---------------------------------------------------------------- the workload


@pytest.mark.parametrize(("distribution", "predicates"), [("uniform", 0), ("zipf", 0), ("uniform", 4)])
def test_brute_force_over_arrays_is_brute_force_over_filters(distribution: str, predicates: int) -> None:
    subscriptions, events = drawn(distribution, predicates)
    workload = Workload(make_timed_subscriptions(subscriptions, 0, 1), (), make_timed_publications(events))
    found, expected = find_matches(subscriptions, events), brute_force(workload)
    assert len(found.publication) > 100
    assert np.array_equal(found.publication, expected.publication)
    assert np.array_equal(found.subscription, expected.subscription)


def test_subscriptions_and_publications_are_the_papers() -> None:
    subscriptions, events = drawn(count=2000)
    asked = subscriptions.low > 0
    assert set(asked.sum(axis=1).tolist()) == set(range(1, 6))
    assert (subscriptions.low[asked] <= subscriptions.high[asked]).all()
    assert np.bincount(subscriptions.subscriber).tolist() == [40] * 50  # evenly among the subscribers
    has = (events.values > 0).sum(axis=1)
    assert set(has.tolist()) == set(range(1, ATTRIBUTES + 1))
    assert np.abs(asked.mean(axis=0) - 0.3).max() < 0.05
    assert (np.diff(events.time_ns) >= 0).all()
    for publisher in range(50, 60):
        mine = events.time_ns[events.publisher == publisher]
        assert mine[0] < 10 * SECOND
        assert set(np.diff(mine).tolist()) == {10 * SECOND}


def test_zipf_prefers_the_first_names_and_the_lowest_values() -> None:
    subscriptions, events = drawn("zipf", count=4000)
    often = (subscriptions.low > 0).mean(axis=0)
    assert often[0] > 2 * often[4] > 2.5 * often[9]
    values = events.values[events.values > 0]
    assert 0.1 < (values == 1).mean() < 0.25  # 1 / (1 + 1/2 + ... + 1/256) = 0.163
    assert values.max() <= HIGHEST


def test_with_predicates_only_the_first_selects() -> None:
    by_count = [drawn(predicates=predicates) for predicates in (1, 4, 10)]
    for (subscriptions, events), predicates in zip(by_count, (1, 4, 10), strict=True):
        asked = subscriptions.low > 0
        selects = asked & ((subscriptions.low > 1) | (subscriptions.high < HIGHEST))
        assert set(asked.sum(axis=1).tolist()) == {predicates}
        assert selects.sum(axis=1).max() == 1
        assert (events.values > 0).all()
    counts = [len(find_matches(*each).publication) for each in by_count]
    assert max(counts) < 1.15 * min(counts)
    with pytest.raises(ConfigError, match="1 to 10 predicates, got 11"):
        drawn(predicates=11)


# ---------------------------------------------------------------- runs


def test_the_bound_is_the_delay_between_hosts() -> None:
    found = run_scale(ScaleTrial("direct", **SMALL), 1)
    setting = make_scale_setting(ScaleTrial("direct", **SMALL), 1)
    delays = []
    for event, wanted in zip(*setting.due, strict=True):
        pair = setting.workload.publications[event].peer, setting.workload.subscriptions[wanted].peer
        delays.append(setting.latencies.delay_ns(*pair) / SECOND)
    assert found["delay_s"] == pytest.approx(np.mean(delays))
    assert found["delay_median_s"] == pytest.approx(np.median(delays))
    assert found["delivery"] == 1.0
    assert 0 < found["per_match"] <= 1.0
    assert found["matches"] == len(delays) > 100


def test_a_run_delivers_what_is_due_and_says_what_it_cost() -> None:
    found = run_scale(ScaleTrial("hermes", loss=0.0, **SMALL), 1)
    bound = run_scale(ScaleTrial("direct", **SMALL), 1)
    assert found.keys() <= set(SCALE_METRICS)
    assert found["delivery"] == 1.0
    assert found["matches"] == bound["matches"]
    assert found["delay_s"] > bound["delay_s"]
    assert found["hops"] > 1
    assert found["messages"] == found["publication_messages"] + found["subscription_messages"] > 0
    assert found["per_match"] == found["publication_messages"] / found["matches"]
    assert found["physical_per_match"] > 2 * found["per_match"]
    assert found["acks_messages"] == 0
    assert found["membership_messages"] > 0


@pytest.mark.parametrize("strategy", [name for name in STRATEGIES if name != "hermes"])
def test_a_strategy_runs_with_the_settings_of_the_study(strategy: str) -> None:
    plain = run_scale(ScaleTrial(strategy, loss=0.0, **SMALL), 1)  # type: ignore[arg-type]
    assert plain["delivery"] == 1.0
    assert (plain["acks_messages"] > 0) == (strategy == "rendezvous")
    assert plain["state_mean"] > 0
    assert plain["cache_messages"] == 0
    if STRATEGIES[strategy].cached:
        cached = run_scale(ScaleTrial(strategy, cache=True, loss=0.0, **SMALL), 1)  # type: ignore[arg-type]
        assert cached["delivery"] == 1.0
        assert cached["cache_messages"] > 0
        assert cached["hops_warm"] < plain["hops_warm"]


def test_what_is_lost_is_missing() -> None:
    setting = make_scale_setting(ScaleTrial("hermes", loss=0.2, **SMALL), 1)
    played = play_run(setting, "hermes", cache=False)
    assert 0.2 < played.made.mean() < 0.9
    assert (played.delay_ns[played.made] > 0).all()
    assert (played.delay_ns[~played.made] == -1).all()


def test_every_choice_of_links_has_a_network_in_a_smoke_run() -> None:
    size = DMM_STUDY.find_size("smoke")
    table = next(one for one in DMM_STUDY.tables if one.name == "Sensitivity")
    trials = [run.fields for _, fields in table.columns for run in size.make_runs(fields)]
    for domains, density in {(trial.domains, trial.density) for trial in trials}:
        assert place_peers(10, domains, 1, density).hops(0, 9) > 0


def test_those_who_crashed_before_a_publication_are_not_due() -> None:
    trial = CrashTrial("direct", crashed=10, **SMALL)
    setting = make_crash_setting(trial, 1)
    (change,) = setting.workload.changes
    assert (change.time_ns, len(set(change.peers))) == (trial.crash_ns, 10)
    rows = zip(*setting.due, strict=True)
    pairs = [(setting.workload.publications[event], setting.workload.subscriptions[one]) for event, one in rows]
    after = [(event, one) for event, one in pairs if event.time_ns >= trial.crash_ns]
    assert len(after) > 20
    assert not any(peer in change.peers for event, one in after for peer in (event.peer, one.peer))
    assert any(one.peer in change.peers for event, one in pairs if event.time_ns < trial.crash_ns)
    found = run_crash(trial, 1)
    assert found.keys() <= set(CRASH_METRICS)
    assert found["recovery_s"] == 0.0


@pytest.mark.parametrize(
    ("shares", "seconds"),
    [
        ({-1: 1.0, 0: 0.5, 1: 0.96, 2: 0.99, 3: 0.98}, 20.0),
        ({0: 0.5, 1: 0.98, 2: 0.5, 3: 0.97, 4: 1.0}, 30.0),  # one good window is not a recovery
        ({0: 0.99, 1: 0.98}, 0.0),
        ({2: 0.99, 3: 0.98}, 0.0),
        ({0: 0.1, 3: 0.98}, 10.0),  # nothing was published in between
        ({0: 0.5, 1: 0.6}, 210.0),
    ],
)
def test_the_recovery_is_the_first_good_window_before_good_ones(shares: dict[int, float], seconds: float) -> None:
    assert compute_recovery_s(shares) == seconds


# ---------------------------------------------------------------- the study


def test_every_claim_names_trials_metrics_and_figures_that_there_are() -> None:
    places = {figure.name for figure in DMM_STUDY.figures} | {table.name for table in DMM_STUDY.tables}
    metrics = {kind.name: set(kind.metrics) for kind in TRIALS.kinds}
    claims = load_claims("dmm")
    assert len(claims) == len({claim.id for claim in claims})
    for claim in claims:
        assert claim.figure in places, claim.id
        for part in claim.parts:
            for side in part.operands():
                assert all(TRIALS.trial(term.fields, 1) for term in side.terms)
                assert all(term.metric in metrics[term.fields["kind"]] for term in side.terms), claim.id
            assert len(claim.parts) == 1 or part.label, claim.id


@pytest.mark.parametrize("name", ["smoke", "default", "full"])
def test_every_figure_shows_metrics_of_its_trials_with_rendezvous_and_the_bound(name: str) -> None:
    size = DMM_STUDY.find_size(name)
    metrics = {kind.name: set(kind.metrics) for kind in TRIALS.kinds}
    for figure in DMM_STUDY.figures:
        shown = set()
        for panel in figure.panels:
            for series, points in figure.points_by_series(panel, size):
                shown.add(series.strategy)
                assert points
                assert all(point.metric in metrics[point.fields["kind"]] for point in points), figure.name
        assert "rendezvous" in shown, figure.name
        assert "direct" in shown or figure.name in ("20", "20-large"), figure.name  # the bound stores nothing
    of_default = {figure.name for figure in DMM_STUDY.figures_at(DMM_STUDY.find_size("default"))}
    assert {f"{number}-10k" for number in (9, 12, 16, 21, 22, 23)} < of_default
    runs = collect_runs(DMM_STUDY, size, load_claims("dmm"), DMM_STUDY.strategies())
    assert {run.fields.strategy for run in runs} == {*STRATEGIES, "direct"}  # type: ignore[union-attr]
    most = {"smoke": 400, "default": 10_000, "full": 50_000}[name]
    assert max(run.fields.peers for run in runs) == most  # type: ignore[union-attr]


def test_the_table_of_sensitivity_has_rows_for_the_open_choices_and_three_topologies() -> None:
    size = DMM_STUDY.find_size("default")
    tables = {table.name: table for table in DMM_STUDY.tables}
    rows = [fields for name in ("Sensitivity", "Sensitivity-crash") for _, fields in tables[name].columns]
    runs = collect_runs(DMM_STUDY, size, load_claims("dmm"), DMM_STUDY.strategies())
    assert all([run.seed for run in size.make_runs(fields)] == [1, 2, 3] for fields in rows)
    assert all(run in runs for fields in rows for run in size.make_runs(fields))
    found = [TRIALS.trial(fields, 1).fields for fields in rows]
    assert {getattr(each, "candidates", 32) for each in found} == {8, 32}
    assert {getattr(each, "density", 0.7) for each in found} == {0.4, 0.7, 1.0}
    assert {getattr(each, "cache_place", "last") for each in found} == {"last", "publisher", "every-arrival"}
    assert {getattr(each, "crash_s", 120.0) for each in found} == {120.0, 400.0}


def test_the_report_shows_settings_as_rows_and_one_topology(tmp_path: Path) -> None:
    size = DMM_STUDY.find_size("smoke")
    table = next(table for table in DMM_STUDY.tables if table.name == "Sensitivity-crash")
    estimates = {
        (size.setting_key(fields), "recovery_s"): Estimate(10.0 * at, None, 1)
        for at, (_, fields) in enumerate(table.columns)
    }
    results = StudyResults(
        study=replace(DMM_STUDY, figures=(), tables=(table,)),
        size=size,
        claims=[],
        estimates=estimates,
        left_out=[],
        runs=4,
        ran=4,
        failures=[],
        code="c0de",
        elapsed_s=1.0,
        simulated_wall_s=1.0,
    )
    write_report(results, tmp_path)
    text = (tmp_path / "report.md").read_text()
    for at, (label, _) in enumerate(table.columns):
        assert f"| {label} | {10 * at}" in text
    assert "1 topology on" in text
    assert "1 topologies" not in text + (tmp_path / "report.html").read_text()


def test_a_small_run_does_not_answer_for_the_largest() -> None:
    size = DMM_STUDY.find_size("smoke")
    scale = next(claim for claim in load_claims("dmm") if claim.id == "dmm.scale")
    (fields,) = scale.settings()
    values = {size.setting_key(fields): {1: run_scale(ScaleTrial("direct", **SMALL), 1)}}
    assert judge_claims([scale], values, size)[0].verdict == "not run"
    large = {size.setting_key(fields): {1: {"largest": 300_000.0}}}
    assert judge_claims([scale], large, size)[0].verdict == "met"


def test_falling_means_falling() -> None:
    size = DMM_STUDY.find_size("default")
    falls = next(claim for claim in load_claims("dmm") if claim.id == "dmm.per_match.falls")
    for costs, verdict in (((4.0, 3.0, 2.0, 1.0), "met"), ((4.0, 3.0, 3.0, 1.0), "not met")):
        values = {
            size.setting_key({"kind": "scale", "strategy": "dmm-ar", "cache": True, "subscriptions": count}): {
                1: {"per_match": cost}
            }
            for count, cost in zip((1000, 2000, 5000, 10_000), costs, strict=True)
        }
        assert judge_claims([falls], values, size)[0].verdict == verdict


def test_detours_and_the_place_of_the_cache_are_counted_apart() -> None:
    found = run_scale(ScaleTrial("dmm-ar", cache=True, loss=0.0, **SMALL), 1)
    cold = run_scale(ScaleTrial("dmm-ar", loss=0.0, **SMALL), 1)
    assert 0 < found["detour_messages"] < cold["detour_messages"]
    assert run_scale(ScaleTrial("dmm", loss=0.0, **SMALL), 1)["detour_messages"] == 0
    assert found["messages"] == sum(found[f"{kind}_messages"] for kind in ("publication", "subscription", "cache"))
    at_publisher = run_scale(ScaleTrial("dmm-ar", cache=True, cache_place="publisher", loss=0.0, **SMALL), 1)
    assert at_publisher["delivery"] == 1.0
    assert at_publisher["hops_warm"] != found["hops_warm"]


def test_more_routes_and_other_tables_are_other_runs() -> None:
    plain = run_scale(ScaleTrial("hermes", loss=0.0, **SMALL), 1)
    for change in ({"candidates": 2}, {"density": 1.0}):
        assert run_scale(ScaleTrial("hermes", loss=0.0, **SMALL, **change), 1)["delay_s"] != plain["delay_s"]
