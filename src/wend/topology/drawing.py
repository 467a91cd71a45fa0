"""Drawing of an underlay with an overlay on it, as SVG. It shows where overlay links that look independent meet.

The more overlay links run over an underlay link, the wider it is drawn. A router that several overlay links share is a
disc, larger for more links: its failure takes all of them down at once. A tooltip says how many. Underlay links with
one overlay link, and routers that only the links of their own peer use, are not shared and have no colour. Overlay
links are thin curves between peers.
"""

import math
from collections.abc import Iterator
from html import escape

import numpy as np

from wend.topology.graph import Overlay
from wend.topology.layout import fit, laid_out, readable
from wend.topology.overlap import meeting_routers
from wend.topology.placement import Placement
from wend.topology.underlay import Floats, Ints, LinkKind, Underlay

WIDTH, HEIGHT = 1200, 1000
_MARGIN = 60
_FOOT = 92
_LABELLED = 70
"""The drawing names routers in networks of at most this many."""
_LETTER = (6.0, 11.0)
_ALONE = "#8fa0ae"
"""The colour of underlay links that carry one overlay link."""
_CURVED = 150
"""The drawing has curves for overlay links in overlays of at most this many."""
_STYLE = """
  text { font-family: system-ui, 'Segoe UI', Helvetica, Arial, sans-serif; fill: #22303c; }
  .title { font-size: 21px; font-weight: 600; }
  .note { font-size: 14px; fill: #52616e; }
  .name { font-size: 11px; fill: #52616e; paint-order: stroke; stroke: #fff; stroke-width: 3px; }
  .under { stroke: #d3dae0; fill: none; }
  .border { stroke: #b4bfc9; }
  .router { fill: #c3ccd4; }
  .used { fill: none; stroke-linecap: round; }
  .overlay { stroke: #2b6cb0; stroke-width: 1.1; stroke-opacity: 0.4; fill: none; }
  .peer { fill: #2b6cb0; stroke: #fff; stroke-width: 1.6; }
  .shared { stroke: #fff; stroke-width: 1; }
"""


def draw(placement: Placement, overlay: Overlay, title: str) -> str:
    """The whole picture."""
    under = placement.underlay
    size = (WIDTH - 2 * _MARGIN, HEIGHT - 2 * _MARGIN - _FOOT)
    ends = ((a, b) for a, b in under.ends.tolist())
    spots = fit(laid_out(under.position, ends), (WIDTH / 2, (HEIGHT - _FOOT + _MARGIN) / 2), size)
    a = np.array([link.a for link in overlay.links], dtype=np.int64)
    b = np.array([link.b for link in overlay.links], dtype=np.int64)
    components = placement.paths(a, b).components.astype(np.int64)
    through = meeting_routers(placement, overlay)
    over = np.bincount(components[components >= under.routers] - under.routers, minlength=under.links)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}">',
        f"<title>{escape(title)}</title>",
        f"<style>{_STYLE}</style>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
        *_underlay(under, spots),
        *_used(under, spots, over),
        *(_curves(placement, overlay, spots) if len(overlay.links) <= _CURVED else ()),
        *_shared(under, spots, through, len(overlay.links)),
        *_peers(placement, spots),
        *_names(under, spots),
        *_captions(placement, overlay, title, through, int(over.max(initial=0))),
        "</svg>",
        "",
    ]
    return "\n".join(lines)


def _underlay(under: Underlay, spots: Floats) -> Iterator[str]:
    size = max(1.2, min(4.0, 70 / math.sqrt(under.routers)))
    for kind, css, width in ((LinkKind.INNER, "under", 0.6), (LinkKind.TRANSIT, "under border", 0.9)):
        chosen = under.link_kind == kind
        if kind is LinkKind.TRANSIT:
            chosen |= under.link_kind == LinkKind.BORDER
        path = " ".join(_segment(spots, pair) for pair in under.ends[chosen].tolist())
        yield f'<path class="{css}" stroke-width="{width}" d="{path}"/>'
    dots = " ".join(_disc(x, y, size) for x, y in spots.tolist())
    yield f'<path class="router" d="{dots}"/>'


def _used(under: Underlay, spots: Floats, over: Ints) -> Iterator[str]:
    """The links that overlay links use, the widest on top."""
    most = max(1, int(over.max(initial=0)))
    for link in np.argsort(over, kind="stable").tolist():
        if over[link]:
            width = 1.2 + 6 * math.sqrt(over[link] / most)
            a, b = under.ends[link].tolist()
            said = f"{under.names[a]} – {under.names[b]}: {_counted(int(over[link]), 'overlay link')}"
            colour = _heat(over[link] / most) if over[link] > 1 else _ALONE
            yield (
                f'<path class="used" stroke="{colour}" stroke-opacity="0.75" '
                f'stroke-width="{width:.1f}" d="{_segment(spots, [a, b])}"><title>{escape(said)}</title></path>'
            )


def _curves(placement: Placement, overlay: Overlay, spots: Floats) -> Iterator[str]:
    for link in overlay.links:
        (x1, y1), (x2, y2) = spots[placement.homes[[link.a, link.b]]].tolist()
        bend = 0.12
        cx, cy = (x1 + x2) / 2 - bend * (y2 - y1), (y1 + y2) / 2 + bend * (x2 - x1)
        said = f"overlay link {link.a} – {link.b}"
        curve = f"M{x1:.1f} {y1:.1f}Q{cx:.1f} {cy:.1f} {x2:.1f} {y2:.1f}"
        yield f'<path class="overlay" d="{curve}"><title>{escape(said)}</title></path>'


