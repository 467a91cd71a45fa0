"""The cost of updating a stream after a short and after a long history: seconds for each further hour of segments.

    python -m benchmarks.telemetry_history --peers 20 --hours 96

The history is taken in one update, and four hours after it in one update each. Spark starts once.
"""

import argparse
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.telemetry_segments import InventedOverlay, write_segments
from wend.model.units import SECOND
from wend.pipeline.spark.session import spark_session
from wend.pipeline.telemetry.late_job import LateJob
from wend.pipeline.telemetry.links_job import LinksJob
from wend.pipeline.telemetry.segment_listing import list_segments
from wend.pipeline.telemetry.table_update import TelemetryJob
from wend.pipeline.telemetry.updates import run_update
from wend.pipeline.telemetry.workload_job import WorkloadJob

HOUR = 3600 * SECOND
SHORT = 2
"""Hours of the short history."""
FURTHER = 4
JOBS: tuple[TelemetryJob, ...] = (LinksJob(60 * SECOND), LateJob(900 * SECOND), WorkloadJob())


def measure(folder: Path, hours: int) -> None:
    files = list_segments(None, folder / "segments").files
    with spark_session("local[2]") as spark:
        for job in JOBS:
            for history in (SHORT, hours - FURTHER):
                out = folder / "tables"
                run_update(spark, str(out), job, [file for file in files if file.segment.number < history])
                times = []
                for hour in range(history, history + FURTHER):
                    made = run_update(spark, str(out), job, [file for file in files if file.segment.number == hour])
                    assert made is not None
                    times.append(f"{made.seconds:.1f}")
                print(f"{job.name}, after {history} hours: {', '.join(times)} s", flush=True)
                shutil.rmtree(out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=int, default=20)
    parser.add_argument("--hours", type=int, default=96)
    given = parser.parse_args()
    overlay = InventedOverlay(
        given.peers, given.hours * HOUR, 30 * SECOND, event_period_ns=20 * SECOND, outage_every_s=3600.0
    )
    with TemporaryDirectory() as name:
        write_segments(Path(name) / "segments", overlay, HOUR)
        measure(Path(name), given.hours)


if __name__ == "__main__":
    main()
