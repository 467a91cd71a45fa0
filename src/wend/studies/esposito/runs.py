"""Runs of the esposito study: one node publishes at a time, all others subscribe, and links or nodes crash.

The paper simulates 2 hours, most of which are alike. A run here is shorter, and failures have been going on for 3 hours
when it begins. Peers join while everything works. Then the components that are down at that time go down. Events
count once peers have had time to react.

Scribe sends every message once, as the paper's does. The study also runs Wend's own Scribe, with an ACK per hop.
"""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np

from wend.drivers.scenarios import Scenario
from wend.drivers.sim.run import Outcome, simulate
from wend.model.events import EventId
from wend.model.fault_settings import Outages, Spread
from wend.model.units import MS, SECOND, Nanos
from wend.strategies import registry
from wend.topology.powerlaw import Homing
from wend.topology.underlay_faults import UnderlayFaults

Crashes = Literal["none", "links", "borders", "nodes"]
"""`links` leaves out failures that would partition the underlay, so the only border link of an AS never fails. With
`borders` it fails like all others."""
FailureRate = Literal["link", "network"]
"""Of what 5000 s is the mean time between failures: of each link, or of the whole network. The paper leaves it open."""
Metrics = dict[str, float]


class StudiedRouting(NamedTuple):
    """A strategy of the study: the routing, and the settings of its peers."""

    routing: str
    settings: Mapping[str, Any] = {}
    clusters: bool = True
    """Whether peers form clusters, with p coordinators and k backups each."""


PRINTED_SCRIBE = "scribe"
PRINTED: dict[str, Any] = {"hop_acks": False, "pastry_detection": "60s", "pastry_table": "3600s"}
"""The paper's Scribe is OverSim's: it sends every message once, and by default its Pastry does not probe neighbours."""
KNOWN = {
    PRINTED_SCRIBE: StudiedRouting("scribe", PRINTED, clusters=False),
    "scribe-acks": StudiedRouting("scribe", clusters=False),
    "esposito": StudiedRouting("esposito"),
    "clusters": StudiedRouting("clusters"),
    "clusters-any": StudiedRouting("clusters", {"diverse_parents": False}),
    "clusters-adaptive": StudiedRouting("clusters-adaptive"),
}
STRATEGIES = {name: each for name, each in KNOWN.items() if each.routing in registry.STRATEGIES}
"""The strategies of the study that Wend has."""

OUTAGES = Outages(
    up=Spread(kind="exponential", mean_s=5000), down=Spread(kind="uniform", low_s=10, high_s=1200), past_s=10_800
)
"""Section 4.1, for each link. The paper says nothing else of nodes, so they crash by the same distributions."""
LINKS = 500
"""The edges of the paper's networks."""
RARE_OUTAGES = msgspec.structs.replace(OUTAGES, up=Spread(kind="exponential", mean_s=5000 * LINKS))
"""The same distributions if one link in the network fails every 5000 s."""
WARMUP_NS: Nanos = 20 * SECOND
SETTLE_NS: Nanos = 30 * SECOND
"""Events published this soon after the first failures do not count."""
DRAIN_NS: Nanos = 40 * SECOND
PUBLISHERS = 10
"""They publish in turn, each on a topic of its own, so that a result does not depend on the place of one root."""
RATE_HZ = 1.0
HOUR_S = 3600
AS = 8
"""The AS of the paper's networks, and clusters."""
UNDERLAYS: dict[tuple[Homing, int], str] = {
    ("single", AS): "power-law-single",
    ("multi", AS): "power-law",
    ("multi", 4): "power-law-4",
    ("multi", 16): "power-law-16",
}
"""By homing, and the number of AS."""


class CrashRun(msgspec.Struct, frozen=True):
    """A run of one strategy."""

    strategy: str
    nodes: int = 120
    homing: Homing = "multi"
    groups: int = AS
    """The AS of the underlay, each with a cluster."""
    crashes: Crashes = "links"
    failures_per: FailureRate = "link"
    coordinators: int = 2
    """p: active coordinators of a cluster, and trees."""
    backups: int = 1
    """k: backups of each."""
    duration_s: float = 120.0
    """How long nodes publish. Events of the first 30 s do not count."""


