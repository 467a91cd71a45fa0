"""Strategies that live outside the tree: `package.module:Class`, put into the table under that name.

They are looked for where Python looks for modules, then in the folder where the command was started. `protocol` imports
nothing by name, so drivers and commands do it before they make a peer; a worker of a sweep does it for itself.
"""

import sys
from importlib import import_module
from pathlib import Path

from wend.model.errors import ConfigError
from wend.protocol.plugins import Routing
from wend.protocol.routing import ROUTING

_SIGN = ":"


def learn(name: str) -> None:
    """Have it in the table, if it is a name of this kind. The sentence says what is wrong with it."""
    if _SIGN in name and name not in ROUTING:
        ROUTING[name] = _found(name)


def home(name: str) -> str | None:
    """The module, or the package around it, that the strategy comes with; None for those of the tree."""
    if _SIGN not in name:
        return None
    learn(name)
    return name.partition(_SIGN)[0].partition(".")[0]


def _found(name: str) -> type[Routing]:
    module, _, title = name.partition(_SIGN)
    if not all(part.isidentifier() for part in (*module.split("."), title)):
        raise ConfigError(f"strategy {name!r} is not of the form MODULE:CLASS")
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
        raise ConfigError(f"strategy {name!r}: {why}") from None
    if not isinstance(made, type):
        raise ConfigError(f"strategy {name!r}: {module} has no class {title}")
    if Routing not in made.__mro__:
        raise ConfigError(f"strategy {name!r} is none: it does not inherit from wend.protocol.plugins.Routing")
    try:
        made()
    except Exception as error:
        raise ConfigError(f"strategy {name!r} cannot be made: {error}") from None
    return made
