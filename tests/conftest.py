"""For all tests: machines are shared and noisy, so nothing fails because it took long."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

settings.register_profile("wend", deadline=None)
settings.load_profile("wend")

TESTS = Path(__file__).parent


class ByGroup(LoadScopeScheduling):
    """Which tests share a worker: those of one Spark session, those with sockets, those of clusters. Others are free.

    The groups start first, because they are long. (`--dist loadgroup` would read them from marks, but xdist 3.8 cannot
    pass these on with pytest 9.2.)
    """

    WIRED = ("tests/conformance/", "tests/drivers/live/", "tests/lab/")
    """Folders whose tests have sockets and real time: they run one after the other, whatever runs beside them."""
    CLUSTERS = ("test_cluster.py", "test_kill.py", "test_commands.py")
    """Tests of Spark that mostly wait for clusters and processes of their own."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        if file.startswith(self.WIRED):
            return "wired"
        if not _uses_spark(file):
            return nodeid
        return "clusters" if file.endswith(self.CLUSTERS) else "spark"


@cache
def _uses_spark(file: str) -> bool:
    return "mark.spark" in (TESTS.parent / file).read_text(encoding="utf-8")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByGroup:
    return ByGroup(config, log)


@pytest.fixture(scope="session")
def spark() -> Any:
    """The Spark session of this test process."""
    from tests.spark import shared_session

    return shared_session()


@pytest.fixture
def spark_commands(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commands in this process use the shared session, whatever master they are given."""
    from wend.pipeline.spark import session

    @contextmanager
    def shared(*_: Any, **__: Any) -> Iterator[Any]:
        yield spark

    monkeypatch.setattr(session, "spark_session", shared)
