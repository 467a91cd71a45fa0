"""The logs of a peer as its file describes them."""

from typing import Final, Literal

import msgspec

from wend.drivers.live.logs.retention import MIN_BYTES, Bounds
from wend.matching.filters import parse
from wend.model.errors import ConfigError, FilterError
from wend.model.units import SECOND, parse_bytes, parse_duration

MAX_NAME_CHARS: Final = 100
MAX_EVENTS: Final = 2**39
MIN_KEEP_NS: Final = SECOND


class EventLogEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A log: the events that a filter matches, kept in order on the disk of this peer."""

    name: str
    filter: str
    keep: str | None = None
    """How long events stay: 7d. None: until another bound is reached."""
    bytes: str | None = None
    """The disk space that the log takes at most: 20GiB."""
    events: int | None = None
    """The most events that it holds."""
    order: Literal["arrival", "publisher"] = "arrival"
    """Whether events of one publisher are in the order of publication, or all in the order in which they came."""
    sync: bool = False
    """Whether events also survive a loss of power. This is slower."""

    def check(self) -> None:
        """Raise ConfigError for an invalid entry."""
        name, is_plain = self.name, all(part.isalnum() for part in self.name.replace("_", "-").split("-"))
        if not (0 < len(name) <= MAX_NAME_CHARS and name.isascii() and is_plain):
            raise ConfigError(f"the name of a log is letters, digits and hyphens, got {name!r}")
        try:
            parse(self.filter)
        except FilterError as error:
            raise ConfigError(f"log {name}: {error}") from None
        bounds = self.bounds()
        if bounds.keep_ns is not None and bounds.keep_ns < MIN_KEEP_NS:
            raise ConfigError(f"log {name} keeps events for 1s or longer, got keep = {self.keep!r}")
        if bounds.max_bytes is not None and bounds.max_bytes < MIN_BYTES:
            raise ConfigError(f"log {name} needs 16MiB or more, got bytes = {self.bytes!r}")
        if bounds.max_events is not None and not 1 <= bounds.max_events <= MAX_EVENTS:
            raise ConfigError(f"log {name} holds 1 to {MAX_EVENTS} events, got events = {self.events}")
        if bounds == Bounds():
            raise ConfigError(f"log {name} would grow for ever: give keep, bytes or events")

    @property
    def is_ordered(self) -> bool:
        return self.order == "publisher"

    def bounds(self) -> Bounds:
        """What it keeps at most. Raises ConfigError."""
        return Bounds(
            None if self.keep is None else parse_duration(self.keep),
            None if self.bytes is None else parse_bytes(self.bytes),
            self.events,
        )
