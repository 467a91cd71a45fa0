"""Settings by name: a driver's own and those of the peers that it runs, read from one flat table.

A scenario and a peer's file are such tables. A key that the driver does not declare is looked up among the settings of
the peers: the groups of the link layer, of delivery and of all plug-ins. One name means one setting.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Self, TypeVar

import msgspec

from wend.model.error_text import nearest
from wend.model.errors import ConfigError
from wend.model.settings import Setting, Settings, SettingValue, settings_of
from wend.protocol.config import DeliverySettings, LinkSettings
from wend.protocol.plugins import Kind, NoSettings, Plugin
from wend.strategies.registry import PLUGINS, load, setting_groups

S = TypeVar("S", bound=Settings)

OLD_NAMES = {
    "aware": "trace_paths",
    "capacity": "link_capacity",
    "delay_ms": "delay",
    "detect": "detection",
    "detect_ms": "detection",
    "drain_s": "drain",
    "duration_s": "duration",
    "fails": "failure_probability",
    "heal_s": "heal",
    "keep": "retry_limit",
    "keep_msgs": "retry_limit",
    "last_mile_ms": "last_mile",
    "m": "transmissions",
    "margin_ms": "margin",
    "mean_outage_s": "mean_outage",
    "monitor_s": "monitoring",
    "overlay": "membership",
    "overlay_k": "membership_k",
    "overlay_period": "membership_period",
    "queue_msgs": "queue",
    "rate_hz": "rate",
    "trace": "trace_level",
    "warmup_s": "warmup",
}
"""Names that settings no longer have, and their names."""

# ---------------------------------------------------------------- the settings of peers

CHOSEN: dict[str, Kind] = {"strategy": "routing", "interest": "interest", "membership": "membership"}
"""The settings that name a plug-in, with its kind."""
Chosen = Mapping[str, str | None]
"""The names of plug-ins, by setting."""


def shipped_groups() -> tuple[type[Settings], ...]:
    """The groups of the link layer, of delivery, and of all plug-ins of the tree."""
    every = (made for table in PLUGINS.values() for name, made in table.items() if not is_outside(name))
    return _groups((LinkSettings, DeliverySettings, *(made.settings for made in every)))


def outside_plugins(chosen: Chosen) -> dict[str, type[Plugin]]:
    """Those of these plug-ins, and of graphs that they need, that come from outside the tree, by name."""
    wanted = [(CHOSEN[setting], name) for setting, name in chosen.items() if name is not None]
    found: dict[str, type[Plugin]] = {}
    for kind, name in wanted:  # grows while plug-ins need graphs
        made = PLUGINS[kind].get(name)
        if made is not None:
            found |= {name: made} if is_outside(name) else {}
            wanted += [("graph", graph) for graph in made.needs.graphs if ("graph", graph) not in wanted]
    return found


def is_outside(plugin: str) -> bool:
    """Whether a plug-in's name is `MODULE:CLASS`."""
    return ":" in plugin


def plugin_names() -> dict[str, dict[str, str]]:
    """For each setting that names a plug-in: the names that there are, with a remark or nothing."""
    return {
        setting: {name: "needs a plan" if made.needs.plan else made.about for name, made in PLUGINS[kind].items()}
        for setting, kind in CHOSEN.items()
    }


def load_chosen(chosen: Chosen) -> None:
    """Import the plug-ins that come from outside the tree."""
    for setting, kind in CHOSEN.items():
        name = chosen.get(setting)
        load(kind, name if isinstance(name, str) else None)


def peer_settings(chosen: Chosen = MappingProxyType({})) -> dict[str, Setting]:
    """The settings of peers with these plug-ins, by name: those of the tree, and those of plug-ins from outside it."""
    outside = (made.settings for made in outside_plugins(chosen).values())
    return _by_name(_groups((*shipped_groups(), *outside)))


def known_settings() -> dict[str, Setting]:
    """The settings of all plug-ins that were loaded, by name, whether peers host them or not."""
    return _by_name(setting_groups())


