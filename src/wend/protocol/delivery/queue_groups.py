"""Queue groups: one of the subscriptions with the same group, at any peer, gets each event.

The publisher's peer chooses a peer with members for each group that wants an event, and names it in the event
(`Event.groups`). So all receivers agree without exchanging messages. The choice spreads the events of all publishers
evenly over peers. An event names a bounded number of groups: if more groups want it, each gets only some of the events.
If the last member at the chosen peer has just ended, that peer chooses another one and sends the event there, as an
event of its own that names the first as its `origin`.
"""

from typing import Protocol

import msgspec

from wend.model.events import MAX_EVENT_GROUPS, Event, GroupChoice, PeerId
from wend.model.publication import Publication
from wend.model.units import Nanos
from wend.protocol.plugins import Notify, SubscriptionQueries
from wend.protocol.plugins.group_choice import choose_from_group
from wend.protocol.ports import Notice
from wend.protocol.timers import Effects

MAX_EVENT_GROUPS_BYTES = 16 * 1024
"""The most bytes that the groups of an event may take, so that it fits a datagram."""
_GROUP_BYTES = 8
"""The overhead of a group beside its name, in bytes."""


class Publisher(Protocol):
    """Publishes an event again, for one peer."""

    def number_event(self, published: Publication) -> Event: ...

    def send_to_one_peer(self, now: Nanos, event: Event, born: Nanos, peer: PeerId, effects: Effects) -> None: ...


class QueueGroups:
    """The groups of this peer's subscriptions, and the choices of peers for events."""

    __slots__ = ("_groups", "_interest", "_me", "_publisher")

    def __init__(self, me: PeerId, interest: SubscriptionQueries, publisher: Publisher) -> None:
        self._me = me
        self._interest = interest
        self._publisher = publisher
        self._groups: dict[int, str] = {}
        """The group of each subscription, by number."""

    def subscribe(self, number: int, group: str) -> None:
        if group:
            self._groups[number] = group
        else:
            self._groups.pop(number, None)

    def unsubscribe(self, number: int) -> None:
        self._groups.pop(number, None)

    def choose_peers(self, event: Event, members: dict[str, tuple[PeerId, ...]], effects: Effects) -> Event:
        """Add a chosen peer to an event for each of these groups."""
        named = sorted(members)
        if len(named) > MAX_EVENT_GROUPS or sum(map(group_bytes, named)) > MAX_EVENT_GROUPS_BYTES:
            named = _select_groups(event, named)
            effects.extend([Notice("group-left-out", self._me)] * (len(members) - len(named)))
        groups = tuple([(group, (choose_from_group(event.id, group, members[group]),)) for group in named])
        return msgspec.structs.replace(event, groups=groups)

    def send_to_other_members(self, now: Nanos, event: Event, born: Nanos, wanted: Notify, effects: Effects) -> bool:
        """Send an event to other peers for groups that no longer have members here. Return whether it was sent
        and no subscription here gets it."""
        here = {self._groups.get(subscription.number) for subscription, _ in wanted}
        gone = {group: tried for group, tried in event.groups if tried[:1] == (self._me,) and group not in here}
        all_members = self._interest.members(event) if gone else {}
        went = False
        for group, tried in gone.items():
            members = all_members.get(group, ())
            others = tuple([peer for peer in members if peer not in tried and peer != self._me])
            if not others:
                effects.append(Notice("group-empty", self._me))
                continue
            effects.append(Notice("group-rerouted", self._me))
            other = choose_from_group(event.id, group, others)
            self._publisher.send_to_one_peer(
                now, self._make_copy(event, (group, (other, *tried))), born, other, effects
            )
            went = True
        return went and not wanted

    def _make_copy(self, event: Event, choice: GroupChoice) -> Event:
        made = self._publisher.number_event(Publication(event.attributes, event.payload, event.headers, event.ttl_ns))
        return msgspec.structs.replace(made, groups=(choice,), origin=event.origin or event.id)


def group_bytes(group: str) -> int:
    """The approximate size of a group in an event, in bytes."""
    return len(group.encode(errors="surrogatepass")) + _GROUP_BYTES


def _select_groups(event: Event, groups: list[str]) -> list[str]:
    """Select as many of the groups as an event may name, others for each event, so that no group starves."""
    first = choose_from_group(event.id, "", tuple(range(len(groups))))
    found: list[str] = []
    left = MAX_EVENT_GROUPS_BYTES
    for group in groups[first:] + groups[:first]:
        left -= group_bytes(group)
        if left < 0 or len(found) == MAX_EVENT_GROUPS:
            break
        found.append(group)
    return sorted(found)
