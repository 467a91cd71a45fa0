"""Tree sets as a graph plug-in: k spanning trees that the peers build among themselves, generation after generation.

`generations.py` decides when peers build new trees, `ghs.py` and `sptk.py` build them.
This plug-in runs them, and shows interest and routing the newest generation.
"""

from typing import Any, ClassVar

from wend.model.events import PeerId
from wend.model.settings import Settings
from wend.model.units import MS, Nanos
from wend.protocol.plugins import (
    LINK_STATE,
    Changed,
    Due,
    Graph,
    Heard,
    LinkChanged,
    Needs,
    PeerConfig,
    PluginEffect,
    PluginInput,
    Timer,
    View,
)
from wend.strategies.trees.generations import Builder, TreeGeneration, TreeSets, TreeSettings
from wend.strategies.trees.ghs import GhsBuilder
from wend.strategies.trees.messages import SequencedMessage
from wend.strategies.trees.sptk import SptBuilder, link_cost

CHECK_NS: Nanos = 500 * MS
"""How often the plug-in checks whether the trees still fit the links."""
CHANGED = Changed("trees")


class TreeSetGraph(Graph):
    needs: ClassVar[Needs] = Needs(graphs=(LINK_STATE,), failure_detector=True)
    messages: ClassVar[Any] = SequencedMessage
    settings: ClassVar[type[Settings]] = TreeSettings

    @staticmethod
    def make_builder(me: PeerId, k: int, weights: dict[PeerId, float], caller: PeerId) -> Builder:
        """The part of one peer in building one generation."""
        raise NotImplementedError

    def __init__(self, config: PeerConfig) -> None:
        settings = config.of(TreeSettings)
        self._sets = TreeSets(self.make_builder, settings.trees, settings.failure_probability)
        self.transit_cost = link_cost(settings.failure_probability)
        """What it costs a route to pass this peer."""
        self.newest_complete: TreeGeneration | None = None
        """The newest generation whose trees are complete here."""
        self._has_timer = False

    @property
    def newest(self) -> TreeGeneration | None:
        """The newest generation, complete or under construction."""
        return self._sets.newest

    def handle(self, now: Nanos, event: PluginInput, view: View) -> list[PluginEffect]:
        match event:
            case Heard(sender, message):
                built = self._sets.on_message(now, sender, message, view)
                return [*built, *self._announce(), *self._check(now, view)]
            case LinkChanged(peer, restarted=restarted):
                if restarted:
                    self._sets.on_restart(now, peer)
                return self._check(now, view)
            case Changed("links" | "interest"):
                return self._check(now, view)
            case Due():
                self._has_timer = False
                return self._check(now, view)
        return []

    def _announce(self) -> list[PluginEffect]:
        """Announce a generation to other plug-ins, once, when its trees are complete here."""
        newest = self._sets.newest
        if newest is None or not newest.trees or newest is self.newest_complete:
            return []
        self.newest_complete = newest
        return [CHANGED]

    def _check(self, now: Nanos, view: View) -> list[PluginEffect]:
        effects = [*self._sets.check(now, view), *self._announce()]
        if not self._has_timer:
            self._has_timer = True
            effects.append(Timer(now + CHECK_NS))
        return effects


class MrstTrees(TreeSetGraph):
    """Maximum-reliability spanning trees."""

    @staticmethod
    def make_builder(me: PeerId, k: int, weights: dict[PeerId, float], caller: PeerId) -> Builder:
        return GhsBuilder(me, k, weights)


class SptKTrees(TreeSetGraph):
    """Shortest-path trees."""

    @staticmethod
    def make_builder(me: PeerId, k: int, weights: dict[PeerId, float], caller: PeerId) -> Builder:
        return SptBuilder(me, k, weights, caller)


def tree_graph(view: View) -> TreeSetGraph:
    """The tree set that this peer hosts."""
    return next(graph for graph in view.graphs.values() if isinstance(graph, TreeSetGraph))
