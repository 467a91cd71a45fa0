"""Segments as tests read them."""

from pathlib import Path
from typing import Any

from pyarrow import parquet

from wend.model.telemetry import parse_segment_name


def rows(folder: Path, table: str) -> list[dict[str, Any]]:
    """The rows of a table in a folder, by incarnation, segment and place."""
    found = [
        (segment, path) for path in folder.glob("*.parquet") if (segment := parse_segment_name(path.name)) is not None
    ]
    chosen = sorted((segment[3:], path) for segment, path in found if segment.table == table)
    return [row for _, path in chosen for row in parquet.read_table(path).to_pylist()]
