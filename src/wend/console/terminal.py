"""Output on a terminal: consoles, colours and number formats that all commands share."""

import signal
import sys
import threading
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:  # rich takes longer to import than a peer to start
    from rich.console import Console
    from rich.table import Table

STOPPED = 130
"""The exit code of an interrupted command."""
TERMINATED = 143
"""The exit code of a command that SIGTERM has ended."""
EXIT_CODES = (
    "Exit codes: 0 success; 1 some runs failed; 2 invalid input; 70 a mistake in Wend; 75 a part of Spark was lost, "
    "try again; 130 and 143 interrupted."
)
COLOURS = {
    "oracle": "bright_black",
    "adaptive": "green",
    "dcrd": "cyan",
    "multipath": "magenta",
    "d-tree": "yellow",
    "r-tree": "red",
}


def output_console() -> "Console":
    from rich.console import Console

    return Console(highlight=False)


def message_console() -> "Console":
    from rich.console import Console

    return Console(highlight=False, stderr=True)


def print_remarks(sentences: Iterable[str]) -> None:
    """Print remarks on stderr; they are not errors."""
    for sentence in sentences:
        print(f"wend: {sentence}", file=sys.stderr)


def warn_about_filters(filters: Iterable[str], where: str = "") -> None:
    """Print a warning on stderr for each filter that is probably not what its author means."""
    from wend.matching.filter_warnings import filter_warnings
    from wend.model.errors import FilterError

    for text in filters:
        with suppress(FilterError):  # the peer judges it, and shows where the error is
            print_remarks(f"warning: {where}{sentence}" for sentence in filter_warnings(text))


class Terminated(KeyboardInterrupt):
    """SIGTERM has arrived."""


@contextmanager
def stop_on_signals(left: str) -> Iterator[None]:
    """On Ctrl-C or SIGTERM, end the command with a sentence about the results so far; nothing half-written stays."""
    before = None
    if threading.current_thread() is threading.main_thread():
        before = signal.signal(signal.SIGTERM, _raise_terminated)
    try:
        yield
    except Terminated:
        print(f"wend: terminated; {left}", file=sys.stderr)
        raise typer.Exit(TERMINATED) from None
    except KeyboardInterrupt:
        print(f"wend: stopped; {left}", file=sys.stderr)
        raise typer.Exit(STOPPED) from None
    finally:
        if before is not None:
            signal.signal(signal.SIGTERM, before)


def _raise_terminated(*_: object) -> None:
    # A second signal must not interrupt the cleaning up.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise Terminated


@contextmanager
def announce_compilation() -> Iterator[None]:
    """Print one message if numba compiles code: the first run is slow.

    This imports numba, so use it only in commands that need numba.
    """
    from numba.core import event

    class Once(event.Listener):
        said = False

        def on_start(self, event: object) -> None:
            if not self.said:
                print("wend: compiling code for its first use; this may take a minute", file=sys.stderr)
                self.said = True

        def on_end(self, event: object) -> None:
            pass

    with event.install_listener("numba:compile", Once()):
        yield


def percent_text(ratio: float | None) -> str:
    """A share with two digits. It never rounds up to 100 %; None becomes "-"."""
    if ratio is None:
        return "-"
    if 0.9999 <= ratio < 1.0:
        return "99.99 %"
    return f"{100 * ratio:.2f} %"


def milliseconds_text(ms: float | None, digits: int) -> str:
    return "-" if ms is None else f"{ms:.{digits}f} ms"


def count_text(count: int, one: str, more: str = "") -> str:
    """A number with its noun: `1 topology`, `5 topologies`."""
    return f"{count} {one if count == 1 else more or one + 's'}"


def colour_strategy(strategy: str) -> str:
    return f"[{COLOURS.get(strategy, 'white')}]{strategy}[/]"


def align_columns(rows: Sequence[Sequence[str]], right: Container[int] = ()) -> list[str]:
    """Rows of cells as lines with columns of equal width; those in `right` are aligned to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    signs = [">" if column in right else "<" for column in range(len(widths))]
    return [
        "  ".join(f"{cell:{sign}{width}}" for cell, sign, width in zip(row, signs, widths, strict=True)).rstrip()
        for row in rows
    ]


def quarantine_row(rows: int, out: str) -> list[tuple[str, str, str]]:
    """The row about bad rows in a table of facts, if there are any."""
    return [("quarantined", f"{rows:,}", f"rows that could not be used: {out}/_quarantine")] if rows else []


def column_table(
    *heads: str, left: Container[str] = (), wrapped: Container[str] = (), title: str | None = None
) -> "Table":
    """An empty table. Its columns are aligned to the right, except those in `left`. Those in `wrapped` may have several
    lines on a narrow terminal."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(title=title, title_justify="left", header_style="bold", box=SIMPLE_HEAD)
    table.padding, table.pad_edge, table.collapse_padding = (0, 1), False, True
    for head in heads:
        table.add_column(head, justify="left" if head in left else "right", no_wrap=head not in wrapped)
    return table


def facts_table(title: str, rows: list[tuple[str, str, str]]) -> "Table":
    """A table of names, values and remarks."""
    from rich.table import Table

    table = Table(title=title, title_justify="left", title_style="bold", show_header=False, box=None, pad_edge=False)
    table.add_column(style="bright_black")
    table.add_column(justify="right")
    table.add_column(style="bright_black")
    for row in rows:
        table.add_row(*row)
    return table