def _by_name(groups: Iterable[type[Settings]]) -> dict[str, Setting]:
    return {each.name: each for group in groups for each in settings_of(group)}


def _groups(groups: Iterable[type[Settings]]) -> tuple[type[Settings], ...]:
    return tuple(each for each in dict.fromkeys(groups) if each is not NoSettings)


def unknown(name: str, known: Iterable[str]) -> ConfigError:
    """The sentence about a name that nothing has: its name now, or the nearest one."""
    if name in OLD_NAMES:
        return ConfigError(f"there is no setting {name!r}: it is called {OLD_NAMES[name]}")
    return ConfigError(f"there is no setting {name!r}{nearest(name, list(known))}")


# ---------------------------------------------------------------- a table of settings


class ByName(type(msgspec.Struct)):  # type: ignore[misc]  # the metaclass has no public name
    """The metaclass of structs that are made from what people write."""

    def __call__(cls, **fields: Any) -> Any:
        return cls.read(fields)


class Configuration:
    """A driver's settings with those of its peers. A struct that inherits from it is called with names as people know
    them, `Scenario(duration="60s", redundancy="free")`, and reads, checks and completes them."""

    __slots__ = ()

    settings: Mapping[str, SettingValue]
    """The peers' settings, by name, as people write them."""

    @classmethod
    def read(cls, fields: Mapping[str, Any]) -> Self:
        """From names and values as a file has them. Raises ConfigError with the sentence that its writer needs."""
        own = {each.name: each for each in settings_of(cls)}  # type: ignore[arg-type]
        values = {each.field: each.read(fields[each.name]) for each in own.values() if each.name in fields}
        for each in own.values():
            if each.required and each.field not in values:
                raise ConfigError(f"it lacks {each.name!r}")
        chosen = {each: values.get(each) for each in CHOSEN}
        load_chosen(chosen)
        known = known_settings()
        if both := own.keys() & known.keys():
            raise ConfigError(f"a plug-in declares the setting {min(both)!r}, which there is already")
        given = {}
        for name, value in fields.items():
            if name in known:
                given[name] = known[name].write(known[name].read(value))
            elif name not in own:
                raise unknown(name, (*own, *known))
        settings = {**cls.defaults(peer_settings(chosen)), **given}
        return super(ByName, cls).__call__(**values, settings=settings)  # type: ignore[misc,no-any-return]

    @classmethod
    def defaults(cls, known: Mapping[str, Setting]) -> dict[str, SettingValue]:
        """What it holds of these settings where nobody states them."""
        return {}

    @property
    def chosen(self) -> Chosen:
        """The plug-ins that it names, by setting."""
        return {each: getattr(self, each) for each in CHOSEN}

    def of(self, group: type[S]) -> S:
        """The peers' settings of one group, as code sees them."""
        given = {each.field: each.read(self.settings[each.name]) for each in _given(group, self.settings)}
        return group(**given)

    def field_values(self) -> dict[str, Any]:
        """The peers' settings that differ from what is declared, by field, as `PeerConfig` takes them."""
        known = known_settings()
        read = [(known[name], known[name].read(value)) for name, value in self.settings.items()]
        return {each.field: value for each, value in read if value != each.default}

    def flat(self) -> dict[str, SettingValue]:
        """All of it, as `read` takes it, without settings of plug-ins from outside the tree that it does not name."""
        own = {each.name: each.write(getattr(self, each.field)) for each in settings_of(type(self))}  # type: ignore[arg-type]
        mine = peer_settings(self.chosen)
        return {**own, **{name: value for name, value in self.settings.items() if name in mine}}

    def with_(self, **changes: Any) -> Self:
        """A copy with some settings changed, checked again."""
        return self.read({**self.flat(), **self.settings, **changes})


def _given(group: type[Settings], values: Mapping[str, Any]) -> list[Setting]:
    return [each for each in settings_of(group) if each.name in values]
