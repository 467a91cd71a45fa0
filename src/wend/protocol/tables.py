"""The plug-ins by kind and name. A plug-in of the tree is registered here and nowhere else.

`module:Class` names one from outside the tree; a driver imports it and adds it to the table (`drivers/plugins.py`).
"""

from wend.model.error_text import either
from wend.model.errors import ConfigError
from wend.model.settings import Settings
from wend.protocol.config import DeliverySettings, LinkSettings
from wend.protocol.graph.link_state import LinkStateGraph
from wend.protocol.graph.tree_sets import MrstTrees, SptKTrees
from wend.protocol.interest.cluster_graph import ClusterGraph
from wend.protocol.interest.clusters import ClusterInterest
from wend.protocol.interest.dmm import Dmm, DmmAr
from wend.protocol.interest.flooded import FloodedInterest
from wend.protocol.interest.groups import Hermes, Scribe
from wend.protocol.interest.rendezvous import Rendezvous
from wend.protocol.interest.trees import NamedTreeInterest, TreeInterest
from wend.protocol.membership.chain import Chain
from wend.protocol.membership.cluster_links import LinkedClusters
from wend.protocol.membership.clusters import Clusters
from wend.protocol.membership.pastry import Pastry
from wend.protocol.membership.random_links import RandomLinks
from wend.protocol.membership.tdo_landmark import TdoLandmark
from wend.protocol.membership.tdo_random import Farthest, Nearest, TdoRandom
from wend.protocol.plugins import FLOODED, LINK_STATE, Kind, Membership, NoSettings, Plugin
from wend.protocol.routing.adaptive import Adaptive
from wend.protocol.routing.clusters import ClustersRouting
from wend.protocol.routing.clusters_adaptive import ClustersAdaptive
from wend.protocol.routing.dcrd import Dcrd
from wend.protocol.routing.key_based import DmmArRouting, DmmRouting, HermesRouting, RendezvousRouting, ScribeRouting
from wend.protocol.routing.multipath import Multipath
from wend.protocol.routing.planned import PlannedRouting
from wend.protocol.routing.planned_failover import FailoverRouting
from wend.protocol.routing.source_trees import DelayTree, HopTree
from wend.protocol.routing.tree_routing import MrstRouting, SptKRouting

MEMBERSHIP: dict[str, type[Plugin]] = {
    "tdo-landmark": TdoLandmark,
    "tdo-random": TdoRandom,
    "tdo-nearest": Nearest,
    "tdo-farthest": Farthest,
    "random": RandomLinks,
    "chain": Chain,
    "pastry": Pastry,
    "clusters": Clusters,
    "clusters-linked": LinkedClusters,
}
GRAPHS: dict[str, type[Plugin]] = {
    LINK_STATE: LinkStateGraph,
    "mrst-trees": MrstTrees,
    "spt-k-trees": SptKTrees,
}
INTEREST: dict[str, type[Plugin]] = {
    FLOODED: FloodedInterest,
    "trees": TreeInterest,
    "trees-by-name": NamedTreeInterest,
    "scribe": Scribe,
    "hermes": Hermes,
    "dmm": Dmm,
    "dmm-ar": DmmAr,
    "rendezvous": Rendezvous,
    "cluster-trees": ClusterInterest,
    "cluster-graph": ClusterGraph,
}
ROUTING: dict[str, type[Plugin]] = {
    "adaptive": Adaptive,
    "dcrd": Dcrd,
    "d-tree": DelayTree,
    "r-tree": HopTree,
    "multipath": Multipath,
    "planned": PlannedRouting,
    "planned-failover": FailoverRouting,
    "mrst": MrstRouting,
    "spt-k": SptKRouting,
    "scribe": ScribeRouting,
    "hermes": HermesRouting,
    "dmm": DmmRouting,
    "dmm-ar": DmmArRouting,
    "rendezvous": RendezvousRouting,
    "clusters": ClustersRouting,
    "clusters-adaptive": ClustersAdaptive,
}
LINKED = tuple(name for name, made in ROUTING.items() if made.needs.membership is None)
"""The strategies that work on given links."""
_ON_RING = tuple(name for name in ROUTING if name not in LINKED)
"""Those that need peers that can all reach each other."""
_WITHOUT_LINKS = tuple(name for name, made in MEMBERSHIP.items() if issubclass(made, Membership) and made.joins)
OUTSIDE = ":"
"""It stands in the name of a plug-in from outside the tree."""
PLUGINS: dict[Kind, dict[str, type[Plugin]]] = {
    "membership": MEMBERSHIP,
    "graph": GRAPHS,
    "interest": INTEREST,
    "routing": ROUTING,
}
TITLES: dict[Kind, str] = {"membership": "membership", "graph": "graph", "interest": "interest", "routing": "strategy"}
"""What a person calls a plug-in of each kind."""


