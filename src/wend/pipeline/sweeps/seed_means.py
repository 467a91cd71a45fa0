"""Means over seeds, with 95 % intervals, computed by Spark's built-in functions.

The interval is Student's, because seeds are few: mean ± t(n − 1) · s / √n. With one seed there is no interval.
"""

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from scipy.stats import t as student

CONFIDENCE = 0.95
_MAX_SEEDS = 200


def t_quantile(seeds: int) -> float:
    """Half the width of the interval, in standard errors."""
    return float(student.ppf(0.5 + CONFIDENCE / 2, seeds - 1))


def means_by_setting(results: DataFrame, metrics: Sequence[str]) -> DataFrame:
    """Average runs: `setting, metric, seeds, mean, half` (half the interval), a row per setting and metric."""
    well = results.where(F.col("error").isNull())
    values = well.select("setting", *(F.col(name).cast("double").alias(name) for name in metrics))
    long = values.unpivot("setting", list(metrics), "metric", "value").where(F.col("value").isNotNull())
    stats = long.groupBy("setting", "metric").agg(
        F.count("value").alias("seeds"),
        F.avg("value").alias("mean"),
        F.stddev_samp("value").alias("deviation"),
    )
    quantiles = F.array(*(F.lit(t_quantile(seeds)) for seeds in range(2, _MAX_SEEDS + 1)))
    seeds = F.least(F.col("seeds"), F.lit(_MAX_SEEDS)).cast("int")
    half = F.get(quantiles, seeds - 2) * F.col("deviation") / F.sqrt("seeds")
    return stats.select("setting", "metric", "seeds", "mean", half.alias("half"))
