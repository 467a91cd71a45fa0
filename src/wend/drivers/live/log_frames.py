"""What frames say of logs: places in them, and their events (`frames.py`)."""

from typing import Annotated, Literal

import msgspec

from wend.model.events import Event
from wend.model.units import Nanos


class LogPlace(msgspec.Struct, frozen=True, gc=False):
    """A place in a log."""

    by: Literal["first", "position", "time", "age", "last", "end"]
    """What `value` is: a position, a wall-clock time in nanoseconds, an age in nanoseconds, or how many of the last
    events that match. `first` and `end` need no value."""
    value: Annotated[int, msgspec.Meta(ge=0, le=2**62)] = 0


class LoggedEvent(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """An event as it is in a log."""

    position: int
    time_ns: Nanos
    """When it was appended, as wall-clock time."""
    age_ns: Nanos
    """Its age at that time."""
    event: Event


class Records(msgspec.Struct, frozen=True, gc=False, tag="records"):
    """Events of a log in the order of their positions, for a client that asked for `records`."""

    handle: int
    records: tuple[LoggedEvent, ...]
