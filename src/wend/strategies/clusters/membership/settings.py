"""Settings of the membership `clusters`."""

from typing import Annotated, ClassVar

from wend.model.settings import Settings, everyday, setting
from wend.model.units import SECOND, Nanos


class ClusterSettings(Settings, frozen=True, kw_only=True):
    """How peers of one routing domain form a cluster, and who speaks for it."""

    title: ClassVar[str] = "Clusters"

    cluster: Annotated[
        str, everyday("The name of the peer's cluster; empty: the peer finds out its routing domain.")
    ] = ""
    cluster_domain: Annotated[
        str, setting("The routing domain of the cluster, if it is to be checked: all members state the same one.")
    ] = ""
    coordinators: Annotated[
        int, setting("Active coordinators of a cluster, one for each tree between clusters.", low=1, high=16)
    ] = 2
    backups: Annotated[int, setting("Backups of each active coordinator.", low=0, high=8)] = 1
    cluster_detection_ns: Annotated[
        Nanos, setting("How soon a cluster notices that a member crashed.", unit="s", low=0.05, high=1e5)
    ] = 3 * SECOND
    directory_ns: Annotated[
        Nanos, setting("How often coordinators compare their directories of clusters.", unit="s", low=0.05, high=1e5)
    ] = 5 * SECOND
