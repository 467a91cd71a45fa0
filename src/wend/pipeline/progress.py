"""How far a job is, seen from the files that its tasks leave: the same locally, on a cluster, over Connect.

A sweep leaves a file for each run, any other job a mark for each task with the rows that it has done. Runs differ in
length by two orders of magnitude and the slow ones come first, so a sweep's bar moves by estimated work and not by
runs; otherwise the time left would be off by a factor for the first half.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

_LOOK_EVERY_S = 0.5
READ, DONE = "read", "done"
"""What a task may mark: filters that it has read, rows that it has done with."""


@contextmanager
def watching(
    finished: Callable[[], set[str]], weights: dict[str, float], *, total: int, quiet: bool = False
) -> Iterator[None]:
    """Show a bar while the body runs. `weights` has the work of each run that is still to do."""
    columns = (
        TextColumn("{task.fields[done]} of {task.fields[runs]} runs"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    before = total - len(weights)
    with Progress(*columns, console=Console(stderr=True), disable=quiet) as bar:
        task = bar.add_task("", total=sum(weights.values()), done=before, runs=total)

        def look() -> None:
            done = finished() & weights.keys()
            bar.update(task, completed=sum(weights[key] for key in done), done=before + len(done))

        with _looking(look):
            yield


def mark(folder: str, rows: int, what: str = DONE) -> None:
    """Called by a task: how many rows it has come to. A task that is tried again begins anew."""
    from pyspark import TaskContext

    task = TaskContext.get()
    if task is not None:
        Path(folder, f"{what}-{task.partitionId()}").write_text(str(rows))


def marked(folder: Path, what: str = DONE) -> int:
    """How many rows all tasks have come to."""
    # A mark that is just being written is empty.
    return sum(int(file.read_text() or 0) for file in folder.glob(f"{what}-*"))


@contextmanager
def counting(done: Callable[[], int], what: str, *, total: int, quiet: bool = False) -> Iterator[None]:
    """Show a bar of rows while the body runs."""
    columns = (
        TextColumn("{task.completed:,.0f} of {task.total:,.0f} {task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), disable=quiet) as bar:
        task = bar.add_task(what, total=total)
        with _looking(lambda: bar.update(task, completed=done())):
            yield


@contextmanager
def _looking(look: Callable[[], None]) -> Iterator[None]:
    over = Event()

    def keep_looking() -> None:
        while not over.wait(_LOOK_EVERY_S):
            look()

    watcher = Thread(target=keep_looking, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
        look()
