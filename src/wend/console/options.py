"""Options for settings, made from their declarations: the help has the sentence and the default of each setting."""

from typing import Annotated, Any

import typer

from wend.drivers.scenarios import Scenario
from wend.model.settings import Setting, declared_settings

WORLD = {each.name: each for each in declared_settings(Scenario)}
"""The settings of the world around the peers, by name."""
_METAVARS = {"duration": "DURATION", "plan": "DIR", "flows": "FILE", "failures": "FILE"}
"""By kind, or by name."""


def default_help(default: object) -> str:
    """The end of a help text that states a default; typer knows only defaults of its own."""
    return f" [dim]\\[default: {default}][/]"


def split_names(text: str) -> list[str]:
    """The names in a text that separates them by commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


def setting_option(each: Setting, default: str, about: str = "", panel: str | None = None) -> Any:
    """Make the option for a setting. Its help has the default, and `about` if the command has a sentence of its own."""
    names = (f"{each.flag}/--no-{each.flag.removeprefix('--')}",) if each.kind == "bool" else (each.flag,)
    if each.kind == "bool":
        default = each.flag.removeprefix("--") if default == "true" else f"no-{each.flag.removeprefix('--')}"
    text = (about or each.about) + (default_help(default) if default else "")
    metavar = "|".join(each.choices) or _METAVARS.get(each.name) or _METAVARS.get(each.kind)
    metavar = f"{metavar} {metavar}" if metavar and each.pair else metavar
    return typer.Option(*names, help=text, metavar=metavar, show_default=False, rich_help_panel=panel)


def world_option(name: str) -> Any:
    """Make the option for a setting of the world, for commands that take a few of them. Without the flag it is None."""
    return setting_option(WORLD[name], WORLD[name].value_text(WORLD[name].default))


TOPOLOGIES = WORLD["topology"].about
Topology = Annotated[str | None, world_option("topology")]
Peers = Annotated[int | None, world_option("peers")]
Degree = Annotated[int | None, world_option("degree")]
Seed = Annotated[int | None, world_option("seed")]
Pl = Annotated[float | None, world_option("pl")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
