"""Trials as the work of a sweep: functions of a few fields and a seed that return named numbers.

A study that simulates no overlay (plans of a network, the overlap of paths) is made of these. A kind of trial says
which fields it has, as a Struct that checks and defaults them; which function does it; and which figures come
out. Fields and figures of all kinds of a study are the columns of one table, null where a kind has no such
column. The field `strategy` says who is compared, here as in a scenario.

What a trial returns is kept under a hash of the code that decides it. The file of the function is part of it by
itself; what the function calls must be named in `parts`.
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
from wend.pipeline.code import code_hash
from wend.pipeline.rows import arrow_type
from wend.pipeline.work import check_code, number_or_nothing

_KEYS = [pa.field("run", pa.string()), pa.field("setting", pa.string())]
_RESERVED = {"run", "setting", "place", "kind", "seed", "wall_s", "error", "traceback", "study", "code"}


class Trial(msgspec.Struct, frozen=True):
    """One run: of which kind, with which fields, on which seed."""

    kind: str
    fields: msgspec.Struct
    seed: int


def _alike(fields: object) -> float:
    return 1.0


@dataclass(frozen=True)
class Kind:
    """What the trials of a kind have in common. `fields` and `run` are found by their names on the workers, so both
    stand at the top of a module."""

    name: str
    fields: type[msgspec.Struct]
    run: Callable[[Any, int], Mapping[str, float]]
    """(fields, seed) -> figures; a figure that is left out, or no number, is null."""
    figures: tuple[str, ...]
    parts: tuple[str, ...] = ("model", "topology")
    """Folders and files below src/wend that decide the figures."""
    cost: Callable[[Any], float] = _alike
    """Roughly the seconds that one takes."""

    def trial(self, fields: Mapping[str, Any], seed: int) -> Trial:
        """The trial with these fields, checked; what is not said has its default."""
        own = {name: value for name, value in fields.items() if name != "kind"}
        for name in own:
            if name not in self.fields.__struct_fields__:
                there = ", ".join(self.fields.__struct_fields__)
                raise ConfigError(f"a trial {self.name!r} has no field {name!r}; it has {there}")
        try:
            return Trial(self.name, msgspec.convert(_whole(own, self.fields), self.fields, strict=True), seed)
        except msgspec.ValidationError as error:
            raise ConfigError(f"no trial {self.name!r} can have such fields: {error}") from None

    def columns(self) -> dict[str, pa.DataType]:
        return {name: arrow_type(hint) for name, hint in get_type_hints(self.fields).items()}


@dataclass(frozen=True)
class Trials:
    """The kinds of trials of one study."""

    kinds: tuple[Kind, ...]

    def __post_init__(self) -> None:
        columns: dict[str, pa.DataType] = {}
        for kind in self.kinds:
            if "strategy" not in kind.fields.__struct_fields__:
                raise TypeError(f"trials {kind.name!r} have no field strategy")
            figures = dict.fromkeys(kind.figures, pa.float64())
            for name, column in (*kind.columns().items(), *figures.items()):
                if name in _RESERVED or columns.setdefault(name, column) != column:
                    raise TypeError(f"trials {kind.name!r} cannot have the column {name!r}: it is taken")
            if figures.keys() & kind.columns().keys():
                raise TypeError(f"trials {kind.name!r} have a field and a figure of one name")

    def kind(self, name: str) -> Kind:
        for kind in self.kinds:
            if kind.name == name:
                return kind
        raise ConfigError(f"there is no kind of trial {name!r}; there is {', '.join(k.name for k in self.kinds)}")

    def trial(self, fields: Mapping[str, Any], seed: int) -> Trial:
        """`fields` may say which `kind` it is, and must where there are several."""
        if "kind" not in fields and len(self.kinds) > 1:
            raise ConfigError(f"the kind of a trial is one of {', '.join(kind.name for kind in self.kinds)}")
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
        return (*dict.fromkeys(figure for kind in self.kinds for figure in kind.figures), "wall_s")

    def code(self) -> str:
        return code_hash(self.parts)

    @cached_property
    def parts(self) -> tuple[str, ...]:
        return tuple(sorted({part for kind in self.kinds for part in (*kind.parts, *_file_of(kind.run))}))

    def key(self, run: Trial) -> str:
        text = msgspec.json.encode([run.kind, run.fields, run.seed], order="deterministic")
        return blake2b(text, digest_size=10).hexdigest()

    def setting(self, run: Trial) -> str:
        """What a trial is but for its seed: runs of one setting are averaged."""
        return self.key(msgspec.structs.replace(run, seed=0))

    def row(self, run: Trial, place: int = 0) -> dict[str, Any]:
        keys = {"run": self.key(run), "setting": self.setting(run), "place": place, "kind": run.kind}
        return {**keys, **msgspec.to_builtins(run.fields), "seed": run.seed}

    def cost(self, run: Trial) -> float:
        return self.kind(run.kind).cost(run.fields)

    def figures(self, row: dict[str, Any], code: str) -> dict[str, Any]:
        check_code(self.parts, code)
        kind = self.kind(row["kind"])
        trial = kind.trial({name: row[name] for name in kind.fields.__struct_fields__}, row["seed"])
        began = perf_counter()
        found = kind.run(trial.fields, trial.seed)
        wall_s = perf_counter() - began
        unknown = sorted(found.keys() - set(kind.figures))
        if unknown:
            raise TypeError(f"trials {kind.name!r} return {unknown[0]!r}, which is none of their figures")
        return {**{name: number_or_nothing(float(value)) for name, value in found.items()}, "wall_s": wall_s}


def _whole(own: Mapping[str, Any], fields: type[msgspec.Struct]) -> dict[str, Any]:
    """An axis has floats; a field that counts takes 100.0 for 100, and only then."""
    hints = get_type_hints(fields)
    return {
        name: int(value) if hints[name] is int and isinstance(value, float) and value.is_integer() else value
        for name, value in own.items()
    }


def _file_of(function: Callable[..., object]) -> list[str]:
    """Where a function of ours stands, relative to the package; nothing for one that is not ours."""
    home = Path(wend.__file__).parent
    place = Path(sys.modules[function.__module__].__file__ or "")
    return [place.relative_to(home).as_posix()] if place.is_relative_to(home) else []
