"""Interest along trees: peers send filters along each tree, and events follow them back (quist, section 6.2).

`TreeInterest` is the plug-in for events without persistence, `NamedTreeInterest` the one with it. Both have a table
for each tree of the serving generations (`table.py`). A crashed peer is forgotten with its generation of trees.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, ClassVar

from wend.model.choices import Covering
from wend.model.events import PeerId
from wend.model.settings import Settings, setting
from wend.model.units import Nanos
from wend.protocol.plugins import (
    LINK_STATE,
    Changed,
    Due,
    Heard,
    Interest,
    LinkChanged,
    Needs,
    Notice,
    PeerConfig,
    PluginEffect,
    PluginInput,
    Refuse,
    SubscriptionsChanged,
    Tell,
    View,
)
from wend.strategies.flooded.changes import InterestChange, InterestRequest
from wend.strategies.flooded.plugin import CHANGED, FloodedInterest
from wend.strategies.subscriptions.table import PeerInterest, SubscriptionTable
from wend.strategies.trees.generations import order
from wend.strategies.trees.graph import tree_graph
from wend.strategies.trees.messages import Generation, SubtreeInterest
from wend.strategies.trees.table import TreeInterestTable

GENERATIONS = 3
"""The number of generations with tables: the newest, and those on which copies may still travel."""
EARLY = 256
"""The most messages stored for generations that are not complete here."""
ROUTES_CHANGED = Changed("tree-routes")


class TreeInterestSettings(Settings, frozen=True, kw_only=True):
    """How peers send filters along trees."""

    title: ClassVar[str] = "Interest on trees"

    covering: Annotated[
        Covering,
        setting("How a peer reduces filters before it sends them along a tree: identity, covering or merging."),
    ] = "covering"


class TreeTables:
    """The tables of the serving generations: for each tree, the interest behind each neighbour."""

    def __init__(self, covering: str, filters: Callable[[], Mapping[str, float]]) -> None:
        """`filters`: returns those of this peer, each with the reliability that it needs."""
        self._covering = covering
        self._filters = filters
        self._tables: dict[Generation, list[TreeInterestTable]] = {}
        self._early: dict[tuple[Generation, int, PeerId], SubtreeInterest] = {}
        """Messages of neighbours about generations that are not complete here."""

    def serving(self) -> list[TreeInterestTable] | None:
        """The tables of the newest generation on which all neighbours have sent their interest."""
        ready = [g for g, tables in self._tables.items() if all(table.is_ready for table in tables)]
        return self._tables[max(ready, key=order)] if ready else None

    @property
    def by_generation(self) -> Mapping[Generation, Sequence[TreeInterestTable]]:
        """The tables of every remaining generation, one for each tree."""
        return self._tables

    def status(self) -> dict[str, int]:
        """The status section of the plug-in."""
        tables = self.serving()
        if tables is None:
            return {}
        number, caller, incarnation = tables[0].generation
        edges = {f"{tree}.{peer}": 1 for tree, table in enumerate(tables) for peer in table.neighbours}
        return {"generation": number, "caller": caller, "incarnation": incarnation, **edges}

    def find(self, generation: Generation, tree: int) -> TreeInterestTable | None:
        tables = self._tables.get(generation, [])
        return tables[tree] if 0 <= tree < len(tables) else None

    def handle(self, event: PluginInput, view: View) -> list[PluginEffect]:
        match event:
            case Changed("trees"):
                return [*self._add_tables(view), ROUTES_CHANGED]
            case Heard(sender, SubtreeInterest() as message):
                news = self._on_interest(sender, message, view)
                return [] if news is None else [*news, ROUTES_CHANGED]
            case LinkChanged(peer, up=True):
                return self._resend(peer)
        return []

    def _add_tables(self, view: View) -> list[PluginEffect]:
        """Make the tables of the newest generation, which is complete, and forget the oldest."""
        graph = tree_graph(view)
        newest = graph.newest_complete
        assert newest is not None
        generation = newest.generation
        self._tables[generation] = [
            TreeInterestTable(view.me, generation, tree, newest.edges(tree), graph.transit_cost)
            for tree in range(len(newest.trees))
        ]
        for old in sorted(self._tables, key=order)[:-GENERATIONS]:
            del self._tables[old]
        early, self._early = self._early, {}
        effects: list[PluginEffect] = []
        for (of, tree, sender), told in early.items():
            if of == generation:
                effects += self._on_interest(sender, told, view) or []
            elif order(of) > order(generation):
                self._early[of, tree, sender] = told
        return [*effects, *self.updates()]

    def _on_interest(self, sender: PeerId, told: SubtreeInterest, view: View) -> list[PluginEffect] | None:
        """Store a neighbour's interest. Return the messages to send, or None if nothing changed yet."""
        tables = self._tables.get(told.generation)
        if tables is None:
            return self._on_early_interest(sender, told, view)
        news = tables[told.tree].on_interest(sender, told) if 0 <= told.tree < len(tables) else None
        if news is None:
            return [Refuse(sender, "invalid-subtree-interest")]
        return self.updates() if news else None

    def _on_early_interest(self, sender: PeerId, told: SubtreeInterest, view: View) -> list[PluginEffect] | None:
        newest = tree_graph(view).newest
        if newest is None or order(told.generation) >= order(newest.generation):
            key = (told.generation, told.tree, sender)
            known = self._early.get(key)
            if known is not None and known.version >= told.version:
                return None
            if known is None and len(self._early) >= EARLY:
                return [Notice("early-dropped", sender)]
            self._early[key] = told
        return None

    def updates(self) -> list[PluginEffect]:
        """Send neighbours on the trees the interest they lack."""
        filters = self._filters()
        effects: list[PluginEffect] = []
        for table in (table for _, tables in sorted(self._tables.items()) for table in tables):
            for peer, told in table.updates(filters, self._covering):
                effects.append(Tell(peer, _slot(told), told))
                if table.asks_for_all[peer]:
                    effects.append(Notice("filters-widened", peer))
        return effects

    def _resend(self, peer: PeerId) -> list[PluginEffect]:
        """Resend the last messages to a neighbour that may have missed them."""
        return [
            Tell(peer, _slot(told), told)
            for _, tables in sorted(self._tables.items())
            for table in tables
            for told in table.last_update(peer)
        ]


