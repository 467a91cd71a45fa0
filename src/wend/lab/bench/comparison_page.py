"""The comparison page: tables, pictures, method and machine, generated from finished cells.

A row sums the cells of one system, Pf, rate and size over their worlds. Every number on the page comes from the cells.
"""

from collections.abc import Iterable, Sequence
from os.path import relpath
from pathlib import Path
from statistics import mean, stdev

import msgspec

from wend.lab.bench.cell import Cell
from wend.lab.bench.delivery_log import DeliveryMetrics
from wend.lab.bench.measurement import GAP
from wend.lab.systems.system_table import SYSTEMS
from wend.model.errors import ConfigError
from wend.pictures.charts import RankedRow, draw_ranked_dots
from wend.pictures.palette import FAMILIES

ORACLE = "oracle"
_PREFERRED_PFS = (0.06, 0.1)
"""The failure probabilities of the picture, if both were measured."""
Setup = tuple[float, int]
"""Events per second and topic, and bytes per event."""


class SystemSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The results of one system at one Pf over all its worlds. Ratios are shares of the expected deliveries."""

    system: str
    pf: float
    worlds: int
    expected: int
    on_time: float
    spread: float | None
    """Standard deviation of the on-time ratio between worlds: of the sample, which estimates that of all worlds."""
    delivery: float
    p50_ms: float
    p99_ms: float
    data: float
    """Data packets per expected delivery."""
    relative: float | None
    """Data packets as a multiple of those of `udp-tree` in the same worlds."""
    control_hz: float | None = None
    control: float | None = None
    """Control packets per expected delivery."""
    cpu: float | None = None
    discards: int = 0
    doubtful: int = 0
    """Windows that the bench accepted although their canary was late."""
    versions: tuple[str, ...] = ()
    """The versions of the measured system. There are several if it changed between cells."""


def list_setups(cells: Iterable[Cell]) -> list[Setup]:
    return sorted({(c.settings.rate_hz, c.settings.size_bytes) for c in cells})


def summarize_cells(cells: list[Cell], setup: Setup) -> list[SystemSummary]:
    """One summary per Pf and system; within a Pf the best on-time ratio comes first."""
    mine = [c for c in cells if (c.settings.rate_hz, c.settings.size_bytes) == setup]
    groups: dict[tuple[float, str], list[Cell]] = {}
    for cell in mine:
        groups.setdefault((cell.settings.pf, cell.settings.system), []).append(cell)
    trees = {_world_key(c): c for c in mine if c.settings.system == "udp-tree"}
    summaries = [_summarize_system(system, pf, group, trees) for (pf, system), group in groups.items()]
    summaries += [
        _summarize_oracle(pf, [c for c in mine if c.settings.pf == pf], trees) for pf in {pf for pf, _ in groups}
    ]
    return sorted(summaries, key=lambda r: (r.pf, -r.on_time, r.system))


def _world_key(cell: Cell) -> tuple[object, ...]:
    s = cell.settings
    return s.topology_seed, s.failure_seed, s.pf, s.peers, s.degree, s.duration_s


def _summarize_system(
    system: str, pf: float, cells: list[Cell], trees: dict[tuple[object, ...], Cell]
) -> SystemSummary:
    control = sum(c.traffic.control for c in cells)
    return msgspec.structs.replace(
        _sum_results(system, pf, [(c, c.metrics, c.traffic.data) for c in cells], trees),
        control_hz=control / sum(c.settings.duration_s for c in cells),
        control=control / max(1, sum(c.metrics.expected for c in cells)),
        cpu=mean(c.cpu_share for c in cells),
        discards=sum(len(c.discards) for c in cells),
        doubtful=sum(c.kept_anyway for c in cells),
        versions=tuple(sorted({c.version for c in cells})),
    )


def _summarize_oracle(pf: float, cells: list[Cell], trees: dict[tuple[object, ...], Cell]) -> SystemSummary:
    """The oracle's results. Every cell of a world has them, so this takes one cell per world."""
    worlds = {_world_key(c): c for c in cells}
    worlds |= {world: trees[world] for world in worlds if world in trees}
    return _sum_results(ORACLE, pf, [(c, c.oracle, c.oracle_packets) for c in worlds.values()], trees)


def _sum_results(
    system: str, pf: float, results: list[tuple[Cell, DeliveryMetrics, int]], trees: dict[tuple[object, ...], Cell]
) -> SystemSummary:
    """Sum metrics and data packets over worlds."""
    metrics = [metrics for _, metrics, _ in results]
    expected = sum(m.expected for m in metrics)
    ratios = [m.on_time_ratio for m in metrics]
    return SystemSummary(
        system=system,
        pf=pf,
        worlds=len(results),
        expected=expected,
        on_time=sum(m.on_time for m in metrics) / max(1, expected),
        spread=stdev(ratios) if len(ratios) > 1 else None,
        delivery=sum(m.delivered for m in metrics) / max(1, expected),
        p50_ms=mean(m.p50_ms for m in metrics),
        p99_ms=mean(m.p99_ms for m in metrics),
        data=sum(packets for _, _, packets in results) / max(1, expected),
        relative=_packets_relative_to_trees([(packets, trees.get(_world_key(cell))) for cell, _, packets in results]),
    )


