"""Settings: how many links peers seek, and how often they exchange messages."""

from typing import Annotated, ClassVar

from wend.model.settings import Settings, setting
from wend.model.units import SECOND, Nanos


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
        bool, setting("Whether both ends measure the path of a link; one is enough where routes are symmetric.")
    ] = True
