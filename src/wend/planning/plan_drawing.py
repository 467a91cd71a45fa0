"""Drawing of a plan as SVG: the utilisation of every link, with single shortest paths and as planned.

The two maps are side by side, or one above the other if they are wide. If the two directions of a link differ, each has
its own line with an arrow. Lists below the maps name the fullest links and peers, which have labels. Tooltips show the
load of each link.
"""

from typing import Any, NamedTuple

import numpy as np

from wend.model.plan import Plan
from wend.model.rates import Rate
from wend.pictures import svg
from wend.pictures.labels import Label, draw_labels, place_labels
from wend.pictures.palette import LOADS
from wend.pictures.style import HEADING, NOTE, SMALL, TITLE
from wend.planning.arrays import TOLERANCE, Floats, round_noise
from wend.topology.layout import fit, lay_out, picture_height

_PANEL, _WIDE_PANEL, _MARGIN = 580.0, 960.0, 28.0
_WIDE = 1.6
"""Maps with at least this ratio of width to height are one above the other."""
_INSET = 44.0
"""The space for labels at the edges of a map."""
_HEIGHTS = (160.0, 620.0)
_NAMED = 5
_LABELLED = 60
"""In plans of at most this many peers, the drawing labels all for which there is space."""
# highest load, colour, line width, legend
STEPS = tuple(
    zip(
        (0.0, 0.25, 0.5, 0.75, 1.0, np.inf),
        LOADS,
        (1.0, 1.8, 2.4, 3.0, 3.6, 5.0),
        ("unused", "up to 25 %", "up to 50 %", "up to 75 %", "up to 100 %", "beyond: messages are dropped"),
        strict=True,
    )
)


class Utilisation:
    """Loads as shares of capacities, before or after planning, and a ranking of the highest by name."""

    def __init__(self, plan: Plan, state: str) -> None:
        self.arcs, self._arc_words = _fullest_unit(plan.arcs, state)
        self.peers, self._peer_words = _fullest_unit(plan.peers, state)
        names = plan.peers["name"]
        arcs = [
            (float(self.arcs[i]), f"{names[a]} → {names[b]}", self._arc_words[i], (a, b))
            for i, (a, b) in enumerate(zip(plan.arcs["a"].tolist(), plan.arcs["b"].tolist(), strict=True))
        ]
        peers = [(float(self.peers[i]), f"peer {names[i]}", self._peer_words[i], (i,)) for i in range(len(names))]
        entries = sorted((entry for entry in arcs + peers if entry[0] > 0), key=lambda entry: (-entry[0], entry[1]))
        self.ranked = [entry[:3] for entry in entries]
        """(load, name, description), the highest load first."""
        self._ends = [entry[3] for entry in entries]

    def arc_text(self, arc: int) -> str:
        return self._arc_words[arc]

    def named_peers(self, count: int) -> list[int]:
        """The peers that the first entries of the ranking name, each once."""
        return list(dict.fromkeys(peer for ends in self._ends[:count] for peer in ends))


def _fullest_unit(table: dict[str, Any], state: str) -> tuple[Floats, list[str]]:
    """The higher utilisation of the two units, and its description."""
    shares, words = [], []
    for unit, suffix in enumerate(("msgs", "bps")):
        load, capacity = table[f"{state}_{suffix}"], table[f"capacity_{suffix}"]
        shares.append(load / capacity)
        pairs = zip(load.tolist(), capacity.tolist(), strict=True)
        words.append([(Rate(float(f"{x:.4g}"), bool(unit)), Rate(c, bool(unit))) for x, c in pairs])
    best = np.where(shares[1] > shares[0], 1, 0)
    said = [f"{words[u][i][0]} of {words[u][i][1]}" for i, u in enumerate(best.tolist())]
    return np.array([round_noise(share) for share in np.maximum(*shares).tolist()]), said


class _Layout(NamedTuple):
    """The positions of the peers in a panel, and the sizes of the panel and of its map."""

    places: Floats
    panel: float
    map_height: float
    stacked: bool


