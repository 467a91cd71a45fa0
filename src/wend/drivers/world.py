"""The world of a scenario: its overlay, publishers, subscribers and failures.

Both drivers build it, so a simulated and a live run of one scenario share everything but the clock.
Time 0 is the start; publishing begins after the warm-up.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from copy import copy
from functools import cached_property
from itertools import pairwise
from math import inf
from pathlib import Path as File
from typing import TYPE_CHECKING

import msgspec

from wend.drivers.scenarios import Scenario
from wend.drivers.workload import Topic, WorkloadEvent, draw_attributes, draw_filters, make_topics
from wend.matching.filters import parse, topic_filter
from wend.model.errors import ConfigError
from wend.model.events import PeerId, Qos
from wend.model.forwarding import Forwarding, read_forwarding
from wend.model.paths import Path
from wend.model.plan import fingerprint
from wend.model.rates import BITS_PER_BYTE, Capacity, parse_rate
from wend.model.scenario import AGGREGATE, STATED
from wend.model.units import FOREVER, MS, Nanos, seconds
from wend.protocol.config import PeerConfig
from wend.protocol.link.fragments import FRAGMENT_BYTES
from wend.protocol.ports import LocalSubscription, Neighbour, Started
from wend.strategies.registry import find_membership, plugin
from wend.topology import faults, generators, maps
from wend.topology.background_links import draw_background_links
from wend.topology.graph import Overlay, OverlayLink
from wend.topology.inferred_topology import InferredTopology, read_topology
from wend.topology.link_disturbances import draw_disturbances
from wend.topology.overlay_routes import make_routed_overlay, shortest_delays
from wend.topology.peer_clusters import domain_clusters, near_clusters

if TYPE_CHECKING:  # underlays bring a compiler with them, and most scenarios have none
    from wend.drivers.scenario_underlay import SimulatedTraceroutes
    from wend.topology.placement import Placement


class World:
    """The overlay, workload and failures of a scenario."""

    def __init__(
        self,
        scenario: Scenario,
        overlay: Overlay,
        placement: "Placement | None" = None,
        *,
        topics: tuple[Topic, ...] | None = None,
        outages: faults.Faults | None = None,
        deadlines: Mapping[tuple[PeerId, PeerId], Nanos] | None = None,
    ) -> None:
        """`topics`, `outages` of links, and `deadlines` by publisher and subscriber replace those of the scenario.
        Pairs without a deadline have that of the scenario's factor."""
        self.scenario = scenario
        self.overlay = overlay
        self.placement = placement
        """The routers of the peers, if the scenario names an underlay."""
        self.peer_capacity = _peer_capacities(scenario, overlay)
        self.begin_ns = scenario.warmup_ns
        """Publications and failures begin at this time."""
        self.stop_ns = self.begin_ns + scenario.duration_ns
        self.end_ns = self.stop_ns + scenario.drain_ns
        heal = self.end_ns if scenario.heal_ns is None else self.begin_ns + scenario.heal_ns
        self._component_faults = outages or _make_link_faults(scenario, overlay, placement, self.begin_ns, heal)
        self.partitions: list[faults.Partition] = []
        if scenario.peer_partitions is not None:
            self.partitions = faults.draw_partitions(
                overlay.peers, scenario.peer_partitions, begin=self.begin_ns, end=heal, seed=scenario.seed
            )
        self.faults = faults.add_partitions(overlay, self._component_faults, self.partitions)
        """The outages of links, in partitions too."""
        self.peer_faults = _make_peer_faults(scenario, overlay.peers, self.begin_ns, heal)
        self.churn = _draw_churn(scenario, self.peer_faults, overlay.peers, self.begin_ns, heal)
        """The absences of peers that leave gracefully."""
        self.disturbances = draw_disturbances(
            overlay,
            placement,
            corruption=scenario.corruption,
            reordering=scenario.reordering,
            reordering_delay_ns=scenario.reordering_delay_ns,
            spikes=scenario.delay_spikes,
            congestion=scenario.congestion,
            seed=scenario.seed,
            begin=self.begin_ns,
            end=heal,
        )
        self.background = draw_background_links(scenario.background_flows, scenario.seed, overlay, placement)
        """The links with other traffic."""
        self._given_deadlines = dict(deadlines or {})
        self.topics = make_topics(scenario, overlay) if topics is None else topics
        self.plan: Forwarding | None = None
        if scenario.plan is not None:
            links = [(link.a, link.b) for link in overlay.links]
            self.plan = read_forwarding(File(scenario.plan), fingerprint(overlay.peers, links))
        self.inferred_topology = _read_topology(scenario.inferred_topology)
        self.switches: list[tuple[Nanos, PeerId, Forwarding]] = []
        """Times at which a peer gets another plan, for tests that build a world by hand."""
        self.paths: Callable[[PeerId, PeerId], Path | None] | None = None
        """The paths that traceroutes find, for tests that build a world by hand."""
        self.multicast_reaches: Callable[[PeerId, PeerId, Nanos], bool] | None = None
        """Whether multicast of one peer reaches another at a time, for tests that build a world by hand."""
        self.filters = () if scenario.content is None else draw_filters(scenario.content, overlay.peers, scenario.seed)
        """One for each peer, if subscriptions are by content."""
        self._peer_settings = scenario.field_values()
        if scenario.underlay is None:
            self._peer_settings.pop("trace_paths", None)  # there is nothing to trace
        self._by_topic = {
            topic.name: WorkloadEvent(topic.name, {"topic": topic.name}, topic.subscribers, number)
            for number, topic in enumerate(self.topics)
        }

    @cached_property
    def _traceroutes(self) -> "SimulatedTraceroutes | None":
        if self.placement is None:
            return None
        from wend.drivers.scenario_underlay import SimulatedTraceroutes

        return SimulatedTraceroutes(self.scenario, self.placement, self._component_faults)

    @cached_property
    def _clusters(self) -> tuple[str, ...]:
        if self.placement is not None:
            names = domain_clusters(self.placement.underlay.domain.tolist(), self.placement.homes.tolist())
            if names is not None:
                return names
        return near_clusters(self.shortest_ns, self.scenario.clusters)

    def cluster_name(self, peer: PeerId) -> str:
        """The name of a peer's cluster: its domain of the underlay, or a group of near peers."""
        return self._clusters[peer]

    def for_strategy(self, strategy: str) -> "World":
        """The same world as a strategy sees it: one that brings its own membership has routes between all peers."""
        full = len(self.overlay.links) == self.overlay.peers * (self.overlay.peers - 1) // 2
        if full or find_membership(strategy, None) is None:
            return self
        if self.has_capacities:
            raise ConfigError(f"{strategy} sends along routes of links, whose capacities are not simulated")
        seen = copy(self)
        seen.overlay, seen.faults, routes = make_routed_overlay(self.overlay, self.faults)
        if self.disturbances is not None:
            seen.disturbances = self.disturbances.along(routes)
        return seen

    @cached_property
    def incarnations(self) -> list[list[tuple[Nanos, Nanos]]]:
        """By peer: when it runs, each time from its start to its next crash."""
        crashes: list[list[tuple[Nanos, Nanos]]] = [[(0, 0)] for _ in range(self.overlay.peers)]
        for peer, start, until in self.peer_faults.outages():
            crashes[peer].append((start, until))
        return [
            [(up, crash) for (_, up), (crash, _) in pairwise([*outages, (FOREVER, FOREVER)])] for outages in crashes
        ]

    @cached_property
    def shortest_ns(self) -> list[list[Nanos]]:
        delays: list[list[Nanos]] = shortest_delays(self.overlay).tolist()
        return delays

    @cached_property
    def deadlines_ns(self) -> list[list[Nanos]]:
        """Deadlines by publisher and subscriber."""
        deadlines = [[round(self.scenario.factor * shortest) for shortest in row] for row in self.shortest_ns]
        for (publisher, subscriber), deadline in self._given_deadlines.items():
            deadlines[publisher][subscriber] = deadline
        return deadlines

    def deadline_ns(self, publisher: PeerId, subscriber: PeerId) -> Nanos:
        return self.deadlines_ns[publisher][subscriber]

    def make_event(self, topic: Topic, now: Nanos) -> WorkloadEvent:
        """The event that this publisher publishes at this time."""
        content = self.scenario.content
        if content is None:
            return self._by_topic[topic.name]
        number = (now - self.begin_ns) // topic.period_ns
        attributes = draw_attributes(content, topic.publisher, number, self.scenario.seed)
        wanting = [peer for peer, text in enumerate(self.filters) if parse(text).matches(attributes)]
        return WorkloadEvent(topic.name, attributes, tuple(wanting), 0)

    @cached_property
    def has_capacities(self) -> bool:
        """Whether anything has a capacity."""
        limits = [(link.capacity_msgs, link.capacity_bps) for link in self.overlay.links]
        return any(min(limit) < inf for limit in (*limits, *self.peer_capacity))

    @cached_property
    def shared_capacity(self) -> Capacity:
        """The capacity of each underlay link that background flows use."""
        rate = parse_rate(str(self.scenario.link_capacity), "link_capacity")
        return (inf, rate.value) if rate.bits else (rate.value, inf)

    @cached_property
    def _shared_queues(self) -> Counter[tuple[PeerId, PeerId]]:
        """By direction of a link: the underlay links on its path that have queues of their own."""
        return Counter(arc for shared in self.background if shared.link is None for arc in shared.arcs)

    def _wait_ns(self, to: PeerId, link: OverlayLink) -> Nanos:
        """The longest time that a packet waits in queues on the link to a neighbour. Packets of background flows may be
        larger than those of peers."""
        largest = min(FRAGMENT_BYTES, max(topic.payload_bytes for topic in self.topics))
        if self.scenario.background_flows is not None:
            largest = max(largest, self.scenario.background_flows.packet_bytes)
        bits = BITS_PER_BYTE * largest
        slowest = [
            max(1 / msgs, bits / bps) for msgs, bps in ((link.capacity_msgs, link.capacity_bps), self.peer_capacity[to])
        ]
        if self.background:
            arc = (link.b, link.a) if to == link.a else (link.a, link.b)
            slowest.append(self._shared_queues[arc] * max(1 / self.shared_capacity[0], bits / self.shared_capacity[1]))
        return seconds((self.scenario.queue_msgs + 1) * sum(slowest))

    def find_path(self, a: PeerId, b: PeerId, now: Nanos = 0, attempt: int = 0) -> Path | None:
        """The routers from one peer to another. Without an underlay, each peer has a router of its own."""
        if self.paths is not None:
            return self.paths(a, b)
        return (a, b) if self._traceroutes is None else self._traceroutes.trace_route(a, b, now, attempt)

    def complete_path(self, a: PeerId, b: PeerId, path: Path) -> Path:
        """A path that `path` found, with its holes filled by the inferred topology, if the scenario names one."""
        if self.inferred_topology is None or self._traceroutes is None or None not in path:
            return path
        return self._traceroutes.complete(a, b, path, self.inferred_topology)

    def can_multicast(self, sender: PeerId, receiver: PeerId, now: Nanos) -> bool:
        """Whether a multicast packet of one peer may reach another that joined its group."""
        if not self.scenario.multicast:
            return False
        return self.multicast_reaches is None or self.multicast_reaches(sender, receiver, now)

    def peer_config(self, peer: PeerId, incarnation: int = 1, strategy: str | None = None) -> PeerConfig:
        """The configuration of a simulated peer, with the scenario's strategy or another. `make_live_config` adapts it
        to real hosts."""
        s = self.scenario
        settings = self._peer_settings
        strategy = strategy or s.strategy
        decides = find_membership(strategy, s.membership)
        named = decides is not None and "cluster" in plugin("membership", decides).settings.__struct_fields__
        if named and not settings.get("cluster"):
            settings = {**settings, "cluster": self.cluster_name(peer)}
        return PeerConfig(
            peer=peer,
            incarnation=incarnation,
            strategy=strategy,
            interest=s.interest,
            membership=s.membership,
            seed=s.seed,
            **settings,
        )

    def make_start_input(self, peer: PeerId) -> Started:
        """The input with which the driver starts this peer."""
        links = [(n, self.overlay.links[self.overlay.link(peer, n)]) for n in self.overlay.neighbours(peer)]
        neighbours = tuple(
            Neighbour(n, link.delay_ns, 1.0 - link.loss, self._wait_ns(n, link), self.scenario.charge == "all")
            for n, link in links
        )
        if self.filters:
            publishes = any(topic.publisher == peer for topic in self.topics)
            subscription = LocalSubscription(0, self.filters[peer], Qos(factor=self.scenario.factor))
            return Started(neighbours, (subscription,), ("true",) if publishes else ())
        return Started(
            neighbours,
            subscriptions=tuple(
                LocalSubscription(number, topic_filter(topic.name), self._subscription_qos(topic, peer))
                for number, topic in enumerate(self.topics)
                if peer in topic.subscribers
            ),
            advertisements=tuple(topic_filter(t.name) for t in self.topics if t.publisher == peer),
        )

    def _subscription_qos(self, topic: Topic, subscriber: PeerId) -> Qos:
        deadline = self._given_deadlines.get((topic.publisher, subscriber))
        return Qos(factor=self.scenario.factor) if deadline is None else Qos(deadline_ns=deadline)


