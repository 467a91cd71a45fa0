"""`tdo-landmark`: landmarks measure the paths to all peers, and each is the root of a tree (quist, section 5.1).

In the tree of a landmark, a peer's parent is the last other peer on the path from the landmark to it. So the tree does
not depend on the order of joins. Of several peers at one router the lowest represents it and is the parent of the
others, which have no children. The overlay has the links of all trees.

Landmarks elect themselves, with probability (k - known landmarks) / peers (`landmarks.py`). Gossip spreads their
heartbeats. If a heartbeat stops, peers drop the landmark and its tree. Children ask their parents every period whether
they are still their children. A peer that is no longer a child asks the landmark for a place. So trees heal, and a lost
or late message does no lasting harm. If a parent and its child cannot hear each other, though others hear both, the
child becomes a guest of the landmark until they can.

Paths change while peers run, which the thesis leaves out. So peers ask their landmarks from time to time to measure
them again (`paths.py`). If a peer's path changed, it gets another place and releases its children, whose paths led
through the old place.
"""

from wend.model.events import PeerId
from wend.model.paths import UNKNOWN, Path
from wend.model.units import Nanos
from wend.protocol.plugins import PeerConfig, SendTo
from wend.strategies.tdo.family import ASK_AGAIN, Family, TreeLinks
from wend.strategies.tdo.landmarks import Census, Landmarks
from wend.strategies.tdo.messages import (
    Adopt,
    ChildAlive,
    Dissolve,
    Effects,
    Find,
    Gossip,
    JoinTree,
    MembershipMessage,
    ParentAlive,
    Quit,
    Renew,
    refuse,
)
from wend.strategies.tdo.paths import PathTracer, has_valid_length, is_prefix, is_same
from wend.strategies.tdo.rounds import MembershipSettings, Rounds

ELECTION = 8
"""Periods between elections: enough to learn the result of the last one."""
GUEST_AFTER = 5
"""The number of times a peer asks for its place before it asks to be a guest."""
GUEST_RETRY = 20
"""Periods after which a landmark tries a guest's place again."""


