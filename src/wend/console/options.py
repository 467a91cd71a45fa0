"""Options that are fields of a scenario: their defaults in the help, and a sentence about those that change nothing."""

import sys
from collections.abc import Mapping
from typing import Any

import msgspec
import typer

from wend.model.errors import ConfigError
from wend.model.scenario import DRAWN, Scenario

ON_TREES = ("mrst", "spt-k")
_DEFAULTS = {field.name: field.default for field in msgspec.structs.fields(Scenario)}
STRATEGIES = (
    "adaptive (Wend's own), dcrd, d-tree, r-tree, multipath, planned (needs --plan), mrst, spt-k, oracle (what is "
    "possible at best), or MODULE:CLASS of your own."
)


def of(field: str, text: str, *names: str, metavar: str | None = None) -> Any:
    """An option for a field of a scenario; its default is the scenario's."""
    return typer.Option(*names, help=text, metavar=metavar, show_default=_written(field))


def _written(field: str) -> str | bool:
    """As a person would type it."""
    match _DEFAULTS[field]:
        case None:
            return False
        case bool(on):
            return "on" if on else "off"
        case float(number):
            unit = next((unit for unit in ("ms", "s") if field.endswith(f"_{unit}")), "")
            return f"{number:g}{unit}"
        case other:
            return str(other)


def probes(strategy: str) -> bool:
    from wend.protocol.routing import ROUTING

    return strategy in ROUTING and ROUTING[strategy]().probes


def say_ignored(s: Scenario, flags: Mapping[str, Any]) -> None:
    """On stderr, for each flag that was given and that this scenario has no use for."""
    from wend.drivers.sim import STRATEGIES as KNOWN
    from wend.drivers.strategies import learn
    from wend.protocol.routing import ROUTING

    learn(s.strategy)
    if s.strategy not in (*KNOWN, *ROUTING):
        return  # that will be said, and is enough
    for name, why in _ignored(s).items():
        if flags.get(name) is not None:
            print(f"wend: --{name.replace('_', '-')} changes nothing here: {why}", file=sys.stderr)


def _ignored(s: Scenario) -> dict[str, str]:
    """Flag -> why it has no effect."""
    found: dict[str, str] = {}
    if s.strategy not in ON_TREES:
        found |= dict.fromkeys(("trees", "reliability"), f"it is for mrst and spt-k, not for {s.strategy}")
    if s.strategy != "adaptive":
        found["redundancy"] = f"it is for adaptive, not for {s.strategy}"
    if s.strategy != "planned":
        found["plan"] = f"only planned follows a plan, not {s.strategy}"
    if not probes(s.strategy):
        found["detect"] = f"{s.strategy} does not probe its links"
    if s.underlay is None:
        found["aware"] = "there is no --underlay"
    elif s.strategy != "adaptive":
        found["aware"] = f"it is for adaptive, not for {s.strategy}"
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


def check_strategy(s: Scenario) -> None:
    """What would run to its end and say nothing."""
    if s.strategy == "planned" and s.plan is None:
        raise ConfigError("planned follows a plan: name one with --plan DIR, as `wend plan` writes it")
