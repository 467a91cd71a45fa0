"""Settings by name: a driver's own and those of the peers that it runs, read from one flat table.

A scenario and a peer's file are such tables. A key that the driver does not declare is looked up among the settings of
the peers: the groups of the link layer, of delivery and of all plug-ins (`setting_groups`). One name means one setting.
"""

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Self, TypeVar

import msgspec

from wend.drivers.strategies import learn
from wend.model.error_text import nearest
from wend.model.errors import ConfigError
from wend.model.settings import Setting, Settings, SettingValue, settings_of
from wend.protocol.config import DeliverySettings, LinkSettings
from wend.protocol.membership.settings import MembershipSettings
from wend.protocol.membership.table import OVERLAYS
from wend.protocol.routing import ROUTING
from wend.protocol.routing.adaptive import AdaptiveSettings
from wend.protocol.trees.generations import TreeSettings

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


def group_of(plugin: Any) -> type[Settings] | None:
    """The settings that a plug-in declares, if it has any."""
    declared = getattr(plugin, "settings", None)
    if isinstance(declared, type) and issubclass(declared, Settings):
        return declared
    traits = getattr(plugin, "traits", None)
    names = frozenset() if traits is None else traits.settings
    return next((g for g in (AdaptiveSettings, TreeSettings) if names & {s.name for s in settings_of(g)}), None)


def plugin_groups() -> dict[str, dict[str, type[Settings]]]:
    """For each kind of plug-in that a configuration names: the settings of the plug-ins in its table, by name."""
    return {
        "strategy": {name: group for name, each in ROUTING.items() if (group := group_of(each)) is not None},
        "membership": dict.fromkeys(OVERLAYS, MembershipSettings),
        "interest": {},
    }


def plugin_names() -> dict[str, dict[str, str]]:
    """For each kind of plug-in that a configuration names: the names in its table, with a remark or nothing."""
    remarks = {name: "needs a plan" if s.traits.follows_plan else s.traits.about for name, s in ROUTING.items()}
    return {"strategy": remarks, "interest": {}, "membership": dict.fromkeys(OVERLAYS, "")}


def setting_groups() -> tuple[type[Settings], ...]:
    """All groups: of the link layer, of delivery, and of the plug-ins in the tables."""
    tables = plugin_groups().values()
    return tuple(dict.fromkeys((LinkSettings, DeliverySettings, *(g for table in tables for g in table.values()))))


def shipped_groups() -> tuple[type[Settings], ...]:
    """The same without plug-ins from outside the tree, whose names are `MODULE:CLASS`."""
    tables = plugin_groups().values()
    groups = (group for table in tables for name, group in table.items() if ":" not in name)
    return tuple(dict.fromkeys((LinkSettings, DeliverySettings, *groups)))


def hosted_groups(plugins: Iterable[str | None]) -> tuple[type[Settings], ...]:
    """Those that a peer with these plug-ins uses."""
    names = {name for name in plugins if name is not None}
    tables = plugin_groups().values()
    groups = (group for table in tables for name, group in table.items() if name in names)
    return tuple(dict.fromkeys((LinkSettings, DeliverySettings, *groups)))


def peer_settings(plugins: Iterable[str | None] = ()) -> dict[str, Setting]:
    """The settings that a peer may be given, by name: those of the tree, and those of these plug-ins."""
    found: dict[str, Setting] = {}
    for group in dict.fromkeys((*shipped_groups(), *hosted_groups(plugins))):
        for each in settings_of(group):
            if each.name in found:
                owners = f"{found[each.name].owner.__name__} and {each.owner.__name__}"
                raise ConfigError(f"the setting {each.name!r} is declared twice, by {owners}")
            found[each.name] = each
    return found


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
    plugins: ClassVar[tuple[str, ...]] = ("strategy", "interest", "membership")

    @classmethod
    def read(cls, fields: Mapping[str, Any]) -> Self:
        """From names and values as a file has them. Raises ConfigError with the sentence that its writer needs."""
        own = {each.name: each for each in settings_of(cls)}  # type: ignore[arg-type]
        values = {each.field: each.read(fields[each.name]) for each in own.values() if each.name in fields}
        for each in own.values():
            if each.required and each.field not in values:
                raise ConfigError(f"it lacks {each.name!r}")
        if isinstance(strategy := values.get("strategy"), str):
            learn(strategy)
        known = peer_settings(values.get(kind) for kind in cls.plugins)
        given = {}
        for name, value in fields.items():
            if name in known:
                given[name] = known[name].write(known[name].read(value))
            elif name not in own:
                raise unknown(name, (*own, *known))
        return super(ByName, cls).__call__(**values, settings=cls.completed(given, known))  # type: ignore[misc,no-any-return]

    @classmethod
    def completed(cls, given: dict[str, SettingValue], known: Mapping[str, Setting]) -> dict[str, SettingValue]:
        """The settings to hold, of those that were given."""
        return given

    def of(self, group: type[S]) -> S:
        """The peers' settings of one group, as code sees them."""
        given = {each.field: each.read(self.settings[each.name]) for each in _given(group, self.settings)}
        return group(**given)

    def field_values(self) -> dict[str, Any]:
        """The peers' settings that differ from what is declared, by field, as `PeerConfig` takes them."""
        known = peer_settings(getattr(self, kind) for kind in self.plugins)
        read = [(known[name], known[name].read(value)) for name, value in self.settings.items() if name in known]
        return {each.field: value for each, value in read if value != each.default}

    def flat(self) -> dict[str, SettingValue]:
        """All of it, as `read` takes it."""
        own = {each.name: each.write(getattr(self, each.field)) for each in settings_of(type(self))}  # type: ignore[arg-type]
        return {**own, **self.settings}

    def with_(self, **changes: Any) -> Self:
        """A copy with some settings changed, checked again. Settings of plug-ins that it no longer names are left out."""
        named = [changes.get(kind, getattr(self, kind)) for kind in self.plugins]
        if isinstance(named[0], str):
            learn(named[0])
        known = peer_settings(each for each in named if isinstance(each, str))
        kept = {name: value for name, value in self.flat().items() if name in known or name not in self.settings}
        return self.read({**kept, **changes})


def _given(group: type[Settings], values: Mapping[str, Any]) -> list[Setting]:
    return [each for each in settings_of(group) if each.name in values]
