"""Generations of trees: one serves while peers build the next. A peer calls for the next after a lasting change.

A generation begins with a message over every working link: each end sends the failure probabilities of itself and of
the link, so that both agree on its weight. A peer that hears of a newer generation joins it, so the call spreads. Of
two calls with one number, that of the lower peer wins. If a generation does not complete because something changed
meanwhile, a peer calls for another. A peer also calls for one, but not often, if a tree link becomes much more or less
reliable and stays so. Peers number messages per link and restore their order here, since the transport may reorder
them.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Annotated, ClassVar

from wend.model.events import PeerId
from wend.model.settings import Settings, everyday, setting
from wend.model.units import MS, SECOND, Nanos
from wend.protocol.plugins import Notice, PluginEffect, Refuse, Tell, View
from wend.strategies.trees.ghs import GhsBuilder
from wend.strategies.trees.messages import Generation, GhsMessage, LinkWeight, SequencedMessage, SptMessage, TreeMessage
from wend.strategies.trees.sptk import SptBuilder, link_cost

Builder = GhsBuilder | SptBuilder
MakeBuilder = Callable[[PeerId, int, dict[PeerId, float], PeerId], Builder]
"""Makes a builder from this peer, the number of trees, the weights of its links and the calling peer."""


class TreeSettings(Settings, frozen=True, kw_only=True):
    """Settings of the trees that peers build."""

    title: ClassVar[str] = "Tree sets (mrst, spt-k)"

    trees: Annotated[int, everyday("How many trees events use.", low=1)] = 2
    failure_probability: Annotated[
        float, setting("The probability that this peer is down; trees avoid peers that often are.", low=0.0, below=1.0)
    ] = 0.0


LASTING_NS: Nanos = 2 * SECOND
"""A change that lasts this long calls for new trees."""
QUICK_NS: Nanos = 200 * MS
"""The same time after a neighbour restarted, or for the first neighbours: neither can be a short outage."""
BUILD_NS: Nanos = 4 * SECOND
"""If no message advances a generation for this long, a peer calls for another, and waits twice as long for that."""
MAX_DOUBLINGS = 3
"""How often that time doubles at most."""
DRIFT = 2.0
"""If -ln r of a link changed by this factor since its trees were built, the link has drifted."""
NOISE = 0.01
"""Smaller values of -ln r count as this one."""
DRIFT_NS: Nanos = 10 * SECOND
"""A drift must last this long, so that one bad period does not call for new trees."""
RENEW_NS: Nanos = 30 * SECOND
"""The least time between two generations that only drift calls for."""
LAST = 1 << 62
"""The bound of generation numbers, so that the next fits a message."""
MAX_WAITING = 64
"""The most messages of one neighbour that wait for an earlier one."""


def order(generation: Generation) -> tuple[int, int, int]:
    number, caller, incarnation = generation
    return number, -caller, incarnation


def has_drifted(before: float, now: float) -> bool:
    """Whether the failure probability of a link changed by more than `DRIFT`."""
    costs = sorted(max(NOISE, -math.log1p(-min(fails, 1.0 - 1e-9))) for fails in (before, now))
    return costs[1] >= DRIFT * costs[0]


class TreeGeneration:
    """One generation at one peer, complete or being built."""

    def __init__(self, generation: Generation, began: Nanos) -> None:
        self.generation = generation
        self.began = began
        self.advanced = began
        """When the last message advanced it."""
        self.links: set[PeerId] = set()
        self.builder: Builder | None = None
        self.trees: tuple[tuple[PeerId, ...], ...] = ()
        """The neighbours on each tree, once all trees are complete."""
        self._sent: dict[PeerId, int] = {}
        self._next: dict[PeerId, int] = {}
        self._waiting: dict[PeerId, dict[int, LinkWeight | TreeMessage]] = {}
        self.early: list[tuple[PeerId, TreeMessage]] = []
        """Messages of neighbours that started to build before this peer."""
        self.own_weights: dict[PeerId, float] = {}
        self.their_weights: dict[PeerId, LinkWeight] = {}
        self.costs: dict[PeerId, int] = {}
        """The costs of the links, on which both ends agree."""

    @property
    def tree_neighbours(self) -> set[PeerId]:
        """The neighbours on any tree."""
        return {peer for tree in self.trees for peer in tree}

    def edges(self, tree: int) -> dict[PeerId, tuple[int, bool]]:
        """The links that a tree uses, each with its cost and whether another tree uses it too."""
        uses = Counter(peer for peers in self.trees for peer in peers)
        return {peer: (self.costs[peer], uses[peer] > 1) for peer in self.trees[tree]}

    def tell(self, peer: PeerId, message: LinkWeight | TreeMessage) -> Tell:
        number = self._sent.get(peer, 0)
        self._sent[peer] = number + 1
        return Tell(peer, None, SequencedMessage(self.generation, number, message))

    def in_order(self, sender: PeerId, sequenced: SequencedMessage) -> list[LinkWeight | TreeMessage] | None:
        """Put a message in order. Return the messages that are next in order, or None if too many are missing."""
        due = self._next.get(sender, 0)
        waiting = self._waiting.setdefault(sender, {})
        if sequenced.number >= due:
            if sequenced.number > due + MAX_WAITING:
                return None
            waiting[sequenced.number] = sequenced.message
        messages = []
        while due in waiting:
            messages.append(waiting.pop(due))
            due += 1
        self._next[sender] = due
        return messages


class TreeSets:
    """Calls for generations of trees and builds them with the neighbours."""

    def __init__(self, make: MakeBuilder, k: int, fails: float) -> None:
        self._make = make
        self._k = k
        self._fails = fails
        self.newest: TreeGeneration | None = None
        self._number = 0
        self._since: dict[PeerId, Nanos] = {}
        """Neighbours whose links differ from those of the newest generation, and since when."""
        self._failed_builds = 0
        """The number of consecutive generations that did not complete in time."""
        self._drifting: dict[PeerId, Nanos] = {}
        """Neighbours whose links have drifted, and since when."""

    # ---------------------------------------------------------------- calling for a generation

    def check(self, now: Nanos, view: View) -> list[PluginEffect]:
        """Call for a generation if the newest no longer fits the links. Runs by timer and at every change."""
        newest = self.newest
        working = {peer for peer in view.neighbours if view.links[peer].is_up and view.links[peer].heard_by_neighbour}
        if self._have_links_changed(now, working, view):
            return self._call_generation(now, view)
        if (
            newest is not None
            and newest.trees
            and self._has_lasting_drift(now, newest, newest.tree_neighbours & working, view)
        ):
            return [Notice("trees-renewed", view.me), *self._call_generation(now, view)]
        return []

    def _have_links_changed(self, now: Nanos, working: set[PeerId], view: View) -> bool:
        """Whether other links work than those of the newest generation, for long, or its building has stopped."""
        newest = self.newest
        links = set() if newest is None else newest.links
        needed = links if newest is None or not newest.trees else newest.tree_neighbours
        changed = (working - links) | (needed - working)
        self._since = {peer: self._since.get(peer, now) for peer in sorted(changed)}
        has_stopped = newest is not None and self._has_stopped(now, newest)
        if newest is not None and not newest.trees and not has_stopped:
            return False  # peers are building it
        if (has_stopped and links) or any(peer not in view.links for peer in changed):
            return True
        patience = self._settling_time(view)
        return any(now - since >= patience for since in self._since.values())

    def _has_lasting_drift(self, now: Nanos, newest: TreeGeneration, used: set[PeerId], view: View) -> bool:
        """Whether a tree link has drifted for long, and the newest generation is old enough to be replaced. Other links
        are ignored: they carry no events, so their estimates are out of date."""
        fails = {peer: 1.0 - view.links[peer].reliability for peer in sorted(used)}
        drifting = [peer for peer, chance in fails.items() if has_drifted(newest.own_weights[peer], chance)]
        self._drifting = {peer: self._drifting.get(peer, now) for peer in drifting}
        lasting = any(now - since >= DRIFT_NS for since in self._drifting.values())
        return lasting and now - newest.began >= RENEW_NS + view.me % 8 * 40 * MS

    def _has_stopped(self, now: Nanos, build: TreeGeneration) -> bool:
        """Whether the building has stopped. The time limit doubles, since large trees over slow or failing links take
        long, and too many restarts would never complete."""
        return not build.trees and now - build.advanced > BUILD_NS << min(self._failed_builds, MAX_DOUBLINGS)

    def _settling_time(self, view: View) -> Nanos:
        """The time that a change must last. It differs between peers, since neighbours see the same change. Without
        trees it is short."""
        return (QUICK_NS if self.newest is None else LASTING_NS) + view.me % 8 * 40 * MS

    def on_restart(self, now: Nanos, peer: PeerId) -> None:
        """Record that a neighbour restarted, and so does not know this generation."""
        if self.newest is not None:
            self.newest.links.discard(peer)
            self._since[peer] = now - LASTING_NS + QUICK_NS

    def _call_generation(self, now: Nanos, view: View) -> list[PluginEffect]:
        self._since.clear()
        self._drifting.clear()
        generation = (self._number + 1, view.me, view.incarnation)
        return [Notice("trees-called", view.me), *self._join_generation(now, generation, view)]

    def _join_generation(self, now: Nanos, generation: Generation, view: View) -> list[PluginEffect]:
        before = self.newest
        if before is None or before.trees:
            self._failed_builds = 0
        elif now - before.began > BUILD_NS:
            self._failed_builds += 1
        self._number = max(self._number, generation[0])
        self.newest = build = TreeGeneration(generation, now)
        effects: list[PluginEffect] = []
        for peer in view.neighbours:
            if view.links[peer].is_up and view.links[peer].heard_by_neighbour:
                effects.append(self._add_link(build, peer, view))
        return [*effects, *self._start_builder(build, view)]

    def _add_link(self, build: TreeGeneration, peer: PeerId, view: View) -> Tell:
        build.links.add(peer)
        build.own_weights[peer] = min(max(0.0, 1.0 - view.links[peer].reliability), 1.0)
        return build.tell(peer, LinkWeight(self._fails, build.own_weights[peer]))

    # ---------------------------------------------------------------- building a generation

    def on_message(self, now: Nanos, sender: PeerId, sequenced: SequencedMessage, view: View) -> list[PluginEffect]:
        if not 0 < sequenced.generation[0] < LAST:
            return [Refuse(sender, "invalid-generation")]
        effects: list[PluginEffect] = []
        if self.newest is None or order(sequenced.generation) > order(self.newest.generation):
            effects += self._join_generation(now, sequenced.generation, view)
        build = self.newest
        assert build is not None
        if sequenced.generation != build.generation:
            return effects  # an old generation
        if sender not in build.links:
            if build.builder is not None or sender in build.own_weights:
                return effects  # it uses a link that this peer leaves out: neither will complete
            effects.append(self._add_link(build, sender, view))
        messages = build.in_order(sender, sequenced)
        if messages is None:
            return [*effects, Refuse(sender, "trees-far-ahead")]
        if messages:
            build.advanced = now
        for message in messages:
            effects += self._handle_in_order(build, sender, message, view)
        return effects

    def _handle_in_order(
        self, build: TreeGeneration, sender: PeerId, message: LinkWeight | TreeMessage, view: View
    ) -> list[PluginEffect]:
        if isinstance(message, LinkWeight):
            if sender in build.their_weights or not (
                0.0 <= message.peer_fails <= 1.0 and 0.0 <= message.link_fails <= 1.0
            ):
                return [Refuse(sender, "invalid-weight")]
            build.their_weights[sender] = message
            return self._start_builder(build, view)
        if build.builder is None:
            build.early.append((sender, message))
            return []
        return self._pass_to_builder(build, sender, message, view)

    def _pass_to_builder(
        self, build: TreeGeneration, sender: PeerId, message: TreeMessage, view: View
    ) -> list[PluginEffect]:
        builder = build.builder
        answers: Sequence[tuple[PeerId, TreeMessage]] | None
        if isinstance(builder, GhsBuilder):
            answers = builder.on_message(sender, message) if isinstance(message, GhsMessage) else None
        else:
            assert isinstance(builder, SptBuilder)
            answers = builder.on_message(sender, message) if isinstance(message, SptMessage) else None
        if answers is None:
            return [Refuse(sender, "invalid-tree-message")]
        return [*(build.tell(peer, answer) for peer, answer in answers), *self._on_complete(build, view)]

    def _start_builder(self, build: TreeGeneration, view: View) -> list[PluginEffect]:
        """Start the builder once the weights of both ends of all links are known."""
        if build.builder is not None or build.their_weights.keys() != build.links:
            return []
        fails = {peer: max(build.own_weights[peer], told.link_fails) for peer, told in build.their_weights.items()}
        build.costs = {peer: link_cost(link) for peer, link in fails.items()}
        weights = {
            peer: 1.0 - (1.0 - self._fails) * (1.0 - told.peer_fails) * (1.0 - fails[peer])
            for peer, told in build.their_weights.items()
        }
        build.builder = self._make(view.me, self._k, weights, build.generation[1])
        effects: list[PluginEffect] = [build.tell(peer, each) for peer, each in build.builder.start()]
        effects += self._on_complete(build, view)
        early, build.early = build.early, []
        for sender, message in early:
            effects += self._pass_to_builder(build, sender, message, view)
        return effects

    def _on_complete(self, build: TreeGeneration, view: View) -> list[PluginEffect]:
        builder = build.builder
        if build.trees or builder is None or not (builder.is_complete and builder.is_decided):
            return []
        build.trees = tuple(builder.branches(tree) for tree in range(self._k))
        return [Notice("trees-complete", view.me)]
