"""Routes under load: they follow prices, share links, and are as good as the best of all, found by trying."""

from itertools import pairwise, permutations
from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from tests.protocol.views import seen
from wend.model.events import EventId
from wend.model.units import FOREVER, MS
from wend.protocol.plugins import View
from wend.strategies.adaptive.priced_routes import (
    CLASSES,
    HOP_NS,
    LINK_NS,
    PricedRoutes,
    SpreadRoutes,
    class_weight,
    event_class,
)

ME = 0
WEIGHT = 1.0


def view(links: dict[tuple[int, int], int], prices: dict[tuple[int, int], int]) -> View:
    """Delays in ms of links in both directions, prices in ms of single directions."""
    costs: dict[int, dict[int, int]] = {}
    for (a, b), delay in links.items():
        costs.setdefault(a, {})[b] = costs.setdefault(b, {})[a] = delay * MS
    told: dict[int, dict[int, int]] = {}
    for (a, b), price in prices.items():
        told.setdefault(a, {})[b] = price * MS
    mine = {
        peer: SimpleNamespace(delay_ns=delay, queue_ns=0, price_ns=told.get(ME, {}).get(peer, 0))
        for peer, delay in costs[ME].items()
    }
    return seen(ME, mine, costs=costs, prices=told)


def test_a_full_link_is_avoided_and_a_route_that_is_too_slow_is_not_taken() -> None:
    seen = view({(0, 1): 10, (0, 2): 15, (1, 3): 10, (2, 3): 15}, {(1, 3): 40})
    routes = PricedRoutes(seen)
    assert SpreadRoutes(routes, seen, WEIGHT).choose(3, (1, 2), 200 * MS) == (2, 15 * MS + HOP_NS)
    assert SpreadRoutes(routes, seen, WEIGHT).choose(3, (1, 2), 25 * MS + 2 * HOP_NS) == (1, 10 * MS + HOP_NS)
    assert SpreadRoutes(routes, seen, WEIGHT).choose(3, (1, 2), 15 * MS + HOP_NS) is None
    assert SpreadRoutes(routes, seen, WEIGHT).choose(9, (1, 2), FOREVER) is None


def test_a_destination_that_costs_too_much_is_not_worth_to_be_in_time() -> None:
    seen = view({(0, 1): 10, (1, 2): 10}, {(1, 2): 400})
    spreading = SpreadRoutes(PricedRoutes(seen), seen, WEIGHT)
    assert spreading.choose(2, (1,), 200 * MS) is None
    assert spreading.choose(2, (1,), FOREVER) == (1, 10 * MS + HOP_NS)


def test_a_second_destination_joins_the_route_of_the_first() -> None:
    """To 4 the route over 2 is the shorter one, but the packet goes to 1 and 3 anyway."""
    seen = view({(0, 1): 10, (0, 2): 10, (1, 3): 10, (2, 4): 10, (3, 4): 5}, {(0, 1): 1})
    spreading = SpreadRoutes(PricedRoutes(seen), seen, WEIGHT)
    assert spreading.choose(3, (1, 2), 200 * MS) == (1, 10 * MS + HOP_NS)
    assert spreading.choose(4, (1, 2), 200 * MS) == (1, 15 * MS + 2 * HOP_NS)
    assert SpreadRoutes(PricedRoutes(seen), seen, WEIGHT).choose(4, (1, 2), 200 * MS) == (2, 10 * MS + HOP_NS)


def test_the_events_of_a_publisher_are_of_all_classes_in_turn() -> None:
    for step in (1, 2, 3, 7):  # one topic of several
        numbers = [event_class(EventId(5, 1, n)) for n in range(0, 64 * step, step)]
        assert all(2 <= numbers.count(number) <= 6 for number in range(CLASSES))
    weights = [class_weight(number) for number in range(CLASSES)]
    assert (min(weights), max(weights)) == (0.5 + 0.5 / CLASSES, 1.5 - 0.5 / CLASSES)


PEERS = range(1, 6)
LINKS = [(a, b) for a in range(6) for b in range(a + 1, 6)]


@given(
    st.lists(st.sampled_from(LINKS), min_size=5, unique=True),
    st.lists(st.integers(1, 50), min_size=15, max_size=15),
    st.dictionaries(st.sampled_from([*LINKS, *[(b, a) for a, b in LINKS]]), st.integers(1, 80)),
)
def test_the_first_choice_costs_no_more_than_the_shortest_route_and_is_in_time(
    links: list[tuple[int, int]], delays: list[int], prices: dict[tuple[int, int], int]
) -> None:
    drawn = {link: delays[i] for i, link in enumerate(links)}
    drawn.setdefault((0, 1), 5)
    seen = view(drawn, {link: price for link, price in prices.items() if tuple(sorted(link)) in drawn})
    costs, told = seen.graph.costs, seen.graph.prices
    for dest in PEERS:
        others = [peer for peer in PEERS if peer != dest]
        routes = [
            (ME, *between, dest)
            for size in range(len(others) + 1)
            for between in permutations(others, size)
            if all(b in costs.get(a, {}) for a, b in pairwise((ME, *between, dest)))
        ]
        found = SpreadRoutes(PricedRoutes(seen), seen, WEIGHT).choose(dest, tuple(costs[ME]), FOREVER)
        if not routes:
            assert found is None
            continue
        assert found is not None
        hop, rest = found
        delay = {route: sum(costs[a][b] + HOP_NS for a, b in pairwise(route)) for route in routes}
        price = {route: sum(LINK_NS + told.get(a, {}).get(b, 0) for a, b in pairwise(route)) for route in routes}
        same = [route for route in routes if route[1] == hop and delay[route] == costs[ME][hop] + HOP_NS + rest]
        assert same, "no route is like that"
        shortest = min(routes, key=lambda route: delay[route])
        cost = min(delay[route] + WEIGHT * price[route] for route in same)
        assert cost <= delay[shortest] + WEIGHT * price[shortest]
