"""Simulated links that corrupt, reorder and delay packets, or are congested (`topology/link_disturbances.py`).

The receiver refuses a corrupted packet, because its checksum is wrong; its state machine never sees the packet. A
reordered packet is held back while later ones overtake it. Otherwise packets stay in order: one that is sent after a
spike of delay, or into a shorter queue, arrives no earlier than those before it.

A congested link is a queue of type M/M/1/K: other traffic fills it. A packet finds n packets in the queue with
probability proportional to load^n, waits for them, and is lost if the queue is full.

A run without disturbances does not use this file: the engine takes another network, so the hot path has no branch.
"""

from collections.abc import Sequence
from math import log
from typing import Final

from wend.drivers.sim.network import FAULT, Agenda, Network, Transport, Wire
from wend.model.events import PeerId
from wend.model.randomness import stream
from wend.model.units import MS, Nanos
from wend.protocol.messages import Ack, Message
from wend.topology.link_disturbances import Disturbances

CORRUPTED: Final = "corrupted"
"""The entry of the agenda for a corrupted packet, and the reason for which its receiver refuses it."""
_DRAWS = 4096


class DisturbedNetwork(Transport):
    """Sends each message over its link under the present conditions of that link."""

    __slots__ = ("_agenda", "_disturbances", "_latest", "_network", "_rng", "_uniforms")

    def __init__(self, network: Network, disturbances: Disturbances, agenda: Agenda, seed: int) -> None:
        self._network = network
        self._disturbances = disturbances
        self._agenda = agenda
        self._latest: dict[tuple[PeerId, PeerId], Nanos] = {}
        """By direction of a link: the latest arrival of a packet that was not reordered."""
        self._rng = stream(seed, "disturbances", "packets")
        self._uniforms: list[float] = []

    def send(self, now: Nanos, sender: PeerId, receiver: PeerId, message: Message) -> None:
        network = self._network
        if network.free_acks and type(message) is Ack:
            network.send(now, sender, receiver, message)
            return
        wires = network.wires[sender]
        usual = wires[receiver]
        wires[receiver] = self._draw_conditions(now, sender, receiver, usual)
        network.send(now, sender, receiver, message)
        wires[receiver] = usual

    def multicast(self, now: Nanos, sender: PeerId, receivers: Sequence[PeerId], message: Message) -> int:
        wires = self._network.wires[sender]
        usual = {receiver: wires[receiver] for receiver in receivers}
        wires.update({receiver: self._draw_conditions(now, sender, receiver, wire) for receiver, wire in usual.items()})
        arriving = self._network.multicast(now, sender, receivers, message)
        wires.update(usual)
        return arriving

    def _draw_conditions(self, now: Nanos, sender: PeerId, receiver: PeerId, usual: Wire) -> Wire:
        """The delay and loss that one packet meets now. A packet that is corrupted or finds a full queue is lost."""
        link, delay, loss, calendar = usual
        world = self._disturbances
        conditions = world.links[link]
        for spikes in conditions.spikes_ms:
            delay += int(spikes.at(now) * MS)
        lost = False
        for loads in conditions.loads:
            load = loads.at(now)
            if load:
                waiting = draw_queue_length(load, world.queue_msgs, self._draw_uniform())
                lost = lost or waiting == world.queue_msgs
                delay += waiting * world.service_ns
        anomalies = world.begin_ns <= now < world.end_ns
        arrives = max(now + delay, self._latest.get((sender, receiver), 0))
        if anomalies and conditions.reordering and self._draw_uniform() < conditions.reordering:
            arrives += 1 + int(self._draw_uniform() * world.hold_ns)
        elif not lost:
            self._latest[sender, receiver] = arrives
        if anomalies and not lost and conditions.corruption and self._draw_uniform() < conditions.corruption:
            lost = True
            if self._network.is_up(link, now):
                self._agenda.push(arrives, FAULT, receiver, CORRUPTED)
        return link, arrives - now, 1.0 if lost else loss, calendar

    def _draw_uniform(self) -> float:
        if not self._uniforms:
            self._uniforms = self._rng.random(_DRAWS).tolist()
        return self._uniforms.pop()


def draw_queue_length(load: float, capacity: int, uniform: float) -> int:
    """The number of packets that one finds in a queue with this load; `capacity` means that the queue is full.

    The probability of n is proportional to load^n for n from 0 to the capacity."""
    if abs(load - 1.0) < 1e-9:
        return int(uniform * (capacity + 1))
    # the probability of n or less is (1 - load^(n + 1)) / (1 - load^(capacity + 1))
    rest = 1.0 - uniform * (1.0 - load ** (capacity + 1))
    return min(capacity, int(log(rest) / log(load)))
