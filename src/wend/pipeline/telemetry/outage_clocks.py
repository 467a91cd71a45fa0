"""The offsets of clocks of peers that saw no common event, from the outages of their links.

Both ends of a link see its outages end at nearly the same moment: within the delay of the link. So the difference
between the clocks of two ends is the same for most of their outages. It is not known in advance which outages of the
two ends belong together. All pairs of about the same length are candidates; the true difference is the one on which
many pairs agree.

Two groups of peers, each with known offsets inside, are compared by all links between them. A difference is accepted if
at least three outages agree on it, and twice as many as on any other. It is right within the longest delay of these
links, which is enough to recognise the outages that both ends saw.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from wend.model.units import MS

Ints = NDArray[np.int64]
Incarnation = tuple[int, int]
"""(peer, incarnation)"""
EndOutages = tuple[Ints, Ints]
"""Start and end of the outages that one end saw, by its own clock."""
Outages = Mapping[Incarnation, Mapping[int, EndOutages]]
"""incarnation -> neighbour -> outages"""
MIN_AGREEING = 3
"""The least number of outages that must agree."""
MIN_LEAD = 2
"""The accepted difference needs this many times the outages of any other."""
WITHIN_NS = 250 * MS
"""The most by which the ends of one outage may differ: the delay of the link, and the time between two probes."""
_MAX_COMPARED = 300
"""Outages of one end of a link that are compared: the last ones."""


def group_outages(rows: Sequence[Ints]) -> dict[Incarnation, dict[int, EndOutages]]:
    """Outages by incarnation and neighbour, from columns: peer, incarnation, neighbour, begin, end."""
    outages: dict[Incarnation, dict[int, list[tuple[int, int]]]] = defaultdict(lambda: defaultdict(list))
    for peer, incarnation, neighbour, begin, end in zip(*(column.tolist() for column in rows), strict=True):
        outages[peer, incarnation][neighbour].append((end, begin))
    seen: dict[Incarnation, dict[int, EndOutages]] = {}
    for node, links in outages.items():
        for neighbour, times in links.items():
            pairs = np.array(sorted(times)[-_MAX_COMPARED:], np.int64)
            seen.setdefault(node, {})[neighbour] = (pairs[:, 1], pairs[:, 0])
    return seen


def join_by_outages(groups: Sequence[Mapping[Incarnation, int]], outages: Outages) -> list[dict[Incarnation, int]]:
    """Join the groups of offsets that outages can compare with the first group. Each group has offsets by a clock of
    its own; the joined group has them by the clock of the first."""
    if len(groups) < 2 or not outages:
        return [dict(group) for group in groups]
    main, others = dict(groups[0]), [dict(group) for group in groups[1:]]
    grew = True
    while grew:
        # Compare all groups with the main group as it is. The next round reaches one link further.
        differences = [(group, _clock_difference(main, group, outages)) for group in others]
        for group, ahead in differences:
            if ahead is not None:
                main |= {node: offset + ahead for node, offset in group.items()}
        others = [group for group, ahead in differences if ahead is None]
        grew = any(ahead is not None for _, ahead in differences)
    return [main, *others]


def _clock_difference(
    main: Mapping[Incarnation, int], group: Mapping[Incarnation, int], outages: Outages
) -> int | None:
    """The difference between the clock of a group and that of the main one; None if outages do not determine it."""
    peers: dict[int, list[Incarnation]] = defaultdict(list)
    for node in main:
        peers[node[0]].append(node)
    ahead: list[Ints] = []
    which: list[Ints] = []
    many = 0
    for node in sorted(group.keys() & outages.keys()):
        for neighbour, (begin, end) in sorted(outages[node].items()):
            for other in peers.get(neighbour, ()):
                theirs = outages.get(other, {}).get(node[0])
                if theirs is None:
                    continue
                a, b = _equally_long_pairs((theirs[0], theirs[1]), (begin, end))
                ahead.append(end[b] - group[node] - (theirs[1][a] - main[other]))
                which.append(b + many)
            many += len(end)
    return _most_common_difference(np.concatenate(ahead), np.concatenate(which)) if ahead else None


def _equally_long_pairs(one: EndOutages, other: EndOutages) -> tuple[Ints, Ints]:
    """Pairs of outages that are about equally long, as positions in both."""
    lengths = (other[1] - other[0])[None, :] - (one[1] - one[0])[:, None]
    a, b = np.nonzero(np.abs(lengths) <= WITHIN_NS)
    return a.astype(np.int64), b.astype(np.int64)


def _most_common_difference(ahead: Ints, which: Ints) -> int | None:
    """The difference on which most outages agree."""
    order = np.argsort(ahead, kind="stable")
    ahead, which = ahead[order], which[order]
    ends = np.searchsorted(ahead, ahead + WITHIN_NS, "right")
    counts = np.array([len(set(which[at:end].tolist())) for at, end in enumerate(ends.tolist())], np.int64)
    if not len(counts) or counts.max() < MIN_AGREEING:
        return None
    best = int(np.argmax(counts))
    first, last = ahead[best], ahead[ends[best] - 1]
    apart = (ahead > last + WITHIN_NS) | (ahead < first - 2 * WITHIN_NS)
    if apart.any() and MIN_LEAD * counts[apart].max() > counts[best]:
        return None
    return int(np.median(ahead[best : ends[best]]))
