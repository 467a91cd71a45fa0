"""`hermes`: a tree for each event type, with filters along its branches.

It is the baseline of the dmm paper, with a rendezvous peer for each event type. A peer remembers the filters of the
peers further down, and sends an event only to those with a filter that matches.
"""

from collections.abc import Iterable
from typing import Any, ClassVar

import msgspec

from wend.matching.filters import Filter
from wend.model.events import Event, PeerId
from wend.model.units import Nanos
from wend.protocol.plugins import PeerConfig, Refuse
from wend.strategies.ring.bounded import split_into_batches
from wend.strategies.ring.groups import DownTree, GroupEvents, ToRoot, find_group
from wend.strategies.ring.key_based import Entry, EntryId, KeyBasedInterest
from wend.strategies.ring.reverse_paths import Outgoing, PlacePaths


class WantInGroup(msgspec.Struct, frozen=True, gc=False, tag="gw"):
    """Adds these entries of the sender's branch of the tree."""

    group: str
    entries: tuple[Entry, ...]


class IdsInGroup(msgspec.Struct, frozen=True, gc=False):
    """Some entries of a group."""

    group: str
    ids: tuple[EntryId, ...]


class RenewInGroup(IdsInGroup, frozen=True, gc=False, tag="gr"):
    """Renews these entries of the sender's branch. The receiver requests those that it does not know."""


class UnknownInGroup(IdsInGroup, frozen=True, gc=False, tag="gu"):
    """The answer to `RenewInGroup`: the sender does not know these entries, and requests them."""


class UnwantInGroup(IdsInGroup, frozen=True, gc=False, tag="gx"):
    """Removes these entries of the sender's branch."""


class GroupPaths(PlacePaths[str]):
    """The entries that pass through this peer, by group. The root does not pass them on."""

    def make_announcement(self, place: str, hop: PeerId | None, entries: tuple[Entry, ...]) -> Outgoing | None:
        return None if hop is None else Outgoing(hop, WantInGroup(place, entries))

    def make_withdrawals(self, place: str, hop: PeerId | None, entries: list[Entry]) -> list[Outgoing]:
        ids = [] if hop is None else split_into_batches([entry.id for entry in entries])
        return [Outgoing(hop, UnwantInGroup(place, batch)) for batch in ids if hop is not None]

    def make_renewal(self, place: str, ids: tuple[EntryId, ...]) -> RenewInGroup:
        return RenewInGroup(place, ids)


class Hermes(KeyBasedInterest):
    """A tree for each event type, with filters along its branches."""

    messages: ClassVar[Any] = WantInGroup | RenewInGroup | UnknownInGroup | UnwantInGroup | ToRoot | DownTree

    def __init__(self, config: PeerConfig) -> None:
        super().__init__(config)
        self._paths = GroupPaths(config.peer, self.key_settings.expiry_ns)
        self._events = GroupEvents(self, self._children)

    def status(self) -> dict[str, int]:
        """`groups` whose trees this peer belongs to, and the `entries` of subscriptions that pass through here."""
        return {"groups": len(self._paths.tables), "entries": sum(map(len, self._paths.tables.values()))}

    def _children(self, group: str, event: Event) -> list[PeerId]:
        table = self._paths.tables.get(group)
        return [] if table is None else table.matching_peers(event.attributes)

    def on_published(self, now: Nanos, event: Event, born_ns: Nanos) -> None:
        self._events.publish(now, event, born_ns)

    def on_heard(self, now: Nanos, sender: PeerId, message: Any) -> None:
        match message:
            case ToRoot() | DownTree():
                self._events.on_event(now, sender, message)
            case WantInGroup(group, entries):
                self._carry_out(self._paths.add(now, group, self.next_hop_to(group), sender, entries))
            case RenewInGroup(group, ids):
                unknown = self._paths.renew(now, group, sender, ids)
                if unknown:
                    self.send(sender, UnknownInGroup(group, tuple(unknown)))
            case UnknownInGroup(group, ids):
                self._carry_out(self._paths.on_unknown(group, sender, ids))
            case UnwantInGroup(group, ids):
                self._carry_out(self._paths.remove(group, sender, ids))

    def on_undelivered(self, now: Nanos, peer: PeerId, message: Any) -> None:
        match message:
            case ToRoot():
                self._events.reroute(now, peer, message)
            case DownTree(group, event):
                self.drop_unreached(event.id, peer)
                if self.ring.is_dead(peer):  # else it may only be out of reach for a while
                    self._carry_out(self._paths.remove_peer(group, peer))
            case WantInGroup(group) | RenewInGroup(group):
                self._carry_out(self._paths.reroute(group, peer, self.next_hop_to(group, (peer,))))

    def on_subscribed(self, now: Nanos, entry: Entry, filter_: Filter) -> None:
        group = find_group(filter_)
        self._carry_out(self._paths.add(now, group, self.next_hop_to(group), self.me, (entry,)))

    def on_unsubscribed(self, now: Nanos, entry: Entry, filter_: Filter) -> None:
        self._carry_out(self._paths.remove(find_group(filter_), self.me, (entry.id,)))

    def on_beacon_due(self, now: Nanos) -> None:
        for group in list(self._paths.tables):
            self._carry_out(self._paths.expire(now, group))
        for group, table in self._paths.tables.items():
            hop = self.next_hop_to(group)
            self._carry_out(self._paths.renewals(group) if hop == table.next_hop else self._paths.move(group, hop))

    def on_ownership_changed(self, now: Nanos) -> None:
        for group, table in self._paths.tables.items():
            hop = self.next_hop_to(group)
            if hop != table.next_hop:
                self._carry_out(self._paths.move(group, hop))

    def _carry_out(self, replies: Iterable[Outgoing | Refuse]) -> None:
        for reply in replies:
            if isinstance(reply, Outgoing):
                self.send(*reply)
            else:
                self.out.append(reply)
