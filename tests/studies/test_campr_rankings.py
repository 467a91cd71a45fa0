"""Rankings of paths (thesis, section 3.5), on a small network."""

import numpy as np
import pytest

from tests.oracles.required_k import required_k
from wend.model.rates import Rate
from wend.planning.path_ranking import RANKINGS, find_ranking
from wend.studies.campr.rankings import MAX_K, RankingTrial, run_ranking
from wend.studies.campr.receivers_floor import compute_floor
from wend.studies.campr.trials import MBIT, CellTrial, draw_cell_workload, make_network

SMALL = {"nodes": 24, "messages": 80}


@pytest.mark.parametrize("name", RANKINGS)
def test_the_required_k_is_that_of_trying_each(name: str) -> None:
    for seed in (1, 2, 3):
        found = run_ranking(RankingTrial(name, **SMALL), seed)  # type: ignore[arg-type]
        cell = CellTrial("honest", popularity=0.25, **SMALL)  # type: ignore[arg-type]
        network, workload = make_network(cell, seed, Rate(MBIT, bits=True)), draw_cell_workload(cell, seed)
        shortest = required_k(network, workload, 1).y[0]
        halfway = (shortest + compute_floor(network, workload)) / 2
        network.peer_capacity *= halfway
        tried = required_k(network, workload, MAX_K, find_ranking(name))
        assert found["solved"] == float(tried.k is not None)
        assert tried.k is None or found["required_k"] == tried.k
        needed = [found[f"needed_at_{k}"] for k in (1, 2, 3, 5, 10)]
        assert needed == sorted(needed, reverse=True) or np.allclose(needed, sorted(needed, reverse=True))
        assert found["gain"] == pytest.approx(needed[0] - needed[-1])


def test_paths_are_measured_against_the_shortest() -> None:
    found = {name: run_ranking(RankingTrial(name, **SMALL), 1) for name in RANKINGS}  # type: ignore[arg-type]
    disjoint = found["bottleneck-disjoint"]
    assert disjoint["needed_at_1"] == pytest.approx(1.0) and disjoint["stretch_first"] == pytest.approx(1.0)
    assert found["rejecting"]["stretch_first"] == pytest.approx(1.0)
    assert found["capacity"]["stretch_first"] > 1.0
    assert found["rejecting"]["paths"] <= disjoint["paths"] <= MAX_K
    assert all(each["stretch"] >= each["stretch_first"] - 1e-9 for each in found.values())
