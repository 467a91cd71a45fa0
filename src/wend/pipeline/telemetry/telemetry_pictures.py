"""Pictures of the tables that jobs on telemetry write."""

from datetime import UTC, datetime

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from wend.model.errors import ConfigError
from wend.model.units import SECOND
from wend.pictures.heat_map import Bar, HeatRow, draw_heat_map, draw_stacked_bars

_MAX_CELLS = 336
_MAX_LINKS = 60
_DAY = 86400 * SECOND
_STEPS_S = (1, 10, 30, 60, 300, 600, 1800, 3600, 7200, 14400, 43200, 86400)


def draw_availability_map(links: DataFrame) -> str:
    """The table `links` as a heat map: link x time, coloured by the share of time in which the link was down. If there
    are many links, those that were down for longest are shown."""
    seen = links.agg(F.min("begin_ns").alias("first"), F.max(F.col("begin_ns") + F.col("window_ns")).alias("last"))
    span = seen.toArrow().to_pylist()[0]
    if span["first"] is None:
        raise ConfigError("there are no links to draw")
    first, length = span["first"], span["last"] - span["first"]
    least = max(links.agg(F.max("window_ns")).toArrow()[0][0].as_py(), length / _MAX_CELLS)
    step = next((one * SECOND for one in _STEPS_S if one * SECOND >= least), _STEPS_S[-1] * SECOND)
    begin = first // step * step
    cell = F.floor((F.col("begin_ns") - F.lit(begin)) / F.lit(step)).cast("bigint")
    sums = (F.sum("down_ns").alias("down"), F.sum("observed_ns").alias("observed"))
    cells = links.groupBy("a", "b", cell.alias("cell")).agg(*sums).toArrow().to_pylist()
    many = (span["last"] - 1 - begin) // step + 1
    rows: dict[tuple[int, int], list[float | None]] = {}
    totals: dict[tuple[int, int], list[int]] = {}
    for one in cells:
        link = one["a"], one["b"]
        rows.setdefault(link, [None] * many)[one["cell"]] = one["down"] / one["observed"] if one["observed"] else None
        total = totals.setdefault(link, [0, 0])
        total[0] += one["down"]
        total[1] += one["observed"]
    share = {link: down / max(1, observed) for link, (down, observed) in totals.items()}
    worst = sorted(rows, key=lambda link: (-share[link], link))[:_MAX_LINKS]
    heat_rows = [
        HeatRow(f"{link[0]} – {link[1]}", tuple(rows[link]), f"{100 * (1 - share[link]):.2f} %")
        for link in (sorted(worst) if len(rows) <= _MAX_LINKS else worst)
    ]
    of = f"the {len(heat_rows)} worst of {len(rows)} links" if len(heat_rows) < len(rows) else f"{len(rows)} links"
    about = f"{of}, {_duration_words(step)} in a cell; right: the share of time that each was up"
    return draw_heat_map("Availability of links", about, heat_rows, _choose_ticks(begin, step, many))


_LEGEND = (
    ("orange", "waiting at the sender"),
    ("blue", "on the link"),
    ("pink", "in the receiver's host"),
    ("grey", "between arrival and delivery"),
)
_COLOURS = {"waiting": "orange", "link": "blue", "receiving": "pink", "local": "grey"}
_MAX_BARS = 16


def draw_lost_time_bars(causes: DataFrame, lateness: DataFrame) -> str:
    """The tables of `wend data late` as bars: the links and peers where late events spent most of their time."""
    groups = causes.where("cause != 'incomplete'").groupBy("cause", "peer", "neighbour")
    spent = groups.agg(F.sum("time_ns").alias("time_ns")).toArrow().to_pylist()
    counts = lateness.agg(F.sum("late"), F.sum("with_deadline"), F.sum("incomplete")).toArrow().to_pylist()[0]
    late, of, incomplete = (count or 0 for count in counts.values())
    if not spent:
        raise ConfigError("no event was late, so there is nothing to draw")
    places: dict[str, dict[str, float]] = {}
    for row in spent:
        ends = (row["neighbour"], row["peer"]) if row["cause"] == "receiving" else (row["peer"], row["neighbour"])
        label = f"in {row['peer']}" if row["cause"] == "local" else f"{ends[0]} → {ends[1]}"
        place = places.setdefault(label, {})
        place[_COLOURS[row["cause"]]] = place.get(_COLOURS[row["cause"]], 0.0) + row["time_ns"] / SECOND
    total = sum(sum(place.values()) for place in places.values()) or 1.0
    worst = sorted(places, key=lambda label: (-sum(places[label].values()), label))[:_MAX_BARS]
    bars = [
        Bar(
            label,
            tuple((colour, places[label].get(colour, 0.0)) for colour, _ in _LEGEND),
            f"{100 * sum(places[label].values()) / total:.1f} %",
        )
        for label in worst
    ]
    missing = f"; of {incomplete:,} the route is not known" if incomplete else ""
    about = f"{late:,} of {of:,} deliveries with a deadline were late{missing}; right: the share of their time"
    return draw_stacked_bars("Where late events lost their time", about, _LEGEND, bars, "s")


def _duration_words(step: int) -> str:
    seconds = step // SECOND
    for unit, name in ((86400, "day"), (3600, "hour"), (60, "minute")):
        if seconds % unit == 0:
            return f"{seconds // unit} {name}{'s' if seconds > unit else ''}"
    return f"{seconds} seconds"


def _choose_ticks(begin: int, step: int, many: int) -> list[tuple[int, str]]:
    """About seven times, at whole cells: midnights if there are enough of them, else times of day."""
    midnights = range(-(begin // step) % (_DAY // step), many, _DAY // step) if _DAY % step == 0 else range(0)
    if len(midnights) >= 3:
        return [(at, _time_text(begin + at * step, "%a %d %b")) for at in midnights[:: -(-len(midnights) // 8)]]
    gap = max(1, -(-many // 6))
    form = "%d %b %H:%M" if step * many > _DAY else "%H:%M:%S" if step < 60 * SECOND else "%H:%M"
    return [(at, _time_text(begin + at * step, form)) for at in range(0, many, gap)]


def _time_text(time_ns: int, form: str) -> str:
    return datetime.fromtimestamp(time_ns / SECOND, UTC).strftime(form)
