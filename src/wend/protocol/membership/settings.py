"""Settings of memberships: how many links peers seek, and how often they exchange messages."""

from typing import Annotated, ClassVar

from wend.model.settings import Settings, setting
from wend.model.units import MS, SECOND, Nanos


class MembershipSettings(Settings, frozen=True, kw_only=True):
    """How peers choose their links."""

    title: ClassVar[str] = "Membership"

    membership_k: Annotated[int, setting("Landmarks to elect, or peers to join.", low=1)] = 3
    membership_degree: Annotated[int, setting("Links of a peer, for the membership `random`.", low=1)] = 15
    membership_period_ns: Annotated[
        Nanos,
        setting(
            "How often peers exchange messages; one that stays silent for some periods is dead.", unit="s", low=0.02
        ),
    ] = SECOND
    membership_sample: Annotated[
        int, setting("How many more peers `tdo-nearest` and `tdo-farthest` sample than they join.", low=0)
    ] = 10
    trace_both_ends: Annotated[
        bool, setting("Whether both ends measure the path of a link; one is enough if routes are symmetric.")
    ] = True


class PastrySettings(Settings, frozen=True, kw_only=True):
    """How peers of a ring find out who is alive."""

    title: ClassVar[str] = "Pastry"

    pastry_detection_ns: Annotated[
        Nanos, setting("How soon all neighbours on the ring notice that a peer crashed.", unit="s", low=0.05, high=1e5)
    ] = 5 * SECOND
    pastry_table_ns: Annotated[
        Nanos,
        setting("How often a peer probes each entry of its routing table, and looks for nearer ones.", unit="s", low=1),
    ] = 60 * SECOND
    pastry_round_trip_ns: Annotated[
        Nanos, setting("The round trip that a peer assumes until it has measured one.", low=1e-3)
    ] = 100 * MS
    pastry_settled: Annotated[
        bool, setting("Whether the overlay is ready at the start: the contacts are then known peers, and nobody joins.")
    ] = False