def build_world(scenario: Scenario) -> World:
    if scenario.underlay is None:
        return World(scenario, _add_capacities(scenario, make_overlay(scenario)))
    from wend.drivers import scenario_underlay

    placement = scenario_underlay.place_peers(scenario)
    return World(
        scenario, _add_capacities(scenario, scenario_underlay.make_underlay_overlay(placement, scenario)), placement
    )


def _read_topology(folder: str | None) -> InferredTopology | None:
    return None if folder is None else read_topology(File(folder))


def _add_capacities(s: Scenario, overlay: Overlay) -> Overlay:
    """The overlay with the scenario's capacities. Without a `link_capacity` there are none, even if the map states
    some."""
    stated = [min(link.capacity_msgs, link.capacity_bps) < inf for link in overlay.links]
    if s.link_capacity == STATED:
        if not any(stated):
            raise ConfigError(f"the topology {s.topology} states no capacities: give a rate")
        return overlay
    if s.link_capacity is None:
        if not any(stated):
            return overlay
        limits, stated = {"capacity_msgs": inf, "capacity_bps": inf}, [False] * len(stated)
    else:
        rate = parse_rate(s.link_capacity, "link_capacity")
        limits = {"capacity_bps" if rate.bits else "capacity_msgs": rate.value}
    replace = msgspec.structs.replace
    links = [e if has_own else replace(e, **limits) for e, has_own in zip(overlay.links, stated, strict=True)]
    return Overlay(overlay.peers, links, overlay.names, overlay.capacities, remarks=overlay.remarks)


