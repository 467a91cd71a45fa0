"""`tdo-landmark`: landmarks measure the paths to all peers, and each is the root of a tree (quist, section 5.1).

In the tree of a landmark, a peer's parent is the last other peer on the path from the landmark to it. So the tree does
not depend on the order of joins. Of several peers at one router the lowest represents it and is the parent of the
others, which have no children. The overlay has the links of all trees.

Landmarks elect themselves, with probability (k - known landmarks) / peers (`census.py`). Gossip spreads their
heartbeats. If a heartbeat stops, peers drop the landmark and its tree. Children ask their parents every period whether
they are still their children. A peer that is no child any more asks the landmark for a place. So trees heal, and a lost
or late message does no lasting harm. If a parent and its child cannot hear each other, though others hear both, the
child becomes a guest of the landmark until they can.

Paths change while peers run, which the thesis leaves out. So peers ask their landmarks from time to time to measure
them again. They ask less often if there are more peers, so that a landmark's work does not grow with their number. If
a peer's path changed, it gets another place and releases its children, whose paths led through the old place.
"""

from wend.model.events import PeerId
from wend.model.paths import UNKNOWN, Path
from wend.model.random_stream import peer_stream
from wend.model.units import Nanos
from wend.protocol.plugins import EndLink, MakeLink, PeerConfig, Reroute
from wend.strategies.tdo.census import Census
from wend.strategies.tdo.handshake import LONGEST, SILENT
from wend.strategies.tdo.member import Member
from wend.strategies.tdo.messages import (
    Adopt,
    ChildAlive,
    Dissolve,
    Find,
    Gossip,
    JoinTree,
    MembershipMessage,
    ParentAlive,
    Quit,
    Renew,
)
from wend.strategies.tdo.paths import back, leads_through, rest, same

ELECTION = 8
"""Periods between elections: enough to learn the result of the last one."""
STILL = 20
"""Periods without a heartbeat after which a peer drops a landmark."""
ASK_AGAIN = 3
IN_VAIN = 5
"""The number of times a peer asks for its place before it asks to be a guest."""
PLACE_AGAIN = 20
"""Periods after which a landmark tries a guest's place again."""
RENEW = 5
"""The mean number of periods between two repeated measurements of a landmark."""
MOST = 4
"""A peer accepts at most so many times k landmarks."""


class Family:
    """One peer's place in one tree."""

    __slots__ = ("asked", "asks", "children", "heard", "parent", "parent_path", "path")

    def __init__(self) -> None:
        self.path: Path = ()
        """The path from the root to here. The root's own is empty, and so a prefix of all."""
        self.parent: PeerId | None = None
        self.parent_path: Path = ()
        self.children: dict[PeerId, tuple[Path, int]] = {}
        """By child: its path from the root, and the round in which it was last heard."""
        self.asked = -ASK_AGAIN
        self.asks = 0
        """The number of requests since this peer last had a parent."""
        self.heard = 0


