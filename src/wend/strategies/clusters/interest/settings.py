"""Settings of the interests `cluster-trees` and `cluster-graph`."""

from typing import Annotated, ClassVar

from wend.model.settings import Settings, setting
from wend.model.units import SECOND, Nanos

BEACONS_KEPT = 4
"""A peer forgets what another one told if that one does not renew it for so many beacons."""


class ClusterEventSettings(Settings, frozen=True, kw_only=True):
    """The repair of events, and the upkeep of trees between clusters."""

    title: ClassVar[str] = "Clusters"

    cluster_beacon_ns: Annotated[
        Nanos,
        setting("How often members and trees between clusters renew their subscriptions.", unit="s", low=0.1, high=1e6),
    ] = 10 * SECOND
    diverse_parents: Annotated[
        bool,
        setting("Whether the trees between clusters choose parents whose paths share few routers."),
    ] = True
    cluster_hold_ns: ClassVar[Nanos] = 120 * SECOND
    """How long coordinators hold events for peers that lack them; with persistence until there is no room."""
