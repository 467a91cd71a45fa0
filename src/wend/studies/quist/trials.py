"""The measurements of chapter 7 of the quist thesis, on one seed: an underlay, an overlay, k trees, and events.

Messages build the overlays `tdo-random`, `tdo-nearest` and `tdo-farthest`, and all trees (`construction.py`).
`tdo-landmark` with exactly k landmarks (elections give about k) and `chain` are computed centrally; a test shows that
messages give the same links. `random` is the thesis's "No TDO": a random regular graph.

The seed decides the underlay, the placement of peers, the reliabilities, the workload and the component states at each
event, so all strategies of one seed meet the same conditions.
"""

from functools import lru_cache
from typing import Literal, NamedTuple

import msgspec
import numpy as np

from wend.model.errors import ConfigError
from wend.pipeline.code_hash import PARTS as SIMULATED
from wend.pipeline.sweeps.trials import TrialKind, Trials
from wend.studies.quist.construction import build_trees, compute_link_weights, form_overlay
from wend.studies.quist.joint_reliability import compute_joint_reliability
from wend.studies.quist.peer_load import measure_load
from wend.studies.quist.similarity import measure_discovery, measure_similarity
from wend.studies.quist.table_forwarding import publish_by_tables
from wend.studies.quist.timed_failures import TIMED_METRICS, TimedTrial, run_timed
from wend.studies.quist.tree_forwarding import Publications, draw_workload, publish_events
from wend.topology.catalog import make
from wend.topology.component_reliability import (
    LAST_MILE_ALPHA,
    LINK_ALPHA,
    PEER_ALPHA,
    ROUTER_ALPHA,
    draw_reliabilities,
    path_reliabilities,
)
from wend.topology.graph import Overlay
from wend.topology.overlays import chain, choose_landmarks, choose_traced, landmark, random_regular
from wend.topology.placement import Pair, Placement, attach_peers
from wend.topology.underlay import Floats, LinkKind, RouterKind

OverlayKind = Literal["random", "tdo-landmark", "tdo-random", "tdo-nearest", "tdo-farthest", "chain"]
MAX_TREES = 5
DEGREE = 15
"""The degree of the overlay without topology discovery that gains are relative to."""
LEVELS = (0.85, 0.9, 0.92, 0.94, 0.95, 0.96, 0.97, 0.98, 0.99, 1.0)
"""The points at which the distribution of reliabilities is shown."""
_CACHED = 24
"""Testbeds and workloads that a worker caches: about those of one study."""


# ---------------------------------------------------------------- the underlay


class UnderlayTrial(msgspec.Struct, frozen=True):
    strategy: Literal["underlay"]
    underlay: str = "brite"
    peers: int = 250


class ComponentType(NamedTuple):
    """A row of Table 7.1."""

    name: str
    alpha: float


COMPONENT_TYPES = (
    ComponentType("router", ROUTER_ALPHA[RouterKind.ACCESS]),
    ComponentType("transit_router", ROUTER_ALPHA[RouterKind.TRANSIT]),
    ComponentType("link", LINK_ALPHA[LinkKind.INNER]),
    ComponentType("border_link", LINK_ALPHA[LinkKind.BORDER]),
    ComponentType("transit_link", LINK_ALPHA[LinkKind.TRANSIT]),
    ComponentType("last_mile", LAST_MILE_ALPHA),
    ComponentType("peer", PEER_ALPHA),
)
UNDERLAY_METRICS = (
    "routers",
    "edges",
    "hops",
    "diameter",
    "path_reliability",
    "worst_path",
    *(f"alpha_{each.name}" for each in COMPONENT_TYPES),
)


def run_underlay(trial: UnderlayTrial, seed: int) -> dict[str, float]:
    """Measure Tables 7.1 and 7.2. Paths include the routers of both peers."""
    testbed = make_testbed(trial.underlay, trial.peers, seed)
    placement = testbed.placement
    paths = placement.paths(*placement.pairs())
    alone = path_reliabilities(paths.starts, paths.components, testbed.reliability)
    hops = paths.lengths() - 1
    metrics = {
        "routers": placement.underlay.routers,
        "edges": placement.underlay.links,
        "hops": float(hops.mean()),
        "diameter": float(hops.max()),
        "path_reliability": float(alone.mean()),
        "worst_path": float(alone.min()),
    }
    for name, values in reliabilities_by_type(testbed).items():
        metrics[f"alpha_{name}"] = float(-1 / np.log(values).mean()) if len(values) else np.nan
    return metrics


