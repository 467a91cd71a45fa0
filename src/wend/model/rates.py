"""Rates have two units: messages per second, which peers count, and bits per second, which wires count.

People write `40msg/s` or `10Mbit/s`; a bare number is messages per second.
"""

import re
from math import isfinite

import msgspec

from wend.model.errors import ConfigError

_HINT = "a rate looks like 40, 40msg/s, 64kbit/s, 10Mbit/s or 1Gbit/s"
_RATE = re.compile(r"\s*([-+]?[0-9]*\.?[0-9]+(?:e[-+]?[0-9]+)?)\s*([A-Za-z/]*)\s*")
_BITS = {"bit/s": 1.0, "kbit/s": 1e3, "Mbit/s": 1e6, "Gbit/s": 1e9, "Tbit/s": 1e12}
_MESSAGES = {"", "msg/s", "msgs/s", "messages/s"}
BITS_PER_BYTE = 8


class Rate(msgspec.Struct, frozen=True, gc=False):
    """So many a second, of messages or of bits."""

    value: float
    bits: bool = False

    def __str__(self) -> str:
        if not self.bits:
            return f"{self.value:g} msg/s"
        for unit, scale in reversed(_BITS.items()):
            if self.value >= scale:
                return f"{self.value / scale:g} {unit}"
        return f"{self.value:g} bit/s"


def parse_rate(text: str | float, what: str) -> Rate:
    """`10Mbit/s` -> 10^7 bits; `what` opens the sentence when it cannot be read."""
    if isinstance(text, int | float) and not isinstance(text, bool):
        rate = Rate(float(text))
    else:
        found = _RATE.fullmatch(str(text))
        if found is None or (found[2] not in _MESSAGES and found[2] not in _BITS):
            raise ConfigError(f"{what}: cannot read {text!r} as a rate: {_HINT}")
        bits = found[2] in _BITS
        rate = Rate(float(found[1]) * (_BITS[found[2]] if bits else 1.0), bits)
    if not isfinite(rate.value):
        raise ConfigError(f"{what} must be finite, got {text}")
    return rate