class TdoLandmark(Member):
    """Elects landmarks and links the peers along their trees."""

    def __init__(self, config: PeerConfig) -> None:
        super().__init__(config)
        self.families: dict[PeerId, Family] = {}
        """By root."""
        self._census = Census(self._draw)
        self._beats: dict[PeerId, tuple[int, int]] = {}
        """By landmark: its heartbeat, and the round in which that heartbeat was new."""
        self._dead: dict[PeerId, int] = {}
        self._paths: dict[PeerId, Path] = {}
        """The paths that this landmark has measured."""
        self._tracing: set[PeerId] = set()
        self._renewing: dict[PeerId, Path] = {}
        """Peers that this landmark measures again, each with its current path."""
        self._renewals = peer_stream(config.seed, "overlay", config.peer, config.incarnation, "renew")
        self._guests: dict[PeerId, int] = {}
        """Guests of this landmark, whose place is elsewhere, each with the round of its arrival."""
        self._linked: dict[PeerId, Path] = {}

    @property
    def is_landmark(self) -> bool:
        return self.me in self.families

    @property
    def landmarks(self) -> tuple[PeerId, ...]:
        return tuple(sorted({*self._beats, *([self.me] if self.is_landmark else [])}))

    @property
    def guests(self) -> tuple[PeerId, ...]:
        """Children of this landmark whose place is below a parent that cannot reach them."""
        return tuple(sorted(self._guests))

    @property
    def estimated_peers(self) -> float:
        """The census estimate of the number of peers."""
        return self._census.peers

    # ---------------------------------------------------------------- the rounds

    def _tend(self, now: Nanos) -> None:
        self._census.tick()
        if self.round % ELECTION == 0 and not self.is_landmark:
            missing = self._settings.membership_k - len(self._beats)
            if self._draw.random() * self._census.peers < missing:
                self.families[self.me] = Family()
        for root, (beat, since) in sorted(self._beats.items()):
            if self.round - since > STILL:
                self._drop_tree(root, beat)
        self._keep_parents()
        for root in sorted(self._beats):
            family = self.families.setdefault(root, Family())
            if family.parent is None and self.round - family.asked >= ASK_AGAIN:
                family.asked = self.round
                family.asks += 1
                self._say(root, JoinTree(family.asks > IN_VAIN))
            elif family.parent is not None and self._renewals.random() * RENEW * self._census.peers < 1:
                self._say(root, Renew(family.path))
        self._place_guests()
        for family in self.families.values():
            for child, (_, heard) in sorted(family.children.items()):
                if self.round - heard > SILENT:
                    del family.children[child]
        self._relink()

    def _keep_parents(self) -> None:
        roots: dict[PeerId, list[PeerId]] = {}
        for root, family in sorted(self.families.items()):
            if family.parent is not None and self.round - family.heard > SILENT:
                self._sampling.forget(family.parent)
                family.parent = None
            if family.parent is not None:
                roots.setdefault(family.parent, []).append(root)
        for parent, trees in sorted(roots.items()):
            self._say(parent, ParentAlive(tuple(trees)))

    def _gossip(self) -> Gossip:
        landmarks = {peer: beat for peer, (beat, _) in self._beats.items()}
        if self.is_landmark:
            landmarks[self.me] = self._first_number + self.round
        return Gossip(self._census.epoch, self._census.minima, tuple(sorted(landmarks.items())))

    def _learn(self, sender: PeerId, gossip: Gossip) -> None:
        self._census.merge(gossip.epoch, gossip.minima)
        for peer, beat in gossip.landmarks:
            known = self._beats.get(peer)
            if peer == self.me or beat <= self._dead.get(peer, -1):
                continue
            if known is None and len(self._beats) >= MOST * self._settings.membership_k:
                continue
            if known is None or beat > known[0]:
                self._beats[peer] = (beat, self.round)

    def _drop_tree(self, root: PeerId, beat: int) -> None:
        known, _ = self._beats.pop(root, (beat, 0))
        self._dead[root] = max(known, beat)
        self.families.pop(root, None)

    # ---------------------------------------------------------------- messages

    def _hear(self, now: Nanos, sender: PeerId, message: MembershipMessage) -> None:
        match message:
            case JoinTree(near):
                self._join(sender, near)
            case Renew(path):
                self._renew(sender, path)
            case Find(root, peer, path):
                if 0 < len(path) <= LONGEST:
                    self._match(root, peer, path)
                else:
                    self._refuse(sender, message)
            case Adopt():
                self._adopted(sender, message)
            case ParentAlive(roots):
                self._say(sender, ChildAlive(tuple(root for root in roots if not self._is_child(root, sender))))
            case ChildAlive(missing):
                self._child_alive(sender, missing)
            case Dissolve(root, beat):
                family = self.families.get(root)
                if root != self.me and (sender == root or (family is not None and family.parent == sender)):
                    for child in sorted(family.children) if family is not None else ():
                        self._say(child, message)
                    self._drop_tree(root, beat)
            case Quit(heirs):
                self._quit(sender, dict(heirs))
            case _:
                self._refuse(sender, message)
        self._relink()

    def _join(self, peer: PeerId, near: bool) -> None:
        if not self.is_landmark:  # an earlier incarnation was one
            self._say(peer, Dissolve(self.me, self._first_number))
        elif near and peer in self._paths:
            path = self._paths[peer]
            self._guests[peer] = self.round
            self.families[self.me].children[peer] = (path, self.round)
            self._say(peer, Adopt(self.me, path, ()))
        elif peer in self._paths:
            self._match(self.me, peer, self._paths[peer])
        elif peer not in self._tracing:
            self._tracing.add(peer)
            self._find_path(peer)

    def _renew(self, peer: PeerId, path: Path) -> None:
        if not self.is_landmark:
            self._say(peer, Dissolve(self.me, self._first_number))
        elif peer not in self._tracing and peer not in self._renewing:
            self._renewing[peer] = path
            self._find_path(peer)

    def _place_guests(self) -> None:
        """Try the places of guests again. If the nearer parent reaches its guest by now, the guest moves there."""
        for guest, since in sorted(self._guests.items()):
            children = self.families[self.me].children
            if guest not in children:
                del self._guests[guest]
            elif (self.round - since) % PLACE_AGAIN == PLACE_AGAIN - 1:
                nearer = self._nearer_child(self.families[self.me], guest, self._paths[guest])
                if nearer is None:
                    del self._guests[guest]
                else:
                    self._say(nearer, Find(self.me, guest, self._paths[guest]))

    def _found(self, peer: PeerId, path: Path | None) -> None:
        self._tracing.discard(peer)
        before = self._renewing.pop(peer, None)
        if not self.is_landmark:
            return
        if before is not None:
            if path is None or None in path:
                return  # the path is broken or has an anonymous router: keep the known one
            self._paths[peer] = path
            if path == before:
                return
            self.families[self.me].children.pop(peer, None)
        if path:
            self._paths[peer] = path
        self._match(self.me, peer, path or UNKNOWN)
        self._relink()

    def _is_child(self, root: PeerId, peer: PeerId) -> bool:
        family = self.families.get(root)
        if family is None or peer not in family.children:
            return False
        family.children[peer] = (family.children[peer][0], self.round)
        return True

    def _child_alive(self, sender: PeerId, missing: tuple[PeerId, ...]) -> None:
        for root, family in sorted(self.families.items()):
            if family.parent == sender:
                family.heard = self.round
                if root in missing:
                    family.parent = None
                    family.asked = self.round
                    self._say(root, JoinTree())

    def _quit(self, sender: PeerId, heirs: dict[PeerId, PeerId]) -> None:
        self._sampling.forget(sender)
        for root, family in sorted(self.families.items()):
            family.children.pop(sender, None)
            if family.parent == sender:
                family.parent = None
                family.asked = self.round
                self._say(heirs.get(root, root), Find(root, self.me, family.path))

    def _leave(self) -> None:
        heirs = tuple((root, f.parent) for root, f in sorted(self.families.items()) if f.parent is not None)
        if self.is_landmark:
            for child in sorted(self.families[self.me].children):
                self._say(child, Dissolve(self.me, self._first_number + self.round))
        for peer in sorted(self._linked):
            self._say(peer, Quit(heirs))
        self.families.clear()
        self._relink()

    # ---------------------------------------------------------------- path matching

    def _match(self, root: PeerId, peer: PeerId, path: Path) -> None:
        """Algorithm 5.3: place a peer below a child, or here, where it may get some of this peer's children."""
        family = self.families.get(root)
        if family is None or peer in (self.me, family.parent) or (root != self.me and family.parent is None):
            return  # no place from here: the peer will ask the landmark again
        if root != self.me and not (same(path, family.path) or leads_through(family.path, path)):
            return  # this peer's own path has changed
        if self._second(family) or (same(path, family.path) and peer < self.me):
            if family.parent is not None:
                self._say(family.parent, Find(root, peer, path))
            return
        if not (leads_through(family.path, path) or same(family.path, path)):
            return
        family.children.pop(peer, None)
        nearer = self._nearer_child(family, peer, path)
        if nearer is not None:
            self._say(nearer, Find(root, peer, path))
            return
        children = [] if self._beside(family, path) else sorted((c, p) for c, (p, _) in family.children.items())
        below = [(c, p) for c, p in children if _above(peer, path, c, p)]
        for child, _ in below:
            del family.children[child]
        family.children[peer] = (path, self.round)
        self._say(peer, Adopt(root, path, family.path, tuple(below)))

    def _nearer_child(self, family: Family, peer: PeerId, path: Path) -> PeerId | None:
        """The last child on the path to a peer."""
        if self._beside(family, path):
            return None
        children = [(c, p) for c, (p, _) in family.children.items() if c != peer and not self._beside(family, p)]
        above = [(-len(p), c) for c, p in children if _above(c, p, peer, path)]
        return min(above)[1] if above else None

    def _adopted(self, sender: PeerId, message: Adopt) -> None:
        """Algorithm 5.5, with a rule for late messages: if the path is the same, the nearer parent stays."""
        root, path = message.root, message.path
        if root == self.me or root not in self._beats:
            return
        fits = leads_through(message.parent_path, path) or (same(message.parent_path, path) and sender < self.me)
        if not fits or not 0 < len(path) <= LONGEST:
            self._refuse(sender, message)
            return
        family = self.families.setdefault(root, Family())
        if family.parent is not None and path != family.path:
            family.parent, family.children = None, {}
        if family.parent is None or _nearer(message.parent_path, sender, family.parent_path, family.parent):
            family.path, family.asks = path, 0
            family.parent, family.parent_path, family.heard = sender, message.parent_path, self.round
            if self._second(family):
                children, family.children = family.children, {}
                for child, (child_path, _) in sorted(children.items()):
                    self._say(sender, Find(root, child, child_path))
        for child, child_path in message.children:
            if 0 < len(child_path) <= LONGEST:
                self._match(root, child, child_path)

    def _second(self, family: Family) -> bool:
        """Whether another peer represents this peer's router."""
        return family.parent is not None and (
            same(family.path, family.parent_path) or (family.parent_path == () and len(family.path) == 1)
        )

    def _beside(self, family: Family, path: Path) -> bool:
        """Whether a path ends at this peer's own router."""
        return same(path, family.path) or (family.path == () and len(path) == 1)

    # ---------------------------------------------------------------- links

    def _relink(self) -> None:
        """Make and end links so that they are those of all trees."""
        wanted: dict[PeerId, Path] = {}
        for _, family in sorted(self.families.items()):
            for child, (path, _) in sorted(family.children.items()):
                wanted.setdefault(child, rest(path, family.path) if family.path else path)
            if family.parent is not None:
                from_parent = rest(family.path, family.parent_path) if family.parent_path else family.path
                wanted.setdefault(family.parent, back(from_parent))
        for peer, path in wanted.items():
            if path != self._linked.get(peer):
                self._out.append(Reroute(peer, path) if peer in self._linked else MakeLink(peer, path))
                self._linked[peer] = path
        for peer in sorted(self._linked.keys() - wanted.keys()):
            del self._linked[peer]
            self._out.append(EndLink(peer))


def _above(peer: PeerId, path: Path, other: PeerId, other_path: Path) -> bool:
    """Whether a peer comes before another on the path from the root."""
    return leads_through(path, other_path) or (same(path, other_path) and peer < other)


def _nearer(path: Path, peer: PeerId, other_path: Path, other: PeerId) -> bool:
    return (len(path), -peer) > (len(other_path), -other) or peer == other
