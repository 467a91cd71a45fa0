"""Links and peers with limited capacity: packets queue, and a full queue drops them.

Each direction of a link sends one packet after the other, each for 1/capacity of a message or for the time of its bits.
A peer's capacity limits the packets that it receives from all its links together. A message is as large as its payload;
headers cost nothing, as in a plan. A drop counts by destination and adds a row to the trace. The sender learns of it as
of any loss. Only data uses capacity unless the scenario says otherwise.

An event whose ttl will have passed before its turn comes does not enter a queue, so it takes no time of the link or
the peer from others. That is the same as to remove it when its turn comes: the order in a queue is fixed.

The queues belong to the hosts. So a host knows how long a packet waited, and adds that to the packet's age. If the host
crashes, its queues are lost.

A run without capacities does not use this file: the engine takes another network, so the hot path has no branch.
"""

from collections import Counter, deque
from collections.abc import Sequence
from math import inf

import msgspec

from wend.drivers.sim.network import LEAVING, MESSAGE, Agenda, Network
from wend.drivers.world import World
from wend.model.events import EventId, PeerId
from wend.model.rates import BITS_PER_BYTE
from wend.model.trace import Trace
from wend.model.units import SECOND, Nanos
from wend.protocol.messages import Data, Fragment, Message, older
from wend.protocol.peer import Peer
from wend.protocol.ports import Input, Received
from wend.protocol.timers import Effects

QUEUE_FULL = "queue full"
PEER_BUSY = "peer's queue full"
EXPIRED = "expired"


class Queue:
    """A bounded FIFO queue with two separate limits, messages and bits per second. A packet leaves when both allow
    it."""

    __slots__ = ("_bits_free", "_bps", "_leaving", "_msgs_free", "_per_msg", "_room")

    def __init__(self, msgs: float, bps: float, queue_msgs: int) -> None:
        self._per_msg = 0 if msgs == inf else int(SECOND / msgs)
        self._bps = bps
        self._room = queue_msgs + 1
        """The most packets in the queue: those that wait, and the one that is served."""
        self._leaving: deque[Nanos] = deque()
        self._msgs_free = self._bits_free = 0

    def clear(self) -> None:
        """Remove all packets, with the one that is served."""
        self._leaving.clear()
        self._msgs_free = self._bits_free = 0

    def turn(self, now: Nanos) -> Nanos:
        """When the next packet would have its turn."""
        return max(now, self._leaving[-1]) if self._leaving else now

    def enter(self, now: Nanos, parts: int, bits: int) -> Nanos | None:
        """Add a packet. Return the time at which it leaves, or None if the queue is full. `parts` counts the fragments
        of its message."""
        leaving = self._leaving
        while leaving and leaving[0] <= now:
            leaving.popleft()
        if len(leaving) >= self._room:
            return None
        self._msgs_free = max(now, self._msgs_free) + self._per_msg // parts
        self._bits_free = max(now, self._bits_free) + int(bits * SECOND / self._bps)
        through = max(self._msgs_free, self._bits_free)
        leaving.append(through)
        return through


class DropLedger:
    """Counts the drops of queues, like those of peers, and adds them to the trace.

    A destination counts once per event and sending peer, however often queues drop its packets, and whether or not the
    sender then gives it up.
    """

    def __init__(self, drops: Counter[str], notices: Counter[str], trace: Trace) -> None:
        self._drops = drops
        self._notices = notices
        self._trace = trace
        self._counted: set[tuple[PeerId, EventId, PeerId]] = set()
        self._heads: dict[tuple[PeerId, int], tuple[PeerId, ...]] = {}
        self._ends: dict[tuple[PeerId, int], Nanos] = {}

    def sent(self, now: Nanos, sender: PeerId, part: Fragment) -> None:
        """Remember the destinations and the end of a fragmented event. Only its first fragment names them."""
        if part.head is not None:
            self._heads[sender, part.number] = part.head.dests
            if (end := self.end(now, sender, part.head)) is not None:
                self._ends[sender, part.number] = end

    def end(self, now: Nanos, sender: PeerId, message: Message) -> Nanos | None:
        """When nobody needs the event of a message any more."""
        if type(message) is Data and message.event.ttl_ns is not None:
            return now + message.event.ttl_ns - message.age_ns
        return self._ends.get((sender, message.number)) if type(message) is Fragment else None

    def dropped(self, now: Nanos, sender: PeerId, to: PeerId, at: PeerId, message: Message, reason: str) -> None:
        """Count a drop. A copy without named destinations (on a tree) counts as one, for the receiving peer."""
        if isinstance(message, Data):
            id_, dests = message.event.id, message.dests or (to,)
        elif isinstance(message, Fragment):
            id_, dests = message.id, self._heads[sender, message.number] or (to,)
        else:
            self._notices[reason] += 1
            return
        fresh = self.uncounted(sender, id_, dests)
        if len(fresh) < len(dests):
            self._notices[f"{reason} again"] += len(dests) - len(fresh)
        self._counted.update((sender, id_, dest) for dest in fresh)
        self._drops[reason] += len(fresh)
        for dest in fresh:
            self._trace.drops.add(now, at, *id_, dest, reason)

    def uncounted(self, sender: PeerId, id_: EventId, dests: tuple[PeerId, ...]) -> tuple[PeerId, ...]:
        """The destinations that no queue has dropped for this sender."""
        if not self._counted:
            return dests
        return tuple(dest for dest in dests if (sender, id_, dest) not in self._counted)


