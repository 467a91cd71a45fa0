"""The parts of a scenario that its settings name: choices, tables, and words for topologies and capacities.

`drivers/scenarios.py` declares the settings.
"""

import tomllib
from pathlib import Path
from typing import Any, Literal

import msgspec

from wend.model.errors import ConfigError
from wend.model.fault_settings import MAX_EXTRA_MS

TraceLevel = Literal["deliveries", "hops"]
Charge = Literal["data", "all"]
QueueDiscipline = Literal["drop-tail", "codel"]
Pace = Literal["even", "moving"]

STATED = "stated"
"""As a capacity: only the capacities that the topology states."""
AGGREGATE = "links"
"""As a peer's capacity: the sum of its links' capacities."""
DRAWN = ("full-mesh", "regular", "random")
"""Topologies that have as many peers as the scenario says."""

MAX_FLOWS = 1000
MAX_PACKET_BYTES = 65_535


class Content(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Events with numbers as attributes, and at each peer one subscription with ranges on some of them."""

    attributes: int = 10
    domain: int = 256
    """Values are whole numbers from 1 to this."""
    predicates: tuple[int, int] = (1, 5)
    """How many attributes a filter constrains: the fewest and the most."""
    width: float = 1.0
    """The widest range, as a share of the domain."""

    def check(self, name: str) -> None:
        low, high = self.predicates
        if not 1 <= low <= high <= self.attributes or self.domain < 1 or not 0 < self.width <= 1:
            raise ConfigError(
                f"{name} needs 1 <= predicates <= attributes, a domain of 1 or more and a width in 0..1, got "
                f"{low} to {high} of {self.attributes}, {self.domain} and {self.width:g}"
            )


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
    """The size of its packets if the capacity is in bits; otherwise each packet is one message."""

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


def read_toml(path: Path) -> dict[str, Any]:
    """The content of a TOML file. Raises ConfigError with one sentence if it cannot be read."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}", code="unreadable") from None
    except (ValueError, RecursionError) as error:  # also a number of thousands of digits, and endless brackets
        raise ConfigError(f"{path} is not a TOML file: {error}", code="unreadable") from None
