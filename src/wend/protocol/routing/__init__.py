"""Where it goes next: the strategies, by name. One file each; the table below is all there is to register."""

from wend.model.errors import ConfigError
from wend.protocol.plugins import Routing
from wend.protocol.routing.adaptive import Adaptive
from wend.protocol.routing.dcrd import Dcrd
from wend.protocol.routing.multipath import Multipath
from wend.protocol.routing.planned import PlannedRouting
from wend.protocol.routing.source_trees import DelayTree, HopTree
from wend.protocol.routing.tree_routing import MrstRouting, SptKRouting

ROUTING: dict[str, type[Routing]] = {
    "adaptive": Adaptive,
    "dcrd": Dcrd,
    "d-tree": DelayTree,
    "r-tree": HopTree,
    "multipath": Multipath,
    "planned": PlannedRouting,
    "mrst": MrstRouting,
    "spt-k": SptKRouting,
}


def strategy(name: str) -> type[Routing]:
    try:
        return ROUTING[name]
    except KeyError:
        raise ConfigError(f"unknown strategy {name!r}: choose one of {', '.join(ROUTING)}, or MODULE:CLASS") from None
