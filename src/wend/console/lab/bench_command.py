"""`wend lab bench`: measures Wend and other systems on one emulated network with the same failures.

The command can be interrupted at any time, and resumes when called again. The report uses the finished cells.
"""

import asyncio
import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from wend.console.options import Json, default_help, split_names
from wend.console.outputs import check_page, check_resumable
from wend.console.terminal import column_table, message_console, output_console
from wend.model.errors import ConfigError
from wend.model.units import SECOND, parse_duration

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from wend.lab.bench.cell import Cell, CellSettings
    from wend.lab.bench.matrix import Matrix

DEFAULT_OUT = Path("out/bench")
DEFAULT_PFS = "0,0.02,0.06,0.1"
"""The default of `wend.lab.bench.matrix`, repeated here because --help does not import that module."""


def bench(
    quick: Annotated[bool, typer.Option("--quick", help="Measure one topology, Pf 0.06 and short windows.")] = False,
    systems: Annotated[
        str | None, typer.Option(help="The systems to measure, separated by commas. By default, all.")
    ] = None,
    pf: Annotated[
        str | None,
        typer.Option(help="Probabilities that a link is down, separated by commas." + default_help(DEFAULT_PFS)),
    ] = None,
    rate: Annotated[float, typer.Option(help="Events per second and topic.")] = 1.0,
    size_bytes: Annotated[int, typer.Option(help="Bytes of each event.")] = 64,
    topologies: Annotated[str, typer.Option(help="Seeds of topologies and workloads, separated by commas.")] = "1,2,3",
    failures: Annotated[
        str, typer.Option(help="Numbers of the failure schedules of each topology, separated by commas.")
    ] = "1,2",
    duration: Annotated[
        str | None, typer.Option(help="Length of a window." + default_help("60s; shorter with --quick"))
    ] = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for finished cells.")] = DEFAULT_OUT,
    docs: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the report to this file.")] = None,
    figures: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder for the figures of the report." + default_help("figures, beside it")),
    ] = None,
    report_only: Annotated[
        bool, typer.Option("--report-only", help="Report finished cells without measuring.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Measure Wend and other systems side by side on a lab."""
    from wend.lab.bench.comparison_page import list_setups, summarize_cells, write_page
    from wend.lab.bench.matrix import CellStore, Matrix, parse_systems

    matrix = Matrix(
        systems=parse_systems(systems),
        topologies=_parse_numbers(topologies, int, "--topologies"),
        failures=_parse_numbers(failures, int, "--failures"),
        rate_hz=rate,
        size_bytes=size_bytes,
    )
    matrix = _resize_matrix(matrix, quick, pf, duration)
    if docs is not None:
        check_page(docs, figures)
    if not report_only:
        check_resumable(out, "cells")
    store = CellStore(out)
    failed = 0 if report_only else _measure(matrix, store, message_console())
    cells = store.load_cells()
    if not report_only:
        keys = {settings.key() for settings in matrix.cells()}
        cells = [cell for cell in cells if cell.settings.key() in keys]
    if docs is not None:
        for path in write_page(cells, docs, figures):
            message_console().print(f"wrote {path}")
    if as_json:
        print(json.dumps({_setup_text(s): msgspec.to_builtins(summarize_cells(cells, s)) for s in list_setups(cells)}))
    else:
        for setup in list_setups(cells):
            for table in _make_tables(_setup_text(setup), summarize_cells(cells, setup)):
                output_console().print(table)
    if failed:
        raise ConfigError(f"{failed} cells could not be measured; run the same command to try them again")


def _resize_matrix(matrix: "Matrix", quick: bool, pf: str | None, duration: str | None) -> "Matrix":
    """The matrix with the options that change its size."""
    from wend.lab.bench.matrix import shorten_matrix as shortened

    if quick:
        matrix = msgspec.structs.replace(shortened(matrix), pfs=(0.06,))
    if pf is not None:
        matrix = msgspec.structs.replace(matrix, pfs=_parse_numbers(pf, float, "--pf"))
    if duration is not None:
        matrix = msgspec.structs.replace(matrix, duration_s=parse_duration(duration) / SECOND)
    return matrix


def _parse_numbers(text: str, kind: Any, flag: str) -> tuple[Any, ...]:
    try:
        numbers = tuple(dict.fromkeys(map(kind, split_names(text))))
    except ValueError:
        raise ConfigError(f"{flag} is a list of numbers, separated by commas, not {text!r}") from None
    if not numbers:
        raise ConfigError(f"{flag} needs at least one number")
    return numbers


def _setup_text(setup: tuple[float, int]) -> str:
    return f"{setup[0]:g} events/s per topic, {setup[1]} bytes"


# ---------------------------------------------------------------- measuring


def _measure(matrix: "Matrix", store: Any, console: "Console") -> int:
    import uvloop

    from wend.lab.bench.matrix import find_absent_systems, measure_missing

    absent = find_absent_systems(matrix.systems)
    for name, why in absent.items():
        console.print(f"skipping {name}: {why}")
    cells = [settings for settings in matrix.cells() if settings.system not in absent]
    todo = [settings for settings in cells if not store.has(settings)]
    if len(todo) < len(cells):
        console.print(f"{len(cells) - len(todo)} of {len(cells)} cells are already finished")

    async def until_done(observer: _Progress) -> int:
        # On SIGTERM, remove the lab first, as with Ctrl-C.
        running = asyncio.ensure_future(measure_missing(todo, store, observer))
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, running.cancel)
        return await running

    with _progress(console, len(todo)) as observer:
        try:
            return uvloop.run(until_done(observer))
        except (asyncio.CancelledError, KeyboardInterrupt) as ended:
            console.print("stopped; finished cells are stored, run the same command to go on")
            received = signal.SIGINT if isinstance(ended, KeyboardInterrupt) else signal.SIGTERM
            raise typer.Exit(128 + received) from None


class _Progress:
    """Prints a line per finished cell and, on a terminal, a progress bar."""

    def __init__(self, console: "Console", total: int, progress: Any) -> None:
        self._console = console
        self._progress = progress
        self._task = progress.add_task("", total=total)
        self._name = ""

    def on_begin(self, settings: "CellSettings") -> None:
        self._name = f"{settings.system}, Pf {settings.pf:g}, topology {settings.topology_seed}"

    def on_progress(self, text: str) -> None:
        self._progress.update(self._task, description=f"{self._name}: {text}")
        if text.startswith("discarded"):
            self._console.print(f"{self._name}: {text}")

    def on_end(self, cell: "Cell") -> None:
        f = cell.metrics
        self._console.print(
            f"{self._name}: on time {f.on_time_ratio:.4f}, delivered {f.delivery_ratio:.4f}, "
            f"data {cell.traffic.data / max(1, f.expected):.2f}, oracle {cell.oracle.on_time_ratio:.4f}, "
            f"canary {cell.canary.on_time_ratio:.4f}"
        )
        self._progress.advance(self._task)

    def on_failure(self, settings: "CellSettings", why: str) -> None:
        self._console.print(f"{self._name}: not measured, {why}")
        self._progress.advance(self._task)


@contextmanager
def _progress(console: "Console", total: int) -> Iterator[_Progress]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        yield _Progress(console, total, progress)


def _make_tables(setup: str, summaries: list[Any]) -> "Iterator[RenderableType]":
    """One table per Pf, narrow enough for a terminal with 80 columns."""
    from wend.lab.bench.comparison_page import HEAD, format_row

    left_out = {"Pf", "worlds", "±", "control", "p50"}
    heads = [name for name in HEAD if name not in left_out]
    for pf in sorted({row.pf for row in summaries}):
        table = column_table(*heads, left=("system",), title=f"Pf {pf:g}, {setup}")
        for row in summaries:
            if row.pf == pf:
                cells = [cell for name, cell in zip(HEAD, format_row(row), strict=True) if name not in left_out]
                table.add_row(*cells, style="green" if row.system.startswith("wend") else None)
        yield table
