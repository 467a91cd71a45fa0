"""Links and peers with limited capacity: packets queue, and a full queue drops them.

Each direction of a link sends one packet after the other, each for 1/capacity of a message or for the time of its bits.
A peer's capacity limits the packets that it receives from all its links together. A message is as large as its payload;
headers cost nothing, as in a plan. A drop counts by destination and adds a row to the trace. The sender learns of it as
of any loss. Only data uses capacity unless the scenario says otherwise.

An event whose ttl will have passed before its turn comes does not enter a queue, so it takes no time of the link or
the peer from others. That is the same as to remove it when its turn comes: the order in a queue is fixed.

The queues belong to the hosts. So a host knows how long a packet waited, and adds that to the packet's age. If the host
crashes, its queues are lost.

With CoDel or background flows, packets wait in managed queues instead (`managed_queue.py`). On an underlay, a packet
passes the queue of its link, then those of the underlay links that background flows use, and then travels.

A run without capacities does not use this file: the engine takes another network, so the hot path has no branch.
"""

from collections import deque
from collections.abc import Sequence
from functools import partial
from math import inf

import msgspec

from wend.drivers.sim.background import CONTROLS, BackgroundFlow
from wend.drivers.sim.drop_ledger import EXPIRED, PEER_BUSY, QUEUE_FULL, DropLedger
from wend.drivers.sim.managed_queue import Happening, ManagedQueue
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


class QueuedPacket(msgspec.Struct, frozen=True, gc=False):
    """A packet that leaves the queue of its sender."""

    incarnation: int
    receiver: PeerId
    message: Message


class CapacityNetwork(Network):
    """Links with queues. Delay, loss and failure apply when a packet leaves the queue."""

    __slots__ = ("_all", "_incarnations", "_ledger", "_managed", "_queues", "background")

    def __init__(self, world: World, agenda: Agenda, trace: Trace, peers: Sequence[object], ledger: DropLedger) -> None:
        super().__init__(world, agenda, trace, peers)
        scenario = world.scenario
        self._ledger = ledger
        self._all = scenario.charge == "all"
        self._incarnations = [0] * world.overlay.peers
        self._queues: list[dict[PeerId, Queue]] = [{} for _ in range(world.overlay.peers)]
        self._managed: dict[tuple[PeerId, PeerId], tuple[ManagedQueue, ...]] = {}
        """By direction of a link: the queues that a packet passes."""
        self.background: list[BackgroundFlow] = []
        if scenario.queue_discipline != "drop-tail" or world.background:
            self._manage(world)
            return
        for link in world.overlay.links:
            if min(link.capacity_msgs, link.capacity_bps) < inf:
                for sender, receiver in ((link.a, link.b), (link.b, link.a)):
                    self._queues[sender][receiver] = Queue(link.capacity_msgs, link.capacity_bps, scenario.queue_msgs)

    def _manage(self, world: World) -> None:
        """Make managed queues, and the background flows that use them."""
        scenario = world.scenario
        size, codel = scenario.queue_msgs, scenario.queue_discipline == "codel"
        for link in world.overlay.links:
            if min(link.capacity_msgs, link.capacity_bps) < inf:
                for sender, receiver in ((link.a, link.b), (link.b, link.a)):
                    queue = ManagedQueue(self._agenda, sender, link.capacity_msgs, link.capacity_bps, size, codel)
                    self._managed[sender, receiver] = (queue,)
        flows = scenario.background_flows
        for shared in world.background:
            assert flows is not None
            first = shared.arcs[0]
            if shared.link is None:
                queue = ManagedQueue(self._agenda, first[0], *world.shared_capacity, size, codel)
                for arc in shared.arcs:
                    self._managed[arc] = (*self._managed[arc], queue)
            else:
                (queue,) = self._managed[first]
            for rtt_ns in shared.rtts_ns:
                up = _always if shared.link is None else partial(self._up, shared.link)
                control = CONTROLS[flows.control]()
                made = BackgroundFlow(self._agenda, first[0], queue, rtt_ns, control, flows.packet_bytes, up)
                made.begin(world.begin_ns)
                self.background.append(made)

    def send(self, now: Nanos, sender: PeerId, receiver: PeerId, message: Message) -> None:
        if type(message) is Fragment:
            self._ledger.sent(now, sender, message)
        if self._managed:
            self._send_managed(now, sender, receiver, message)
            return
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

    def _send_managed(self, now: Nanos, sender: PeerId, receiver: PeerId, message: Message) -> None:
        queues = self._managed.get((sender, receiver))
        if queues is None or not (self._all or type(message) is Data or type(message) is Fragment):
            self.transmit(now, sender, receiver, message)
        else:
            end = self._ledger.end(now, sender, message)
            queues[0].offer(now, ManagedPacket(self, sender, receiver, message, queues, end))

    def dropped(self, now: Nanos, sender: PeerId, receiver: PeerId, message: Message, reason: str) -> None:
        """Count a packet that a managed queue dropped."""
        self._ledger.dropped(now, sender, receiver, sender, message, reason)

    def send_each(self, now: Nanos, sender: PeerId, receivers: tuple[PeerId, ...], message: Message) -> None:
        for receiver in receivers:
            self.send(now, sender, receiver, message)

    def leave(self, now: Nanos, sender: PeerId, leaving: QueuedPacket | Happening) -> None:
        if not isinstance(leaving, QueuedPacket):
            leaving.happen(now)
        elif leaving.incarnation == self._incarnations[sender]:
            self.transmit(now, sender, leaving.receiver, leaving.message)

    def transmit(self, now: Nanos, sender: PeerId, receiver: PeerId, message: Message) -> None:
        """Put a packet that waits for no queue on its link."""
        super().send(now, sender, receiver, message)

    def waits_ns(self, now: Nanos) -> list[Nanos]:
        """How long the next packet would wait in each queue of a link."""
        plain = [queue.turn(now) - now for queues in self._queues for queue in queues.values()]
        return plain + [queue.wait_ns for queues in self._managed.values() for queue in queues]

    def crashed(self, now: Nanos, peer: PeerId) -> None:
        self._incarnations[peer] += 1
        for queue in self._queues[peer].values():
            queue.clear()
        for (sender, _), queues in self._managed.items():
            if sender == peer:
                queues[0].clear(now)


