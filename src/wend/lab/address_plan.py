"""The address plan of an emulated network: namespaces, interfaces, addresses and static routes.

All functions are pure: they compute names, addresses and routes from an overlay. Link `i` owns the /30 at
10.0.0.0 + 4i, and its end with the lower number has the first address. Node `n` has the address 10.255.0.1 + n on its
loopback device.
"""

import re
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network

import msgspec

from wend.model.errors import ConfigError
from wend.model.events import PeerId
from wend.model.units import Nanos
from wend.topology.graph import Overlay
from wend.topology.paths import shortest_path_tree

PREFIX = "wend"
MAX_NODES = 4000
MAX_LINKS = 4000
_LINKS_FROM = int(IPv4Address("10.0.0.0"))
_NODES_FROM = int(IPv4Address("10.255.0.1"))
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,23}")
_RESERVED = "bin"  # the subfolder with the compiled emulator


class Interface(msgspec.Struct, frozen=True):
    """One end of a link: the device on this node, and both addresses of the link's /30."""

    neighbour: PeerId
    link: int
    device: str
    local: str
    remote: str
    delay_ns: Nanos


class LabNode(msgspec.Struct, frozen=True):
    """A node of the network: one network namespace. `address` is its loopback address."""

    number: PeerId
    name: str
    namespace: str
    address: str
    interfaces: tuple[Interface, ...]
    router: bool = False
    """A router forwards packets; the bench runs no system on it."""


class StaticRoute(msgspec.Struct, frozen=True):
    """A static route of one node."""

    target: str
    """An address or a network."""
    via: str
    device: str


def check_lab_name(lab: str) -> None:
    if not _NAME.fullmatch(lab) or lab == _RESERVED:
        raise ConfigError(
            f"{lab!r} is no name for a lab: use up to 24 lower-case letters, digits and dashes (not {_RESERVED!r})"
        )


def namespace_name(lab: str, node: PeerId) -> str:
    return f"{PREFIX}-{lab}-{node}"


def find_lab_name(namespace: str) -> str | None:
    """The name of the lab that owns a namespace; None if no lab does."""
    match = re.fullmatch(rf"{PREFIX}-({_NAME.pattern})-[0-9]+", namespace)
    return match[1] if match else None


def link_network(link: int) -> str:
    return f"{IPv4Address(_LINKS_FROM + 4 * link)}/30"


def node_address(node: PeerId) -> str:
    return str(IPv4Address(_NODES_FROM + node))


def make_nodes(lab: str, overlay: Overlay, routers: Iterable[PeerId] = ()) -> tuple[LabNode, ...]:
    """Every node of the overlay with its interfaces, by number."""
    check_lab_name(lab)
    forwarding = frozenset(routers)
    if overlay.peers > MAX_NODES or len(overlay.links) > MAX_LINKS:
        raise ConfigError(
            f"a lab has at most {MAX_NODES} nodes and {MAX_LINKS} links, got {overlay.peers} and {len(overlay.links)}"
        )
    if unknown := sorted(forwarding - set(range(overlay.peers))):
        raise ConfigError(f"router {unknown[0]} is not one of the {overlay.peers} nodes")
    if len(forwarding) == overlay.peers:
        raise ConfigError("every node is a router: a lab needs hosts, too")
    return tuple(
        LabNode(
            number=n,
            name=overlay.names[n],
            namespace=namespace_name(lab, n),
            address=node_address(n),
            interfaces=tuple(_make_interface(overlay, n, other) for other in overlay.neighbours(n)),
            router=n in forwarding,
        )
        for n in range(overlay.peers)
    )


def _make_interface(overlay: Overlay, here: PeerId, there: PeerId) -> Interface:
    link = overlay.link(here, there)
    low, high = (str(address) for address in IPv4Network(link_network(link)).hosts())
    local, remote = (low, high) if here < there else (high, low)
    return Interface(there, link, f"to{there}", local, remote, overlay.links[link].delay_ns)


def link_costs(overlay: Overlay) -> dict[PeerId, dict[PeerId, int]]:
    """The delay of each link, at least 1, by node and neighbour."""
    costs: dict[PeerId, dict[PeerId, int]] = {node: {} for node in range(overlay.peers)}
    for link in overlay.links:
        costs[link.a][link.b] = costs[link.b][link.a] = max(1, link.delay_ns)
    return costs


def find_next_hops(overlay: Overlay) -> list[tuple[dict[PeerId, int], dict[PeerId, PeerId]]]:
    """By target: each node's distance to it, and its next hop on the shortest path.

    The paths to one target form a tree, so packets do not loop. Of equal paths, the one with the lower next hop wins.
    """
    costs = link_costs(overlay)
    return [shortest_path_tree(costs, target) for target in range(overlay.peers)]


def find_shortest_routes(overlay: Overlay, network: tuple[LabNode, ...]) -> list[list[StaticRoute]]:
    """By node: a route to every other node's address, and to every link that does not end at the node.

    A packet for a link goes to the nearer end of it. Each hop comes nearer to that end, so these packets do not loop.
    """
    distances, hops = zip(*find_next_hops(overlay), strict=True)
    tables: list[list[StaticRoute]] = []
    for here in network:
        interfaces = {interface.neighbour: interface for interface in here.interfaces}
        routes = []
        for target in network:
            if (hop := hops[target.number].get(here.number)) is not None:
                routes.append(StaticRoute(target.address, interfaces[hop].remote, interfaces[hop].device))
        for number, link in enumerate(overlay.links):
            ends = [end for end in (link.a, link.b) if here.number in distances[end]]
            if here.number not in (link.a, link.b) and ends:
                nearer = min(ends, key=lambda end: (distances[end][here.number], end))
                hop = hops[nearer][here.number]
                routes.append(StaticRoute(link_network(number), interfaces[hop].remote, interfaces[hop].device))
        tables.append(routes)
    return tables
