"""The results of `wend data sweep`: a table that fits a terminal, the same means as a file, and the failed runs."""

import csv
import json
import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from wend.console.terminal import count_text, output_console
from wend.model.files import write_atomically
from wend.pipeline.scenario_rows import COLUMNS, FROM_OUTSIDE

if TYPE_CHECKING:
    from wend.pipeline.sweeps.sweep import SweepResult

SHOWN = {
    "delivery": "delivered",
    "on_time": "on time",
    "packets_shared": "packets",
    "packets_unicast": "unicast",
    "delay_p99_ms": "p99 ms",
}
"""The metrics of the table, with their headings."""
_SHARES = {"delivery", "on_time"}
_FRAME = re.compile(r'File "([^"]+)", line (\d+)')
Row = dict[str, Any]


class SettingMeans:
    """One row for each combination of settings: the columns that vary, and mean and interval of each metric by name.

    A setting of a plug-in from outside the tree is a column like any other, None if peers host another plug-in.
    """

    def __init__(self, settings: Iterable[Row], means: Iterable[Row]) -> None:
        parsed = [(row, json.loads(row[FROM_OUTSIDE] or "{}")) for row in settings]
        own = sorted({name for _, outside in parsed for name in outside})
        settings = [{**row, **dict.fromkeys(own), **outside} for row, outside in parsed]
        columns = [name for name in (*COLUMNS, *own) if name != "seed"]
        self.varied = [name for name in columns if len({repr(row[name]) for row in settings}) > 1]
        self.rows = sorted(settings, key=lambda row: [repr(row[name]) for name in self.varied])
        self._means = {(row["setting"], row["metric"]): row for row in means}

    def find_metric(self, row: Row, metric: str) -> Row | None:
        """`mean`, `half` of the 95 % interval (None with one seed) and `seeds`; None if no run has the metric."""
        return self._means.get((row["setting"], metric))

    def count_seeds(self, row: Row) -> int:
        return max((mean["seeds"] for name in SHOWN if (mean := self.find_metric(row, name))), default=0)


def write_means(means: SettingMeans, metrics: Iterable[str], place: Path) -> None:
    """Write means as CSV, with all digits; a field without a value is empty."""
    names = list(metrics)
    with write_atomically(place) as draft, draft.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow([*means.varied, "seeds", *(column for name in names for column in (name, f"{name}_half"))])
        for row in means.rows:
            metrics_of_row = [means.find_metric(row, name) or {"mean": None, "half": None} for name in names]
            values = [each[what] for each in metrics_of_row for what in ("mean", "half")]
            table.writerow([*(row[name] for name in means.varied), means.count_seeds(row), *values])


def print_results(swept: "SweepResult", means: SettingMeans, place: Path, own: Iterable[str], as_json: bool) -> None:
    """Print the results of a sweep. `own` are the files of plug-ins from outside the tree."""
    if as_json:
        objects = []
        for row in means.rows:
            shown = {name: means.find_metric(row, name) for name in SHOWN}
            values = {name: each and {"mean": each["mean"], "half": each["half"]} for name, each in shown.items()}
            objects.append({**{name: row[name] for name in means.varied}, "seeds": means.count_seeds(row), **values})
        about = {"runs": swept.runs, "ran": swept.ran, "code": swept.store.code, "out": str(swept.store.folder)}
        print(json.dumps({**about, "means": str(place), "failures": swept.failures, "settings": objects}))
        return
    console = output_console()
    console.print(make_means_table(means))
    for sentence in failure_sentences(swept.failures, own):
        console.print(f"[red]failed[/] {escape(sentence)}", soft_wrap=True)
    bad = f", {len(swept.failures)} of them failed" if swept.failures else ""
    console.print(
        f"{count_text(swept.runs, 'run')}, {swept.ran} of them now{bad}: {swept.store.folder}", soft_wrap=True
    )
    console.print(f"means: {place}", soft_wrap=True)


def make_means_table(means: SettingMeans) -> Table:
    """Make a table with the mean above the interval, so that five metrics fit side by side in 80 columns."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for name in means.varied:
        table.add_column(name, overflow="fold")
    for heading in ("seeds", *SHOWN.values()):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in means.rows:
        cells = [_metric_text(means.find_metric(row, name), name in _SHARES) for name in SHOWN]
        table.add_row(*(_setting_text(row[name]) for name in means.varied), str(means.count_seeds(row)), *cells)
    return table


def _setting_text(value: object) -> str:
    return "–" if value is None else escape(str(value))


def _metric_text(metric: Row | None, share: bool) -> str:
    if metric is None:
        return "–"
    mean, half = metric["mean"], metric["half"]
    shown = _share_text(mean) if share else number_text(mean)
    if half is None:
        return shown
    low, high = mean - half, mean + half
    if share and not 0 <= low <= high <= 1:
        # With few seeds the interval may leave 0 to 1: show the ends of what remains.
        return f"{shown}\n{_share_text(max(low, 0.0))}–{_share_text(min(high, 1.0))}"
    return f"{shown}\n± {number_text(half)}"


def _share_text(value: float) -> str:
    """A share below 1 is never rounded up to 1."""
    if value in (0.0, 1.0):
        return f"{value:g}"
    return number_text(value) if value < 0.9995 else f"{min(value, 0.9999):.4f}"


def number_text(value: float) -> str:
    """Three significant digits, without an exponent if none is needed."""
    if value == 0 or not 1e-4 <= abs(value) < 1e7:
        return f"{value:.3g}"
    return f"{value:.{max(0, 2 - math.floor(math.log10(abs(float(f'{value:.3g}')))))}f}"


def failure_sentences(failures: Iterable[Mapping[str, Any]], own: Iterable[str]) -> list[str]:
    """One sentence for all seeds with the same error. It has the last line of the user's own files."""
    names = tuple(own)
    seeds: dict[tuple[str, str], list[int]] = {}
    for failure in failures:
        error = str(failure["error"])
        where = _own_line(str(failure["traceback"]), names)
        if where and where.split(",")[0] not in error:
            error = f"{where}: {error}"
        seeds.setdefault((str(failure["strategy"]), error), []).append(failure["seed"])
    return [
        f"{strategy}, {'seed' if len(which) == 1 else 'seeds'} {', '.join(map(str, sorted(which)))}: {error}"
        for (strategy, error), which in sorted(seeds.items())
    ]


def _own_line(traceback: str, own: tuple[str, ...]) -> str:
    """The last line of these files in a traceback. A worker has its copies elsewhere: only the ends of paths count."""
    for path, line in reversed(_FRAME.findall(traceback)):
        for name in own:
            if path == name or path.endswith(f"/{name}"):
                return f"{name}, line {line}"
    return ""