def draw_plan(plan: Plan) -> str:
    """The whole picture."""
    head, layout = plan.head, _make_layout(plan)
    full = {state: Utilisation(plan, state) for state in ("before", "after")}
    lists = max(len(one.ranked[:_NAMED]) for one in full.values())
    top, height = 46.0, 60 + layout.map_height + 19 * lists + (16 if layout.stacked else 0)
    title = f"{head.goal}, k = {head.k}: {head.flows} flows, {head.peers} peers, {head.links} links"
    body = [svg.text(_MARGIN, 30, title, TITLE, bold=True)]
    for panel, (state, name, highest) in enumerate(
        (
            ("before", "single shortest paths", head.highest_load_single),
            ("after", "as planned" + (", the most valuable part" if head.partial else ""), head.highest_load),
        )
    ):
        across, down = (0.0, panel * height) if layout.stacked else (panel * layout.panel, 0.0)
        body.append(f'<g transform="translate({across:g}, {top + down:g})">')
        body.append(svg.text(_MARGIN, 14, f"{name}: fullest {100 * highest:.0f} %", HEADING))
        body += _draw_network(plan, full[state], layout)
        body += _draw_bottlenecks(full[state], layout)
        body.append("</g>")
    width, rows = (layout.panel, 2) if layout.stacked else (2 * layout.panel, 1)
    bottom = top + rows * height
    legend, used = _draw_legend(bottom + 14, width)
    return svg.document(
        width, bottom + used + 22, title, body + legend, "The utilisation of links, before and after planning."
    )


def _draw_network(plan: Plan, full: Utilisation, layout: _Layout) -> list[str]:
    a, b, places = plan.arcs["a"], plan.arcs["b"], layout.places
    bounds = svg.Extent(8, 24, layout.panel - 8, 30 + layout.map_height)
    names, peers = plan.peers["name"], plan.head.peers
    reverse = np.searchsorted(a.astype(np.int64) * peers + b, b.astype(np.int64) * peers + a)
    elements: list[str] = []
    for arc in np.argsort(np.maximum(full.arcs, full.arcs[reverse]), kind="stable").tolist():
        if a[arc] < b[arc]:
            other = int(reverse[arc])
            caption = f"{names[a[arc]]} → {names[b[arc]]}: {full.arc_text(arc)}; back: {full.arc_text(other)}"
            elements += _draw_link(places[a[arc]], places[b[arc]], (full.arcs[arc], full.arcs[other]), caption)
    radius = 6.0 if peers <= _LABELLED else 4.0 if peers <= 200 else 2.5
    for peer, (x, y) in enumerate(places.tolist()):
        colour = choose_style(float(full.peers[peer]))[1] if full.peers[peer] > 0 else "soft"
        disc = svg.circle(x, y, radius, f"fill-{colour} stroke-paper", ' stroke-width="1.5"')
        elements.append(svg.add_tooltip(disc, names[peer]))
    named = full.named_peers(_NAMED)
    others = np.argsort(-full.peers, kind="stable").tolist() if peers <= _LABELLED else []
    labels = [
        Label(names[peer], float(places[peer, 0]), float(places[peer, 1]), radius, needed=peer in named)
        for peer in dict.fromkeys((*named, *others))
    ]
    discs = [(x, y, radius) for x, y in places.tolist()]
    lines = np.hstack((places[a], places[b]))
    return elements + draw_labels(place_labels(labels, bounds, discs=discs, lines=lines))


def _draw_link(start: Floats, end: Floats, loads: tuple[float, float], caption: str) -> list[str]:
    """One line, or one for each direction if they differ. Each direction is on its right-hand side."""
    (_, there, wide, _), (_, back, narrow, _) = choose_style(loads[0]), choose_style(loads[1])
    (x, y), (u, v) = start.tolist(), end.tolist()
    if there == back:
        return [svg.add_tooltip(svg.line(x, y, u, v, f"stroke-{there}", wide), caption)]
    length = max(float(np.hypot(u - x, v - y)), 1e-9)
    across, down = -(v - y) / length, (u - x) / length
    elements = []
    for colour, width, sign in sorted(((there, wide, 1.0), (back, narrow, -1.0)), key=lambda one: one[1]):
        off = sign * (width / 2 + 0.4)
        ends = (x + off * across, y + off * down, u + off * across, v + off * down)
        elements.append(svg.add_tooltip(svg.line(*ends, f"stroke-{colour}", width), caption))
        if colour != LOADS[0] and length > 24:
            at, tip = (ends[:2], ends[2:]) if sign > 0 else (ends[2:], ends[:2])
            elements.append(_draw_arrow(at, tip, 3.2 + 0.9 * width, colour))
    return elements


