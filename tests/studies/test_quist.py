"""Chapter 7: messages build the overlays that are computed, and counted ratios equal those of the formula."""

import json
from collections import deque
from itertools import pairwise
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracles.trees import mrst
from tests.spark import needs_java
from tests.topology.placements import overlays, placements
from wend.model.errors import ConfigError, WendError
from wend.pipeline.sweeps.trials import Trial
from wend.studies.claims import load_claims
from wend.studies.quist.construction import build_trees, compute_link_weights, form_overlay
from wend.studies.quist.joint_reliability import compute_joint_reliability
from wend.studies.quist.study import QUIST, K
from wend.studies.quist.timed_failures import TIMED_METRICS, TimedTrial, run_timed
from wend.studies.quist.tree_forwarding import Publications, draw_workload, publish_events
from wend.studies.quist.trials import (
    FOREST_METRICS,
    SIMILARITY_METRICS,
    SPREAD_METRICS,
    TRIALS,
    UNDERLAY_METRICS,
    ForestTrial,
    SimilarityTrial,
    make_testbed,
    run_similarity,
)
from wend.studies.study_report import write_report
from wend.studies.study_run import collect_runs, run_study
from wend.topology.catalog import make
from wend.topology.component_reliability import draw_reliabilities, draw_up_per_event
from wend.topology.graph import Overlay
from wend.topology.overlays import chain, landmark, random_regular
from wend.topology.placement import Placement, attach_peers

SMALL = {"underlay": "power-law", "peers": 24, "k": 5}


def links(overlay: Overlay) -> set[tuple[int, int]]:
    return {(link.a, link.b) for link in overlay.links}


# ---------------------------------------------------------------- the study


def test_the_study_is_chapter_seven() -> None:
    assert {figure.name for figure in QUIST.figures} >= {f"7.{n}" for n in (3, 4, 5, 6, 7, 8, 10, 11, 12, 13, 14)}
    assert {table.name for table in QUIST.tables} >= {"Table 7.1", "Table 7.2"}
    assert (K.values[0], K.values[-1]) == (1, 20)
    runs = collect_runs(QUIST, QUIST.find_size("default"), load_claims("quist"), QUIST.strategies())
    forests = [run.fields for run in runs if isinstance(run, Trial) and isinstance(run.fields, ForestTrial)]
    assert {(f.events, f.subscriptions, f.trees) for f in forests} == {(5000, 100, 5)}
    assert {f.peers for f in forests if f.underlay in ("brite", "transit-stub")} == {250}
    assert {f.k for f in forests if f.strategy != "chain"} == {15}
    assert len({TRIALS.key(run) for run in runs if isinstance(run, Trial)}) == len(runs)


def test_every_claim_can_be_measured() -> None:
    metrics = {
        "underlay": UNDERLAY_METRICS,
        "spread": SPREAD_METRICS,
        "similarity": SIMILARITY_METRICS,
        "forest": FOREST_METRICS,
        "timed": TIMED_METRICS,
    }
    places = {figure.name for figure in QUIST.figures} | {table.name for table in QUIST.tables}
    for claim in load_claims("quist"):
        assert claim.figure in places, claim.id
        for part in claim.parts:
            for side in part.operands():
                assert all(TRIALS.trial(term.fields, 1) for term in side.terms)
                assert all(term.metric in metrics[term.fields["kind"]] for term in side.terms), claim.id
            assert len(claim.parts) == 1 or part.label, claim.id


