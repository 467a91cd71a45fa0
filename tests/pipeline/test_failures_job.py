"""Spark finds the same routes after failures as one process, and so the same plans."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.planning.nets import networks, overlay, workload
from tests.spark import needs_java
from wend.model.errors import ConfigError
from wend.model.rates import Rate
from wend.pipeline import failures_job
from wend.pipeline.paths_job import SparkPathSearch, workload_targets
from wend.planning.failure_routes import RoutesAfterFailure, RoutesInUse, routes_after_failures
from wend.planning.flow_network import FlowNetwork
from wend.planning.flow_workload import FlowWorkload, draw_workload
from wend.planning.models import parse_goal
from wend.planning.planner import PlanSearch, make_plan
from wend.studies.campr.brite_flat import grow


def flat(routes: RoutesAfterFailure) -> list[Any]:
    """The fields of routes, each array with its type."""
    fields = [*routes._asdict().items(), *routes.graphs._asdict().items()]
    return [
        (name, value.dtype.str, value.tolist()) if isinstance(value, np.ndarray) else (name, value)
        for name, value in fields
        if name != "graphs"
    ]


@given(networks(most=6), st.integers(0, 2**32), st.integers(1, 4))
def test_rows_hold_all_of_the_routes(network: FlowNetwork, seed: int, flows: int) -> None:
    made = workload(network, np.random.Generator(np.random.PCG64(seed)), flows)
    found: list[RoutesAfterFailure] = []

    def note(in_use: RoutesInUse) -> list[RoutesAfterFailure]:
        found.extend(routes_after_failures(in_use))
        return found

    made.demand = made.demand / 1000
    make_plan(network, made, parse_goal("balance"), 4, survive=1, search=PlanSearch(failures=note))
    for routes in found:
        row = {"place": 0, **failures_job.routes_to_row(routes)}
        (read,) = failures_job.read_table_rows(pa.Table.from_pylist([row], schema=failures_job.ROUTES))
        assert flat(failures_job.routes_from_row(read)) == flat(routes)


@pytest.fixture(scope="module")
def network() -> FlowNetwork:
    return FlowNetwork(grow(12, "attached", seed=4), link=Rate(60.0))


@needs_java
@pytest.mark.spark
@pytest.mark.parametrize(("goal", "k", "most"), [("balance", 3, 9), ("min-usage", 2, 12), ("balance", None, 12)])
def test_spark_makes_the_same_plan(
    spark: Any, network: FlowNetwork, tmp_path: Path, goal: str, k: int | None, most: int
) -> None:
    flows = draw_workload(network.peers, 12, popularity=0.5, seed=3, publishers=0.4, rate=8.0)
    paths = SparkPathSearch(spark, workload_targets(flows), "bottleneck-disjoint", tmp_path)
    search = PlanSearch(paths, partial(failures_job.plan_failures_on_spark, spark, folder=tmp_path))
    here = make_plan(network, flows, parse_goal(goal), k, survive=1)
    there = make_plan(network, flows, parse_goal(goal), k, survive=1, search=search)
    for table, columns in here.tables.items():
        for name, values in columns.items():
            np.testing.assert_array_equal(there.tables[table][name], values, f"{table}.{name}")
    assert there.head == here.head
    moved = here.failures["moved"]
    assert (moved.min(), moved.max()) == (0, most), "after some failures all 12 flows move, after others a part or none"


@needs_java
@pytest.mark.spark
def test_the_first_overload_is_the_error(spark: Any, tmp_path: Path) -> None:
    ring = FlowNetwork(overlay(3, [(0, 1, 1, 10.0), (1, 2, 1, 10.0), (0, 2, 1, 10.0)]))
    flows = FlowWorkload(
        np.array([0, 1], dtype=np.int32), np.array([0, 1, 2]), np.array([2, 2], dtype=np.int32),
        np.array([[6.0, 6.0], [0.0, 0.0]]), np.ones(2),
    )  # fmt: skip
    errors = []
    on_spark = partial(failures_job.plan_failures_on_spark, spark, folder=tmp_path)
    for search in (PlanSearch(), PlanSearch(failures=on_spark)):
        with pytest.raises(ConfigError, match="does not survive the failure of link 1-2") as raised:
            make_plan(ring, flows, parse_goal("balance"), 4, survive=1, search=search)
        errors.append(str(raised.value))
    assert len(set(errors)) == 1