def _packets_relative_to_trees(pairs: list[tuple[int, Cell | None]]) -> float | None:
    counts = [(data, tree.traffic.data) for data, tree in pairs if tree is not None]
    total = sum(tree for _, tree in counts)
    return sum(data for data, _ in counts) / total if total else None


# ---------------------------------------------------------------- page


HEAD = (
    "Pf", "system", "worlds", "on time", "±", "delivered", "p50", "p99", "data", "x tree", "control", "control/s", "CPU"
)  # fmt: skip


def format_row(row: SystemSummary) -> tuple[str, ...]:
    """A summary as table columns, in the order of `HEAD`."""
    return (
        f"{row.pf:g}",
        row.system,
        str(row.worlds),
        f"{row.on_time:.4f}",
        "" if row.spread is None else f"{row.spread:.4f}",
        f"{row.delivery:.4f}",
        f"{row.p50_ms:.0f} ms",
        f"{row.p99_ms:.0f} ms",
        f"{row.data:.2f}",
        "" if row.relative is None else f"{row.relative:.2f}",
        "" if row.control is None else f"{row.control:.1f}",
        "" if row.control_hz is None else f"{row.control_hz:.0f}",
        "" if row.cpu is None else f"{100 * row.cpu:.0f} %",
    )


def render_page(cells: list[Cell], figures: dict[Setup, str]) -> str:
    """The page as Markdown. `figures` are paths of images, relative to the page."""
    if not cells:
        raise ConfigError("there are no finished cells to report on")
    sections = [_INTRO]
    for setup in list_setups(cells):
        rate, size = setup
        sections.append(f"## {rate:g} {'event' if rate == 1 else 'events'} per second and topic, {size} bytes each")
        if setup in figures:
            sections.append(f"![The share of deliveries in time, by system, the best on top]({figures[setup]})")
        sections.append(_render_table(summarize_cells(cells, setup)))
    sections += [_COLUMNS, _describe_systems(cells), _describe_method(cells), _describe_machines(cells)]
    return "\n\n".join(sections) + "\n"


def _render_table(summaries: list[SystemSummary]) -> str:
    lines = [f"| {' | '.join(HEAD)} |", f"| --: | --- | {' | '.join(['--:'] * (len(HEAD) - 2))} |"]
    for row in summaries:
        columns = list(format_row(row))
        if row.system.startswith("wend"):
            columns[1] = f"**{columns[1]}**"
        lines.append(f"| {' | '.join(columns)} |")
    return "\n".join(lines)


def _describe_systems(cells: list[Cell]) -> str:
    versions: dict[str, set[str]] = {}
    for cell in cells:
        versions.setdefault(cell.settings.system, set()).add(cell.version)
    lines = [
        f"- `{name}`: {SYSTEMS[name]().about} ({', '.join(sorted(versions[name]))})"
        for name in SYSTEMS
        if name in versions
    ]
    lines.append(f"- `{ORACLE}`: computed: the earliest possible arrival, given every failure in the lab's log")
    return "\n".join(["## Systems", "", *lines, *_describe_mixed_versions(cells), "", _CONFIGS])


def _describe_mixed_versions(cells: list[Cell]) -> list[str]:
    """A sentence on the rows that sum cells of several versions."""
    sums = [
        f"`{row.system}` at Pf {row.pf:g}, {rate:g} per second, {size} bytes: {', '.join(row.versions)}"
        for rate, size in list_setups(cells)
        for row in summarize_cells(cells, (rate, size))
        if len(row.versions) > 1
    ]
    return ["", f"Rows that sum worlds of several versions: {'; '.join(sums)}."] if sums else []


