"""The table of a scenario that describes other traffic: long transfers with TCP-like congestion control."""

from typing import Literal

import msgspec

from wend.model.errors import ConfigError
from wend.model.fault_settings import MAX_EXTRA_MS

MAX_FLOWS = 1000
MAX_PACKET_BYTES = 65_535


class BackgroundFlows(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Transfers that never end, on some links: they share the queue of a link with the packets of peers."""

    flows: int = 1
    """In each direction of a link that has them."""
    share: float = 1.0
    """The probability that a link has them."""
    control: Literal["cubic", "reno"] = "cubic"
    rtt_ms: tuple[float, float] = (20.0, 100.0)
    """The range from which each flow draws its round trip, without the time in the queue."""
    packet_bytes: int = 1500
    """The size of its packets, where the capacity is in bits; else each is one message."""

    def check(self, name: str) -> None:
        low, high = self.rtt_ms
        if not 0 < low <= high <= MAX_EXTRA_MS:
            raise ConfigError(f"{name}.rtt_ms needs 0 < low <= high <= {MAX_EXTRA_MS:g}, got {low:g} and {high:g}")
        if not 1 <= self.flows <= MAX_FLOWS:
            raise ConfigError(f"{name}.flows must be in 1..{MAX_FLOWS}, got {self.flows}")
        if not 0 <= self.share <= 1:
            raise ConfigError(f"{name}.share must be in 0..1, got {self.share:g}")
        if not 1 <= self.packet_bytes <= MAX_PACKET_BYTES:
            raise ConfigError(f"{name}.packet_bytes must be in 1..{MAX_PACKET_BYTES}, got {self.packet_bytes}")
