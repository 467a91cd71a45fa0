"""Flooded interest: each peer floods its subscriptions and advertisements, so every peer knows all of them.

It is the simplest interest, and the default. A peer announces a small interest as a whole. It announces a large one by
its changes (`changes.py`), and never more than its summary (`summary.py`). So a change costs one flood of a few bytes,
or nothing if the summary covers it. A new neighbour, or one that missed a change, gets the whole.
"""

from typing import Any, ClassVar

import msgspec

from wend.model.events import PeerId
from wend.model.units import FOREVER, SECOND, US, Nanos
from wend.protocol.plugins import (
    LINK_STATE,
    MAX_CONTROL_BYTES,
    Begun,
    Changed,
    Due,
    Heard,
    Interest,
    InterestLearned,
    LinkChanged,
    Needs,
    PeerConfig,
    PeerForgotten,
    PluginEffect,
    PluginInput,
    Recalled,
    Refuse,
    Remember,
    Slot,
    SubscriptionsChanged,
    Tell,
    Timer,
    View,
)
from wend.strategies.flooded.changes import (
    InterestChange,
    InterestRequest,
    PendingChanges,
    apply_change,
    change_between,
    change_key,
    encoded_bytes,
)
from wend.strategies.subscriptions.table import SMALL_BYTES, PeerInterest, SubscriptionTable

CHANGED = Changed("interest")
_ASK = "ask "
_AWAY = "away "
ASK_NS = SECOND
"""How long a peer waits for a missing change before it asks for the whole. The wait doubles each time."""
MAX_REQUESTS = 6
"""The most requests for one missing change."""
MAX_AHEAD = 1000
"""How far another peer may be ahead in the versions of this peer's interest."""
IN_TRANSIT = 16
"""How many changes of one peer can be in transit over a link. One more replaces the first; the receiver then asks."""


class FloodedTable(SubscriptionTable):
    """The subscriptions that all peers have announced, and the times by which stopped peers will be back."""

    def __init__(self, me: PeerId) -> None:
        super().__init__(me)
        self.back_by: dict[PeerId, Nanos] | None = None
        """By stopped peer, the time until which others store its events; None before the first absence."""

    def knows(self, peers: tuple[PeerId, ...]) -> bool:
        return all(peer in self.interests for peer in peers)

    def stayed_away(self, peer: PeerId, now: Nanos) -> bool:
        return self.back_by is not None and now > self.back_by.get(peer, FOREVER)