def reliabilities_by_type(testbed: "Testbed") -> dict[str, Floats]:
    """The reliabilities of all components, by the row of Table 7.1."""
    placement, r = testbed.placement, testbed.reliability
    routers, links = r[: placement.first_link], r[placement.first_link : placement.first_peer]
    under = placement.underlay
    return {
        "router": routers[under.router_kind == RouterKind.ACCESS],
        "transit_router": routers[under.router_kind == RouterKind.TRANSIT],
        "link": links[under.link_kind == LinkKind.INNER],
        "border_link": links[under.link_kind == LinkKind.BORDER],
        "transit_link": links[under.link_kind == LinkKind.TRANSIT],
        "last_mile": r[placement.first_last_mile :],
        "peer": r[placement.first_peer : placement.first_last_mile],
    }


class SpreadTrial(msgspec.Struct, frozen=True):
    strategy: Literal["underlay"]
    alpha: float = 50.0
    underlay: str = "brite"
    peers: int = 250


SPREAD_METRICS = tuple(f"below_{round(1000 * level)}" for level in LEVELS)


def run_spread(trial: SpreadTrial, seed: int) -> dict[str, float]:
    """Measure Figure 7.8: the share of the components with one alpha up to each level of reliability."""
    by_name = reliabilities_by_type(make_testbed(trial.underlay, trial.peers, seed))
    values = np.concatenate([by_name[each.name] for each in COMPONENT_TYPES if each.alpha == trial.alpha])
    return {name: float((values <= level).mean()) for name, level in zip(SPREAD_METRICS, LEVELS, strict=True)}


# ---------------------------------------------------------------- overlays


class SimilarityTrial(msgspec.Struct, frozen=True):
    strategy: OverlayKind
    underlay: str = "brite"
    k: int = 15
    """The landmarks, the peers that each peer traces or, for `random`, the degree."""
    peers: int = 250


SIMILARITY_METRICS = (
    "discovery",
    "discovery_with_last_miles",
    "efficiency",
    "efficiency_100",
    "stretch",
    "hop_ratio",
    "path_match",
    "links",
    "traceroutes",
    "busiest_degree",
    "busiest_traceroutes",
    "busiest_passing",
)


def run_similarity(trial: SimilarityTrial, seed: int) -> dict[str, float]:
    """Measure section 7.2. Each peer counts as k traceroutes, even if it skipped some because the path was known."""
    testbed = make_testbed(trial.underlay, trial.peers, seed)
    try:
        overlay, traced = make_overlay(testbed, trial.strategy, trial.k, seed)
    except ConfigError:
        if trial.strategy == "random" and trial.k < 3:
            return {}  # a random overlay with so few links is not connected
        raise
    like = measure_similarity(testbed.placement, overlay)
    metrics = {"stretch": like.stretch, "hop_ratio": like.hop_ratio, "path_match": like.path_match}
    load = measure_load(testbed.placement, overlay, traced)
    metrics |= {"busiest_degree": load.degree, "busiest_passing": load.passing}
    if traced:
        seen = measure_discovery(testbed.placement, traced, trial.k * trial.peers)
        metrics |= {
            "discovery": seen.ratio,
            "discovery_with_last_miles": (seen.discovered + trial.peers) / (seen.total + trial.peers),
            "efficiency": seen.efficiency,
            "efficiency_100": 100 * seen.efficiency,
            "busiest_traceroutes": load.traceroutes,
        }
    return {**metrics, "links": len(overlay.links), "traceroutes": len({tuple(sorted(pair)) for pair in traced})}