class QueuedPacket(msgspec.Struct, frozen=True, gc=False):
    """A packet that leaves the queue of its sender."""

    incarnation: int
    receiver: PeerId
    message: Message


class CapacityNetwork(Network):
    """Links with queues. Delay, loss and failure apply when a packet leaves the queue."""

    __slots__ = ("_all", "_incarnations", "_ledger", "_queues")

    def __init__(self, world: World, agenda: Agenda, trace: Trace, peers: Sequence[object], ledger: DropLedger) -> None:
        super().__init__(world, agenda, trace, peers)
        scenario = world.scenario
        self._ledger = ledger
        self._all = scenario.charge == "all"
        self._incarnations = [0] * world.overlay.peers
        self._queues: list[dict[PeerId, Queue]] = [{} for _ in range(world.overlay.peers)]
        for link in world.overlay.links:
            if min(link.capacity_msgs, link.capacity_bps) < inf:
                for sender, receiver in ((link.a, link.b), (link.b, link.a)):
                    self._queues[sender][receiver] = Queue(link.capacity_msgs, link.capacity_bps, scenario.queue_msgs)

    def send(self, now: Nanos, sender: PeerId, receiver: PeerId, message: Message) -> None:
        if type(message) is Fragment:
            self._ledger.sent(now, sender, message)
        queue = self._queues[sender].get(receiver)
        if queue is None or not (self._all or type(message) is Data or type(message) is Fragment):
            self.transmit(now, sender, receiver, message)
            return
        end = self._ledger.end(now, sender, message)
        if end is not None and queue.turn(now) > end:
            self._ledger.dropped(now, sender, receiver, sender, message, EXPIRED)
            return
        through = queue.enter(now, *_size(message))
        if through is None:
            self._ledger.dropped(now, sender, receiver, sender, message, QUEUE_FULL)
        else:
            leaving = QueuedPacket(self._incarnations[sender], receiver, older(message, through - now))
            self._agenda.push(through, LEAVING, sender, leaving)

    def send_each(self, now: Nanos, sender: PeerId, receivers: tuple[PeerId, ...], message: Message) -> None:
        for receiver in receivers:
            self.send(now, sender, receiver, message)

    def leave(self, now: Nanos, sender: PeerId, leaving: QueuedPacket) -> None:
        if leaving.incarnation == self._incarnations[sender]:
            self.transmit(now, sender, leaving.receiver, leaving.message)

    def transmit(self, now: Nanos, sender: PeerId, receiver: PeerId, message: Message) -> None:
        """Put a packet that waits for no queue on its link."""
        super().send(now, sender, receiver, message)

    def crashed(self, peer: PeerId) -> None:
        self._incarnations[peer] += 1
        for queue in self._queues[peer].values():
            queue.clear()


class AdmittedPacket(msgspec.Struct, frozen=True, gc=False):
    """A packet that leaves the queue of its receiver."""

    incarnation: int
    received: Received


class LimitedPeer:
    """A peer behind its own receive queue. If the peer crashes, its queue is lost."""

    def __init__(self, peer: Peer, queue: Queue, charge_all: bool, agenda: Agenda, ledger: DropLedger) -> None:
        self._incarnation = peer.config.incarnation
        self.peer = peer
        self._queue = queue
        self._all = charge_all
        self._agenda = agenda
        self._ledger = ledger

    @property
    def names_everyone(self) -> bool:
        return self.peer.names_everyone

    def unfinished(self) -> set[EventId]:
        return self.peer.unfinished()

    def handle(self, now: Nanos, event: Input | AdmittedPacket) -> Effects:
        if type(event) is AdmittedPacket:
            return self.peer.handle(now, event.received) if event.incarnation == self._incarnation else []
        if type(event) is Received and (self._all or type(event.message) in (Data, Fragment)):
            end = self._ledger.end(now, event.sender, event.message)
            if end is not None and self._queue.turn(now) > end:
                self._ledger.dropped(now, event.sender, self.peer.me, self.peer.me, event.message, EXPIRED)
                return []
            through = self._queue.enter(now, *_size(event.message))
            if through is None:
                self._ledger.dropped(now, event.sender, self.peer.me, self.peer.me, event.message, PEER_BUSY)
            else:
                waited = Received(event.sender, older(event.message, through - now))
                self._agenda.push(through, MESSAGE, self.peer.me, AdmittedPacket(self._incarnation, waited))
            return []
        return self.peer.handle(now, event)  # type: ignore[arg-type]


def _size(message: Message) -> tuple[int, int]:
    """The number of fragments of its message, and its bits."""
    if type(message) is Data:
        return 1, BITS_PER_BYTE * len(message.event.payload)
    if type(message) is Fragment:
        return message.count, BITS_PER_BYTE * len(message.chunk)
    return 1, 0
