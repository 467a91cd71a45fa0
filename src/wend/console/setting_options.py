"""Commands with an option for each setting of a scenario.

    app.command("sim", cls=command_with(SettingOptions()))(sim)

`given_settings` returns the settings that a call gives.
"""

import inspect
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import pairwise
from typing import Annotated, Any

import msgspec
import typer
from typer.core import TyperCommand

from wend.console.options import WORLD, setting_option
from wend.drivers.scenarios import simulated_default
from wend.drivers.settings import CHOSEN, known_settings, load_chosen, plugin_names
from wend.model.settings import Setting, flag_name

_GIVEN = "wend.settings"
_TYPES: dict[str, Any] = {"bool": bool, "int": int, "float": float}


class SettingOptions(msgspec.Struct, frozen=True):
    """The settings that a command takes as options."""

    world: tuple[str, ...] = tuple(name for name, each in WORLD.items() if each.kind != "table")
    """The settings of the world."""
    fixed: frozenset[str] = frozenset()
    """Settings of peers that it does not take."""
    strategies: str = "strategy"
    """The option that names one strategy, or several with commas between them."""

    def settings(self) -> Iterator[tuple[Setting, str, str]]:
        """Each with its default and its sentence, in the order of the help: everyday settings first."""
        names, known = plugin_names(), known_settings()
        world = [(WORLD[name], WORLD[name].default) for name in self.world]
        peers = [(each, simulated_default(each)) for name, each in known.items() if name not in self.fixed]
        for each, default in sorted((*world, *peers), key=lambda pair: pair[0].tier):
            yield each, each.value_text(default), _help_text(each, names.get(each.name))

    def load_plugins(self, args: list[str]) -> None:
        """Import the plug-ins from outside the tree that a call names: their settings are options, too."""
        for setting in CHOSEN:
            for text in _flag_values(flag_name(self.strategies if setting == "strategy" else setting), args):
                for plugin in text.split(","):
                    load_chosen({setting: plugin.strip()})


class SettingsCommand(TyperCommand):
    """A command with an option for each setting. It makes the options when it is called or shows its help: the plug-ins
    that declare them take longer to import than everything that other commands need."""

    def __init__(self, *args: Any, options: SettingOptions, **more: Any) -> None:
        super().__init__(*args, **more)
        self._taken = options
        self._options: list[Any] | None = None

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        self._taken.load_plugins(args)
        rest = super().parse_args(ctx, args)
        values = {each.name: ctx.params.pop(each.name) for each in self._setting_options()}
        ctx.meta[_GIVEN] = {name: value for name, value in values.items() if value is not None}
        return rest

    def get_params(self, ctx: Any) -> list[Any]:
        return [*super().get_params(ctx), *self._setting_options()]

    def _setting_options(self) -> list[Any]:
        if self._options is None:
            own = {each.name for each in self.params}
            self._options = _make_options([each for each in self._taken.settings() if each[0].name not in own])
        return self._options


def make_command_class(options: SettingOptions) -> Any:
    """The class of a command with these options, for typer."""
    return partial(SettingsCommand, options=options)


def given_settings(ctx: typer.Context) -> dict[str, Any]:
    """The settings that the call gives, by name."""
    return dict(ctx.meta[_GIVEN])


def _make_options(settings: list[tuple[Setting, str, str]]) -> list[Any]:
    """Let typer make an option for each setting, from a function that takes all of them."""

    def command(**values: Any) -> None:
        pass

    hints: dict[str, Any] = {}
    for each, default, about in settings:
        kind: Any = _TYPES.get(each.kind, str)
        hint = tuple[kind, kind] if each.pair else kind
        hints[each.name] = Annotated[hint | None, setting_option(each, default, about, each.heading)]
    parameters = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=hint)
        for name, hint in hints.items()
    ]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = hints
    app = typer.Typer(add_completion=False)
    app.command()(command)
    return list(typer.main.get_command(app).params)


def _help_text(each: Setting, names: Mapping[str, str] | None) -> str:
    """The help of a setting. If it names a plug-in, the help lists the available names."""
    if names is None:
        return each.about
    shown = [f"{name} ({remark})" if remark else name for name, remark in names.items()]
    oracle = ["oracle (what is possible at best)"] if each.name == "strategy" else []
    return f"{each.about} {', '.join([*shown, *oracle])}, or MODULE:CLASS of your own."


def _flag_values(flag: str, args: list[str]) -> list[str]:
    after = [value for word, value in pairwise(args) if word == flag]
    return after + [word.partition("=")[2] for word in args if word.startswith(f"{flag}=")]
