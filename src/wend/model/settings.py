"""Settings: each is declared once, as a field of a struct, and everything else follows from the declaration.

    class LinkSettings(Settings):
        detection_ns: Annotated[Nanos, setting("How soon a peer notices a dead link.", unit="ms")] = 160 * MS

The field's name without its unit is the name that people use, in a peer's file, in a scenario and as a flag:
`detection`. People write a duration with its unit (`160ms`); code reads `settings.detection_ns`, in nanoseconds.

A rule between settings is declared beside one of them and names others; `check_rules` checks all:

    anonymous: Annotated[float, setting("...", requires=Rule(("underlay",), "concerns routers, ..."))] = 0.0
"""

import types
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from inspect import get_annotations
from math import isfinite
from operator import ge, gt, le, lt
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    Protocol,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
    runtime_checkable,
)

import msgspec

from wend.model.error_text import describe_field_error, join_with_and, join_with_or
from wend.model.errors import ConfigError
from wend.model.events import as_scalar
from wend.model.units import MINUTE, MS, SECOND, Nanos, parse_duration, parse_milliseconds

DURATION_SUFFIX = "_ns"
_UNITS: dict[str, Nanos] = {"ms": MS, "s": SECOND, "min": MINUTE}
_KINDS = {bool: "bool", int: "int", float: "float", str: "text"}

SettingValue = bool | int | float | str | list[Any] | dict[str, Any] | None
"""A setting as TOML or JSON has it."""
Kind = Literal["bool", "int", "float", "text", "choice", "duration", "table"]
Tier = Literal["everyday", "tuning"]
_BOUNDS = (("low", ge, "at least"), ("high", le, "at most"), ("above", gt, "above"), ("below", lt, "below"))


