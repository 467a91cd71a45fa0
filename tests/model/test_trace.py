"""Traces: rows, hashes and Parquet files."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from wend.model.errors import ConfigError
from wend.model.trace import TABLES, Trace, schema

ROWS: dict[str, tuple[int | str, ...]] = {
    "publications": (1, 2, 3, 4, "t0", 5),
    "deliveries": (1, 2, 3, 4, 5, 6, 7, 8),
    "hops": (1, 2, 3, 4, 5, 6, 7, 1),
    "drops": (1, 2, 3, 4, 5, 6, "no-route-left"),
    "probes": (1, 2, 3, 0),
    "faults": (1, "link", 2, 3, 4),
}


def filled() -> Trace:
    trace = Trace()
    for name, row in ROWS.items():
        trace.tables[name].add(*row)
    return trace


def test_every_table_has_an_explicit_schema() -> None:
    assert set(ROWS) == set(TABLES)
    for name in TABLES:
        assert [f.name for f in schema(name)] == [column for column, _ in TABLES[name]]
        assert all(f.type in (pa.int64(), pa.string()) and not f.nullable for f in schema(name))


@pytest.mark.parametrize("made", [Trace, filled])
def test_a_trace_survives_parquet_empty_or_not(made: type[Trace], tmp_path: Path) -> None:
    trace = made()
    trace.write(tmp_path / "deep" / "run")
    for name in TABLES:
        table = parquet.read_table(tmp_path / "deep" / "run" / f"{name}.parquet")
        assert table.schema.equals(schema(name))
        assert [tuple(row.values()) for row in table.to_pylist()] == list(trace.tables[name].rows())


def test_rows_are_read_back_as_added() -> None:
    trace = filled()
    for name, row in ROWS.items():
        assert list(trace.tables[name].rows()) == [row]
        assert len(trace.tables[name]) == 1


def test_adding_packed_rows_is_the_same() -> None:
    one, two = Trace(), Trace()
    one.deliveries.add(*ROWS["deliveries"])
    two.deliveries.add_packed(two.deliveries.pack(*ROWS["deliveries"]))
    assert one.sha256() == two.sha256()


def test_the_hash_differs_when_anything_differs() -> None:
    hashes = {Trace().sha256(), filled().sha256()}
    for name, row in ROWS.items():
        for at, value in enumerate(row):
            changed = filled()
            other = list(row)
            other[at] = f"{value}x" if isinstance(value, str) else value + 1
            changed.tables[name] = type(changed.tables[name])(name)
            changed.tables[name].add(*other)
            hashes.add(changed.sha256())
        more = filled()
        more.tables[name].add(*row)
        hashes.add(more.sha256())
    assert len(hashes) == 2 + sum(len(row) + 1 for row in ROWS.values())


def test_texts_with_other_boundaries_have_another_hash() -> None:
    one, two = Trace(), Trace()
    for trace, reasons in ((one, ("a\x1fb", "c")), (two, ("a", "b\x1fc"))):
        for reason in reasons:
            trace.drops.add(1, 2, 3, 4, 5, 6, reason)
    assert one.sha256() != two.sha256()


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot write the trace to"):
        Trace().write(tmp_path / "file" / "run")
