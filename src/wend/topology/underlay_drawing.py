"""Drawing of an underlay with an overlay on it, as SVG. It shows where overlay links that look independent meet.

The underlay is faint. An underlay link is wider the more overlay links use it. A router that several overlay links
share is a disc, larger for more links: its failure takes all of them down. A tooltip says how many. Underlay links with
one overlay link, and routers that only the links of their own peer use, are not shared and have no colour. Overlay
links are curves between peers, above the underlay. Peers are large discs with their numbers; landmarks are stars.
"""

import math
from collections.abc import Iterable, Iterator

import numpy as np

from wend.model.events import PeerId
from wend.pictures import svg
from wend.pictures.labels import Label, Segments, draw_labels, node_box, place_labels
from wend.pictures.palette import HEATS, heat_colour
from wend.pictures.style import SMALL, TEXT, TINY, TITLE
from wend.topology.graph import Overlay
from wend.topology.layout import fit, lay_out, picture_height
from wend.topology.link_overlap import meeting_routers
from wend.topology.placement import Placement
from wend.topology.underlay import Floats, Ints, LinkKind, Underlay

WIDTH = 1200.0
_MARGIN, _INSET, _HEAD = 32.0, 70.0, 84.0
_HEIGHTS = (320.0, 1000.0)
_LABELLED = 70
"""In networks of at most this many routers, the drawing names all for which there is space."""
_CURVED = 150
"""The drawing has curves for overlay links in overlays of at most this many."""
_NUMBERED = 60
"""The drawing numbers peers in overlays of at most this many."""


def draw(placement: Placement, overlay: Overlay, title: str, landmarks: Iterable[PeerId] = ()) -> str:
    """The whole picture."""
    under = placement.underlay
    known = lay_out(under.position, ((a, b) for a, b in under.ends.tolist()))
    size = WIDTH - 2 * (_MARGIN + _INSET), picture_height(known, WIDTH - 2 * (_MARGIN + _INSET), *_HEIGHTS)
    bottom = _HEAD + size[1] + 2 * _MARGIN
    spots = fit(known, (WIDTH / 2, (_HEAD + bottom) / 2), size)
    components = placement.paths(*overlay.ends).components.astype(np.int64)
    through = meeting_routers(placement, overlay)
    over = np.bincount(components[components >= under.routers] - under.routers, minlength=under.links)
    roots = frozenset(landmarks)
    legend, height = _draw_legend(bottom, overlay, through, int(over.max(initial=0)), bool(roots))
    links = _count_text(len(overlay.links), "overlay link")
    lines = np.vstack((_straight_segments(under, spots, over), *_curve_segments(placement, overlay, spots)))
    sizes = f"{under.routers} routers, {under.links} links; {placement.peers} peers, {links}"
    finding = _finding_text(under, overlay, through)
    body = [
        svg.text(_MARGIN, 40, title, TITLE, bold=True),
        svg.text(_MARGIN, 64, sizes, TEXT, "fill-soft"),
        *_draw_underlay(under, spots),
        *_draw_used_links(under, spots, over),
        *(_draw_curves(placement, overlay, spots) if len(overlay.links) <= _CURVED else ()),
        *_draw_shared_routers(under, spots, through, len(overlay.links)),
        *_draw_peers(placement, spots, roots),
        *_draw_names(placement, spots, through, svg.Extent(4, _HEAD - 8, WIDTH - 4, bottom), roots, lines),
        *legend,
        svg.text(_MARGIN, height - 20, finding, TEXT),
    ]
    return svg.document(WIDTH, height, title, body, finding)


def _draw_underlay(under: Underlay, spots: Floats) -> Iterator[str]:
    size = max(1.2, min(4.0, 70 / math.sqrt(under.routers)))
    for kind, width in ((LinkKind.INNER, 0.7), (LinkKind.TRANSIT, 1.0)):
        chosen = under.link_kind == kind
        if kind is LinkKind.TRANSIT:
            chosen |= under.link_kind == LinkKind.BORDER
        path = " ".join(_segment(spots, pair) for pair in under.ends[chosen].tolist())
        if path:
            yield f'<path class="under stroke-faint" stroke-width="{width}" d="{path}"/>'
    dots = " ".join(_draw_disc(x, y, size) for x, y in spots.tolist())
    yield f'<path class="router fill-faint" d="{dots}"/>'


def _draw_used_links(under: Underlay, spots: Floats, over: Ints) -> Iterator[str]:
    """The links that overlay links use, the widest on top."""
    most = max(1, int(over.max(initial=0)))
    for link in np.argsort(over, kind="stable").tolist():
        if over[link]:
            width = 1.2 + 6 * math.sqrt(over[link] / most)
            a, b = under.ends[link].tolist()
            caption = f"{under.names[a]} – {under.names[b]}: {_count_text(int(over[link]), 'overlay link')}"
            yield svg.add_tooltip(
                f'<path class="used stroke-{_colour(int(over[link]), most)}" stroke-opacity="0.75" '
                f'stroke-linecap="round" stroke-width="{width:.1f}" d="{_segment(spots, [a, b])}"/>',
                caption,
            )


