"""Reports drops, notices, refusals and failures of a live peer to its counters, its log and its observers."""

import logging

from wend.drivers.live.addressing.joining import Joining
from wend.drivers.live.counters import Counters, FailureCode
from wend.drivers.live.observer import Observers
from wend.drivers.live.transport.link_log import LinkLog
from wend.model.events import PeerId
from wend.protocol.messages import MAX_CONTROL_BYTES
from wend.protocol.notices import LINK_DOWN, LINK_UP, TOO_LARGE, NoticeName
from wend.protocol.ports import Drop, Effect, Input, Notice, Refuse

log = logging.getLogger("wend.peer")

_LOGGED_FAILURES = 20
_DOUBTS: tuple[NoticeName, ...] = ("retransmit", "undelivered")
"""Notices after which a peer without a link may have another address."""
_LINK_CHANGES: dict[NoticeName, bool] = {LINK_UP: True, "linked": True, LINK_DOWN: False, "unlinked": False}


class FailureLog:
    """Counts mistakes in Wend itself, and logs the first few with their cause."""

    def __init__(self, peer: PeerId, counters: Counters) -> None:
        self._peer = peer
        self._counters = counters

    def count_failure(self, code: FailureCode, what: Input | Effect) -> None:
        """Call it while the exception is handled."""
        self._counters.failed[code] += 1
        if self._counters.failed.total() <= _LOGGED_FAILURES:
            log.exception("peer %d goes on after a failure: %s (%s)", self._peer, code, type(what).__name__)


class PeerReports:
    """Carries out the effects that only report something."""

    def __init__(
        self, peer: PeerId, counters: Counters, observers: Observers, link_log: LinkLog, joining: Joining | None
    ) -> None:
        self._peer = peer
        self._counters = counters
        self._observers = observers
        self._link_log = link_log
        self._joining = joining

    def report_drop(self, effect: Drop) -> None:
        self._counters.drops[effect.code] += max(1, len(effect.dests))

    def report_refusal(self, effect: Refuse) -> None:
        self._counters.refused[effect.code] += 1

    def report_notice(self, effect: Notice) -> None:
        self._counters.notices[effect.what] += effect.count
        if effect.what == TOO_LARGE:
            log.warning("peer %d cannot tell %d more than %d bytes at once", self._peer, effect.peer, MAX_CONTROL_BYTES)
        if self._observers.on_notice:
            self._observers.notify(self._observers.on_notice, effect, effect)
        if self._joining is not None and effect.what in _DOUBTS:
            self._joining.recheck_address(effect.peer)
        if effect.what in _LINK_CHANGES:
            self._on_link_change(effect, _LINK_CHANGES[effect.what])

    def _on_link_change(self, notice: Notice, up: bool) -> None:
        self._link_log.log_change(notice)
        if self._joining is not None and not up:
            self._joining.on_link_down(notice.peer)
        if self._observers.on_link_change:
            self._observers.notify(self._observers.on_link_change, notice, notice.peer, up)