class FloodedInterest(Interest):
    """Floods the interest of this peer, and records the interests of all others."""

    needs: ClassVar[Needs] = Needs(graphs=(LINK_STATE,))  # a deadline may be a multiple of the shortest delay
    messages: ClassVar[Any] = PeerInterest | InterestChange | InterestRequest

    def __init__(self, config: PeerConfig) -> None:
        self.subscriptions = FloodedTable(config.peer)
        super().__init__(config, self.subscriptions)
        self._pending: PendingChanges | None = None
        """None until a change has to wait."""
        self._stored: dict[PeerId, tuple[int, int]] | None = None
        """By origin, the number and size of the changes stored since the last whole; with persistence only."""

    def handle(self, now: Nanos, event: PluginInput, view: View) -> list[PluginEffect]:
        match event:
            case SubscriptionsChanged() | Due("announce"):
                return self._announce(now, view)
            case Heard(sender, PeerInterest() as message):
                return self._on_interest(now, sender, message, view)
            case Heard(sender, InterestChange() as message):
                return self._on_change(now, sender, message, view)
            case Heard(sender, InterestRequest(origin)) if origin in self.subscriptions.interests:
                return [Tell(sender, ("i", origin), self.subscriptions.interests[origin])]
            case LinkChanged(peer, up=True, fresh=True):
                return [
                    Tell(peer, ("i", origin), known) for origin, known in sorted(self.subscriptions.interests.items())
                ]
            case Recalled(PeerInterest() as message):
                known = self.subscriptions.interests.get(message.origin)
                if known is None or known.version < message.version:
                    self.subscriptions.replace_interest(message)
                    self._restore_changes(message.origin)
                    return self._record_absence(now, message)
            case Recalled(InterestChange() as message):
                self._add_pending(message.origin, message)
                self._restore_changes(message.origin)
            case PeerForgotten(peer):
                return self._forget_peer(now, peer, view)
            case Begun():
                self._pending = None
            case Due(name) if name.startswith(_AWAY):
                return self._on_absence_expired(now, int(name.removeprefix(_AWAY)))
            case Due(name):
                return self._request_whole(now, int(name.removeprefix(_ASK)))
        return []

    def status(self) -> dict[str, int]:
        """The deadlines that subscriptions with a relative deadline have, in microseconds, by publisher."""
        resolved = self.subscriptions.relative_deadlines()
        return {f"deadline_us.{publisher}": resolved[publisher] // US for publisher in sorted(resolved)}

    # ---------------------------------------------------------------- this peer's own interest

    def _announce(self, now: Nanos, view: View) -> list[PluginEffect]:
        postponed = self.subscriptions.postpone_announcement(now)
        if postponed is not None:
            return postponed
        old, replaced = self.subscriptions.interests.get(view.me), self.subscriptions.own.summary.is_replaced
        new = self.subscriptions.next_announcement(view)
        message: PeerInterest | InterestChange = new
        changes_more = old is not None and (old.durable, old.away_ns) != (new.durable, new.away_ns)
        if old is not None and not replaced and not changes_more and encoded_bytes(new) > SMALL_BYTES:
            change = change_between(old, new)
            if 2 * encoded_bytes(change) <= encoded_bytes(new):
                message = change
        return [CHANGED, *(Tell(n, message_slot(message), message) for n in view.neighbours)]

    # ---------------------------------------------------------------- the interest of others

    def _on_interest(self, now: Nanos, sender: PeerId, message: PeerInterest, view: View) -> list[PluginEffect]:
        known = self.subscriptions.interests.get(message.origin)
        if known is not None and known.version >= message.version:
            return []
        if message.origin == view.me:
            return [] if known is None else self._announce_again(known, message, view)
        if not all(subscription.qos.is_valid() for subscription in message.subscriptions):
            return [Refuse(sender, "invalid-qos")]
        if not self.subscriptions.replace_interest(message):
            return [Refuse(sender, "filter-syntax")]
        if view.persistence:
            self._count_stored(message.origin, 0, 0)
        is_back = message.durable and known is not None and known.version[0] != message.version[0]
        return [
            Remember(message.origin, message),
            CHANGED,
            *(Tell(n, message_slot(message), message) for n in view.neighbours if n != sender),
            InterestLearned(message.origin, is_back),
            *self._record_absence(now, message),
            *self._apply_pending(now, message.origin, view),
        ]

    def _forget_peer(self, now: Nanos, peer: PeerId, view: View) -> list[PluginEffect]:
        """Announce on behalf of a peer that it has stopped, and will not be back."""
        known = self.subscriptions.interests[peer]
        version = (known.version[0], known.version[1] + 1)
        return self._on_interest(now, view.me, msgspec.structs.replace(known, version=version, away_ns=1), view)

    def _announce_again(self, known: PeerInterest, message: PeerInterest, view: View) -> list[PluginEffect]:
        """Announce this peer's interest again, because another peer has said that it is gone."""
        if message.version[0] != known.version[0] or message.version[1] > known.version[1] + MAX_AHEAD:
            return []
        self.subscriptions.skip_to_revision(message.version[1])
        new = self.subscriptions.next_announcement(view)
        return [CHANGED, *(Tell(neighbour, message_slot(new), new) for neighbour in view.neighbours)]

    def _on_change(self, now: Nanos, sender: PeerId, message: InterestChange, view: View) -> list[PluginEffect]:
        origin = message.origin
        known = self.subscriptions.interests.get(origin)
        if origin == view.me or (known is not None and known.version >= message.version):
            return []
        if known is None or known.version != message.since:
            pending = self._add_pending(sender, message)
            if origin in pending.requests:
                return []
            pending.requests[origin] = 0
            return [Timer(now + ASK_NS, f"{_ASK}{origin}")]
        if not all(subscription.qos.is_valid() for subscription in message.added):
            return [Refuse(sender, "invalid-qos")]
        new = apply_change(known, message)
        if new is None:
            return [Tell(sender, ("q", origin), InterestRequest(origin))]
        if encoded_bytes(new) > MAX_CONTROL_BYTES:
            return [Refuse(sender, "too-much-interest")]
        if not self.subscriptions.replace_interest(new):
            return [Refuse(sender, "filter-syntax")]
        return [
            *(self._store_change(message, new) if view.persistence else ()),
            CHANGED,
            *(Tell(n, message_slot(message), message) for n in view.neighbours if n != sender),
            InterestLearned(origin),
            *self._apply_pending(now, origin, view),
        ]

    def _record_absence(self, now: Nanos, message: PeerInterest) -> list[PluginEffect]:
        """Record the time by which a stopped peer will be back."""
        times = self.subscriptions.back_by or {}
        times.pop(message.origin, None)
        if message.away_ns <= 0:
            return []
        times[message.origin] = back_by = min(now + message.away_ns, FOREVER)
        self.subscriptions.back_by = times
        return [Timer(back_by + 1, f"{_AWAY}{message.origin}")]

    def _on_absence_expired(self, now: Nanos, origin: PeerId) -> list[PluginEffect]:
        """Drop the interest of a peer that is not back in time. It announces its interest again when it returns."""
        if not self.subscriptions.stayed_away(origin, now):
            return []
        self.subscriptions.replace_interest(
            msgspec.structs.replace(self.subscriptions.interests[origin], subscriptions=(), advertisements=())
        )
        return [CHANGED]

    def _apply_pending(self, now: Nanos, origin: PeerId, view: View) -> list[PluginEffect]:
        pending = None if self._pending is None else self._pending.take(self.subscriptions.interests[origin])
        return [] if pending is None else self._on_change(now, *pending, view)

    def _add_pending(self, sender: PeerId, message: InterestChange) -> PendingChanges:
        if self._pending is None:
            self._pending = PendingChanges()
        self._pending.add(sender, message)
        return self._pending

    def _request_whole(self, now: Nanos, origin: PeerId) -> list[PluginEffect]:
        """Request the whole of a peer's interest, if changes still wait for earlier ones."""
        pending = self._pending
        if pending is None:
            return []
        count = pending.requests.pop(origin, 0)
        if origin not in pending:
            return []
        sender = pending.sender(origin)
        if count >= MAX_REQUESTS:
            pending.forget(origin)
            return []
        pending.requests[origin] = count + 1
        return [
            Tell(sender, ("q", origin), InterestRequest(origin)),
            Timer(now + (ASK_NS << count + 1), f"{_ASK}{origin}"),
        ]

    # ---------------------------------------------------------------- storage for restarts

    def _store_change(self, change: InterestChange, whole: PeerInterest) -> list[Remember]:
        """The record to store: the change, or the whole if the changes since the last whole take as much room."""
        origin = change.origin
        count, size = (self._stored or {}).get(origin, (0, MAX_CONTROL_BYTES))
        size += encoded_bytes(change)
        if size >= encoded_bytes(whole):
            self._count_stored(origin, 0, 0)
            return [Remember(origin, whole)]
        self._count_stored(origin, count + 1, size)
        return [Remember(change_key(origin, count), change)]

    def _count_stored(self, origin: PeerId, count: int, size: int) -> None:
        if self._stored is None:
            self._stored = {}
        self._stored[origin] = (count, size)

    def _restore_changes(self, origin: PeerId) -> None:
        """Apply the changes that an earlier incarnation stored, as far as they fit. They arrive in any order."""
        while origin in self.subscriptions.interests and self._pending is not None:
            pending = self._pending.take(self.subscriptions.interests[origin])
            new = None if pending is None else apply_change(self.subscriptions.interests[origin], pending[1])
            if new is None or not self.subscriptions.replace_interest(new):
                return


def message_slot(message: PeerInterest | InterestChange) -> Slot:
    """The slot of a message. A whole replaces an older one; several changes may be in transit, since they build on each
    other."""
    name = "i" if type(message) is PeerInterest else f"i{message.version[1] % IN_TRANSIT}"
    return name, message.origin
