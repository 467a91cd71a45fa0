"""A peer's place in the tree of one landmark: its parent, its children, and the paths from the root to all of them."""

from collections.abc import Mapping

from wend.model.events import PeerId
from wend.model.paths import Path
from wend.protocol.plugins import EndLink, MakeLink, PluginEffect, Reroute
from wend.strategies.tdo.handshake import SILENT
from wend.strategies.tdo.paths import is_prefix, is_same, suffix

ASK_AGAIN = 3
"""Periods after which a peer without a parent asks for its place again."""


class Family:
    """One peer's place in one tree."""

    __slots__ = ("ask_count", "asked_round", "children", "heard_round", "parent", "parent_path", "path")

    def __init__(self) -> None:
        self.path: Path = ()
        """The path from the root to here. The root's own is empty, and so a prefix of all."""
        self.parent: PeerId | None = None
        self.parent_path: Path = ()
        self.children: dict[PeerId, tuple[Path, int]] = {}
        """By child: its path from the root, and the round in which it was last heard."""
        self.asked_round = -ASK_AGAIN
        """The round in which this peer last asked for a place."""
        self.ask_count = 0
        """The number of requests since this peer last had a parent."""
        self.heard_round = 0
        """The round in which the parent was last heard."""

    # ---------------------------------------------------------------- places

    @property
    def is_represented(self) -> bool:
        """Whether another peer represents this peer's router."""
        return self.parent is not None and (
            is_same(self.path, self.parent_path) or (self.parent_path == () and len(self.path) == 1)
        )

    def ends_here(self, path: Path) -> bool:
        """Whether a path ends at this peer's own router."""
        return is_same(path, self.path) or (self.path == () and len(path) == 1)

    def is_on(self, path: Path) -> bool:
        """Whether a path ends here or leads on from here."""
        return is_same(path, self.path) or is_prefix(self.path, path)

    def nearer_child(self, peer: PeerId, path: Path) -> PeerId | None:
        """The last child on the path to a peer."""
        if self.ends_here(path):
            return None
        children = [(c, p) for c, (p, _) in self.children.items() if c != peer and not self.ends_here(p)]
        above = [(-len(p), c) for c, p in children if _is_above(c, p, peer, path)]
        return min(above)[1] if above else None

    # ---------------------------------------------------------------- children

    def add_child(self, peer: PeerId, path: Path, round_: int) -> tuple[tuple[PeerId, Path], ...]:
        """Adopt a child. Return the children that are below it, which it adopts in turn."""
        children = [] if self.ends_here(path) else sorted((c, p) for c, (p, _) in self.children.items())
        below = tuple((c, p) for c, p in children if _is_above(peer, path, c, p))
        for child, _ in below:
            del self.children[child]
        self.children[peer] = (path, round_)
        return below

    def record_child_alive(self, peer: PeerId, round_: int) -> bool:
        """Record a sign of life of a child. Return False if the peer is not a child."""
        child = self.children.get(peer)
        if child is None:
            return False
        self.children[peer] = (child[0], round_)
        return True

    def drop_silent_children(self, round_: int) -> None:
        for child, (_, heard) in list(self.children.items()):
            if round_ - heard > SILENT:
                del self.children[child]

    def release_children(self) -> list[tuple[PeerId, Path]]:
        children, self.children = self.children, {}
        return [(child, path) for child, (path, _) in sorted(children.items())]

    # ---------------------------------------------------------------- the parent

    def adopt_parent(self, parent: PeerId, parent_path: Path, path: Path, round_: int) -> bool:
        """Take this parent, unless the current one is nearer. Return True if it is the parent now."""
        if self.parent is not None:
            if path != self.path:
                self.parent, self.children = None, {}
            elif not _is_nearer(parent_path, parent, self.parent_path, self.parent):
                return False
        self.path, self.ask_count = path, 0
        self.parent, self.parent_path, self.heard_round = parent, parent_path, round_
        return True

    def drop_silent_parent(self, round_: int) -> PeerId | None:
        if self.parent is None or round_ - self.heard_round <= SILENT:
            return None
        parent, self.parent = self.parent, None
        return parent

    def lose_parent(self, round_: int) -> None:
        """Lose the parent, and ask for another at once."""
        self.parent, self.asked_round = None, round_


class TreeLinks:
    """The links of one peer: those of all trees."""

    def __init__(self) -> None:
        self._paths: dict[PeerId, Path] = {}

    @property
    def peers(self) -> list[PeerId]:
        return sorted(self._paths)

    def update(self, families: Mapping[PeerId, Family]) -> list[PluginEffect]:
        """Make, change and end links so that they are those of the trees."""
        paths: dict[PeerId, Path] = {}
        for _, family in sorted(families.items()):
            for child, (path, _) in sorted(family.children.items()):
                paths.setdefault(child, suffix(path, family.path) if family.path else path)
            if family.parent is not None:
                from_parent = suffix(family.path, family.parent_path) if family.parent_path else family.path
                paths.setdefault(family.parent, from_parent[::-1])
        effects: list[PluginEffect] = []
        for peer, path in paths.items():
            if path != self._paths.get(peer):
                effects.append(Reroute(peer, path) if peer in self._paths else MakeLink(peer, path))
        effects += [EndLink(peer) for peer in sorted(self._paths.keys() - paths.keys())]
        self._paths = paths
        return effects


def _is_above(peer: PeerId, path: Path, other: PeerId, other_path: Path) -> bool:
    """Whether a peer comes before another on the path from the root."""
    return is_prefix(path, other_path) or (is_same(path, other_path) and peer < other)


def _is_nearer(path: Path, peer: PeerId, other_path: Path, other: PeerId) -> bool:
    return (len(path), -peer) > (len(other_path), -other) or peer == other
