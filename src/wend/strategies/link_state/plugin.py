"""The link-state graph: each peer floods the measurements of its own links, so every peer knows the overlay.

Strategies that need the graph (trees, multipath, `sp(P, X)` of dcrd) read it here. The flooding costs control
packets, which are counted.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec

from wend.model.events import PeerId
from wend.model.paths import Path
from wend.model.units import HOUR, MS, Nanos
from wend.protocol.plugins import (
    Changed,
    Graph,
    Heard,
    LinkChanged,
    LinksChanged,
    PeerConfig,
    PluginEffect,
    PluginInput,
    Recalled,
    Refuse,
    Remember,
    Tell,
    View,
)
from wend.topology.paths import shortest_path_tree

_MIN_CHANGE = 0.1
"""A smaller change of a link's reliability, or of its price in proportion, is not flooded."""
_PRICE_STEP_NS: Nanos = 8 * MS
"""A smaller change of a price moves few events."""
_MAX_PRICE_NS: Nanos = HOUR
"""A higher price of a link is refused."""
Links = tuple[tuple[PeerId, Nanos, float], ...]
Edge = tuple[PeerId, PeerId]


class LinkState(msgspec.Struct, frozen=True, gc=False, tag="l", omit_defaults=True):
    """A peer's measurements of its own links; flooded."""

    origin: PeerId
    version: tuple[int, int]
    links: tuple[tuple[PeerId, Nanos, float], ...]
    paths: tuple[Path, ...] = ()
    """The underlay path of each link, empty for an untraced link. The tuple is empty if the peer traced no link."""
    prices: tuple[Nanos, ...] = ()
    """The cost of each link beyond its delay, because it is full. The tuple is empty if no link is full."""


CHANGED = Changed("links")


