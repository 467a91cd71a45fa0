"""Means over seeds, with 95 % intervals, computed by Spark's built-in functions.

The interval is Student's, because seeds are few: mean ± t(n − 1) · s / √n. With one seed there is no interval.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from scipy.stats import t as student

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CONFIDENCE = 0.95
_MOST_SEEDS = 200


def t_quantile(seeds: int) -> float:
    """Half the width of the interval, in standard errors."""
    return float(student.ppf(0.5 + CONFIDENCE / 2, seeds - 1))


def by_setting(results: "DataFrame", metrics: Sequence[str]) -> "DataFrame":
    """Average runs: `setting, metric, seeds, mean, half` (half the interval), a row per setting and metric."""
    from pyspark.sql import functions as f

    well = results.where(f.col("error").isNull())
    values = well.select("setting", *(f.col(name).cast("double").alias(name) for name in metrics))
    long = values.unpivot("setting", list(metrics), "metric", "value").where(f.col("value").isNotNull())
    stats = long.groupBy("setting", "metric").agg(
        f.count("value").alias("seeds"),
        f.avg("value").alias("mean"),
        f.stddev_samp("value").alias("deviation"),
    )
    quantiles = f.array(*(f.lit(t_quantile(seeds)) for seeds in range(2, _MOST_SEEDS + 1)))
    seeds = f.least(f.col("seeds"), f.lit(_MOST_SEEDS)).cast("int")
    half = f.get(quantiles, seeds - 2) * f.col("deviation") / f.sqrt("seeds")
    return stats.select("setting", "metric", "seeds", "mean", half.alias("half"))
