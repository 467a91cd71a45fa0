"""How far a sweep is, seen from the files that its tasks leave: the same locally, on a cluster, over Connect.

Runs differ in length by two orders of magnitude and the slow ones come first, so the bar moves by
estimated work and not by runs; otherwise the time left would be off by a factor for the first half.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

_LOOK_EVERY_S = 0.5


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
    over = Event()
    with Progress(*columns, console=Console(stderr=True), disable=quiet) as bar:
        task = bar.add_task("", total=sum(weights.values()), done=before, runs=total)

        def look() -> None:
            done = finished() & weights.keys()
            bar.update(task, completed=sum(weights[key] for key in done), done=before + len(done))

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
