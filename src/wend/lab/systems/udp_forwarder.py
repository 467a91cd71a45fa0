"""Plain UDP baselines: a lower bound (no retransmission), static redundancy, and an upper bound (flooding).

`tree` sends one copy along the publisher's shortest-delay tree. `two-path` sends two copies per subscriber, on two
routes that share few links. `flood` sends one copy over every link. None of them retransmits or reroutes.

One process forwards for all hosts, with a socket in each namespace:
`python -m wend.lab.systems.udp_forwarder PLAN`. The `tree` also runs beside every other system, as the canary that
shows whether the machine was too busy.

    datagram = number of routes 1 | route 2, 2, ... | payload
"""

import selectors
import socket
import struct
import sys
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Literal

import msgspec

from wend.drivers.world import World
from wend.lab.address_plan import link_costs
from wend.lab.bench.delivery_log import read_stamp
from wend.lab.lab import Lab
from wend.model.events import PeerId
from wend.topology import paths

Mode = Literal["tree", "two-path", "flood"]
Route = tuple[PeerId, ...]

CANDIDATES = 5
BUFFER_BYTES = 1 << 20
_MAX_DATAGRAM = 65_535


class ForwardingPlan(msgspec.Struct, frozen=True):
    """The forwarder's input, which the bench computes before it starts the process."""

    lab: str
    mode: Mode
    port: int
    sink_port: int
    """The bench listens on this port, on every host's loopback."""
    subscribers: list[list[PeerId]]
    children: list[dict[PeerId, list[PeerId]]]
    """By topic and host; `tree` uses it."""
    routes: list[Route]
    starts: list[list[int]]
    """By topic, the numbers of its routes; `two-path` uses it."""


def make_plan(world: World, lab: str, mode: Mode, port: int, sink_port: int) -> ForwardingPlan:
    graph = link_costs(world.overlay)
    routes: list[Route] = []
    starts: list[list[int]] = []
    children: list[dict[PeerId, list[PeerId]]] = []
    for topic in world.topics:
        children.append(_group_children(find_tree_routes(graph, topic.publisher, topic.subscribers)))
        mine = [r for s in topic.subscribers for r in find_two_routes(graph, topic.publisher, s)]
        starts.append(list(range(len(routes), len(routes) + len(mine))))
        routes += mine
    subscribers = [list(topic.subscribers) for topic in world.topics]
    return ForwardingPlan(lab, mode, port, sink_port, subscribers, children, routes, starts)


def find_tree_routes(graph: paths.Costs, publisher: PeerId, subscribers: tuple[PeerId, ...]) -> list[Route]:
    """The publisher's shortest-delay tree as one route per subscriber."""
    _, parent = paths.shortest_path_tree(graph, publisher)
    return [paths.path_in_tree(parent, publisher, subscriber) for subscriber in subscribers]


def find_two_routes(graph: paths.Costs, publisher: PeerId, subscriber: PeerId) -> list[Route]:
    """The shortest route, and of the next shortest the one that shares the fewest links with it."""
    routes = paths.k_shortest_paths(graph, publisher, subscriber, CANDIDATES)
    first = set(map(frozenset, pairwise(routes[0])))
    others = sorted(routes[1:], key=lambda route: len(first & set(map(frozenset, pairwise(route)))))
    return routes[:1] + others[:1]


def _group_children(routes: list[Route]) -> dict[PeerId, list[PeerId]]:
    children: dict[PeerId, set[PeerId]] = {}
    for route in routes:
        for above, below in pairwise(route):
            children.setdefault(above, set()).add(below)
    return {above: sorted(below) for above, below in children.items()}


class Forwarder:
    """The forwarding decision of every host: next hops and local delivery of a datagram."""

    def __init__(self, plan: ForwardingPlan, neighbours: dict[PeerId, tuple[PeerId, ...]]) -> None:
        self._plan = plan
        self._neighbours = neighbours
        self._subscribers = [set(s) for s in plan.subscribers]
        self._seen: list[set[tuple[int, int]]] = [set() for _ in neighbours]

    def handle(
        self, host: PeerId, sender: PeerId | None, data: bytes
    ) -> tuple[list[tuple[PeerId, bytes]], bytes | None]:
        """The packets to send, by next hop, and the payload to deliver here, if any.

        `sender` is None for a publication of the host itself.
        """
        count = data[0]
        body = data[1 + 2 * count :]
        stamp = read_stamp(body)
        if stamp is None:
            return [], None
        numbers = self._plan.starts[stamp.topic] if sender is None else struct.unpack_from(f"!{count}H", data, 1)
        # With `two-path`, a host also forwards packets for others: only the end of a route delivers.
        is_end = self._plan.mode != "two-path" or any(self._plan.routes[n][-1] == host for n in numbers)
        is_new = is_end and (stamp.topic, stamp.sequence) not in self._seen[host]
        if is_new:
            self._seen[host].add((stamp.topic, stamp.sequence))
        match self._plan.mode:
            case "tree":
                onward = [(child, data) for child in self._plan.children[stamp.topic].get(host, ())]
            case "flood":
                onward = [(n, data) for n in self._neighbours[host] if n != sender] if is_new else []
            case "two-path":
                onward = self._split_by_next_hop(host, numbers, body)
        is_delivered = is_new and sender is not None and host in self._subscribers[stamp.topic]
        return onward, body if is_delivered else None

    def _split_by_next_hop(
        self, host: PeerId, numbers: "list[int] | tuple[int, ...]", body: bytes
    ) -> list[tuple[PeerId, bytes]]:
        groups: dict[PeerId, list[int]] = {}
        for number in numbers:
            route = self._plan.routes[number]
            at = route.index(host)
            if at + 1 < len(route):
                groups.setdefault(route[at + 1], []).append(number)
        return [(hop, struct.pack(f"!B{len(g)}H", len(g), *g) + body) for hop, g in groups.items()]


def run_forwarder(plan: ForwardingPlan) -> None:
    """Forward until the process is terminated."""
    lab = Lab.attach(plan.lab)
    forwarder = Forwarder(plan, {host.number: tuple(i.neighbour for i in host.interfaces) for host in lab.hosts})
    senders = [{i.remote: i.neighbour for i in host.interfaces} for host in lab.hosts]
    targets = [{i.neighbour: (i.remote, plan.port) for i in host.interfaces} for host in lab.hosts]
    waiting = selectors.DefaultSelector()
    for host in lab.hosts:
        with lab.inside(host.number):
            opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
        opened.bind(("0.0.0.0", plan.port))
        waiting.register(opened, selectors.EVENT_READ, host.number)
    sink = ("127.0.0.1", plan.sink_port)
    print("ready", flush=True)
    while True:
        for key, _ in waiting.select():
            here = key.fileobj
            assert isinstance(here, socket.socket)
            with suppress(BlockingIOError):
                while True:
                    data, (address, _) = here.recvfrom(_MAX_DATAGRAM)
                    onward, delivered = forwarder.handle(key.data, senders[key.data].get(address), data)
                    for neighbour, packet in onward:
                        with suppress(OSError):  # a full queue drops the packet, as in a network
                            here.sendto(packet, targets[key.data][neighbour])
                    if delivered is not None:
                        with suppress(OSError):
                            here.sendto(delivered, sink)


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        run_forwarder(msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=ForwardingPlan))
