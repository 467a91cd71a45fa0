"""Events over k trees, with everything beneath them up or down: the event ratio of the thesis's section 7.3.3.

An event is a point, a subscription a rectangle. Each event meets its own state of the world: every router, link, peer
and last mile is up or down by its reliability. The publisher sends a copy on each tree; a peer that gets one passes it
on to the neighbours behind which somebody wants it, and what is down swallows it. What arrives is counted; the formula
for joint reliability plays no part in it.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from wend.model.randomness import stream
from wend.topology.compiled import compiled
from wend.topology.graph import Overlay
from wend.topology.ground import Ground
from wend.topology.joint import MOST_TREES, Tree
from wend.topology.reliability import per_event
from wend.topology.routing import Index, adjacency
from wend.topology.underlay import Floats, Ints

SIDE = 1000.0
WIDEST = 500.0
"""A rectangle reaches up to this far from its centre, each way."""
Flags = NDArray[np.bool_]


class Workload(NamedTuple):
    publishers: Ints
    wants: Flags
    """(events, peers): who has a subscription that matches; publishers need no network for their own events."""

    @property
    def interested(self) -> float:
        return float(self.wants.sum(axis=1).mean())


class Outcome(NamedTuple):
    ratio: Floats
    """Of the first 1, 2, ... trees together: the share of (event, interested peer) that was reached."""
    copies: Floats
    """Messages between peers per event, with as many trees."""


def draw_workload(peers: int, events: int, subscriptions: int, seed: int) -> Workload:
    owners = stream(seed, "quist", "subscribers").integers(peers, size=subscriptions)
    draw = stream(seed, "quist", "subscriptions")
    centre = draw.random((subscriptions, 2)) * SIDE
    reach = draw.random((subscriptions, 2)) * WIDEST
    points = stream(seed, "quist", "events").random((events, 2)) * SIDE
    publishers = stream(seed, "quist", "publishers").integers(peers, size=events)
    matches = np.logical_and.reduce(np.abs(points[:, None] - centre[None]) <= reach[None], axis=2)
    wants = np.zeros((events, peers), dtype=np.bool_)
    for subscription, owner in enumerate(owners.tolist()):
        wants[:, owner] |= matches[:, subscription]
    wants[np.arange(events), publishers] = False
    return Workload(publishers.astype(np.int64), wants)


def publish(
    ground: Ground,
    overlay: Overlay,
    trees: Sequence[Tree],
    reliability: Floats,
    load: Workload,
    seed: int,
) -> Outcome:
    """Every event in a state of the world of its own, the same one for whatever overlay and trees."""
    assert 1 <= len(trees) <= MOST_TREES
    starts, parts = ground.beneath(overlay)
    ends = np.array([(link.a, link.b) for link in overlay.links], dtype=np.int64).reshape(-1, 2)
    near = [adjacency(overlay.peers, ends[np.array(tree)]) for tree in trees]
    first = np.array([each[0] for each in near])
    there = np.array([each[1] for each in near])
    over = np.array([np.array(tree, dtype=np.int32)[each[2]] for tree, each in zip(trees, near, strict=True)])
    reached = np.zeros(len(trees), dtype=np.int64)
    sent = np.zeros(len(trees), dtype=np.int64)
    for event, publisher in enumerate(load.publishers.tolist()):
        up = per_event(reliability, seed, event)
        _forward(publisher, load.wants[event], up, first, there, over, starts, parts, ground.first_peer, reached, sent)
    wanted = max(1, int(load.wants.sum()))
    return Outcome(reached / wanted, np.cumsum(sent) / len(load.publishers))


@compiled
def _forward(
    publisher: int,
    wants: Flags,
    up: Flags,
    first: Ints,
    there: Index,
    over: Index,
    starts: Ints,
    parts: Index,
    first_peer: int,
    reached: Ints,
    sent: Ints,
) -> None:
    """Count who is reached by the first 1, 2, ... trees, and what is sent on each."""
    peers = len(wants)
    got = np.zeros(peers, dtype=np.bool_)
    order = np.empty(peers, dtype=np.int64)
    before = np.empty(peers, dtype=np.int64)
    by = np.empty(peers, dtype=np.int64)
    for tree in range(len(first)):
        order[0], before[publisher], by[publisher] = publisher, -1, -1
        count = 1
        for i in range(peers):
            here = order[i]
            for j in range(first[tree, here], first[tree, here + 1]):
                other = there[tree, j]
                if other != before[here]:
                    order[count], before[other], by[other] = other, here, over[tree, j]
                    count += 1
        leads = wants.copy()  # whether somebody at or behind a peer wants it
        for i in range(peers - 1, 0, -1):
            if leads[order[i]]:
                leads[before[order[i]]] = True
        holds = np.zeros(peers, dtype=np.bool_)
        holds[publisher] = up[first_peer + publisher]
        for i in range(1, peers):
            here = order[i]
            if not leads[here] or not holds[before[here]]:
                continue
            sent[tree] += 1
            whole = up[first_peer + here]
            for j in range(starts[by[here]], starts[by[here] + 1]):
                whole &= up[parts[j]]
            holds[here] = whole
            if whole and wants[here]:
                got[here] = True
        for peer in range(peers):
            if got[peer]:
                reached[tree] += 1