def _draw_curves(placement: Placement, overlay: Overlay, spots: Floats) -> Iterator[str]:
    for link in overlay.links:
        ends = spots[placement.homes[[link.a, link.b]]].tolist()
        yield svg.add_tooltip(_curve_path(*ends), f"overlay link {link.a} – {link.b}")


def _control_point(start: list[float], end: list[float]) -> tuple[float, float]:
    """The control point of the curve between two points."""
    (x1, y1), (x2, y2), bend = start, end, 0.12
    return (x1 + x2) / 2 - bend * (y2 - y1), (y1 + y2) / 2 + bend * (x2 - x1)


def _curve_path(start: list[float], end: list[float]) -> str:
    (x1, y1), (x2, y2), (cx, cy) = start, end, _control_point(start, end)
    curve = f"M{x1:.1f} {y1:.1f}Q{cx:.1f} {cy:.1f} {x2:.1f} {y2:.1f}"
    return f'<path class="overlay stroke-blue" fill="none" stroke-width="1.6" stroke-opacity="0.6" d="{curve}"/>'


def _draw_shared_routers(under: Underlay, spots: Floats, through: Ints, links: int) -> Iterator[str]:
    most = max(2, int(through.max(initial=0)))
    for router in np.argsort(-through, kind="stable").tolist():
        if through[router] < 2:
            return
        x, y = spots[router].tolist()
        css = f"shared stroke-paper fill-{_colour(int(through[router]), most)}"
        disc = svg.circle(x, y, round(_radius(int(through[router]), most), 1), css, ' stroke-width="1"')
        yield svg.add_tooltip(
            disc, f"router {under.names[router]} is on {through[router]} of {_count_text(links, 'overlay link')}"
        )


def _draw_peers(placement: Placement, spots: Floats, landmarks: frozenset[PeerId]) -> Iterator[str]:
    """Landmarks come last, so nothing covers them. A number is left out if discs overlap."""
    size = _peer_size(placement)
    numbered: list[svg.Extent] = []
    order = sorted(range(placement.peers), key=lambda peer: peer not in landmarks)
    drawn = []
    for peer in order:
        x, y = spots[placement.homes[peer]].tolist()
        said = f"peer {peer} on router {placement.underlay.names[placement.homes[peer]]}"
        box = node_box(x, y, size)
        shape = [svg.add_tooltip(_draw_star(x, y, 1.9 * size) if peer in landmarks else _draw_peer(x, y, size), said)]
        if placement.peers <= _NUMBERED and not any(box.overlaps(other) for other in numbered):
            shape.append(svg.text(x, y + 3.3, str(peer), TINY, "fill-paper", "middle", bold=True))
            numbered.append(box)
        drawn.append(shape)
    for shape in reversed(drawn):
        yield from shape


def _draw_peer(x: float, y: float, size: float) -> str:
    return svg.circle(x, y, size, "peer fill-blue stroke-paper", ' stroke-width="1.5"')


def _draw_star(x: float, y: float, size: float) -> str:
    corners = [
        (x + r * math.sin(math.pi * i / 5), y - r * math.cos(math.pi * i / 5))
        for i in range(10)
        for r in [size if i % 2 == 0 else 0.55 * size]
    ]
    points = " ".join(f"{px:.1f},{py:.1f}" for px, py in corners)
    return f'<polygon class="landmark fill-green stroke-paper" stroke-width="1.5" points="{points}"/>'


def _draw_names(
    placement: Placement,
    spots: Floats,
    through: Ints,
    bounds: svg.Extent,
    landmarks: frozenset[PeerId],
    lines: Segments,
) -> Iterator[str]:
    """Names of routers: the one in the text below the map, then the rest, the best connected first."""
    under, names = placement.underlay, placement.underlay.names
    worst = [int(np.argmax(through))] if (through > 1).any() else []
    links = np.bincount(under.ends.ravel(), minlength=under.routers)
    others = np.argsort(-links, kind="stable").tolist() if under.routers <= _LABELLED else []
    homes = {int(placement.homes[peer]): peer in landmarks for peer in range(placement.peers)}
    size, most = _peer_size(placement), max(2, int(through.max(initial=0)))

    def radius(router: int) -> float:
        shared = _radius(int(through[router]), most) if through[router] > 1 else 3.0
        home = (1.9 if homes[router] else 1.0) * size if router in homes else 0.0
        return max(shared, home)

    labels = [
        Label(names[router], float(spots[router, 0]), float(spots[router, 1]), radius(router), needed=router in worst)
        for router in dict.fromkeys((*worst, *others))
    ]
    drawn = {*homes, *np.flatnonzero(through > 1).tolist()} if under.routers <= _LABELLED else {*homes, *worst}
    discs = [(*spots[router].tolist(), radius(router)) for router in sorted(drawn)]
    yield from draw_labels(place_labels(labels, bounds, discs=discs, lines=lines))


