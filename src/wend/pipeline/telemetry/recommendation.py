"""A recommendation from replays: which strategy and setting were on time most often, and what the others cost.

Strategies are compared pair by pair: the same window, the same times of publication. The best one is the one with the
most deliveries on time. Variants that are worse by at most a tenth of a point, or by what the caller allows, count as
equal. Of these, the one with the fewest data packets is recommended.

Runs at the recorded times of publication are also shown separately: they show how close a replay is to what happened.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import sqrt
from statistics import fmean
from typing import Any, NamedTuple

import msgspec

from wend.drivers.recorded import RECORDED
from wend.model.errors import ConfigError
from wend.pictures.charts import RankedRow, draw_ranked_dots
from wend.pictures.palette import STRATEGIES
from wend.pipeline.sweeps.seed_means import t_quantile

MAX_EQUAL_DIFFERENCE = 0.001
MIN_WINDOWS = 3
"""With fewer windows, intervals are over single runs."""
Unit = tuple[int, ...]
Weighted = tuple[float, float]
"""A value, and the expected deliveries behind it."""


class MeanInterval(msgspec.Struct, frozen=True):
    """A mean, with half of its 95 % interval; None if there is only one value."""

    mean: float
    half: float | None = None


class Variant(NamedTuple):
    strategy: str
    redundancy: str

    @property
    def name(self) -> str:
        return f"{self.strategy}, {self.redundancy}" if self.redundancy else self.strategy


class RankedVariant(msgspec.Struct, frozen=True):
    """One strategy with its setting, over all windows."""

    strategy: str
    redundancy: str
    windows: int
    runs: int
    on_time: MeanInterval
    delivery: MeanInterval
    packets: MeanInterval
    """Data packets for each delivery."""
    delay_p99_ms: float | None
    behind: MeanInterval
    """The share of deliveries by which the recommended variant is on time more often."""
    failed: int = 0
    """Runs without a result."""
    recorded: float | None = None
    """The share on time at the recorded times of publication, if they are known."""

    @property
    def variant(self) -> Variant:
        return Variant(self.strategy, self.redundancy)


class Recommendation(msgspec.Struct, frozen=True):
    """All variants, the recommended one first, then by their deliveries on time."""

    ranked: tuple[RankedVariant, ...]
    settings: dict[str, str]
    """Lines for a peer's file."""
    paragraph: str


def recommend(rows: Iterable[Mapping[str, Any]], equal: float = MAX_EQUAL_DIFFERENCE) -> Recommendation:
    """Judge rows of replays. `equal`: a smaller share of deliveries is no reason to send more packets. Raises
    `ConfigError` if no row has a result."""
    runs: dict[Variant, list[Mapping[str, Any]]] = defaultdict(list)
    failed: dict[Variant, int] = defaultdict(int)
    for row in rows:
        variant = Variant(row["strategy"], row["redundancy"])
        if row.get("error") is not None or row["on_time"] is None:
            failed[variant] += 1
        else:
            runs[variant].append(row)
    if not runs:
        raise ConfigError("no replay has a result, so nothing can be recommended")
    windows = {row["begin_ns"] for each in runs.values() for row in each}
    by_window = len(windows) >= MIN_WINDOWS
    on_time = {variant: _values_by_unit(each, "on_time", by_window) for variant, each in runs.items()}
    means = {variant: _metric_mean(each, "on_time") for variant, each in runs.items()}
    least = max(means.values()) - equal
    alike = [variant for variant in runs if means[variant] >= least]
    first = min(alike, key=lambda variant: (_metric_mean(runs[variant], "packets"), variant.name))
    order = sorted(runs, key=lambda variant: (variant != first, -means[variant], variant))
    ranked = tuple(
        RankedVariant(
            variant.strategy,
            variant.redundancy,
            windows=len({row["begin_ns"] for row in runs[variant]}),
            runs=len(runs[variant]),
            on_time=MeanInterval(means[variant], _half_interval(list(on_time[variant].values()))),
            delivery=_metric_interval(runs[variant], "delivery", by_window),
            packets=_metric_interval(runs[variant], "packets", by_window),
            delay_p99_ms=_mean_known(row["delay_p99_ms"] for row in runs[variant]),
            behind=_mean_difference(on_time[first], on_time[variant]),
            failed=failed[variant],
            recorded=_on_time_as_recorded(runs[variant]),
        )
        for variant in order
    )
    return Recommendation(ranked, _peer_settings(first), recommendation_text(ranked))


def _values_by_unit(rows: Iterable[Mapping[str, Any]], metric: str, by_window: bool) -> dict[Unit, Weighted]:
    """The values behind an interval: windows, as means over their seeds, or single runs."""
    by_unit: dict[Unit, list[Weighted]] = defaultdict(list)
    for row in rows:
        if row[metric] is not None:
            unit = (row["begin_ns"],) if by_window else (row["begin_ns"], row["seed"])
            by_unit[unit].append((row[metric], row["expected"] or 0.0))
    return {unit: (_weighted_mean(values), sum(weight for _, weight in values)) for unit, values in by_unit.items()}


