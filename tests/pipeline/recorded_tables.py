"""Tables of a small recording, as the jobs on telemetry leave them."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from wend.model.units import MS, SECOND
from wend.pipeline.storage.versioned_tables import DataFile, TableChange, TableFolder

WINDOW_NS = 20 * SECOND
LINKS = ((1, 2), (2, 3), (3, 4), (1, 4))
"""A square: what links 1 and 2 is down for half of each window."""
_TYPES = {pa.int64(): "bigint", pa.float64(): "double", pa.string(): "string", pa.list_(pa.int64()): "array<bigint>"}


def write_table(folder: Path, name: str, rows: list[dict[str, Any]], facts: dict[str, Any] | None = None) -> None:
    """Commit rows as a table of a folder, in place of those that it has."""
    table = pa.Table.from_pylist(rows)
    path = folder / "data" / f"{name}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path)
    columns = tuple((field.name, _TYPES[field.type]) for field in table.schema)
    tables = TableFolder(None, folder)
    file = DataFile(path.relative_to(folder).as_posix(), path.stat().st_size)
    tables.commit(tables.newest_version(), {name: TableChange(columns, (file,), frozenset([file.path]))}, facts=facts)


def write_square(folder: Path, windows: int = 2) -> None:
    """A flow from 1 to 2 over a square whose direct link fails."""
    begins = [number * WINDOW_NS for number in range(1, windows + 1)]
    links = [
        {
            "begin_ns": begin, "window_ns": WINDOW_NS, "a": a, "b": b, "delay_mean_ns": 10 * MS, "loss_ab": 0.0,
            "loss_ba": 0.0, "sent_ab": 10, "sent_ba": 10, "ends": 2, "observed_ns": WINDOW_NS, "samples": 40,
        }
        for begin in begins
        for a, b in LINKS
    ]  # fmt: skip
    outages = [
        {"a": 1, "b": 2, "begin_ns": begin + SECOND, "end_ns": begin + WINDOW_NS // 2, "ends": 2} for begin in begins
    ]
    write_table(folder, "links", links)
    write_table(folder, "outages", outages)
    write_table(folder, "deadlines", [{"publisher": 1, "receiver": 2, "deadline_ns": 100 * MS}])
    write_table(
        folder,
        "flows",
        [{"publisher": 1, "receivers": [2], "rate": 10.0, "size_bytes": 10.0, "weight": 1.0, "deadline_ns": MS}],
    )


def write_publications(
    folder: Path, rows: list[tuple[int, int, list[int], int]], clocks: list[list[int]], sample: float = 1.0
) -> None:
    """Publications: time by the clock of the publisher, publisher, receivers, expected. `clocks`: peer, incarnation and
    offset."""
    names = ("time_ns", "publisher", "receivers", "expected")
    events = [
        {**dict(zip(names, row, strict=True)), "publisher_incarnation": 7, "sequence": number, "size_bytes": 10}
        for number, row in enumerate(rows)
    ]
    write_table(folder, "publications", events, {"clocks": clocks})
    flow = {"rate": 10.0, "size_bytes": 10.0, "weight": 1.0, "deadline_ns": MS, "sample": sample}
    flows = sorted({(publisher, tuple(receivers)) for _, publisher, receivers, _ in rows if receivers})
    write_table(folder, "flows", [{"publisher": one, "receivers": [*others], **flow} for one, others in flows])
