"""Changes of a peer's interest, which it announces instead of the whole of a large interest.

A change names the version that it builds on. The receiver applies it to that version, and a digest shows whether both
peers have the same result. Changes may overtake each other, and a store recalls them in any order. So a change waits
for the ones before it.
"""

from zlib import crc32

import msgspec

from wend.model.events import PeerId, Subscription
from wend.model.keys import key_of
from wend.strategies.subscriptions.table import PeerInterest

HELD = 64
"""The most changes of one peer that wait for earlier ones."""

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


def digest_of(interest: PeerInterest) -> int:
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
        digest_of(new),
        added,
        tuple([id_.number for id_ in before]),
        tuple([text for text in new.advertisements if text not in old.advertisements]),
        tuple([text for text in old.advertisements if text not in new.advertisements]),
    )


def changed_by(old: PeerInterest, change: InterestChange) -> PeerInterest | None:
    """The interest after a change; None if the result differs from the sender's."""
    removed, withdrawn = set(change.removed), set(change.withdrawn)
    subscriptions = {s.id: s for s in old.subscriptions if s.id.number not in removed}
    subscriptions.update({s.id: s for s in change.added})
    offers = dict.fromkeys([text for text in old.advertisements if text not in withdrawn])
    offers.update(dict.fromkeys(change.offered))
    in_order = tuple([subscriptions[id_] for id_ in sorted(subscriptions)])
    new = PeerInterest(old.origin, change.version, in_order, tuple(offers), old.durable)
    return new if digest_of(new) == change.digest else None


def change_key(origin: PeerId, number: int) -> int:
    """The key under which a peer remembers a change. It is below 0: peers' ids are the keys of whole interests."""
    return -1 - (key_of(f"{origin}", f"{number}") >> 66)


class HeldChanges:
    """Changes that wait for the ones before them, by origin, each with its sender."""

    __slots__ = ("_held", "asks")

    def __init__(self) -> None:
        self.asks: dict[PeerId, int] = {}
        """By origin: how often this peer has asked for the whole, while a timer runs."""
        self._held: dict[PeerId, dict[Version, tuple[PeerId, InterestChange]]] = {}

    def __contains__(self, origin: PeerId) -> bool:
        return origin in self._held

    def add(self, sender: PeerId, change: InterestChange) -> None:
        held = self._held.setdefault(change.origin, {})
        held[change.since] = (sender, change)
        if len(held) > HELD:
            del held[min(held)]

    def take(self, known: PeerInterest) -> tuple[PeerId, InterestChange] | None:
        """The change that builds on this version. Older changes are dropped."""
        held = self._held.get(known.origin)
        if held is None:
            return None
        found = held.pop(known.version, None)
        for since in [since for since, (_, change) in held.items() if change.version <= known.version]:
            del held[since]
        if not held:
            del self._held[known.origin]
        return found

    def sender(self, origin: PeerId) -> PeerId:
        """The peer that sent the newest change of this origin."""
        held = self._held[origin]
        return held[max(held)][0]

    def forget(self, origin: PeerId) -> None:
        self._held.pop(origin, None)
