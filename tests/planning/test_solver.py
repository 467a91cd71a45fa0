"""The solver finds the optimum, also after changes of a program that it has solved."""

import highspy
import numpy as np
import pytest
from scipy.optimize import linprog

from wend.planning.solver import LinearProgram

A, B, C = 1.4999998500000147, 2.249999775000022, 4.499999550000044
LOADS = (
    {2: A, 6: A, 9: B, 1: -B, 7: -C, 11: -A},
    {4: A, 1: -B},
    {2: A, 3: B, 6: A, 10: A, 0: -B, 1: -B, 7: -C, 11: -A},
    {5: B, 6: A, 8: C, 10: A, 0: -B, 1: -B, 7: -C, 11: -A},
    {4: A, 5: B, 8: C, 1: -B, 7: -C},
)  # fmt: skip
"""How much more each graph loads each row than the default graph, which loads rows 0, 1, 7 and 11."""
DEFAULT = {0: B, 1: B, 7: C, 11: A}


def test_a_program_is_solved_although_the_last_basis_cannot_be_repaired() -> None:
    """Bounds and costs change as in `master_problem.optimise`. HiGHS 1.15 returns `Unknown` for the last basis."""
    program, rows = LinearProgram(), 12
    program.load(
        cost=np.ones(1), lower=np.zeros(1), upper=np.array([np.inf]), row_lower=np.full(rows, -np.inf),
        row_upper=np.array([-DEFAULT.get(row, 0.0) for row in range(rows)]), ptr=np.array([0, rows], dtype=np.int32),
        index=np.arange(rows, dtype=np.int32), value=np.full(rows, -1.0),
    )  # fmt: skip
    ptr = np.concatenate(([0], np.cumsum([len(each) for each in LOADS]))).astype(np.int32)
    index = np.array([row for each in LOADS for row in each], dtype=np.int32)
    program.add(np.zeros(5), ptr, index, np.array([load for each in LOADS for load in each.values()]), upper=1.0)
    columns = np.arange(6, dtype=np.int32)
    program.add_rows(np.ones(1), np.zeros(1, dtype=np.int32), columns[1:], np.ones(5))
    program.set_cost(columns, np.array([1.0, 0, 0, 0, 0, 0]))
    first = program.solve()
    assert first is not None
    program.set_bounds(0, 0.0, 1.0)
    costs = np.array([0, 0, 0, 0, 0, 0.002])
    program.set_cost(columns, costs)
    second = program.solve()
    matrix = np.zeros((rows + 1, 6))
    matrix[:rows, 0], matrix[rows, 1:] = -1.0, 1.0
    for column, loads in enumerate(LOADS, 1):
        matrix[list(loads), column] = list(loads.values())
    limits = [*(-DEFAULT.get(row, 0.0) for row in range(rows)), 1.0]
    expected = linprog(costs, matrix, limits, bounds=[(0, 1)] * 6)
    assert second is not None and second.objective == pytest.approx(expected.fun, abs=1e-9)


def test_an_infeasible_program_has_no_solution() -> None:
    program = LinearProgram()
    program.load(
        cost=np.ones(1), lower=np.zeros(1), upper=np.ones(1), row_lower=np.array([2.0]),
        row_upper=np.array([highspy.kHighsInf]), ptr=np.array([0, 1], dtype=np.int32),
        index=np.zeros(1, dtype=np.int32), value=np.ones(1),
    )  # fmt: skip
    assert program.solve() is None
