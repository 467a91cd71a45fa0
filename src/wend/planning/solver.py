"""HiGHS with arrays for input and output. It uses one thread, so the same model gives the same solution."""

from pathlib import Path
from typing import NamedTuple

import highspy
import numpy as np

from wend.model.errors import ConfigError, WendError
from wend.planning.arrays import Flags, Floats, Ints

FREE = highspy.kHighsInf


class LpSolution(NamedTuple):
    values: Floats
    row_duals: Floats
    objective: float


class LinearProgram:
    """A linear program to minimise: columns with costs and bounds, rows with bounds. After a change, the solver starts
    from the last basis."""

    def __init__(self) -> None:
        self.highs = highspy.Highs()  # type: ignore[no-untyped-call]
        for option, value in (
            ("output_flag", False),
            ("threads", 1),
            ("parallel", "off"),
            ("random_seed", 0),
            ("solver", "simplex"),
        ):
            self.highs.setOptionValue(option, value)

    def load(
        self, *, cost: Floats, lower: Floats, upper: Floats, row_lower: Floats, row_upper: Floats,
        ptr: Ints, index: Ints, value: Floats, whole: Flags | None = None,
    ) -> None:  # fmt: skip
        """Load a program, with its matrix by columns. `whole` tells which columns are integral."""
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = len(cost), len(row_lower)
        lp.col_cost_, lp.col_lower_, lp.col_upper_ = cost, lower, upper
        lp.row_lower_, lp.row_upper_ = row_lower, row_upper
        lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
        lp.a_matrix_.start_, lp.a_matrix_.index_, lp.a_matrix_.value_ = ptr, index, value
        if whole is not None:
            self.highs.setOptionValue("solver", "choose")  # the simplex method alone would ignore integrality
            self.highs.setOptionValue("mip_rel_gap", 1e-9)
            kinds = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
            lp.integrality_ = [kinds[int(each)] for each in whole]
        self.highs.passModel(lp)

    def add(self, cost: Floats, ptr: Ints, index: Ints, value: Floats, *, upper: Floats | float) -> None:
        """Add columns with values from 0 to `upper`."""
        count = len(cost)
        self.highs.addCols(count, cost, np.zeros(count), np.full(count, upper), len(index), ptr[:-1], index, value)

    def add_rows(self, upper: Floats, starts: Ints, index: Ints, value: Floats) -> None:
        """Add rows with values of at most `upper`."""
        free = np.full(len(upper), -highspy.kHighsInf)
        self.highs.addRows(len(upper), free, upper, len(index), starts, index, value)

    @property
    def row_count(self) -> int:
        return int(self.highs.getNumRow())

    def set_cost(self, columns: Ints, cost: Floats) -> None:
        self.highs.changeColsCost(len(columns), columns.astype(np.int32), cost)

    def set_names(self, columns: list[str], rows: list[str]) -> None:
        """Name all columns and rows, for `write`."""
        for number, column in enumerate(columns):
            self.highs.passColName(number, column)
        for number, row in enumerate(rows):
            self.highs.passRowName(number, row)

    def write(self, path: Path) -> None:
        """Write the program as LP or MPS, by the ending of the name."""
        if not path.parent.is_dir() or self.highs.writeModel(str(path)) == highspy.HighsStatus.kError:
            raise ConfigError(f"cannot write {path}", code="unwritable")

    def set_value(self, row: int, column: int, value: float) -> None:
        self.highs.changeCoeff(row, column, value)

    def bound_row(self, row: int, upper: float) -> None:
        self.highs.changeRowBounds(row, -FREE, upper)

    def set_bounds(self, column: int, lower: float, upper: float) -> None:
        self.highs.changeColBounds(column, lower, upper)

    def solve(self) -> LpSolution | None:
        """The optimum; None if the program is infeasible."""
        self.highs.run()
        if self.highs.getModelStatus() == highspy.HighsModelStatus.kUnknown:
            # The simplex method sometimes fails to repair the last basis after a change. It succeeds without it.
            self.highs.clearSolver()
            self.highs.run()
        status = self.highs.getModelStatus()
        if status in (highspy.HighsModelStatus.kInfeasible, highspy.HighsModelStatus.kUnboundedOrInfeasible):
            return None
        if status != highspy.HighsModelStatus.kOptimal:
            raise WendError(f"the solver stopped: {self.highs.modelStatusToString(status)}")
        solution = self.highs.getSolution()
        objective = float(self.highs.getInfo().objective_function_value)
        return LpSolution(np.array(solution.col_value), np.array(solution.row_dual), objective)
