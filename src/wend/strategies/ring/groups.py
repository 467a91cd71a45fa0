"""Groups on a DHT: `scribe`, a multicast tree for each topic, and `hermes`, the same with filters along the branches.

The peer that owns the key of a topic is the root of its tree. Subscriptions travel towards it and leave reverse paths;
an event travels to the root, and from there down the paths. Filters that name no single topic belong to one group for
everything else, to which every event goes as well.

`scribe` remembers at each hop only which peers are further down. `hermes` (the baseline of the dmm paper, with a
rendezvous peer for each event type) remembers their filters, and sends an event only where one of them matches.
"""

from collections.abc import Iterable
from typing import Any, ClassVar

import msgspec

from wend.matching.filters import Filter
from wend.model.errors import FilterError
from wend.model.events import Event, PeerId
from wend.model.units import Nanos
from wend.protocol.plugins import Notice, PeerConfig
from wend.strategies.ring.key_based import (
    LAST_TRIES,
    MOST_HOPS,
    Entry,
    EntryId,
    KeyBasedInterest,
    Seen,
    batches,
)
from wend.strategies.ring.reverse_paths import Branch, ReversePaths

EVERYTHING = "everything"


def group_of(wanted: Filter) -> str:
    """The group of a filter: its topic, if it is of the form `topic = '…'`."""
    return EVERYTHING if wanted.topic is None else f"topic {wanted.topic}"


def groups_of(event: Event) -> list[str]:
    """The groups to which an event goes."""
    topic = event.attributes.get("topic")
    return [f"topic {topic}", EVERYTHING] if isinstance(topic, str) else [EVERYTHING]


# ---------------------------------------------------------------- messages


class JoinGroup(msgspec.Struct, frozen=True, gc=False, tag="gj"):
    """The sender is a child of the receiver in the tree of this group. It says so again with every beacon."""

    group: str


class LeaveGroup(msgspec.Struct, frozen=True, gc=False, tag="gl"):
    """It is not any more."""

    group: str


class WantInGroup(msgspec.Struct, frozen=True, gc=False, tag="gw"):
    """The sender's branch of the tree wants what these entries say."""

    group: str
    entries: tuple[Entry, ...]


class RenewInGroup(msgspec.Struct, frozen=True, gc=False, tag="gr"):
    """It still does. The receiver asks for entries that it does not know."""

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


class ToRoot(msgspec.Struct, frozen=True, gc=False, tag="gp"):
    """An event on its way to the root of the group."""

    group: str
    event: Event
    age_ns: Nanos
    hops: int


class DownTree(msgspec.Struct, frozen=True, gc=False, tag="gd"):
    """An event on its way down the tree of the group."""

    group: str
    event: Event
    age_ns: Nanos
    hops: int


# ---------------------------------------------------------------- both


class GroupInterest(KeyBasedInterest):
    """What `scribe` and `hermes` have in common: how an event travels."""

    def __init__(self, config: PeerConfig) -> None:
        super().__init__(config)
        self._cast = Seen()

    def on_published(self, now: Nanos, event: Event, born_ns: Nanos) -> None:
        if not self.ring.joined:
            self.drop_too_early(event.id)
            return
        for group in groups_of(event):
            self._to_root(now, ToRoot(group, event, 0, 0), born_ns)

    def _to_root(self, now: Nanos, message: ToRoot, born_ns: Nanos, avoid: tuple[PeerId, ...] = ()) -> None:
        hop = self.next_hop_to(message.group, avoid)
        if hop is None:
            self._down(now, message.group, message.event, born_ns, message.hops)
        elif message.hops >= MOST_HOPS:
            self.drop_circling(message.event.id, hop)
        else:
            self.send(hop, ToRoot(message.group, message.event, now - born_ns, message.hops + 1))

    def _down(self, now: Nanos, group: str, event: Event, born_ns: Nanos, hops: int) -> None:
        if not self._cast.add((group, event.id)):
            self.out.append(Notice("duplicate", self.me))
            return
        for peer in self._children(group, event):
            if peer == self.me:
                if event.id.publisher != self.me:  # the publisher's own subscribers have it already
                    self.deliver(event, born_ns)
            else:
                self.send(peer, DownTree(group, event, now - born_ns, hops + 1), LAST_TRIES)

    def _children(self, group: str, event: Event) -> list[PeerId]:
        """The peers to which an event of the group goes from here; this peer's own id for its own subscribers."""
        raise NotImplementedError

    def _lost_child(self, now: Nanos, group: str, peer: PeerId) -> None:
        """A child did not answer."""
        raise NotImplementedError

    def _lost_parent(self, now: Nanos, group: str, peer: PeerId) -> None:
        """The next hop towards the root did not answer."""
        raise NotImplementedError

    def on_heard(self, now: Nanos, sender: PeerId, message: Any) -> None:
        match message:
            case ToRoot():
                self._to_root(now, message, self.born_ns_of(now, sender, message.age_ns))
            case DownTree(group, event, age, hops):
                self._down(now, group, event, self.born_ns_of(now, sender, age), hops)
            case _:
                self._told(now, sender, message)

    def _told(self, now: Nanos, sender: PeerId, message: Any) -> None:
        raise NotImplementedError

    def on_undelivered(self, now: Nanos, peer: PeerId, message: Any) -> None:
        match message:
            case ToRoot():
                self.note_reroute(peer)
                self._to_root(now, message, now - message.age_ns, (peer,))
            case DownTree(group, event):
                self.drop_unreached(event.id, peer)
                if self.ring.is_dead(peer):  # else it may only be out of reach for a while
                    self._lost_child(now, group, peer)
            case JoinGroup(group) | WantInGroup(group) | RenewInGroup(group):
                self._lost_parent(now, group, peer)


