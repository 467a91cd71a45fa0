"""`tdo-random`: every peer measures the paths to a few others and links the peers on them (quist, section 5.2).

If a peer gets a join request, it measures the path to the new peer. If a neighbour lies on that path, the peer passes
the request to it with the rest of the path, which needs no measurement. If the new peer lies on the path to neighbours,
the peer hands these neighbours to it. Paths only get shorter, so the process ends. Four rules differ from the print. A
peer accepts an offer if *no* neighbour is nearer (5.7 has the branches swapped). It drops requests for itself or for a
neighbour. Prefixes are strict and extend beyond the peer's own router; else two peers of one router would pass a
request to each other for ever. And an end that withdraws a link tells the other.

`tdo-nearest` and `tdo-farthest` choose the peers to join by round trip, from a sample that is larger by ten.
"""

from collections.abc import Container

from wend.model.events import PeerId
from wend.model.paths import Path
from wend.model.units import Nanos
from wend.protocol.plugins import PeerConfig, SendTo
from wend.strategies.tdo.link_overlay import LinkOverlay
from wend.strategies.tdo.messages import Effects, Join, MultiJoin, ProbePing
from wend.strategies.tdo.paths import is_prefix, suffix
from wend.strategies.tdo.rounds import WARM, MembershipSettings, Rounds
from wend.strategies.tdo.sampling import Sampling


class ProbedRoundTrips:
    """Samples peers, probes them, and ranks those that answered."""

    def __init__(self, sampling: Sampling, size: int, sign: int) -> None:
        """`size`: how many peers to probe. `sign`: 1 to rank the nearest first, -1 the farthest."""
        self._sampling = sampling
        self._size = size
        self._sign = sign
        self._pinged: dict[PeerId, Nanos] = {}
        self._trips: dict[PeerId, Nanos] = {}

    def probe(self, now: Nanos, round_: int) -> list[SendTo]:
        """Probe more peers, until the sample is full."""
        count = max(0, self._size - len(self._pinged))
        peers = self._sampling.sample(count, frozenset(self._pinged))
        self._pinged.update(dict.fromkeys(peers, now))
        return [SendTo(peer, ProbePing(round_)) for peer in peers]

    def handle_answer(self, now: Nanos, peer: PeerId) -> None:
        """Handle the answer of a probed peer. Its first one counts."""
        sent = self._pinged.get(peer)
        if sent is not None and peer not in self._trips:
            self._trips[peer] = now - sent

    def best(self, count: int, without: Container[PeerId]) -> list[PeerId]:
        peers = [peer for peer in self._trips if peer not in without]
        return sorted(peers, key=lambda peer: (self._sign * self._trips[peer], peer))[:count]

    def clear(self) -> None:
        """Start again with another sample."""
        self._pinged.clear()
        self._trips.clear()


