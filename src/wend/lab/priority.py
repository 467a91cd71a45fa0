"""Before the machine's other work, for as long as a measurement takes.

Every system's processes inherit it, so all are helped alike. Linux weighs sessions against each other before it looks
at the niceness of processes within them (autogroups), so both are raised, and both are put back.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

NICE = -15
_AUTOGROUP = Path("/proc/self/autogroup")


@contextmanager
def raised(nice: int = NICE) -> Iterator[None]:
    before, group = os.getpriority(os.PRIO_PROCESS, 0), _group()
    try:
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, nice)
        if group is not None:
            _set_group(nice)
        yield
    finally:
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, before)
        if group is not None:
            _set_group(group)


def _group() -> int | None:
    """The niceness of this session; None where the kernel has no such thing."""
    try:
        return int(_AUTOGROUP.read_text().split()[-1])
    except (OSError, ValueError, IndexError):
        return None


def _set_group(nice: int) -> None:
    with suppress(OSError):
        _AUTOGROUP.write_text(str(nice))