def _describe_method(cells: list[Cell]) -> str:
    s = cells[0].settings
    worlds = len({_world_key(c)[:2] for c in cells})
    durations = " and ".join(f"{d:g}" for d in sorted({c.settings.duration_s for c in cells}))
    discards = sum(len(c.discards) for c in cells)
    doubtful = sum(c.kept_anyway for c in cells)
    exited = sorted({f"{c.settings.system}: {name}" for c in cells for name in c.exited})
    text = (
        f"{s.peers} hosts in a random graph of degree {s.degree}, links of {s.delay_ms[0]:g}-{s.delay_ms[1]:g} ms, "
        f"{s.topics} topics with a publisher each, deadline {s.factor:g} x the shortest delay. Each second every link "
        f"is down with probability Pf. Windows of {durations} s; {worlds} {'world' if worlds == 1 else 'worlds'} "
        "(topology and failures), the same "
        f"failures for every system. An event that takes longer than {s.cutoff_s:g} s counts as lost.\n\n"
        "Outages start and end at full seconds. Each topic publishes once per period. The time within the period "
        "advances by the golden ratio, so events meet outages of every age: before and after a system detects "
        "them.\n\n"
        "One system runs at a time, with raised priority, beside a canary: UDP on the delay tree, once per second and "
        f"topic. If more than {100 * GAP:g} % of the canary's packets were late, the bench discarded the window, at "
        f"most three times in a row. It discarded {discards} of {discards + len(cells)} windows and accepted "
        f"{doubtful} with a late canary."
    )
    if exited:
        text += f" Processes that ended during a window: {', '.join(exited)}."
    return f"## Method\n\n{text}"


def _describe_machines(cells: list[Cell]) -> str:
    text = "; ".join(sorted({c.machine for c in cells})) + "."
    others = [max(0.0, c.others_share) for c in cells if c.others_share is not None]  # clocks tick
    if others:
        text += f" Processes outside the lab took {100 * mean(others):.0f} % of one core on average, "
        text += f"{100 * max(others):.0f} % in the busiest window."
    return f"## Machine\n\n{text}"


_INTRO = """# Comparison with other systems

Wend, NATS, Zenoh, mosquitto and plain UDP as real processes on one emulated wide-area network (`wend lab`) whose links
fail. `wend lab bench --report-only --docs docs/explanation/comparison.md --figures docs/figures` generates this page
from measured cells."""

_COLUMNS = """On time and delivered are shares of the expected deliveries; ± is the standard deviation between worlds.
Rows with different numbers of worlds cover different worlds. Data: packets with a publication put on links, per
expected delivery, and as a multiple of the delay tree's. Control: all other packets (acknowledgements, probes,
routing), per expected delivery and per second. CPU: all processes of a system together, in percent of one core."""

_CONFIGS = """Configurations are in `src/wend/lab/systems/configs/`. The tuned ones were tuned on a
topology that is not in the table (seed 9)."""


# ---------------------------------------------------------------- picture


def draw_picture(rows: Sequence[SystemSummary]) -> str:
    """The picture of a table. It shows ratios as the table does, so that it can be drawn again from a page."""
    rows = [msgspec.structs.replace(row, on_time=round(row.on_time, 4)) for row in rows]
    pfs = choose_pfs({row.pf for row in rows})
    summaries = {(row.system, row.pf): row for row in rows if row.pf in pfs}
    systems = {system for system, _ in summaries}

    def rank(system: str) -> tuple[float, ...]:
        mine = [summaries.get((system, pf)) for pf in pfs]
        return (*(2.0 if one is None else 1.0 - one.on_time for one in mine),)

    ranked = [
        RankedRow(
            label=system,
            colour=FAMILIES.get(system.partition("-")[0], "grey"),
            values=tuple(None if (one := summaries.get((system, pf))) is None else one.on_time for pf in pfs),
            note=next(f"{summaries[system, pf].data:.2f}" for pf in pfs if (system, pf) in summaries),
            strong=system.startswith("wend"),
        )
        for system in sorted(systems, key=lambda system: (rank(system), system))
    ]
    down = " and ".join(f"{100 * pf:g} %" for pf in pfs)
    subtitle = f"Share of deliveries in time while {down} of the links are down. The best system is on top."
    note = f"packets per\ndelivery, Pf {pfs[0]:g}"
    return draw_ranked_dots("On time, by system", subtitle, [f"Pf {pf:g}" for pf in pfs], note, ranked)


def choose_pfs(measured: set[float]) -> tuple[float, ...]:
    """The failure probabilities of the picture: the preferred two, or else the highest two, the lower first."""
    preferred = [pf for pf in _PREFERRED_PFS if pf in measured]
    return tuple(preferred if len(preferred) == 2 else sorted(measured)[-2:])


def write_page(cells: list[Cell], docs: Path, folder: Path | None = None) -> list[Path]:
    """Write the page, and its figures into a folder, by default one beside it. Returns all paths."""
    folder = folder or docs.parent / "figures"
    figures: dict[Setup, str] = {}
    files = [docs]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for setup in list_setups(cells):
            stem = f"{docs.stem}-{setup[0]:g}hz-{setup[1]}b"
            files.append(folder / f"{stem}.svg")
            files[-1].write_text(draw_picture(summarize_cells(cells, setup)), encoding="utf-8")
            figures[setup] = relpath(files[-1], docs.parent)
        docs.write_text(render_page(cells, figures), encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"cannot write {docs} and its figures: {error.strerror or error}", code="unwritable"
        ) from None
    return files
