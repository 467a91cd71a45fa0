"""Links and peers that carry only so much: packets queue up, and one that finds the queue full is dropped.

A link serialises: each direction for itself, one packet after the other, each for 1/capacity of a message or for its
bits. A peer's capacity bounds what it takes in from all its links together. A message is as large as its payload;
headers cost nothing, as in a plan. What is dropped is counted by destination and leaves a row in the trace; its
sender finds out as it does of any loss. Only data is charged unless the scenario says otherwise.

The queues are the hosts' own, so a host knows how long a packet waited there, and adds it to the age that it carries;
and what waits there dies with the host, as all that is in its memory does.

A run without capacities knows nothing of this file: the engine takes another network, the hot path has no branch.
"""

from collections import Counter, deque
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


class Queue:
    """First come, first served, with a bounded number that wait. Messages and bits are two limits, kept apart: a packet
    is through when both have let it pass."""

    __slots__ = ("_bits_free", "_bps", "_leaving", "_msgs_free", "_per_msg", "_room")

    def __init__(self, msgs: float, bps: float, queue_msgs: int) -> None:
        self._per_msg = 0 if msgs == inf else int(SECOND / msgs)
        self._bps = bps
        self._room = queue_msgs + 1
        """Those that wait, and the one that is served."""
        self._leaving: deque[Nanos] = deque()
        self._msgs_free = self._bits_free = 0

    def clear(self) -> None:
        """All that waits is gone, and what is served as well."""
        self._leaving.clear()
        self._msgs_free = self._bits_free = 0

    def enter(self, now: Nanos, parts: int, bits: int) -> Nanos | None:
        """When a packet that comes now is through, None if it finds no room. It is one of `parts` of its message."""
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
    """What queues dropped: counted as the drops of peers are, and in the trace. A destination counts once for the peer
    that sent to it, however often its packets find a queue full, and whether or not that peer gives it up then."""

    def __init__(self, drops: Counter[str], notices: Counter[str], trace: Trace) -> None:
        self._drops = drops
        self._notices = notices
        self._trace = trace
        self._counted: set[tuple[PeerId, EventId, PeerId]] = set()
        self._heads: dict[tuple[PeerId, int], tuple[PeerId, ...]] = {}

    def sent(self, sender: PeerId, part: Fragment) -> None:
        """Only the first part of an event names the destinations."""
        if part.head is not None:
            self._heads[sender, part.number] = part.head.dests

    def dropped(self, now: Nanos, sender: PeerId, to: PeerId, at: PeerId, message: Message, reason: str) -> None:
        """What names no destinations (a copy on a tree) counts as one, for the peer that it was to reach."""
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
        """Those of the destinations that no queue has dropped for this sender."""
        if not self._counted:
            return dests
        return tuple(dest for dest in dests if (sender, id_, dest) not in self._counted)


class QueuedPacket(msgspec.Struct, frozen=True, gc=False):
    """A packet whose turn has come to leave the host that sends it."""

    life: int
    receiver: PeerId
    message: Message


class CapacityNetwork(Network):
    """Links with queues. What a link does to a packet (delay, loss, failure) it does when it leaves the queue."""

    __slots__ = ("_all", "_ledger", "_lives", "_queues")

    def __init__(self, world: World, agenda: Agenda, trace: Trace, ledger: DropLedger) -> None:
        super().__init__(world, agenda, trace)
        scenario = world.scenario
        self._ledger = ledger
        self._all = scenario.charge == "all"
        self._lives = [0] * world.overlay.peers
        self._queues: list[dict[PeerId, Queue]] = [{} for _ in range(world.overlay.peers)]
        for link in world.overlay.links:
            if min(link.capacity_msgs, link.capacity_bps) < inf:
                for sender, receiver in ((link.a, link.b), (link.b, link.a)):
                    self._queues[sender][receiver] = Queue(link.capacity_msgs, link.capacity_bps, scenario.queue_msgs)

    def send(self, now: Nanos, sender: PeerId, receiver: PeerId, message: Message) -> None:
        if type(message) is Fragment:
            self._ledger.sent(sender, message)
        queue = self._queues[sender].get(receiver)
        if queue is None or not (self._all or type(message) is Data or type(message) is Fragment):
            super().send(now, sender, receiver, message)
            return
        through = queue.enter(now, *_size(message))
        if through is None:
            self._ledger.dropped(now, sender, receiver, sender, message, QUEUE_FULL)
        else:
            leaving = QueuedPacket(self._lives[sender], receiver, older(message, through - now))
            self._agenda.push(through, LEAVING, sender, leaving)

    def leave(self, now: Nanos, sender: PeerId, leaving: QueuedPacket) -> None:
        if leaving.life == self._lives[sender]:
            super().send(now, sender, leaving.receiver, leaving.message)

    def crashed(self, peer: PeerId) -> None:
        self._lives[peer] += 1
        for queue in self._queues[peer].values():
            queue.clear()


class AdmittedPacket(msgspec.Struct, frozen=True, gc=False):
    """A packet whose turn has come."""

    life: int
    received: Received


class LimitedPeer:
    """A peer behind its own queue. What waits there dies with the peer, as what waits in a host's memory does."""

    def __init__(self, peer: Peer, queue: Queue, charge_all: bool, agenda: Agenda, ledger: DropLedger) -> None:
        self._life = peer.config.incarnation
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
            return self.peer.handle(now, event.received) if event.life == self._life else []
        if type(event) is Received and (self._all or type(event.message) in (Data, Fragment)):
            through = self._queue.enter(now, *_size(event.message))
            if through is None:
                self._ledger.dropped(now, event.sender, self.peer.me, self.peer.me, event.message, PEER_BUSY)
            else:
                waited = Received(event.sender, older(event.message, through - now))
                self._agenda.push(through, MESSAGE, self.peer.me, AdmittedPacket(self._life, waited))
            return []
        return self.peer.handle(now, event)  # type: ignore[arg-type]


def _size(message: Message) -> tuple[int, int]:
    """Of how many parts of a message it is one, and its bits."""
    if type(message) is Data:
        return 1, BITS_PER_BYTE * len(message.event.payload)
    if type(message) is Fragment:
        return message.count, BITS_PER_BYTE * len(message.chunk)
    return 1, 0
