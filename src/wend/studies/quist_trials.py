"""What chapter 7 of the quist thesis measures, on one seed: an underlay, an overlay on it, k trees, events over them.

Built by messages, as peers would (`quist_talks`): `tdo-random`, `tdo-nearest`, `tdo-farthest`, and all trees. Computed
centrally, because a test shows that messages come to the same: `tdo-landmark` with exactly k landmarks (elections
give about k) and `chain`. `random` is the thesis's "No TDO": a regular graph, drawn.

The seed decides the underlay, who lives where, what is how reliable, the workload and the state of the world at each
event, so that all strategies of one seed meet the same.
"""

from functools import lru_cache
from typing import Literal, NamedTuple

import msgspec
import numpy as np

from wend.model.errors import ConfigError
from wend.pipeline.code import PARTS as SIMULATED
from wend.pipeline.trials import Kind, Trials
from wend.studies.quist_events import Workload, draw_workload, publish
from wend.studies.quist_talks import build, gather
from wend.studies.quist_timed import TIMED, Timed, run_timed
from wend.topology.catalog import make
from wend.topology.graph import Overlay
from wend.topology.joint_reliability import joint_reliability
from wend.topology.overlays import chain, choose_landmarks, choose_traced, landmark, scattered
from wend.topology.placement import Pair, Placement, place
from wend.topology.reliability import LAST_MILE_ALPHA, LINK_ALPHA, PEER_ALPHA, ROUTER_ALPHA, of_paths, reliabilities
from wend.topology.similarity import discovery, similarity
from wend.topology.trees import weights
from wend.topology.underlay import Floats, LinkKind, RouterKind

Kinds = Literal["random", "tdo-landmark", "tdo-random", "tdo-nearest", "tdo-farthest", "chain"]
MOST_TREES = 5
DEGREE = 15
"""Of an overlay without topology discovery, wherever one is compared with it."""
LEVELS = (0.85, 0.9, 0.92, 0.94, 0.95, 0.96, 0.97, 0.98, 0.99, 1.0)
"""Where the distribution of reliabilities is shown."""
_KEPT = 24
"""Worlds and workloads that a worker keeps: about those of one study."""


# ---------------------------------------------------------------- the ground


class Beneath(msgspec.Struct, frozen=True):
    strategy: Literal["underlay"]
    underlay: str = "brite"
    peers: int = 250


class Parts(NamedTuple):
    """Components of one row of Table 7.1."""

    name: str
    alpha: float


PARTS = (
    Parts("router", ROUTER_ALPHA[RouterKind.ACCESS]),
    Parts("transit_router", ROUTER_ALPHA[RouterKind.TRANSIT]),
    Parts("link", LINK_ALPHA[LinkKind.INNER]),
    Parts("border_link", LINK_ALPHA[LinkKind.BORDER]),
    Parts("transit_link", LINK_ALPHA[LinkKind.TRANSIT]),
    Parts("last_mile", LAST_MILE_ALPHA),
    Parts("peer", PEER_ALPHA),
)
BENEATH = (
    "routers",
    "edges",
    "hops",
    "diameter",
    "path_reliability",
    "worst_path",
    *(f"alpha_{part.name}" for part in PARTS),
)


def run_beneath(trial: Beneath, seed: int) -> dict[str, float]:
    """Tables 7.1 and 7.2. Ways are those between the peers' routers, both included."""
    world = world_of(trial.underlay, trial.peers, seed)
    placement = world.placement
    paths = placement.paths(*placement.pairs())
    alone = of_paths(paths.starts, paths.components, world.reliability)
    hops = paths.lengths() - 1
    found = {
        "routers": placement.underlay.routers,
        "edges": placement.underlay.links,
        "hops": float(hops.mean()),
        "diameter": float(hops.max()),
        "path_reliability": float(alone.mean()),
        "worst_path": float(alone.min()),
    }
    for name, values in by_part(world).items():
        found[f"alpha_{name}"] = float(-1 / np.log(values).mean()) if len(values) else np.nan
    return found


