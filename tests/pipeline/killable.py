"""A sweep that reports when a run begins and then blocks, for the test that kills it half-way.

Called as `python -m tests.pipeline.killable FOLDER`. `FOLDER/begun` is a named pipe; each run writes its
seed there. While `FOLDER/open` does not exist, runs from seed 5 on block on `FOLDER/gate`.
"""

import sys
from functools import partial
from pathlib import Path
from typing import Any

from tests.spark import invented
from wend.drivers.scenarios import Scenario
from wend.model.summary import Summary
from wend.pipeline.spark.session import spark_session
from wend.pipeline.sweeps.simulations import Simulations
from wend.pipeline.sweeps.sweep import SweepResult, run_sweep

SCENARIOS = [Scenario(seed=seed) for seed in range(1, 9)]
FREE = 4


def gated(scenario: Scenario, folder: str) -> Summary:
    place = Path(folder)
    with (place / "begun").open("w") as begun:
        begun.write(f"{scenario.seed}\n")
    with (place / "log").open("a") as log:
        log.write(f"{scenario.seed}\n")
    if scenario.seed > FREE and not (place / "open").exists():
        (place / "gate").open().read()
    return invented(scenario)


def run(spark: Any, folder: Path) -> SweepResult:
    work = Simulations(partial(gated, folder=str(folder)))
    return run_sweep(spark, work, SCENARIOS, "kill", folder, code="c", cost=lambda scenario: -scenario.seed, quiet=True)


if __name__ == "__main__":
    with spark_session("local[2]") as spark:
        # Tasks import the runner by its module name, which differs from that of a script.
        from tests.pipeline.killable import run as run_by_name

        run_by_name(spark, Path(sys.argv[1]))
