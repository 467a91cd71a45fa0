"""Acting on silence, for strategies that want to know which links are up: what `liveness.py` sees becomes news.

A link goes down when its neighbour kept silent for too long, did not answer too often, or says that it does not hear
us; it is back with the next sign of life, but not while the neighbour says so. Both are told to the routing, and data
that was under way over a link that went down is its to send another way. `liveness.py` says when to speak and what
silence means; the timers are set here.
"""

from collections.abc import Callable

from wend.model.events import PeerId
from wend.model.units import FOREVER, Nanos
from wend.protocol.link.hellos import HelloSchedule
from wend.protocol.link.link import Link
from wend.protocol.link.retransmission import Retransmission
from wend.protocol.messages import Hello
from wend.protocol.notices import LINK_DOWN, LINK_UP
from wend.protocol.plugins import Failed, LinkChanged
from wend.protocol.ports import Notice, Send
from wend.protocol.timers import Effects, Timers


class FailureDetector:
    def __init__(
        self,
        liveness: HelloSchedule,
        links: dict[PeerId, Link],
        timers: Timers,
        transmissions: Retransmission,
        route: Callable[[Nanos, LinkChanged | Failed, Effects], None],
    ) -> None:
        self._liveness = liveness
        self._links = links
        self._timers = timers
        self._transmissions = transmissions
        self._route = route
        self._probe_ns: Nanos = FOREVER

    def begin(self, now: Nanos) -> None:
        self._liveness.begin(now)
        self.probe_soon(now)

    def used(self, now: Nanos) -> None:
        """An event came."""
        if self._liveness.used(now):
            self.probe_soon(now)

    def expect(self, now: Nanos, peer: PeerId) -> None:
        """Data was sent: if the link's time is up before the ACK is due, look at that moment."""
        if self._liveness.used(now):
            self.probe_soon(now)
        time_up = self._liveness.time_up(now, self._links[peer])
        if time_up is not None:
            self._timers.at(max(now, time_up), self._check, peer)

    def heard_again(self, now: Nanos, link: Link, effects: Effects) -> bool:
        """A sign of life after silence or unanswered packets: whether it ends the trouble.

        Not over a link that is dead in one direction (RFC 5880 asks for three ways too): it would be found down again
        a moment later, and up again, for as long as that lasts.
        """
        back = link.up or link.hearing
        if back and not link.up:
            link.up = True
            effects.append(Notice(LINK_UP, link.peer))
            self._liveness.rose(now, link.peer)
            self._route(now, LinkChanged(link.peer, True), effects)
        if link.told_deaf:  # it must not go on believing so, however busy the link is
            link.told_deaf = False
            link.sent_ns = now
            effects.append(Send(link.peer, Hello(self._transmissions.incarnation, True)))
        return back

    def unanswered(self, now: Nanos, link: Link, effects: Effects) -> None:
        """A packet was given up over it."""
        if self._liveness.doubted(now, link):
            self._down(now, link, effects)

    def unlinked(self, now: Nanos, peer: PeerId) -> None:
        self._liveness.rose(now, peer)

    # ---------------------------------------------------------------- when time is up

    def probe_soon(self, time: Nanos) -> None:
        self._probe_ns = time
        self._timers.at(time, self._probe, time)

    def _probe(self, now: Nanos, due: Nanos, effects: Effects) -> None:
        if due != self._probe_ns:
            return  # it was asked to come sooner, and did
        silent, again = self._liveness.probe(now, self._transmissions.incarnation, effects)
        self.probe_soon(again)
        for peer in silent:
            self._down(now, self._links[peer], effects)

    def _check(self, now: Nanos, peer: PeerId, effects: Effects) -> None:
        """Data is under way over a link whose time is up if it was not heard since."""
        link = self._links.get(peer)
        if link is not None and now - link.heard_ns >= link.silence_ns:
            self._down(now, link, effects)

    def _down(self, now: Nanos, link: Link, effects: Effects) -> None:
        if link.up:
            waiting = self._transmissions.withdraw(link.peer)  # it will not be answered: no need to wait
            link.fell()
            effects.append(Notice(LINK_DOWN, link.peer))
            self._liveness.fell(now, link.peer)
            for forward in waiting:
                self._route(now, Failed(forward), effects)
            self._route(now, LinkChanged(link.peer, False), effects)
