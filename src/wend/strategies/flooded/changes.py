"""Changes of a peer's interest, which it announces instead of the whole of a large interest.

A change names the version that it builds on. The receiver applies it to that version, and a digest shows whether both
peers have the same result. Changes may overtake each other, and the store returns them in any order. So a change waits
for earlier ones.
"""

from zlib import crc32

import msgspec

from wend.model.events import PeerId, Subscription
from wend.model.keys import make_key
from wend.strategies.subscriptions.table import PeerInterest

MAX_PENDING = 64
"""The most changes of one peer that may wait for earlier ones."""

Version = tuple[int, int]

_encoder = msgspec.msgpack.Encoder()


class InterestChange(msgspec.Struct, frozen=True, gc=False, tag="c"):
    """The subscriptions and advertisements that a peer added and removed since a version."""

    origin: PeerId
    version: Version
    since: Version
    """The version that this change builds on."""
    digest: int
    """The CRC32 of the subscriptions and advertisements of this version, as they are in a `PeerInterest`."""
    added: tuple[Subscription, ...] = ()
    """A subscription with a known number replaces that one."""
    removed: tuple[int, ...] = ()
    """The numbers of subscriptions."""
    offered: tuple[str, ...] = ()
    """New advertisements."""
    withdrawn: tuple[str, ...] = ()


class InterestRequest(msgspec.Struct, frozen=True, gc=False, tag="q"):
    """Asks a neighbour for the whole interest of a peer, because changes were lost or do not fit."""

    origin: PeerId


def interest_digest(interest: PeerInterest) -> int:
    return crc32(_encoder.encode((interest.subscriptions, interest.advertisements)))


def encoded_bytes(message: PeerInterest | InterestChange) -> int:
    return len(_encoder.encode(message))


def change_between(old: PeerInterest, new: PeerInterest) -> InterestChange:
    before = {s.id: s for s in old.subscriptions}
    added = tuple([s for s in new.subscriptions if before.pop(s.id, None) != s])
    return InterestChange(
        new.origin,
        new.version,
        old.version,
        interest_digest(new),
        added,
        tuple([id_.number for id_ in before]),
        tuple([text for text in new.advertisements if text not in old.advertisements]),
        tuple([text for text in old.advertisements if text not in new.advertisements]),
    )


def apply_change(old: PeerInterest, change: InterestChange) -> PeerInterest | None:
    """The interest after a change; None if the result differs from the sender's."""
    removed, withdrawn = set(change.removed), set(change.withdrawn)
    subscriptions = {s.id: s for s in old.subscriptions if s.id.number not in removed}
    subscriptions.update({s.id: s for s in change.added})
    offers = dict.fromkeys([text for text in old.advertisements if text not in withdrawn])
    offers.update(dict.fromkeys(change.offered))
    in_order = tuple([subscriptions[id_] for id_ in sorted(subscriptions)])
    new = PeerInterest(old.origin, change.version, in_order, tuple(offers), old.durable)
    return new if interest_digest(new) == change.digest else None


def change_key(origin: PeerId, number: int) -> int:
    """The key under which a peer remembers a change. It is below 0: peers' ids are the keys of whole interests."""
    return -1 - (make_key(f"{origin}", f"{number}") >> 66)


class PendingChanges:
    """Changes that wait for the ones before them, by origin, each with its sender."""

    __slots__ = ("_pending", "requests")

    def __init__(self) -> None:
        self.requests: dict[PeerId, int] = {}
        """By origin, the number of requests for the whole, while a timer runs."""
        self._pending: dict[PeerId, dict[Version, tuple[PeerId, InterestChange]]] = {}

    def __contains__(self, origin: PeerId) -> bool:
        return origin in self._pending

    def add(self, sender: PeerId, change: InterestChange) -> None:
        pending = self._pending.setdefault(change.origin, {})
        pending[change.since] = (sender, change)
        if len(pending) > MAX_PENDING:
            del pending[min(pending)]

    def take(self, known: PeerInterest) -> tuple[PeerId, InterestChange] | None:
        """Remove and return the change that builds on this version, or None. Drop older changes."""
        pending = self._pending.get(known.origin)
        if pending is None:
            return None
        change = pending.pop(known.version, None)
        for since in [since for since, (_, change) in pending.items() if change.version <= known.version]:
            del pending[since]
        if not pending:
            del self._pending[known.origin]
        return change

    def sender(self, origin: PeerId) -> PeerId:
        """The sender of the newest pending change of this origin."""
        pending = self._pending[origin]
        return pending[max(pending)][0]

    def forget(self, origin: PeerId) -> None:
        self._pending.pop(origin, None)
