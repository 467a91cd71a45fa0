"""`hermes`: a tree for each event type, with filters along its branches.

It is the baseline of the dmm paper, with a rendezvous peer for each event type. A peer remembers the filters of the
peers further down, and sends an event only where one of them matches.
"""

from collections.abc import Iterable
from typing import Any, ClassVar

import msgspec

from wend.matching.filters import Filter
from wend.model.errors import FilterError
from wend.model.events import Event, PeerId
from wend.model.units import Nanos
from wend.protocol.plugins import PeerConfig
from wend.strategies.ring.groups import DownTree, GroupEvents, ToRoot, group_of
from wend.strategies.ring.key_based import Entry, EntryId, KeyBasedInterest, batches
from wend.strategies.ring.reverse_paths import Branch, ReversePaths


class WantInGroup(msgspec.Struct, frozen=True, gc=False, tag="gw"):
    """The sender's branch of the tree wants what these entries say."""

    group: str
    entries: tuple[Entry, ...]


class RenewInGroup(msgspec.Struct, frozen=True, gc=False, tag="gr"):
    """The sender's branch still wants them. The receiver asks for entries that it does not know."""

    group: str
    ids: tuple[EntryId, ...]


class UnknownInGroup(msgspec.Struct, frozen=True, gc=False, tag="gu"):
    """The answer to `RenewInGroup`: the receiver should tell these entries again."""

    group: str
    ids: tuple[EntryId, ...]


class UnwantInGroup(msgspec.Struct, frozen=True, gc=False, tag="gx"):
    """The sender's branch no longer wants what these entries say."""

    group: str
    ids: tuple[EntryId, ...]


class Hermes(KeyBasedInterest):
    """A tree for each event type, with filters along its branches."""

    messages: ClassVar[Any] = WantInGroup | RenewInGroup | UnknownInGroup | UnwantInGroup | ToRoot | DownTree

    def __init__(self, config: PeerConfig) -> None:
        super().__init__(config)
        self._paths: dict[str, ReversePaths] = {}
        self._events = GroupEvents(config.peer, self.next_hop_to, self._children, self.to_hop)

    def status(self) -> dict[str, int]:
        """`groups` whose trees this peer belongs to, and the `entries` of subscriptions that pass through here."""
        return {"groups": len(self._paths), "entries": sum(map(len, self._paths.values()))}

    def _children(self, group: str, event: Event) -> list[PeerId]:
        paths = self._paths.get(group)
        return [] if paths is None else paths.towards(event.attributes)

    def on_published(self, now: Nanos, event: Event, born_ns: Nanos) -> None:
        if self.ring.joined:
            self.out += self._events.publish(now, event, born_ns)
        else:
            self.drop_too_early(event.id)

    def on_heard(self, now: Nanos, sender: PeerId, message: Any) -> None:
        match message:
            case ToRoot():
                self.out += self._events.climb(now, message, self.born_ns_of(now, sender, message.age_ns))
            case DownTree(group, event, age_ns, hops):
                self.out += self._events.descend(now, group, event, self.born_ns_of(now, sender, age_ns), hops)
            case WantInGroup(group, entries):
                self._want(now, group, sender, entries)
            case RenewInGroup(group, ids):
                paths = self._paths.get(group)
                expires = now + self.key_settings.expiry_ns
                unknown = tuple([id_ for id_ in ids if paths is None or not paths.renew(id_, sender, expires)])
                if unknown:
                    self.send(sender, UnknownInGroup(group, unknown))
            case UnknownInGroup(group, ids):
                paths = self._paths.get(group)
                if paths is not None and paths.next_hop == sender:
                    self._tell(sender, group, paths, paths.of(ids))
            case UnwantInGroup(group, ids):
                paths = self._paths.get(group)
                if paths is not None:
                    self._unwant(group, [(id_, sender) for id_ in ids if (id_, sender) in paths])

    def on_undelivered(self, now: Nanos, peer: PeerId, message: Any) -> None:
        match message:
            case ToRoot():
                self.note_reroute(peer)
                self.out += self._events.climb(now, message, now - message.age_ns, (peer,))
            case DownTree(group, event):
                self.drop_unreached(event.id, peer)
                if self.ring.is_dead(peer):  # else it may only be out of reach for a while
                    self._lose_child(group, peer)
            case WantInGroup(group) | RenewInGroup(group):
                self._lose_parent(group, peer)

    def on_subscribed(self, now: Nanos, entry: Entry, wanted: Filter) -> None:
        self._want(now, group_of(wanted), self.me, (entry,))

    def on_unsubscribed(self, now: Nanos, entry: Entry, wanted: Filter) -> None:
        self._unwant(group_of(wanted), [(entry.id, self.me)])

    def _want(self, now: Nanos, group: str, sender: PeerId, entries: tuple[Entry, ...]) -> None:
        paths = self._paths.setdefault(group, ReversePaths())
        onward: dict[Branch, None] = {}
        for entry in entries:
            try:
                onward.update(dict.fromkeys(paths.add(entry, None, sender, now + self.key_settings.expiry_ns)))
            except FilterError:
                self.refuse(sender, "filter-syntax")
        self._pass_on(group, paths, list(onward))

    def _pass_on(self, group: str, paths: ReversePaths, onward: list[Branch]) -> None:
        """Tell the next hop of entries. One that was not the next hop so far is told all of them."""
        hop = self.next_hop_to(group)
        if hop != paths.next_hop:
            self._move(group, paths, hop)
        elif hop is not None:
            self._tell(hop, group, paths, onward)

    def _move(self, group: str, paths: ReversePaths, hop: PeerId | None) -> None:
        """Tell another next hop. The earlier one forgets the entries when they expire, as in `scribe`."""
        paths.move(hop)
        if hop is not None:
            self._tell(hop, group, paths, paths.onward)

    def _tell(self, hop: PeerId, group: str, paths: ReversePaths, onward: list[Branch]) -> None:
        for batch in batches(onward):
            self.send(hop, WantInGroup(group, tuple([paths.entry(branch) for branch in batch])))

    def _unwant(self, group: str, branches: Iterable[Branch]) -> None:
        paths = self._paths.get(group)
        if paths is None:
            return
        gone, onward = paths.remove_all(branches)
        hop = paths.next_hop
        if hop is not None:
            self._tell(hop, group, paths, onward)
            for batch in batches([entry.id for entry in gone]):
                self.send(hop, UnwantInGroup(group, batch))
        if not len(paths):
            del self._paths[group]

    def on_beacon(self, now: Nanos) -> None:
        for group, paths in list(self._paths.items()):
            for id_, _ in paths.came_from(self.me):
                paths.renew(id_, self.me, now + self.key_settings.expiry_ns + 1)
            self._unwant(group, paths.expired(now))
        for group, paths in self._paths.items():
            hop = self.next_hop_to(group)
            if hop != paths.next_hop:
                self._move(group, paths, hop)
            elif hop is not None:
                for ids in batches(paths.onward_ids):
                    self.send(hop, RenewInGroup(group, ids))

    def on_ownership_changed(self, now: Nanos) -> None:
        for group, paths in self._paths.items():
            hop = self.next_hop_to(group)
            if hop != paths.next_hop:
                self._move(group, paths, hop)

    def _lose_child(self, group: str, peer: PeerId) -> None:
        paths = self._paths.get(group)
        if paths is not None:
            self._unwant(group, paths.came_from(peer))

    def _lose_parent(self, group: str, peer: PeerId) -> None:
        paths = self._paths.get(group)
        if paths is not None and paths.next_hop == peer:
            paths.next_hop = None
            self._move(group, paths, self.next_hop_to(group, (peer,)))
