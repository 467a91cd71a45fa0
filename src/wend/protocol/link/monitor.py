"""Every period links are what was measured of them, and those who missed something are knocked at."""

from wend.model.events import PeerId
from wend.model.units import Nanos
from wend.protocol.config import LinkSettings, PeerConfig
from wend.protocol.host import Host
from wend.protocol.link.link import Link
from wend.protocol.link.manager import LinkManager
from wend.protocol.plugins import Tell
from wend.protocol.timers import Effects, Timers


class LinkMonitor:
    def __init__(
        self,
        config: PeerConfig,
        links: dict[PeerId, Link],
        timers: Timers,
        carrier: Host,
        neighbourhood: LinkManager,
    ) -> None:
        self._me = config.peer
        self._period_ns = config.of(LinkSettings).monitoring_ns
        self._links = links
        self._timers = timers
        self._carrier = carrier
        self._neighbourhood = neighbourhood
        self._life = config.incarnation

    def begin(self, now: Nanos) -> None:
        # peers that start together should not all measure, and flood, together
        apart = self._me * 0x9E3779B1 % 1024 * self._period_ns // 1024
        self._timers.at(now + self._period_ns + apart, self._first, None)

    def _first(self, now: Nanos, _: None, effects: Effects) -> None:
        for link in self._links.values():
            link.forgive_losses()
        self._look(now, None, effects)

    def _look(self, now: Nanos, _: None, effects: Effects) -> None:
        self._timers.at(now + self._period_ns, self._look, None)
        carrier, transmissions = self._carrier, self._carrier.transmissions
        slot = ("l", self._me)
        for peer, link in self._links.items():
            if link.missed and not transmissions.telling(peer, slot):
                # silent since it missed something: knock, and its answer brings it the rest
                carrier.tell(now, Tell(peer, slot, carrier.graph.of(self._me)), effects)
        if transmissions.life != self._life:  # numbers ran over: neighbours take it for a new life
            self._life = transmissions.life
            for peer in carrier.view.neighbours:
                carrier.resync(now, peer, effects)
        self._neighbourhood.trace(effects)
        changed = [link.adopt() for link in self._links.values()]
        if any(changed):
            carrier.flood_links(now, effects)