RUN_METRICS = (
    "success",
    "latency_ms",
    "latency_median_ms",
    "latency_p99_ms",
    "deviation_ms",
    "messages",
    "per_delivery",
    "doubled",
    "links_down",
    "nodes_down",
    "rejected",
    "clusters",
)


def run_crashes(run: CrashRun, seed: int) -> Metrics:
    outcome = simulate(make_scenario(run, seed))
    world = outcome.world
    measured = MeasuredEvents(outcome)
    moments = np.linspace(measured.begin_ns, world.stop_ns, 20).astype(np.int64).tolist()
    metrics = {
        **measured.compute_metrics(),
        "nodes_down": float(
            np.mean([not world.peer_faults.is_up(peer, now) for peer in range(run.nodes) for now in moments])
        ),
        "clusters": len({world.cluster_name(peer) for peer in range(run.nodes)}),
    }
    if isinstance(world.faults, UnderlayFaults) and world.placement is not None:
        links = range(world.placement.first_link, world.placement.first_peer)
        metrics["links_down"] = float(
            np.mean([not world.faults.is_component_up(link, now) for link in links for now in moments])
        )
        metrics["rejected"] = (
            world.faults.rejected * HOUR_S / (OUTAGES.past_s + (world.end_ns - world.begin_ns) / SECOND)
        )
    return metrics


class MeasuredEvents:
    """The events of a run that count, and their deliveries to subscribers that were up at the publication."""

    def __init__(self, outcome: Outcome) -> None:
        self._trace, self._summary, crashes = outcome.trace, outcome.summary, outcome.world.peer_faults
        self.begin_ns = outcome.world.begin_ns + SETTLE_NS
        published = self._trace.publications.numbers("time_ns", "expected")
        self._expected = int(published[published[:, 0] >= self.begin_ns, 1].sum())
        rows = self._trace.deliveries.numbers("time_ns", "delay_ns", "subscriber", *EventId._fields)
        born = rows[:, 0] - rows[:, 1]
        up = [crashes.is_up(peer, now) for peer, now in zip(rows[:, 2].tolist(), born.tolist(), strict=True)]
        rows = rows[(born >= self.begin_ns) & np.array(up, dtype=np.bool_)]
        self._delay_ms = rows[:, 1] / MS
        self._again = len(rows) - len(np.unique(rows[:, 2:], axis=0))

    def compute_metrics(self) -> Metrics:
        sent = self._summary.data_packets + sum(self._summary.control.values())
        delay = self._delay_ms
        metrics = {
            "success": (len(delay) - self._again) / max(1, self._expected),
            "doubled": float(self._again),
            "messages": sent,
            "per_delivery": sent / max(1, self._summary.delivered),
        }
        if len(delay):
            metrics |= {
                "latency_ms": float(delay.mean()),
                "latency_median_ms": float(np.median(delay)),
                "latency_p99_ms": float(np.percentile(delay, 99)),
                "deviation_ms": float(delay.std()),
            }
        return metrics


def make_scenario(run: CrashRun, seed: int) -> Scenario:
    strategy = STRATEGIES[run.strategy]
    own: dict[str, Any] = dict(strategy.settings)
    if strategy.clusters:
        own |= {"coordinators": run.coordinators, "backups": run.backups}
    failing: dict[str, Any] = {"pf": 0.0}
    if run.crashes in ("links", "borders"):
        outages = OUTAGES if run.failures_per == "link" else RARE_OUTAGES
        failing = {"outages": outages, "partitions": run.crashes == "borders", "reroute_in_domains": True}
    if run.crashes == "nodes":
        failing["peer_outages"] = OUTAGES
    return Scenario.read(
        {
            "strategy": strategy.routing,
            "seed": seed,
            "topology": "full-mesh",
            "underlay": UNDERLAYS[run.homing, run.groups],
            "peers": run.nodes,
            "topics": PUBLISHERS,
            "rate": RATE_HZ / PUBLISHERS,
            "popularity": (1.0, 1.0),
            "pl": 0.0,
            "warmup": f"{WARMUP_NS / SECOND}s",
            "duration": f"{run.duration_s}s",
            "drain": f"{DRAIN_NS / SECOND}s",
            **failing,
            **own,
        }
    )
