"""`wend study`: run the evaluation of a paper on Spark.

The command imports Spark, matplotlib and the simulator when it runs. So `wend --help` stays fast, and a peer runs
where they are not installed.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from wend.console.options import Json, split_names
from wend.console.outputs import check_page, check_resumable
from wend.console.spark_options import FAILED_RUNS, RESUMES, Conf, Master, Ship, TimeLimit, parse_time_limit
from wend.console.terminal import EXIT_CODES, count_text, stop_on_signals
from wend.model.errors import ConfigError

if TYPE_CHECKING:
    from wend.studies.claims import Estimate
    from wend.studies.study_model import Size, Study
    from wend.studies.study_run import StudyResults


def register(app: typer.Typer) -> None:
    """Add the commands of this module to the `wend` command."""
    app.command("study", epilog=EXIT_CODES)(study)


def study(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The paper: dcrd, campr, quist, dmm or esposito.")],
    smoke: Annotated[bool, typer.Option("--smoke", help="Run a small part of the grid, in about a minute.")] = False,
    full: Annotated[bool, typer.Option("--full", help="Run the size of the paper.")] = False,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder for runs and report; default: out/studies/NAME-SIZE.")
    ] = None,
    master: Master = None,
    conf: Conf = None,
    strategies: Annotated[
        list[str] | None, typer.Option(help="Run only these strategies, separated by commas; may be repeated.")
    ] = None,
    only: Annotated[list[str] | None, typer.Option(help="Run only these figures, such as 2,3.")] = None,
    claims: Annotated[bool, typer.Option("--claims", help="Run only what the claims need; draw no figures.")] = False,
    seeds: Annotated[int | None, typer.Option(help="Run so many topologies of each setting.")] = None,
    time_limit: TimeLimit = "6h",
    ship: Ship = False,
    as_json: Json = False,
) -> None:
    """Run the evaluation of a paper on Spark, and write the report. It skips runs that are finished."""
    from wend.pipeline.spark.session import spark_session
    from wend.studies import find_study
    from wend.studies.study_report import PAGES  # loads all that a report needs, before any run
    from wend.studies.study_run import run_study, select_parts

    most_s = parse_time_limit(time_limit)
    chosen = find_study(name)
    size = _choose_size(chosen, smoke, full, claims, seeds)
    folder = out if out is not None else Path("out") / "studies" / f"{name}-{size.name}"
    # Find mistakes before Spark starts.
    select_parts(chosen, size, split_names(",".join(strategies or [])), split_names(",".join(only or [])))
    check_resumable(folder)
    for page in PAGES:
        check_page(folder / page, say=False)
    console = Console(stderr=True)
    length = f"{size.length} x " if size.length else ""
    topologies = count_text(size.seeds, "topology", "topologies")
    console.print(f"study {name}, {size.name}: {length}{topologies}, on {master or 'Spark'}")
    with stop_on_signals(RESUMES), spark_session(master, conf=conf, ship=ship) as spark:
        finished = run_study(
            spark,
            chosen,
            size,
            folder,
            strategies=split_names(",".join(strategies or [])),
            only=split_names(",".join(only or [])),
            claims_alone=claims,
            limit_s=most_s,
            quiet=as_json,
        )
    _print_report(finished, folder, as_json)
    if finished.failures:
        raise typer.Exit(FAILED_RUNS)


def _choose_size(study: "Study", smoke: bool, full: bool, claims: bool, seeds: int | None) -> "Size":
    if smoke and full:
        raise ConfigError("--smoke and --full exclude each other")
    if smoke and claims:
        raise ConfigError("--smoke and --claims exclude each other: a smoke run judges what its figures show")
    size = study.find_size("smoke" if smoke else "full" if full else "default")
    return size if seeds is None else size.with_seeds(seeds)


def _print_report(finished: "StudyResults", folder: Path, as_json: bool) -> None:
    from wend.studies.study_report import make_report_json as report_json
    from wend.studies.study_report import write_report

    page = write_report(finished, folder)
    if as_json:
        print(json.dumps({**report_json(finished), "report": str(page)}))
        return
    console = Console()
    console.print(_claims_table(finished))
    _print_failures(console, finished.failures)
    if finished.left_out:
        console.print(f"left out: {', '.join(finished.left_out)}")
    console.print(f"{count_text(finished.runs, 'run')}, {finished.ran} of them now, code {finished.code}")
    console.print(f"report: {page}", soft_wrap=True)


def _claims_table(finished: "StudyResults") -> Table:
    """One line per claim; the report has the parts of each claim."""
    table = Table("claim", "paper", "ours", "verdict", title=f"Claims, size {finished.size.name}")
    colours = {"met": "green", "not met": "red", "contradicted": "magenta", "doubtful": "yellow", "not run": "dim"}
    for result in finished.claims:
        first, *others = result.parts
        by = "x or /" if result.claim.rel == "factor" else "±"
        paper = f"{result.claim.rel.replace('factor', '=')} {first.part.value:g} {by} {result.claim.tol:g}"
        ours = _estimate_text(first.ours)
        if others:
            gated = [judged for judged in result.parts if not judged.part.info]
            within = sum(judged.within is True for judged in gated)
            paper, ours = "several", f"{within} of {len(gated)} parts within"
        unsure = ", unsure" if result.is_sure is False else ""
        table.add_row(result.claim.id, paper, ours, f"[{colours[result.verdict]}]{result.verdict}{unsure}[/]")
    return table


def _estimate_text(ours: "Estimate | None") -> str:
    if ours is None:
        return "–"
    return f"{ours.mean:.4f}" + (f" ± {ours.half:.4f}" if ours.half is not None else "")


def _print_failures(console: Console, failures: list[dict[str, Any]]) -> None:
    for failure in failures:
        console.print(f"[red]failed[/] {failure['strategy']}, seed {failure['seed']}: {failure['error']}")
