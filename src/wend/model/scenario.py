"""The parts of a scenario that its settings name: choices, tables, and words for topologies and capacities.

`drivers/scenarios.py` declares the settings.
"""

import tomllib
from pathlib import Path
from typing import Any, Literal

import msgspec

from wend.model.errors import ConfigError

TraceLevel = Literal["deliveries", "hops"]
Charge = Literal["data", "all"]
QueueDiscipline = Literal["drop-tail", "codel"]
Pace = Literal["even", "moving"]

STATED = "stated"
"""As a capacity: only the capacities that the topology states."""
AGGREGATE = "links"
"""As a peer's capacity: the sum of its links' capacities."""
DRAWN = ("full-mesh", "regular")
"""Topologies that have as many peers as the scenario says."""


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


def read_toml(path: Path) -> dict[str, Any]:
    """The content of a TOML file. Raises ConfigError with one sentence if it cannot be read."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}", code="unreadable") from None
    except (ValueError, RecursionError) as error:  # also a number of thousands of digits, and endless brackets
        raise ConfigError(f"{path} is not a TOML file: {error}", code="unreadable") from None
