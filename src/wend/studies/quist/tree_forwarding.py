"""Events over k trees while underlay components fail: the event ratio of the thesis's section 7.3.3.

An event is a point, a subscription a rectangle. For each event, every router, link, peer and last mile is up or down,
drawn by its reliability. The publisher sends a copy on each tree. A peer forwards a copy to the neighbours that lead to
a subscriber, and a component that is down loses it. The arrivals are counted; the formula for joint reliability is not
used.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from wend.model.compiled import compiled
from wend.model.events import PeerId
from wend.model.randomness import stream
from wend.studies.quist.joint_reliability import Tree
from wend.topology.component_reliability import draw_up_per_event
from wend.topology.graph import Overlay
from wend.topology.placement import Placement
from wend.topology.routing import adjacency
from wend.topology.underlay import Floats, Index, Ints

SIDE = 1000.0
WIDEST = 500.0
"""The largest distance from the centre of a rectangle to its sides."""
Flags = NDArray[np.bool_]


class Publications(NamedTuple):
    """Events: their publishers and subscribers."""

    publishers: Ints
    wants: Flags
    """(events, peers): whether a peer has a matching subscription. Publishers do not count for their own events."""
    points: Floats
    """(events, 2): the attributes x and y of each event."""
    filters: dict[PeerId, list[str]]
    """By peer: its subscriptions, as filters on x and y."""

    @property
    def interested(self) -> float:
        return float(self.wants.sum(axis=1).mean())


class PublishOutcome(NamedTuple):
    """The event ratio and its cost, by the number of trees."""

    ratio: Floats
    """The share of (event, subscriber) pairs that the first 1, 2, ... trees together reached."""
    copies: Floats
    """Messages between peers per event, for the first 1, 2, ... trees."""


def draw_workload(peers: int, events: int, subscriptions: int, seed: int) -> Publications:
    owners = stream(seed, "quist", "subscribers").integers(peers, size=subscriptions)
    draw = stream(seed, "quist", "subscriptions")
    centre = draw.random((subscriptions, 2)) * SIDE
    reach = draw.random((subscriptions, 2)) * WIDEST
    points = stream(seed, "quist", "events").random((events, 2)) * SIDE
    publishers = stream(seed, "quist", "publishers").integers(peers, size=events)
    matches = np.logical_and.reduce(np.abs(points[:, None] - centre[None]) <= reach[None], axis=2)
    wants = np.zeros((events, peers), dtype=np.bool_)
    filters: dict[PeerId, list[str]] = {}
    for subscription, owner in enumerate(owners.tolist()):
        wants[:, owner] |= matches[:, subscription]
        low, high = centre[subscription] - reach[subscription], centre[subscription] + reach[subscription]
        ranges = [f"{name} in [{a!r}, {b!r}]" for name, a, b in zip("xy", low.tolist(), high.tolist(), strict=True)]
        filters.setdefault(owner, []).append(" and ".join(ranges))
    wants[np.arange(events), publishers] = False
    return Publications(publishers.astype(np.int64), wants, points, filters)


def publish_events(
    placement: Placement, overlay: Overlay, trees: Sequence[Tree], reliability: Floats, load: Publications, seed: int
) -> PublishOutcome:
    """Publish every event. Its component states depend on the seed, not on the overlay or the trees."""
    forwarding = TreeForwarding(overlay, trees)
    starts, components = placement.link_components(overlay)
    used = np.unique(np.concatenate(trees))
    crossed = np.concatenate([components[starts[link] : starts[link + 1]] for link in used])
    begins = np.concatenate([[0], np.cumsum(np.diff(starts)[used])[:-1]])
    links = np.zeros(len(overlay.links), dtype=np.bool_)
    reached = np.zeros(len(trees), dtype=np.int64)
    for event, publisher in enumerate(load.publishers.tolist()):
        up = draw_up_per_event(reliability, seed, event)
        links[used] = np.logical_and.reduceat(up[crossed], begins)
        peers = up[placement.first_peer : placement.first_last_mile]
        reached += forwarding.send(publisher, load.wants[event], links, peers)
    wanted = max(1, int(load.wants.sum()))
    return PublishOutcome(reached / wanted, np.cumsum(forwarding.sent) / len(load.publishers))


class TreeForwarding:
    """Sends events over trees, one tree after the other. `sent` counts the messages on each tree."""

    def __init__(self, overlay: Overlay, trees: Sequence[Tree]) -> None:
        ends = np.array([(link.a, link.b) for link in overlay.links], dtype=np.int64).reshape(-1, 2)
        near = [adjacency(overlay.peers, ends[np.array(tree)]) for tree in trees]
        self._first = np.array([each[0] for each in near])
        self._there = np.array([each[1] for each in near])
        links = [np.array(tree, dtype=np.int32) for tree in trees]
        self._over = np.array([tree[each[2]] for tree, each in zip(links, near, strict=True)])
        self.sent: Ints = np.zeros(len(trees), dtype=np.int64)

    def send(self, publisher: PeerId, wants: Flags, links: Flags, peers: Flags) -> Ints:
        """Count the subscribers that an event reaches over the first 1, 2, ... trees, with these links and peers up."""
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
        leads = wants.copy()  # whether a subscriber is at or behind a peer
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
