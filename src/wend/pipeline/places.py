"""Where Spark reads: it takes every path for a pattern, so `run[12]` would be another folder's table, or nobody's."""

import re
from pathlib import Path

_SIGNS = re.compile(r"[*?\[\]{}\\]")


def by_letter(path: str | Path) -> str:
    """A path on this machine as Spark reads it, letter by letter; an address (`s3://...`) stays what it is."""
    if "://" in str(path):
        return str(path)
    return _SIGNS.sub(lambda sign: f"\\{sign[0]}", str(Path(path).absolute()))
