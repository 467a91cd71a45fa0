"""Linear models of plans as files, for other solvers: LP or MPS, by the ending of the name.

A file holds the whole model, with a column for every candidate graph. Its objective is that of the goal alone. The
later stages, which choose among equally good plans, are left out. `x_F_G` is the share of flow F on its G-th graph, `y`
the highest load as a share of its capacity; `usage` and `delay` are in the units of plan.json, per second.
"""

from pathlib import Path

import numpy as np

from wend.model.errors import ConfigError
from wend.planning.arrays import Longs, run_numbers, run_offsets
from wend.planning.models import Goal, first_objective
from wend.planning.problem import CapacityRows, Problem
from wend.planning.route_choice import Candidates
from wend.planning.solver import FREE, LinearProgram

ENDINGS = (".lp", ".mps")
UNITS = ("msgs", "bps")


def check_model_file(path: Path | None) -> None:
    if path is not None and path.suffix not in ENDINGS:
        raise ConfigError(f"a model is written as {' or '.join(ENDINGS)}, and {path} ends in neither")


def write_model(path: Path, candidates: Candidates, goal: Goal, rows: CapacityRows, names: tuple[str, ...]) -> None:
    check_model_file(path)
    problem = candidates.problem
    program = make_whole_program(problem, goal, candidates.max_load)
    of_flow = problem.of_flow
    flow = run_numbers(of_flow)
    columns = [
        f"x_{f}_{g}" for f, g in zip(flow.tolist(), (np.arange(len(flow)) - of_flow[flow]).tolist(), strict=True)
    ]
    capacities = [
        f"{'peer' if b < 0 else 'link'}_{a}{'' if b < 0 else f'_{b}'}_{UNITS[unit]}"
        for a, b, unit in zip(rows.a.tolist(), rows.b.tolist(), rows.unit.tolist(), strict=True)
    ]
    program.set_names([*columns, "y"], [*capacities, *(f"flow_{f}" for f in range(len(of_flow) - 1))])
    program.write(path)


def make_whole_program(problem: Problem, goal: Goal, max_load: float) -> LinearProgram:
    """The model with all graphs: each row says that its load is at most y of its capacity, or that the shares of a flow
    sum to one."""
    objective = first_objective(problem, goal)
    graphs, rows, flows = len(problem.hops), len(problem.capacity), len(problem.of_flow) - 1
    flow = run_numbers(problem.of_flow)
    whose = run_numbers(problem.ptr)
    loads = problem.demand[problem.unit[problem.rows], flow[whose]] / problem.capacity[problem.rows]
    ptr, index, value = _add_flow_rows(problem, loads, rows + flow)
    program = LinearProgram()
    program.load(
        cost=np.append(problem.costs(objective), objective.y),
        lower=np.zeros(graphs + 1),
        upper=np.append(np.ones(graphs), max_load),
        row_lower=np.append(np.full(rows, -FREE), np.ones(flows)),
        row_upper=np.append(np.zeros(rows), np.ones(flows)),
        ptr=np.append(ptr, ptr[-1] + rows).astype(np.int32),
        index=np.concatenate((index, np.arange(rows))).astype(np.int32),
        value=np.concatenate((value, np.full(rows, -1.0))),
    )
    return program


def _add_flow_rows(problem: Problem, loads: np.ndarray, rows_of_flows: Longs) -> tuple[Longs, np.ndarray, np.ndarray]:
    """The columns of graphs: the rows that they load, and after them the row of their flow."""
    ends = problem.ptr[1:]
    index = np.insert(problem.rows.astype(np.int64), ends, rows_of_flows)
    value = np.insert(loads, ends, 1.0)
    return run_offsets(np.diff(problem.ptr) + 1), index, value