@pytest.mark.parametrize("kind", ["underlay", "spread", "similarity", "forest", "tables"])
def test_a_trial_gives_its_metrics_and_repeats(kind: str) -> None:
    fields = {
        "underlay": {"strategy": "underlay", "underlay": "transit-stub", "peers": 24},
        "spread": {"strategy": "underlay", "alpha": 100.0, "underlay": "transit-stub", "peers": 24},
        "similarity": {"strategy": "tdo-nearest", **SMALL},
        "tables": {"strategy": "tdo-landmark", "events": 50, **SMALL},
        "forest": {"strategy": "chain", "builder": "spt-k", "events": 50, **SMALL, "peers": 16},
    }[kind]
    row = TRIALS.row(TRIALS.trial({"kind": kind, **fields}, 1))
    found, again = (TRIALS.run_metrics(row, TRIALS.code()) for _ in range(2))
    assert {**found, "wall_s": 0} == {**again, "wall_s": 0}
    assert found.keys() == {*TRIALS.kind(kind).metrics, "wall_s"}
    assert all(value is not None for value in found.values())


def test_a_random_overlay_of_two_links_each_has_no_metrics() -> None:
    assert run_similarity(SimilarityTrial("random", "power-law", 1, 24), 1) == {}
    assert "discovery" not in run_similarity(SimilarityTrial("random", "power-law", 4, 24), 1)
    with pytest.raises(ConfigError, match="no regular graph"):
        run_similarity(SimilarityTrial("random", "power-law", 40, 24), 1)


# ---------------------------------------------------------------- messages and central computation agree


def test_landmarks_by_messages_give_the_links_that_are_computed() -> None:
    for seed in (1, 2):
        placement = attach_peers(make("power-law", seed), 30, seed)
        grown = form_overlay(placement, "tdo-landmark", 4, seed=seed, rest=20)  # two elections
        chosen = grown.members[0].overlay.landmarks
        assert len(chosen) >= 3
        assert {member.overlay.landmarks for member in grown.members.values()} == {chosen}
        assert links(grown.overlay) == links(landmark(placement, chosen))


def test_the_chain_by_messages_has_the_links_that_are_computed() -> None:
    for seed in (1, 2):
        placement = attach_peers(make("power-law", seed), 30, seed)
        grown = form_overlay(placement, "chain", 3, seed=seed)
        assert links(grown.overlay) == links(chain(placement, grown.traced))


@pytest.mark.parametrize("kind", ["tdo-random", "tdo-nearest", "tdo-farthest"])
def test_an_overlay_of_samples_is_whole_and_traces_what_it_was_told(kind: str) -> None:
    placement = attach_peers(make("power-law", 3), 40, 3)
    grown = form_overlay(placement, kind, 4, seed=3)
    graph = nx.Graph(list(links(grown.overlay)))
    assert len(graph) == 40 and nx.is_connected(graph)
    assert 40 <= len(grown.traced) <= 2 * 4 * 40
    assert links(grown.overlay) == links(form_overlay(placement, kind, 4, seed=3).overlay)


def test_the_nearest_are_nearer_than_the_farthest() -> None:
    placement = attach_peers(make("brite", 2), 60, 2)
    traced = {
        kind: form_overlay(placement, kind, 5, seed=2).traced for kind in ("tdo-nearest", "tdo-random", "tdo-farthest")
    }
    delays = [np.mean([placement.direct_ns[a, b] for a, b in pairs]) for pairs in traced.values()]
    assert delays == sorted(delays)


def test_trees_by_messages_are_kruskals() -> None:
    testbed = make_testbed("power-law", 40, 1)
    overlay = random_regular(testbed.placement, 6, 1)
    weight = compute_link_weights(testbed.placement, overlay, testbed.reliability)
    built = build_trees(overlay, weight, 3, "mrst", seed=5)
    assert built.trees == mrst(overlay, weight, 3)
    assert built.messages == sum(built.by_type.values()) > 3 * 39
    trees = build_trees(overlay, weight, 3, "spt-k", seed=5).trees
    assert all(nx.is_tree(nx.Graph([sorted(links(overlay))[i] for i in tree])) for tree in trees)
    assert trees == build_trees(overlay, weight, 3, "spt-k", seed=5).trees


