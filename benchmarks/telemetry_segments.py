"""Segments of telemetry of an invented overlay, of any size, with known outages, delays and wrong clocks.

    python -m benchmarks.telemetry_segments DIR --peers 100 --hours 24 --samples 100000000 --deliveries 10000000

Links fail now and then, and both ends see it. Every peer publishes to a fixed set of receivers along a tree; now and
then an event waits so long at a peer that it is late. The tests of the jobs on telemetry use it for small overlays.
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from wend.model.telemetry import KEY, TABLES, Segment
from wend.model.units import MS, SECOND

Ints = NDArray[np.int64]
BEGIN_NS = 1_763_424_000 * SECOND
DEADLINE_NS = 200 * MS
TYPES = {"q": pa.int64(), "d": pa.float64(), "s": pa.string()}


@dataclass
class InventedOverlay:
    """An overlay whose outages, delays and clock offsets are known, for comparison with results."""

    peers: int
    duration_ns: int
    period_ns: int = SECOND
    degree: int = 4
    event_period_ns: int = SECOND
    """Of each publisher's sampled events."""
    receivers: int = 3
    outage_every_s: float = 120.0
    detection_ns: int = 160 * MS
    seed: int = 1
    sample: float = 0.01
    offsets: dict[int, int] = field(default_factory=dict)
    """peer -> by how much its clock is ahead"""
    queues: dict[tuple[int, int], float] = field(default_factory=dict)
    """(sender, receiver) -> the share of events that wait there for long; by default one in a hundred"""
    busy: dict[int, float] = field(default_factory=dict)
    """peer -> the share of events that wait in its host"""
    rerouting_ns: int = 0
    """For how long an event waits at most for a link that is down."""
    links: dict[tuple[int, int], int] = field(init=False)
    """(a, b) with a < b -> delay"""
    outages: dict[tuple[int, int], list[tuple[int, int]]] = field(init=False)
    trees: dict[int, list[tuple[int, int]]] = field(init=False)
    """publisher -> (sender, receiver) of each hop, from the publisher on"""
    subscribers: dict[int, list[int]] = field(init=False)

    def __post_init__(self) -> None:
        rng = np.random.default_rng(self.seed)
        pairs = {tuple(sorted((p, (p + 1) % self.peers))) for p in range(self.peers) if self.peers > 1}
        while len(pairs) < min(self.peers * self.degree // 2, self.peers * (self.peers - 1) // 2):
            a, b = rng.integers(0, self.peers, 2).tolist()
            if a != b:
                pairs.add((min(a, b), max(a, b)))
        self.links = {(a, b): int(rng.integers(5, 40)) * MS for a, b in sorted(pairs)}
        self.outages = {link: self._outages(rng) for link in self.links}
        self.trees, self.subscribers = {}, {}
        for publisher in range(self.peers):
            wanted = sorted(rng.choice([p for p in range(self.peers) if p != publisher], self._many(), replace=False))
            self.subscribers[publisher] = [int(peer) for peer in wanted]
            self.trees[publisher] = self._tree(publisher, set(self.subscribers[publisher]))

    def _many(self) -> int:
        return min(self.receivers, self.peers - 1)

    def _outages(self, rng: np.random.Generator) -> list[tuple[int, int]]:
        found, now = [], rng.exponential(self.outage_every_s) * SECOND
        while now < self.duration_ns - 3 * SECOND:
            until = now + SECOND * (1 + rng.exponential(2.0))
            found.append((int(now), int(until)))
            now = until + SECOND * (2 + rng.exponential(self.outage_every_s))
        return found

    def _tree(self, root: int, wanted: set[int]) -> list[tuple[int, int]]:
        near: dict[int, list[int]] = {}
        for a, b in self.links:
            near.setdefault(a, []).append(b)
            near.setdefault(b, []).append(a)
        above, queue = {root: root}, [root]
        for peer in queue:
            for other in near[peer]:
                if other not in above:
                    above[other] = peer
                    queue.append(other)
        needed = set()
        for peer in wanted:
            while peer != root:
                needed.add(peer)
                peer = above[peer]
        return [(above[peer], peer) for peer in queue if peer in needed]

    def delay(self, a: int, b: int) -> int:
        return self.links[min(a, b), max(a, b)]


Rows = dict[str, Any]


def write_segments(folder: Path, overlay: InventedOverlay, chunk_ns: int) -> int:
    """Write the segments of all peers, one for each table and chunk of time; return how many there are."""
    folder.mkdir(parents=True, exist_ok=True)
    total = 0
    for number, begin in enumerate(range(0, overlay.duration_ns, chunk_ns)):
        end = min(begin + chunk_ns, overlay.duration_ns)
        seen = events(overlay, begin, end)
        for peer in range(overlay.peers):
            own = {
                "links": link_samples(overlay, peer, begin, end),
                "changes": changes(overlay, peer, begin, end),
                **{name: rows[peer] for name, rows in seen.items() if peer in rows},
                "heartbeats": heartbeats(overlay, peer, begin, end),
            }
            for table, rows in own.items():
                if len(rows["time_ns"]):
                    write_segment(folder, table, peer, rows, number, offset=overlay.offsets.get(peer, 0))
                    total += 1
    return total


def write_segment(
    folder: Path, table: str, peer: int, rows: Rows, number: int, *, offset: int = 0, incarnation: int | None = None
) -> Path:
    """Write one segment. Times of the rows begin at the start of the overlay, by the right clock."""
    incarnation = BEGIN_NS + offset if incarnation is None else incarnation
    many = len(rows["time_ns"])
    key = {"peer": peer, "incarnation": incarnation, "segment": number}
    columns = [pa.repeat(pa.scalar(key[name], pa.int64()), many) for name, _ in KEY]
    for name, kind in TABLES[table]:
        values = rows.get(name)
        if values is None:
            values = pa.repeat(pa.scalar(0, TYPES[kind]), many)
        if name in ("time_ns", "heard_ns", "wall_ns"):
            values = np.asarray(values, np.int64) + BEGIN_NS + offset
        columns.append(values if isinstance(values, pa.Array) else pa.array(values, TYPES[kind]))
    names = [name for name, _ in (*KEY, *TABLES[table])]
    path = folder / Segment(table, 1, peer, incarnation, number).name
    pq.write_table(pa.table(dict(zip(names, columns, strict=True))), path, compression="zstd")
    return path


def _rng(overlay: InventedOverlay, *what: int) -> np.random.Generator:
    return np.random.default_rng([overlay.seed, *what])


def link_samples(overlay: InventedOverlay, peer: int, begin: int, end: int) -> Rows:
    """The samples of all links of a peer, in the order of their times."""
    rng = _rng(overlay, 1, peer, begin)
    near = [(a + b - peer, (a, b)) for a, b in overlay.links if peer in (a, b)]
    times = np.arange(begin // overlay.period_ns + 1, end // overlay.period_ns + 1, dtype=np.int64) * overlay.period_ns
    many, links = len(times), len(near)
    down = np.zeros((many, links), bool)
    for at, (_, link) in enumerate(near):
        for first, until in overlay.outages[link]:
            down[np.searchsorted(times, first) : np.searchsorted(times, until), at] = True
    base = np.array([overlay.links[link] for _, link in near], np.int64)
    delay = base + rng.integers(0, 2 * MS, (many, links))
    sent = rng.integers(0, 11, (many, links))
    lost = np.where(down, sent, np.minimum(sent, rng.integers(0, 20, (many, links)) == 0))
    flat = down.ravel()
    state = pa.DictionaryArray.from_arrays(pa.array(flat.astype(np.int8)), pa.array(["up", "down"])).cast(pa.string())
    return {
        "time_ns": np.repeat(times, links),
        "neighbour": np.tile(np.array([n for n, _ in near], np.int64), many),
        "state": state,
        "delay_ns": delay.ravel(),
        "reliability": np.where(flat, 0.0, 0.99),
        "sent": sent.ravel(),
        "acknowledged": (sent - lost).ravel(),
        "lost": lost.ravel(),
        "queue_ns": rng.integers(0, MS, many * links),
        "queue_bytes": np.zeros(many * links, np.int64),
        "period_ns": np.full(many * links, overlay.period_ns),
    }


def changes(overlay: InventedOverlay, peer: int, begin: int, end: int) -> Rows:
    """The changes of links that a peer saw."""
    found: list[tuple[int, int, str, int]] = []
    for (a, b), outages in overlay.outages.items():
        if peer not in (a, b):
            continue
        for first, until in outages:
            rng = _rng(overlay, 2, a, b, peer, first)
            heard = first - int(rng.integers(0, overlay.detection_ns // 2))
            down = heard + overlay.detection_ns + int(rng.integers(0, 5 * MS))
            up = until + int(rng.integers(0, overlay.detection_ns // 2))
            found += [(down, a + b - peer, "down", heard), (up, a + b - peer, "up", heard)]
    rows = sorted(row for row in found if begin <= row[0] < end)
    return {
        "time_ns": [time for time, *_ in rows],
        "neighbour": [neighbour for _, neighbour, *_ in rows],
        "state": [state for _, _, state, _ in rows],
        "heard_ns": [heard for *_, heard in rows],
        "detection_ns": [overlay.detection_ns] * len(rows),
    }


def events(overlay: InventedOverlay, begin: int, end: int) -> dict[str, dict[int, Rows]]:
    """Publications, hops and deliveries of all peers. An event belongs to the time of its publication."""
    step = overlay.event_period_ns
    found: dict[str, dict[int, list[Rows]]] = {"publications": {}, "hops": {}, "deliveries": {}}
    for publisher in range(overlay.peers):
        numbers = np.arange(-(-begin // step), -(-end // step), dtype=np.int64)
        times = numbers * step + publisher * (step // (overlay.peers + 1))
        inside = (times >= begin) & (times < end)
        numbers, times = numbers[inside], times[inside]
        if not len(numbers):
            continue
        many = len(numbers)
        event = {
            "publisher": np.full(many, publisher),
            "publisher_incarnation": np.full(many, BEGIN_NS + overlay.offsets.get(publisher, 0)),
            "sequence": numbers * round(1 / overlay.sample),
        }
        subscribers = overlay.subscribers[publisher]
        rows: Rows = {"time_ns": times, **event, "topic": ["t"] * many, "size_bytes": np.full(many, 500)}
        found["publications"].setdefault(publisher, []).append({**rows, "expected": np.full(many, len(subscribers))})
        rng = _rng(overlay, 3, publisher, begin)
        ages = {publisher: np.zeros(many, np.int64)}
        for sender, receiver in overlay.trees[publisher]:
            link = overlay.delay(sender, receiver) + rng.integers(0, 2 * MS, many)
            queued = overlay.queues.get((sender, receiver), 0.01)
            wait = rng.integers(0, MS, many) + np.where(rng.random(many) < queued, 300 * MS, 0)
            wait += np.minimum(_rest_of_outage(overlay, sender, receiver, times + ages[sender]), overlay.rerouting_ns)
            waited = np.zeros(many, np.int64)
            if receiver in overlay.busy:
                waited = np.where(rng.random(many) < overlay.busy[receiver], rng.integers(0, 400 * MS, many), waited)
            age = ages[receiver] = ages[sender] + wait + link + waited
            rows = {"time_ns": times + age, **event, "sender": np.full(many, sender), "age_ns": age}
            rows |= {"link_ns": link + waited, "waited_ns": waited}
            found["hops"].setdefault(receiver, []).append(rows)
        for peer in subscribers:
            age = ages[peer] + MS // 10
            rows = {"time_ns": times + age, **event, "subscription": np.full(many, 1), "age_ns": age}
            rows |= {"deadline_ns": np.full(many, DEADLINE_NS), "size_bytes": np.full(many, 500)}
            found["deliveries"].setdefault(peer, []).append(rows)
    return {table: {peer: _sort_rows(rows) for peer, rows in each.items()} for table, each in found.items()}


def _rest_of_outage(overlay: InventedOverlay, a: int, b: int, times: Ints) -> Ints:
    """How long the link is still down, or 0."""
    outages = np.array(overlay.outages[min(a, b), max(a, b)] or [(-1, -1)], np.int64)
    at = np.maximum(np.searchsorted(outages[:, 0], times, "right") - 1, 0)
    rest: Ints = np.where(times >= outages[at, 0], np.maximum(outages[at, 1] - times, 0), 0)
    return rest


def _sort_rows(rows: list[Rows]) -> Rows:
    joined = {name: np.concatenate([one[name] for one in rows]) for name in rows[0]}
    order = np.argsort(joined["time_ns"], kind="stable")
    return {name: values[order] for name, values in joined.items()}


def heartbeats(overlay: InventedOverlay, peer: int, begin: int, end: int) -> Rows:
    times = np.arange(begin // SECOND + 1, end // SECOND + 1, dtype=np.int64) * SECOND
    nothing = np.zeros(len(times), np.int64)
    rows: Rows = {"time_ns": times, "wall_ns": times, "sample": np.full(len(times), overlay.sample)}
    return {**rows, "published": nothing, "delivered": nothing, "late": nothing, "unwritten": nothing}


def true_outages(overlay: InventedOverlay) -> Iterator[tuple[int, int, int, int]]:
    """a, b, begin and end of each outage, by the right clock."""
    for (a, b), each in sorted(overlay.outages.items()):
        yield from ((a, b, BEGIN_NS + begin, BEGIN_NS + end) for begin, end in each)


def sized_overlay(peers: int, hours: float, samples: int, deliveries: int) -> InventedOverlay:
    """An overlay whose segments have about this many rows."""
    duration = int(hours * 3600 * SECOND)
    degree, receivers = min(10, peers - 1), min(10, peers - 1)
    return InventedOverlay(
        peers,
        duration,
        period_ns=max(1, duration * peers * degree // samples),
        degree=degree,
        event_period_ns=max(1, duration * peers * receivers // max(1, deliveries)),
        receivers=receivers,
        outage_every_s=3600.0,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--peers", type=int, default=100)
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--samples", type=int, default=10**8)
    parser.add_argument("--deliveries", type=int, default=10**7)
    given = parser.parse_args()
    overlay = sized_overlay(given.peers, given.hours, given.samples, given.deliveries)
    chunk = max(overlay.duration_ns // 24, 1)
    print(f"{write_segments(given.folder, overlay, chunk)} segments")


if __name__ == "__main__":
    main()
