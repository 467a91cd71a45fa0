"""Settings by name: a driver's own and those of the peers that it runs, read from one flat table.

Such a table is a scenario or a peer's file. A key that the driver does not declare is a setting of the peers: of the
link layer, of delivery or of a plug-in. One name means one setting.

Text is read once (`read_values`). From then on values are typed; `flat` writes them for people, files and other
processes. The tables of plug-ins are imported late: they import every strategy, and most commands need none.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self, TypeVar

import msgspec

from wend.model.error_text import suggest_nearest
from wend.model.errors import ConfigError
from wend.model.settings import Setting, Settings, SettingValue, declared_settings

if TYPE_CHECKING:
    from wend.protocol.plugins import Kind, Plugin, Routing

S = TypeVar("S", bound=Settings)

# ---------------------------------------------------------------- the settings of peers

CHOSEN: "dict[str, Kind]" = {"strategy": "routing", "interest": "interest", "membership": "membership"}
"""The settings that name a plug-in, with its kind."""
Chosen = Mapping[str, str | None]
"""The names of plug-ins, by setting."""


def built_in_groups() -> tuple[type[Settings], ...]:
    """The groups of the link layer, of delivery, and of all plug-ins of the tree."""
    from wend.protocol.config import DeliverySettings, LinkSettings
    from wend.strategies.registry import PLUGINS

    plugins = (each for table in PLUGINS.values() for name, each in table.items() if not is_outside(name))
    return _unique_groups((LinkSettings, DeliverySettings, *(each.settings for each in plugins)))


def outside_plugins(chosen: Chosen) -> "dict[str, type[Plugin]]":
    """The chosen plug-ins, and the graphs that they need, that come from outside the tree, by name."""
    from wend.strategies.registry import PLUGINS

    names = [(CHOSEN[setting], name) for setting, name in chosen.items() if name is not None]
    outside: dict[str, type[Plugin]] = {}
    for kind, name in names:  # grows while plug-ins need graphs
        plugin = PLUGINS[kind].get(name)
        if plugin is not None:
            outside |= {name: plugin} if is_outside(name) else {}
            names += [("graph", graph) for graph in plugin.needs.graphs if ("graph", graph) not in names]
    return outside


def is_outside(plugin: str) -> bool:
    """Whether a plug-in's name is `MODULE:CLASS`."""
    return ":" in plugin


def plugin_names() -> dict[str, dict[str, str]]:
    """For each setting that names a plug-in: the possible names, each with a remark or an empty text."""
    from wend.strategies.registry import PLUGINS, STRATEGIES, find_routing

    names = {setting: {name: each.about for name, each in PLUGINS[kind].items()} for setting, kind in CHOSEN.items()}
    return {**names, "strategy": {name: _plugin_remark(find_routing(name)) for name in STRATEGIES}}


def _plugin_remark(routing: "type[Routing] | None") -> str:
    if routing is None:
        return ""
    return "needs a plan" if routing.needs.plan else routing.about


def load_chosen(chosen: Mapping[str, Any]) -> None:
    """Import the plug-ins that come from outside the tree."""
    from wend.strategies.registry import load

    for setting, kind in CHOSEN.items():
        name = chosen.get(setting)
        load(kind, name if isinstance(name, str) else None)


def peer_settings(chosen: Chosen = MappingProxyType({})) -> dict[str, Setting]:
    """The settings of peers with these plug-ins, by name: all settings of the tree, and of plug-ins from outside it."""
    outside = (plugin.settings for plugin in outside_plugins(chosen).values())
    return _settings_by_name(_unique_groups((*built_in_groups(), *outside)))


def known_settings() -> dict[str, Setting]:
    """The settings of all plug-ins that were loaded, by name, whether peers host them or not."""
    from wend.strategies.registry import setting_groups

    return _settings_by_name(setting_groups())


def _settings_with(names: Iterable[str], chosen: Chosen) -> dict[str, Setting]:
    """The settings of peers that host these plug-ins; those of all plug-ins if one of the names is not among them. So
    most processes import no plug-in that they do not host."""
    from wend.strategies.registry import hosted_setting_groups

    try:
        hosted = _settings_by_name(
            hosted_setting_groups(chosen["strategy"] or "", chosen["interest"], chosen["membership"])
        )
    except ConfigError:  # plug-ins that do not go together: a later check says so
        return known_settings()
    return hosted if hosted.keys() >= {*names} else known_settings()


def _settings_by_name(groups: Iterable[type[Settings]]) -> dict[str, Setting]:
    return {each.name: each for group in groups for each in declared_settings(group)}


def _unique_groups(groups: Iterable[type[Settings]]) -> tuple[type[Settings], ...]:
    return tuple(each for each in dict.fromkeys(groups) if declared_settings(each))


# ---------------------------------------------------------------- a table of settings