def test_what_cannot_be_built_is_said() -> None:
    placement = attach_peers(make("power-law", 1), 12, 1)
    overlay = random_regular(placement, 3, 1)
    with pytest.raises(ConfigError, match="must be mrst or spt-k, got 'star'"):
        build_trees(overlay, np.full(len(overlay.links), 0.1), 1, "star", seed=1)
    with pytest.raises(ConfigError, match="unknown membership 'ring'"):
        form_overlay(placement, "ring", 2, seed=1)
    with pytest.raises(WendError, match="does not converge within 3 periods"):
        form_overlay(placement, "tdo-random", 2, seed=1, most=3)


# ---------------------------------------------------------------- events


def walk(
    placement: Placement, overlay: Overlay, trees: list[list[int]], up: np.ndarray, publisher: int
) -> list[set[int]]:
    """The peers that have the event after 1, 2, ... trees, found peer by peer and component by component."""
    starts, parts = placement.link_components(overlay)
    found: list[set[int]] = []
    reached: set[int] = set()
    for tree in trees:
        fresh = deque([publisher] if up[placement.first_peer + publisher] else [])
        seen = set(fresh)
        while fresh:
            here = fresh.popleft()
            for i in tree:
                link = overlay.links[i]
                if here in (link.a, link.b):
                    other = link.a + link.b - here
                    whole = all(up[part] for part in parts[starts[i] : starts[i + 1]])
                    if other not in seen and whole and up[placement.first_peer + other]:
                        seen.add(other)
                        fresh.append(other)
        reached |= seen
        found.append(set(reached))
    return found


def make_publications(publishers: np.ndarray, wants: np.ndarray) -> Publications:
    """Events that need no attributes and filters, because it is known who wants them."""
    return Publications(publishers, wants, np.zeros((len(publishers), 2)), {})


@settings(max_examples=60, deadline=None)
@given(st.data(), st.integers(0, 999), st.integers(1, 3))
def test_events_reach_whom_a_walk_over_what_is_up_reaches(data: st.DataObject, seed: int, k: int) -> None:
    placement = data.draw(placements())
    overlay = data.draw(overlays(placement))
    draw = np.random.default_rng(seed)
    chances = draw.choice([0.4, 0.8, 0.95, 1.0], placement.components)
    trees = mrst(overlay, draw.random(len(overlay.links)), k)
    publishers = draw.integers(placement.peers, size=12)
    wants = draw.random((12, placement.peers)) < 0.5
    wants[np.arange(12), publishers] = False
    outcome = publish_events(placement, overlay, trees, chances, make_publications(publishers, wants), seed)
    reached = [0] * k
    for event, publisher in enumerate(publishers.tolist()):
        got = walk(placement, overlay, trees, draw_up_per_event(chances, seed, event), publisher)
        for i in range(k):
            reached[i] += sum(bool(wants[event, peer]) for peer in got[i])
    assert outcome.ratio == pytest.approx([count / max(1, wants.sum()) for count in reached])
    assert (np.diff(outcome.copies) >= 0).all()
    assert outcome.copies[0] <= placement.peers - 1


def test_the_event_ratio_is_the_joint_reliability_of_its_pairs() -> None:
    """The counted ratio equals the computed one, within 4 standard errors of independent events."""
    placement = attach_peers(make("power-law", 4), 20, 4)
    overlay = random_regular(placement, 5, 4)
    chances = draw_reliabilities(placement, 4)
    trees = mrst(overlay, compute_link_weights(placement, overlay, chances), 3)
    events = 3000
    publishers = np.full(events, 2, dtype=np.int64)
    wants = np.zeros((events, 20), dtype=np.bool_)
    wants[:, 17] = True
    outcome = publish_events(placement, overlay, trees, chances, make_publications(publishers, wants), 4)
    exact = compute_joint_reliability(placement, overlay, trees, chances, (np.array([2]), np.array([17]))).reliability[
        0
    ]
    assert outcome.ratio == pytest.approx(exact, abs=4 * 0.5 / np.sqrt(events))


