"""What a sweep must know about its runs, whatever they are.

There are two kinds of work: simulations of a `Scenario` (`simulations.py`), and trials, which are functions of a few
fields and a seed (`trials.py`). Both are rows in and rows out, so both are spread, kept, resumed and
averaged by the same code (`sweep.py`, `metrics.py`).
"""

import math
from collections.abc import Mapping
from typing import Any, Protocol, TypeVar

import pyarrow as pa

from wend.model.errors import ConfigError
from wend.pipeline.code import code_hash

R_contra = TypeVar("R_contra", contravariant=True)


class Work(Protocol[R_contra]):
    """One kind of run. An instance travels to the workers, so it is small and can be pickled."""

    @property
    def run_schema(self) -> pa.Schema:
        """Rows in: `run` (the key), `setting` (the key but for the seed), `place` in the queue, and every field."""

    @property
    def result_schema(self) -> pa.Schema:
        """Rows out: the same without `place`, every figure, `wall_s`, `error` and `traceback`."""

    @property
    def averaged(self) -> tuple[str, ...]:
        """The figures that have a mean over seeds."""

    def code(self) -> str:
        """Names the code that decides what a run gives; nothing that it made is run again."""

    def key(self, run: R_contra) -> str:
        """The same for equal runs, in every process and on every machine."""

    def row(self, run: R_contra, place: int = 0) -> dict[str, Any]: ...

    def cost(self, run: R_contra) -> float:
        """Roughly the seconds of a run on one core, to put the slow runs first and to guess the time left."""

    def figures(self, row: dict[str, Any], code: str) -> dict[str, Any]:
        """Do the run that a row holds, by the code that the driver asked for and no other."""


def check_code(parts: tuple[str, ...], code: str) -> None:
    here = code_hash(parts)
    if here != code:
        raise ConfigError(
            f"this worker has Wend's code {here}, the driver has {code}: start again if the code was "
            "changed meanwhile, use --ship if the worker has another version"
        )


def known(row: Mapping[str, Any], schema: pa.Schema) -> dict[str, Any]:
    """A row with all columns of the schema, null where it says nothing."""
    return {name: row.get(name) for name in schema.names}


def error_row(row: Mapping[str, Any], schema: pa.Schema, error: Exception, traceback: str) -> dict[str, Any]:
    """A run that raised: its figures are null, its sentence is kept."""
    return {**known(row, schema), "error": f"{type(error).__name__}: {error}", "traceback": traceback[-4000:]}


def number_or_nothing(value: Any) -> Any:
    """A share of nothing is no number; a null leaves it out of every mean."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
