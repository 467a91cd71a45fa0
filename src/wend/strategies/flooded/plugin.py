"""Flooded interest: each peer floods its subscriptions and advertisements, so every peer knows all of them.

It is the simplest interest, and the default. A peer announces a small interest as a whole. It announces a large one by
its changes (`changes.py`), and never more than its summary (`summary.py`). So a change costs one flood of a few bytes,
or nothing if the summary covers it. A new neighbour, or one that missed a change, gets the whole.
"""

from typing import Any, ClassVar

import msgspec

from wend.model.events import PeerId
from wend.model.units import FOREVER, SECOND, Nanos
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
    HeldChanges,
    InterestChange,
    InterestRequest,
    change_between,
    change_key,
    changed_by,
    encoded_bytes,
)
from wend.strategies.subscriptions.table import SMALL_BYTES, PeerInterest, SubscriptionTable

CHANGED = Changed("interest")
_ASK = "ask "
_AWAY = "away "
ASK_NS = SECOND
"""How long a peer waits for a missing change before it asks for the whole. The wait doubles each time."""
MAX_REQUESTS = 6
"""How often it asks."""
IN_TRANSIT = 16
"""How many changes of one peer can be in transit over a link. One more replaces the first; the receiver then asks."""


class FloodedTable(SubscriptionTable):
    """The subscriptions that all peers have announced, and until when those that stopped will be back."""

    def __init__(self, me: PeerId) -> None:
        super().__init__(me)
        self.back_by: dict[PeerId, Nanos] | None = None
        """By peer that stopped and will be back: until when others store events for it; None before the first one."""

    def knows(self, peers: tuple[PeerId, ...]) -> bool:
        return all(peer in self.known for peer in peers)

    def stayed_away(self, peer: PeerId, now: Nanos) -> bool:
        return self.back_by is not None and now > self.back_by.get(peer, FOREVER)


