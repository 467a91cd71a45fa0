"""Plug-ins from outside the tree: `package.module:Class`, imported and put into the table of its kind under that name.

Python looks for the module where it looks for all, then in the folder where the command was started. `protocol` imports
nothing by name, so drivers and commands call `load` before they make a peer; a worker of a sweep does it for itself.
"""

import sys
from importlib import import_module
from pathlib import Path

from wend.model.errors import ConfigError
from wend.model.settings import Settings, settings_of
from wend.protocol.config import PeerConfig
from wend.protocol.plugins import Graph, Interest, Kind, Membership, Needs, Plugin, Routing
from wend.protocol.tables import PLUGINS, TITLES, setting_groups

_SIGN = ":"
_BASES: dict[Kind, type[Plugin]] = {
    "membership": Membership,
    "graph": Graph,
    "interest": Interest,
    "routing": Routing,
}


def load(kind: Kind, name: str | None) -> None:
    """Have it in the table, if it is a name of this form. The sentence says what is wrong with it."""
    if name is not None and _SIGN in name and name not in PLUGINS[kind]:
        found = _find(kind, name)
        _check_settings(kind, name, found)
        PLUGINS[kind][name] = found
        for graph in found.needs.graphs:
            load("graph", graph)


def load_all(strategy: str, interest: str | None, membership: str | None) -> None:
    """The same for all plug-ins that a configuration names."""
    load("routing", strategy)
    load("interest", interest)
    load("membership", membership)


def home(name: str | None) -> str | None:
    """The module, or the package around it, that a plug-in comes with; None for those of the tree."""
    return None if name is None or _SIGN not in name else name.partition(_SIGN)[0].partition(".")[0]


def _find(kind: Kind, name: str) -> type[Plugin]:
    what = f"{TITLES[kind]} {name!r}"
    module, _, title = name.partition(_SIGN)
    if not all(part.isidentifier() for part in (*module.split("."), title)):
        raise ConfigError(f"{what} is not of the form MODULE:CLASS")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)
    try:
        made = getattr(import_module(module), title, None)
    except Exception as error:  # whatever a module does when it is imported
        if isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}."):
            why = f"there is no module {error.name}, neither installed nor in {here}"
        else:
            why = f"{module} cannot be imported: {type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
        raise ConfigError(f"{what}: {why}") from None
    if not isinstance(made, type):
        raise ConfigError(f"{what}: {module} has no class {title}")
    base = _BASES[kind]
    if not issubclass(made, base):
        raise ConfigError(f"{what} does not inherit from wend.protocol.plugins.{base.__name__}")
    if made.handle is Plugin.handle or not callable(made.handle):
        raise ConfigError(f"{what} has no method handle(self, now, event, view)")
    if not isinstance(made.needs, Needs):
        raise ConfigError(f"{what}: its needs are a {type(made.needs).__name__}, not Needs(...)")
    try:
        made(PeerConfig(peer=0))
    except Exception as error:
        raise ConfigError(f"{what} cannot be made: {error}") from None
    return made


def _check_settings(kind: Kind, name: str, found: type[Plugin]) -> None:
    if not (isinstance(found.settings, type) and issubclass(found.settings, Settings)):
        raise ConfigError(f"{TITLES[kind]} {name!r}: its settings are not a subclass of Settings")
    taken = {one.name: group for group in setting_groups() for one in settings_of(group)}
    for one in settings_of(found.settings):
        if taken.get(one.name, found.settings) is not found.settings:
            raise ConfigError(f"{TITLES[kind]} {name!r} declares the setting {one.name}, which there is already")
