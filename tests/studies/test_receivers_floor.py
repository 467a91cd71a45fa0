"""The k that a workload requires, and the floor that does not depend on k."""

import numpy as np
import pytest

from tests.oracles.optimal_plan import optimal
from tests.oracles.required_k import required_k
from tests.planning.nets import overlay
from tests.planning.test_models import instance
from wend.model.rates import Rate
from wend.planning.delivery_graphs import make_delivery_graphs
from wend.planning.flow_network import FlowNetwork
from wend.planning.flow_workload import Flow, make_workload
from wend.planning.models import Goal, balance
from wend.planning.problem import make_problem
from wend.studies.campr.receivers_floor import compute_floor, compute_floor_loss


def test_no_plan_is_below_the_floor() -> None:
    met = 0
    for seed in range(30):
        network, made, *_ = instance(seed, peers=5, flows=2, rates=2)
        best = optimal(network, made, Goal("balance"))
        assert best is not None
        assert compute_floor(network, made) <= best * (1 + 1e-6), seed
        met += compute_floor(network, made) > 0.9 * best
    assert met > 5, "the floor must be near the optimum sometimes"


def test_k_is_the_first_that_fits() -> None:
    seen = set()
    for seed in range(40):
        network, made, *_ = instance(seed, rates=9)
        found = required_k(network, made, 4)
        seen.add(found.k)
        for k, y in enumerate(found.y, 1):
            assert y == pytest.approx(balance(make_problem(network, made, make_delivery_graphs(network, made, k))).y), (
                seed
            )
        assert all(y > 1 for y in found.y[:-1])
        if found.k is not None:
            assert found.k == len(found.y)
            assert found.y[-1] <= 1 + 1e-6
    assert len(seen) > 2


def test_the_search_stops_at_the_floor() -> None:
    ring = FlowNetwork(overlay(3, [(0, 1, 1, 10.0), (1, 2, 1, 10.0), (0, 2, 1, 10.0)]), peer=Rate(10.0))
    found = required_k(ring, make_workload([Flow(0, [1], 30)], ring.names), 9)
    assert found.k is None
    assert found.floor == pytest.approx(3.0)
    assert np.array(found.y) == pytest.approx([3.0])


def test_receivers_lose_what_their_links_cannot_carry() -> None:
    """Peer 2 receives 20 of the 30 that it wants, peer 1 all of its 30: its links carry 30."""
    chain = FlowNetwork(overlay(3, [(0, 1, 1, 10.0), (1, 2, 1, 20.0)]))
    made = make_workload([Flow(0, [1, 2], 30)], chain.names)
    assert compute_floor_loss(chain, made) == pytest.approx(10 / 60)
    assert compute_floor_loss(chain, made, 0.5) == pytest.approx((15 + 20) / 60)
    assert compute_floor_loss(chain, made, 1.5) == 0.0
    assert compute_floor(chain, made) == pytest.approx(1.5)
