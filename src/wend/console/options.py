"""Options that are settings: made from the declarations, with their sentences and defaults in the help."""

from typing import Annotated, Any

import typer

from wend.drivers.scenarios import Scenario
from wend.model.settings import Setting, declared_settings

WORLD = {each.name: each for each in declared_settings(Scenario)}
"""The settings of the world around the peers, by name."""
_METAVARS = {"duration": "DURATION", "plan": "DIR", "flows": "FILE", "failures": "FILE"}
"""By kind, or by name."""


def stated(default: object) -> str:
    """The end of a help text that states a default; typer knows only defaults of its own."""
    return f" [dim]\\[default: {default}][/]"


def option(each: Setting, default: str, about: str = "", panel: str | None = None) -> Any:
    """The option for a setting, with a default in its help, and a sentence of its own if there is one."""
    names = (f"{each.flag}/--no-{each.flag.removeprefix('--')}",) if each.kind == "bool" else (each.flag,)
    if each.kind == "bool":
        default = each.flag.removeprefix("--") if default == "true" else f"no-{each.flag.removeprefix('--')}"
    text = (about or each.about) + (stated(default) if default else "")
    metavar = "|".join(each.choices) or _METAVARS.get(each.name) or _METAVARS.get(each.kind)
    metavar = f"{metavar} {metavar}" if metavar and each.pair else metavar
    return typer.Option(*names, help=text, metavar=metavar, show_default=False, rich_help_panel=panel)


def of(name: str) -> Any:
    """An option for a setting of the world, for commands that take a few of them. One that is not given is None."""
    return option(WORLD[name], WORLD[name].shown(WORLD[name].default))


TOPOLOGIES = WORLD["topology"].about
Topology = Annotated[str | None, of("topology")]
Peers = Annotated[int | None, of("peers")]
Degree = Annotated[int | None, of("degree")]
Seed = Annotated[int | None, of("seed")]
Pl = Annotated[float | None, of("pl")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
