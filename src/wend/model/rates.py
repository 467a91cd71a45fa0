"""Rates in two units: messages per second and bits per second.

Users write `40msg/s` or `10Mbit/s`; a bare number is messages per second.
"""

import re
from math import inf, isfinite

import msgspec

from wend.model.errors import ConfigError

_HINT = "a rate looks like 40, 40msg/s, 64kbit/s, 10Mbit/s or 1Gbit/s"
_RATE = re.compile(r"\s*([-+]?[0-9]*\.?[0-9]+(?:e[-+]?[0-9]+)?)\s*([A-Za-z/]*)\s*")
_BITS = {"bit/s": 1.0, "kbit/s": 1e3, "Mbit/s": 1e6, "Gbit/s": 1e9, "Tbit/s": 1e12}
_MESSAGES = {"", "msg/s", "msgs/s", "messages/s"}
BITS_PER_BYTE = 8


class Rate(msgspec.Struct, frozen=True, gc=False):
    """A number of messages or bits per second."""

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
    """Parse a rate: `10Mbit/s` is 10^7 bits per second. Error messages begin with `what`."""
    if isinstance(text, int | float) and not isinstance(text, bool):
        rate = Rate(float(text))
    else:
        match = _RATE.fullmatch(str(text))
        if match is None or (match[2] not in _MESSAGES and match[2] not in _BITS):
            raise ConfigError(f"{what}: cannot read {text!r} as a rate: {_HINT}")
        bits = match[2] in _BITS
        rate = Rate(float(match[1]) * (_BITS[match[2]] if bits else 1.0), bits)
    if not isfinite(rate.value):
        raise ConfigError(f"{what} must be finite, got {text}")
    return rate


Capacity = tuple[float, float]
"""Messages and bits per second; infinite where none is stated."""


def parse_capacity(text: str | float, where: str) -> Capacity:
    """Parse the capacity of a link or peer in a map: a rate, or one of each unit (`40msg/s, 10Mbit/s`)."""
    capacity = [inf, inf]
    for part in text.split(",") if isinstance(text, str) else [text]:
        rate = parse_rate(part, f"{where}: capacity")
        if not rate.value > 0:
            raise ConfigError(f"{where} needs a capacity above 0, got {rate}")
        if capacity[rate.bits] < inf:
            raise ConfigError(f"{where} has two capacities in {'bit/s' if rate.bits else 'msg/s'}: {text!r}")
        capacity[rate.bits] = rate.value
    return capacity[0], capacity[1]


def capacity_text(capacity: Capacity) -> str:
    """The text that `parse_capacity` reads back exactly; empty if the capacity is infinite."""
    return ", ".join(
        f"{value!r}{unit}" for value, unit in zip(capacity, ("msg/s", "bit/s"), strict=True) if value < inf
    )
