"""The simulation engine: it takes the next entry from the agenda, passes it to its peer, and carries out the effects.

At one time, faults come first, then packets that leave a queue, messages, wake-ups and publications. So an ACK that
arrives just as its timer expires is in time.
"""

from collections import Counter
from collections.abc import Callable
from heapq import heappop, heappush
from math import inf
from typing import Any

from wend.drivers.sim.capacity import CapacityNetwork, DropTailQueue, GatedPeer, LimitedPeer
from wend.drivers.sim.detection import LinkVerdict
from wend.drivers.sim.disturbances import CORRUPTED, DisturbedNetwork
from wend.drivers.sim.drop_ledger import DropLedger
from wend.drivers.sim.managed_network import ManagedNetwork
from wend.drivers.sim.managed_queue import TimedAction
from wend.drivers.sim.network import FAULT, LEAVING, MESSAGE, PUBLICATION, WAKE, Agenda, Network, Transport
from wend.drivers.workload import Topic
from wend.drivers.world import World
from wend.model.errors import ConfigError
from wend.model.events import EventId, PeerId
from wend.model.forwarding import Forwarding
from wend.model.publication import Publication
from wend.model.trace import Trace
from wend.model.units import FOREVER, MS, SECOND, Nanos
from wend.protocol.config import DeliverySettings, LinkSettings
from wend.protocol.link.fragments import FRAGMENT_BYTES
from wend.protocol.notices import LINK_DOWN, LINK_UP, NO_ROOM
from wend.protocol.peer import Peer
from wend.protocol.ports import (
    Deliver,
    Drop,
    Effect,
    FindPath,
    JoinMulticast,
    LeaveMulticast,
    Missed,
    Multicast,
    MulticastMembers,
    Notice,
    PathFound,
    Persist,
    Planned,
    Receipt,
    Refuse,
    Send,
    SendEach,
    Started,
    Stopping,
    WakeAt,
    Woken,
)
from wend.protocol.records import Record
from wend.strategies.registry import make_peer

WOKEN = Woken()
TRACE_NS: Nanos = 200 * MS
"""The time that a traceroute takes."""
LEAVE_NS: Nanos = 500 * MS
"""How long a peer that leaves still answers, as a live one does."""
BACKGROUND = "background-packets"
_LINKS = (LINK_DOWN, LINK_UP)
_CROSSINGS = 20
"""How often an event may cross every link in each direction, on average."""
_SENDS_PER_SUBSCRIBER = 1000
"""How often peers may send an event per subscriber, on average. A strategy that needs more than this and `_CROSSINGS`
together multiplies its copies without end."""


