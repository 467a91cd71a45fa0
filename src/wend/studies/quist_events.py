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

from wend.model.compiled import compiled
from wend.model.events import PeerId
from wend.model.randomness import stream
from wend.topology.graph import Overlay
from wend.topology.joint_reliability import Tree
from wend.topology.placement import Placement
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
    placement: Placement, overlay: Overlay, trees: Sequence[Tree], reliability: Floats, load: Workload, seed: int
) -> Outcome:
    """Every event in a state of the world of its own, the same one for whatever overlay and trees."""
    walks = Walks(overlay, trees)
    starts, parts = placement.link_components(overlay)
    used = np.unique(np.concatenate(trees))
    beneath = np.concatenate([parts[starts[link] : starts[link + 1]] for link in used])
    begins = np.concatenate([[0], np.cumsum(np.diff(starts)[used])[:-1]])
    links = np.zeros(len(overlay.links), dtype=np.bool_)
    reached = np.zeros(len(trees), dtype=np.int64)
    for event, publisher in enumerate(load.publishers.tolist()):
        up = per_event(reliability, seed, event)
        links[used] = np.logical_and.reduceat(up[beneath], begins)
        peers = up[placement.first_peer : placement.first_last_mile]
        reached += walks.follow(publisher, load.wants[event], links, peers)
    wanted = max(1, int(load.wants.sum()))
    return Outcome(reached / wanted, np.cumsum(walks.sent) / len(load.publishers))


class Walks:
    """Trees that events are sent on, one after the other; `sent` counts the messages on each."""

    def __init__(self, overlay: Overlay, trees: Sequence[Tree]) -> None:
        ends = np.array([(link.a, link.b) for link in overlay.links], dtype=np.int64).reshape(-1, 2)
        near = [adjacency(overlay.peers, ends[np.array(tree)]) for tree in trees]
        self._first = np.array([each[0] for each in near])
        self._there = np.array([each[1] for each in near])
        links = [np.array(tree, dtype=np.int32) for tree in trees]
        self._over = np.array([tree[each[2]] for tree, each in zip(links, near, strict=True)])
        self.sent: Ints = np.zeros(len(trees), dtype=np.int64)

    def follow(self, publisher: PeerId, wants: Flags, links: Flags, peers: Flags) -> Ints:
        """How many of those who want an event get it over the first 1, 2, ... trees, with these links and peers up."""
        return _forward(publisher, wants, links, peers, self._first, self._there, self._over, self.sent)


@compiled
def _forward(
    publisher: int, wants: Flags, links: Flags, up: Flags, first: Ints, there: Index, over: Index, sent: Ints
) -> Ints:
    peers = len(wants)
    reached = np.zeros(len(first), dtype=np.int64)
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
        holds[publisher] = up[publisher]
        for i in range(1, peers):
            here = order[i]
            if leads[here] and holds[before[here]]:
                sent[tree] += 1
                holds[here] = up[here] and links[by[here]]
                got[here] |= holds[here] and wants[here]
        reached[tree] = got.sum()
    return reached
