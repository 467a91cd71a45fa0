"""A week of telemetry in which known things went wrong, for the pictures of docs/telemetry.md.

    python -m benchmarks.telemetry_week week
    wend data links week --out links --window 30m --picture docs/figures/telemetry-links.svg
    wend data late week --out late --window 1h --picture docs/figures/telemetry-late.svg

Sixteen peers with four links each publish once a minute. All links fail for seconds now and then. Beside this, one link
is maintained every night, one is cut for a day and a half, one flaps during working hours, one gets worse from day to
day, and one peer is off for an afternoon. Queues are long on one link, and one host is busy.
"""

import argparse
from pathlib import Path

import numpy as np

from benchmarks.telemetry_segments import InventedOverlay, write_segments
from wend.model.units import MS, SECOND

MINUTE, HOUR, DAY = 60 * SECOND, 3600 * SECOND, 86_400 * SECOND
Span = tuple[int, int]


def make_week() -> InventedOverlay:
    """The overlay of the week."""
    made = InventedOverlay(
        16,
        7 * DAY,
        period_ns=MINUTE,
        event_period_ns=MINUTE,
        receivers=5,
        outage_every_s=6 * 3600.0,
        seed=7,
        rerouting_ns=400 * MS,
    )
    rng = np.random.default_rng(7)
    links = list(made.links)
    maintained, cut, flapping, worse, crowded = (links[at] for at in (3, 9, 14, 20, 25))
    off = 11
    wrong: dict[tuple[int, int], list[Span]] = {
        maintained: [(day * DAY + 2 * HOUR, day * DAY + 2 * HOUR + 40 * MINUTE) for day in range(7)],
        cut: [(DAY + 9 * HOUR + 20 * MINUTE, 2 * DAY + 20 * HOUR + 50 * MINUTE)],
        flapping: [
            span
            for day in (0, 1, 2, 3, 6)
            for span in _flapping(rng, day * DAY + 8 * HOUR, day * DAY + 18 * HOUR, 8 * MINUTE, 60 * SECOND)
        ],
        worse: [
            span
            for day in range(7)
            for span in _flapping(rng, day * DAY, (day + 1) * DAY, HOUR // (day + 1), (20 + 20 * day) * SECOND)
        ],
    }
    for link in links:
        if off in link:
            wrong[link] = [*wrong.get(link, []), (4 * DAY + 11 * HOUR, 4 * DAY + 17 * HOUR + 30 * MINUTE)]
    for link, spans in wrong.items():
        made.outages[link] = _merge_spans([*made.outages[link], *spans])
    made.queues = {crowded: 0.04, crowded[::-1]: 0.04}
    made.busy = {5: 0.02}
    return made


def _flapping(rng: np.random.Generator, begin: int, end: int, every: int, length: int) -> list[Span]:
    found, now = [], begin + int(rng.exponential(every))
    while now < end:
        until = now + int(length * (0.3 + rng.exponential(0.7)))
        found.append((now, min(until, end)))
        now = until + int(rng.exponential(every))
    return found


def _merge_spans(spans: list[Span]) -> list[Span]:
    """The spans in order; adjacent ones are merged."""
    found: list[Span] = []
    for begin, end in sorted(spans):
        if found and begin <= found[-1][1] + 2 * SECOND:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((begin, end))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    print(f"{write_segments(parser.parse_args().folder, make_week(), DAY)} segments")


if __name__ == "__main__":
    main()
