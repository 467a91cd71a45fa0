"""Events inside a cluster: every member gets all of them by multicast.

A publisher's peer numbers its events in each of their groups, sends them to all members, and again to a coordinator
that has not accepted them. Where multicast does not work, the same messages go to each member.
"""

from wend.model.events import Event, EventId, PeerId
from wend.model.units import Nanos
from wend.protocol.plugins import DeliverHere, Drop, Notice, PeerConfig, Remember
from wend.strategies.clusters.interest.event_log import Logged, Stream
from wend.strategies.clusters.interest.groups import IDLE, LONGEST_NS, REPAIR_NS, TOLD, FollowedGroups
from wend.strategies.clusters.interest.messages import (
    ClusterEvent,
    EventAccepted,
    PublishedEvent,
)
from wend.strategies.ring.groups import groups_of


class _Waiting:
    """An event of this peer's publishers that some coordinators have not accepted."""

    __slots__ = ("numbers", "slot", "trees", "tries", "until_ns")

    def __init__(self, numbers: tuple[tuple[str, int], ...], slot: int | None, until_ns: Nanos) -> None:
        self.numbers = numbers
        self.slot = slot
        self.trees: dict[int, None] = {}
        """Those that have accepted it."""
        self.tries = 0
        self.until_ns = until_ns


