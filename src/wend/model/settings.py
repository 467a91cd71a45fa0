"""Settings: each is declared once, as a field of a struct, and everything else follows from the declaration.

    class LinkSettings(Settings, frozen=True, kw_only=True):
        detection_ns: Annotated[Nanos, setting("How soon a peer notices a dead link.", unit="ms")] = 160 * MS

The field's name without its unit is the name that people use, in a peer's file, in a scenario and as a flag:
`detection`. A duration is written with a unit (`160ms`). Code reads `settings.detection_ns`.
"""

import types
from functools import cache
from typing import Annotated, Any, ClassVar, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from wend.model.error_text import either
from wend.model.errors import ConfigError
from wend.model.units import MINUTE, MS, SECOND, Nanos, parse_duration, parse_short

DURATION_SUFFIX = "_ns"
_UNITS: dict[str, Nanos] = {"ms": MS, "s": SECOND, "min": MINUTE}

SettingValue = bool | int | float | str | None


class Settings(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A group of settings. A subclass declares the fields; its docstring says what they are about."""

    title: ClassVar[str] = ""
    """The heading of the group on the reference page."""


class _Declared(msgspec.Struct, frozen=True):
    about: str
    unit: str
    low: float | None
    high: float | None
    above: float | None
    below: float | None


def setting(
    about: str,
    *,
    unit: str = "",
    low: float | None = None,
    high: float | None = None,
    above: float | None = None,
    below: float | None = None,
) -> _Declared:
    """Declare a setting, as the annotation of its field.

    `unit` is how people think of a duration (`ms`, `s`, `min`); bounds of durations count in it. `low` and `high` are
    in the range, `above` and `below` are not.
    """
    return _Declared(about, unit, low, high, above, below)


class Setting(msgspec.Struct, frozen=True):
    """One setting, as its declaration says."""

    name: str
    """What people call it."""
    field: str
    """What code calls it; a duration ends in `_ns`."""
    kind: Literal["bool", "int", "float", "text", "choice", "duration"]
    default: Any
    """As code sees it."""
    about: str
    unit: str = ""
    low: float | None = None
    high: float | None = None
    above: float | None = None
    below: float | None = None
    choices: tuple[str, ...] = ()
    optional: bool = False
    owner: type[Settings] = Settings

    def read(self, value: Any) -> Any:
        """The value that code sees, from what a person wrote. Raises ConfigError with the sentence that they need."""
        if value is None and self.optional:
            return None
        read = self._converted(value)
        self._check_range(read, value)
        return read

    def write(self, value: Any) -> SettingValue:
        """The inverse of `read`: what a person would write."""
        if self.kind != "duration" or value is None:
            return value  # type: ignore[no-any-return]
        return f"{value / _UNITS[self.unit]:g}{self.unit}"

    def in_unit(self, value: Any) -> Any:
        """The value as a number for a table: a duration counts in its unit."""
        return value / _UNITS[self.unit] if self.kind == "duration" and value is not None else value

    def from_unit(self, value: Any) -> Any:
        """The inverse of `in_unit`."""
        return round(value * _UNITS[self.unit]) if self.kind == "duration" and value is not None else value

    @property
    def column(self) -> str:
        """Its column in a table: units end the name."""
        return f"{self.name}_{self.unit}" if self.kind == "duration" else self.name

    @property
    def shown_default(self) -> str:
        """The default, as a person would type it."""
        if self.kind == "bool":
            return "true" if self.default else "false"
        return "" if self.default is None else str(self.write(self.default))

    def _converted(self, value: Any) -> Any:
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
        return self._number(value)

    def _number(self, value: Any) -> int | float:
        if isinstance(value, str):
            try:
                value = int(value) if self.kind == "int" else float(value)
            except ValueError:
                raise ConfigError(f"{self.name} must be {self._a_number}, got {value!r}") from None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ConfigError(f"{self.name} must be {self._a_number}, got {value!r}")
        if self.kind == "int" and not isinstance(value, int):
            raise ConfigError(f"{self.name} must be {self._a_number}, got {value!r}")
        return value if self.kind == "int" else float(value)

    @property
    def _a_number(self) -> str:
        return "a whole number" if self.kind == "int" else "a number"

    def _check_range(self, read: Any, value: Any) -> None:
        if self.kind not in ("int", "float", "duration"):
            return
        number = self.in_unit(read)
        unit = f" {self.unit}" if self.unit else ""
        if (self.low is not None and not number >= self.low) or (self.high is not None and not number <= self.high):
            if self.high is None:
                raise ConfigError(f"{self.name} must be at least {self.low:g}{unit}, got {value}")
            low = f"{self.low:g}" if self.low is not None else ""
            raise ConfigError(f"{self.name} must lie in {low}..{self.high:g}{unit}, got {value}")
        if self.above is not None and not number > self.above:
            raise ConfigError(f"{self.name} must be above {self.above:g}{unit}, got {value}")
        if self.below is not None and not number < self.below:
            raise ConfigError(f"{self.name} must be below {self.below:g}{unit}, got {value}")


@cache
def settings_of(group: type[Settings]) -> tuple[Setting, ...]:
    """The settings that a struct declares, in their order."""
    hints = get_type_hints(group, include_extras=True)
    defaults = {field.name: field.default for field in msgspec.structs.fields(group)}
    return tuple(_setting(group, name, hints[name], defaults[name]) for name in group.__struct_fields__)


def _setting(group: type[Settings], field: str, hint: Any, default: Any) -> Setting:
    if get_origin(hint) is not Annotated:
        raise TypeError(f"{group.__name__}.{field} has no setting(...): say what it is for")
    kind, declared = get_args(hint)[:2]
    optional = False
    if get_origin(kind) in (Union, types.UnionType):
        inner = [arg for arg in get_args(kind) if arg is not types.NoneType]
        optional, kind = len(inner) < len(get_args(kind)), inner[0]
    choices: tuple[str, ...] = get_args(kind) if get_origin(kind) is Literal else ()
    names = {bool: "bool", int: "int", float: "float", str: "text"}
    is_duration = field.endswith(DURATION_SUFFIX)
    return Setting(
        name=field.removesuffix(DURATION_SUFFIX),
        field=field,
        kind="choice" if choices else "duration" if is_duration else names[kind],  # type: ignore[arg-type]
        default=default,
        about=declared.about,
        unit=declared.unit or ("ms" if is_duration else ""),
        low=declared.low,
        high=declared.high,
        above=declared.above,
        below=declared.below,
        choices=choices,
        optional=optional,
        owner=group,
    )