def _metric_mean(rows: Sequence[Mapping[str, Any]], metric: str) -> float:
    """The mean over all expected deliveries: a long window counts for more."""
    return _weighted_mean([(row[metric], row["expected"] or 0.0) for row in rows if row[metric] is not None])


def _weighted_mean(values: Sequence[Weighted]) -> float:
    total = sum(weight for _, weight in values)
    return sum(value * weight for value, weight in values) / total if total else 0.0


def _on_time_as_recorded(rows: Sequence[Mapping[str, Any]]) -> float | None:
    as_recorded = [row for row in rows if row.get("times") == RECORDED]
    return _metric_mean(as_recorded, "on_time") if as_recorded else None


def _mean_known(values: Iterable[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return fmean(numbers) if numbers else None


def _half_interval(values: Sequence[Weighted]) -> float | None:
    """Half of the 95 % interval of a weighted mean. With equal weights it is that of a plain mean."""
    many, total = len(values), sum(weight for _, weight in values)
    if many < 2 or not total:
        return None
    mean = _weighted_mean(values)
    spread = sqrt(many / (many - 1) * sum((weight / total * (value - mean)) ** 2 for value, weight in values))
    return t_quantile(many) * spread


def _metric_interval(rows: Sequence[Mapping[str, Any]], metric: str, by_window: bool) -> MeanInterval:
    return MeanInterval(
        _metric_mean(rows, metric), _half_interval(list(_values_by_unit(rows, metric, by_window).values()))
    )


def _mean_difference(best: Mapping[Unit, Weighted], other: Mapping[Unit, Weighted]) -> MeanInterval:
    pairs = [(best[unit][0] - other[unit][0], best[unit][1]) for unit in sorted(best.keys() & other.keys())]
    return MeanInterval(_weighted_mean(pairs), _half_interval(pairs)) if pairs else MeanInterval(0.0)


def _peer_settings(variant: Variant) -> dict[str, str]:
    return {"strategy": variant.strategy} | ({"redundancy": variant.redundancy} if variant.redundancy else {})


def recommendation_text(ranked: Sequence[RankedVariant]) -> str:
    """The recommendation in words, with the cost of the runner-up and of the last variant."""
    first, others = ranked[0], ranked[1:]
    text = (
        f"Use {_variant_text(first)}. Over {_count_text(first.windows, 'window')} ({_count_text(first.runs, 'run')}), "
        f"{_percent_text(first.on_time)} of the deliveries would have been on time, with {first.packets.mean:.2f} data "
        "packets for each delivery."
    )
    if others:
        second = others[0]
        text += f" The runner-up, {_variant_text(second)}, {_behind_text(second)}, and {_packets_text(first, second)}."
    if len(others) > 1:
        text += f" The last, {_variant_text(others[-1])}, {_behind_text(others[-1])}."
    return text


def _variant_text(one: RankedVariant) -> str:
    return f"{one.strategy} with redundancy {one.redundancy}" if one.redundancy else one.strategy


def _count_text(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _percent_text(share: MeanInterval) -> str:
    half = "" if share.half is None else f" (± {100 * share.half:.2f} points)"
    return f"{100 * share.mean:.2f} %{half}"


def _behind_text(one: RankedVariant) -> str:
    behind, half = 100 * one.behind.mean, one.behind.half
    if half is not None and abs(one.behind.mean) <= half:
        return f"differs by {behind:.2f} points, which may be chance (± {100 * half:.2f})"
    sure = "" if half is None else f" (± {100 * half:.2f})"
    return f"is on time {abs(behind):.2f} points {'less' if behind >= 0 else 'more'} often{sure}"


def _packets_text(first: RankedVariant, other: RankedVariant) -> str:
    more = other.packets.mean - first.packets.mean
    if abs(more) < 0.005:
        return "sends as many packets"
    return f"sends {abs(more):.2f} data packets {'more' if more > 0 else 'fewer'} for each delivery"


def draw_recommendation(recommendation: Recommendation) -> str:
    """The variants as dots: on time and delivered, with their packets."""
    rows = [
        RankedRow(
            one.variant.name, STRATEGIES.get(one.strategy, "grey"), (one.on_time.mean, one.delivery.mean),
            f"{one.packets.mean:.2f}", strong=number == 0,
        )
        for number, one in enumerate(recommendation.ranked)
    ]  # fmt: skip
    first = recommendation.ranked[0]
    subtitle = f"{_count_text(first.windows, 'recorded window')} played again; the recommended one is on top"
    groups = ("on time", "delivered")
    return draw_ranked_dots("What would have been on time", subtitle, groups, "data packets\nper delivery", rows)
