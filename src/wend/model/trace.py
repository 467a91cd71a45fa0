"""Traces: the events of a run, as columns. Drivers write this format and pipelines read it.

A run appends rows while it goes on, and converts them to Arrow tables (and Parquet files) once, at the end. Every
table exists in every run, empty or not. Times are nanoseconds of the run's own clock.
"""

import hashlib
import struct
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wend.model.errors import ConfigError

# name -> columns; "q" is int64, "s" is string
TABLES: dict[str, tuple[tuple[str, str], ...]] = {
    "publications": (
        ("time_ns", "q"), ("publisher", "q"), ("incarnation", "q"), ("sequence", "q"),
        ("topic", "s"), ("expected", "q"),
    ),
    "deliveries": (
        ("time_ns", "q"), ("publisher", "q"), ("incarnation", "q"), ("sequence", "q"),
        ("subscriber", "q"), ("subscription", "q"), ("delay_ns", "q"), ("deadline_ns", "q"),
    ),
    "hops": (
        ("time_ns", "q"), ("sender", "q"), ("receiver", "q"),
        ("publisher", "q"), ("incarnation", "q"), ("sequence", "q"), ("dests", "q"), ("arrived", "q"),
    ),
    "drops": (
        ("time_ns", "q"), ("peer", "q"), ("publisher", "q"), ("incarnation", "q"), ("sequence", "q"), ("dest", "q"),
        ("reason", "s"),
    ),
    "probes": (("time_ns", "q"), ("sender", "q"), ("receiver", "q"), ("arrived", "q")),
    "faults": (("time_ns", "q"), ("kind", "s"), ("a", "q"), ("b", "q"), ("until_ns", "q")),
}  # fmt: skip


class TraceTable:
    """One table of a trace. Numbers are packed in one buffer, texts are in lists."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._names = [column for column, _ in TABLES[name]]
        self._numbers = [column for column, kind in TABLES[name] if kind == "q"]
        self._packed = bytearray()
        self._texts: dict[str, list[str]] = {column: [] for column, kind in TABLES[name] if kind == "s"}
        self._number_places = [at for at, (_, kind) in enumerate(TABLES[name]) if kind == "q"]
        self._text_places = [at for at, (_, kind) in enumerate(TABLES[name]) if kind == "s"]
        self.pack = struct.Struct(f"={len(self._numbers)}q").pack
        self.add_packed = self._packed.extend
        """Adds a row to a table without texts, fast: `add_packed(pack(*row))`."""

    def add(self, *row: int | str) -> None:
        self.add_packed(self.pack(*[row[at] for at in self._number_places]))
        for column, at in zip(self._texts.values(), self._text_places, strict=True):
            column.append(str(row[at]))

    def __len__(self) -> int:
        return len(self._packed) // (8 * len(self._numbers))

    def column(self, name: str) -> "array[int] | list[str]":
        if name in self._texts:
            return self._texts[name]
        return array("q", self._packed)[self._numbers.index(name) :: len(self._numbers)]

    def numbers(self, *names: str) -> NDArray[np.int64]:
        """The given columns of numbers as one array."""
        rows = np.frombuffer(self._packed, dtype=np.int64).reshape(-1, len(self._numbers))
        return rows[:, [self._numbers.index(name) for name in names]]

    def rows(self) -> Iterator[tuple[Any, ...]]:
        return zip(*(self.column(name) for name in self._names), strict=True)

    def update_digest(self, digest: "hashlib._Hash") -> None:
        digest.update(f"{self.name}:{len(self)};".encode())
        digest.update(self._packed)
        for texts in self._texts.values():
            digest.update("".join(f"{len(text)}:{text}" for text in texts).encode())


class Trace:
    """The tables of one run."""

    def __init__(self) -> None:
        self.tables = {name: TraceTable(name) for name in TABLES}
        self.publications = self.tables["publications"]
        self.deliveries = self.tables["deliveries"]
        self.hops = self.tables["hops"]
        self.drops = self.tables["drops"]
        self.probes = self.tables["probes"]
        self.faults = self.tables["faults"]

    def sha256(self) -> str:
        """A hash of all tables. The same run has the same hash in every process and on every machine."""
        digest = hashlib.sha256()
        for table in self.tables.values():
            table.update_digest(digest)
        return digest.hexdigest()

    def write(self, folder: Path) -> None:
        """Write one Parquet file per table."""
        from pyarrow import parquet

        try:
            folder.mkdir(parents=True, exist_ok=True)
            for name in TABLES:
                parquet.write_table(self.arrow(name), folder / f"{name}.parquet")
        except OSError as error:
            raise ConfigError(
                f"cannot write the trace to {folder}: {error.strerror or error}", code="unwritable"
            ) from None

    def arrow(self, name: str) -> Any:
        """The table `name` as an Arrow table, with the declared types of its columns."""
        import pyarrow as arrow

        columns = [arrow.array(self.tables[name].column(field.name), type=field.type) for field in schema(name)]
        return arrow.table(columns, schema=schema(name))


def schema(name: str) -> Any:
    """The Arrow schema of a table."""
    import pyarrow as arrow

    kinds = {"q": arrow.int64(), "s": arrow.string()}
    return arrow.schema([arrow.field(column, kinds[kind], nullable=False) for column, kind in TABLES[name]])
