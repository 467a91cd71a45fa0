"""Engines for a log: segmented files of our own, SQLite (WAL) and LMDB, with the same events in one run.

Each engine runs in a process of its own. It appends events one by one, so that each reaches the operating system before
the next; then in groups of 64 with one sync each; then a process is killed while it appends, and the log opened again.
Rates without sync are by CPU time, because a busy machine would measure its other processes.
LMDB needs the package `lmdb`, on which Wend does not depend; without it its column is empty.

`python -m benchmarks.log_engine --events 1000000`; `--json` for machines. `--engine segments` measures one engine.
"""

import argparse
import json
import random
import resource
import shutil
import signal
import sqlite3
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from wend.drivers.live.logs.cursor import LogCursor
from wend.drivers.live.logs.log import Log
from wend.drivers.live.logs.record import LogRecord, encode_event
from wend.model.events import Event, EventId

EVENTS = 200_000
GROUP = 64
GROUPS = 400
RANGE = 1000
RANGES = 100
PAYLOAD = bytes(70)
_TIMES = struct.Struct("!QQ")


def make_events(first: int, count: int) -> Iterable[Event]:
    """Events that take about 200 bytes in a log."""
    for number in range(first, first + count):
        yield Event(EventId(1, 77_777, number), {"topic": "x", "temperature": number % 100, "city": "ulm"}, PAYLOAD)


class Engine(Protocol):
    def append(self, event: Event) -> None: ...
    def append_group(self, events: Sequence[Event]) -> None: ...
    def read(self, position: int, most: int) -> Sequence[LogRecord]: ...
    def find(self, time_ns: int) -> int: ...
    def count(self) -> int: ...


class Segments:
    def __init__(self, folder: Path, *, sync: bool) -> None:
        self._log = Log(folder, sync=sync)
        self._cursor = LogCursor(self._log, 1)

    def append(self, event: Event) -> None:
        self._log.append(event)

    def append_group(self, events: Sequence[Event]) -> None:
        for event in events:
            self._log.append(event)
        self._log.sync()

    def read(self, position: int, most: int) -> Sequence[LogRecord]:
        if position != self._cursor.position:
            self._cursor = LogCursor(self._log, position)
        records: list[LogRecord] = []
        while len(records) < most and (more := self._cursor.read(most - len(records))):
            records += more
        return records

    def find(self, time_ns: int) -> int:
        return self._log.position_at(time_ns)

    def count(self) -> int:
        return self._log.events


class Sqlite:
    def __init__(self, folder: Path, *, sync: bool) -> None:
        folder.mkdir(exist_ok=True)
        self._database = sqlite3.connect(folder / "log.db", isolation_level=None)
        self._database.execute("pragma journal_mode=wal")
        self._database.execute(f"pragma synchronous={'full' if sync else 'off'}")
        self._database.execute(
            "create table if not exists log (position integer primary key, time integer, age integer, event blob)"
        )
        self._database.execute("create index if not exists times on log (time)")

    def _insert(self, event: Event) -> None:
        row = (time.time_ns(), 0, encode_event(event))
        self._database.execute("insert into log (time, age, event) values (?, ?, ?)", row)

    def append(self, event: Event) -> None:
        self._insert(event)

    def append_group(self, events: Sequence[Event]) -> None:
        self._database.execute("begin")
        for event in events:
            self._insert(event)
        self._database.execute("commit")

    def read(self, position: int, most: int) -> Sequence[LogRecord]:
        query = "select position, time, age, event from log where position >= ? order by position limit ?"
        return [LogRecord(*row) for row in self._database.execute(query, (position, most))]

    def find(self, time_ns: int) -> int:
        query = "select position from log where time >= ? order by time limit 1"
        return int(self._database.execute(query, (time_ns,)).fetchone()[0])

    def count(self) -> int:
        return int(self._database.execute("select coalesce(max(position), 0) from log").fetchone()[0])


class Lmdb:
    def __init__(self, folder: Path, *, sync: bool) -> None:
        import lmdb  # type: ignore[import-not-found]

        self._lmdb = lmdb.open(str(folder), map_size=1 << 36, max_dbs=2, sync=sync, metasync=sync)
        self._events = self._lmdb.open_db(b"events")
        self._times = self._lmdb.open_db(b"times")
        self._next = self.count() + 1

    def _insert(self, transaction: Any, event: Event) -> None:
        now, key = time.time_ns(), self._next.to_bytes(8)
        body = _TIMES.pack(now, 0) + encode_event(event)
        transaction.put(key, body, append=True, db=self._events)
        if self._next % 256 == 1:
            transaction.put(now.to_bytes(8), key, append=True, db=self._times)
        self._next += 1

    def append(self, event: Event) -> None:
        with self._lmdb.begin(write=True) as transaction:
            self._insert(transaction, event)

    def append_group(self, events: Sequence[Event]) -> None:
        with self._lmdb.begin(write=True) as transaction:
            for event in events:
                self._insert(transaction, event)

    def read(self, position: int, most: int) -> Sequence[LogRecord]:
        found: list[LogRecord] = []
        with self._lmdb.begin(db=self._events) as transaction:
            cursor = transaction.cursor()
            cursor.set_range(position.to_bytes(8))
            for key, body in cursor:
                found.append(LogRecord(int.from_bytes(key), *_TIMES.unpack_from(body), body[_TIMES.size :]))
                if len(found) == most:
                    break
        return found

    def find(self, time_ns: int) -> int:
        with self._lmdb.begin(db=self._times) as transaction:
            cursor = transaction.cursor()
            cursor.set_range(time_ns.to_bytes(8))
            at = int.from_bytes(cursor.value() if cursor.prev() else bytes(8)) or 1
        return next((row.position for row in self.read(at, 512) if row.time_ns >= time_ns), 0)

    def count(self) -> int:
        with self._lmdb.begin(db=self._events) as transaction:
            cursor = transaction.cursor()
            return int.from_bytes(cursor.key()) if cursor.last() else 0