def _peer_capacities(s: Scenario, overlay: Overlay) -> tuple[Capacity, ...]:
    """The capacities of peers, of the topology or else of the scenario. Without `peer_capacity` there are none."""
    if s.peer_capacity is None:
        return ((inf, inf),) * overlay.peers
    if s.peer_capacity == STATED:
        if all(min(limit) == inf for limit in overlay.capacities):
            raise ConfigError(f"the topology {s.topology} states no capacities of peers: give a rate")
        return overlay.capacities
    if s.peer_capacity == AGGREGATE:
        others = [_sum_link_capacities(overlay, peer) for peer in range(overlay.peers)]
    else:
        rate = parse_rate(s.peer_capacity, "peer_capacity")
        others = [(inf, rate.value) if rate.bits else (rate.value, inf)] * overlay.peers
    pairs = zip(overlay.capacities, others, strict=True)
    return tuple(stated if min(stated) < inf else other for stated, other in pairs)


def _sum_link_capacities(overlay: Overlay, peer: PeerId) -> Capacity:
    links = [overlay.links[overlay.link(peer, other)] for other in overlay.neighbours(peer)]
    return sum(link.capacity_msgs for link in links), sum(link.capacity_bps for link in links)


def make_overlay(s: Scenario) -> Overlay:
    """The overlay of the topology, with the capacities that it states, whether the scenario uses them or not."""
    delay_ms = (s.delay_ns[0] / MS, s.delay_ns[1] / MS)
    if s.topology == "full-mesh":
        return generators.full_mesh(s.peers, delay_ms=delay_ms, loss=s.pl, seed=s.seed)
    if s.topology == "regular":
        return generators.regular(s.peers, s.degree, delay_ms=delay_ms, loss=s.pl, seed=s.seed)
    if s.topology == "random":
        return generators.random_graph(s.peers, s.degree, delay_ms=delay_ms, loss=s.pl, seed=s.seed)
    if s.topology.startswith("topohub:"):
        name = s.topology.removeprefix("topohub:")
        return maps.from_topohub(name, delay_ms=delay_ms, loss=s.pl, seed=s.seed)
    return maps.from_graphml(File(s.topology), delay_ms=delay_ms, loss=s.pl, seed=s.seed)


