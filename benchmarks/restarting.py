"""The time that a peer takes to start with a large backlog, and the memory of one event of the backlog.

The store has a durable subscription with 100 000 events. The reference decodes the same records, without a store
around them.

`python -m benchmarks.restarting`; `--json` for machines.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.rows import Row
from wend.drivers.live.store.format import decode_record, encode_record
from wend.drivers.live.store.store import Store
from wend.model.events import DurableOptions, Event, EventId, Qos
from wend.model.units import SECOND
from wend.protocol.config import PeerConfig
from wend.protocol.ports import Started
from wend.protocol.records import DurableRecord, QueuedRecord, Record
from wend.strategies.registry import make_peer

EVENTS = 100_000
FOREVER_NS = 10**7 * SECOND


def backlog(events: int) -> list[Record]:
    now = time.monotonic_ns()
    options = DurableOptions("bench", events, 10**12, FOREVER_NS)
    records: list[Record] = [DurableRecord(1, "topic = 'a'", Qos(), options)]
    for number in range(events):
        event = Event(EventId(2, 1, number), {"topic": "a", "n": number}, bytes(100))
        records.append(QueuedRecord(event, now, ((1, (1 << 32) + number),)))
    return records


def restart(events: int = EVENTS) -> dict[str, float]:
    """Seconds to open the store and to start the peer, the reference, and bytes of memory for an event."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store"
        # Another process writes it, so that its memory does not count.
        subprocess.run([sys.executable, "-m", "benchmarks.restarting", "--write", str(path), str(events)], check=True)
        before, began = _resident_bytes(), time.perf_counter()
        store = Store(path)
        opened = time.perf_counter() - began
        peer = make_peer(PeerConfig(peer=1, incarnation=store.incarnation, persistence=True))
        began = time.perf_counter()
        peer.handle(time.monotonic_ns(), Started((), stored=store.records))
        started = time.perf_counter() - began
        size = (_resident_bytes() - before) / events
        store.close()
    return {"open": opened, "start": started, "reference": _reference(events), "bytes": size}


def _reference(events: int) -> float:
    bodies = [encode_record(record) for record in backlog(events)]
    began = time.perf_counter()
    records = [decode_record(body) for body in bodies]
    seconds = time.perf_counter() - began
    assert len(records) == events + 1
    return seconds


def _write(path: Path, events: int) -> None:
    store = Store(path)
    for record in backlog(events):
        store.append(record)
    store.close()


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def rows() -> list[Row]:
    found = restart()
    what = f"start with a backlog of {EVENTS:,} events".replace(",", " ")
    seconds = found["open"] + found["start"]
    return [
        Row("restarting.start_s", f"{what}, s (decoding alone)", seconds, found["reference"], True),
        Row("restarting.event_bytes", "memory of one event of a backlog, bytes", found["bytes"], None, True),
    ]


def main() -> None:
    if sys.argv[1:2] == ["--write"]:
        _write(Path(sys.argv[2]), int(sys.argv[3]))
        return
    found = restart()
    if "--json" in sys.argv[1:]:
        print(json.dumps(found))
    else:
        print(
            f"open {found['open']:.2f} s, start {found['start']:.2f} s; decoding alone {found['reference']:.2f} s; "
            f"{found['bytes']:.0f} bytes an event"
        )


if __name__ == "__main__":
    main()