ENGINES: dict[str, Callable[..., Engine]] = {"segments": Segments, "sqlite": Sqlite, "lmdb": Lmdb}


def measure(name: str, events: int, folder: Path) -> dict[str, float]:
    """What one engine does, in this process."""
    found: dict[str, float] = {}
    make = ENGINES[name]
    engine = make(folder / "plain", sync=False)
    found["append/s"] = events / _cpu_seconds(lambda: _append_all(engine, events))
    found["bytes per event"] = sum(each.stat().st_size for each in (folder / "plain").rglob("*")) / events
    begin, end = engine.read(1, 1)[0].time_ns, engine.read(events, 1)[0].time_ns
    chooser = random.Random(1)
    positions = [chooser.randrange(1, max(2, events - RANGE)) for _ in range(RANGES)]
    found["range reads/s"] = RANGES / _cpu_seconds(lambda: [engine.read(each, RANGE) for each in positions])
    times = [chooser.randrange(begin, end) for _ in range(RANGES)]
    found["ms to find a time"] = 1000 * max(_cpu_seconds(lambda each=each: engine.find(each)) for each in times)
    found["scan/s"] = events / _cpu_seconds(lambda: _scan(engine, events))
    found["MB of memory"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    durable = make(folder / "durable", sync=True)
    groups = [list(make_events(number * GROUP, GROUP)) for number in range(GROUPS)]
    found["append in groups/s, synced"] = GROUP * GROUPS / _seconds(lambda: [durable.append_group(g) for g in groups])
    found |= _measure_crash(name, events, folder / "killed")
    return found


def _append_all(engine: Engine, events: int) -> None:
    for event in make_events(0, events):
        engine.append(event)


def _scan(engine: Engine, events: int) -> None:
    position = 1
    while position <= events:
        rows = engine.read(position, 4096)
        for row in rows:
            row.event()
        position = rows[-1].position + 1


def _measure_crash(name: str, events: int, folder: Path) -> dict[str, float]:
    """Kill a process that has told how many events it appended, and open its log."""
    command = [sys.executable, "-m", "benchmarks.log_engine", "--append-to", str(folder), "--engine", name]
    with subprocess.Popen([*command, "--events", str(events)], stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        told = 0
        while told < events // 2:
            told = int(writer.stdout.readline())
        writer.send_signal(signal.SIGKILL)
        told = max([told, *(int(line) for line in writer.stdout if line.endswith("\n"))])
    began = time.perf_counter()
    engine = ENGINES[name](folder, sync=False)
    count = engine.count()
    assert len(engine.read(count, 1)) == 1
    return {"ms to open after a kill": 1000 * (time.perf_counter() - began), "lost by the kill": max(0, told - count)}


def _append_and_tell(name: str, folder: Path, events: int) -> None:
    engine = ENGINES[name](folder, sync=False)
    for number, event in enumerate(make_events(0, 2 * events), start=1):
        engine.append(event)
        if number % 1000 == 0:
            print(number, flush=True)


def _cpu_seconds(act: Callable[[], object]) -> float:
    """The CPU time of this process, which others on the machine do not change."""
    began = time.process_time()
    act()
    return max(1e-9, time.process_time() - began)


def _seconds(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


def measure_in_process(name: str, events: int, folder: Path) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.log_engine", "--engine", name, "--events", str(events), "--json"]
    folder.mkdir()
    try:
        done = subprocess.run([*command, "--folder", str(folder)], stdout=subprocess.PIPE, check=True, text=True)
    finally:
        shutil.rmtree(folder)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--events", type=int, default=EVENTS)
    parser.add_argument("--engine", choices=list(ENGINES))
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--append-to", type=Path)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    if asked.append_to is not None:
        _append_and_tell(asked.engine, asked.append_to, asked.events)
        return
    with tempfile.TemporaryDirectory() as folder:
        if asked.engine is not None:
            found = measure(asked.engine, asked.events, asked.folder or Path(folder))
            print(json.dumps(found) if asked.json else "\n".join(f"{n:28} {v:12.1f}" for n, v in found.items()))
            return
        names = [name for name in ENGINES if name != "lmdb" or find_spec("lmdb") is not None]
        rows = {name: measure_in_process(name, asked.events, Path(folder) / name) for name in names}
    if asked.json:
        print(json.dumps(rows))
        return
    print(f"{asked.events} events" + "".join(f"{name:>22}" for name in names))
    for what, base in rows["segments"].items():
        cells = [f"{rows[name][what]:12.1f} ({rows[name][what] / base if base else 1:5.2f} x)" for name in names]
        print(f"{what:28}" + " ".join(cells))


if __name__ == "__main__":
    main()
