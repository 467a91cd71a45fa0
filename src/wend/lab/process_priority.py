"""Raises the scheduling priority of this process during a measurement.

All processes of the measured system inherit it. Linux schedules sessions against each other before it compares the
niceness of processes within a session (autogroups). So this raises both, and restores both at the end.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

NICE = -15
_AUTOGROUP = Path("/proc/self/autogroup")


@contextmanager
def high_priority() -> Iterator[None]:
    """Run the body with the niceness `NICE`, as far as the system allows it."""
    before, group = os.getpriority(os.PRIO_PROCESS, 0), _read_session_niceness()
    try:
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, NICE)
        if group is not None:
            _write_session_niceness(NICE)
        yield
    finally:
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, before)
        if group is not None:
            _write_session_niceness(group)


def _read_session_niceness() -> int | None:
    """The niceness of this session; None if the kernel has no autogroups."""
    try:
        return int(_AUTOGROUP.read_text().split()[-1])
    except (OSError, ValueError, IndexError):
        return None


def _write_session_niceness(nice: int) -> None:
    with suppress(OSError):
        _AUTOGROUP.write_text(str(nice))
