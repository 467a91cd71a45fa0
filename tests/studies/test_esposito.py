"""Section 4 of esposito: the worlds are the paper's, what counts is counted, and trees are read from peers."""

import pytest

from wend.drivers.sim.run import simulate
from wend.model.units import SECOND
from wend.strategies import registry
from wend.studies.claims import ClaimTerm, load_claims, parse_claims
from wend.studies.esposito.fault_matrix import FAULTS, play_fault
from wend.studies.esposito.runs import (
    KNOWN,
    LINKS,
    PUBLISHERS,
    RUN_METRICS,
    SETTLE_NS,
    STRATEGIES,
    Crashes,
    CrashRun,
    MeasuredEvents,
    make_scenario,
    run_crashes,
)
from wend.studies.esposito.study import ESPOSITO
from wend.studies.esposito.tree_overlap import OVERLAP_METRICS, OverlapRun, form_trees, run_overlap
from wend.studies.esposito.trials import MATRIX, MATRIX_METRICS, MatrixRun, matrix_metric, run_matrix
from wend.studies.study_run import collect_runs

DEFAULT = ESPOSITO.find_size("default")
SHORT = {"nodes": 24, "duration_s": 36.0}


def test_the_study_has_the_papers_figures_and_only_strategies_that_there_are() -> None:
    assert {figure.name for figure in ESPOSITO.figures} >= {"10", "11"}
    assert {"scribe", "scribe-acks"} <= STRATEGIES.keys() <= KNOWN.keys()
    assert {each.routing for each in STRATEGIES.values()} <= registry.STRATEGIES.keys()
    assert ESPOSITO.strategies() <= STRATEGIES.keys() | registry.STRATEGIES.keys()


def test_claims_are_the_papers_and_name_figures_of_the_study() -> None:
    claims = {claim.id: claim for claim in load_claims("esposito")}
    printed = {f"esposito.{name}" for name in ("link.success", "link.multihomed", "node.success", "latency", "order")}
    printed |= {"esposito.homing", "esposito.node.latency"}
    assert claims.keys() >= printed | {"esposito.jitter"}
    places = {figure.name for figure in ESPOSITO.figures} | {table.name for table in ESPOSITO.tables}
    assert {claim.figure for claim in claims.values()} <= places
    for claim in claims.values():
        for fields in claim.settings():
            assert DEFAULT.setting_key(fields)


def test_a_run_of_the_study_is_run_once() -> None:
    runs = collect_runs(ESPOSITO, DEFAULT, load_claims("esposito"), ESPOSITO.strategies())
    assert DEFAULT.trials is not None
    assert len({DEFAULT.trials.key(run) for run in runs}) == len(runs)  # type: ignore[arg-type]
    assert all(DEFAULT.trials.cost(run) > 0 for run in runs)  # type: ignore[arg-type]


def test_both_schemes_run_with_every_number_of_backups() -> None:
    (figure,) = (figure for figure in ESPOSITO.figures if figure.name == "11-k")
    shown = {(fields["strategy"], int(fields["backups"])) for fields in figure.settings(DEFAULT)}
    assert shown == {(strategy, k) for strategy in ("esposito", "clusters") for k in range(4)}


def test_rare_failures_are_those_of_one_link_in_the_network_at_a_time() -> None:
    often, rarely = (
        make_scenario(CrashRun("scribe", failures_per=rate), 1).outages  # type: ignore[arg-type]
        for rate in ("link", "network")
    )
    assert often is not None and rarely is not None
    assert often.down == rarely.down
    assert rarely.up.mean_s == 5000 * LINKS == LINKS * often.up.mean_s


def test_an_operand_may_be_the_mean_of_settings_that_no_product_gives() -> None:
    (claim,) = parse_claims(
        """[[claim]]
id = "x.pairs"
what = "growth"
setting = ""
figure = "1"
value = 0
rel = ">="
metric = "on_time"
at = { ack = "free" }
parts = [{ label = "both", of = [{ peers = 20, degree = 3 }, { peers = 40, degree = 5 }], minus = { peers = 80 } }]
"""
    )
    (part,) = claim.parts
    places = [{"ack": "free", "peers": 20, "degree": 3}, {"ack": "free", "peers": 40, "degree": 5}]
    assert [(term.metric, term.fields) for term in part.of.terms] == [("on_time", place) for place in places]
    assert part.minus is not None and part.minus.terms == (ClaimTerm("on_time", {"ack": "free", "peers": 80}),)


# ---------------------------------------------------------------- runs


