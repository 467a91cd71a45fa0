"""For all tests: machines are shared and noisy, so nothing fails because it took long."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

settings.register_profile("wend", deadline=None)
settings.load_profile("wend")

TESTS = Path(__file__).parent
WIRED = ("conformance", "drivers/live", "lab")
"""Folders whose tests have sockets and real time: they run one after the other, whatever runs beside them."""
CLUSTERS = ("test_cluster.py", "test_kill.py", "test_commands.py")
"""Tests of Spark that mostly wait for clusters and processes of their own."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Which tests share a worker: those with sockets, those of one Spark session, those of clusters; else each file."""
    for item in items:
        folder = item.path.relative_to(TESTS).parent.as_posix()
        name = str(item.path)
        if folder.startswith(WIRED):
            name = "wired"
        elif item.get_closest_marker("spark"):
            name = "clusters" if item.path.name in CLUSTERS else "spark"
        item.add_marker(pytest.mark.xdist_group(name))


@pytest.fixture(scope="session")
def spark() -> Any:
    """The Spark session of this test process."""
    from tests.spark import shared_session

    return shared_session()


@pytest.fixture
def spark_commands(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commands in this process use the shared session, whatever master they are given."""
    from wend.pipeline import session

    @contextmanager
    def shared(*_: Any, **__: Any) -> Iterator[Any]:
        yield spark

    monkeypatch.setattr(session, "spark_session", shared)
