"""Simulated links: they delay and lose packets, fail, and count every packet.

A link drops a packet if it is down when the packet is sent. A failure affects both directions. With
`ack = "free"` an ACK takes no time and is never lost (the dcrd paper's idealisation).

Most packets of a quiet overlay are hellos that only change when their receiver last heard the sender. They need no
place in the agenda: `QuietHellos` sets that time just before the receiver does anything else.
"""

from collections import Counter, deque
from collections.abc import Sequence
from heapq import heappop, heappush
from typing import Any, Final

from wend.drivers.world import World
from wend.model.events import PeerId
from wend.model.randomness import stream
from wend.model.trace import Trace
from wend.model.units import SECOND, Nanos
from wend.protocol.config import LinkSettings
from wend.protocol.link.link import Link
from wend.protocol.messages import (
    ACKS,
    HELLOS,
    Ack,
    Data,
    Fragment,
    Hello,
    Message,
    as_unicast,
    control_name,
    find_event_id,
)
from wend.protocol.peer import Peer
from wend.protocol.ports import Received

FAULT: Final = 0
LEAVING: Final = 1
MESSAGE: Final = 2
WAKE: Final = 3
PUBLICATION: Final = 4
"""The kinds of agenda entries, in the order of their execution at one time."""

_DRAWS = 4096

QuietHello = tuple[Nanos, int, Link, Received]
"""When it arrives, its number in the agenda, the receiver's link that it comes over, and the message."""

Wire = tuple[int, Nanos, float, bytes | None]
"""One direction of a link: its index, delay and loss, and a calendar of failures if they start and end at full
seconds."""


class Agenda:
    """The future entries of a run, in a heap. The key is (time, kind, number), so that every tie has a rule."""

    __slots__ = ("count", "heap")

    def __init__(self) -> None:
        self.count = 0
        self.heap: list[tuple[Nanos, int, int, PeerId, Any]] = []

    def push(self, time: Nanos, kind: int, peer: PeerId, arg: Any) -> None:
        self.count = count = self.count + 1
        heappush(self.heap, (time, kind, count, peer, arg))


class QuietHellos:
    """Hellos in transit that tell their receivers nothing new."""

    __slots__ = ("_agenda", "by_peer")

    def __init__(self, peers: int, agenda: Agenda) -> None:
        self._agenda = agenda
        self.by_peer: list[list[QuietHello]] = [[] for _ in range(peers)]
        """A heap for each receiver."""

    def deliver_before(self, peer: PeerId, now: Nanos, kind: int, number: int) -> None:
        """Deliver the hellos that arrive at a peer before this entry of the agenda."""
        hellos = self.by_peer[peer]
        while hellos:
            arrives, count, link, _ = hellos[0]
            if arrives >= now and (arrives > now or (MESSAGE, count) > (kind, number)):
                return
            link.heard_ns = arrives  # as `record_heard` does: a call for each hello would cost 1% of the speed
            heappop(hellos)

    def recheck_hellos(self, peer: PeerId) -> None:
        """Check the hellos to a peer that has just acted. Those with news for it become entries of the agenda."""
        for _, _, link, received in self.by_peer[peer]:
            if link.suspected or link.last_hello is not received.message:
                break
        else:
            return
        self.schedule_hellos(peer, everything=False)

    def schedule_hellos(self, peer: PeerId, everything: bool = True) -> None:
        """Put hellos into the agenda as ordinary messages."""
        waiting = []
        for hello in sorted(self.by_peer[peer]):
            arrives, count, link, received = hello
            if everything or link.suspected or link.last_hello is not received.message:
                heappush(self._agenda.heap, (arrives, MESSAGE, count, peer, received))
            else:
                waiting.append(hello)
        self.by_peer[peer] = waiting


class Transport:
    """Carries the messages of peers. A transport with queues or disturbances hands them on to another one."""

    __slots__ = ()

    def send(self, now: Nanos, sender: PeerId, receiver: PeerId, message: Message) -> None:
        raise NotImplementedError

    def send_each(self, now: Nanos, sender: PeerId, receivers: tuple[PeerId, ...], message: Message) -> None:
        """Send a message to several peers."""
        for receiver in receivers:
            self.send(now, sender, receiver, message)

    def multicast(self, now: Nanos, sender: PeerId, receivers: Sequence[PeerId], message: Message) -> int:
        """Send one packet that the network copies for each receiver. Return how many copies are not lost."""
        raise NotImplementedError

    def crash(self, now: Nanos, peer: PeerId) -> None:
        """Drop the packets that wait at a crashed host."""


