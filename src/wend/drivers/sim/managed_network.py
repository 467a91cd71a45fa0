"""Links with managed queues: CoDel, or background flows that share the queues with peers.

On an underlay, a packet passes the queue of its link, then those of the underlay links that background flows use, and
then travels.
"""

from collections.abc import Sequence
from functools import partial

from wend.drivers.sim.background import CONTROLS, BackgroundFlow
from wend.drivers.sim.capacity import limited_directions, packet_size
from wend.drivers.sim.drop_ledger import DropLedger
from wend.drivers.sim.managed_queue import ManagedQueue
from wend.drivers.sim.network import Agenda, Network, Transport
from wend.drivers.world import World
from wend.model.events import PeerId
from wend.model.units import Nanos
from wend.protocol.messages import Data, Fragment, Message, increase_age


class ManagedNetwork(Transport):
    """Links with managed queues. Delay, loss and failure apply when a packet leaves the last queue."""

    __slots__ = ("_charges_all", "_ledger", "_links", "_queues", "background")

    def __init__(self, links: Transport, network: Network, world: World, agenda: Agenda, ledger: DropLedger) -> None:
        """`network`: its failures stop background flows."""
        scenario = world.scenario
        self._links = links
        self._ledger = ledger
        self._charges_all = scenario.charge == "all"
        self._queues: dict[tuple[PeerId, PeerId], tuple[ManagedQueue, ...]] = {}
        """By direction of a link: the queues that a packet passes."""
        self.background: list[BackgroundFlow] = []
        size, codel = scenario.queue_msgs, scenario.queue_discipline == "codel"
        for sender, receiver, msgs, bps in limited_directions(world):
            self._queues[sender, receiver] = (ManagedQueue(agenda, sender, msgs, bps, size, codel),)
        flows = scenario.background_flows
        for shared in world.background:
            assert flows is not None
            first = shared.arcs[0]
            if shared.link is None:
                queue = ManagedQueue(agenda, first[0], *world.shared_capacity, size, codel)
                for arc in shared.arcs:
                    self._queues[arc] = (*self._queues[arc], queue)
            else:
                (queue,) = self._queues[first]
            for rtt_ns in shared.rtts_ns:
                is_up = _is_always_up if shared.link is None else partial(network.is_up, shared.link)
                control = CONTROLS[flows.control]()
                flow = BackgroundFlow(agenda, first[0], queue, rtt_ns, control, flows.packet_bytes, is_up)
                flow.begin(world.begin_ns)
                self.background.append(flow)

    def send(self, now: Nanos, sender: PeerId, receiver: PeerId, message: Message) -> None:
        if type(message) is Fragment:
            self._ledger.count_fragment(now, sender, message)
        queues = self._queues.get((sender, receiver))
        if queues is None or not (self._charges_all or type(message) is Data or type(message) is Fragment):
            self._links.send(now, sender, receiver, message)
        else:
            end = self._ledger.expiry_ns(now, sender, message)
            queues[0].offer(now, ManagedPacket(self, sender, receiver, message, queues, end))

    def multicast(self, now: Nanos, sender: PeerId, receivers: Sequence[PeerId], message: Message) -> int:
        return self._links.multicast(now, sender, receivers, message)

    def transmit(self, now: Nanos, sender: PeerId, receiver: PeerId, message: Message) -> None:
        """Put a packet that has passed all its queues on its link."""
        self._links.send(now, sender, receiver, message)

    def drop(self, now: Nanos, sender: PeerId, receiver: PeerId, message: Message, reason: str) -> None:
        """Count a packet that a queue dropped."""
        self._ledger.record_drop(now, sender, receiver, sender, message, reason)

    def waits_ns(self, now: Nanos) -> list[Nanos]:
        """How long the next packet would wait in each queue of a link."""
        return [queue.wait_ns for queues in self._queues.values() for queue in queues]

    def crash(self, now: Nanos, peer: PeerId) -> None:
        for (sender, _), queues in self._queues.items():
            if sender == peer:
                queues[0].clear(now)


class ManagedPacket:
    """A packet of a peer in managed queues."""

    __slots__ = (
        "_end_ns", "_message", "_network", "_passed", "_queues", "_receiver", "_sender", "bits", "entered_ns", "parts",
    )  # fmt: skip

    def __init__(
        self,
        network: "ManagedNetwork",
        sender: PeerId,
        receiver: PeerId,
        message: Message,
        queues: tuple[ManagedQueue, ...],
        end_ns: Nanos | None,
    ) -> None:
        """`end_ns`: when its event expires."""
        self._network = network
        self._sender = sender
        self._receiver = receiver
        self._message = message
        self._queues = queues
        self._passed = 0
        self._end_ns = end_ns
        self.parts, self.bits = packet_size(message)
        self.entered_ns: Nanos = 0

    def on_served(self, now: Nanos) -> None:
        self._message = increase_age(self._message, now - self.entered_ns)
        self._passed += 1
        if self._passed < len(self._queues):
            self._queues[self._passed].offer(now, self)
        else:
            self._network.transmit(now, self._sender, self._receiver, self._message)

    def on_dropped(self, now: Nanos, reason: str) -> None:
        self._network.drop(now, self._sender, self._receiver, self._message, reason)

    def on_lost(self, now: Nanos) -> None:
        pass

    def is_expired(self, now: Nanos) -> bool:
        return self._end_ns is not None and now > self._end_ns


def _is_always_up(now: Nanos) -> bool:
    return True
