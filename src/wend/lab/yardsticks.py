"""Plain UDP, three ways: what the network gives to those who do not mend anything, or who spend without limit.

`tree` sends one copy along the publisher's shortest-delay tree, `two-path` two copies per subscriber on
two routes that share few links, `flood` one copy over every link. One process forwards for all hosts, with
a socket in each namespace: `python -m wend.lab.yardsticks PLAN`. The `tree` also runs beside every other
system, as the canary that tells whether the machine kept up.

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
from wend.lab.network import Lab
from wend.lab.trees import costs
from wend.lab.workload import read
from wend.model.events import PeerId
from wend.topology import paths

Mode = Literal["tree", "two-path", "flood"]
Route = tuple[PeerId, ...]

CANDIDATES = 5
BUFFER_BYTES = 1 << 20
_MAX_DATAGRAM = 65_535


class Plan(msgspec.Struct, frozen=True):
    """Everything that the forwarder has to know, computed once by the bench."""

    lab: str
    mode: Mode
    port: int
    sink_port: int
    """Where the bench listens, on every host's loopback."""
    subscribers: list[list[PeerId]]
    children: list[dict[PeerId, list[PeerId]]]
    """By topic and host; for `tree`."""
    routes: list[Route]
    starts: list[list[int]]
    """By topic, the numbers of its routes; for `two-path`."""


def make_plan(world: World, lab: str, mode: Mode, port: int, sink_port: int) -> Plan:
    graph = costs(world.overlay)
    routes: list[Route] = []
    starts: list[list[int]] = []
    children: list[dict[PeerId, list[PeerId]]] = []
    for topic in world.topics:
        children.append(_children(tree_routes(graph, topic.publisher, topic.subscribers)))
        mine = [r for s in topic.subscribers for r in two_routes(graph, topic.publisher, s)]
        starts.append(list(range(len(routes), len(routes) + len(mine))))
        routes += mine
    subscribers = [list(topic.subscribers) for topic in world.topics]
    return Plan(lab, mode, port, sink_port, subscribers, children, routes, starts)


def tree_routes(graph: paths.Costs, publisher: PeerId, subscribers: tuple[PeerId, ...]) -> list[Route]:
    """The branches of the publisher's shortest-delay tree that lead to subscribers."""
    _, parent = paths.tree(graph, publisher)
    return [paths.walk(parent, publisher, subscriber) for subscriber in subscribers]


def two_routes(graph: paths.Costs, publisher: PeerId, subscriber: PeerId) -> list[Route]:
    """The shortest, and of the next ones the one that shares the fewest links with it."""
    found = paths.k_shortest(graph, publisher, subscriber, CANDIDATES)
    first = set(map(frozenset, pairwise(found[0])))
    others = sorted(found[1:], key=lambda route: len(first & set(map(frozenset, pairwise(route)))))
    return found[:1] + others[:1]


def _children(routes: list[Route]) -> dict[PeerId, list[PeerId]]:
    found: dict[PeerId, set[PeerId]] = {}
    for route in routes:
        for above, below in pairwise(route):
            found.setdefault(above, set()).add(below)
    return {above: sorted(below) for above, below in found.items()}


class Forwarder:
    """What each host does with a datagram: where it goes on, and whether it is delivered here."""

    def __init__(self, plan: Plan, neighbours: dict[PeerId, tuple[PeerId, ...]]) -> None:
        self._plan = plan
        self._neighbours = neighbours
        self._subscribers = [set(s) for s in plan.subscribers]
        self._seen: list[set[tuple[int, int]]] = [set() for _ in neighbours]

    def handle(
        self, host: PeerId, sender: PeerId | None, data: bytes
    ) -> tuple[list[tuple[PeerId, bytes]], bytes | None]:
        """What to send to which neighbours, and what to deliver; `sender` is None for the host's own publisher."""
        count = data[0]
        body = data[1 + 2 * count :]
        stamp = read(body)
        if stamp is None:
            return [], None
        numbers = self._plan.starts[stamp.topic] if sender is None else struct.unpack_from(f"!{count}H", data, 1)
        # On two paths a host may be on the way of a packet that is not for it: passing is not arriving.
        ends = self._plan.mode != "two-path" or any(self._plan.routes[n][-1] == host for n in numbers)
        new = ends and (stamp.topic, stamp.sequence) not in self._seen[host]
        if new:
            self._seen[host].add((stamp.topic, stamp.sequence))
        match self._plan.mode:
            case "tree":
                onward = [(child, data) for child in self._plan.children[stamp.topic].get(host, ())]
            case "flood":
                onward = [(n, data) for n in self._neighbours[host] if n != sender] if new else []
            case "two-path":
                onward = self._split(host, numbers, body)
        wanted = new and sender is not None and host in self._subscribers[stamp.topic]
        return onward, body if wanted else None

    def _split(self, host: PeerId, numbers: "list[int] | tuple[int, ...]", body: bytes) -> list[tuple[PeerId, bytes]]:
        groups: dict[PeerId, list[int]] = {}
        for number in numbers:
            route = self._plan.routes[number]
            at = route.index(host)
            if at + 1 < len(route):
                groups.setdefault(route[at + 1], []).append(number)
        return [(hop, struct.pack(f"!B{len(g)}H", len(g), *g) + body) for hop, g in groups.items()]


def run(plan: Plan) -> None:
    """Until the process is told to end."""
    lab = Lab.attach(plan.lab)
    forwarder = Forwarder(plan, {h.number: tuple(way.neighbour for way in h.ways) for h in lab.hosts})
    senders = [{way.remote: way.neighbour for way in host.ways} for host in lab.hosts]
    targets = [{way.neighbour: (way.remote, plan.port) for way in host.ways} for host in lab.hosts]
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
                        with suppress(OSError):  # a full queue loses it, as a network does
                            here.sendto(packet, targets[key.data][neighbour])
                    if delivered is not None:
                        with suppress(OSError):
                            here.sendto(delivered, sink)


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        run(msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Plan))
