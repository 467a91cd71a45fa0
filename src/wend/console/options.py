"""Options that are settings: made from the declarations, with their sentences and defaults in the help.

A command of class `SettingsCommand` has an option for each setting that it wants, and `given` returns those that were
given. `say_ignored` names the ones that change nothing.
"""

import inspect
import sys
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer
from typer.core import TyperCommand

from wend.model.error_text import either, listed
from wend.model.errors import ConfigError
from wend.model.scenario import DRAWN, TOPICS, WorldSettings
from wend.model.settings import Setting, flag_of, settings_of

if TYPE_CHECKING:
    from wend.drivers.scenarios import Scenario

_WORLD = {each.name: each for each in settings_of(WorldSettings)}
_GIVEN = "wend.settings"
_TYPES: dict[str, Any] = {"bool": bool, "int": int, "float": float}
_METAVARS = {"duration": "DURATION", "plan": "DIR", "flows": "FILE", "failures": "FILE"}
"""By kind, or by name."""

# ---------------------------------------------------------------- one option


def stated(default: object) -> str:
    """The end of a help text that states a default; typer knows only defaults of its own."""
    return f" [dim]\\[default: {default}][/]"


def _option(each: Setting, default: str, about: str = "", panel: str | None = None) -> Any:
    names = (f"{each.flag}/--no-{each.flag.removeprefix('--')}",) if each.kind == "bool" else (each.flag,)
    if each.kind == "bool":
        default = each.flag.removeprefix("--") if default == "true" else f"no-{each.flag.removeprefix('--')}"
    text = (about or each.about) + (stated(default) if default else "")
    metavar = "|".join(each.choices) or _METAVARS.get(each.name) or _METAVARS.get(each.kind)
    metavar = f"{metavar} {metavar}" if metavar and each.pair else metavar
    return typer.Option(*names, help=text, metavar=metavar, show_default=False, rich_help_panel=panel)


def of(name: str) -> Any:
    """An option for a setting of the world, for commands that take a few of them. One that is not given is None."""
    return _option(_WORLD[name], _WORLD[name].shown(_WORLD[name].default))


TOPOLOGIES = _WORLD["topology"].about
Topology = Annotated[str | None, of("topology")]
Peers = Annotated[int | None, of("peers")]
Degree = Annotated[int | None, of("degree")]
Seed = Annotated[int | None, of("seed")]
Pl = Annotated[float | None, of("pl")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


# ---------------------------------------------------------------- commands with an option for each setting


class SettingsCommand(TyperCommand):
    """A command with an option for each setting of a scenario.

    The options are made when the command is called or shows its help: the plug-ins that declare them take longer to
    import than all that other commands need. Plug-ins from outside the tree that the call names have theirs, too.
    """

    world: ClassVar[tuple[str, ...]] = tuple(name for name, each in _WORLD.items() if each.kind != "table")
    """The settings of the world that the command takes."""
    fixed: ClassVar[frozenset[str]] = frozenset()
    """Settings of peers that it does not take."""
    naming: ClassVar[dict[str, str]] = {"strategy": "strategy", "interest": "interest", "membership": "membership"}
    """Options that name plug-ins, separated by commas, with the settings for which they do."""

    _made: list[Any] | None = None

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        self._load_plugins(args)
        self._refuse_old_names(ctx, args)
        rest = super().parse_args(ctx, args)
        mine = {option.name: ctx.params.pop(option.name) for option in self._options()}
        ctx.meta[_GIVEN] = {name: value for name, value in mine.items() if value is not None}
        return rest

    def get_params(self, ctx: Any) -> list[Any]:
        return [*super().get_params(ctx), *self._options()]

    def _options(self) -> list[Any]:
        if self._made is None:
            self._made = list(_options([*self._settings()]))
        return self._made

    def _settings(self) -> Iterable[tuple[Setting, str, str]]:
        """Each with its default and its sentence, in the order of the help."""
        from wend.drivers.scenarios import Scenario
        from wend.drivers.settings import known_settings, plugin_names

        own = {option.name for option in self.params}
        names = plugin_names()
        for name in self.world:
            if name not in own:
                each = _WORLD[name]
                yield each, each.shown(each.default), _with_names(each, names.get(name))
        known = known_settings()
        for name, default in Scenario.defaults(known).items():
            if name not in self.fixed:
                yield known[name], known[name].shown(known[name].read(default)), known[name].about

    def _load_plugins(self, args: list[str]) -> None:
        from wend.drivers.settings import load_chosen

        for option, setting in self.naming.items():
            for text in _values_of(flag_of(option), args):
                for name in text.split(","):
                    load_chosen({setting: name.strip()})

    def _refuse_old_names(self, ctx: Any, args: list[str]) -> None:
        from wend.drivers.settings import OLD_NAMES

        here = {flag for option in self.get_params(ctx) for flag in (*option.opts, *option.secondary_opts)}
        for word in args:
            flag = word.partition("=")[0]
            name = flag.removeprefix("--").removeprefix("no-").replace("-", "_")
            if flag.startswith("--") and flag not in here and name in OLD_NAMES:
                raise ConfigError(f"there is no option {flag}: it is called {flag_of(OLD_NAMES[name])}")


def given(ctx: typer.Context) -> dict[str, Any]:
    """The settings that the call gives, by name."""
    return dict(ctx.meta[_GIVEN])


def _options(settings: list[tuple[Setting, str, str]]) -> list[Any]:
    """One option for each setting. Typer makes them, from a function that takes them all."""

    def command(**values: Any) -> None:
        pass

    hints: dict[str, Any] = {}
    for each, default, about in settings:
        kind: Any = _TYPES.get(each.kind, str)
        hint = tuple[kind, kind] if each.pair else kind
        hints[each.name] = Annotated[hint | None, _option(each, default, about, each.title)]
    parameters = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=hint)
        for name, hint in hints.items()
    ]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = hints
    app = typer.Typer(add_completion=False)
    app.command()(command)
    return list(typer.main.get_command(app).params)


