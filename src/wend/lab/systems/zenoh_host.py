"""The process of one Zenoh host: a router with publishers and subscribers. The bench sends publications by pipe.

A Zenoh router is a library: the session of this process is the router, so the application needs no extra connection
to it. `python -m wend.lab.systems.zenoh_host CONFIG`.
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
    """Settings of the advanced publisher and subscriber."""

    heartbeat_s: float
    """How often a publisher announces the number of its last sample."""


class ZenohHostConfig(msgspec.Struct, frozen=True):
    """The file that the bench writes for one host."""

    config: str
    publishes: dict[int, str]
    subscribes: list[str]
    advanced: Advanced | None = None


def run_host(settings: ZenohHostConfig) -> None:
    import zenoh

    out, writing = sys.stdout.buffer, threading.Lock()

    def deliver(sample: Any) -> None:
        now, data = time.monotonic_ns(), sample.payload.to_bytes()
        with writing:
            out.write(struct.pack(DELIVERY, now, len(data)) + data)
            out.flush()

    with zenoh.open(zenoh.Config.from_file(settings.config)) as session:
        subscribers = [_declare_subscriber(session, name, deliver, settings.advanced) for name in settings.subscribes]
        publishers = {
            number: _declare_publisher(session, name, settings.advanced) for number, name in settings.publishes.items()
        }
        with writing:
            out.write(b"ready\n")
            out.flush()
        size = struct.calcsize(PUBLISH)
        while head := sys.stdin.buffer.read(size):
            number, length = struct.unpack(PUBLISH, head)
            publishers[number].put(sys.stdin.buffer.read(length))
        del subscribers


def _declare_subscriber(session: Any, name: str, deliver: Any, advanced: Advanced | None) -> Any:
    if advanced is None:
        return session.declare_subscriber(name, deliver)
    from zenoh import ext

    recovery = ext.RecoveryConfig(heartbeat=True, periodic_queries=None)
    return ext.declare_advanced_subscriber(session, name, deliver, recovery=recovery)


def _declare_publisher(session: Any, name: str, advanced: Advanced | None) -> Any:
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
    run_host(msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=ZenohHostConfig))
