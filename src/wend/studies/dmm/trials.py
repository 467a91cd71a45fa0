"""The trials of section VI of the dmm paper: scale, skew and predicates (Figures 8 to 25), and crashes (Figure 26)."""

from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from wend.drivers.sim.dht_workload import Workload
from wend.model.units import SECOND, Nanos
from wend.pipeline.code_hash import PARTS as SIMULATED
from wend.pipeline.sweeps.trials import TrialKind, Trials
from wend.studies.dmm.crash import CRASH_METRICS, CrashTrial, run_crash
from wend.studies.dmm.range_workload import (
    PAUSE_NS,
    PERIOD_NS,
    ROUNDS,
    SPACING_NS,
    Distribution,
    draw_publications,
    draw_rounds,
    draw_subscriptions,
    find_matches,
    make_timed_publications,
    make_timed_subscriptions,
)
from wend.studies.dmm.runs import (
    CANDIDATES,
    DIRECT,
    TABLE_NS,
    CachePlace,
    Metrics,
    PrimaryAttribute,
    RunOutcome,
    RunSetting,
    StrategyName,
    choose_roles,
    place_peers,
    play_run,
)
from wend.topology.transit_stub import DMM


class ScaleTrial(msgspec.Struct, frozen=True):
    strategy: StrategyName
    cache: bool = False
    """TreeCache."""
    cache_place: CachePlace = "last"
    """Which peer remembers a leaf, with TreeCache."""
    primary: PrimaryAttribute = "narrowest"
    """By which of its attributes events find a subscription, in dmm-ar."""
    peers: int = 5000
    subscriptions: int = 1000
    publishers: int = 100
    distribution: Distribution = "uniform"
    predicates: int = 0
    """Predicates of each subscription, of which only the first selects; publications then have all attributes.
    0: 1 to 5 that all select."""
    loss: float = 0.001
    domains: int = 10
    """Transit domains of the network; each has 505 routers."""
    density: float = DMM.transit_density
    """The share of the pairs of transit domains that are linked."""
    candidates: int = CANDIDATES
    """Each entry of a routing table is the nearest of so many."""
    table_s: float = TABLE_NS / SECOND
    """How often peers probe their routing tables."""

    @property
    def begin_ns(self) -> Nanos:
        """When publishers start."""
        return PAUSE_NS + SPACING_NS * self.subscriptions


SLICES = ROUNDS
"""Publications are grouped by the period in which they were made."""
SIZES = (1, 3, 10, 30, 100, 300, 1000, 3000, 10_000)
"""Subscription tables of a peer, for the distribution of state."""
PAPER_PEERS = 50_000
"""A smaller run says nothing about the largest run that completes."""
KINDS = ("leaf", "tree", "all")
PURPOSES = ("publication", "detour", "subscription", "cache", "membership", "acks")
SCALE_METRICS = (
    "delivery",
    "matches",
    "messages",
    *(f"{purpose}_messages" for purpose in PURPOSES),
    "per_match",
    "physical_per_match",
    "delay_s",
    "delay_median_s",
    "delay_warm_s",
    "delay_warm_median_s",
    "hops",
    "hops_median",
    "hops_warm",
    *(f"{metric}_{at}" for metric in ("delay", "median", "hops") for at in range(SLICES)),
    *(f"{kind}_{size}" for kind in KINDS for size in SIZES),
    "state_mean",
    "state_p99",
    "state_most",
    "kilobytes",
    "message_us",
    "largest",
)


