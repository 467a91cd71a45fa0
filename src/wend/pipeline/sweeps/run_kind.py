"""The interface between a sweep and its runs.

There are two kinds of run: simulations of a `Scenario` (`simulations.py`), and trials, which are functions of a few
fields and a seed (`trials.py`). Both take rows and return rows, so the same code distributes, stores, resumes and
averages them (`sweep.py`, `seed_means.py`).
"""

import math
from collections.abc import Mapping
from typing import Any, Protocol, TypeVar

import pyarrow as pa

from wend.model.errors import ConfigError
from wend.model.version import core_build
from wend.pipeline.code_hash import COMPILED, hash_code

R_contra = TypeVar("R_contra", contravariant=True)


class RunKind(Protocol[R_contra]):
    """A kind of run. Spark sends an instance to the workers, so it must be small and picklable."""

    @property
    def run_schema(self) -> pa.Schema:
        """The input row: `run` (the key), `setting` (the key without seed), `place` in the queue, and every field."""

    @property
    def result_schema(self) -> pa.Schema:
        """The result row: the same without `place`, then every metric, `wall_s`, `error` and `traceback`."""

    @property
    def averaged(self) -> tuple[str, ...]:
        """The names of the metrics that are averaged over seeds."""

    def code(self) -> str:
        """The hash of the code that decides a run. A run that this code has finished is not repeated."""

    def key(self, run: R_contra) -> str:
        """The key of a run: equal for equal runs, in every process and on every machine."""

    def row(self, run: R_contra, place: int = 0) -> dict[str, Any]: ...

    def cost(self, run: R_contra) -> float:
        """Estimate the seconds of a run on one core. The queue starts slow runs first, and the progress bar counts
        these seconds."""

    def run_metrics(self, row: dict[str, Any], code: str) -> dict[str, Any]:
        """Execute the run of a row. Raises ConfigError if this worker has other code than the driver."""


def check_code(parts: tuple[str, ...], code: str) -> None:
    here = hash_code(parts)
    if here != code and here.removesuffix(COMPILED) == code.removesuffix(COMPILED):
        raise ConfigError(
            f"this worker runs Wend's {core_build()} core, the driver the other one: a sweep does not mix them, so "
            "install the same wheel on both (--ship sends the pure core)"
        )
    if here != code:
        raise ConfigError(
            f"this worker has Wend's code {here}, the driver has {code}: start again if the code "
            "changed meanwhile, or use --ship if the worker has another version"
        )


def fill_columns(row: Mapping[str, Any], schema: pa.Schema) -> dict[str, Any]:
    """A row with all columns of the schema; missing values are null."""
    return {name: row.get(name) for name in schema.names}


def error_row(row: Mapping[str, Any], schema: pa.Schema, error: str, traceback: str) -> dict[str, Any]:
    """The row of a run that raised: its metrics are null, and it has the error."""
    return {**fill_columns(row, schema), "error": error, "traceback": traceback[-4000:]}


def finite_or_null(value: Any) -> Any:
    """Turn a float that is not finite (0 / 0) into null, so that means leave it out."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