def _straight_segments(under: Underlay, spots: Floats, over: Ints) -> Segments:
    """The underlay links that labels avoid: the used ones, in small networks all."""
    ends = under.ends if under.routers <= _LABELLED else under.ends[over > 0]
    return np.hstack((spots[ends[:, 0]], spots[ends[:, 1]]))


def _curve_segments(placement: Placement, overlay: Overlay, spots: Floats) -> Iterator[Segments]:
    """The curves of overlay links, each as a few straight lines."""
    for link in overlay.links if len(overlay.links) <= _CURVED else ():
        start, end = spots[placement.homes[[link.a, link.b]]]
        middle = np.array(_control_point(start.tolist(), end.tolist()))
        t = np.linspace(0.0, 1.0, 9)[:, None]
        points = (1 - t) ** 2 * start + 2 * t * (1 - t) * middle + t**2 * end
        yield np.hstack((points[:-1], points[1:]))


def _draw_legend(top: float, overlay: Overlay, through: Ints, over: int, landmarks: bool) -> tuple[list[str], float]:
    """The legend below the map, and the height of the picture."""
    entries: list[tuple[float, list[str], str]] = [(20, [_draw_peer(9, 0, 8)], "peer")]
    if landmarks:
        entries.append((26, [_draw_star(12, 0, 12)], "landmark"))
    if overlay.links and len(overlay.links) <= _CURVED:
        entries.append((40, [_curve_path([0, 4], [36, 4])], "overlay link"))
    if overlay.links:
        whose = "overlay link" if over == 1 else "overlay links"
        entries.append(_make_colour_scale("underlay link of", whose, 1, over))
        if through.any():
            entries.append(_make_colour_scale("router shared by", "of them", 2, int(through.max())))
    entries.append((38, [svg.line(0, 0, 34, 0, "stroke-faint", 1.4)], "unused link"))
    elements: list[str] = []
    x, y = _MARGIN, top + 22
    for width, shapes, words in entries:
        wide = width + 6 + svg.text_width(words, SMALL)
        if x + wide > WIDTH - _MARGIN:
            x, y = _MARGIN, y + 26
        elements.append(f'<g transform="translate({x:.1f}, {y:.1f})">{"".join(shapes)}</g>')
        elements.append(svg.text(x + width + 6, y + 4, words, SMALL, "fill-soft"))
        x += wide + 24
    return elements, y + 54


def _make_colour_scale(what: str, whose: str, low: int, high: int) -> tuple[float, list[str], str]:
    """The colour scale, with the counts at both ends."""
    colours = ["used"] if low == 1 else []
    colours += [colour for colour in HEATS if high > 1]
    boxes = [
        f'<rect class="scale fill-{colour}" x="{14 * place}" y="-6" width="14" height="11"/>'
        for place, colour in enumerate(colours)
    ]
    counts = f"{low}–{high}" if high > low else f"{high}"
    return 14.0 * len(colours), boxes, f"{what} {counts} {whose}"


def _finding_text(under: Underlay, overlay: Overlay, through: Ints) -> str:
    if not overlay.links:
        return "No overlay is drawn."
    worst = int(np.argmax(through))
    shared = int((through > 1).sum())
    if not shared:
        return "No router is shared by links of different peers."
    return (
        f"{_count_text(shared, 'router')} {'is' if shared == 1 else 'are'} shared. "
        f"If router {under.names[worst]} fails, "
        f"{through[worst]} of {_count_text(len(overlay.links), 'overlay link')} fail with it."
    )


def _peer_size(placement: Placement) -> float:
    return 9.0 if placement.peers <= _NUMBERED else 5.0


def _radius(links: int, most: int) -> float:
    return 2.2 + 10 * math.sqrt(links / most)


def _colour(count: int, most: int) -> str:
    """The colour of a link or router that `count` overlay links use."""
    return "used" if count < 2 else heat_colour((count - 2) / max(1, most - 2))


def _segment(spots: Floats, pair: list[int]) -> str:
    (x1, y1), (x2, y2) = spots[pair].tolist()
    return f"M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}"


def _draw_disc(x: float, y: float, r: float) -> str:
    return f"M{x - r:.1f} {y:.1f}a{r:.1f} {r:.1f} 0 1 0 {2 * r:.1f} 0a{r:.1f} {r:.1f} 0 1 0 {-2 * r:.1f} 0"


def _count_text(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