def run_scale(trial: ScaleTrial, seed: int) -> Metrics:
    """Run one trial, and measure its deliveries, messages, delays, hops and state."""
    table_ns = round(trial.table_s * SECOND)
    settings: dict[str, Any] = {"tree_cache_place": trial.cache_place} if trial.cache else {}
    if trial.primary != "narrowest":
        settings["primary_attribute"] = trial.primary
    setting = make_scale_setting(trial, seed)
    played = play_run(setting, trial.strategy, trial.cache, trial.candidates, pastry_table_ns=table_ns, **settings)
    due, made = played.setting.due, played.made
    count = max(1, len(made))
    publication = played.message_counts("publication")
    metrics: Metrics = {
        "delivery": float(made.mean()) if len(made) else 1.0,
        "matches": len(made),
        "messages": played.message_counts("publication", "subscription", "cache").sent,
        **{f"{purpose}_messages": played.message_counts(purpose).sent for purpose in PURPOSES},
        "per_match": publication.sent / count,
        "physical_per_match": publication.physical / count,
        "kilobytes": played.memory_per_peer / 1000,
        "message_us": 1e6 * played.cpu_s / max(1, played.message_counts(*PURPOSES).sent),
    }
    if trial.peers >= PAPER_PEERS:
        metrics["largest"] = trial.subscriptions
    times = np.array([event.time_ns for event in played.setting.workload.publications], dtype=np.int64)
    slices = (times[due.publication] - trial.begin_ns) // PERIOD_NS
    warm = slices >= 3
    metrics |= _delay_metrics(played, made, "")
    metrics |= _delay_metrics(played, made & warm, "_warm")
    for at in range(SLICES):
        here = made & (slices == at)
        if here.any():
            metrics[f"delay_{at}"] = float(played.delay_ns[here].mean()) / SECOND
            metrics[f"median_{at}"] = float(np.median(played.delay_ns[here])) / SECOND
            metrics[f"hops_{at}"] = float(played.hops[here].mean())
    return {**metrics, **_state_metrics(played)}


def _delay_metrics(played: RunOutcome, chosen: NDArray[np.bool_], name: str) -> Metrics:
    if not chosen.any():
        return {}
    delay, hops = played.delay_ns[chosen] / SECOND, played.hops[chosen]
    metrics = {
        f"delay{name}_s": float(delay.mean()),
        f"delay{name}_median_s": float(np.median(delay)),
        f"hops{name}": float(hops.mean()),
    }
    return metrics if name else {**metrics, "hops_median": float(np.median(hops))}


def _state_metrics(played: RunOutcome) -> Metrics:
    """The share of peers that store at least so many subscriptions, and how many they store."""
    if not played.states:
        return {}
    every = played.states["all"]
    return {
        **{f"{kind}_{size}": float((played.states[kind] >= size).mean()) for kind in KINDS for size in SIZES},
        "state_mean": float(every.mean()),
        "state_p99": float(np.percentile(every, 99)),
        "state_most": float(every.max()),
    }


def make_scale_setting(trial: ScaleTrial, seed: int) -> RunSetting:
    publishers, subscribers = choose_roles(trial.peers, trial.publishers, seed)
    drawn = draw_subscriptions(seed, trial.subscriptions, subscribers, trial.distribution, trial.predicates)
    publisher, times = draw_rounds(seed, publishers, trial.begin_ns, PERIOD_NS, ROUNDS)
    events = draw_publications(seed, publisher, times, trial.distribution, bool(trial.predicates))
    workload = Workload(make_timed_subscriptions(drawn, 0, SPACING_NS), (), make_timed_publications(events))
    return RunSetting(
        trial.peers,
        workload,
        find_matches(drawn, events),
        place_peers(trial.peers, trial.domains, seed, trial.density),
        trial.begin_ns + (ROUNDS + 1) * PERIOD_NS,
        trial.loss,
        seed,
    )


# ---------------------------------------------------------------- the kinds


def estimate_cost(trial: ScaleTrial | CrashTrial) -> float:
    """Estimate the seconds of a trial."""
    if trial.strategy == DIRECT:
        return 1.0
    if isinstance(trial, CrashTrial):
        return 30.0 * trial.peers / 5000 * (1 + trial.crash_s / 360)
    return 20.0 * trial.peers / 5000 + 5.0 * trial.subscriptions / 1000


_PARTS = (*SIMULATED, *(f"studies/{name}.py" for name in ("dmm/runs", "dmm/range_workload", "settled_contacts")))
TRIALS = Trials(
    (
        TrialKind("scale", ScaleTrial, run_scale, SCALE_METRICS, parts=_PARTS, cost=estimate_cost),
        TrialKind("predicates", ScaleTrial, run_scale, SCALE_METRICS, parts=_PARTS, cost=estimate_cost),
        TrialKind("medium", ScaleTrial, run_scale, SCALE_METRICS, parts=_PARTS, cost=estimate_cost),
        TrialKind("large", ScaleTrial, run_scale, SCALE_METRICS, parts=_PARTS, cost=estimate_cost),
        TrialKind("crash", CrashTrial, run_crash, CRASH_METRICS, parts=_PARTS, cost=estimate_cost),
        TrialKind("choice", ScaleTrial, run_scale, SCALE_METRICS, parts=_PARTS, cost=estimate_cost),
        TrialKind("crash-choice", CrashTrial, run_crash, CRASH_METRICS, parts=_PARTS, cost=estimate_cost),
    )
)