def plugin(kind: Kind, name: str) -> type[Plugin]:
    """The class of a plug-in; a name that is unknown is one sentence."""
    try:
        return PLUGINS[kind][name]
    except KeyError:
        known = ", ".join(PLUGINS[kind])
        raise ConfigError(f"unknown {TITLES[kind]} {name!r}: choose one of {known}, or MODULE:CLASS") from None


def hosted_plugins(
    strategy: str, interest: str | None, membership: str | None, persistency: bool
) -> tuple[tuple[Kind, str], ...]:
    """The plug-ins that such a peer hosts, by kind and name, in the order in which its host asks them."""
    needs = plugin("routing", strategy).needs
    wanted: list[tuple[Kind, str]] = [
        ("routing", strategy),
        ("interest", interest or (needs.durable_interest if persistency else needs.interest)),
    ]
    if (decides := membership_of(strategy, membership)) is not None:
        _check_ring(strategy, decides)
        wanted.append(("membership", decides))
    for kind, name in wanted:  # grows while plug-ins need graphs, and graphs others
        wanted += [("graph", graph) for graph in plugin(kind, name).needs.graphs if ("graph", graph) not in wanted]
    return tuple(sorted(wanted, key=_order))


def membership_of(strategy: str, membership: str | None) -> str | None:
    """The membership of such a peer: the one that its configuration names, or that its strategy needs."""
    return membership or plugin("routing", strategy).needs.membership


def joins_by_contacts(membership: str) -> bool:
    """Whether peers with this membership join by any peer that they know."""
    made = plugin("membership", membership)
    return issubclass(made, Membership) and made.joins


def _check_ring(strategy: str, membership: str) -> None:
    """Raise ConfigError where a strategy of the tree needs links and the membership makes none, or the other way."""
    routing, made = plugin("routing", strategy), plugin("membership", membership)
    ring = issubclass(made, Membership) and made.joins
    if strategy in LINKED and ring:
        able = [name for name in _ON_RING if ROUTING[name].needs.membership == membership] or _ON_RING
        raise ConfigError(f"{strategy} sends over links, and {membership} makes none: choose {either(able)}")
    if strategy in _ON_RING and not ring and OUTSIDE not in membership:
        raise ConfigError(
            f"{strategy} writes to any peer, and {membership} makes links: choose {routing.needs.membership}"
        )
    if strategy in _ON_RING and membership in _WITHOUT_LINKS and membership != routing.needs.membership:
        raise ConfigError(f"{strategy} needs the membership {routing.needs.membership}, got {membership}")


def _order(wanted: tuple[Kind, str]) -> int:
    kind, name = wanted
    if kind == "graph":
        return 1 if name == LINK_STATE else 3
    return {"membership": 0, "interest": 2, "routing": 4}[kind]


def needs_failure_detector(strategy: str, interest: str | None, membership: str | None, persistency: bool) -> bool:
    """Whether such a peer runs the failure detector."""
    wanted = hosted_plugins(strategy, interest, membership, persistency)
    return any(plugin(kind, name).needs.failure_detector for kind, name in wanted)


def setting_groups() -> tuple[type[Settings], ...]:
    """All groups of settings: the link layer's, the delivery's, and those of every plug-in in the tables."""
    groups: list[type[Settings]] = [LinkSettings, DeliverySettings]
    for table in PLUGINS.values():
        groups += [made.settings for made in table.values() if made.settings is not NoSettings]
    return tuple(dict.fromkeys(groups))
