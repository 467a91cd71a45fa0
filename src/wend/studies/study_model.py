"""The data model of a study: figures, panels, series, axes and tables.

The figures, tables and claims of a study decide which runs it needs. Nothing here executes a run. A run is a simulated
scenario or a trial (`wend.pipeline.sweeps.trials`). A point of a figure is a *setting* (a run without its seed), so
figures that share a setting share its runs.
"""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from wend.drivers.scenarios import Scenario, make_scenario
from wend.model.errors import ConfigError
from wend.pipeline.scenario_rows import setting_key
from wend.pipeline.sweeps.trials import Trial, Trials

Fields = dict[str, Any]
Run = Scenario | Trial


class Size(msgspec.Struct, frozen=True, kw_only=True):
    """The size of a study: the simulated seconds, and the number of topologies, each with its own seed."""

    name: str
    seeds: int
    duration_s: float = 0.0
    """Simulated seconds; 0 for trials."""
    trials: Trials | None = None
    """The kinds of trials, if the runs are not simulations."""
    fixed: Fields = {}
    """Fields of every run at this size."""
    by_kind: dict[str, Fields] = {}
    """Fields of every trial of a kind at this size."""
    seeds_by_kind: dict[str, int] = {}
    """The number of topologies for kinds of trials that have more or fewer."""
    thin: bool = False
    """Whether axes are reduced to their `thin` values, for a smoke run."""
    coarse: bool = False
    """Whether figures run no more than the `coarse` values of their axes. They still show others that claims run."""
    leaves_out: frozenset[str] = frozenset()
    """Kinds of trials that are not run at this size, with the figures that show them."""
    shows_only: frozenset[str] = frozenset()
    """Names of figures that run nothing of their own at this size. They show what claims run."""

    def with_seeds(self, seeds: int) -> "Size":
        """The same size with so many topologies."""
        if seeds < 1:
            raise ConfigError(f"a study needs at least one seed, got {seeds}")
        return msgspec.structs.replace(self, seeds=seeds, seeds_by_kind={})

    def make_runs(self, fields: Fields) -> list[Run]:
        """The runs of one setting. A seed gives the same topology for every strategy."""
        seeds = self.seeds_by_kind.get(fields.get("kind", ""), self.seeds)
        return [self._make_run(fields, seed) for seed in range(1, seeds + 1)]

    def setting_key(self, fields: Fields) -> str:
        run = self._make_run(fields, 0)
        if isinstance(run, Scenario):
            return setting_key(run)
        assert self.trials is not None
        return self.trials.setting(run)

    def _make_run(self, fields: Fields, seed: int) -> Run:
        if self.trials is not None:
            own = self.by_kind.get(fields.get("kind", ""), {})
            return self.trials.trial({**fields, **self.fixed, **own}, seed)
        return make_scenario({**fields, **self.fixed, "duration": f"{self.duration_s}s", "seed": seed})

    @property
    def length(self) -> str:
        """The length of a run, for the text before "x 5 topologies"."""
        return f"{self.duration_s:g} simulated seconds" if self.duration_s else ""


class Series(msgspec.Struct, frozen=True):
    """One line of a panel. A variant of a strategy has its colour and marker, and a broken line."""

    label: str
    fields: Fields
    metric: str = ""
    """Overrides the metric of the panel, if lines are different metrics of the same runs."""
    colour: str = ""
    """The name of a colour of `wend.pictures.palette`. It overrides the colour of the strategy, if several lines have
    one strategy."""
    variant: bool = False

    @property
    def strategy(self) -> str:
        return str(self.fields["strategy"])


def make_metric_series(fields: Fields, *lines: tuple[str, str, str]) -> tuple[Series, ...]:
    """Several metrics of the same runs, each with a label and a colour."""
    return tuple(Series(label, fields, metric, colour) for label, metric, colour in lines)


class Axis(msgspec.Struct, frozen=True):
    """The field of the run that a figure varies."""

    field: str
    values: tuple[float, ...]
    thin: tuple[float, ...]
    label: str
    log: bool = False
    coarse: tuple[float, ...] = ()
    """The values that a figure runs at a coarse size; empty if it runs all."""
    table: Callable[[float], Any] | None = None
    """Makes the value of a field that is a table, from the number that the axis shows."""

    def shown_values(self, size: Size) -> tuple[float, ...]:
        """The values that a figure shows at a size, if they were run."""
        return self.thin if size.thin else self.values

    def run_values(self, size: Size) -> tuple[float, ...]:
        """The values that a figure runs at a size."""
        return self.coarse if size.coarse and self.coarse and not size.thin else self.shown_values(size)

    def fields(self, x: float) -> Fields:
        """The field that the axis sets at x."""
        return {self.field: x if self.table is None else self.table(x)}


Curve = tuple[tuple[float, str | None], ...]
"""(x, metric) pairs of the same setting. Without a metric the value is 0."""


class Panel(msgspec.Struct, frozen=True):
    """One pair of axes: one metric along the axis of the figure, or a curve of several metrics."""

    title: str
    label: str
    metric: str = ""
    series: tuple[Series, ...] | None = None
    """Overrides the series of the figure."""
    at: Fields = {}
    percent: bool = True
    share: bool = True
    """Whether the value is a share, which cannot exceed 100 %."""
    signed: bool = False
    """Whether the value can be negative."""
    curve: Curve = ()
    curve_label: str = ""
    curve_log: bool = False


Places = tuple[tuple[str, Fields], ...]
"""Settings, each with its name."""