def _make_link_faults(
    s: Scenario, overlay: Overlay, placement: "Placement | None", begin: Nanos, end: Nanos
) -> faults.Faults:
    links = len(overlay.links)
    if s.failures is not None:
        return faults.read_faults(File(s.failures), overlay)
    if placement is not None:
        from wend.drivers import scenario_underlay

        return scenario_underlay.draw_failures(s, placement, overlay, begin=begin, end=end)
    if s.outages is not None:
        return faults.draw_outages(links, s.outages, begin=begin, end=end, seed=s.seed, what="links")
    return faults.PerSecond(links, s.pf, begin=begin, end=end, seed=s.seed)


def _make_peer_faults(s: Scenario, peers: int, begin: Nanos, end: Nanos) -> faults.Intervals:
    if s.peer_outages is None:
        return faults.Intervals(peers, ())
    return faults.draw_outages(peers, s.peer_outages, begin=begin, end=end, seed=s.seed, what="peers")


def _draw_churn(s: Scenario, crashes: faults.Intervals, peers: int, begin: Nanos, end: Nanos) -> faults.Intervals:
    """The absences of peers. One that is down, or crashes in the meantime, does not leave."""
    if s.churn is None:
        return faults.Intervals(peers, ())
    drawn = faults.draw_outages(peers, s.churn, begin=begin, end=end, seed=s.seed, what="churn")
    down = list(crashes.outages())
    absent = [
        (peer, start, until)
        for peer, start, until in drawn.outages()
        if not any(peer == crashed and start <= b and a <= until for crashed, a, b in down)
    ]
    return faults.Intervals(peers, absent)