def _with_names(each: Setting, names: Mapping[str, str] | None) -> str:
    """The sentence of a setting that names a plug-in, with the names that there are."""
    if names is None:
        return each.about
    shown = [f"{name} ({remark})" if remark else name for name, remark in names.items()]
    oracle = ["oracle (what is possible at best)"] if each.name == "strategy" else []
    return f"{each.about} {', '.join([*shown, *oracle])}, or MODULE:CLASS of your own."


def _values_of(flag: str, args: list[str]) -> list[str]:
    after = [value for word, value in pairwise(args) if word == flag]
    return after + [word.partition("=")[2] for word in args if word.startswith(f"{flag}=")]


# ---------------------------------------------------------------- what a scenario makes of them


def runs_failure_detector(scenario: "Scenario", strategy: str | None = None) -> bool:
    """Whether its peers look for dead links, with this strategy or its own."""
    return any(made.needs.failure_detector for made in _hosted(scenario, strategy or scenario.strategy))


def _hosted(s: "Scenario", strategy: str) -> list[Any]:
    """The plug-ins of its peers; the oracle has none."""
    from wend.drivers.settings import load_chosen
    from wend.protocol.config import DeliverySettings
    from wend.strategies.registry import ROUTING, hosted_plugins, plugin

    load_chosen({"strategy": strategy})
    if strategy not in ROUTING:
        return []
    wanted = hosted_plugins(strategy, s.interest, s.membership, s.of(DeliverySettings).persistency)
    return [plugin(kind, name) for kind, name in wanted]


def say_ignored(s: "Scenario", flags: Mapping[str, Any], strategies: tuple[str, ...] = ()) -> None:
    """On stderr, each flag that was given and that changes nothing, with the scenario's strategy or any of these."""
    from wend.drivers.sim import known

    if not known(s.strategy):
        return  # the simulator says so, and that is enough
    first, *others = [_ignored(s, name) for name in strategies or (s.strategy,)]
    for name, why in first.items():
        if flags.get(name) is not None and all(name in other for other in others):
            print(f"wend: {flag_of(name)} changes nothing here: {why}", file=sys.stderr)


def _ignored(s: "Scenario", strategy: str) -> dict[str, str]:
    """Setting -> why it has no effect."""
    from wend.protocol.plugins import NoSettings
    from wend.strategies.registry import PLUGINS, ROUTING, TITLES

    hosted = _hosted(s, strategy)
    found: dict[str, str] = {}
    for kind, table in PLUGINS.items():
        for group in {made.settings: None for made in table.values() if made.settings is not NoSettings}:
            if all(made.settings is not group for made in hosted):
                users = [name for name in ROUTING if any(made.settings is group for made in _hosted(s, name))]
                owners = [name for name, made in table.items() if made.settings is group]
                whom = f"{listed(users)}, not for {strategy}" if users else f"{TITLES[kind]} {either(owners)}"
                why = f"it is for {whom}"
                found |= dict.fromkeys((each.name for each in settings_of(group)), why)
    if not any(made.needs.plan for made in hosted):
        followers = either([name for name, made in ROUTING.items() if made.needs.plan])
        found["plan"] = f"only {followers} follows a plan, not {strategy}"
    if not any(made.needs.failure_detector for made in hosted):
        found["detection"] = f"{strategy} does not use the failure detector"
    if s.underlay is None:
        found["trace_paths"] = "there is no --underlay"
    elif not any(made.needs.paths for made in hosted):
        users = [name for name in ROUTING if any(made.needs.paths for made in _hosted(s, name))]
        found["trace_paths"] = f"it is for {listed(users)}, not for {strategy}"
    if s.topology not in DRAWN:
        found["peers"] = f"{s.topology} says how many there are"
    if s.topology != "regular":
        found["degree"] = f"it is for regular, not for {s.topology}"
    if s.link_capacity is None and s.peer_capacity is None:
        found |= dict.fromkeys(("queue", "charge"), "nothing has a capacity")
    if s.flows is not None:
        found |= dict.fromkeys(("topics", "rate", "pace"), "flows say who publishes what, and how often")
    if s.failures is not None or s.mean_outage_ns is not None or s.outages is not None:
        found["pf"] = "the scenario has other failures"
    return found


def fit_topics(s: "Scenario", said: bool) -> "Scenario":
    """Each topic has a publisher of its own: a small overlay has as many as peers, unless somebody `said` how many."""
    if said or s.flows is not None:
        return s
    from wend.drivers.world import peers_of

    peers = peers_of(s)
    if peers < TOPICS:
        print(f"wend: {peers} topics, one for each peer; --topics says otherwise", file=sys.stderr)
    return s.with_(topics=min(TOPICS, peers))


def check_strategy(s: "Scenario") -> None:
    """Refuse a run that would end without a delivery."""
    if s.plan is None and any(made.needs.plan for made in _hosted(s, s.strategy)):
        raise ConfigError(f"{s.strategy} follows a plan: name one with --plan DIR, as `wend plan` writes it")