class Network(Transport):
    """Links without capacities: they delay, lose and count packets."""

    __slots__ = (
        "_acks",
        "_agenda",
        "_control",
        "_draws",
        "_hellos",
        "_peers",
        "_rng",
        "_trace",
        "_traces_hops",
        "free_acks",
        "instant",
        "is_up",
        "quiet",
        "transmissions",
        "transmissions_unicast",
        "wires",
    )  # fmt: skip

    def __init__(self, world: World, agenda: Agenda, trace: Trace, peers: Sequence[object]) -> None:
        """`peers`: those that run, by id; the engine changes the list."""
        scenario = world.scenario
        self._peers = peers
        self.quiet = QuietHellos(world.overlay.peers, agenda)
        self.transmissions = 0
        self.transmissions_unicast = 0
        self.instant: deque[tuple[PeerId, Received]] = deque()
        """ACKs that take no time."""
        self._acks = 0
        self._hellos = 0
        self._control: Counter[str] = Counter()
        self._agenda = agenda
        self._trace = trace
        self.wires = _make_wires(world)
        self.is_up = world.faults.is_up
        self.free_acks = scenario.of(LinkSettings).ack == "free"
        self._traces_hops = scenario.trace_level == "hops"
        self._rng = stream(scenario.seed, "loss")
        self._draws: list[float] = []

    @property
    def control(self) -> Counter[str]:
        return self._control + Counter({ACKS: self._acks, HELLOS: self._hellos})

    def send(self, now: Nanos, sender: PeerId, receiver: PeerId, message: Message) -> None:
        if type(message) is Data:
            self.transmissions += 1
            self.transmissions_unicast += len(message.dests) or 1  # a copy on a tree names no destinations
        elif type(message) is Ack:
            self._acks += 1
            if self.free_acks:
                self.instant.append((receiver, Received(sender, message)))
                return
        elif type(message) is Hello:
            self._hellos += 1
        elif type(message) is Fragment:
            self.transmissions += 1
            self.transmissions_unicast += as_unicast(message)
        elif find_event_id(message) is not None:
            self.transmissions += 1
            self.transmissions_unicast += 1
        else:
            self._control[control_name(message)] += 1
        link, delay, loss, calendar = self.wires[sender][receiver]
        arrives = self.is_up(link, now) if calendar is None else not calendar[now // SECOND]
        if arrives and loss and (self._draws or self._draw_randoms()).pop() < loss:
            arrives = False
        if arrives:
            agenda = self._agenda
            agenda.count = count = agenda.count + 1
            heappush(agenda.heap, (now + delay, MESSAGE, count, receiver, Received(sender, message)))
        if self._traces_hops:
            self._trace_hop(now, sender, receiver, message, arrives)

    def send_each(self, now: Nanos, sender: PeerId, receivers: tuple[PeerId, ...], message: Message) -> None:
        """Send a message, most often a hello, to several peers."""
        if type(message) is not Hello or self._traces_hops:
            for receiver in receivers:
                self.send(now, sender, receiver, message)
            return
        self._hellos += len(receivers)
        wires, second, up = self.wires[sender], now // SECOND, self.is_up
        heap, count = self._agenda.heap, self._agenda.count
        received = Received(sender, message)
        peers, quiet, draws = self._peers, self.quiet.by_peer, self._draws
        for receiver in receivers:
            link, delay, loss, calendar = wires[receiver]
            if not up(link, now) if calendar is None else calendar[second]:
                continue
            if loss:
                draws = draws or self._draw_randoms()
                if draws.pop() < loss:
                    continue
            count += 1
            peer = peers[receiver]
            if type(peer) is Peer:
                heard_over = peer.links.get(sender)
                if heard_over is not None and heard_over.last_hello is message and not heard_over.suspected:
                    heappush(quiet[receiver], (now + delay, count, heard_over, received))
                    continue
            heappush(heap, (now + delay, MESSAGE, count, receiver, received))
        self._agenda.count = count

    def multicast(self, now: Nanos, sender: PeerId, receivers: Sequence[PeerId], message: Message) -> int:
        """Links delay and lose a copy as they do any packet; the packet itself counts once."""
        if find_event_id(message) is None:
            self._control[control_name(message)] += 1
        else:
            self.transmissions += 1
            self.transmissions_unicast += len(receivers)
        received = Received(sender, message)
        arriving = 0
        for receiver in receivers:
            link, delay, loss, calendar = self.wires[sender][receiver]
            if not self.is_up(link, now) if calendar is None else calendar[now // SECOND]:
                continue
            if loss and (self._draws or self._draw_randoms()).pop() < loss:
                continue
            self._agenda.push(now + delay, MESSAGE, receiver, received)
            arriving += 1
        return arriving

    def _draw_randoms(self) -> list[float]:
        self._draws = self._rng.random(_DRAWS).tolist()
        return self._draws

    def _trace_hop(self, now: Nanos, sender: PeerId, receiver: PeerId, message: Message, arrives: bool) -> None:
        if isinstance(message, Data):
            self._trace.hops.add(now, sender, receiver, *message.event.id, len(message.dests), int(arrives))
        elif isinstance(message, Fragment):
            dests = len(message.head.dests) if message.head is not None else 0
            self._trace.hops.add(now, sender, receiver, *message.id, dests, int(arrives))
        elif isinstance(message, Hello):
            self._trace.probes.add(now, sender, receiver, int(arrives))


def _make_wires(world: World) -> list[dict[PeerId, Wire]]:
    wires: list[dict[PeerId, Wire]] = [{} for _ in range(world.overlay.peers)]
    for index, link in enumerate(world.overlay.links):
        calendar = world.faults.calendar(index, world.end_ns // SECOND + 2)
        wires[link.a][link.b] = wires[link.b][link.a] = (index, link.delay_ns, link.loss, calendar)
    return wires
