"""Settings: each is declared once, as a field of a struct, and everything else follows from the declaration.

    class LinkSettings(Settings):
        detection_ns: Annotated[Nanos, setting("How soon a peer notices a dead link.", unit="ms")] = 160 * MS

The field's name without its unit is the name that people use, in a peer's file, in a scenario and as a flag:
`detection`. People write a duration with its unit (`160ms`); code reads `settings.detection_ns`, in nanoseconds.
"""

import types
from functools import cache
from inspect import get_annotations
from math import isfinite
from typing import Annotated, Any, ClassVar, Literal, Union, dataclass_transform, get_args, get_origin, get_type_hints

import msgspec

from wend.model.error_text import either, reworded
from wend.model.errors import ConfigError
from wend.model.events import as_scalar
from wend.model.units import MINUTE, MS, SECOND, Nanos, parse_duration, parse_short

DURATION_SUFFIX = "_ns"
_UNITS: dict[str, Nanos] = {"ms": MS, "s": SECOND, "min": MINUTE}
_KINDS = {bool: "bool", int: "int", float: "float", str: "text"}

SettingValue = bool | int | float | str | list[Any] | dict[str, Any] | None
"""A setting as TOML or JSON has it."""
Kind = Literal["bool", "int", "float", "text", "choice", "duration", "table"]


