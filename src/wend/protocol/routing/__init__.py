"""Where it goes next: the strategies, by name. One file each; the table below is all there is to register."""

from wend.model.errors import ConfigError
from wend.protocol.plugins import Routing
from wend.protocol.routing.adaptive import Adaptive
from wend.protocol.routing.dcrd import Dcrd
from wend.protocol.routing.multipath import Multipath
from wend.protocol.routing.on_trees import Mrst, SptK
from wend.protocol.routing.planned import ByPlan
from wend.protocol.routing.trees import DelayTree, HopTree

ROUTING: dict[str, type[Routing]] = {
    "adaptive": Adaptive,
    "dcrd": Dcrd,
    "d-tree": DelayTree,
    "r-tree": HopTree,
    "multipath": Multipath,
    "planned": ByPlan,
    "mrst": Mrst,
    "spt-k": SptK,
}


def strategy(name: str) -> type[Routing]:
    try:
        return ROUTING[name]
    except KeyError:
        raise ConfigError(f"unknown strategy {name!r}: choose one of {', '.join(ROUTING)}, or MODULE:CLASS") from None
