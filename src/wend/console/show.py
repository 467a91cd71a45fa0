"""How figures look on a terminal: the same words, widths and colours in every command."""

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import typer
from rich.console import Console
from rich.table import Table

STOPPED = 130
"""The exit code of a command that was interrupted."""
COLOURS = {
    "oracle": "bright_black",
    "adaptive": "green",
    "dcrd": "cyan",
    "multipath": "magenta",
    "d-tree": "yellow",
    "r-tree": "red",
}


def output() -> Console:
    return Console(highlight=False)


def messages() -> Console:
    return Console(highlight=False, stderr=True)


def remark(sentences: Iterable[str]) -> None:
    """On stderr: what a person would want to know, and no mistake."""
    for sentence in sentences:
        print(f"wend: {sentence}", file=sys.stderr)


@contextmanager
def stoppable(left: str) -> Iterator[None]:
    """Ctrl-C ends the command with a sentence about what is left of its work."""
    try:
        yield
    except KeyboardInterrupt:
        print(f"wend: stopped; {left}", file=sys.stderr)
        raise typer.Exit(STOPPED) from None


@contextmanager
def compiling() -> Iterator[None]:
    """Says once that machine code is being made, and only if it is: the first run is slow, and looks like a hang.

    It imports numba, so it is for commands that need it anyway.
    """
    from numba.core import event

    class Once(event.Listener):
        said = False

        def on_start(self, event: object) -> None:
            if not self.said:
                print(
                    "wend: compiling a part that was not needed before; it may take a minute, and is kept",
                    file=sys.stderr,
                )
                self.said = True

        def on_end(self, event: object) -> None:
            pass

    with event.install_listener("numba:compile", Once()):
        yield


def percent(ratio: float | None) -> str:
    """Two digits where they differ from everybody else's, and never a rounded-up 100 %; "-" for a share of nothing."""
    if ratio is None:
        return "-"
    if 0.9999 <= ratio < 1.0:
        return "99.99 %"
    return f"{100 * ratio:.2f} %"


def milliseconds(ms: float | None, digits: int) -> str:
    return "-" if ms is None else f"{ms:.{digits}f} ms"


def counted(count: int, one: str, more: str = "") -> str:
    """ "1 topology", "5 topologies"."""
    return f"{count} {one if count == 1 else more or one + 's'}"


def named(strategy: str) -> str:
    return f"[{COLOURS.get(strategy, 'white')}]{strategy}[/]"


def facts(title: str, rows: list[tuple[str, str, str]]) -> Table:
    """Name, value and remark, aligned."""
    table = Table(title=title, title_justify="left", title_style="bold", show_header=False, box=None, pad_edge=False)
    table.add_column(style="bright_black")
    table.add_column(justify="right")
    table.add_column(style="bright_black")
    for row in rows:
        table.add_row(*row)
    return table