def test_where_all_is_up_everyone_is_reached_by_no_more_copies_than_needed() -> None:
    placement = attach_peers(make("power-law", 5), 12, 5)
    overlay = random_regular(placement, 3, 5)
    trees = mrst(overlay, list(range(len(overlay.links))), 2)
    load = draw_workload(12, 40, 30, 5)
    outcome = publish_events(placement, overlay, trees, np.ones(placement.components), load, 5)
    assert outcome.ratio.tolist() == [1.0, 1.0]
    tree = nx.Graph([(overlay.links[i].a, overlay.links[i].b) for i in trees[0]])
    needed = 0
    for publisher, wants in zip(load.publishers.tolist(), load.wants, strict=True):
        ways = [nx.shortest_path(tree, publisher, int(peer)) for peer in np.flatnonzero(wants)]
        needed += len({frozenset(hop) for way in ways for hop in pairwise(way)})
    assert outcome.copies[0] == pytest.approx(needed / 40)


@pytest.mark.parametrize("strategy", ["adaptive", "mrst"])
def test_what_is_sent_once_arrives_only_where_a_way_is_up_at_once(strategy: str) -> None:
    trial = TimedTrial(strategy, "power-law", 0.5, k=2, peers=10, trees=2, topics=4, duration_s=4.0)  # type: ignore[arg-type]
    found = run_timed(trial, 2)
    assert found.keys() == set(TIMED_METRICS) - ({"static"} if strategy == "adaptive" else set())
    assert 0 < found["on_time"] <= found["delivered"] <= 1
    assert 0 < found["at_once"] < 1
    assert found.get("static", 0.0) <= found["at_once"]
    one = TimedTrial(strategy, "power-law", 0.5, k=2, peers=10, trees=1, topics=4, duration_s=4.0)  # type: ignore[arg-type]
    assert strategy == "adaptive" or run_timed(one, 2)["static"] < found["static"]


def test_about_sixteen_peers_want_an_event() -> None:
    found = [draw_workload(250, 500, 100, seed).interested for seed in range(40)]
    assert 15 < np.mean(found) < 18
    load = draw_workload(250, 500, 100, 1)
    assert not load.wants[np.arange(500), load.publishers].any()


# ---------------------------------------------------------------- the report


@needs_java
@pytest.mark.spark
def test_tables_stand_in_the_report_beside_what_the_thesis_says(spark: Any, tmp_path: Path) -> None:
    parts = ["7.8", "Table 7.2"]
    done = run_study(spark, QUIST, QUIST.find_size("smoke"), tmp_path, only=parts, quiet=True)
    assert done.failures == []
    write_report(done, tmp_path)
    said = json.loads((tmp_path / "report.json").read_text())
    verdicts = {claim["id"]: claim["verdict"] for claim in said["claims"]}
    assert verdicts["quist.topology.size"] == "met"
    assert verdicts["quist.topology.ts"] == "doubtful"
    text = (tmp_path / "report.md").read_text()
    assert "| edges | 3946 | 3320 (3320) | 88 | 350 |" in text
    assert "### Table 7.1" not in text
    page = (tmp_path / "report.html").read_text()
    assert 'id="table-7.2"' in page and 'href="#table-7.2"' in page
    assert (tmp_path / "figures" / "figure-7.8.png").read_bytes().startswith(b"\x89PNG")


def test_a_part_of_the_study_has_its_tables_and_columns() -> None:
    part = QUIST.select(["Trees by messages"], frozenset({"tdo-landmark"}))
    assert (part.figures, [table.name for table in part.tables]) == ((), ["Trees by messages"])
    assert QUIST.select([], frozenset({"chain"})).tables == ()
    with pytest.raises(ConfigError, match=r"has no figure '9.9'; it has 7.3, .*, Table 7.1, Table 7.2"):
        QUIST.select(["9.9"], frozenset())