class LinkStateGraph(Graph):
    """The link-state database. It is also the `GraphView` that other plug-ins get."""

    messages: ClassVar[Any] = LinkState

    def __init__(self, config: PeerConfig) -> None:
        self.version = 0
        self._known: dict[PeerId, LinkState] = {}
        self._costs: dict[PeerId, dict[PeerId, Nanos]] | None = None
        self._paths: dict[Edge, Path] | None = None
        self.prices: dict[PeerId, dict[PeerId, Nanos]] = {}
        self._trees: dict[PeerId, tuple[dict[PeerId, Nanos], dict[PeerId, PeerId]]] = {}
        self._revision = 0

    # ---- the view of other plug-ins

    @property
    def costs(self) -> Mapping[PeerId, Mapping[PeerId, Nanos]]:
        if self._costs is None:
            self._costs = {
                origin: {peer: delay for peer, delay, _ in sorted(state.links)}
                for origin, state in sorted(self._known.items())
            }
        return self._costs

    @property
    def paths(self) -> Mapping[Edge, Path]:
        """The underlay path of each traced link, from either end."""
        if self._paths is None:
            self._paths = {}
            for origin, state in sorted(self._known.items()):
                for (peer, _, _), path in zip(state.links, state.paths, strict=bool(state.paths)):
                    if path:
                        self._paths.setdefault((min(origin, peer), max(origin, peer)), path)
        return self._paths

    def distances(self, source: PeerId) -> Mapping[PeerId, Nanos]:
        return self._shortest_path_tree(source)[0]

    def _shortest_path_tree(self, source: PeerId) -> tuple[dict[PeerId, Nanos], dict[PeerId, PeerId]]:
        result = self._trees.get(source)
        if result is None:
            result = shortest_path_tree(self.costs, source)
            if source in self.costs:  # a neighbour can invent peers: do not cache those
                self._trees[source] = result
        return result

    def of(self, peer: PeerId) -> LinkState:
        """The last link state of a known peer."""
        return self._known[peer]

    # ---- the state machine

    def handle(self, now: Nanos, event: PluginInput, view: View) -> list[PluginEffect]:
        match event:
            case LinksChanged():
                return self._announce(view)
            case Heard(sender, state):
                return self._on_link_state(sender, state, view)
            case Recalled(state):
                self._store(state)
            case LinkChanged(peer, up=True, fresh=True):
                return [Tell(peer, ("l", origin), state) for origin, state in sorted(self._known.items())]
        return []

    def _announce(self, view: View) -> list[PluginEffect]:
        links = tuple((n, view.links[n].delay_ns, view.links[n].reliability) for n in view.neighbours)
        paths = tuple(view.links[n].path for n in view.neighbours)
        paths = paths if any(paths) else ()
        prices = tuple(view.links[n].price_ns for n in view.neighbours)
        prices = prices if any(prices) else ()
        before = self._known.get(view.me)
        if before is not None and self._revision and _is_similar(before, links, paths, prices):
            return [CHANGED]
        self._revision += 1
        state = LinkState(view.me, (view.incarnation, self._revision), links, paths, prices)
        self._store(state)
        return [CHANGED, *(Tell(n, ("l", view.me), state) for n in view.neighbours)]

    def _on_link_state(self, sender: PeerId, state: LinkState, view: View) -> list[PluginEffect]:
        known = self._known.get(state.origin)
        if state.origin == view.me or (known is not None and known.version >= state.version):
            return []
        if not _is_valid(state):
            return [Refuse(sender, "invalid-link-state")]
        if state.paths and len(state.paths) != len(state.links):
            return [Refuse(sender, "path-mismatch")]
        effects: list[PluginEffect] = []
        if self._store(state):
            effects.append(CHANGED)
            if known is None or (known.links, known.paths) != (state.links, state.paths):  # prices change too often
                effects.insert(0, Remember(state.origin, msgspec.structs.replace(state, prices=())))
        return [*effects, *(Tell(n, ("l", state.origin), state) for n in view.neighbours if n != sender)]

    def _store(self, state: LinkState) -> bool:
        """Store a link state. Return whether the graph changed; reliability matters only to a link's own ends."""
        before = self._known.get(state.origin)
        self._known[state.origin] = state
        has_new_paths = state.paths != (() if before is None else before.paths)
        if has_new_paths:
            self._paths = None
        has_new_prices = state.prices != (() if before is None else before.prices)
        if state.prices:
            peers = [peer for peer, _, _ in state.links]
            self.prices[state.origin] = {p: price for p, price in zip(peers, state.prices, strict=True) if price}
        else:
            self.prices.pop(state.origin, None)
        if before is not None and _delays(before) == _delays(state):
            return has_new_paths or has_new_prices
        self._costs = self._paths = None
        self._trees.clear()
        self.version += 1
        return True


def _is_valid(state: LinkState) -> bool:
    return (
        all(delay > 0 and 0.0 <= reliability <= 1.0 for _, delay, reliability in state.links)
        and all(0 <= price <= _MAX_PRICE_NS for price in state.prices)
        and len(state.prices) in (0, len(state.links))
    )


def _is_similar(before: LinkState, links: Links, paths: tuple[Path, ...], prices: tuple[Nanos, ...]) -> bool:
    """Whether the change is too small to flood: only a link's own ends use its reliability."""
    return (
        before.paths == paths
        and len(before.links) == len(links)
        and all(
            (n, delay) == (peer, told) and abs(reliability - said) <= _MIN_CHANGE
            for (n, delay, reliability), (peer, told, said) in zip(links, before.links, strict=True)
        )
        and len(before.prices) == len(prices)
        and all(
            abs(price - told) <= _PRICE_STEP_NS + _MIN_CHANGE * told and bool(price) == bool(told)
            for price, told in zip(prices, before.prices, strict=True)
        )
    )


def _delays(state: LinkState) -> list[tuple[PeerId, Nanos]]:
    return sorted((peer, delay) for peer, delay, _ in state.links)
