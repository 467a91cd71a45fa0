"""The link monitor: every period it adopts the estimates of links, and probes neighbours that missed control."""

from collections.abc import Callable

from wend.model.events import PeerId
from wend.model.units import Nanos
from wend.protocol.config import LinkSettings, PeerConfig
from wend.protocol.link.in_flight import OutgoingControl
from wend.protocol.link.link import Link
from wend.protocol.link.manager import LinkManager
from wend.protocol.link.retransmission import Retransmission
from wend.protocol.timers import Effects, Timers


class LinkMonitor:
    __slots__ = (
        "_changed",
        "_incarnation",
        "_links",
        "_manager",
        "_me",
        "_period_ns",
        "_resync",
        "_retransmission",
        "_timers",
    )

    def __init__(
        self,
        config: PeerConfig,
        links: dict[PeerId, Link],
        timers: Timers,
        retransmission: Retransmission,
        manager: LinkManager,
        resync: Callable[[Nanos, PeerId, Effects], None],
        changed: Callable[[Nanos, Effects], None],
    ) -> None:
        self._me = config.peer
        self._period_ns = config.of(LinkSettings).monitoring_ns
        self._links = links
        self._timers = timers
        self._retransmission = retransmission
        self._manager = manager
        self._resync = resync
        self._changed = changed
        self._incarnation = config.incarnation

    def begin(self, now: Nanos) -> None:
        # peers that start together should not all flood their estimates at the same time
        apart = self._me * 0x9E3779B1 % 1024 * self._period_ns // 1024
        self._timers.set_timer(now + self._period_ns + apart, self._end_first_period, None)

    def _end_first_period(self, now: Nanos, _: None, effects: Effects) -> None:
        for link in self._links.values():
            link.discount_losses()
        self._end_period(now, None, effects)

    def _end_period(self, now: Nanos, _: None, effects: Effects) -> None:
        self._timers.set_timer(now + self._period_ns, self._end_period, None)
        retransmission = self._retransmission
        for peer, link in self._links.items():
            if link.missed and not retransmission.control.is_repeated_to(peer):
                # the neighbour has been silent since; when it acknowledges this, plug-ins send it their full state
                retransmission.control.send(now, OutgoingControl(peer, "", None, None), effects)
        if retransmission.incarnation != self._incarnation:  # numbers overflowed, so neighbours see a new incarnation
            self._incarnation = retransmission.incarnation
            for peer in sorted(self._links):
                self._resync(now, peer, effects)
        self._manager.request_paths(effects)
        changed = [link.end_period() for link in self._links.values()]
        if any(changed):
            self._changed(now, effects)
