"""Settings of the ring: how peers find out who is alive."""

from typing import Annotated, ClassVar

from wend.model.settings import Settings, setting
from wend.model.units import MS, SECOND, Nanos


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
