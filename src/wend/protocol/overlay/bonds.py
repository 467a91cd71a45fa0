"""Links that both ends know of, made and ended by words that may be lost or late; for overlays that are no trees.

An end that links the other says `Offer`, and the other does the same or declines. Each end numbers its bonds; `Part`
names the numbers that it voids, so an offer that comes after its own withdrawal is known and dropped. `Alive` goes over
every bond once per period: an end that knows of no bond answers it with `Part`, and a silent end is taken for dead. So
both ends agree in the end, whatever was lost. Whether the whole hangs together is watched by `Whole`.
"""

from wend.model.events import PeerId
from wend.model.paths import Path
from wend.model.units import Nanos
from wend.protocol.overlay.member import Member
from wend.protocol.overlay.paths import back
from wend.protocol.overlay.shape import Link, OverlaySettings, Unlink
from wend.protocol.overlay.whole import Whole
from wend.protocol.overlay.words import Alive, Join, MultiJoin, Offer, OverlayWord, Part, Pong, Rumour

SILENT = 4
"""Periods without a word after which the other end is taken for dead."""
LONGEST = 255
"""Hops of a path: a packet has no longer life."""


class Bond:
    __slots__ = ("heard", "mine", "path", "theirs")

    def __init__(self, mine: int, path: Path, theirs: int, heard: int) -> None:
        self.mine = mine
        self.path = path
        """From here."""
        self.theirs = theirs
        """The number at the other end; 0 before its first word."""
        self.heard = heard


class Bonded(Member):
    """A strategy decides in `_joins` and `_offered` whom to link."""

    def __init__(self, me: PeerId, incarnation: int, settings: OverlaySettings) -> None:
        super().__init__(me, incarnation, settings)
        self.bonds: dict[PeerId, Bond] = {}
        self._whole = Whole(me, incarnation)
        self._void: dict[PeerId, int] = {}
        self._number = self._life

    # ---------------------------------------------------------------- making and ending

    def _bond(self, peer: PeerId, path: Path, theirs: int = 0) -> int:
        self._number += 1
        self.bonds[peer] = Bond(self._number, path, theirs, self.round)
        self._out.append(Link(peer, path))
        return self._number

    def _offer(self, peer: PeerId, path: Path, others: tuple[tuple[PeerId, Path], ...] = ()) -> None:
        self._say(peer, Offer(self._bond(peer, path), path, others))

    def _accept(self, peer: PeerId, path: Path, theirs: int) -> None:
        self._alive(peer, self._bond(peer, path, theirs))

    def _decline(self, peer: PeerId, theirs: int) -> None:
        self._void[peer] = max(theirs, self._void.get(peer, 0))
        self._say(peer, Part(0, theirs))

    def _part(self, peer: PeerId, heir: PeerId | None = None) -> None:
        bond = self.bonds[peer]
        self._void[peer] = max(bond.theirs, self._void.get(peer, 0))
        self._say(peer, Part(bond.mine, bond.theirs, heir))
        self._end(peer)

    def _end(self, peer: PeerId) -> None:
        del self.bonds[peer]
        self._out.append(Unlink(peer))

    def _alive(self, peer: PeerId, mine: int) -> None:
        self._say(peer, Alive(mine, self._whole.leader, self._whole.beat))

    # ---------------------------------------------------------------- the rounds

    def _tend(self, now: Nanos) -> None:
        self._whole.tick()
        for peer, bond in sorted(self.bonds.items()):
            if self.round - bond.heard > SILENT:
                self._lost(peer)
            else:
                self._alive(peer, bond.mine)
        self._seek(now)

    def _lost(self, peer: PeerId) -> None:
        if peer in self.bonds:
            self._sampling.forget(peer)
            self._part(peer)  # should it live after all, it knows
            self._replace(peer)

    def _leave(self) -> None:
        """The neighbour with the shortest path inherits the others."""
        if self.bonds:
            heir = min(self.bonds, key=lambda peer: (len(self.bonds[peer].path), peer))
            for peer in sorted(self.bonds):
                self._part(peer, None if peer == heir else heir)

    def _rumour(self) -> Rumour:
        return Rumour(leader=self._whole.leader if self._whole.sure else -1)

    def _learn(self, sender: PeerId, rumour: Rumour) -> None:
        if self._whole.apart(rumour.leader) and sender not in self.bonds:
            self._join(sender)

    # ---------------------------------------------------------------- words

    def _hear(self, now: Nanos, sender: PeerId, word: OverlayWord) -> None:
        match word:
            case Alive():
                self._heard_alive(sender, word)
            case Part():
                self._heard_part(sender, word)
            case Offer(number, path, others):
                if not (path and len(path) <= LONGEST):
                    self._distrust(sender, word)
                elif number > self._void.get(sender, 0):  # else it was withdrawn, and comes late
                    self._many(others)
                    if sender in self.bonds:
                        self.bonds[sender].theirs = number
                        self.bonds[sender].heard = self.round
                        self._alive(sender, self.bonds[sender].mine)
                    else:
                        self._offered(sender, number, back(path))
            case Join(peer, path):
                if path is not None and not 0 < len(path) <= LONGEST:
                    self._distrust(sender, word)
                else:
                    self._join_request(sender, peer, path)
            case MultiJoin(peers):
                self._many(peers)
            case Pong():
                self._pong(now, sender, word)
            case _:
                self._distrust(sender, word)

    def _many(self, peers: tuple[tuple[PeerId, Path], ...]) -> None:
        for peer, path in peers:
            if 0 < len(path) <= LONGEST:
                self._join_request(self.me, peer, path)

    def _join_request(self, sender: PeerId, peer: PeerId, path: Path | None) -> None:
        bond = self.bonds.get(peer)
        if bond is not None and sender == peer:  # it has forgotten
            self._say(peer, Offer(bond.mine, bond.path))
        elif bond is None and peer != self.me:
            self._joins(peer, path)

    def _heard_alive(self, sender: PeerId, word: Alive) -> None:
        bond = self.bonds.get(sender)
        if bond is not None and word.number > self._void.get(sender, 0):
            bond.theirs, bond.heard = word.number, self.round
            self._whole.hear(word.leader, word.beat)
        elif not self._considering(sender):
            self._say(sender, Part(0, word.number))

    def _heard_part(self, sender: PeerId, word: Part) -> None:
        self._void[sender] = max(word.mine, self._void.get(sender, 0))
        bond = self.bonds.get(sender)
        if bond is not None and (bond.mine <= word.yours or 0 < bond.theirs <= word.mine):
            self._end(sender)
        if word.heir is not None:
            self._sampling.forget(sender)
            if word.heir not in self.bonds:
                self._join(word.heir)

    # ---------------------------------------------------------------- what strategies fill in

    def _join(self, peer: PeerId) -> None:
        """Ask to be linked, there or nearby."""
        self._say(peer, Join(self.me))

    def _joins(self, peer: PeerId, path: Path | None) -> None:
        """A peer that is no neighbour wants to be linked."""
        raise NotImplementedError

    def _offered(self, peer: PeerId, number: int, path: Path) -> None:
        """A peer has linked this one, over a path as measured or inferred there."""
        raise NotImplementedError

    def _considering(self, peer: PeerId) -> bool:
        """Whether an offer is under consideration."""
        return False

    def _seek(self, now: Nanos) -> None:
        """Once per period: look for more links."""
        raise NotImplementedError

    def _replace(self, peer: PeerId) -> None:
        """A neighbour died."""
        for other in self._sampling.sample(1, frozenset(self.bonds)):
            self._join(other)

    def _pong(self, now: Nanos, sender: PeerId, word: Pong) -> None:
        pass
