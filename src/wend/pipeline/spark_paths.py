"""Paths that Spark reads literally. Spark takes each path for a glob pattern: `run[12]` is `run1` and `run2`."""

import re
from pathlib import Path

_SIGNS = re.compile(r"[*?\[\]{}\\]")


def literal_path(path: str | Path) -> str:
    """Escape the pattern characters of a local path. An address (`s3://...`) stays as it is and may be a pattern."""
    if "://" in str(path):
        return str(path)
    return _SIGNS.sub(lambda sign: f"\\{sign[0]}", str(Path(path).absolute()))
