"""Round trips to other peers, as the answers to probes measure them."""

from wend.model.events import PeerId
from wend.model.units import Nanos


class RoundTrips:
    """The measured round trips by peer, and their moving average."""

    __slots__ = ("assumed_ns", "average_ns", "measured")

    def __init__(self, assumed_ns: Nanos) -> None:
        self.assumed_ns = assumed_ns
        """The setting's assumption about peers that were never measured."""
        self.average_ns = assumed_ns
        """The moving average over all answers."""
        self.measured: dict[PeerId, Nanos] = {}
        """The smoothed round trip to each peer of the leaf set and the routing table."""

    def count(self, trip_ns: Nanos) -> None:
        """Add a measurement to the average."""
        self.average_ns += (trip_ns - self.average_ns) // 8

    def smooth(self, peer: PeerId, trip_ns: Nanos) -> None:
        """Add a measurement to those of a peer."""
        earlier_ns = self.measured.get(peer)
        self.measured[peer] = trip_ns if earlier_ns is None else (7 * earlier_ns + trip_ns) // 8

    def wait_ns(self, peer: PeerId, is_last: bool) -> Nanos:
        """How long to wait for the answer to the first transmission of a probe, or to the last."""
        trip_ns = self.measured.get(peer)
        return trip_ns * 5 // 4 if trip_ns is not None else self.average_ns * (2 if is_last else 1)
