"""Logs of Wend peers as a source and a sink of Spark: `spark.read.format("wend")`.

Spark finds data sources in modules that are called `pyspark_*`. `wend.pipeline.log_source` has the source itself.
"""

from wend.pipeline.log_source.data_source import WendDataSource as DefaultSource

__all__ = ["DefaultSource"]