class TreeInterest(Interest):
    """Sends filters along each tree. Events follow them back."""

    needs: ClassVar[Needs] = Needs(graphs=(LINK_STATE,))
    messages: ClassVar[Any] = SubtreeInterest
    settings: ClassVar[type[Settings]] = TreeInterestSettings
    knows_all_subscribers: ClassVar[bool] = False

    def __init__(self, config: PeerConfig) -> None:
        self.subscriptions = SubscriptionTable(config.peer)
        super().__init__(config, self.subscriptions)
        self.tables = TreeTables(config.of(TreeInterestSettings).covering, lambda: self.subscriptions.filters)

    def status(self) -> dict[str, int]:
        """The `generation` of trees that serves, its `caller` and the caller's `incarnation`; `0.5` is 1 if tree 0
        leads from here to peer 5."""
        return self.tables.status()

    def handle(self, now: Nanos, event: PluginInput, view: View) -> list[PluginEffect]:
        match event:
            case SubscriptionsChanged() | Due("announce"):
                later = self.subscriptions.postpone_announcement(now)
                if later is not None:
                    return later
                self.subscriptions.next_announcement(view)
                return [*self.tables.updates(), CHANGED]
        return self.tables.handle(event, view)


class NamedTreeInterest(Interest):
    """Floods subscriptions, and sends along each tree only the peers behind each neighbour. It serves persistence,
    since stored events name their destinations."""

    needs: ClassVar[Needs] = FloodedInterest.needs
    messages: ClassVar[Any] = PeerInterest | InterestChange | InterestRequest | SubtreeInterest
    settings: ClassVar[type[Settings]] = TreeInterestSettings
    learns_late: ClassVar[bool] = True

    def __init__(self, config: PeerConfig) -> None:
        self._flooded = FloodedInterest(config)
        super().__init__(config, self._flooded.table)
        self.tables = TreeTables(config.of(TreeInterestSettings).covering, dict)

    def status(self) -> dict[str, int]:
        """The same as that of `trees`."""
        return self.tables.status()

    def handle(self, now: Nanos, event: PluginInput, view: View) -> list[PluginEffect]:
        return [*self._flooded.handle(now, event, view), *self.tables.handle(event, view)]


def _slot(told: SubtreeInterest) -> tuple[str, PeerId]:
    number, caller, incarnation = told.generation
    return f"w{number}.{incarnation}.{told.tree}", caller
