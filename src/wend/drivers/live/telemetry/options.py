"""What a peer's file says about telemetry, checked."""

from pathlib import Path

import msgspec

from wend.model.units import SECOND, Nanos

MIB = 1024 * 1024


class TelemetryOptions(msgspec.Struct, frozen=True, kw_only=True):
    folder: Path
    sample: float = 0.01
    """The share of events that peers write about."""
    period_ns: Nanos = SECOND
    """How often the peer writes about its links and counters."""
    most_bytes: int = 1024 * MIB
    """The disk space of closed segments. The oldest ones are removed beyond it."""
    segment_bytes: int = 8 * MIB
    """The memory of rows after which a segment is closed."""
    segment_age_ns: Nanos = 60 * SECOND
    """A segment with rows is closed after so long."""