def by_part(world: "World") -> dict[str, Floats]:
    """The reliabilities of all components, by the row of Table 7.1 that they follow."""
    placement, r = world.placement, world.reliability
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


class Spread(msgspec.Struct, frozen=True):
    strategy: Literal["underlay"]
    alpha: float = 50.0
    underlay: str = "brite"
    peers: int = 250


SPREAD = tuple(f"below_{round(1000 * level)}" for level in LEVELS)


def run_spread(trial: Spread, seed: int) -> dict[str, float]:
    """Figure 7.8: of the components drawn with one alpha, how many are no more reliable than each level."""
    parts = by_part(world_of(trial.underlay, trial.peers, seed))
    values = np.concatenate([parts[part.name] for part in PARTS if part.alpha == trial.alpha])
    return {name: float((values <= level).mean()) for name, level in zip(SPREAD, LEVELS, strict=True)}


# ---------------------------------------------------------------- overlays


class Likeness(msgspec.Struct, frozen=True):
    strategy: Kinds
    underlay: str = "brite"
    k: int = 15
    """Landmarks, peers to which each traces a way, or, for `random`, links."""
    peers: int = 250


LIKENESS = (
    "discovery",
    "discovery_with_last_miles",
    "efficiency",
    "efficiency_100",
    "stretch",
    "hop_ratio",
    "path_match",
    "links",
    "traceroutes",
)


def run_likeness(trial: Likeness, seed: int) -> dict[str, float]:
    """Section 7.2. Traceroutes count as k per peer, whatever was skipped because it was known."""
    world = world_of(trial.underlay, trial.peers, seed)
    try:
        overlay, traced = overlay_of(world, trial.strategy, trial.k, seed)
    except ConfigError:
        if trial.strategy == "random" and trial.k < 3:
            return {}  # so few links leave a random overlay in pieces
        raise
    like = similarity(world.placement, overlay)
    found = {"stretch": like.stretch, "hop_ratio": like.hop_ratio, "path_match": like.path_match}
    if traced:
        seen = discovery(world.placement, traced, trial.k * trial.peers)
        found |= {
            "discovery": seen.ratio,
            "discovery_with_last_miles": (seen.discovered + trial.peers) / (seen.total + trial.peers),
            "efficiency": seen.efficiency,
            "efficiency_100": 100 * seen.efficiency,
        }
    return {**found, "links": len(overlay.links), "traceroutes": len({tuple(sorted(pair)) for pair in traced})}


def overlay_of(world: "World", strategy: Kinds, k: int, seed: int) -> tuple[Overlay, tuple[Pair, ...]]:
    """The overlay, and between whom ways were traced for it."""
    placement = world.placement
    if strategy == "random":
        return scattered(placement, k, seed), ()
    if strategy == "tdo-landmark":
        chosen = choose_landmarks(placement, k, seed)
        return landmark(placement, chosen), tuple((m, p) for m in chosen for p in range(placement.peers) if p != m)
    if strategy == "chain":
        traced = choose_traced(placement, k, seed)
        return chain(placement, traced), tuple(traced)
    grown = gather(placement, strategy, k, seed=seed)
    return grown.overlay, grown.traced


# ---------------------------------------------------------------- trees and events


class Forest(msgspec.Struct, frozen=True):
    strategy: Kinds
    underlay: str = "brite"
    k: int = 15
    peers: int = 250
    builder: Literal["mrst", "spt-k"] = "mrst"
    trees: int = MOST_TREES
    events: int = 5000
    subscriptions: int = 100


EACH = ("reliability", "resilience", "events", "expected", "copies", "reliability_gain", "events_gain")
"""Figures for 1, 2, ... trees, `reliability_1` and so on. Gains are over `random`, in percent."""
FOREST = (
    "interested",
    "messages",
    "links",
    "slimmest",
    *(f"{figure}_{trees}" for figure in EACH for trees in range(1, MOST_TREES + 1)),
)


