"""Events through the protocol's own tables: what the trees deliver if every peer decides by its interest tables.

`tree_forwarding.py` counts on the trees themselves, and takes it that a peer knows which neighbours lead to a
subscriber. Here each of the peers has the tables of the running protocol (`strategies/trees/table.py`): they exchange
their subscriptions along each tree, reduce them, and choose the next hops of an event by matching it. As in the thesis,
a peer sends each copy once, and a component that is down loses it. So the count shows whether the tables miss
subscribers, and how many copies they send in vain.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from wend.model.choices import Covering
from wend.model.errors import WendError
from wend.model.events import Attributes, PeerId
from wend.strategies.trees.messages import SubtreeInterest
from wend.strategies.trees.table import TreeInterestTable
from wend.studies.quist.joint_reliability import Tree
from wend.studies.quist.tree_forwarding import Flags, Publications, PublishOutcome
from wend.topology.component_reliability import draw_up_per_event
from wend.topology.graph import Overlay
from wend.topology.placement import Placement
from wend.topology.underlay import Floats, Ints

_GENERATION = (1, 0, 1)
_NEED = 1.0


class ProtocolTables:
    """The tables of all peers, for each of k trees, after they have exchanged their subscriptions."""

    def __init__(
        self,
        overlay: Overlay,
        trees: Sequence[Tree],
        filters: Mapping[PeerId, Sequence[str]],
        covering: Covering = "covering",
    ) -> None:
        self._overlay = overlay
        self.messages = 0
        """The messages that the exchange took."""
        self.widened = 0
        """How often a peer asks a neighbour for all events, because its filters are too long for a message."""
        used = np.bincount(np.concatenate([np.array(tree, dtype=np.int64) for tree in trees]))
        self._tables: list[list[TreeInterestTable]] = []
        for number, tree in enumerate(trees):
            edges: list[dict[PeerId, tuple[int, bool]]] = [{} for _ in range(overlay.peers)]
            for index in tree:
                link = overlay.links[index]
                edges[link.a][link.b] = edges[link.b][link.a] = (0, bool(used[index] > 1))
            tables = [TreeInterestTable(peer, _GENERATION, number, edges[peer]) for peer in range(overlay.peers)]
            self._exchange(
                tables, [dict.fromkeys(filters.get(peer, ()), _NEED) for peer in range(overlay.peers)], covering
            )
            self._tables.append(tables)

    def _exchange(self, tables: list[TreeInterestTable], mine: list[dict[str, float]], covering: Covering) -> None:
        """Deliver messages in rounds until none is left."""
        told: list[tuple[PeerId, PeerId, SubtreeInterest]] = []
        changed = set(range(len(tables)))
        while changed:
            told = [
                (peer, other, message)
                for peer in sorted(changed)
                for other, message in tables[peer].updates(mine[peer], covering)
            ]
            self.messages += len(told)
            changed = set()
            for sender, receiver, message in told:
                news = tables[receiver].on_interest(sender, message)
                if news is None:
                    raise WendError(f"peer {receiver} refuses the interest of peer {sender}")
                changed.add(receiver)
        self.widened += sum(asks for table in tables for asks in table.asks_for_all.values())

    def send(
        self, publisher: PeerId, attributes: Attributes, wants: Flags, links: Flags, peers: Flags
    ) -> tuple[Ints, Ints]:
        """The subscribers that an event reaches over the first 1, 2, ... trees, and the copies on each tree, with these
        links and peers up."""
        got = np.zeros(len(wants), dtype=np.bool_)
        reached = np.zeros(len(self._tables), dtype=np.int64)
        copies = np.zeros(len(self._tables), dtype=np.int64)
        for tree, tables in enumerate(self._tables):
            holding = deque([(publisher, publisher)] if peers[publisher] else [])
            while holding:
                here, sender = holding.popleft()
                got[here] |= wants[here]
                for peer, _ in tables[here].hops(attributes, sender):
                    copies[tree] += 1
                    if peers[peer] and links[self._overlay.link(here, peer)]:
                        holding.append((peer, here))
            reached[tree] = got.sum()
        return reached, copies


class TableOutcome(NamedTuple):
    events: PublishOutcome
    messages: int
    widened: int


def publish_by_tables(
    placement: Placement, overlay: Overlay, trees: Sequence[Tree], reliability: Floats, load: Publications, seed: int
) -> TableOutcome:
    """Publish every event, with the component states that `publish_events` draws for it."""
    tables = ProtocolTables(overlay, trees, load.filters)
    starts, components = placement.link_components(overlay)
    reached, copies = (np.zeros(len(trees), dtype=np.int64) for _ in range(2))
    for event, publisher in enumerate(load.publishers.tolist()):
        up = draw_up_per_event(reliability, seed, event)
        links = np.logical_and.reduceat(up[components], starts[:-1])
        peers = up[placement.first_peer : placement.first_last_mile]
        x, y = load.points[event].tolist()
        more = tables.send(publisher, {"x": x, "y": y}, load.wants[event], links, peers)
        reached, copies = reached + more[0], copies + more[1]
    ratio = reached / max(1, int(load.wants.sum()))
    return TableOutcome(
        PublishOutcome(ratio, np.cumsum(copies) / len(load.publishers)), tables.messages, tables.widened
    )