def _draw_arrow(start: tuple[float, ...], end: tuple[float, ...], size: float, colour: str) -> str:
    """A triangle on a line, just beyond its middle."""
    along = np.array(end) - np.array(start)
    unit = along / np.hypot(*along)
    across = np.array((-unit[1], unit[0]))
    middle = np.array(start) + 0.6 * along
    corners = (
        middle + size * unit,
        middle - 0.7 * size * unit + size * across,
        middle - 0.7 * size * unit - size * across,
    )
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in corners)
    return f'<polygon points="{points}" class="fill-{colour} stroke-paper" stroke-width="0.6"/>'


def _draw_bottlenecks(full: Utilisation, layout: _Layout) -> list[str]:
    top = 30 + layout.map_height
    elements = [svg.text(_MARGIN, top + 14, "fullest", NOTE, "fill-soft", bold=True)]
    for row, (share, name, words) in enumerate(full.ranked[:_NAMED], 1):
        y = top + 14 + 19 * row
        _, colour, width, _ = choose_style(share)
        said = _shorten(f"{100 * share:.0f} %  {name}  ({words})", layout.panel - 2 * _MARGIN - 24)
        elements.append(svg.line(_MARGIN, y - 4, _MARGIN + 16, y - 4, f"stroke-{colour}", width))
        elements.append(svg.text(_MARGIN + 24, y, said, NOTE))
    return elements


def _shorten(words: str, most: float) -> str:
    """The words, cut to a width."""
    if svg.text_width(words, NOTE) <= most:
        return words
    while words and svg.text_width(f"{words}…", NOTE) > most:
        words = words[:-1]
    return f"{words}…"


def _draw_legend(top: float, width: float) -> tuple[list[str], float]:
    """The legend, and its height."""
    elements: list[str] = []
    x, y = _MARGIN, top
    for colour, thick, words in (
        *((step[1], step[2], step[3]) for step in STEPS),
        ("", 0.0, "arrows: directions differ"),
    ):
        mark = 30.0 if colour else 0.0
        wide = mark + svg.text_width(words, SMALL)
        if x + wide > width - _MARGIN:
            x, y = _MARGIN, y + 20
        if colour:
            elements.append(svg.line(x, y - 4, x + 24, y - 4, f"stroke-{colour}", thick))
        elements.append(svg.text(x + mark, y, words, SMALL, "fill-soft"))
        x += wide + 22
    return elements, y - top


def choose_style(share: float) -> tuple[float, str, float, str]:
    """The style of a load. Loads that differ by the solver's noise look alike; a link in use never looks unused."""
    return next(step for step in STEPS if share <= step[0] * (1 + TOLERANCE))


def _make_layout(plan: Plan) -> _Layout:
    ends = zip(plan.arcs["a"].tolist(), plan.arcs["b"].tolist(), strict=True)
    places = lay_out(np.stack((plan.peers["x"], plan.peers["y"]), axis=1), [(a, b) for a, b in ends if a < b])
    across, down = (places.max(axis=0) - places.min(axis=0)).tolist()
    stacked = across > _WIDE * down
    panel = _WIDE_PANEL if stacked else _PANEL
    width = panel - 2 * (_MARGIN + _INSET)
    height = picture_height(places, width, *_HEIGHTS)
    spots = fit(places, (panel / 2, 30 + _MARGIN + height / 2), (width, height))
    return _Layout(spots, panel, height + 2 * _MARGIN, stacked)