def run_forest(trial: Forest, seed: int) -> dict[str, float]:
    """Section 7.3, and the price in messages of building the trees."""
    if trial.strategy == "random":
        return dict(_base(trial, seed))
    found = _forest(trial, seed)
    base = _base(msgspec.structs.replace(trial, strategy="random", builder="mrst", k=DEGREE), seed)
    gains = {
        f"{figure}_gain_{trees}": 100 * (found[f"{figure}_{trees}"] / base[f"{figure}_{trees}"] - 1)
        for figure in ("reliability", "events")
        for trees in range(1, trial.trees + 1)
    }
    return {**found, **gains}


@lru_cache(_KEPT)
def _base(trial: Forest, seed: int) -> dict[str, float]:
    return _forest(trial, seed)


def _forest(trial: Forest, seed: int) -> dict[str, float]:
    world = world_of(trial.underlay, trial.peers, seed)
    placement, reliability = world.placement, world.reliability
    overlay, _ = overlay_of(world, trial.strategy, trial.k, seed)
    built = build(overlay, weights(placement, overlay, reliability), trial.trees, trial.builder, seed=seed)
    load = workload_of(trial, seed)
    together = joint_reliability(placement, overlay, built.trees, reliability)
    outcome = publish(placement, overlay, built.trees, reliability, load, seed)
    columns = {
        "reliability": together.mean_reliability(),
        "resilience": together.mean_resilience(),
        "events": outcome.ratio,
        "expected": _of_pairs(together.reliability, load, trial.peers),
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


def _of_pairs(reliability: Floats, load: Workload, peers: int) -> Floats:
    """The joint reliability of those pairs between which events went, as often as they did."""
    counts = np.zeros((peers, peers))
    np.add.at(counts, load.publishers, load.wants.astype(float))
    both = counts + counts.T
    often = both[np.triu_indices(peers, 1)]
    found: Floats = (reliability * often[:, None]).sum(axis=0) / often.sum()
    return found


@lru_cache(_KEPT)
def _workload(peers: int, events: int, subscriptions: int, seed: int) -> Workload:
    return draw_workload(peers, events, subscriptions, seed)


def workload_of(trial: Forest, seed: int) -> Workload:
    return _workload(trial.peers, trial.events, trial.subscriptions, seed)


# ---------------------------------------------------------------- what all of them stand on


class World(NamedTuple):
    placement: Placement
    reliability: Floats


@lru_cache(_KEPT)
def world_of(underlay: str, peers: int, seed: int) -> World:
    placement = place(make(underlay, seed), peers, seed)
    return World(placement, reliabilities(placement, seed))


def cost(trial: Beneath | Spread | Likeness | Forest | Timed) -> float:
    """Roughly seconds."""
    size = float((trial.peers / 250) ** 1.5)
    match trial:
        case Timed():
            return 3 * trial.peers / 40
        case Forest(builder="spt-k"):
            return 6 * size
        case Forest():
            return 3 * size
        case Likeness(strategy="random" | "tdo-landmark" | "chain"):
            return 0.3 * size
        case Likeness():
            return 1.3 * size
    return 0.2 * size


_PARTS = (*SIMULATED, "studies/quist_talks.py", "studies/quist_events.py")
TRIALS = Trials(
    (
        Kind("beneath", Beneath, run_beneath, BENEATH, parts=_PARTS, cost=cost),
        Kind("spread", Spread, run_spread, SPREAD, parts=_PARTS, cost=cost),
        Kind("likeness", Likeness, run_likeness, LIKENESS, parts=_PARTS, cost=cost),
        Kind("forest", Forest, run_forest, FOREST, parts=_PARTS, cost=cost),
        Kind("timed", Timed, run_timed, TIMED, parts=_PARTS, cost=cost),
    )
)
