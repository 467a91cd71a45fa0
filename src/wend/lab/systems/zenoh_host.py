"""One host's Zenoh router with its publishers and subscribers, told by pipe what to publish.

Zenoh's routers are libraries: the session of this process is the router, so nothing stands between the
application and the network. `python -m wend.lab.systems.zenoh_host JOB`.
"""

import struct
import sys
import threading
import time
from pathlib import Path
from typing import Any

import msgspec

PUBLISH = "!HI"
DELIVERY = "!qI"
CACHED = 100


class Advanced(msgspec.Struct, frozen=True):
    heartbeat_s: float
    """How often a publisher says which sample was its last."""


class Job(msgspec.Struct, frozen=True):
    config: str
    publishes: dict[int, str]
    subscribes: list[str]
    advanced: Advanced | None = None


def run(job: Job) -> None:
    import zenoh

    out, writing = sys.stdout.buffer, threading.Lock()

    def took(sample: Any) -> None:
        now, data = time.monotonic_ns(), sample.payload.to_bytes()
        with writing:
            out.write(struct.pack(DELIVERY, now, len(data)) + data)
            out.flush()

    with zenoh.open(zenoh.Config.from_file(job.config)) as session:
        subscribers = [_subscriber(session, name, took, job.advanced) for name in job.subscribes]
        publishers = {number: _publisher(session, name, job.advanced) for number, name in job.publishes.items()}
        with writing:
            out.write(b"ready\n")
            out.flush()
        size = struct.calcsize(PUBLISH)
        while head := sys.stdin.buffer.read(size):
            number, length = struct.unpack(PUBLISH, head)
            publishers[number].put(sys.stdin.buffer.read(length))
        del subscribers


def _subscriber(session: Any, name: str, took: Any, advanced: Advanced | None) -> Any:
    if advanced is None:
        return session.declare_subscriber(name, took)
    from zenoh import ext

    recovery = ext.RecoveryConfig(heartbeat=True, periodic_queries=None)
    return ext.declare_advanced_subscriber(session, name, took, recovery=recovery)


def _publisher(session: Any, name: str, advanced: Advanced | None) -> Any:
    if advanced is None:
        return session.declare_publisher(name)
    from zenoh import ext

    return ext.declare_advanced_publisher(
        session,
        name,
        express=True,
        cache=ext.CacheConfig(max_samples=CACHED),
        sample_miss_detection=ext.MissDetectionConfig(heartbeat=advanced.heartbeat_s, sporadic_heartbeat=None),
    )


if __name__ == "__main__":
    run(msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Job))
