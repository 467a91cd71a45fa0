from pathlib import Path
from typing import Any

import pytest

from tests.spark import shared_session


@pytest.fixture(scope="session")
def spark() -> Any:
    return shared_session()


@pytest.fixture
def tmp_path(tmp_path: Path) -> Path:
    """With every sign that Spark takes for a pattern: whatever is written in the tests must be found again."""
    strange = tmp_path / "run[12] {a,b}*?\\c"
    strange.mkdir()
    return strange