# ---------------------------------------------------------------- scribe


class _Group:
    __slots__ = ("children", "local", "parent")

    def __init__(self) -> None:
        self.children: dict[PeerId, Nanos] = {}
        """Each with the time at which it expires."""
        self.local = 0
        self.parent: PeerId | None = None


class Scribe(GroupInterest):
    """A group for each topic, with a tree of reverse paths."""

    messages: ClassVar[Any] = JoinGroup | LeaveGroup | ToRoot | DownTree

    def __init__(self, config: PeerConfig) -> None:
        super().__init__(config)
        self._groups: dict[str, _Group] = {}

    def status(self) -> dict[str, int]:
        """`groups` whose trees this peer belongs to, and its `children` in them."""
        return {"groups": len(self._groups), "children": sum(len(g.children) for g in self._groups.values())}

    def parents(self) -> dict[str, PeerId]:
        """By group, this peer's parent in its tree. A root has none."""
        return {name: group.parent for name, group in self._groups.items() if group.parent is not None}

    def _children(self, group: str, event: Event) -> list[PeerId]:
        found = self._groups.get(group)
        if found is None:
            return []
        return [self.me, *found.children] if found.local and self.table.targets(event) else list(found.children)

    def on_subscribed(self, now: Nanos, entry: Entry, wanted: Filter) -> None:
        name = group_of(wanted)
        group = self._groups.setdefault(name, _Group())
        group.local += 1
        if group.local == 1 and not group.children:
            self._join(name, group)

    def on_unsubscribed(self, now: Nanos, entry: Entry, wanted: Filter) -> None:
        name = group_of(wanted)
        self._groups[name].local -= 1
        self._tidy(name)

    def _join(self, name: str, group: _Group, avoid: tuple[PeerId, ...] = ()) -> None:
        """Join by the next hop. A former parent forgets this peer when it expires: until the new branch has grown,
        events come by the old one."""
        group.parent = hop = self.next_hop_to(name, avoid)
        if hop is not None:
            self.send(hop, JoinGroup(name))

    def _tidy(self, name: str) -> None:
        """Leave a group in which nobody is left."""
        group = self._groups[name]
        if not group.local and not group.children:
            del self._groups[name]
            if group.parent is not None:
                self.send(group.parent, LeaveGroup(name))

    def _told(self, now: Nanos, sender: PeerId, message: Any) -> None:
        match message:
            case JoinGroup(name):
                group = self._groups.setdefault(name, _Group())
                alone = not group.children and not group.local
                group.children[sender] = now + self.key_settings.expiry_ns
                if alone:
                    self._join(name, group)
            case LeaveGroup(name) if name in self._groups:
                if self._groups[name].children.pop(sender, None) is not None:
                    self._tidy(name)

    def on_beacon(self, now: Nanos) -> None:
        for name, group in list(self._groups.items()):
            for child in [child for child, expires in group.children.items() if expires <= now]:
                del group.children[child]
            self._tidy(name)
            if name in self._groups:
                self._join(name, group)

    def on_ownership_changed(self, now: Nanos) -> None:
        for name, group in self._groups.items():
            if self.next_hop_to(name) != group.parent:
                self._join(name, group)

    def _lost_child(self, now: Nanos, group: str, peer: PeerId) -> None:
        if group in self._groups and self._groups[group].children.pop(peer, None) is not None:
            self._tidy(group)

    def _lost_parent(self, now: Nanos, group: str, peer: PeerId) -> None:
        found = self._groups.get(group)
        if found is not None and found.parent == peer:
            found.parent = None
            self._join(group, found, (peer,))


# ---------------------------------------------------------------- hermes


class Hermes(GroupInterest):
    """A tree for each event type, with filters along its branches."""

    messages: ClassVar[Any] = WantInGroup | RenewInGroup | UnknownInGroup | UnwantInGroup | ToRoot | DownTree

    def __init__(self, config: PeerConfig) -> None:
        super().__init__(config)
        self._paths: dict[str, ReversePaths] = {}

    def status(self) -> dict[str, int]:
        """`groups` whose trees this peer belongs to, and the `entries` of subscriptions that pass through here."""
        return {"groups": len(self._paths), "entries": sum(map(len, self._paths.values()))}

    def _children(self, group: str, event: Event) -> list[PeerId]:
        paths = self._paths.get(group)
        return [] if paths is None else paths.towards(event.attributes)

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
                self.refuse(sender, "a filter that cannot be read")
        self._pass_on(group, paths, list(onward))

    def _pass_on(self, group: str, paths: ReversePaths, onward: list[Branch]) -> None:
        """Tell the next hop of entries. One that was not the next hop so far is told all of them."""
        hop = self.next_hop_to(group)
        if hop != paths.next_hop:
            self._move(group, paths, hop)
        elif hop is not None:
            self._tell(hop, group, paths, onward)

    def _move(self, group: str, paths: ReversePaths, hop: PeerId | None) -> None:
        """Tell another next hop. The former one forgets the entries when they expire, as in `scribe`."""
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

    def _told(self, now: Nanos, sender: PeerId, message: Any) -> None:
        match message:
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

    def _lost_child(self, now: Nanos, group: str, peer: PeerId) -> None:
        paths = self._paths.get(group)
        if paths is not None:
            self._unwant(group, paths.came_from(peer))

    def _lost_parent(self, now: Nanos, group: str, peer: PeerId) -> None:
        paths = self._paths.get(group)
        if paths is not None and paths.next_hop == peer:
            paths.next_hop = None
            self._move(group, paths, self.next_hop_to(group, (peer,)))
