"""`tdo-random`: every peer measures the paths to a few others and links the peers on them (quist, section 5.2).

If a peer gets a join request, it measures the path to the new peer. If a neighbour lies on that path, the peer passes
the request to it with the rest of the path, which needs no measurement. If the new peer lies on the path to neighbours,
the peer hands these neighbours to it. Paths only get shorter, so the process ends. Four rules differ from the print. A
peer accepts an offer if *no* neighbour is nearer (5.7 has the branches swapped). It drops requests for itself or for a
neighbour. Prefixes are strict and extend beyond the peer's own router; else two peers of one router would pass a
request to each other for ever. And an end that withdraws a link tells the other.

`nearest` and `farthest` choose the peers to join by round trip, from a sample that is larger by ten.
"""

from typing import ClassVar

from wend.model.events import PeerId
from wend.model.paths import UNKNOWN, Path
from wend.model.units import Nanos
from wend.protocol.plugins import PeerConfig
from wend.strategies.tdo.handshake import LinkHandshake
from wend.strategies.tdo.member import WARM
from wend.strategies.tdo.messages import Join, MultiJoin, ProbePing, ProbePong, Unlinked
from wend.strategies.tdo.paths import leads_through, rest

PATIENCE = 12
"""Periods after which a peer stops waiting for a measurement."""


class TdoRandom(LinkHandshake):
    """Joins random peers and links along the measured paths."""

    def __init__(self, config: PeerConfig) -> None:
        super().__init__(config)
        self.asked: set[PeerId] = set()
        self._tracing: dict[PeerId, tuple[int, int]] = {}
        """By peer that is measured: the round of the start, and the number of its offer, or 0 for a request."""

    # ---------------------------------------------------------------- joining

    def _seek(self, now: Nanos) -> None:
        for peer, (since, _) in sorted(self._tracing.items()):
            if self.round - since > PATIENCE:
                del self._tracing[peer]
        if self.round >= WARM:
            if not self.linked and not self._tracing and self.round % WARM == 0:
                self.asked.clear()  # no peer answered, or all have left
            for peer in self._choose(now, self._settings.membership_k - len(self.asked)):
                self.asked.add(peer)
                if peer not in self.linked:
                    self._join(peer)

    def _choose(self, now: Nanos, count: int) -> list[PeerId]:
        return self._sampling.sample(max(0, count), frozenset(self.asked))

    def _joins(self, peer: PeerId, path: Path | None) -> None:
        if path is not None:
            self._match(peer, path)
        elif peer not in self._tracing:
            self._tracing[peer] = (self.round, 0)
            self._find_path(peer)

    def _offered(self, peer: PeerId, number: int, path: Path) -> None:
        known = peer in self._tracing
        self._tracing[peer] = (self.round, number)
        if not self._settings.trace_both_ends:
            self._found(peer, path)
        elif not known:
            self._find_path(peer)

    def _considering(self, peer: PeerId) -> bool:
        return peer in self._tracing

    def _found(self, peer: PeerId, path: Path | None) -> None:
        _, number = self._tracing.pop(peer, (0, -1))
        if number < 0 or peer in self.linked:
            return
        path = path or UNKNOWN
        if number == 0:
            self._match(peer, path)
        elif number > self._void.get(peer, 0):  # else the peer withdrew it meanwhile
            self._consider(peer, number, path)

    def _heard_unlinked(self, sender: PeerId, message: Unlinked) -> None:
        super()._heard_unlinked(sender, message)
        _, number = self._tracing.get(sender, (0, 0))
        if 0 < number <= message.mine:
            del self._tracing[sender]

    # ---------------------------------------------------------------- path matching

    def _match(self, peer: PeerId, path: Path) -> None:
        """Algorithm 5.6: place a peer that asked to join."""
        target = self._on_path(path)
        if target is not None:
            self._say(target, Join(peer, rest(path, self.linked[target].path)))
        else:
            self._offer(peer, path, self._hand_over(path))

    def _consider(self, peer: PeerId, number: int, path: Path) -> None:
        """Algorithm 5.7: accept or decline an offer."""
        target = self._on_path(path)
        if target is not None:
            self._decline(peer, number)
            self._say(target, Join(peer, rest(path, self.linked[target].path)))
        else:
            behind = self._hand_over(path)
            self._accept(peer, path, number)
            if behind:
                self._say(peer, MultiJoin(behind))

    def _on_path(self, path: Path) -> PeerId | None:
        """The last neighbour that the path passes; the lowest, if several share its router."""
        found = [peer for peer, link in self.linked.items() if _passes(path, link.path)]
        return min(found, key=lambda peer: (-len(self.linked[peer].path), peer), default=None)

    def _hand_over(self, path: Path) -> tuple[tuple[PeerId, Path], ...]:
        """End the links to neighbours behind the end of the path, and return them: the peer there links them."""
        behind = [peer for peer in sorted(self.linked) if _passes(self.linked[peer].path, path)]
        paths = tuple((peer, rest(self.linked[peer].path, path)) for peer in behind)
        for peer in behind:
            self._unlink(peer)
        return paths


def _passes(path: Path, begin: Path) -> bool:
    """Whether a path leaves this peer's router and passes the end of another path."""
    return len(begin) > 1 and leads_through(begin, path)


class Nearest(TdoRandom):
    """Joins the peers of a sample with the shortest round trips."""

    sign: ClassVar[int] = 1

    def __init__(self, config: PeerConfig) -> None:
        super().__init__(config)
        self._pinged: dict[PeerId, Nanos] = {}
        self._trips: dict[PeerId, Nanos] = {}

    def _choose(self, now: Nanos, count: int) -> list[PeerId]:
        if count <= 0:
            return []
        room = self._settings.membership_k + self._settings.membership_sample - len(self._pinged)
        for peer in self._sampling.sample(max(0, room), frozenset(self._pinged)):
            self._pinged[peer] = now
            self._say(peer, ProbePing(self.round))
        if self.round < 2 * WARM:  # let answers come in before choosing
            return []
        known = [peer for peer in self._trips if peer not in self.asked]
        best = sorted(known, key=lambda peer: (self.sign * self._trips[peer], peer))[:count]
        if not best and not self.linked and self.round % WARM == 0:  # none of them answers any more
            self._pinged.clear()
            self._trips.clear()
        return best

    def _pong(self, now: Nanos, sender: PeerId, message: ProbePong) -> None:
        sent = self._pinged.get(sender)
        if sent is not None and sender not in self._trips:
            self._trips[sender] = now - sent


class Farthest(Nearest):
    """Joins the peers with the longest round trips: the thesis's counter-example."""

    sign: ClassVar[int] = -1
