"""Drawing of a plan as SVG: the utilisation of every link, with single shortest paths (left) and as planned (right).

The SVG needs no drawing library, and its tooltips show the load of each link.
"""

from html import escape
from typing import Any

import numpy as np

from wend.model.plan import Plan
from wend.model.rates import Rate
from wend.planning.arrays import TOLERANCE, Floats, tidy
from wend.topology.layout import fit, laid_out, readable

WIDTH, HEIGHT, MARGIN, HEAD, FOOT = 560, 440, 30, 64, 150
NAMED = 5
LETTER = (5.0, 9.0)
# highest load, colour, line width, legend
STEPS = (
    (0.0, "#e3e6ea", 1.0, "unused"),
    (0.25, "#bcd2e8", 1.5, "up to 25 %"),
    (0.5, "#6da7d3", 2.0, "up to 50 %"),
    (0.75, "#2b6cb0", 2.6, "up to 75 %"),
    (1.0, "#f08c1e", 3.4, "up to 100 %"),
    (np.inf, "#c81e2b", 5.0, "beyond: messages are dropped"),
)


class Utilisation:
    """Loads as shares of capacities, before or after planning, and a ranking of the highest by name."""

    def __init__(self, plan: Plan, state: str) -> None:
        self.arcs, self._arc_words = _fullest_unit(plan.arcs, state)
        self.peers, self._peer_words = _fullest_unit(plan.peers, state)
        names = plan.peers["name"]
        arcs = [
            (float(self.arcs[i]), f"{names[a]} → {names[b]}", self._arc_words[i])
            for i, (a, b) in enumerate(zip(plan.arcs["a"].tolist(), plan.arcs["b"].tolist(), strict=True))
        ]
        peers = [(float(self.peers[i]), f"peer {names[i]}", self._peer_words[i]) for i in range(len(names))]
        self.ranked = sorted((entry for entry in arcs + peers if entry[0] > 0), key=lambda entry: (-entry[0], entry[1]))
        """(load, name, description), the highest load first."""

    def words(self, arc: int) -> str:
        return self._arc_words[arc]


def _fullest_unit(table: dict[str, Any], state: str) -> tuple[Floats, list[str]]:
    """The higher utilisation of the two units, and its description."""
    shares, words = [], []
    for unit, suffix in enumerate(("msgs", "bps")):
        load, capacity = table[f"{state}_{suffix}"], table[f"capacity_{suffix}"]
        shares.append(load / capacity)
        words.append(
            [(Rate(x, bool(unit)), Rate(c, bool(unit))) for x, c in zip(load.tolist(), capacity.tolist(), strict=True)]
        )
    best = np.where(shares[1] > shares[0], 1, 0)
    said = [f"{words[u][i][0]} of {words[u][i][1]}" for i, u in enumerate(best.tolist())]
    return np.array([tidy(share) for share in np.maximum(*shares).tolist()]), said


def draw(plan: Plan) -> str:
    """The whole picture."""
    places = _layout(plan)
    head = plan.head
    size = (2 * WIDTH, HEAD + HEIGHT + FOOT)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size[0]} {size[1]}"'
        ' font-family="sans-serif" font-size="12">',
        f'<rect width="{size[0]}" height="{size[1]}" fill="white"/>',
        f'<text x="{MARGIN}" y="26" font-size="17" font-weight="bold">{head.goal}, k = {head.k}: {head.flows} flows, '
        f"{head.peers} peers, {head.links} links</text>",
    ]
    for panel, (state, title, highest) in enumerate(
        (
            ("before", "single shortest paths", head.highest_load_single),
            ("after", "as planned" + (", the most valuable part" if head.partial else ""), head.highest_load),
        )
    ):
        full = Utilisation(plan, state)
        parts.append(f'<g transform="translate({panel * WIDTH}, 0)">')
        parts.append(f'<text x="{MARGIN}" y="50" font-size="14">{title}: fullest {100 * highest:.0f} %</text>')
        parts += _network(plan, full, places)
        parts += _bottlenecks(full)
        parts.append("</g>")
    parts += _legend(size[1] - 14)
    parts.append("</svg>")
    return "\n".join(parts) + "\n"