def make_panels(
    places: Places,
    title: str,
    label: str,
    metric: str,
    *,
    percent: bool = True,
    series: tuple[Series, ...] | None = None,
) -> tuple[Panel, ...]:
    """A panel of one metric for each place, whose name is filled into the title."""
    return tuple(Panel(title.format(name), label, metric, series, at, percent) for name, at in places)


class Point(msgspec.Struct, frozen=True):
    x: float
    metric: str | None
    fields: Fields


class Figure(msgspec.Struct, frozen=True):
    name: str
    title: str
    caption: str
    base: Fields
    panels: tuple[Panel, ...]
    series: tuple[Series, ...] = ()
    axis: Axis | None = None

    def points_by_series(self, panel: Panel, size: Size) -> Iterator[tuple[Series, list[Point]]]:
        """The series of a panel with their points, in the order of the axis."""
        for series in self.panel_series(panel):
            yield series, list(self._series_points(panel, series, size))

    def panel_series(self, panel: Panel) -> tuple[Series, ...]:
        return self.series if panel.series is None else panel.series

    def _series_points(self, panel: Panel, series: Series, size: Size) -> Iterator[Point]:
        fixed = {**self.base, **panel.at, **series.fields}
        for x, metric in panel.curve:
            yield Point(x, metric, fixed)
        if self.axis is not None:
            for x in self.axis.shown_values(size):
                yield Point(x, series.metric or panel.metric, {**fixed, **self.axis.fields(x)})

    def settings(self, size: Size) -> Iterator[Fields]:
        """The settings that the figure needs to run at a size."""
        if self.name in size.shows_only:
            return
        run = None if self.axis is None else self.axis.run_values(size)
        for panel in self.panels:
            for _, points in self.points_by_series(panel, size):
                yield from (point.fields for point in points if run is None or panel.curve or point.x in run)

    def restrict(self, strategies: frozenset[str]) -> "Figure":
        """The same figure with only the series of these strategies."""
        panels = tuple(
            msgspec.structs.replace(
                panel, series=tuple(one for one in self.panel_series(panel) if one.strategy in strategies)
            )
            for panel in self.panels
        )
        return msgspec.structs.replace(self, panels=panels)


class ComparisonTable(msgspec.Struct, frozen=True, kw_only=True):
    """A table of one metric of every series at chosen settings; beside it another metric, relative to one series."""

    title: str
    text: str
    rows: Places
    series: tuple[Series, ...]
    metric: str
    price: str
    reference: str
    """The label of the series that `price` is divided by."""


class MetricRow(msgspec.Struct, frozen=True):
    """One metric in every column of a table, with the values that the paper states."""

    label: str
    metric: str
    paper: dict[str, float] = {}
    """The values of the paper, by the label of the column."""
    percent: bool = False
    digits: int = 2


class MetricTable(msgspec.Struct, frozen=True):
    """A table of several metrics. Each column is a setting, or each row."""

    name: str
    title: str
    text: str
    columns: Places
    rows: tuple[MetricRow, ...]
    settings_are_rows: bool = False


class Study(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    title: str
    paper: str
    sizes: tuple[Size, ...]
    figures: tuple[Figure, ...]
    comparison: ComparisonTable | None = None
    tables: tuple[MetricTable, ...] = ()
    remarks: tuple[str, ...] = ()
    """Explanations for the reader, a paragraph each."""
    other_shares: frozenset[str] = frozenset()
    """Metrics that are shares by figures that were not selected."""

    def figures_at(self, size: Size) -> tuple["Figure", ...]:
        """The figures that a size runs."""
        return tuple(figure for figure in self.figures if figure.base.get("kind") not in size.leaves_out)

    def find_size(self, name: str) -> Size:
        return next(size for size in self.sizes if size.name == name)

    def strategies(self) -> frozenset[str]:
        shown = {
            each.strategy for figure in self.figures for panel in figure.panels for each in figure.panel_series(panel)
        }
        return frozenset(shown | {str(fields["strategy"]) for table in self.tables for _, fields in table.columns})

    def shares(self) -> frozenset[str]:
        """The metrics that are shares, between 0 and 1, by the panels that show them."""
        metrics = set()
        for figure in self.figures:
            for panel in (one for one in figure.panels if one.percent and one.share):
                lines = figure.panel_series(panel)
                metrics |= {panel.metric, *(metric or "" for _, metric in panel.curve), *(one.metric for one in lines)}
        return frozenset(metrics - {""}) | self.other_shares

    def without_figures(self) -> "Study":
        """The same study without figures and tables, for its claims alone. The comparison shows what they ran."""
        return msgspec.structs.replace(self, figures=(), tables=(), other_shares=self.shares())

    def select(self, figures: list[str], strategies: frozenset[str]) -> "Study":
        """Select figures and tables (all if none is named) and strategies of the study."""
        names = [*(figure.name for figure in self.figures), *(table.name for table in self.tables)]
        for name in figures:
            if name not in names:
                raise ConfigError(f"the study {self.name} has no figure {name!r}; it has {', '.join(names)}")
        chosen = [figure.restrict(strategies) for figure in self.figures if not figures or figure.name in figures]
        tables = [
            msgspec.structs.replace(table, columns=columns)
            for table in self.tables
            if not figures or table.name in figures
            if (columns := tuple(column for column in table.columns if column[1]["strategy"] in strategies))
        ]
        return msgspec.structs.replace(self, figures=tuple(chosen), tables=tuple(tables), other_shares=self.shares())