def unknown_setting(name: str, known: Iterable[str]) -> ConfigError:
    """The error for a name that no setting has. It suggests the most similar one."""
    return ConfigError(f"there is no setting {name!r}{suggest_nearest(name, list(known))}")


def read_values(group: type[Settings], fields: Mapping[str, Any]) -> dict[str, Any]:
    """Typed values by name, from what people wrote for the settings of a group and of peers. Raises ConfigError with a
    sentence for the writer."""
    own = {each.name: each for each in declared_settings(group)}
    values = {name: each.read(fields[name]) for name, each in own.items() if name in fields}
    load_chosen(values)
    chosen = {name: values.get(name, own[name].default) if name in own else None for name in CHOSEN}
    known = _settings_with(fields.keys() - own.keys(), chosen)
    if both := own.keys() & known.keys():
        raise ConfigError(f"a plug-in declares the setting {min(both)!r}, which exists already")
    for name, value in fields.items():
        if name in known:
            values[name] = known[name].read(value)
        elif name not in own:
            raise unknown_setting(name, (*own, *known))
    return values


class ByName(type(msgspec.Struct)):  # type: ignore[misc]  # the metaclass has no public name
    """The metaclass of structs whose constructor takes settings as people write them."""

    def __call__(cls, **fields: Any) -> Any:
        return cls.read(fields)

    def with_fields(cls, fields: Mapping[str, Any]) -> Any:
        """The struct with these typed fields."""
        return super().__call__(**fields)


class Configuration:
    """A driver's settings with those of its peers. A struct that inherits from it takes them as people write them,
    `Scenario(duration="60s", redundancy="free")`, and reads, checks and completes them."""

    __slots__ = ()

    settings: Mapping[str, Any]
    """The peers' settings, typed, by name."""

    @classmethod
    def read(cls, fields: Mapping[str, Any]) -> Self:
        """Make the configuration from names and values as a file has them. Raises ConfigError."""
        return cls.from_values(read_values(cls, fields))  # type: ignore[arg-type]

    @classmethod
    def from_values(cls, values: Mapping[str, Any]) -> Self:
        """Make the configuration from names and typed values."""
        own = {each.name: each for each in declared_settings(cls)}  # type: ignore[arg-type]
        for each in own.values():
            if each.is_required and each.name not in values:
                raise ConfigError(f"it lacks {each.name!r}")
        chosen = {name: values.get(name) for name in CHOSEN}
        load_chosen(chosen)
        others = {name: value for name, value in values.items() if name not in own}
        fields = {own[name].field: value for name, value in values.items() if name in own}
        fields["settings"] = {**cls.default_settings(chosen), **others}
        return cls.with_fields(fields)  # type: ignore[attr-defined,no-any-return]

    @classmethod
    def default_settings(cls, chosen: Chosen) -> dict[str, Any]:
        """The values of the settings of peers with these plug-ins if nobody states them."""
        return {}

    @property
    def chosen(self) -> Chosen:
        """The plug-ins that it names, by setting."""
        return {each: getattr(self, each) for each in CHOSEN}

    def of(self, group: type[S]) -> S:
        """The peers' settings of one group, as code sees them."""
        return group(
            **{each.field: self.settings[each.name] for each in declared_settings(group) if each.name in self.settings}
        )

    def field_values(self) -> dict[str, Any]:
        """The peers' settings that differ from the declared defaults, by field, as `PeerConfig` takes them."""
        known = _settings_with(self.settings, self.chosen)
        return {known[name].field: value for name, value in self.settings.items() if value != known[name].default}

    def own_values(self) -> dict[str, Any]:
        """The driver's settings, typed, by name."""
        return {each.name: getattr(self, each.field) for each in declared_settings(type(self))}  # type: ignore[arg-type]

    def flat(self) -> dict[str, SettingValue]:
        """All settings, as `read` takes them, without those of outside plug-ins that it does not name."""
        own = {each.name: each.write(getattr(self, each.field)) for each in declared_settings(type(self))}  # type: ignore[arg-type]
        return {**own, **self.flat_settings()}

    def flat_settings(self) -> dict[str, SettingValue]:
        """The peers' settings, as `read` takes them."""
        mine = peer_settings(self.chosen)
        return {name: mine[name].write(value) for name, value in self.settings.items() if name in mine}

    def with_(self, **changes: Any) -> Self:
        """A copy with some settings changed, as people write them, checked again."""
        return self.with_values(read_values(type(self), changes))  # type: ignore[arg-type]

    def with_values(self, changes: Mapping[str, Any]) -> Self:
        """A copy with some settings changed, given as typed values by name."""
        return self.from_values({**self.own_values(), **self.settings, **changes})

    def __reduce__(self) -> tuple[Any, ...]:
        mine = peer_settings(self.chosen)
        settings = {name: value for name, value in self.settings.items() if name in mine}
        return type(self).from_values, ({**self.own_values(), **settings},)