class ManagedPacket:
    """A packet of a peer in managed queues."""

    __slots__ = (
        "_end_ns", "_message", "_network", "_passed", "_queues", "_receiver", "_sender", "bits", "entered_ns", "parts",
    )  # fmt: skip

    def __init__(
        self,
        network: CapacityNetwork,
        sender: PeerId,
        receiver: PeerId,
        message: Message,
        queues: tuple[ManagedQueue, ...],
        end_ns: Nanos | None,
    ) -> None:
        """`end_ns`: when nobody needs its event any more."""
        self._network = network
        self._sender = sender
        self._receiver = receiver
        self._message = message
        self._queues = queues
        self._passed = 0
        self._end_ns = end_ns
        self.parts, self.bits = _size(message)
        self.entered_ns: Nanos = 0

    def served(self, now: Nanos) -> None:
        self._message = older(self._message, now - self.entered_ns)
        self._passed += 1
        if self._passed < len(self._queues):
            self._queues[self._passed].offer(now, self)
        else:
            self._network.transmit(now, self._sender, self._receiver, self._message)

    def dropped(self, now: Nanos, reason: str) -> None:
        self._network.dropped(now, self._sender, self._receiver, self._message, reason)

    def vanished(self, now: Nanos) -> None:
        pass

    def expired(self, now: Nanos) -> bool:
        return self._end_ns is not None and now > self._end_ns


def _always(now: Nanos) -> bool:
    return True


class AdmittedPacket(msgspec.Struct, frozen=True, gc=False):
    """A packet that leaves the queue of its receiver."""

    incarnation: int
    received: Received


class GatedPeer:
    """A peer that something stands before."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer

    @property
    def names_everyone(self) -> bool:
        return self.peer.names_everyone

    def unfinished(self) -> set[EventId]:
        return self.peer.unfinished()

    def handle(self, now: Nanos, event: Input | AdmittedPacket) -> Effects:
        raise NotImplementedError


class LimitedPeer(GatedPeer):
    """A peer behind its own receive queue. If the peer crashes, its queue is lost."""

    def __init__(self, peer: Peer, queue: Queue, charge_all: bool, agenda: Agenda, ledger: DropLedger) -> None:
        super().__init__(peer)
        self._incarnation = peer.config.incarnation
        self._queue = queue
        self._all = charge_all
        self._agenda = agenda
        self._ledger = ledger

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
