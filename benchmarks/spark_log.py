"""How fast Spark reads a log through its peer: a peer in a process of its own, and a query on `local[2]` that counts.

Each query runs once to start Spark's workers, and is then timed. The schemas differ in what executors make of an event:
its position only, typed columns, or all that it has. With a filter the peer sends a tenth of the events.

`python -m benchmarks.spark_log --events 1000000`; `--json` for machines. Processor times are for each event
in the log, of all processes together and of the peer alone.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from wend.drivers.live.logs.log import Log
from wend.model.events import Event, EventId
from wend.pipeline.spark.session import spark_session

EVENTS = 200_000
PAYLOAD = bytes(70)
PEER = """\
id = 1
listen = "127.0.0.1:0"
clients = "127.0.0.1:0"
persistence = true
store = "peer.store"
[[logs]]
name = "readings"
filter = "topic = 'x'"
events = 1000000000
"""
QUERIES = {
    "positions": ("position long", {}),
    "typed columns": ("position long, time timestamp, temperature long, city string, payload binary", {}),
    "all columns": (None, {}),
    "a tenth, typed": ("position long, temperature long, city string", {"filter": "temperature < 10"}),
}


def write_log(folder: Path, count: int) -> None:
    """A log of events that take about 200 bytes each."""
    log = Log(folder / "logs-1" / "readings")
    for number in range(1, count + 1):
        log.append(
            Event(EventId(1, 77_777, number), {"topic": "x", "temperature": number % 100, "city": "ulm"}, PAYLOAD)
        )
    log.close()


def start_peer(folder: Path) -> tuple["subprocess.Popen[str]", str]:
    command = [sys.executable, "-m", "wend.console.start", "peer", "--config", str(folder / "peer.toml")]
    peer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert peer.stdout is not None
    for line in peer.stdout:
        if found := re.search(r"clients on (wend://\S+)", line):
            return peer, found[1]
    raise SystemExit("the peer did not start")


def cpu_s(root: int) -> float:
    """The processor time of a process and all that it has started."""
    parents: dict[int, int] = {}
    times: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            parents[int(path.parent.name)] = int(fields[1])
            times[int(path.parent.name)] = sum(map(int, fields[11:15]))
    family = {root}
    while more := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= more
    return sum(times.get(pid, 0) for pid in family) / os.sysconf("SC_CLK_TCK")


def read_s(spark: Any, url: str, schema: str | None, options: dict[str, str]) -> float:
    """Read everything once. Returns how many seconds it took."""
    reader = spark.read.format("wend").options(peers=url, log="readings", **options)
    frame = (reader if schema is None else reader.schema(schema)).load()
    began = time.monotonic()
    frame.write.format("noop").mode("overwrite").save()
    return time.monotonic() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, default=EVENTS)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="wend-spark-log-") as name:
        folder = Path(name)
        folder.joinpath("peer.toml").write_text(PEER)
        write_log(folder, options.events)
        part = max(10_000, options.events // 8)
        peer, url = start_peer(folder)
        try:
            with spark_session(options.master) as spark:
                for query, (schema, more) in QUERIES.items():
                    read_s(spark, url, schema, {**more, "endingOffsets": "2000", "maxEventsPerPartition": "1000"})
                    before = [cpu_s(pid) for pid in (os.getpid(), peer.pid)]
                    seconds = read_s(spark, url, schema, {**more, "maxEventsPerPartition": str(part)})
                    used = [cpu_s(pid) - then for pid, then in zip((os.getpid(), peer.pid), before, strict=True)]
                    total_us, peer_us = (round(each / options.events * 1e6, 1) for each in used)
                    row = {
                        "query": query,
                        "events": options.events,
                        "events_per_s": round(options.events / seconds),
                        "cpu_us": total_us,
                        "peer_cpu_us": peer_us,
                    }
                    if options.json:
                        print(json.dumps(row), flush=True)
                    else:
                        print(
                            f"{query:14} {row['events_per_s']:>8} events/s  CPU {total_us} µs, of the peer {peer_us} µs"
                        )
        finally:
            peer.terminate()
            peer.wait()


if __name__ == "__main__":
    main()
