from pathlib import Path

import pytest


@pytest.fixture
def tmp_path(tmp_path: Path) -> Path:
    """A folder whose name has every pattern character of Spark: each test must find what it writes there."""
    strange = tmp_path / "run[12] {a,b}*?\\c"
    strange.mkdir()
    return strange
