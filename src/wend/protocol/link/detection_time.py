"""The detection time of one link: how long the neighbour may be silent, and how many packets in a row may be missing.

A longer silence, or more missing packets, are better explained by an outage than by loss (compare RFC 5880).
"""

from wend.model.units import SECOND, Nanos

MAX_SILENCE_NS = 10 * SECOND
_CLEAN, _LOSSY = 0.999, 0.97


class DetectionTime:
    __slots__ = ("_own_ns", "announced_ns", "multiplier")

    def __init__(self, own_ns: Nanos, reliability: float) -> None:
        """`own_ns`: the detection time of this peer."""
        self._own_ns = own_ns
        self.announced_ns = own_ns
        """The longest silence that the neighbour's last hello announced."""
        self.multiplier = 1
        """How many packets in a row must be missing before an outage is a better explanation than loss."""
        self.allow_loss(reliability)

    @property
    def silence_ns(self) -> Nanos:
        """The longest silence of a link that is up."""
        return min(self.multiplier * self.announced_ns, max(self.announced_ns, self._own_ns))

    def set_silence(self, within_ns: Nanos) -> None:
        """Set the longest silence, as the neighbour announces it. Its detection time may differ from this peer's."""
        self.announced_ns = min(max(within_ns, 1), MAX_SILENCE_NS)

    def allow_loss(self, reliability: float) -> None:
        """Set the multiplier from the share of packets that the link loses without an outage."""
        self.multiplier = 1 if reliability >= _CLEAN else 2 if reliability >= _LOSSY else 3