@dataclass_transform(frozen_default=True, kw_only_default=True)  # so are subclasses, by inheritance
class Settings(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A group of settings. A subclass declares the fields, and its docstring describes them."""

    title: ClassVar[str] = ""
    """The heading of the group in the help and on the reference page."""
    undeclared: ClassVar[frozenset[str]] = frozenset()
    """Fields that are not settings."""


Values = Mapping[str, Any]
"""Typed values of settings, by name."""


class Rule(msgspec.Struct, frozen=True):
    """Other settings on which one depends, and the reason."""

    settings: tuple[str, ...]
    why: str
    """For `requires`: the sentence after the setting's name. Else a clause."""


class OnlyFor(msgspec.Struct, frozen=True):
    """The values of another setting for which one has an effect."""

    setting: str
    values: tuple[str, ...]
    why: str = ""
    """The reason for any other value, with `{value}` in it."""

    def reason(self, value: Any) -> str:
        """Why the setting has no effect for this value of the other one."""
        return self.why.format(value=value) if self.why else f"it is for {join_with_or(self.values)}, not for {value}"


@runtime_checkable
class CheckedTable(Protocol):
    """A table that knows which of its values go together."""

    def check(self, name: str) -> None:
        """Raise ConfigError for a table that cannot work; `name` is its setting."""


class Setting(msgspec.Struct, frozen=True):
    """One setting: its declaration, then what follows from the declared field."""

    about: str
    """Its purpose, in one sentence."""
    unit: str = ""
    """How people think of a duration (`ms`, `s`, `min`), or the end of the field's name. Bounds of durations count in
    it."""
    title: str = ""
    """A heading within a long group, for this field and those that follow."""
    tier: Tier = "tuning"
    """Whether most people meet it, or only those who tune a strategy."""
    low: float | None = None
    high: float | None = None
    """`low` and `high` belong to the range; `above` and `below` do not."""
    above: float | None = None
    below: float | None = None
    check: Callable[[str, Any], None] | None = None
    """Raises ConfigError for a value that the type and the bounds allow; called with the name and the value."""
    requires: Rule | None = None
    """The setting is refused without any of these."""
    excludes: Rule | None = None
    """The setting is refused together with any of these."""
    only_for: OnlyFor | None = None
    """The setting changes nothing unless another one has one of these values."""
    only_with: Rule | None = None
    """The setting changes nothing without any of these."""
    replaced_by: Rule | None = None
    """The setting changes nothing together with any of these."""

    owner: type[Settings] = Settings
    """The group that declares it."""
    name: str = ""
    """What people call it."""
    field: str = ""
    """What code calls it; a duration ends in `_ns`."""
    kind: Kind = "text"
    type: Any = None
    """The type that code sees, without None."""
    default: Any = None
    """As code sees it; `msgspec.NODEFAULT` if a value has to be given."""
    choices: tuple[str, ...] = ()
    optional: bool = False
    pair: bool = False
    """Whether it is a range: two values, the lower one first."""

    @property
    def column(self) -> str:
        """Its column in a table: units end the name."""
        return f"{self.name}_{self.unit}" if self.unit else self.name

    @property
    def heading(self) -> str:
        """The heading under which help shows it."""
        return self.title if self.tier == "everyday" else f"Tuning: {self.title}"

    @property
    def flag(self) -> str:
        """Its option on the command line."""
        return flag_name(self.name)

    @property
    def is_required(self) -> bool:
        return self.default is msgspec.NODEFAULT

    def value_text(self, value: Any) -> str:
        """A value as a person would type it, for helps and pages."""
        written = self.write(value)
        match written:
            case None:
                return ""
            case bool():
                return str(written).lower()
            case float():
                return f"{written:g}"
            case list() if self.pair:
                return " ".join(each if isinstance(each, str) else f"{each:g}" for each in written)
        return "" if written in ([], (), {}) else str(written)

    def is_set(self, value: Any) -> bool:
        """Whether a value differs from the default. A switch that is off and one that is not given are the same."""
        return bool(value) != bool(self.default) if self.kind == "bool" else bool(value != self.default)

    # ---------------------------------------------------------------- as people write it

    def read(self, value: Any) -> Any:
        """The typed value of a text or number that a person wrote. Raises ConfigError with a sentence for that
        person."""
        if value is None and self.optional:
            return None
        typed = self._read_pair(value) if self.pair else self._read_single(value)
        if self.check is not None:
            self.check(self.name, typed)
        return typed

    def write(self, value: Any) -> SettingValue:
        """The inverse of `read`: the value as a person would write it."""
        if value is None:
            return None
        if self.pair:
            return [self._write_single(each) for each in value]
        written: SettingValue = self._write_single(value)
        return written

    # ---------------------------------------------------------------- as a table has it

    def in_unit(self, value: Any) -> Any:
        """The value for a table: a duration is a number of its unit."""
        if value is None or self.kind not in ("duration", "table"):
            return list(value) if self.pair and value is not None else value
        if self.kind == "table":
            return _to_plain(value)
        return [each / _UNITS[self.unit] for each in value] if self.pair else value / _UNITS[self.unit]

    def from_unit(self, value: Any) -> Any:
        """The inverse of `in_unit`."""
        if value is None:
            return None
        if self.kind == "table":
            return self._convert_table(value)
        if self.kind != "duration":
            return tuple(value) if self.pair else value
        per = _UNITS[self.unit]
        return tuple(round(each * per) for each in value) if self.pair else round(value * per)

    # ---------------------------------------------------------------- one value

    def _read_pair(self, value: Any) -> tuple[Any, Any]:
        if not isinstance(value, list | tuple):
            raise ConfigError(f"{self.name} must be a list of 2, got {value!r}")
        if len(value) != 2:
            raise ConfigError(f"{self.name} must be a list of 2, got {len(value)}")
        low, high = (self._read_single(each) for each in value)
        if low > high:
            raise ConfigError(f"{self.name} needs the lower value first, got {value[0]} and {value[1]}")
        return low, high

    def _read_single(self, value: Any) -> Any:
        typed = self._convert(value)
        if self.kind in ("int", "float", "duration"):
            self._check_range(typed, value)
        return typed

    def _write_single(self, value: Any) -> Any:
        match self.kind:
            case "duration":
                return _duration_text(value, self.unit)
            case "table":
                return _to_plain(value)
        return value

    def _convert(self, value: Any) -> Any:
        value = as_scalar(value)
        match self.kind:
            case "bool":
                if isinstance(value, bool):
                    return value
                raise ConfigError(f"{self.name} must be true or false, got {value!r}")
            case "choice":
                if value in self.choices:
                    return value
                raise ConfigError(f"{self.name} must be {join_with_or(self.choices)}, got {value!r}")
            case "text":
                if isinstance(value, str):
                    return value
                raise ConfigError(f"{self.name} must be a text, got {value!r}")
            case "duration":
                if not isinstance(value, str):
                    raise ConfigError(f'{self.name} needs a unit: "{value}{self.unit}", not {value!r}')
                return parse_milliseconds(value, self.name) if self.unit == "ms" else parse_duration(value)
            case "table":
                return self._convert_table(value)
        return self._parse_number(value)

    def _parse_number(self, value: Any) -> int | float:
        whole = self.kind == "int"
        if isinstance(value, bool) or not isinstance(value, int | float) or (whole and value % 1):
            raise ConfigError(f"{self.name} must be {'a whole number' if whole else 'a number'}, got {value!r}")
        return int(value) if whole else float(value)

    def _convert_table(self, value: Any) -> Any:
        """A value of the setting's own type, checked by the type if it can."""
        holder = msgspec.defstruct("Holder", [(self.name, self.type)])
        plain = (
            msgspec.to_builtins(value) if isinstance(value, msgspec.Struct) else value
        )  # 1 becomes 1.0, if so declared
        try:
            table = getattr(msgspec.convert({self.name: plain}, holder), self.name)
        except msgspec.ValidationError as error:
            cause = error.__cause__
            raise ConfigError(
                str(cause) if isinstance(cause, ConfigError) else describe_field_error(error, holder)
            ) from None
        if isinstance(table, CheckedTable):
            table.check(self.name)
        return table

    def _check_range(self, typed: float, value: Any) -> None:
        number, unit = (typed / _UNITS[self.unit], f" {self.unit}") if self.kind == "duration" else (typed, "")
        if self.low is not None and self.high is not None and not self.low <= number <= self.high:
            raise ConfigError(f"{self.name} must lie in {self.low:g}..{self.high:g}{unit}, got {value}")
        for side, holds, words in _BOUNDS:
            bound = getattr(self, side)
            if bound is not None and not holds(number, bound):
                raise ConfigError(f"{self.name} must be {words} {bound:g}{unit}, got {value}")
        if not isfinite(number):
            raise ConfigError(f"{self.name} must be a finite number, got {value}")


setting = Setting
"""Declares a setting, as the annotation of its field."""
everyday = partial(Setting, tier="everyday")
"""The same for a setting that most people meet."""


def _to_plain(value: Any) -> Any:
    """Convert a value to the lists and tables of TOML."""
    return msgspec.json.decode(msgspec.json.encode(value))


def flag_name(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _duration_text(value: Nanos, unit: str) -> str:
    """Exactly this duration, in its unit; seconds if minutes would need a fraction."""
    if unit == "min" and value % MINUTE:
        unit = "s"
    per = _UNITS[unit]
    whole, rest = divmod(value, per)
    fraction = f"{rest:0{len(str(per)) - 1}d}".rstrip("0")
    return f"{whole}.{fraction}{unit}" if fraction else f"{whole}{unit}"


@cache
def declared_settings(group: type[Settings]) -> tuple[Setting, ...]:
    """The settings that a struct declares, in their order."""
    hints = get_type_hints(group, include_extras=True)
    fields = [field for field in msgspec.structs.fields(group) if field.name not in group.undeclared]
    settings = [_make_setting(group, field.name, hints[field.name], _default_value(field)) for field in fields]
    for number, each in enumerate(settings):
        before = settings[number - 1] if number else each
        title = each.title or (before.title if before.owner is each.owner else "") or each.owner.title
        settings[number] = msgspec.structs.replace(each, title=title)
    return tuple(settings)


def _default_value(field: msgspec.structs.FieldInfo) -> Any:
    """The default value of a field. An empty table is a new one for each struct, as msgspec makes it."""
    return field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()


def _make_setting(group: type[Settings], field: str, hint: Any, default: Any) -> Setting:
    if get_origin(hint) is not Annotated:
        raise TypeError(f"{group.__name__}.{field} has no setting(...): say what it is for")
    kind, declared = get_args(hint)[:2]
    kind, optional = _strip_none(kind)
    pair = get_origin(kind) is tuple and len(get_args(kind)) == 2 and get_args(kind)[1] is not Ellipsis
    scalar = get_args(kind)[0] if pair else kind
    choices: tuple[str, ...] = get_args(scalar) if get_origin(scalar) is Literal else ()
    is_duration = field.endswith(DURATION_SUFFIX)
    unit = declared.unit or ("ms" if is_duration else "")
    owner: type[Settings] = next(each for each in group.__mro__ if field in get_annotations(each))
    complete: Setting = msgspec.structs.replace(
        declared,
        name=field.removesuffix(DURATION_SUFFIX if is_duration else f"_{unit}"),
        field=field,
        kind="choice" if choices else "duration" if is_duration else _KINDS.get(scalar, "table"),
        type=kind,
        default=default,
        unit=unit,
        choices=choices,
        optional=optional,
        pair=pair,
        owner=owner,
    )
    return complete


def _strip_none(hint: Any) -> tuple[Any, bool]:
    """A type without None, and whether None was allowed."""
    if get_origin(hint) not in (Union, types.UnionType):
        return hint, False
    members = [each for each in get_args(hint) if each is not types.NoneType]
    return members[0], len(members) < len(get_args(hint))


# ---------------------------------------------------------------- rules between settings


def check_rules(settings: Iterable[Setting], values: Values) -> None:
    """Raise ConfigError for the first setting that lacks another one, or excludes it. Default values break no rule."""
    by_name = {each.name: each for each in settings}
    present = {name for name, each in by_name.items() if each.is_set(values[name])}
    for name in [each for each in by_name if each in present]:
        requires, excludes = by_name[name].requires, by_name[name].excludes
        if requires is not None and present.isdisjoint(requires.settings):
            raise ConfigError(f"{name} {requires.why}")
        if excludes is not None and (others := [each for each in excludes.settings if each in present]):
            raise ConfigError(f"{excludes.why}: leave out {join_with_and(others)}")


def unused_settings(settings: Iterable[Setting], values: Values) -> dict[str, str]:
    """The settings that change nothing beside these values, each with the reason."""
    every = tuple(settings)
    present = {each.name for each in every if each.is_set(values[each.name])}
    unused = {}
    for each in every:
        if each.only_for is not None and values[each.only_for.setting] not in each.only_for.values:
            unused[each.name] = each.only_for.reason(values[each.only_for.setting])
        elif each.only_with is not None and present.isdisjoint(each.only_with.settings):
            unused[each.name] = each.only_with.why
        elif each.replaced_by is not None and not present.isdisjoint(each.replaced_by.settings):
            unused[each.name] = each.replaced_by.why
    return unused
