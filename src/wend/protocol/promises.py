"""What a strategy promises: names from esposito, section 2.1. Declared with the strategy, checked from traces.

Timeliness is never promised on links that fail; it is counted. Integrity has the limits that
docs/ARCHITECTURE.md states.
"""

from typing import Literal

import msgspec

Property = Literal["safety", "integrity", "liveness", "agreement", "validity", "timeliness"]


class Promises(msgspec.Struct, frozen=True):
    always: tuple[Property, ...] = ("safety", "integrity")
    once_healed: tuple[Property, ...] = ("liveness", "agreement", "validity")
    """Where persistency is on and every fault has healed."""
