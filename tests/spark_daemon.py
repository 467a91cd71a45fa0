"""Spark's Python daemon with all imports of the tasks done, so that each worker that it forks starts at once.

Spark starts a worker for each slot, and another one after each task that raises, as many tests make them do.
"""

import pandas  # noqa: F401  Spark's Arrow functions import it
import pyspark.daemon
import pyspark.worker

import wend.drivers.sim
import wend.pipeline.match.match_job
import wend.pipeline.paths_job
import wend.pipeline.underlay_inference
import wend.pipeline.workload_generator
import wend.studies  # noqa: F401

if __name__ == "__main__":
    pyspark.daemon.manager()