def _network(plan: Plan, full: Utilisation, places: Floats) -> list[str]:
    a, b = plan.arcs["a"], plan.arcs["b"]
    names = plan.peers["name"]
    peers = plan.head.peers
    reverse = np.searchsorted(a.astype(np.int64) * peers + b, b.astype(np.int64) * peers + a)
    found = []
    for arc in np.argsort(np.maximum(full.arcs, full.arcs[reverse]), kind="stable").tolist():
        if a[arc] > b[arc]:
            continue
        other = int(reverse[arc])
        _, colour, width, _ = style_of(max(full.arcs[arc], full.arcs[other]))
        (x, y), (u, v) = places[a[arc]], places[b[arc]]
        title = escape(f"{names[a[arc]]} → {names[b[arc]]}: {full.words(arc)}; back: {full.words(other)}")
        found.append(
            f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{u:.1f}" y2="{v:.1f}" stroke="{colour}" stroke-width="{width}">'
            f"<title>{title}</title></line>"
        )
    radius = 4.5 if peers <= 60 else 2.0
    for peer, (x, y) in enumerate(places.tolist()):
        colour = style_of(float(full.peers[peer]))[1] if full.peers[peer] > 0 else "#444444"
        title = f"<title>{escape(names[peer])}</title>"
        found.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" fill="{colour}" stroke="white">{title}</circle>')
    return found + (_names(names, places, np.argsort(-full.peers, kind="stable").tolist()) if peers <= 60 else [])


def _names(names: list[str], places: Floats, order: list[int]) -> list[str]:
    """Where two names would overlap, the peer with the higher load has its name."""
    at = places + np.array([6.0, -5.0])
    # The halo keeps a name readable where links cross it.
    halo = 'stroke="white" stroke-width="2.5" paint-order="stroke"'
    return [
        f'<text x="{at[i, 0]:.1f}" y="{at[i, 1]:.1f}" font-size="9" fill="#444" {halo}>{escape(names[i])}</text>'
        for i in readable(names, at, LETTER, order)
    ]


def _bottlenecks(full: Utilisation) -> list[str]:
    top = HEAD + HEIGHT + 14
    found = [f'<text x="{MARGIN}" y="{top}" font-weight="bold">fullest</text>']
    for line, (share, name, words) in enumerate(full.ranked[:NAMED], 1):
        text = escape(f"{100 * share:.0f} %  {name}  ({words})")
        found.append(f'<text x="{MARGIN}" y="{top + 18 * line}" fill="#333">{text}</text>')
    return found


def _legend(y: int) -> list[str]:
    found = []
    for i, (_, colour, width, words) in enumerate(STEPS):
        x = MARGIN + i * 150
        found.append(
            f'<line x1="{x}" y1="{y - 4}" x2="{x + 24}" y2="{y - 4}" stroke="{colour}" stroke-width="{width}"/>'
        )
        found.append(f'<text x="{x + 30}" y="{y}" fill="#555">{words}</text>')
    return found


def style_of(share: float) -> tuple[float, str, float, str]:
    """The style of a load. Loads that differ by the solver's noise look alike; a link in use never looks unused."""
    return next(step for step in STEPS if share <= step[0] * (1 + TOLERANCE))


def _layout(plan: Plan) -> Floats:
    """The position of each peer, in pixels."""
    ends = zip(plan.arcs["a"].tolist(), plan.arcs["b"].tolist(), strict=True)
    places = laid_out(np.stack((plan.peers["x"], plan.peers["y"]), axis=1), [(a, b) for a, b in ends if a < b])
    # Leave space for the names, to the right of their peers.
    return fit(places, ((WIDTH - MARGIN) / 2, HEAD + HEIGHT / 2), (WIDTH - 3 * MARGIN, HEIGHT - 2 * MARGIN))
