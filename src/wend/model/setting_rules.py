"""Rules between settings: each is declared beside one setting and names others; one check serves them all.

anonymous: Annotated[float, setting("...", requires=Rule(("underlay",), "concerns routers, ..."))] = 0.0
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from wend.model.error_text import either, listed
from wend.model.errors import ConfigError

if TYPE_CHECKING:
    from wend.model.settings import Setting

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
        return self.why.format(value=value) if self.why else f"it is for {either(self.values)}, not for {value}"


def check_rules(settings: Iterable["Setting"], values: Values) -> None:
    """Raise ConfigError for the first setting that lacks another one, or excludes it. Default values break no rule."""
    by_name = {each.name: each for each in settings}
    present = {name for name, each in by_name.items() if each.is_set(values[name])}
    for name in [each for each in by_name if each in present]:
        requires, excludes = by_name[name].requires, by_name[name].excludes
        if requires is not None and present.isdisjoint(requires.settings):
            raise ConfigError(f"{name} {requires.why}")
        if excludes is not None and (others := [each for each in excludes.settings if each in present]):
            raise ConfigError(f"{excludes.why}: leave out {listed(others)}")


def unused_settings(settings: Iterable["Setting"], values: Values) -> dict[str, str]:
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
