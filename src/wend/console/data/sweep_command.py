"""`wend data sweep`: run many scenarios on Spark."""

from pathlib import Path
from typing import Annotated

import typer

from wend.console.options import Json
from wend.console.outputs import check_file, check_resumable
from wend.console.spark_options import FAILED_RUNS, RESUMES, Conf, Master, Ship, TimeLimit, parse_time_limit
from wend.console.terminal import stop_on_signals
from wend.model.errors import ConfigError

_SCENARIOS = r"TOML with \[base] and \[sweep] (lists: all combinations), or JSON lines."


def data_sweep(
    scenarios: Annotated[Path, typer.Option(metavar="FILE", help=_SCENARIOS)],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for the runs (Parquet) and their means (CSV).")],
    master: Master = None,
    conf: Conf = None,
    time_limit: TimeLimit = "6h",
    ship: Ship = False,
    as_json: Json = False,
) -> None:
    """Run many scenarios on Spark, each once. After an interruption, the same command resumes the sweep."""
    from wend.console.data import sweep_results
    from wend.drivers.settings import outside_plugins
    from wend.drivers.sim import STRATEGIES, can_simulate
    from wend.pipeline.code_hash import outside_sources
    from wend.pipeline.scenario_files import load_scenarios
    from wend.pipeline.spark.session import spark_session
    from wend.pipeline.sweeps.seed_means import means_by_setting
    from wend.pipeline.sweeps.simulations import SIMULATIONS
    from wend.pipeline.sweeps.sweep import run_sweep

    most_s = parse_time_limit(time_limit)
    runs = load_scenarios(scenarios)
    strategies = dict.fromkeys(scenario.strategy for scenario in runs)
    for name in strategies:
        if not can_simulate(name):
            raise ConfigError(
                f"there is no strategy {name!r}; the strategies are {', '.join(STRATEGIES)}, or MODULE:CLASS"
            )
    check_resumable(out)
    place = out / f"{scenarios.stem}-means.csv"
    check_file(place, say=False)
    plugins = dict.fromkeys(name for run in runs for name in outside_plugins(run.chosen))
    beside = list(dict.fromkeys(file for name in plugins for file in outside_sources(name)))
    with stop_on_signals(RESUMES), spark_session(master, conf=conf, ship=ship, beside=beside) as spark:
        swept = run_sweep(spark, SIMULATIONS, runs, scenarios.stem, out, limit_s=most_s, quiet=as_json)
        rows = means_by_setting(swept.results, SIMULATIONS.averaged).toArrow().to_pylist()
        settings = swept.results.drop("seed").dropDuplicates(["setting"]).toArrow().to_pylist()
    means = sweep_results.SettingMeans(settings, rows)
    sweep_results.write_means(means, SIMULATIONS.averaged, place)
    sweep_results.print_results(swept, means, place, [name for name, _ in beside], as_json)
    if swept.failures:
        raise typer.Exit(FAILED_RUNS)
