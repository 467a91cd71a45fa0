"""Options that are fields of a scenario: their defaults in the help, and a sentence about those that change nothing."""

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from typer.core import TyperCommand

from wend.drivers.scenarios import Scenario
from wend.model.errors import ConfigError
from wend.model.scenario import DRAWN, TOPICS

if TYPE_CHECKING:
    from wend.protocol.plugins import Traits

_DEFAULTS = {field.name: field.default for field in msgspec.structs.fields(Scenario)}
STRATEGIES = "STRATEGIES, oracle (what is possible at best), or MODULE:CLASS of your own."
"""Help, where a `NamesStrategies` puts in those that there are."""


class NamesStrategies(TyperCommand):
    """Asks for them when its help is shown: they take longer to import than all that other commands need."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        options: list[Any] = self.params
        for option in options:
            if STRATEGIES in (option.help or ""):
                option.help = option.help.replace("STRATEGIES", _strategies())
        super().format_help(ctx, formatter)


def _strategies() -> str:
    from wend.protocol.routing import ROUTING

    remarks = {name: "needs --plan" if s.traits.follows_plan else s.traits.about for name, s in ROUTING.items()}
    return ", ".join(f"{name} ({remark})" if remark else name for name, remark in remarks.items())


def of(field: str, text: str, *names: str, metavar: str | None = None) -> Any:
    """An option for a field of a scenario, whose default is the scenario's: flags that were not given are None."""
    if (default := _written(field)) is not None:
        text += stated(default)
    return typer.Option(*names, help=text, metavar=metavar, show_default=False)


def stated(default: object) -> str:
    """The end of a help text that says what holds where nothing is said; typer knows only defaults of its own."""
    return f" [dim]\\[default: {default}][/]"


def _written(field: str) -> str | None:
    """As a person would type it; typer puts what it is told in brackets, as if it were a remark."""
    match _DEFAULTS[field]:
        case bool(on):
            return field if on else f"no-{field}"
        case float(number):
            unit = next((unit for unit in ("ms", "s") if field.endswith(f"_{unit}")), "")
            return f"{number:g}{unit}"
        case other:
            return None if other is None else str(other)


TOPOLOGIES = "regular, full-mesh, topohub:NAME or a GraphML file."
Topology = Annotated[str | None, of("topology", TOPOLOGIES)]
Peers = Annotated[int | None, of("peers", "Number of peers, where the topology is drawn.")]
Degree = Annotated[int | None, of("degree", "Neighbours of each peer (regular).")]
Seed = Annotated[int | None, of("seed", "Decides everything that is drawn.")]
Pl = Annotated[float | None, of("pl", "Probability that a packet is lost on a working link.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def probes(strategy: str) -> bool:
    return _traits(strategy).probes


def _traits(strategy: str) -> "Traits":
    """Of the oracle too, which has none."""
    from wend.drivers.strategies import learn
    from wend.protocol.plugins import Traits
    from wend.protocol.routing import ROUTING

    learn(strategy)
    return ROUTING[strategy].traits if strategy in ROUTING else Traits()


def say_ignored(s: Scenario, flags: Mapping[str, Any], strategies: tuple[str, ...] = ()) -> None:
    """On stderr, for each flag that was given and that has no use for the scenario's strategy, nor for any of these."""
    from wend.drivers.sim import known

    if not known(s.strategy):
        return  # that will be said, and is enough
    first, *others = [_ignored(s.with_(strategy=name)) for name in strategies or (s.strategy,)]
    for name, why in first.items():
        if flags.get(name) is not None and all(name in other for other in others):
            print(f"wend: --{name.replace('_', '-')} changes nothing here: {why}", file=sys.stderr)


def _ignored(s: Scenario) -> dict[str, str]:
    """Flag -> why it has no effect."""
    from wend.protocol.routing import ROUTING

    found: dict[str, str] = {}
    traits, all_ = _traits(s.strategy), {name: each.traits for name, each in ROUTING.items()}
    for setting in sorted({setting for each in all_.values() for setting in each.settings - traits.settings}):
        users = " and ".join(name for name, each in all_.items() if setting in each.settings)
        found[setting] = f"it is for {users}, not for {s.strategy}"
    if not traits.follows_plan:
        followers = " or ".join(name for name, each in all_.items() if each.follows_plan)
        found["plan"] = f"only {followers} follows a plan, not {s.strategy}"
    if not traits.probes:
        found["detect"] = f"{s.strategy} does not probe its links"
    if s.underlay is None:
        found["aware"] = "there is no --underlay"
    elif not traits.traces:
        tracers = " and ".join(name for name, each in all_.items() if each.traces)
        found["aware"] = f"it is for {tracers}, not for {s.strategy}"
    if s.topology not in DRAWN:
        found["peers"] = f"{s.topology} says how many there are"
    if s.topology != "regular":
        found["degree"] = f"it is for regular, not for {s.topology}"
    if s.capacity is None and s.peer_capacity is None:
        found |= dict.fromkeys(("queue", "charge"), "nothing has a capacity")
    if s.flows is not None:
        found |= dict.fromkeys(("topics", "rate", "pace"), "flows say who publishes what, and how often")
    if s.failures is not None or s.mean_outage_s is not None or s.outages is not None:
        found["pf"] = "other failures are played"
    return found


def fit_topics(s: Scenario, said: bool) -> Scenario:
    """Each topic has a publisher of its own: a small overlay has as many as peers, unless somebody `said` how many."""
    if said or s.flows is not None:
        return s
    from wend.drivers.world import peers_of

    peers = peers_of(s)
    if peers < TOPICS:
        print(f"wend: {peers} topics, one for each peer; --topics says otherwise", file=sys.stderr)
    return s.with_(topics=min(TOPICS, peers))


def check_strategy(s: Scenario) -> None:
    """What would run to its end and say nothing."""
    if _traits(s.strategy).follows_plan and s.plan is None:
        raise ConfigError(f"{s.strategy} follows a plan: name one with --plan DIR, as `wend plan` writes it")
