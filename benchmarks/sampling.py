"""A sampling profiler: the CPU time of a live peer by kind of work, with little overhead.

The kernel interrupts the process after every tick of CPU time, including system calls. The sampler counts the tick
for the innermost function of Wend on the stack. Time in C code counts for its caller. Python delivers an interrupt
between two callbacks at the first instruction of the next one; that tick counts for the event loop.
"""

import signal
from collections import Counter
from pathlib import Path
from types import FrameType

import wend

TICK_S = 0.001
"""The requested tick. Kernels round it up to their own, mostly 4 ms."""
_ENTRY = 4
"""Bytes of bytecode before the first effective instruction."""
_ROOT = str(Path(wend.__file__).parent)
_KINDS: dict[str, str] = {
    "drivers/live/transport/socket.py": "socket",
    "drivers/live/transport/wire.py": "encode",
    "drivers/live/peer.py": "driver",
    "drivers/live/addressing/address_book.py": "driver",
    "drivers/live/observer.py": "driver",
    "drivers/live/transport/senders.py": "driver",
    "drivers/live/transport/shaper.py": "driver",
    "drivers/live/counters.py": "driver",
    "drivers/live/store/store.py": "store",
    "drivers/live/store/writer.py": "store",
    "drivers/live/store/compaction.py": "store",
    "drivers/live/broker/broker.py": "clients",
    "drivers/live/broker/listener.py": "clients",
    "drivers/live/broker/client_session.py": "clients",
    "drivers/live/broker/client_requests.py": "clients",
    "drivers/live/broker/stalled_queue.py": "clients",
    "drivers/live/frames.py": "clients",
    "drivers/live/wake_timer.py": "timers",
}
"""The kind of work by file. All other files of Wend count as `handle`."""
_BY_NAME = {
    "decode_header": "decode",
    "decode_messages": "decode",
}
"""Functions whose kind of work differs from that of their file."""


class Sampler:
    """Counts samples by kind of work, from `start` to `stop`."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def start(self) -> None:
        signal.signal(signal.SIGPROF, self._sample)
        signal.setitimer(signal.ITIMER_PROF, TICK_S, TICK_S)

    def stop(self) -> dict[str, int]:
        """End the sampling. Returns the samples by kind of work."""
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        return dict(self._counts)

    def _sample(self, _: int, frame: FrameType | None) -> None:
        self._counts[_work_kind(frame)] += 1


def _work_kind(frame: FrameType | None) -> str:
    entered = frame is not None and frame.f_lasti <= _ENTRY
    while frame is not None and not frame.f_code.co_filename.startswith(_ROOT):
        frame, entered = frame.f_back, False
    if frame is None or (entered and not _is_wend(frame.f_back)):
        return "event loop"
    name = frame.f_code.co_name
    path = frame.f_code.co_filename[len(_ROOT) + 1 :]
    return _BY_NAME.get(name) or _KINDS.get(path, "handle")


def _is_wend(frame: FrameType | None) -> bool:
    return frame is not None and frame.f_code.co_filename.startswith(_ROOT)