def make_overlay(testbed: "Testbed", strategy: OverlayKind, k: int, seed: int) -> tuple[Overlay, tuple[Pair, ...]]:
    """The overlay, and the pairs of peers between which its construction traced paths."""
    placement = testbed.placement
    if strategy == "random":
        return random_regular(placement, k, seed), ()
    if strategy == "tdo-landmark":
        chosen = choose_landmarks(placement, k, seed)
        return landmark(placement, chosen), tuple((m, p) for m in chosen for p in range(placement.peers) if p != m)
    if strategy == "chain":
        traced = choose_traced(placement, k, seed)
        return chain(placement, traced), tuple(traced)
    formed = form_overlay(placement, strategy, k, seed=seed)
    return formed.overlay, formed.traced


# ---------------------------------------------------------------- trees and events


class ForestTrial(msgspec.Struct, frozen=True):
    strategy: OverlayKind
    underlay: str = "brite"
    k: int = 15
    peers: int = 250
    builder: Literal["mrst", "spt-k"] = "mrst"
    trees: int = MAX_TREES
    events: int = 5000
    subscriptions: int = 100


BY_TREES = ("reliability", "resilience", "events", "expected", "copies", "reliability_gain", "events_gain")
"""Metrics for 1, 2, ... trees, such as `reliability_1`. Gains are relative to `random`, in percent."""
FOREST_METRICS = (
    "interested",
    "messages",
    "links",
    "slimmest",
    *(f"{metric}_{trees}" for metric in BY_TREES for trees in range(1, MAX_TREES + 1)),
)


def run_forest(trial: ForestTrial, seed: int) -> dict[str, float]:
    """Measure section 7.3, and the messages that build the trees."""
    if trial.strategy == "random":
        return dict(_run_baseline(trial, seed))
    metrics = _run_trees(trial, seed)
    base = _run_baseline(msgspec.structs.replace(trial, strategy="random", builder="mrst", k=DEGREE), seed)
    gains = {
        f"{metric}_gain_{trees}": 100 * (metrics[f"{metric}_{trees}"] / base[f"{metric}_{trees}"] - 1)
        for metric in ("reliability", "events")
        for trees in range(1, trial.trees + 1)
    }
    return {**metrics, **gains}


@lru_cache(_CACHED)
def _run_baseline(trial: ForestTrial, seed: int) -> dict[str, float]:
    return _run_trees(trial, seed)


def _run_trees(trial: ForestTrial, seed: int) -> dict[str, float]:
    testbed = make_testbed(trial.underlay, trial.peers, seed)
    placement, reliability = testbed.placement, testbed.reliability
    overlay, _ = make_overlay(testbed, trial.strategy, trial.k, seed)
    built = build_trees(
        overlay, compute_link_weights(placement, overlay, reliability), trial.trees, trial.builder, seed=seed
    )
    load = _cached_workload(trial.peers, trial.events, trial.subscriptions, seed)
    together = compute_joint_reliability(placement, overlay, built.trees, reliability)
    outcome = publish_events(placement, overlay, built.trees, reliability, load, seed)
    columns = {
        "reliability": together.mean_reliability(),
        "resilience": together.mean_resilience(),
        "events": outcome.ratio,
        "expected": _compute_expected_ratio(together.reliability, load, trial.peers),
        "copies": outcome.copies,
    }
    degrees = np.bincount(np.array([(link.a, link.b) for link in overlay.links]).ravel(), minlength=trial.peers)
    return {
        "interested": load.interested,
        "messages": float(built.messages),
        "links": float(len(overlay.links)),
        "slimmest": float((degrees <= 2).sum()),
        **{f"{name}_{i + 1}": float(value) for name, values in columns.items() for i, value in enumerate(values)},
    }


def _compute_expected_ratio(reliability: Floats, load: Publications, peers: int) -> Floats:
    """The joint reliability of pairs, weighted by the number of events between them."""
    counts = np.zeros((peers, peers))
    np.add.at(counts, load.publishers, load.wants.astype(float))
    both = counts + counts.T
    often = both[np.triu_indices(peers, 1)]
    return np.asarray((reliability * often[:, None]).sum(axis=0) / often.sum())