@dataclass_transform(frozen_default=True, kw_only_default=True)  # so are subclasses, by inheritance
class Settings(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A group of settings. A subclass declares the fields; its docstring says what they are about."""

    title: ClassVar[str] = ""
    """The heading of the group in the help and on the reference page."""
    undeclared: ClassVar[frozenset[str]] = frozenset()
    """Fields that are no settings."""


class _Declared(msgspec.Struct, frozen=True):
    about: str
    unit: str
    title: str
    low: float | None
    high: float | None
    above: float | None
    below: float | None


def setting(
    about: str,
    *,
    unit: str = "",
    title: str = "",
    low: float | None = None,
    high: float | None = None,
    above: float | None = None,
    below: float | None = None,
) -> _Declared:
    """Declare a setting, as the annotation of its field.

    `unit` is how people think of a duration (`ms`, `s`, `min`), or the end of the field's name; bounds of durations
    count in it. `low` and `high` belong to the range, `above` and `below` do not. `title` is a heading of its own,
    where the group is long.
    """
    return _Declared(about, unit, title, low, high, above, below)


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """One setting, as its declaration says."""

    name: str
    """What people call it."""
    field: str
    """What code calls it; a duration ends in `_ns`."""
    kind: Kind
    type: Any
    """The type that code sees, without None."""
    default: Any
    """As code sees it; `msgspec.NODEFAULT` where a value has to be given."""
    about: str
    title: str
    unit: str = ""
    low: float | None = None
    high: float | None = None
    above: float | None = None
    below: float | None = None
    choices: tuple[str, ...] = ()
    optional: bool = False
    pair: bool = False
    """Whether it is a range: two values, the lower one first."""
    owner: type[Settings] = Settings
    """The group that declares it."""

    @property
    def column(self) -> str:
        """Its column in a table: units end the name."""
        return f"{self.name}_{self.unit}" if self.unit else self.name

    @property
    def flag(self) -> str:
        """Its option on the command line."""
        return flag_of(self.name)

    @property
    def required(self) -> bool:
        return self.default is msgspec.NODEFAULT

    def shown(self, value: Any) -> str:
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

    # ---------------------------------------------------------------- as people write it

    def read(self, value: Any) -> Any:
        """The value that code sees, from what a person wrote. Raises ConfigError with the sentence that they need."""
        if value is None and self.optional:
            return None
        if not self.pair:
            return self._read_one(value)
        if not isinstance(value, list | tuple):
            raise ConfigError(f"{self.name} must be a list of 2, got {value!r}")
        if len(value) != 2:
            raise ConfigError(f"{self.name} must be a list of 2, got {len(value)}")
        low, high = (self._read_one(each) for each in value)
        if low > high:
            raise ConfigError(f"{self.name} needs the lower value first, got {value[0]} and {value[1]}")
        return low, high

    def write(self, value: Any) -> SettingValue:
        """The inverse of `read`: what a person would write."""
        if value is None:
            return None
        if self.pair:
            return [self._write_one(each) for each in value]
        written: SettingValue = self._write_one(value)
        return written

    # ---------------------------------------------------------------- as a table has it

    def in_unit(self, value: Any) -> Any:
        """The value for a table: a duration is a number of its unit."""
        if value is None or self.kind not in ("duration", "table"):
            return list(value) if self.pair and value is not None else value
        if self.kind == "table":
            return _plain(value)
        return [each / _UNITS[self.unit] for each in value] if self.pair else value / _UNITS[self.unit]

    def from_unit(self, value: Any) -> Any:
        """The inverse of `in_unit`."""
        if value is None:
            return None
        if self.kind == "table":
            return self._table(value)
        if self.kind != "duration":
            return tuple(value) if self.pair else value
        per = _UNITS[self.unit]
        return tuple(round(each * per) for each in value) if self.pair else round(value * per)

    # ---------------------------------------------------------------- one value

    def _read_one(self, value: Any) -> Any:
        read = self._converted(value)
        self._check_range(read, value)
        return read

    def _write_one(self, value: Any) -> Any:
        match self.kind:
            case "duration":
                return _duration_text(value, self.unit)
            case "table":
                return _plain(value)
        return value

    def _converted(self, value: Any) -> Any:
        value = as_scalar(value)
        match self.kind:
            case "bool":
                if isinstance(value, bool):
                    return value
                raise ConfigError(f"{self.name} must be true or false, got {value!r}")
            case "choice":
                if value in self.choices:
                    return value
                raise ConfigError(f"{self.name} must be {either(self.choices)}, got {value!r}")
            case "text":
                if isinstance(value, str):
                    return value
                raise ConfigError(f"{self.name} must be a text, got {value!r}")
            case "duration":
                if not isinstance(value, str):
                    raise ConfigError(f'{self.name} needs a unit: "{value}{self.unit}", not {value!r}')
                return parse_short(value, self.name) if self.unit == "ms" else parse_duration(value)
            case "table":
                return self._table(value)
        return self._number(value)

    def _number(self, value: Any) -> int | float:
        whole = self.kind == "int"
        if isinstance(value, bool) or not isinstance(value, int | float) or (whole and value % 1):
            raise ConfigError(f"{self.name} must be {'a whole number' if whole else 'a number'}, got {value!r}")
        return int(value) if whole else float(value)

    def _table(self, value: Any) -> Any:
        holder = msgspec.defstruct("Holder", [(self.name, self.type)])
        try:
            return getattr(msgspec.convert({self.name: value}, holder), self.name)
        except msgspec.ValidationError as error:
            cause = error.__cause__
            raise ConfigError(str(cause) if isinstance(cause, ConfigError) else reworded(error, holder)) from None

    def _check_range(self, read: Any, value: Any) -> None:
        if self.kind not in ("int", "float", "duration"):
            return
        number = read / _UNITS[self.unit] if self.kind == "duration" else read
        unit = f" {self.unit}" if self.kind == "duration" else ""
        low, high, above, below = self.low, self.high, self.above, self.below
        if low is not None and high is not None and not low <= number <= high:
            raise ConfigError(f"{self.name} must lie in {low:g}..{high:g}{unit}, got {value}")
        if low is not None and not number >= low:
            raise ConfigError(f"{self.name} must be at least {low:g}{unit}, got {value}")
        if high is not None and not number <= high:
            raise ConfigError(f"{self.name} must be at most {high:g}{unit}, got {value}")
        if above is not None and not number > above:
            raise ConfigError(f"{self.name} must be above {above:g}{unit}, got {value}")
        if below is not None and not number < below:
            raise ConfigError(f"{self.name} must be below {below:g}{unit}, got {value}")
        if not isfinite(number):
            raise ConfigError(f"{self.name} must be a finite number, got {value}")


def _plain(value: Any) -> Any:
    """As TOML has it: lists and tables."""
    return msgspec.json.decode(msgspec.json.encode(value))


def flag_of(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _duration_text(value: Nanos, unit: str) -> str:
    """Exactly this duration, in its unit if that takes no more than a decimal fraction."""
    if unit == "min" and value % MINUTE:
        unit = "s"
    per = _UNITS[unit]
    whole, rest = divmod(value, per)
    fraction = f"{rest:0{len(str(per)) - 1}d}".rstrip("0")
    return f"{whole}.{fraction}{unit}" if fraction else f"{whole}{unit}"


@cache
def settings_of(group: type[Settings]) -> tuple[Setting, ...]:
    """The settings that a struct declares, in their order."""
    hints = get_type_hints(group, include_extras=True)
    fields = [field for field in msgspec.structs.fields(group) if field.name not in group.undeclared]
    return tuple(_setting(group, field.name, hints[field.name], _default(field)) for field in fields)


def _default(field: msgspec.structs.FieldInfo) -> Any:
    """msgspec makes an empty table anew for each struct."""
    return field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()


def _setting(group: type[Settings], field: str, hint: Any, default: Any) -> Setting:
    if get_origin(hint) is not Annotated:
        raise TypeError(f"{group.__name__}.{field} has no setting(...): say what it is for")
    kind, declared = get_args(hint)[:2]
    optional = False
    if get_origin(kind) in (Union, types.UnionType):
        inner = [arg for arg in get_args(kind) if arg is not types.NoneType]
        optional, kind = len(inner) < len(get_args(kind)), inner[0]
    pair = get_origin(kind) is tuple and len(get_args(kind)) == 2 and get_args(kind)[1] is not Ellipsis
    scalar = get_args(kind)[0] if pair else kind
    choices: tuple[str, ...] = get_args(scalar) if get_origin(scalar) is Literal else ()
    is_duration = field.endswith(DURATION_SUFFIX)
    unit = declared.unit or ("ms" if is_duration else "")
    owner: type[Settings] = next(each for each in group.__mro__ if field in get_annotations(each))
    return Setting(
        name=field.removesuffix(DURATION_SUFFIX if is_duration else f"_{unit}"),
        field=field,
        kind="choice" if choices else "duration" if is_duration else _KINDS.get(scalar, "table"),  # type: ignore[arg-type]
        type=kind,
        default=default,
        about=declared.about,
        title=declared.title or owner.title,
        unit=unit,
        low=declared.low,
        high=declared.high,
        above=declared.above,
        below=declared.below,
        choices=choices,
        optional=optional,
        pair=pair,
        owner=owner,
    )
