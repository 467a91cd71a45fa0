"""Trials, as a kind of run that a sweep executes: functions of a few fields and a seed that return metrics.

A study that simulates no overlay (plans of a network, the overlap of paths) consists of trials. A kind of trial names
its fields, as a Struct that checks them and has defaults; its function; and the metrics that the function returns. The
fields and metrics of all kinds of a study are the columns of one table, null if a kind lacks the column. The field
`strategy` names the strategy under comparison, as in a scenario.

The result of a trial is stored under a hash of the code that decides it. The hash includes the file of the function.
`parts` must name the sources of everything that the function calls.
"""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from time import perf_counter
from typing import Any, get_type_hints

import msgspec
import pyarrow as pa

import wend
from wend.model.errors import ConfigError
from wend.pipeline.code_hash import hash_code
from wend.pipeline.scenario_rows import arrow_type
from wend.pipeline.sweeps.run_kind import check_code, finite_or_null

_KEYS = [pa.field("run", pa.string()), pa.field("setting", pa.string())]
_RESERVED = {"run", "setting", "place", "kind", "seed", "wall_s", "error", "traceback", "study", "code"}


class Trial(msgspec.Struct, frozen=True):
    """One run: its kind, its fields and its seed."""

    kind: str
    fields: msgspec.Struct
    seed: int


@dataclass(frozen=True)
class TrialKind:
    """A kind of trial. Workers import `fields` and `run` by name, so both must be at the top level of a module."""

    name: str
    fields: type[msgspec.Struct]
    run: Callable[[Any, int], Mapping[str, float]]
    """(fields, seed) -> metrics. A metric that is missing or not a number is null."""
    metrics: tuple[str, ...]
    parts: tuple[str, ...] = ("model", "topology")
    """Folders and files below src/wend that decide the metrics."""
    cost: Callable[[Any], float] = lambda _: 1.0
    """Estimates the seconds that a trial takes."""

    def trial(self, fields: Mapping[str, Any], seed: int) -> Trial:
        """Make a trial from checked fields. A missing field has its default."""
        own = {name: value for name, value in fields.items() if name != "kind"}
        for name in own:
            if name not in self.fields.__struct_fields__:
                there = ", ".join(self.fields.__struct_fields__)
                raise ConfigError(f"a trial {self.name!r} has no field {name!r}; it has {there}")
        try:
            return Trial(
                self.name, msgspec.convert(_convert_whole_floats(own, self.fields), self.fields, strict=True), seed
            )
        except msgspec.ValidationError as error:
            raise ConfigError(f"a trial {self.name!r} cannot have these fields: {error}") from None

    def columns(self) -> dict[str, pa.DataType]:
        return {name: arrow_type(hint) for name, hint in get_type_hints(self.fields).items()}


@dataclass(frozen=True)
class Trials:
    """The kinds of trials of one study."""

    kinds: tuple[TrialKind, ...]

    def __post_init__(self) -> None:
        columns: dict[str, pa.DataType] = {}
        for kind in self.kinds:
            if "strategy" not in kind.fields.__struct_fields__:
                raise TypeError(f"trials {kind.name!r} have no field strategy")
            metrics = dict.fromkeys(kind.metrics, pa.float64())
            for name, column in (*kind.columns().items(), *metrics.items()):
                if name in _RESERVED or columns.setdefault(name, column) != column:
                    raise TypeError(
                        f"trials {kind.name!r} cannot have the column {name!r}: another column has this name"
                    )
            if metrics.keys() & kind.columns().keys():
                raise TypeError(f"trials {kind.name!r} have a field and a metric of the same name")

    def kind(self, name: str) -> TrialKind:
        for kind in self.kinds:
            if kind.name == name:
                return kind
        raise ConfigError(f"there is no kind of trial {name!r}; the kinds are {', '.join(k.name for k in self.kinds)}")

    def trial(self, fields: Mapping[str, Any], seed: int) -> Trial:
        """Make a trial. `fields` must name the `kind` if there are several."""
        if "kind" not in fields and len(self.kinds) > 1:
            raise ConfigError(f"a trial needs a kind, one of {', '.join(kind.name for kind in self.kinds)}")
        return self.kind(fields.get("kind", self.kinds[0].name)).trial(fields, seed)

    @property
    def run_schema(self) -> pa.Schema:
        return pa.schema([*_KEYS, pa.field("place", pa.int32()), *self._fields()])

    @property
    def result_schema(self) -> pa.Schema:
        numbers = [pa.field(name, pa.float64()) for name in self.averaged]
        texts = [pa.field(name, pa.string()) for name in ("error", "traceback")]
        return pa.schema([*_KEYS, *self._fields(), *numbers, *texts])

    def _fields(self) -> list[pa.Field]:
        columns: dict[str, pa.DataType] = {"kind": pa.string()}
        for kind in self.kinds:
            columns |= kind.columns()
        return [pa.field(name, column) for name, column in {**columns, "seed": pa.int64()}.items()]

    @property
    def averaged(self) -> tuple[str, ...]:
        return (*dict.fromkeys(metric for kind in self.kinds for metric in kind.metrics), "wall_s")

    def code(self) -> str:
        return hash_code(self.parts)

    @cached_property
    def parts(self) -> tuple[str, ...]:
        return tuple(sorted({part for kind in self.kinds for part in (*kind.parts, *_find_function_files(kind.run))}))

    def key(self, run: Trial) -> str:
        text = msgspec.json.encode([run.kind, run.fields, run.seed], order="deterministic")
        return blake2b(text, digest_size=10).hexdigest()

    def setting(self, run: Trial) -> str:
        """The key of a trial without its seed. Metrics are averaged over the runs of one setting."""
        return self.key(msgspec.structs.replace(run, seed=0))

    def row(self, run: Trial, place: int = 0) -> dict[str, Any]:
        keys = {"run": self.key(run), "setting": self.setting(run), "place": place, "kind": run.kind}
        return {**keys, **msgspec.to_builtins(run.fields), "seed": run.seed}

    def cost(self, run: Trial) -> float:
        return self.kind(run.kind).cost(run.fields)

    def run_metrics(self, row: dict[str, Any], code: str) -> dict[str, Any]:
        check_code(self.parts, code)
        kind = self.kind(row["kind"])
        trial = kind.trial({name: row[name] for name in kind.fields.__struct_fields__}, row["seed"])
        began = perf_counter()
        metrics = kind.run(trial.fields, trial.seed)
        wall_s = perf_counter() - began
        unknown = sorted(metrics.keys() - set(kind.metrics))
        if unknown:
            raise TypeError(f"trials {kind.name!r} return {unknown[0]!r}, which is not one of their metrics")
        return {**{name: finite_or_null(float(value)) for name, value in metrics.items()}, "wall_s": wall_s}


def _convert_whole_floats(own: Mapping[str, Any], fields: type[msgspec.Struct]) -> dict[str, Any]:
    """Convert whole floats to int if the field is an int, because the values of an axis are floats."""
    hints = get_type_hints(fields)
    return {
        name: int(value) if hints[name] is int and isinstance(value, float) and value.is_integer() else value
        for name, value in own.items()
    }


def _find_function_files(function: Callable[..., object]) -> list[str]:
    """The file of a function, relative to the package; nothing for a function from outside the package."""
    home = Path(wend.__file__).parent
    place = Path(sys.modules[function.__module__].__file__ or "")
    return [place.relative_to(home).as_posix()] if place.is_relative_to(home) else []