class Engine:
    """One run. `run()` plays it to the end; the results are in `trace` and the counters."""

    def __init__(self, world: World) -> None:
        scenario = world.scenario
        self.world = world
        self.scenario = scenario
        self.trace = Trace()
        self.drops: Counter[str] = Counter()
        self.notices: Counter[str] = Counter()
        self.link_verdicts: list[LinkVerdict] = []
        self.agenda = Agenda()
        self._ledger = DropLedger(self.drops, self.notices, self.trace)
        self.peers: list[Peer | GatedPeer | None] = [None] * world.overlay.peers
        self.links = self.make_links()
        self.network = self.make_network(self.links)
        self.expected: dict[EventId, tuple[Nanos, tuple[PeerId, ...]]] = {}
        self.unknown: dict[EventId, set[PeerId]] = {}
        """By event: subscribers that the publisher did not know."""
        self._persistence = scenario.of(DeliverySettings).persistence
        self.stores: list[list[Record]] = [[] for _ in range(world.overlay.peers)]
        self._absent: set[PeerId] = set()
        """Peers that left gracefully. They have no subscriptions until they join again."""
        self.incarnations = [0] * world.overlay.peers
        self._wake: list[Nanos] = [FOREVER] * world.overlay.peers
        self._wake_requests: list[set[Nanos]] = [set() for _ in range(world.overlay.peers)]
        self._groups: dict[str, set[PeerId]] = {}
        """By name of a multicast group: the peers that joined it."""
        self._plans = [world.plan] * world.overlay.peers
        self._trace_attempts: Counter[tuple[PeerId, PeerId]] = Counter()
        self._deadlines = world.deadlines_ns
        self._row = self.trace.deliveries.pack
        self._delivered = self.trace.deliveries.add_packed
        retries = (scenario.duration_ns + scenario.drain_ns) / SECOND if self._persistence else 0
        times = scenario.of(LinkSettings).transmissions * (_CROSSINGS + retries)
        self._flood_transmissions = int(2 * len(world.overlay.links) * times)
        """How many transmissions cross every link as often as allowed. Peers retry stored events every second."""
        self._transmission_limit = 0
        self._steps: dict[int, Callable[[Nanos, PeerId, Any], list[Effect]]] = {
            FAULT: self.apply_fault,
            LEAVING: self.run_action,
            PUBLICATION: self.publish,
        }
        """The function for each kind of agenda entry that is not an input of a peer."""
        self._handlers: dict[type, Callable[[Nanos, PeerId, Any], None]] = {
            Receipt: self._ignore_effect,
            Missed: self.record_missed,
            Persist: self.store_record,
            Drop: self.record_drop,
            Notice: self._record_notice,
            Refuse: self._count_refusal,
            FindPath: self._find_path,
            JoinMulticast: self._join_group,
            LeaveMulticast: self._leave_group,
            Multicast: self._multicast,
            MulticastMembers: self._ignore_effect,
        }

    @property
    def control(self) -> Counter[str]:
        return self.links.control

    @property
    def transmissions(self) -> int:
        return self.links.transmissions

    @property
    def transmissions_unicast(self) -> int:
        return self.links.transmissions_unicast

    def make_links(self) -> Network:
        return Network(self.world, self.agenda, self.trace, self.peers)

    def make_network(self, links: Network) -> Transport:
        """Put only those disturbances and queues before the links that the world needs."""
        world = self.world
        network: Transport = links
        if world.disturbances is not None:
            network = DisturbedNetwork(links, world.disturbances, self.agenda, self.scenario.seed)
        if not world.has_capacities:
            return network
        if self.scenario.queue_discipline != "drop-tail" or world.background:
            return ManagedNetwork(network, links, world, self.agenda, self._ledger)
        return CapacityNetwork(network, world, self.agenda, self._ledger)

    # ---------------------------------------------------------------- the loop

    def run(self) -> None:
        """Play the run to its end. The loop carries out effects itself: a call for each would cost 5 % of the speed."""
        self.schedule_all()
        agenda, network, peers, end = self.agenda, self.network, self.peers, self.world.end_ns
        links = self.links
        heap, instant, hellos = agenda.heap, links.instant, links.quiet
        quiet, wake, asked = hellos.by_peer, self._wake, self._wake_requests
        steps, handlers = self._steps, self._handlers
        now = kind = number = 0
        arg: Any
        while heap or instant:
            if instant:
                peer, arg = instant.popleft()
                is_input = True
            else:
                now, kind, number, peer, arg = heappop(heap)
                if now > end:
                    break
                is_input = kind == MESSAGE
                if kind == WAKE:
                    asked[peer].discard(now)
                    if links.transmissions > self._transmission_limit:
                        raise self._multiplication_error(now)
                    if wake[peer] != now:  # most: the peer has asked for another time since
                        continue
                    is_input = True
            if quiet[peer]:
                hellos.deliver_before(peer, now, kind, number)
            if is_input:
                target = peers[peer]
                effects = [] if target is None else target.handle(now, arg)
            else:
                effects = steps[kind](now, peer, arg)
            if quiet[peer]:
                hellos.recheck_hellos(peer)
            for effect in effects:
                if type(effect) is Send:
                    network.send(now, peer, effect.peer, effect.message)
                elif type(effect) is WakeAt:
                    # the newest request counts; the agenda keeps those that it replaces
                    time = wake[peer] = effect.time_ns
                    if time not in (requested := asked[peer]):
                        requested.add(time)
                        agenda.count = count = agenda.count + 1
                        heappush(heap, (time, WAKE, count, peer, WOKEN))
                elif type(effect) is Deliver:
                    self.record_delivery(now, peer, effect)
                elif type(effect) is SendEach:
                    network.send_each(now, peer, effect.peers, effect.message)
                else:
                    handlers[type(effect)](now, peer, effect)
        self._count_background()

    def schedule_all(self) -> None:
        """Put the starts, faults and first publications of the world into the agenda, and the faults into the trace."""
        for peer in range(self.world.overlay.peers):
            self.agenda.push(0, FAULT, peer, "start")
        for topic in self.world.topics:
            first = self.world.begin_ns + topic.phase_ns
            if first < self.world.stop_ns:
                self.agenda.push(first, PUBLICATION, topic.publisher, topic)
        for peer, start, until in self.world.peer_faults.outages():
            self.agenda.push(start, FAULT, peer, "crash")
            self.agenda.push(until, FAULT, peer, "start")
            self.trace.faults.add(start, "peer", peer, peer, until)
        for peer, start, until in self.world.churn.outages():
            self.agenda.push(start, FAULT, peer, "leave")
            self.agenda.push(min(start + LEAVE_NS, until), FAULT, peer, "gone")
            self.agenda.push(until, FAULT, peer, "start")
            self.trace.faults.add(start, "churn", peer, peer, until)
        for time, peer, plan in self.world.switches:
            self.agenda.push(time, FAULT, peer, plan)
        for index, start, until in self.world.faults.outages():
            link = self.world.overlay.links[index]
            self.trace.faults.add(start, "link", link.a, link.b, until)
        for start, until, group in self.world.partitions:
            for peer in sorted(group):
                self.trace.faults.add(start, "partition", peer, peer, until)
        if self.world.disturbances is not None:
            for kind, (index, start, until) in self.world.disturbances.periods():
                link = self.world.overlay.links[index]
                self.trace.faults.add(start, kind, link.a, link.b, until)

    def apply_fault(self, now: Nanos, peer: PeerId, what: str | Forwarding) -> list[Effect]:
        """Apply a change to a peer: start, crash, leave, be gone for good, get another plan or a corrupted packet."""
        if what == "start":
            return self._start(now, peer)
        target = self.peers[peer]
        if isinstance(what, Forwarding):
            self._plans[peer] = what
            return [] if target is None else target.handle(now, Planned(what))
        if what == CORRUPTED:
            if target is not None:
                self.notices[f"refused-{CORRUPTED}"] += 1
            return []
        if what == "leave":
            self._absent.add(peer)
            return [] if target is None else target.handle(now, Stopping())
        self._stop(now, peer)
        return []

    def _start(self, now: Nanos, peer: PeerId) -> list[Effect]:
        self._absent.discard(peer)
        self.incarnations[peer] += 1
        target = self.peers[peer] = self._limit_capacity(
            peer, make_peer(self.world.peer_config(peer, self.incarnations[peer]))
        )
        start = self.world.make_start_input(peer)
        stored = tuple(self.stores[peer])
        effects = target.handle(now, Started(start.neighbours, start.subscriptions, start.advertisements, stored))
        plan = self._plans[peer]
        return effects if plan is None else [*effects, *target.handle(now, Planned(plan))]

    def _stop(self, now: Nanos, peer: PeerId) -> None:
        self.peers[peer] = None
        self._wake[peer] = FOREVER
        self.links.quiet.schedule_hellos(peer)
        self.network.crash(now, peer)
        for group in self._groups.values():
            group.discard(peer)

    def _count_background(self) -> None:
        """Count the packets of other traffic that arrived."""
        if self.world.background:
            assert isinstance(self.network, ManagedNetwork)
            self.notices[BACKGROUND] = sum(flow.delivered for flow in self.network.background)

    def _multiplication_error(self, now: Nanos) -> ConfigError:
        sent, events = self.links.transmissions, len(self.expected)
        return ConfigError(
            f"{self.scenario.strategy} multiplies its copies: {sent} transmissions for {events} published after "
            f"{now / SECOND:.3f} s; a peer that gets an event again should not send it on again"
        )

    def run_action(self, now: Nanos, peer: PeerId, action: TimedAction) -> list[Effect]:
        """Run an action of a queue or a background flow that is due."""
        action.run(now)
        return []

    def _limit_capacity(self, peer: PeerId, target: Peer) -> Peer | LimitedPeer:
        msgs, bps = self.world.peer_capacity[peer]
        if min(msgs, bps) == inf:
            return target
        queue = DropTailQueue(msgs, bps, self.scenario.queue_msgs)
        return LimitedPeer(target, queue, self.scenario.charge == "all", self.agenda, self._ledger)

    def publish(self, now: Nanos, peer: PeerId, topic: Topic) -> list[Effect]:
        """Publish the next event of a topic."""
        self.schedule_next_publication(now, topic)
        publisher = self.peers[peer]
        if publisher is None or peer in self._absent:
            self.notices["publisher-down"] += 1
            return []
        publication = self.world.make_event(topic, now)
        subscribers = publication.subscribers
        if None in self.peers and not self._persistence:
            subscribers = tuple(s for s in subscribers if self.peers[s] is not None)
        if self._absent:
            subscribers = tuple(s for s in subscribers if s not in self._absent)
        self.allow_transmissions(len(publication.subscribers), 1 + topic.payload_bytes // FRAGMENT_BYTES)
        effects = publisher.handle(now, Publication(publication.attributes, bytes(topic.payload_bytes)))
        receipt = next(e for e in effects if type(e) is Receipt)
        id_ = receipt.id
        self.expected[id_] = (now, subscribers)
        if publisher.knows_all_subscribers and receipt.targets != subscribers:
            self.unknown[id_] = set(subscribers).difference(receipt.targets)
        self.trace.publications.add(now, *id_, topic.name, len(subscribers))
        return effects

    def schedule_next_publication(self, now: Nanos, topic: Topic) -> None:
        """Put the next publication of a topic into the agenda."""
        again = self.world.begin_ns + topic.next_time(now - self.world.begin_ns)
        if again < self.world.stop_ns:
            self.agenda.push(again, PUBLICATION, topic.publisher, topic)

    def allow_transmissions(self, subscribers: int, fragments: int) -> None:
        """Allow for the transmissions of one more event."""
        self._transmission_limit += (self._flood_transmissions + _SENDS_PER_SUBSCRIBER * (1 + subscribers)) * fragments

    # ---------------------------------------------------------------- effects

    def record_delivery(self, now: Nanos, peer: PeerId, deliver: Deliver) -> None:
        id_ = deliver.event.id
        publisher, incarnation, sequence = id_
        try:
            born = self.expected[id_][0]
        except KeyError:  # no peer published it: the checks report it from the trace
            born = now
        deadline = self._deadlines[publisher][peer]
        number = deliver.subscription[1]
        self._delivered(self._row(now, publisher, incarnation, sequence, peer, number, now - born, deadline))

    def _ignore_effect(self, now: Nanos, peer: PeerId, effect: Effect) -> None:
        """Do nothing: `publish` reads receipts, and simulated peers have no group keys."""

    def record_missed(self, now: Nanos, peer: PeerId, missed: Missed) -> None:
        self.notices["missed"] += sum(missed.counts.values())

    def store_record(self, now: Nanos, peer: PeerId, store: Persist) -> None:
        self.stores[peer].append(store.record)

    def record_drop(self, now: Nanos, peer: PeerId, drop: Drop) -> None:
        # A drop from a full retry queue is the peer's own decision. Any other may repeat the drop of a link's queue.
        dests = drop.dests if drop.code == NO_ROOM else self._ledger.select_uncounted(peer, drop.id, drop.dests)
        if not dests:
            return
        self.drops[drop.code] += len(dests)
        for dest in dests:
            self.trace.drops.add(now, peer, *drop.id, dest, drop.code)

    def _record_notice(self, now: Nanos, peer: PeerId, notice: Notice) -> None:
        what = notice.what
        self.notices[what] += notice.count
        if what in _LINKS:
            self.link_verdicts.append((now, peer, notice.peer, what == LINK_UP))

    def _find_path(self, now: Nanos, peer: PeerId, effect: FindPath) -> None:
        self.notices["paths"] += 1
        asked = self._trace_attempts[peer, effect.peer] = self._trace_attempts[peer, effect.peer] + 1
        path = self.world.find_path(peer, effect.peer, now, asked)
        if self.world.inferred_topology is not None and path is not None and None in path:
            path = self.world.complete_path(peer, effect.peer, path)
            if None in path:
                self.notices["paths-incomplete"] += 1
            else:
                self.notices["paths-inferred"] += 1
        self.agenda.push(now + TRACE_NS, MESSAGE, peer, PathFound(effect.peer, path))

    def _join_group(self, now: Nanos, peer: PeerId, join: JoinMulticast) -> None:
        self._groups.setdefault(join.group, set()).add(peer)

    def _leave_group(self, now: Nanos, peer: PeerId, leave: LeaveMulticast) -> None:
        self._groups.get(leave.group, set()).discard(peer)

    def _multicast(self, now: Nanos, peer: PeerId, cast: Multicast) -> None:
        """Send to the other members of the group. Members that multicast does not reach count as losses, too."""
        others = sorted(self._groups.get(cast.group, set()) - {peer})
        reached = [other for other in others if self.world.can_multicast(peer, other, now)]
        arriving = self.network.multicast(now, peer, reached, cast.message)
        self.notices["multicast"] += 1
        if arriving < len(others):
            self.notices["multicast-lost"] += len(others) - arriving

    def _count_refusal(self, now: Nanos, peer: PeerId, refuse: Refuse) -> None:
        self.notices[f"refused-{refuse.code}"] += 1
