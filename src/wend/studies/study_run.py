"""Run a study: collect its runs, sweep them, average them, judge the claims.

Results leave Spark here: a row per run for the claims, which compare strategies seed by seed, and a row per setting and
metric for the figures.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from time import monotonic
from typing import Any

import msgspec

from wend.drivers.sim import STRATEGIES
from wend.model.errors import ConfigError
from wend.pipeline.spark.session import DataFrame, SparkSession
from wend.pipeline.sweeps.run_kind import RunKind
from wend.pipeline.sweeps.seed_means import means_by_setting
from wend.pipeline.sweeps.simulations import Runner, Simulations
from wend.pipeline.sweeps.sweep import LIMIT_S, run_sweep
from wend.studies.claims import Claim, ClaimResult, Estimate, Values, judge_claims, load_claims
from wend.studies.study_model import Fields, Run, Size, Study


class StudyResults(msgspec.Struct, frozen=True, kw_only=True):
    """The results of a study, from which the report is written."""

    study: Study
    size: Size
    claims: list[ClaimResult]
    estimates: dict[tuple[str, str], Estimate]
    left_out: list[str]
    runs: int
    ran: int
    failures: list[dict[str, object]]
    code: str
    elapsed_s: float
    simulated_wall_s: float
    """Computing time of all runs together, including those of earlier sessions."""
    command: str = ""
    costs: dict[str, float] = {}
    """The computing time of each kind of run, or of each strategy."""


def run_study(
    spark: SparkSession,
    study: Study,
    size: Size,
    out: Path,
    *,
    strategies: list[str] | None = None,
    only: list[str] | None = None,
    claims_alone: bool = False,
    run: Runner | None = None,
    available: frozenset[str] | None = None,
    limit_s: float = LIMIT_S,
    quiet: bool = False,
) -> StudyResults:
    """Execute the missing runs, and judge the claims of the chosen figures. With `claims_alone`, execute only the runs
    that claims need, and show no figures and tables. Tests replace the simulator by `run`, and
    the known strategies by `available`."""
    began = monotonic()
    selected, chosen, left_out = select_parts(study, size, strategies or [], only or [], available)
    if claims_alone:
        selected = selected.without_figures()
    claims = [claim for claim in load_claims(study.name) if not only or claim.figure in only]
    work: RunKind[Any] = size.trials or Simulations(run)
    swept = run_sweep(
        spark, work, collect_runs(selected, size, claims, chosen), study.name, out, limit_s=limit_s, quiet=quiet
    )
    values, costs = _collect_values(swept.results, work.averaged)
    return StudyResults(
        study=selected,
        size=size,
        claims=judge_claims(claims, values, size),
        estimates=_collect_estimates(swept.results, work.averaged),
        left_out=left_out,
        runs=swept.runs,
        ran=swept.ran,
        failures=swept.failures,
        code=swept.store.code,
        elapsed_s=monotonic() - began,
        simulated_wall_s=sum(costs.values()),
        command=_command_text(study, size, strategies or [], only or [], claims_alone),
        costs=costs,
    )


def _command_text(study: Study, size: Size, strategies: list[str], only: list[str], claims_alone: bool) -> str:
    """The command that runs this."""
    options = [] if size.name == "default" else [f"--{size.name}"]
    options += ["--claims"] if claims_alone else []
    options += [f"--seeds {size.seeds}"] if size.seeds != study.find_size(size.name).seeds else []
    options += [f"--only {','.join(only)}"] if only else []
    options += [f"--strategies {','.join(strategies)}"] if strategies else []
    return " ".join(["wend study", study.name, *options])


def select_parts(
    study: Study, size: Size, strategies: list[str], only: list[str], available: frozenset[str] | None = None
) -> tuple[Study, frozenset[str], list[str]]:
    """Select figures and strategies of a study; return the selection, its strategies, and the strategies left out. It
    needs no Spark, so it finds mistakes before Spark starts."""
    if available is None:
        available = study.strategies() if size.trials is not None else frozenset(STRATEGIES)
    there = study.strategies() & available
    for name in strategies:
        if name not in there:
            raise ConfigError(f"the study {study.name} has no strategy {name!r}; it has {', '.join(sorted(there))}")
    chosen = frozenset(strategies) or there
    return study.select(only, chosen), chosen, sorted(study.strategies() - chosen)


def collect_runs(study: Study, size: Size, claims: list[Claim], strategies: frozenset[str]) -> list[Run]:
    """The runs that the figures and the claims need, each once."""
    every = {size.setting_key(fields): fields for fields in _needed_settings(study, size, claims, strategies)}
    return [run for fields in every.values() for run in size.make_runs(fields)]


def _needed_settings(study: Study, size: Size, claims: list[Claim], strategies: frozenset[str]) -> Iterator[Fields]:
    for figure in study.figures_at(size):
        yield from figure.settings(size)
    for table in study.tables:
        yield from (fields for _, fields in table.columns)
    # A smoke run adds no settings for claims; it judges those that its figures contain.
    for claim in [] if size.thin else claims:
        yield from (
            fields
            for fields in claim.settings()
            if fields["strategy"] in strategies and fields.get("kind") not in size.leaves_out
        )


def _collect_values(results: DataFrame, columns: Sequence[str]) -> tuple[Values, dict[str, float]]:
    part = "kind" if "kind" in results.columns else "strategy"
    rows = results.select("setting", "seed", "error", part, *columns).toArrow().to_pylist()
    costs: dict[str, float] = {}
    values: dict[str, dict[int, dict[str, float | None] | None]] = {}
    for row in rows:
        metrics = {name: row[name] for name in columns} if row["error"] is None else None
        values.setdefault(row["setting"], {})[row["seed"]] = metrics
        costs[row[part]] = costs.get(row[part], 0.0) + (row["wall_s"] or 0.0)
    return values, dict(sorted(costs.items()))


def _collect_estimates(results: DataFrame, columns: Sequence[str]) -> dict[tuple[str, str], Estimate]:
    rows = means_by_setting(results, columns).toArrow().to_pylist()
    return {(row["setting"], row["metric"]): Estimate(row["mean"], row["half"], row["seeds"]) for row in rows}
