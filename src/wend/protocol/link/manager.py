"""Which links there are: all that were given at the start, or those that an overlay asks for as it goes.

An overlay talks to peers that are no neighbours, by letters that may be lost. What it decides becomes links here;
what a new or ended link means to the rest of the peer, the peer says (`linked`, `unlinked`).
"""

from collections import Counter
from collections.abc import Callable

from wend.model.events import PeerId
from wend.model.paths import Path
from wend.model.units import MS, Nanos
from wend.protocol.config import PeerConfig
from wend.protocol.link.link import Link
from wend.protocol.membership import shape
from wend.protocol.membership.settings import MembershipSettings
from wend.protocol.membership.shape import (
    Begun,
    Distrust,
    Leaving,
    OverlayInput,
    Rerouted,
    Ring,
    Rung,
    Say,
    Told,
    Unlink,
)
from wend.protocol.membership.table import overlay
from wend.protocol.messages import PlainMessage
from wend.protocol.ports import FindPath, Neighbour, PathFound, Refuse, Send
from wend.protocol.timers import Effects, Timers

UNKNOWN_DELAY_NS: Nanos = 50 * MS
"""What a link is taken to delay before it is measured, where nobody said."""

TRACES = 3
"""How often a way is asked for that has no end."""

Change = Callable[[Nanos, PeerId, Effects], None]


class LinkManager:
    def __init__(
        self,
        config: PeerConfig,
        links: dict[PeerId, Link],
        timers: Timers,
        linked: Change,
        unlinked: Change,
        traced: Callable[[Nanos, Effects], None] | None,
    ) -> None:
        self._config = config
        self._links = links
        self._timers = timers
        self._linked = linked
        self._unlinked = unlinked
        self._traced = traced
        """Whom to tell when ways are known; None where nobody wants to know them."""
        self._asked: Counter[PeerId] = Counter()
        self._open: set[PeerId] = set()
        self._reachable: dict[PeerId, Neighbour] = {}
        settings = (config.peer, config.incarnation, config.of(MembershipSettings), config.seed)
        self._overlay = None if config.membership is None else overlay(config.membership, *settings)

    def begin(self, now: Nanos, neighbours: tuple[Neighbour, ...]) -> None:
        """Those who can be reached, and where no overlay decides, the links to all of them."""
        self._reachable = {n.peer: n for n in sorted(neighbours, key=lambda n: n.peer)}
        for peer in self._reachable if self._overlay is None else ():
            self._make(now, peer)

    def join(self, now: Nanos, effects: Effects) -> None:
        self._tell(now, Begun(tuple(self._reachable)), effects)

    def leave(self, now: Nanos, effects: Effects) -> None:
        self._tell(now, Leaving(), effects)

    def letter(self, now: Nanos, sender: PeerId, letter: PlainMessage, effects: Effects) -> None:
        if self._overlay is None:
            effects.append(Refuse(sender, "speaks of overlays to one whose links are given"))
        self._tell(now, Told(sender, letter.word), effects)

    def trace(self, effects: Effects) -> None:
        """Ask for the ways beneath links that are not known to their end."""
        for peer, link in self._links.items() if self._traced is not None else ():
            if not _whole(link.path) and self._asked[peer] < TRACES:
                self._asked[peer] += 1
                self._open.add(peer)
                effects.append(FindPath(peer))

    def path_found(self, now: Nanos, event: PathFound, effects: Effects) -> None:
        self._tell(now, event, effects)
        link = self._links.get(event.peer)
        if self._traced is None or event.peer not in self._open:
            return
        self._open.discard(event.peer)
        if link is not None and event.path is not None and any(hop is not None for hop in event.path):
            link.traced(event.path)
        if not self._open:  # told to all once, not link by link
            self._traced(now, effects)

    def _ring(self, now: Nanos, _: None, effects: Effects) -> None:
        self._tell(now, Rung(), effects)

    def _tell(self, now: Nanos, event: OverlayInput, effects: Effects) -> None:
        for answer in () if self._overlay is None else self._overlay.handle(now, event):
            match answer:
                case Say(peer, word):
                    effects.append(Send(peer, PlainMessage(word)))
                case FindPath():
                    effects.append(answer)
                case Ring(time):
                    self._timers.at(time, self._ring, None)
                case Distrust(peer, reason):
                    effects.append(Refuse(peer, reason))
                case shape.Link(peer, path):
                    self._make(now, peer)
                    if self._traced is not None and None not in path:
                        self._links[peer].traced(path)
                    self._linked(now, peer, effects)
                    self.trace(effects)
                case Rerouted(peer, path):
                    if self._traced is not None and None not in path:
                        self._links[peer].traced(path)
                        self._traced(now, effects)
                case Unlink(peer):
                    self._unlinked(now, peer, effects)

    def _make(self, now: Nanos, peer: PeerId) -> None:
        known = self._reachable.get(peer) or Neighbour(peer, UNKNOWN_DELAY_NS)
        self._links[peer] = Link(
            peer, known.delay_ns, known.reliability, self._config, known.wait_ns, known.control_waits, now
        )


def _whole(path: Path) -> bool:
    return bool(path) and path[-1] is not None
