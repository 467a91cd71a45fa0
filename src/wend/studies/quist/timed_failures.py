"""Failures as processes in time: adaptive routing and trees, on the same underlay at the same availability.

The thesis draws new component states for each event. Here every router, link and last mile alternates between up and
down, and its reliability is the share of time that it is up. Peers run in the simulator: they detect failures,
retransmit and reroute; with `send_once`, peers on trees do not retransmit, but still build new trees. The trial also
reports two references: the deliveries of the thesis's trees, which are built once and never retransmit, and the share
of deliveries for which a path was up at the time of publication.
"""

from typing import Literal

import msgspec
import numpy as np

from wend.drivers.scenarios import Scenario
from wend.drivers.sim.run import play_world
from wend.drivers.world import World
from wend.model.events import PeerId
from wend.model.units import Nanos
from wend.studies.quist.construction import build_trees, compute_link_weights
from wend.studies.quist.tree_forwarding import Flags, TreeForwarding
from wend.topology.catalog import make
from wend.topology.component_reliability import draw_reliabilities
from wend.topology.overlays import choose_landmarks, landmark
from wend.topology.placement import attach_peers
from wend.topology.underlay import find_components

Event = tuple[Nanos, PeerId, tuple[PeerId, ...]]


class TimedTrial(msgspec.Struct, frozen=True):
    strategy: Literal["adaptive", "mrst", "spt-k"]
    underlay: str = "brite"
    outage_s: float = 1.0
    """The mean time that a component is down."""
    k: int = 5
    """Landmarks of the overlay."""
    peers: int = 40
    trees: int = 5
    send_once: bool = False
    """Whether peers on trees send each copy once, as in the thesis."""
    topics: int = 20
    duration_s: float = 10.0


TIMED_METRICS = ("delivered", "on_time", "packets", "at_once", "static")
"""`at_once`: a path was up at publication. `static`: trees that are built once and never retransmit."""


def run_timed(trial: TimedTrial, seed: int) -> dict[str, float]:
    placement = attach_peers(make(trial.underlay, seed), trial.peers, seed)
    overlay = landmark(placement, choose_landmarks(placement, trial.k, seed))
    scenario = Scenario(
        strategy=trial.strategy,
        seed=seed,
        topology="full-mesh",
        peers=trial.peers,
        underlay=trial.underlay,
        mean_outage=f"{trial.outage_s}s",
        trees=trial.trees,
        send_once=trial.send_once,
        topics=min(trial.topics, trial.peers),
        popularity=(0.1, 0.3),
        pl=0.0,
        warmup="8s",
        duration=f"{trial.duration_s}s",
        drain="5s",
    )
    world = World(scenario, overlay, placement)
    events = [
        (now, topic.publisher, topic.subscribers)
        for topic in world.topics
        for now in range(world.begin_ns + topic.phase_ns, world.stop_ns, topic.period_ns)
    ]
    summary = play_world(world).summary
    metrics = {
        "delivered": summary.delivery,
        "on_time": summary.on_time,
        "packets": summary.packets.shared,
        "at_once": _compute_share_at_once(world, events),
    }
    if trial.strategy != "adaptive" and not trial.send_once:
        reliable = draw_reliabilities(placement, seed)
        reliable[placement.first_peer : placement.first_last_mile] = 1.0  # peers do not fail here
        built = build_trees(
            overlay, compute_link_weights(placement, overlay, reliable), trial.trees, trial.strategy, seed=seed
        )
        metrics["static"] = _compute_static_tree_share(world, built.trees, events)
    return metrics


def _find_working_links(world: World, now: Nanos) -> Flags:
    return np.array([world.faults.is_up(link, now) for link in range(len(world.overlay.links))])


def _compute_share_at_once(world: World, events: list[Event]) -> float:
    ends = np.array([(link.a, link.b) for link in world.overlay.links], dtype=np.int64)
    reached = expected = 0
    for now, publisher, subscribers in events:
        _, component = find_components(world.overlay.peers, ends[_find_working_links(world, now)])
        reached += sum(int(component[peer] == component[publisher]) for peer in subscribers)
        expected += len(subscribers)
    return reached / max(1, expected)


def _compute_static_tree_share(world: World, trees: list[list[int]], events: list[Event]) -> float:
    """The share that static trees deliver. The states of overlay links come from the simulated underlay."""
    forwarding = TreeForwarding(world.overlay, trees)
    everyone = np.ones(world.overlay.peers, dtype=np.bool_)
    reached = expected = 0
    for now, publisher, subscribers in events:
        wants = np.zeros(world.overlay.peers, dtype=np.bool_)
        wants[list(subscribers)] = True
        reached += int(forwarding.send(publisher, wants, _find_working_links(world, now), everyone)[-1])
        expected += len(subscribers)
    return reached / max(1, expected)
