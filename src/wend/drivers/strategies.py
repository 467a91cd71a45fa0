"""Strategies that live outside the tree: `package.module:Class`, put into the table under that name.

They are looked for where Python looks for modules, then in the folder where the command was started. `protocol` imports
nothing by name, so drivers and commands do it before they make a peer; a worker of a sweep does it for itself.
"""

import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import cast

from wend.model.errors import ConfigError, WendError
from wend.protocol import host
from wend.protocol.link import retransmission
from wend.protocol.plugins import Forward, PluginInput, Routing, Traits
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


@contextmanager
def answering(name: str) -> Iterator[None]:
    """A mistake that a strategy from outside the tree makes while it runs is its author's, and said in a sentence."""
    try:
        yield
    except WendError:
        raise
    except Exception as error:
        frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
        told = [value for frame in frames for value in frame.f_locals.values() if isinstance(value, PluginInput)]
        if _SIGN not in name or not told:
            raise
        raise ConfigError(f"strategy {name!r}, told {type(told[-1]).__name__}, {_mistake(error, frames)}") from error


def _mistake(error: Exception, frames: list[FrameType]) -> str:
    at = frames[-1]
    if at.f_code is host.Host.carry_out.__code__ and not isinstance(answers := at.f_locals["answers"], list):
        return f"answered {answers!r:.80} where a list of effects is due"
    if at.f_code is retransmission.Retransmission.forward.__code__ and isinstance(error, KeyError):
        forward = at.f_locals["forward"]
        if isinstance(forward, Forward):
            return f"answered a Forward to {forward.peer!r}, which is no neighbour"
    place, line = Path(at.f_code.co_filename).name, traceback.extract_tb(error.__traceback__)[-1].lineno
    return f"failed at line {line} of {place}: {type(error).__name__}: {(str(error).splitlines() or [''])[0]}"


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
    found = cast(type[Routing], made)
    if found.handle is Routing.handle or not callable(found.handle):
        raise ConfigError(f"strategy {name!r} is none: it has no method handle(self, now, event, view)")
    if not isinstance(found.traits, Traits):
        raise ConfigError(f"strategy {name!r}: its traits are a {type(found.traits).__name__}, not Traits(...)")
    try:
        found()
    except Exception as error:
        raise ConfigError(f"strategy {name!r} cannot be made: {error}") from None
    return found