class PathMatching(LinkOverlay):
    """Joins random peers, or those with the best round trips, and links along the measured paths."""

    def __init__(self, config: PeerConfig, rounds: Rounds, sign: int = 0) -> None:
        """`sign`: 1 to join the nearest peers of a sample, -1 the farthest, 0 random ones."""
        settings = config.of(MembershipSettings)
        super().__init__(config, rounds, one_end_traces=not settings.trace_both_ends)
        self._count = settings.membership_k
        self._trace_both_ends = settings.trace_both_ends
        size = settings.membership_k + settings.membership_sample
        self._round_trips = ProbedRoundTrips(rounds.sampling, size, sign) if sign else None
        self._joined: set[PeerId] = set()
        """The peers that this one has asked for a link."""

    # ---------------------------------------------------------------- joining

    def seek_links(self, now: Nanos) -> Effects:
        round_ = self.rounds.number
        self.tracer.expire(round_)
        if round_ < WARM:
            return
        if not self.links and not self.tracer and round_ % WARM == 0:
            self._joined.clear()  # no peer answered, or all have left
        count = max(0, self._count - len(self._joined))
        if self._round_trips is None:
            peers = self.rounds.sampling.sample(count, frozenset(self._joined))
        elif count:
            yield from self._round_trips.probe(now, round_)
            peers = self._choose_peers(count, self._round_trips)
        else:
            peers = []
        self._joined.update(peers)
        for peer in peers:
            if peer not in self.links:
                yield from self.join(peer)
        yield from self.retrace(self._joined)

    def _choose_peers(self, count: int, round_trips: ProbedRoundTrips) -> list[PeerId]:
        if self.rounds.number < 2 * WARM:  # let answers come in before choosing
            return []
        peers = round_trips.best(count, self._joined)
        if not peers and not self.links and self.rounds.number % WARM == 0:  # no peer of the sample answers any longer
            round_trips.clear()
        return peers

    def handle_probe_answer(self, now: Nanos, sender: PeerId) -> None:
        if self._round_trips is not None:
            self._round_trips.handle_answer(now, sender)

    def handle_join(self, peer: PeerId, path: Path | None) -> Effects:
        if path is not None:
            yield from self._place_joiner(peer, path)
        else:
            yield from self.tracer.trace(peer, self.rounds.number)

    def handle_offer(self, peer: PeerId, number: int, path: Path) -> Effects:
        trace = self.tracer.trace(peer, self.rounds.number, number)
        if self._trace_both_ends:
            yield from trace
        else:
            yield from self.handle_first_path(peer, path)

    def handle_first_path(self, peer: PeerId, path: Path) -> Effects:
        pending = self.tracer.finish(peer)
        if pending is None or peer in self.links:
            return
        if not pending.offer:
            yield from self._place_joiner(peer, path)
        elif not self.handshake.is_void(peer, pending.offer):  # else the peer withdrew it meanwhile
            yield from self._accept_or_decline(peer, pending.offer, path)

    # ---------------------------------------------------------------- path matching

    def _place_joiner(self, peer: PeerId, path: Path) -> Effects:
        """Algorithm 5.6: place a peer that asked to join."""
        target = self._neighbour_on(path)
        if target is not None:
            yield SendTo(target, Join(peer, suffix(path, self.links[target].path)))
            return
        behind = self._neighbours_behind(path)
        for other, _ in behind:
            yield from self.handshake.unlink(other)
        yield from self.handshake.offer(peer, path, behind)

    def _accept_or_decline(self, peer: PeerId, number: int, path: Path) -> Effects:
        """Algorithm 5.7: accept or decline an offer."""
        target = self._neighbour_on(path)
        if target is not None:
            yield self.handshake.decline(peer, number)
            yield SendTo(target, Join(peer, suffix(path, self.links[target].path)))
            return
        behind = self._neighbours_behind(path)
        for other, _ in behind:
            yield from self.handshake.unlink(other)
        yield from self.handshake.accept(peer, path, number)
        if behind:
            yield SendTo(peer, MultiJoin(behind))

    def place_link(self, peer: PeerId) -> Effects:
        """Pass the link to the neighbour that its path passes. Pass neighbours that lie behind its end to that peer."""
        path = self.links[peer].path
        target = self._neighbour_on(path)
        if target is not None:
            yield from self.handshake.unlink(peer)
            yield SendTo(target, Join(peer, suffix(path, self.links[target].path)))
            return
        behind = self._neighbours_behind(path)
        for other, _ in behind:
            yield from self.handshake.unlink(other)
        if behind:
            yield SendTo(peer, MultiJoin(behind))

    def _neighbour_on(self, path: Path) -> PeerId | None:
        """The last neighbour that the path passes; the lowest, if several share its router."""
        passed = [peer for peer, link in self.links.items() if _passes(path, link.path)]
        return min(passed, key=lambda peer: (-len(self.links[peer].path), peer), default=None)

    def _neighbours_behind(self, path: Path) -> tuple[tuple[PeerId, Path], ...]:
        """The neighbours behind the end of the path, each with the rest of its path: the peer there links them."""
        links = sorted(self.links.items())
        return tuple((peer, suffix(link.path, path)) for peer, link in links if _passes(link.path, path))


def _passes(path: Path, begin: Path) -> bool:
    """Whether a path leaves this peer's router and passes the end of another path."""
    return len(begin) > 1 and is_prefix(begin, path)