class ClusterSharing(FollowedGroups):
    """How events are shared inside a cluster. A subclass adds the trees between clusters."""

    def __init__(self, config: PeerConfig) -> None:
        super().__init__(config)
        self._numbers: dict[str, int] = {}
        """The last number in each group."""
        self._waiting: dict[EventId, _Waiting] = {}
        """Events of this peer's publishers that not all coordinators have accepted."""
        self._slots = 0
        self._free: list[int] = []
        """Places in the store."""

    # ---------------------------------------------------------------- for the subclass

    def _received(self, now: Nanos, stream: Stream, number: int, logged: Logged, tree: int, hops: int) -> None:
        """A coordinator has a new event, by a tree or (-1) from a member."""

    def _repair_trees(self, now: Nanos) -> None:
        """Tell neighbours on trees what this peer has."""

    # ---------------------------------------------------------------- publishing

    def _publish(self, now: Nanos, event: Event, born_ns: Nanos) -> None:
        numbers = []
        for group in groups_of(event):
            number = self._numbers[group] = self._numbers.get(group, 0) + 1
            numbers.append((group, number))
        slot = None
        if self._persistency:
            if self._free:
                slot = self._free.pop()
            else:
                slot = self._slots
                self._slots += 1
            self._out.append(Remember(slot, PublishedEvent(slot, tuple(numbers), event, born_ns)))
        elif not self._members.joined:
            self._out.append(Notice("published-early", self._me))
            self._out.append(Drop(event.id, (self._me,), "not joined yet"))
            return
        self._share_own(now, event, born_ns, tuple(numbers), slot)

    def _share_own(
        self, now: Nanos, event: Event, born_ns: Nanos, numbers: tuple[tuple[str, int], ...], slot: int | None
    ) -> None:
        """Send an event of this peer's publishers to all members, and wait until coordinators accept it."""
        logged = Logged(event, born_ns, self._members.cluster)
        waiting = self._waiting[event.id] = _Waiting(numbers, slot, now + REPAIR_NS)
        if self._members.joined:
            self._cast(now, ClusterEvent(logged.home, numbers, event, now - born_ns))
        for group, number in numbers:
            self._keep(now, (event.id.publisher, event.id.incarnation, group), number, logged, -1, 0)
        for tree in self._members.my_trees:
            waiting.trees[tree] = None
        self._settle(event.id, waiting)
        self._repair_soon(now)

    def _accepted(self, sender: PeerId, told: EventAccepted) -> None:
        waiting = self._waiting.get(told.id)
        if waiting is not None and self._is_member(sender):
            slots = self._members.slots
            mine = [tree for tree in told.trees if 0 <= tree < len(slots) and slots[tree].active == sender]
            waiting.trees.update(dict.fromkeys(mine))
            self._settle(told.id, waiting)

    def _settle(self, id_: EventId, waiting: _Waiting) -> None:
        """Forget an event of this peer's publishers if every coordinator has accepted it."""
        slots = self._members.slots
        if slots and all(tree in waiting.trees for tree in range(len(slots))):
            del self._waiting[id_]
            if waiting.slot is not None:
                self._free.append(waiting.slot)
                self._out.append(Remember(waiting.slot, PublishedEvent(waiting.slot)))

    def _hand_over(self, now: Nanos) -> None:
        """Send events again to coordinators that have not accepted them."""
        if not self._members.joined:
            return
        for id_, waiting in list(self._waiting.items()):
            if waiting.until_ns > now:
                continue
            waiting.tries += 1
            waiting.until_ns = now + min(LONGEST_NS, REPAIR_NS << min(waiting.tries, 5))
            waiting.trees.update(dict.fromkeys(self._members.my_trees))  # digests tell its neighbours on trees
            self._settle(id_, waiting)
            if id_ not in self._waiting:
                continue
            group, number = waiting.numbers[0]
            logged = self._log.stream(now, (id_.publisher, id_.incarnation, group)).events.get(number)
            if logged is None:  # it had to make room
                self._waiting.pop(id_, None)
                continue
            message = ClusterEvent(self._members.cluster, waiting.numbers, logged.event, now - logged.born_ns)
            for peer in dict.fromkeys(
                slot.active for tree, slot in enumerate(self._members.slots) if tree not in waiting.trees
            ):
                self._send(peer, message)

    def _recalled_event(self, now: Nanos, record: PublishedEvent) -> None:
        while self._slots <= record.slot:
            self._free.append(self._slots)
            self._slots += 1
        for id_, waiting in list(self._waiting.items()):
            if waiting.slot == record.slot:
                del self._waiting[id_]
        if record.event is None:
            if record.slot not in self._free:
                self._free.append(record.slot)
            return
        if record.slot in self._free:
            self._free.remove(record.slot)
        self._waiting[record.event.id] = _Waiting(record.numbers, record.slot, now)
        logged = Logged(record.event, record.born_ns, "")
        for group, number in record.numbers:
            stream = (record.event.id.publisher, record.event.id.incarnation, group)
            self._log.stream(now, stream).add(number)
            self._log.hold(now, stream, number, logged)

    # ---------------------------------------------------------------- events

    def _hear_event(self, now: Nanos, sender: PeerId, told: ClusterEvent) -> None:
        if not self._is_member(sender):
            return
        born = now - max(0, told.age_ns) - self._members.round_trip_ns(sender) // 2
        logged = Logged(told.event, born, told.home)
        id_ = told.event.id
        for group, number in told.numbers:
            self._keep(now, (id_.publisher, id_.incarnation, group), number, logged, -1, told.hops, sender)
        if sender == id_.publisher and self._members.my_trees:
            self._send(sender, EventAccepted(id_, self._members.my_trees), 1)

    def _keep(
        self,
        now: Nanos,
        stream: Stream,
        number: int,
        logged: Logged,
        tree: int,
        hops: int,
        sender: PeerId | None = None,
    ) -> bool:
        """Log an event of a group that this peer follows or holds, deliver it, and look for gaps. Whether it is new."""
        follows = self._follows(stream[2])
        own = stream[0] == self._me
        at_home = self._holds and logged.home == self._members.cluster
        if not follows and not own and not at_home and tree < 0:
            return False
        found = self._log.stream(now, stream)
        if not found.add(number):
            return False
        if self._holds or own or tree >= 0:
            if self._log.hold(now, stream, number, logged):
                self._out.append(Notice("queued", self._me))
            self._news[stream[2]] = TOLD
            self._repair_soon(now)
        if follows and not own and self.table.targets(logged.event):
            self._out.append(DeliverHere(logged.event, logged.born_ns))
        if found.lacks and sender is not None:
            self._sources[stream] = sender
            self._missing(now, stream)
        if self._members.my_trees:
            self._received(now, stream, number, logged, tree, hops)
        return True

    def _repair(self, now: Nanos) -> None:
        self._repairing = False
        self._fetch(now)
        self._hand_over(now)
        if self._members.my_trees:
            for group in list(self._news):
                for digest in self._digests(group):
                    self._cast(now, digest)
            self._repair_trees(now)
        for group, left in list(self._news.items()):
            if left > 1:
                self._news[group] = left - 1
            else:
                del self._news[group]
        if not self._persistency:
            self._log.forget_before(now - self._shared.cluster_hold_ns)
            self._log.forget_idle(now - IDLE * self._shared.cluster_hold_ns)
        if self._asked or self._waiting or self._news:
            self._repair_soon(now)
