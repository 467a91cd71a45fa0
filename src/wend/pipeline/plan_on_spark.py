"""The searches of a plan on Spark: candidate paths by publisher, and routes after failures by link."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from wend.model.errors import ConfigError
from wend.pipeline.failures_job import plan_failures_on_spark
from wend.pipeline.paths_job import SparkPathSearch, workload_targets
from wend.pipeline.spark.session import spark_session
from wend.planning.flow_workload import FlowWorkload
from wend.planning.planner import PlanSearch


@contextmanager
def open_plan_search(master: str, workload: FlowWorkload, ranking: str, beside: Path) -> Iterator[PlanSearch]:
    """A search that gives the same plan as one process. Its files are in a temporary folder in `beside`, which must
    have the same path on all workers."""
    there = next(folder for folder in (beside.absolute(), *beside.absolute().parents) if folder.is_dir())
    try:
        folder = TemporaryDirectory(prefix=".wend-plan.", dir=there, ignore_cleanup_errors=True)
    except OSError as error:
        raise ConfigError(f"cannot write to {there}: {error.strerror}", code="unwritable") from None
    with folder as name, spark_session(master) as spark:
        scratch = Path(name)
        paths = SparkPathSearch(spark, workload_targets(workload), ranking, scratch)
        yield PlanSearch(paths, partial(plan_failures_on_spark, spark, folder=scratch))
