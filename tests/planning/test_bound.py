"""The bound on what can be in time, against examples by hand and against trying every choice of routes."""

from collections import Counter
from itertools import product

import numpy as np
import pytest

from benchmarks.on_time_bound import on_time_bound
from benchmarks.overload import measure
from tests.planning.nets import overlay
from wend.model.events import PeerId
from wend.model.units import MS, SECOND
from wend.planning.flow_network import FlowNetwork
from wend.planning.flow_workload import Flow, make_workload

Links = list[tuple[int, int, int, float]]
LINE: Links = [(0, 1, 10 * MS, 100.0), (1, 2, 10 * MS, 100.0), (1, 3, 10 * MS, 100.0)]
RING: Links = [(0, 1, 10 * MS, 100.0), (1, 3, 10 * MS, 100.0), (0, 2, 30 * MS, 100.0), (2, 3, 30 * MS, 100.0)]


def share(links: Links, flows: list[Flow], deadline_ms: float, duration_s: float | None = None) -> float:
    network = FlowNetwork(overlay(1 + max(b for _, b, *_ in links), links))
    duration = None if duration_s is None else round(duration_s * SECOND)
    return on_time_bound(
        network, make_workload(flows, network.names), lambda a, b: int(deadline_ms * MS), duration
    ).share


@pytest.mark.parametrize(("rate", "best"), [(50, 1.0), (100, 1.0), (200, 0.5), (400, 0.25)])
def test_one_link_carries_its_capacity(rate: float, best: float) -> None:
    assert share(LINE, [Flow(0, [1], rate)], 100) == pytest.approx(best)


def test_a_copy_serves_all_receivers_behind_a_link() -> None:
    assert share(LINE, [Flow(0, [1, 2, 3], 100)], 100) == pytest.approx(1.0)
    assert share(LINE, [Flow(0, [2], 100), Flow(0, [3], 100)], 100) == pytest.approx(0.5)


def test_a_route_that_is_too_slow_carries_nothing() -> None:
    """The queue of each link serves a packet for 10 ms, so the routes take 40 and 80 ms."""
    flows = [Flow(0, [3], 200)]
    assert share(RING, flows, 39) == 0.0
    assert share(RING, flows, 40) == pytest.approx(0.5)
    assert share(RING, flows, 80) == pytest.approx(1.0)


def test_a_short_run_can_use_links_until_its_last_deadline() -> None:
    assert share(LINE, [Flow(0, [1], 200)], 100, duration_s=1.0) == pytest.approx(0.55)


def test_the_directions_of_a_link_do_not_share() -> None:
    assert share(LINE, [Flow(0, [1], 100), Flow(1, [0], 100)], 100) == pytest.approx(1.0)


@pytest.mark.parametrize("seed", range(30))
def test_no_choice_of_routes_is_better(seed: int) -> None:
    """Two flows of two events in the time in which a link carries one or two packets, on four or five peers."""
    rng = np.random.default_rng(seed)
    peers = int(rng.integers(3, 5))
    pairs = {(int(rng.integers(i)), i) for i in range(1, peers)}
    pairs |= {tuple(sorted(rng.choice(peers, 2, replace=False).tolist())) for _ in range(2)}
    links: Links = [(a, b, int(rng.integers(1, 4)) * MS, 1e6 * int(rng.integers(1, 3))) for a, b in sorted(pairs)]
    senders = rng.choice(peers, 2, replace=False).tolist()
    wanted = [rng.choice([p for p in range(peers) if p != s], 2, replace=False).tolist() for s in senders]
    deadline_ms = float(rng.integers(3, 8)) + 0.5
    flows = [Flow(s, receivers, 2e6) for s, receivers in zip(senders, wanted, strict=True)]
    best = _best_choice(links, [(s, w) for s, w in zip(senders, wanted, strict=True) for _ in range(2)], deadline_ms)
    bound = share(links, flows, deadline_ms) * 8
    assert best <= bound + 1e-6
    assert best >= bound - 2.0  # fractions gain something, but not much


def _best_choice(links: Links, events: list[tuple[PeerId, list[PeerId]]], deadline_ms: float) -> int:
    """The most deliveries in time, over all choices of routes of all events."""
    capacity = {arc: int(c / 1e6) for a, b, _, c in links for arc in ((a, b), (b, a))}
    delay = {arc: d / MS for a, b, d, _ in links for arc in ((a, b), (b, a))}
    choices = []
    for sender, receivers in events:
        routes = [[None, *_routes(delay, sender, r, deadline_ms)] for r in receivers]
        options: dict[frozenset[tuple[int, int]], int] = {}
        for chosen in product(*routes):
            copies = frozenset(arc for route in chosen if route for arc in route)
            options[copies] = max(options.get(copies, 0), sum(route is not None for route in chosen))
        choices.append(sorted(options.items(), key=lambda option: -option[1]))

    def most(number: int, used: Counter[tuple[int, int]]) -> int:
        if number == len(choices):
            return 0
        best = 0
        for copies, served in choices[number]:
            if served + 2 * (len(choices) - number - 1) > best and all(used[a] < capacity[a] for a in copies):
                best = max(best, served + most(number + 1, used + Counter(copies)))
        return best

    return most(0, Counter())


def _routes(
    delay: dict[tuple[int, int], float], at: PeerId, receiver: PeerId, left_ms: float, seen: tuple[PeerId, ...] = ()
) -> list[tuple[tuple[int, int], ...]]:
    if at == receiver:
        return [()]
    return [
        (arc, *rest)
        for arc, each in delay.items()
        if arc[0] == at and arc[1] not in seen and each <= left_ms
        for rest in _routes(delay, arc[1], receiver, left_ms - each, (*seen, at))
    ]


def test_no_strategy_beats_the_bound() -> None:
    load = measure(["d-tree", "dcrd"], 120.0, 1, 1.0)
    assert load.load == 3.0
    assert all(0 < each.on_time < load.bound <= 1 for each in load.strategies)
    assert all(each.on_time <= each.delivered for each in load.strategies)