@pytest.mark.parametrize("crashes", ["none", "links", "nodes"])
def test_a_run_counts_what_is_published_after_the_first_failures(crashes: Crashes) -> None:
    run = CrashRun("scribe", crashes=crashes, homing="single", **SHORT)  # type: ignore[arg-type]
    found = run_crashes(run, 1)
    assert found.keys() <= set(RUN_METRICS)
    assert found["clusters"] == 8
    assert (found["links_down"] > 0) == (crashes == "links") == (found["rejected"] > 0)
    assert (found["nodes_down"] > 0) == (crashes == "nodes")
    if crashes == "none":
        assert (found["success"], found["doubled"]) == (1.0, 0.0)
        assert found["latency_ms"] > found["deviation_ms"] > 0
    if crashes == "links":
        assert found["success"] < 1.0


def test_one_backup_of_each_coordinator_masks_process_crashes() -> None:
    run = CrashRun("esposito", crashes="nodes", homing="single", backups=1, **SHORT)  # type: ignore[arg-type]
    found = run_crashes(run, 1)
    assert found["nodes_down"] > 0
    assert (found["success"], found["doubled"]) == (1.0, 0.0)


def test_border_links_that_fail_cost_the_printed_scheme_events() -> None:
    run = CrashRun("esposito", crashes="borders", homing="single", **SHORT)  # type: ignore[arg-type]
    assert 0 < run_crashes(run, 4)["success"] < 1


def test_the_success_rate_is_that_of_events_that_count() -> None:
    outcome = simulate(make_scenario(CrashRun("scribe", crashes="nodes", **SHORT), 1))  # type: ignore[arg-type]
    world, begin = outcome.world, outcome.world.begin_ns + SETTLE_NS
    assert len(world.topics) == PUBLISHERS
    due = {
        (*event, subscriber)
        for now, *event in outcome.trace.publications.numbers(
            "time_ns", "publisher", "incarnation", "sequence"
        ).tolist()
        for subscriber in range(24)
        if now >= begin and subscriber != event[0] and world.peer_faults.is_up(subscriber, now)
    }
    rows = outcome.trace.deliveries.numbers("publisher", "incarnation", "sequence", "subscriber").tolist()
    made = {tuple(row) for row in rows}
    assert MeasuredEvents(outcome).compute_metrics()["success"] == pytest.approx(len(due & made) / len(due))
    assert len(due) > 50


def test_failures_are_the_papers() -> None:
    scenario = make_scenario(CrashRun("scribe"), 1)
    assert scenario.outages is not None and not scenario.partitions
    assert (scenario.outages.up.mean_s, scenario.outages.down.low_s, scenario.outages.down.high_s) == (5000, 10, 1200)
    assert scenario.topics * scenario.rate_hz == 1.0
    assert scenario.underlay == "power-law"
    assert make_scenario(CrashRun("scribe", homing="single"), 1).underlay == "power-law-single"
    assert make_scenario(CrashRun("esposito", crashes="borders"), 1).partitions
    assert scenario.duration_ns == 120 * SECOND


# ---------------------------------------------------------------- trees


def test_the_edges_of_scribes_trees_lead_to_one_root() -> None:
    run = OverlapRun("scribe", nodes=24)
    trees = form_trees(run, 1)
    assert len(trees) == PUBLISHERS
    for edges in trees.values():
        children = [edge.child for edge in edges]
        assert len({*children}) == len(children)
        assert len({edge.parent for edge in edges} - {*children}) == 1
        assert all(edge.path for edge in edges)
    found = run_overlap(run, 1)
    assert found.keys() == set(OVERLAP_METRICS)
    # two edges of one node begin at its own router
    assert found["local_overlapping"] == 1.0 <= found["local_shared"] <= found["route_shared"]
    assert found["edges"] == sum(map(len, trees.values()))


# ---------------------------------------------------------------- the matrix


def test_the_matrix_is_that_of_single_worlds() -> None:
    found = run_matrix(MatrixRun("d-tree", worlds=1), 3)
    assert found.keys() == set(MATRIX_METRICS)
    assert found["matrix_worlds"] == len(MATRIX) == len(FAULTS) + 1
    rows = {fault: play_fault(fault, "d-tree", 2) for fault in ("loss", "partition", "link crash")}
    assert any(row.lost for row in rows.values())
    for fault, row in rows.items():
        assert found[matrix_metric(fault, "lost")] == row.lost
        assert found[matrix_metric(fault, "on_time")] == row.on_time / row.expected
    assert found["broken"] == 0