def _shared(under: Underlay, spots: Floats, through: Ints, links: int) -> Iterator[str]:
    most = max(2, int(through.max(initial=0)))
    for router in np.argsort(-through, kind="stable").tolist():
        if through[router] < 2:
            return
        share = through[router] / most
        x, y = spots[router].tolist()
        said = f"router {under.names[router]} is on {through[router]} of {_counted(links, 'overlay link')}"
        yield (
            f'<circle class="shared" cx="{x:.1f}" cy="{y:.1f}" r="{2.2 + 9 * math.sqrt(share):.1f}" '
            f'fill="{_heat(share)}"><title>{escape(said)}</title></circle>'
        )


def _peers(placement: Placement, spots: Floats) -> Iterator[str]:
    size = 6.5 if placement.peers <= 60 else 4.5
    for peer, home in enumerate(placement.homes.tolist()):
        x, y = spots[home].tolist()
        said = f"peer {peer} on router {placement.underlay.names[home]}"
        yield (
            f'<rect class="peer" x="{x - size / 2:.1f}" y="{y - size / 2:.1f}" width="{size}" height="{size}" '
            f'rx="1.2"><title>{escape(said)}</title></rect>'
        )


def _names(under: Underlay, spots: Floats) -> Iterator[str]:
    """Where two names would overlap, the better connected router has its name."""
    if under.routers <= _LABELLED:
        at = spots + np.array([9.0, -7.0])
        links = np.bincount(under.ends.ravel(), minlength=under.routers)
        for router in readable(under.names, at, _LETTER, np.argsort(-links, kind="stable").tolist()):
            x, y = at[router].tolist()
            yield f'<text class="name" x="{x:.1f}" y="{y:.1f}">{escape(under.names[router])}</text>'


def _captions(placement: Placement, overlay: Overlay, title: str, through: Ints, over: int) -> Iterator[str]:
    """The title, the legend, and the most shared router."""
    under = placement.underlay
    yield f'<text class="title" x="32" y="44">{escape(title)}</text>'
    links = _counted(len(overlay.links), "overlay link")
    sizes = f"{under.routers} routers, {under.links} links; {placement.peers} peers, {links}"
    yield f'<text class="note" x="32" y="68">{escape(sizes)}</text>'
    y = HEIGHT - 58
    yield f'<rect class="peer" x="32" y="{y - 9}" width="9" height="9" rx="1.2"/>'
    yield f'<text class="note" x="50" y="{y}">peer</text>'
    x = 98
    if overlay.links:
        if len(overlay.links) <= _CURVED:
            yield f'<path class="overlay" d="M{x} {y - 2}Q{x + 20} {y - 12} {x + 40} {y - 2}"/>'
            yield f'<text class="note" x="{x + 50}" y="{y}">overlay link</text>'
            x += 150
        yield from _scale(x, y, "underlay link of", "overlay link" if over == 1 else "overlay links", 1, over)
        if through.any():
            yield from _scale(x + 310, y, "router shared by", "of them", 2, int(through.max()))
        x += 620
    yield f'<path d="M{x} {y - 5}H{x + 40}" stroke="#b4bfc9" stroke-width="1.4"/>'
    yield f'<text class="note" x="{x + 50}" y="{y}">unused link</text>'
    yield f'<text class="note" x="32" y="{HEIGHT - 26}">{escape(_finding(under, overlay, through))}</text>'


def _scale(x: float, y: float, what: str, whose: str, low: int, high: int) -> Iterator[str]:
    """The colour scale, with the counts at both ends."""
    steps, width = 12, 5
    for step in range(steps):
        at = low + (high - low) * step / (steps - 1)
        colour = _heat(at / max(high, 1)) if at > 1 else _ALONE
        yield f'<rect class="scale" x="{x + width * step}" y="{y - 10}" width="{width}" height="9" fill="{colour}"/>'
    counts = f"{low}–{high}" if high > low else f"{high}"
    yield f'<text class="note" x="{x + width * steps + 8}" y="{y}">{what} {counts} {whose}</text>'


def _finding(under: Underlay, overlay: Overlay, through: Ints) -> str:
    if not overlay.links:
        return "No overlay is drawn."
    worst = int(np.argmax(through))
    shared = int((through > 1).sum())
    if not shared:
        return "No router is shared by links of different peers."
    return (
        f"{_counted(shared, 'router')} {'is' if shared == 1 else 'are'} shared. If router {under.names[worst]} fails, "
        f"{through[worst]} of {_counted(len(overlay.links), 'overlay link')} fail with it."
    )


def _segment(spots: Floats, pair: list[int]) -> str:
    (x1, y1), (x2, y2) = spots[pair].tolist()
    return f"M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}"


def _disc(x: float, y: float, r: float) -> str:
    return f"M{x - r:.1f} {y:.1f}a{r:.1f} {r:.1f} 0 1 0 {2 * r:.1f} 0a{r:.1f} {r:.1f} 0 1 0 {-2 * r:.1f} 0"


def _heat(share: float) -> str:
    """A colour between pale yellow (0), orange and deep red (1)."""
    stops = ((250, 214, 137), (240, 140, 58), (178, 24, 43))
    at = min(max(float(share), 0.0), 1.0) * (len(stops) - 1)
    low = min(int(at), len(stops) - 2)
    mixed = [round(a + (b - a) * (at - low)) for a, b in zip(stops[low], stops[low + 1], strict=True)]
    return "#{:02x}{:02x}{:02x}".format(*mixed)


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
