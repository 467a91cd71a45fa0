"""Links and peers with limited capacity: packets queue, and a full queue drops them.

Each direction of a link sends one packet after the other, each for 1/capacity of a message or for the time of its bits.
A peer's capacity limits the packets that it receives from all its links together. A message is as large as its payload;
headers cost nothing, as in a plan. A drop counts by destination and adds a row to the trace. The sender learns of it as
of any loss. Only data uses capacity unless the scenario says otherwise.

An event that will expire before its turn does not enter a queue, so it takes no time of the link or the peer from other
events. The order in a queue is fixed, so removing the event at its turn would give the same result.

The queues belong to the hosts. So a host knows how long a packet waited, and adds that to the packet's age. If the host
crashes, its queues are lost.

With CoDel or background flows, packets wait in managed queues instead (`managed_network.py`). A run without capacities
uses neither, so its hot path has no branch.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from math import inf

import msgspec

from wend.drivers.sim.drop_ledger import EXPIRED, PEER_BUSY, QUEUE_FULL, DropLedger
from wend.drivers.sim.network import LEAVING, MESSAGE, Agenda, Transport
from wend.drivers.world import World
from wend.model.events import EventId, PeerId
from wend.model.rates import BITS_PER_BYTE
from wend.model.units import SECOND, Nanos
from wend.protocol.messages import Data, Fragment, Message, increase_age
from wend.protocol.peer import Peer
from wend.protocol.ports import Input, Received
from wend.protocol.timers import Effects


class DropTailQueue:
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

    def next_service_time(self, now: Nanos) -> Nanos:
        """When the next packet would be served."""
        return max(now, self._leaving[-1]) if self._leaving else now

    def add_packet(self, now: Nanos, parts: int, bits: int) -> Nanos | None:
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


class QueueDeparture:
    """Lets a packet leave the queue of its sender."""

    __slots__ = ("incarnation", "message", "network", "receiver", "sender")

    def __init__(
        self, network: "CapacityNetwork", sender: PeerId, incarnation: int, receiver: PeerId, message: Message
    ) -> None:
        self.network = network
        self.sender = sender
        self.incarnation = incarnation
        self.receiver = receiver
        self.message = message

    def run(self, now: Nanos) -> None:
        self.network.put_on_link(now, self)


class CapacityNetwork(Transport):
    """Links with drop-tail queues. Delay, loss and failure apply when a packet leaves the queue."""

    __slots__ = ("_agenda", "_charges_all", "_incarnations", "_ledger", "_links", "_queues")

    def __init__(self, links: Transport, world: World, agenda: Agenda, ledger: DropLedger) -> None:
        self._links = links
        self._agenda = agenda
        self._ledger = ledger
        self._charges_all = world.scenario.charge == "all"
        self._incarnations = [0] * world.overlay.peers
        self._queues: list[dict[PeerId, DropTailQueue]] = [{} for _ in range(world.overlay.peers)]
        for sender, receiver, msgs, bps in limited_directions(world):
            self._queues[sender][receiver] = DropTailQueue(msgs, bps, world.scenario.queue_msgs)

    def send(self, now: Nanos, sender: PeerId, receiver: PeerId, message: Message) -> None:
        if type(message) is Fragment:
            self._ledger.count_fragment(now, sender, message)
        queue = self._queues[sender].get(receiver)
        if queue is None or not (self._charges_all or type(message) is Data or type(message) is Fragment):
            self._links.send(now, sender, receiver, message)
            return
        end = self._ledger.expiry_ns(now, sender, message)
        if end is not None and queue.next_service_time(now) > end:
            self._ledger.record_drop(now, sender, receiver, sender, message, EXPIRED)
            return
        through = queue.add_packet(now, *packet_size(message))
        if through is None:
            self._ledger.record_drop(now, sender, receiver, sender, message, QUEUE_FULL)
        else:
            incarnation = self._incarnations[sender]
            leaving = QueueDeparture(self, sender, incarnation, receiver, increase_age(message, through - now))
            self._agenda.push(through, LEAVING, sender, leaving)

    def put_on_link(self, now: Nanos, packet: QueueDeparture) -> None:
        """Put a packet on its link, unless its sender crashed while it waited."""
        if packet.incarnation == self._incarnations[packet.sender]:
            self._links.send(now, packet.sender, packet.receiver, packet.message)

    def multicast(self, now: Nanos, sender: PeerId, receivers: Sequence[PeerId], message: Message) -> int:
        return self._links.multicast(now, sender, receivers, message)

    def waits_ns(self, now: Nanos) -> list[Nanos]:
        """How long the next packet would wait in each queue of a link."""
        return [queue.next_service_time(now) - now for queues in self._queues for queue in queues.values()]

    def crash(self, now: Nanos, peer: PeerId) -> None:
        self._incarnations[peer] += 1
        for queue in self._queues[peer].values():
            queue.clear()


class AdmittedPacket(msgspec.Struct, frozen=True, gc=False):
    """A packet at the moment when it leaves the queue of its receiver."""

    incarnation: int
    received: Received


class GatedPeer:
    """A peer whose inputs pass through another object first, such as a queue."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer

    @property
    def knows_all_subscribers(self) -> bool:
        return self.peer.knows_all_subscribers

    def unfinished(self) -> set[EventId]:
        return self.peer.unfinished()

    def handle(self, now: Nanos, event: Input | AdmittedPacket) -> Effects:
        raise NotImplementedError


class LimitedPeer(GatedPeer):
    """A peer behind its own receive queue. If the peer crashes, its queue is lost."""

    def __init__(self, peer: Peer, queue: DropTailQueue, charges_all: bool, agenda: Agenda, ledger: DropLedger) -> None:
        super().__init__(peer)
        self._incarnation = peer.config.incarnation
        self._queue = queue
        self._charges_all = charges_all
        self._agenda = agenda
        self._ledger = ledger

    def handle(self, now: Nanos, event: Input | AdmittedPacket) -> Effects:
        if type(event) is AdmittedPacket:
            return self.peer.handle(now, event.received) if event.incarnation == self._incarnation else []
        if type(event) is Received and (self._charges_all or type(event.message) in (Data, Fragment)):
            end = self._ledger.expiry_ns(now, event.sender, event.message)
            if end is not None and self._queue.next_service_time(now) > end:
                self._ledger.record_drop(now, event.sender, self.peer.me, self.peer.me, event.message, EXPIRED)
                return []
            through = self._queue.add_packet(now, *packet_size(event.message))
            if through is None:
                self._ledger.record_drop(now, event.sender, self.peer.me, self.peer.me, event.message, PEER_BUSY)
            else:
                waited = Received(event.sender, increase_age(event.message, through - now))
                self._agenda.push(through, MESSAGE, self.peer.me, AdmittedPacket(self._incarnation, waited))
            return []
        return self.peer.handle(now, event)  # type: ignore[arg-type]


def limited_directions(world: World) -> Iterator[tuple[PeerId, PeerId, float, float]]:
    """The links with a capacity, in each direction: sender, receiver, messages and bits per second."""
    for link in world.overlay.links:
        if min(link.capacity_msgs, link.capacity_bps) < inf:
            yield link.a, link.b, link.capacity_msgs, link.capacity_bps
            yield link.b, link.a, link.capacity_msgs, link.capacity_bps


def packet_size(message: Message) -> tuple[int, int]:
    """The number of fragments of its message, and its bits."""
    if type(message) is Data:
        block = message.event.block
        return 1 if block is None else block.needed, BITS_PER_BYTE * len(message.event.payload)
    if type(message) is Fragment:
        return message.count, BITS_PER_BYTE * len(message.chunk)
    return 1, 0
