"""Progress bars of jobs, from files that tasks write. They work locally, on a cluster and over Connect.

A sweep writes a file for each run. Every other job writes a file for each task, with the number of rows that the task
has processed. Runs differ in length by two orders of magnitude, and the slow ones start first. So the bar of a sweep
moves by estimated work: counting runs would overestimate the time left by a large factor during the first half.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread

from pyspark import TaskContext
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

_POLL_S = 0.5
READ, DONE = "read", "done"
"""The two counts of a task: filters parsed, and rows processed."""


@contextmanager
def run_progress(
    finished: Callable[[], set[str]], weights: dict[str, float], *, total: int, quiet: bool = False
) -> Iterator[None]:
    """Show a bar of runs while the body runs. `weights` has the estimated work of each run that is not finished."""
    before = total - len(weights)
    with _make_bar("{task.fields[done]} of {task.fields[runs]} runs", quiet) as bar:
        task = bar.add_task("", total=sum(weights.values()), done=before, runs=total)

        def look() -> None:
            done = finished() & weights.keys()
            bar.update(task, completed=sum(weights[key] for key in done), done=before + len(done))

        with _poll_progress(look):
            yield


def report_rows(folder: str | None, rows: int, what: str = DONE) -> None:
    """Record how many rows this task has processed. A retried task starts again from 0. A worker that does not share
    the folder records nothing, and the bar shows fewer rows."""
    task = TaskContext.get()
    if task is not None and folder is not None:
        with suppress(OSError):
            Path(folder, f"{what}-{task.partitionId()}").write_text(str(rows))


def sum_reported_rows(folder: Path | None, what: str = DONE) -> int:
    """Sum the rows that all tasks have recorded."""
    if folder is None:
        return 0
    # A file that is just being written is empty.
    return sum(int(file.read_text() or 0) for file in folder.glob(f"{what}-*"))


@contextmanager
def row_progress(done: Callable[[], int], what: str, *, total: int, quiet: bool = False) -> Iterator[None]:
    """Show a bar of rows while the body runs."""
    with _make_bar("{task.completed:,.0f} of {task.total:,.0f} {task.description}", quiet) as bar:
        task = bar.add_task(what, total=total)
        with _poll_progress(lambda: bar.update(task, completed=done())):
            yield


def _make_bar(text: str, quiet: bool) -> Progress:
    columns = (TextColumn(text), BarColumn(), TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True), disable=quiet)


@contextmanager
def _poll_progress(look: Callable[[], None]) -> Iterator[None]:
    over = Event()

    def keep_looking() -> None:
        while not over.wait(_POLL_S):
            look()

    thread = Thread(target=keep_looking, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        look()