class LandmarkTrees:
    """Elects landmarks and links the peers along their trees."""

    def __init__(self, config: PeerConfig, rounds: Rounds) -> None:
        self._me = config.peer
        self._k = config.of(MembershipSettings).membership_k
        self._rounds = rounds
        self.families: dict[PeerId, Family] = {}
        """By root."""
        self._census = Census(rounds.draw)
        self._others = Landmarks(config.peer, self._k)
        self._tracer = PathTracer(config)
        self._links = TreeLinks()
        self._guests: dict[PeerId, int] = {}
        """Guests of this landmark, whose place is elsewhere, each with the round of its arrival."""

    @property
    def is_landmark(self) -> bool:
        return self._me in self.families

    @property
    def landmarks(self) -> tuple[PeerId, ...]:
        return tuple(sorted({*self._others, *([self._me] if self.is_landmark else [])}))

    @property
    def guests(self) -> tuple[PeerId, ...]:
        """Children of this landmark whose place is below a parent that cannot reach them."""
        return tuple(sorted(self._guests))

    @property
    def estimated_peers(self) -> float:
        """The census estimate of the number of peers."""
        return self._census.peers

    # ---------------------------------------------------------------- the rounds

    def run_round(self, now: Nanos) -> Effects:
        """Do the work of one period."""
        round_ = self._rounds.number
        self._census.tick()
        if round_ % ELECTION == 0 and not self.is_landmark:
            self._elect_landmark()
        for root in self._others.expire(round_):
            self.families.pop(root, None)
        yield from self._ask_parents()
        for root in self._others:
            family = self.families.setdefault(root, Family())
            if family.parent is None and round_ - family.asked_round >= ASK_AGAIN:
                family.asked_round = round_
                family.ask_count += 1
                yield SendTo(root, JoinTree(family.ask_count > GUEST_AFTER))
            elif family.parent is not None and self._tracer.is_time_to_repeat(self._census.peers):
                yield SendTo(root, Renew(family.path))
        yield from self._place_guests()
        for family in self.families.values():
            family.drop_silent_children(round_)
        yield from self._links.update(self.families)

    def _elect_landmark(self) -> None:
        if self._rounds.draw.random() * self._census.peers < self._k - len(self._others):
            self.families[self._me] = Family()

    def _ask_parents(self) -> Effects:
        """Ask each parent whether this peer is still its child."""
        roots: dict[PeerId, list[PeerId]] = {}
        for root, family in sorted(self.families.items()):
            silent = family.drop_silent_parent(self._rounds.number)
            if silent is not None:
                self._rounds.sampling.forget(silent)
            if family.parent is not None:
                roots.setdefault(family.parent, []).append(root)
        for parent, trees in sorted(roots.items()):
            yield SendTo(parent, ParentAlive(tuple(trees)))

    def _place_guests(self) -> Effects:
        """Try the places of guests again. If the nearer parent reaches its guest by now, the guest moves there."""
        for guest, since in sorted(self._guests.items()):
            family, path = self.families[self._me], self._tracer.paths[guest]
            if guest not in family.children:
                del self._guests[guest]
            elif (self._rounds.number - since) % GUEST_RETRY == GUEST_RETRY - 1:
                nearer = family.nearer_child(guest, path)
                if nearer is None:
                    del self._guests[guest]
                else:
                    yield SendTo(nearer, Find(self._me, guest, path))

    def gossip(self) -> Gossip:
        beats = self._others.beats
        if self.is_landmark:
            beats[self._me] = self._rounds.beat
        return Gossip(self._census.epoch, self._census.minima, tuple(sorted(beats.items())))

    def on_gossip(self, sender: PeerId, gossip: Gossip) -> Effects:
        self._census.merge(gossip.epoch, gossip.minima)
        self._others.merge(gossip.landmarks, self._rounds.number)
        yield from ()

    def leave(self) -> Effects:
        heirs = tuple((root, f.parent) for root, f in sorted(self.families.items()) if f.parent is not None)
        if self.is_landmark:
            for child in sorted(self.families[self._me].children):
                yield SendTo(child, Dissolve(self._me, self._rounds.beat))
        for peer in self._links.peers:
            yield SendTo(peer, Quit(heirs))
        self.families.clear()
        yield from self._links.update(self.families)

    # ---------------------------------------------------------------- messages

    def on_message(self, now: Nanos, sender: PeerId, message: MembershipMessage) -> Effects:
        yield from self._on_tree_message(sender, message)
        yield from self._links.update(self.families)

    def _on_tree_message(self, sender: PeerId, message: MembershipMessage) -> Effects:
        match message:
            case JoinTree() | Renew() if not self.is_landmark:  # an earlier incarnation was one
                yield SendTo(sender, Dissolve(self._me, self._rounds.first_beat))
            case JoinTree(near):
                yield from self._find_place(sender, near)
            case Renew(path):
                yield from self._tracer.repeat(sender, path)
            case Find(root, peer, path) if has_valid_length(path):
                yield from self._place_child(root, peer, path)
            case Adopt():
                yield from self._on_adopt(sender, message)
            case ParentAlive(roots):
                missing = tuple(root for root in roots if not self._is_child(root, sender))
                yield SendTo(sender, ChildAlive(missing))
            case ChildAlive(missing):
                yield from self._on_child_alive(sender, missing)
            case Dissolve():
                yield from self._on_dissolve(sender, message)
            case Quit(heirs):
                yield from self._on_quit(sender, dict(heirs))
            case _:
                yield refuse(sender, message)

    def _find_place(self, peer: PeerId, near: bool) -> Effects:
        path = self._tracer.paths.get(peer)
        if path is None:
            yield from self._tracer.trace(peer, self._rounds.number)
        elif near:
            self._guests[peer] = self._rounds.number
            self.families[self._me].children[peer] = (path, self._rounds.number)
            yield SendTo(peer, Adopt(self._me, path, ()))
        else:
            yield from self._place_child(self._me, peer, path)

    def handle_path(self, peer: PeerId, path: Path | None) -> Effects:
        """Place a peer to which this landmark has measured the path, unless it has its place already."""
        self._tracer.finish(peer)
        before = self._tracer.finish_repeated(peer)
        if not self.is_landmark:
            return
        if before is not None and (path is None or None in path):
            return  # the path is broken or has an anonymous router: keep the known one
        if path:
            self._tracer.paths[peer] = path
        if before is not None:
            if path == before:
                return
            self.families[self._me].children.pop(peer, None)
        yield from self._place_child(self._me, peer, path or UNKNOWN)
        yield from self._links.update(self.families)

    def _is_child(self, root: PeerId, peer: PeerId) -> bool:
        family = self.families.get(root)
        return family is not None and family.record_child_alive(peer, self._rounds.number)

    def _on_child_alive(self, sender: PeerId, missing: tuple[PeerId, ...]) -> Effects:
        for root, family in sorted(self.families.items()):
            if family.parent == sender:
                family.heard_round = self._rounds.number
                if root in missing:
                    family.lose_parent(self._rounds.number)
                    yield SendTo(root, JoinTree())

    def _on_dissolve(self, sender: PeerId, message: Dissolve) -> Effects:
        root = message.root
        family = self.families.get(root)
        if root == self._me or (sender != root and (family is None or family.parent != sender)):
            return
        if family is not None:
            for child in sorted(family.children):
                yield SendTo(child, message)
            del self.families[root]
        self._others.drop(root, message.beat)

    def _on_quit(self, sender: PeerId, heirs: dict[PeerId, PeerId]) -> Effects:
        self._rounds.sampling.forget(sender)
        for root, family in sorted(self.families.items()):
            family.children.pop(sender, None)
            if family.parent == sender:
                family.lose_parent(self._rounds.number)
                yield SendTo(heirs.get(root, root), Find(root, self._me, family.path))

    # ---------------------------------------------------------------- path matching

    def _place_child(self, root: PeerId, peer: PeerId, path: Path) -> Effects:
        """Algorithm 5.3: place a peer below a child, or here. Then it may get some of this peer's children."""
        family = self.families.get(root)
        if family is None or peer in (self._me, family.parent):
            return
        if root != self._me:
            if family.parent is None or not family.is_on(path):
                return  # no place from here, or this peer's own path has changed: the peer will ask the landmark again
            if family.is_represented or (is_same(path, family.path) and peer < self._me):
                yield SendTo(family.parent, Find(root, peer, path))
                return
        family.children.pop(peer, None)
        nearer = family.nearer_child(peer, path)
        if nearer is not None:
            yield SendTo(nearer, Find(root, peer, path))
        else:
            below = family.add_child(peer, path, self._rounds.number)
            yield SendTo(peer, Adopt(root, path, family.path, below))

    def _on_adopt(self, sender: PeerId, message: Adopt) -> Effects:
        """Algorithm 5.5, with a rule for late messages: if the path is the same, the nearer parent stays."""
        root, path, parent_path = message.root, message.path, message.parent_path
        if root == self._me or root not in self._others:
            return
        fits = is_prefix(parent_path, path) or (is_same(parent_path, path) and sender < self._me)
        if not fits or not has_valid_length(path):
            yield refuse(sender, message)
            return
        family = self.families.setdefault(root, Family())
        if family.adopt_parent(sender, parent_path, path, self._rounds.number) and family.is_represented:
            for child, child_path in family.release_children():
                yield SendTo(sender, Find(root, child, child_path))
        for child, child_path in message.children:
            if has_valid_length(child_path):
                yield from self._place_child(root, child, child_path)