class TablesTrial(msgspec.Struct, frozen=True):
    strategy: OverlayKind
    underlay: str = "brite"
    k: int = 15
    peers: int = 250
    builder: Literal["mrst", "spt-k"] = "mrst"
    events: int = 500
    subscriptions: int = 100


TABLES_METRICS = (
    *(f"{metric}_{trees}" for metric in ("by_tables", "counted") for trees in range(1, MAX_TREES + 1)),
    "difference",
    "copies_by_tables",
    "copies_counted",
    "interest_messages",
    "widened",
)
"""`difference`: the largest between the two event ratios, over the numbers of trees."""


def run_tables(trial: TablesTrial, seed: int) -> dict[str, float]:
    """Events through the peers' own tables, beside those that are counted on the trees."""
    testbed = make_testbed(trial.underlay, trial.peers, seed)
    placement, reliability = testbed.placement, testbed.reliability
    overlay, _ = make_overlay(testbed, trial.strategy, trial.k, seed)
    weights = compute_link_weights(placement, overlay, reliability)
    trees = build_trees(overlay, weights, MAX_TREES, trial.builder, seed=seed).trees
    load = _cached_workload(trial.peers, trial.events, trial.subscriptions, seed)
    counted = publish_events(placement, overlay, trees, reliability, load, seed)
    found = publish_by_tables(placement, overlay, trees, reliability, load, seed)
    return {
        **{f"by_tables_{count}": float(share) for count, share in enumerate(found.events.ratio, 1)},
        **{f"counted_{count}": float(share) for count, share in enumerate(counted.ratio, 1)},
        "difference": float(np.abs(found.events.ratio - counted.ratio).max()),
        "copies_by_tables": float(found.events.copies[-1]),
        "copies_counted": float(counted.copies[-1]),
        "interest_messages": float(found.messages),
        "widened": float(found.widened),
    }


_cached_workload = lru_cache(_CACHED)(draw_workload)


# ---------------------------------------------------------------- shared by all trials


class Testbed(NamedTuple):
    """An underlay with peers, and the reliability of each component."""

    placement: Placement
    reliability: Floats


@lru_cache(_CACHED)
def make_testbed(underlay: str, peers: int, seed: int) -> Testbed:
    placement = attach_peers(make(underlay, seed), peers, seed)
    return Testbed(placement, draw_reliabilities(placement, seed))


def estimate_cost(
    trial: UnderlayTrial | SpreadTrial | SimilarityTrial | ForestTrial | TablesTrial | TimedTrial,
) -> float:
    """Estimate the seconds of a trial."""
    size = float((trial.peers / 250) ** 1.5)
    match trial:
        case TimedTrial():
            return 3 * trial.peers / 40
        case TablesTrial():
            return 9 * size
        case ForestTrial(builder="spt-k"):
            return 6 * size
        case ForestTrial():
            return 3 * size
        case SimilarityTrial(strategy="random" | "tdo-landmark" | "chain"):
            return 0.3 * size
        case SimilarityTrial():
            return 1.3 * size
    return 0.2 * size


_SOURCES = (
    "construction",
    "joint_reliability",
    "peer_load",
    "similarity",
    "table_forwarding",
    "timed_failures",
    "tree_forwarding",
    "trials",
)
_PARTS = (
    *SIMULATED,
    *(f"studies/quist/{name}.py" for name in _SOURCES),
)
TRIALS = Trials(
    (
        TrialKind("underlay", UnderlayTrial, run_underlay, UNDERLAY_METRICS, parts=_PARTS, cost=estimate_cost),
        TrialKind("spread", SpreadTrial, run_spread, SPREAD_METRICS, parts=_PARTS, cost=estimate_cost),
        TrialKind("similarity", SimilarityTrial, run_similarity, SIMILARITY_METRICS, parts=_PARTS, cost=estimate_cost),
        TrialKind("forest", ForestTrial, run_forest, FOREST_METRICS, parts=_PARTS, cost=estimate_cost),
        TrialKind("tables", TablesTrial, run_tables, TABLES_METRICS, parts=_PARTS, cost=estimate_cost),
        TrialKind("timed", TimedTrial, run_timed, TIMED_METRICS, parts=_PARTS, cost=estimate_cost),
    )
)
