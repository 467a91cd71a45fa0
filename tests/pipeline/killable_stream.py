"""Streams that end themselves with SIGKILL at a chosen moment, for the test that restarts them.

Called as `python -m tests.pipeline.killable_stream SOURCE OUT JOB MOMENT`. The moment is the number of a write of data
of that job, or `before` or `after` its first commit. With `all none`, all jobs follow the source, one after the other,
until no segment is left. Each has a folder in OUT.
"""

import os
import signal
import sys
from pathlib import Path
from typing import Any

from wend.model.units import SECOND
from wend.pipeline.spark.session import spark_session
from wend.pipeline.storage import local_folder, versioned_tables
from wend.pipeline.telemetry.follow import follow_segments
from wend.pipeline.telemetry.late_job import LateJob
from wend.pipeline.telemetry.links_job import LinksJob
from wend.pipeline.telemetry.table_update import TelemetryJob
from wend.pipeline.telemetry.workload_job import WorkloadJob

WINDOW = 30 * SECOND
JOBS: tuple[TelemetryJob, ...] = (LinksJob(WINDOW), LateJob(600 * SECOND), WorkloadJob())
AT_ONCE = 60
"""Files of a batch."""


def count_down(moment: str) -> None:
    """Kill this process at its n-th write of data, or before or after its first commit."""
    left = [int(moment)] if moment.isdigit() else [-1]
    write, create = versioned_tables.TableFolder.write, local_folder.LocalFolder.create

    def written(self: Any, *given: Any, **how: Any) -> Any:
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return write(self, *given, **how)

    def created(self: Any, inside: str, content: bytes) -> bool:
        if moment == "before" and inside.startswith("versions"):
            os.kill(os.getpid(), signal.SIGKILL)
        made = create(self, inside, content)
        if moment == "after" and inside.startswith("versions"):
            os.kill(os.getpid(), signal.SIGKILL)
        return made

    versioned_tables.TableFolder.write = written  # type: ignore[method-assign]
    local_folder.LocalFolder.create = created  # type: ignore[method-assign]


def main(source: str, out: str, killed: str, moment: str) -> None:
    count_down(moment)
    with spark_session("local[2]") as spark:
        for job in (one for one in JOBS if killed in (one.name, "all")):
            place = f"{out}/{job.name}"
            follow_segments(spark, source, place, job, checkpoint=f"{place}/checkpoint", drain=True, at_once=AT_ONCE)


if __name__ == "__main__":
    main(str(Path(sys.argv[1])), *sys.argv[2:5])
