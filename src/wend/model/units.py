"""Units of time: integer nanoseconds everywhere inside Wend. Users write `200ms`."""

import re
from decimal import Decimal
from typing import Final

from wend.model.errors import ConfigError

_HINT = "a duration looks like 200ms, 1.5s, 10min, 2h or 7d"

Nanos = int

US: Final = 1_000
MS: Final = 1_000_000
SECOND: Final = 1_000_000_000
MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE
YEAR: Final = 8766 * HOUR
FOREVER: Final = 1 << 62
"""A time that never comes. It is far enough below 2^63 that adding a duration does not overflow 64 bits."""

_UNITS = {"ns": 1, "us": US, "ms": MS, "s": SECOND, "min": MINUTE, "m": MINUTE, "h": HOUR, "d": 24 * HOUR, "": SECOND}
_LONGEST: Nanos = 200 * YEAR  # 63 bits hold 292 years
_DURATION = re.compile(r"\s*([0-9]*\.?[0-9]+(?:e-?[0-9]+)?)\s*([a-z]*)\s*")
_SIZES: dict[str, int] = {
    "": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40,
}  # fmt: skip
_SIZE = re.compile(r"\s*([0-9]{1,15}(?:\.[0-9]{1,6})?)\s*([A-Za-z]*)\s*")


def parse_duration(text: str) -> Nanos:
    """Parse a duration: `200ms` is 200_000_000. A bare number is seconds."""
    match = _DURATION.fullmatch(text)
    if match is None or match[2] not in _UNITS:
        raise ConfigError(f"cannot read {text!r} as a duration: {_HINT}")
    about = float(match[1]) * _UNITS[match[2]]
    if about >= _LONGEST:
        raise ConfigError(f"{text.strip()} is too long: a duration must be below {_LONGEST // YEAR} years")
    return round(Decimal(match[1]) * _UNITS[match[2]]) if about else 0  # a float would lose nanoseconds


def parse_milliseconds(text: str, what: str) -> Nanos:
    """Parse a duration that users think of in milliseconds. It needs a unit, because `160` would be 160 seconds."""
    if _DURATION.fullmatch(text) and text.strip()[-1] in "0123456789.":
        raise ConfigError(f"{what} {text.strip()} needs a unit: {text.strip()}ms or {text.strip()}s")
    return parse_duration(text)


def parse_bytes(text: str) -> int:
    """Parse a number of bytes: `20GiB`, `500MB`, `4096`."""
    match = _SIZE.fullmatch(text)
    if match is None or match[2].lower() not in _SIZES:
        raise ConfigError(f"cannot read {text!r} as a number of bytes: it looks like 500MB, 20GiB or 4096")
    return round(Decimal(match[1]) * _SIZES[match[2].lower()])


def seconds(value: float) -> Nanos:
    return round(value * SECOND)


def millis(value: float) -> Nanos:
    return round(value * MS)


def duration_text(duration_ns: Nanos) -> str:
    """A duration for people, in two units at most: `0.4 ms`, `160 ms`, `2.1 s`, `3 min 12 s`, `5 d 4 h`."""
    if duration_ns < 10 * MS:
        return f"{duration_ns / MS:.1f} ms"
    if duration_ns < SECOND:
        return f"{duration_ns / MS:.0f} ms"
    if duration_ns < MINUTE:
        return f"{duration_ns / SECOND:.1f} s"
    units = ((24 * HOUR, "d"), (HOUR, "h"), (MINUTE, "min"), (SECOND, "s"))
    place = next(place for place, (unit, _) in enumerate(units) if duration_ns >= unit)
    (large, name), (small, rest) = units[place], units[place + 1]
    count = duration_ns % large // small
    return f"{duration_ns // large} {name}" + (f" {count} {rest}" if count else "")