class FloodedInterest(Interest):
    """Floods the interest of this peer, and learns that of all others."""

    needs: ClassVar[Needs] = Needs(graphs=(LINK_STATE,))  # a deadline may be a multiple of the shortest delay
    messages: ClassVar[Any] = PeerInterest | InterestChange | InterestRequest

    def __init__(self, config: PeerConfig) -> None:
        self.subscriptions = FloodedTable(config.peer)
        super().__init__(config, self.subscriptions)
        self._held: HeldChanges | None = None
        """None before a change has to wait."""
        self._stored: dict[PeerId, tuple[int, int]] | None = None
        """By origin: the number and the bytes of the changes stored since the whole; with persistence only."""

    def handle(self, now: Nanos, event: PluginInput, view: View) -> list[PluginEffect]:
        match event:
            case SubscriptionsChanged() | Due("announce"):
                return self._announce(now, view)
            case Heard(sender, PeerInterest() as told):
                return self._learn_whole(now, sender, told, view)
            case Heard(sender, InterestChange() as told):
                return self._learn_change(now, sender, told, view)
            case Heard(sender, InterestRequest(origin)) if origin in self.subscriptions.known:
                return [Tell(sender, ("i", origin), self.subscriptions.known[origin])]
            case LinkChanged(peer, up=True, fresh=True):
                return [Tell(peer, ("i", origin), known) for origin, known in sorted(self.subscriptions.known.items())]
            case Recalled(PeerInterest() as told):
                known = self.subscriptions.known.get(told.origin)
                if known is None or known.version < told.version:
                    self.subscriptions.learn(told)
                    self._recall_changes(told.origin)
                    return self._note_away(now, told)
            case Recalled(InterestChange() as told):
                self._hold(told.origin, told)
                self._recall_changes(told.origin)
            case Begun():
                self._held = None
            case Due(name) if name.startswith(_AWAY):
                return self._stays_away(now, int(name.removeprefix(_AWAY)))
            case Due(name):
                return self._ask(now, int(name.removeprefix(_ASK)))
        return []

    # ---------------------------------------------------------------- this peer's own interest

    def _announce(self, now: Nanos, view: View) -> list[PluginEffect]:
        later = self.subscriptions.postponed(now)
        if later is not None:
            return later
        old, replaced = self.subscriptions.known.get(view.me), self.subscriptions.own.summary.replaced
        new = self.subscriptions.announced(view)
        told: PeerInterest | InterestChange = new
        says_more = old is not None and (old.durable, old.away_ns) != (new.durable, new.away_ns)
        if old is not None and not replaced and not says_more and encoded_bytes(new) > SMALL_BYTES:
            change = change_between(old, new)
            if 2 * encoded_bytes(change) <= encoded_bytes(new):
                told = change
        return [CHANGED, *(Tell(n, slot_of(told), told) for n in view.neighbours)]

    # ---------------------------------------------------------------- the interest of others

    def _learn_whole(self, now: Nanos, sender: PeerId, told: PeerInterest, view: View) -> list[PluginEffect]:
        known = self.subscriptions.known.get(told.origin)
        if told.origin == view.me or (known is not None and known.version >= told.version):
            return []
        if not all(subscription.qos.can_be() for subscription in told.subscriptions):
            return [Refuse(sender, "invalid-qos")]
        if not self.subscriptions.learn(told):
            return [Refuse(sender, "filter-syntax")]
        if view.persistence:
            self._remembered(told.origin, 0, 0)
        returned = told.durable and known is not None and known.version[0] != told.version[0]
        return [
            Remember(told.origin, told),
            CHANGED,
            *(Tell(n, slot_of(told), told) for n in view.neighbours if n != sender),
            InterestLearned(told.origin, returned),
            *self._note_away(now, told),
            *self._learn_held(now, told.origin, view),
        ]

    def _learn_change(self, now: Nanos, sender: PeerId, told: InterestChange, view: View) -> list[PluginEffect]:
        origin = told.origin
        known = self.subscriptions.known.get(origin)
        if origin == view.me or (known is not None and known.version >= told.version):
            return []
        if known is None or known.version != told.since:
            held = self._hold(sender, told)
            if origin in held.asks:
                return []
            held.asks[origin] = 0
            return [Timer(now + ASK_NS, f"{_ASK}{origin}")]
        if not all(subscription.qos.can_be() for subscription in told.added):
            return [Refuse(sender, "invalid-qos")]
        new = changed_by(known, told)
        if new is None:
            return [Tell(sender, ("q", origin), InterestRequest(origin))]
        if encoded_bytes(new) > MAX_CONTROL_BYTES:
            return [Refuse(sender, "too-much-interest")]
        if not self.subscriptions.learn(new):
            return [Refuse(sender, "filter-syntax")]
        return [
            *(self._remember(told, new) if view.persistence else ()),
            CHANGED,
            *(Tell(n, slot_of(told), told) for n in view.neighbours if n != sender),
            InterestLearned(origin),
            *self._learn_held(now, origin, view),
        ]

    def _note_away(self, now: Nanos, told: PeerInterest) -> list[PluginEffect]:
        """Note until when a peer that has stopped will be back."""
        times = self.subscriptions.back_by or {}
        times.pop(told.origin, None)
        if told.away_ns <= 0:
            return []
        times[told.origin] = back_by = min(now + told.away_ns, FOREVER)
        self.subscriptions.back_by = times
        return [Timer(back_by + 1, f"{_AWAY}{told.origin}")]

    def _stays_away(self, now: Nanos, origin: PeerId) -> list[PluginEffect]:
        """Send nothing more to a peer that is not back in time. It announces its interest again when it returns."""
        if not self.subscriptions.stayed_away(origin, now):
            return []
        self.subscriptions.learn(
            msgspec.structs.replace(self.subscriptions.known[origin], subscriptions=(), advertisements=())
        )
        return [CHANGED]

    def _learn_held(self, now: Nanos, origin: PeerId, view: View) -> list[PluginEffect]:
        held = None if self._held is None else self._held.take(self.subscriptions.known[origin])
        return [] if held is None else self._learn_change(now, *held, view)

    def _hold(self, sender: PeerId, told: InterestChange) -> HeldChanges:
        if self._held is None:
            self._held = HeldChanges()
        self._held.add(sender, told)
        return self._held

    def _ask(self, now: Nanos, origin: PeerId) -> list[PluginEffect]:
        """Ask for the whole of a peer's interest, if changes still wait for earlier ones."""
        held = self._held
        if held is None:
            return []
        asked = held.asks.pop(origin, 0)
        if origin not in held:
            return []
        sender = held.sender(origin)
        if asked >= MAX_REQUESTS:
            held.forget(origin)
            return []
        held.asks[origin] = asked + 1
        return [
            Tell(sender, ("q", origin), InterestRequest(origin)),
            Timer(now + (ASK_NS << asked + 1), f"{_ASK}{origin}"),
        ]

    # ---------------------------------------------------------------- what a restart needs

    def _remember(self, change: InterestChange, whole: PeerInterest) -> list[Remember]:
        """Store the change, or the whole if the changes since the last whole take as much room."""
        origin = change.origin
        count, size = (self._stored or {}).get(origin, (0, MAX_CONTROL_BYTES))
        size += encoded_bytes(change)
        if size >= encoded_bytes(whole):
            self._remembered(origin, 0, 0)
            return [Remember(origin, whole)]
        self._remembered(origin, count + 1, size)
        return [Remember(change_key(origin, count), change)]

    def _remembered(self, origin: PeerId, count: int, size: int) -> None:
        if self._stored is None:
            self._stored = {}
        self._stored[origin] = (count, size)

    def _recall_changes(self, origin: PeerId) -> None:
        """Apply the changes that an earlier incarnation stored, as far as they fit. They come in any order."""
        while origin in self.subscriptions.known and self._held is not None:
            held = self._held.take(self.subscriptions.known[origin])
            new = None if held is None else changed_by(self.subscriptions.known[origin], held[1])
            if new is None or not self.subscriptions.learn(new):
                return


def slot_of(told: PeerInterest | InterestChange) -> Slot:
    """A whole replaces an older one. Changes build on each other, so several may be in transit at once."""
    name = "i" if type(told) is PeerInterest else f"i{told.version[1] % IN_TRANSIT}"
    return name, told.origin
