"""`scribe`: a multicast tree for each topic. A peer remembers only which peers are further down."""

from typing import Any, ClassVar

import msgspec

from wend.matching.filters import Filter
from wend.model.events import Event, PeerId
from wend.model.units import Nanos
from wend.protocol.plugins import PeerConfig
from wend.strategies.ring.groups import DownTree, GroupEvents, ToRoot, find_group
from wend.strategies.ring.key_based import Entry, KeyBasedInterest


class JoinGroup(msgspec.Struct, frozen=True, gc=False, tag="gj"):
    """The sender is a child of the receiver in the tree of this group. It repeats the message with every beacon."""

    group: str


class LeaveGroup(msgspec.Struct, frozen=True, gc=False, tag="gl"):
    """The sender is no longer a child of the receiver."""

    group: str


class _Group(msgspec.Struct, eq=False):
    """This peer's place in the tree of a group."""

    children: dict[PeerId, Nanos] = {}
    """The children, each with the time at which it expires."""
    local: int = 0
    """How many entries of this peer's own subscriptions belong to the group."""
    parent: PeerId | None = None


class Scribe(KeyBasedInterest):
    """A group for each topic, with a tree of reverse paths."""

    messages: ClassVar[Any] = JoinGroup | LeaveGroup | ToRoot | DownTree

    def __init__(self, config: PeerConfig) -> None:
        super().__init__(config)
        self._groups: dict[str, _Group] = {}
        self._events = GroupEvents(self, self._children)

    def status(self) -> dict[str, int]:
        """`groups` whose trees this peer belongs to, and its `children` in them."""
        return {"groups": len(self._groups), "children": sum(len(g.children) for g in self._groups.values())}

    def parents(self) -> dict[str, PeerId]:
        """By group, this peer's parent in its tree. A root has none."""
        return {name: group.parent for name, group in self._groups.items() if group.parent is not None}

    def _children(self, name: str, event: Event) -> list[PeerId]:
        group = self._groups.get(name)
        if group is None:
            return []
        return [self.me, *group.children] if group.local and self.subscriptions.targets(event) else list(group.children)

    def on_published(self, now: Nanos, event: Event, born_ns: Nanos) -> None:
        self._events.publish(now, event, born_ns)

    def on_heard(self, now: Nanos, sender: PeerId, message: Any) -> None:
        match message:
            case ToRoot() | DownTree():
                self._events.on_event(now, sender, message)
            case JoinGroup(name):
                self._add_child(now, name, sender)
            case LeaveGroup(name):
                self._remove_child(name, sender)

    def on_undelivered(self, now: Nanos, peer: PeerId, message: Any) -> None:
        match message:
            case ToRoot():
                self._events.reroute(now, peer, message)
            case DownTree(group, event):
                self.drop_unreached(event.id, peer)
                if self.ring.is_dead(peer):  # else it may only be out of reach for a while
                    self._remove_child(group, peer)
            case JoinGroup(group):
                self._replace_parent(group, peer)

    def _add_child(self, now: Nanos, name: str, child: PeerId) -> None:
        group = self._groups.setdefault(name, _Group())
        is_new = not group.children and not group.local
        group.children[child] = now + self.key_settings.expiry_ns
        if is_new:
            self._join_tree(name, group)

    def _remove_child(self, name: str, child: PeerId) -> None:
        if name in self._groups and self._groups[name].children.pop(child, None) is not None:
            self._leave_if_unused(name)

    def _replace_parent(self, name: str, parent: PeerId) -> None:
        group = self._groups.get(name)
        if group is not None and group.parent == parent:
            group.parent = None
            self._join_tree(name, group, (parent,))

    def on_subscribed(self, now: Nanos, entry: Entry, filter_: Filter) -> None:
        name = find_group(filter_)
        group = self._groups.setdefault(name, _Group())
        group.local += 1
        if group.local == 1 and not group.children:
            self._join_tree(name, group)

    def on_unsubscribed(self, now: Nanos, entry: Entry, filter_: Filter) -> None:
        name = find_group(filter_)
        self._groups[name].local -= 1
        self._leave_if_unused(name)

    def _join_tree(self, name: str, group: _Group, avoid: tuple[PeerId, ...] = ()) -> None:
        """Join by the next hop. A former parent forgets this peer when the join expires. Until the new branch has
        grown, events arrive by the old one."""
        group.parent = hop = self.next_hop_to(name, avoid)
        if hop is not None:
            self.send(hop, JoinGroup(name))

    def _leave_if_unused(self, name: str) -> None:
        """Leave a group without subscribers and children."""
        group = self._groups[name]
        if not group.local and not group.children:
            del self._groups[name]
            if group.parent is not None:
                self.send(group.parent, LeaveGroup(name))

    def on_beacon_due(self, now: Nanos) -> None:
        for name, group in list(self._groups.items()):
            for child in [child for child, expires in group.children.items() if expires <= now]:
                del group.children[child]
            self._leave_if_unused(name)
            if name in self._groups:
                self._join_tree(name, group)

    def on_ownership_changed(self, now: Nanos) -> None:
        for name, group in self._groups.items():
            if self.next_hop_to(name) != group.parent:
                self._join_tree(name, group)
