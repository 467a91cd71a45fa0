"""Read a scenario from the flags of `wend sim` and `wend up`, and find flags that have no effect."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wend.model.error_text import join_with_and, join_with_or
from wend.model.errors import ConfigError
from wend.model.settings import Settings, declared_settings, flag_name, unused_settings

if TYPE_CHECKING:
    from wend.drivers.scenarios import Scenario
    from wend.drivers.world import World
    from wend.topology.graph import Overlay

Plugins = list[Any]
"""The classes of the plug-ins that a peer hosts."""


def read_scenario(flags: dict[str, Any], path: Path | None = None) -> "Scenario":
    """Read a scenario. Flags override the file, if there is one."""
    from wend.drivers.scenarios import load_scenario, make_scenario

    stated = {name: value for name, value in flags.items() if value is not None}
    return make_scenario(stated) if path is None else load_scenario(path, **stated)


def make_overlay(topology: str, peers: int | None, degree: int | None, seed: int | None) -> "Overlay":
    """Make the overlay of a scenario with these flags."""
    from wend.drivers.world import make_overlay

    return make_overlay(read_scenario({"topology": topology, "peers": peers, "degree": degree, "seed": seed}))


def check_strategy(s: "Scenario") -> None:
    """Refuse a run that would end without a delivery."""
    if s.plan is None and any(plugin.needs.plan for plugin in _hosted_plugins(s, s.strategy)):
        raise ConfigError(f"{s.strategy} follows a plan: name one with --plan DIR, as `wend plan` writes it")


def runs_failure_detector(s: "Scenario", strategy: str | None = None) -> bool:
    """Whether peers of this scenario run a failure detector, with this strategy or the scenario's own."""
    return any(plugin.needs.failure_detector for plugin in _hosted_plugins(s, strategy or s.strategy))


def print_topics(world: "World") -> None:
    """Print on stderr how many topics a small overlay has, if the scenario does not state a number."""
    from wend.drivers.workload import TOPICS

    s = world.scenario
    if s.topics is None and s.flows is None and len(world.topics) < TOPICS:
        print(f"wend: {len(world.topics)} topics, one for each peer; --topics says otherwise", file=sys.stderr)


def scenario_fields(world: "World") -> dict[str, Any]:
    """The scenario of a world for JSON output, with the numbers of peers and topics that the world has."""
    s = world.scenario
    topics = {"topics": len(world.topics)} if s.flows is None else {}
    return {**s.flat(), "peers": world.overlay.peers, **topics}


# ---------------------------------------------------------------- flags without effect


def print_unused(s: "Scenario", flags: Mapping[str, Any], strategies: tuple[str, ...] = ()) -> None:
    """Print each flag of the call that has no effect under the scenario's strategy or, if given, under these."""
    from wend.drivers.sim import can_simulate

    if not can_simulate(s.strategy):
        return  # the simulator says so, and that is enough
    first, *others = [_unused_settings(s, name) for name in strategies or (s.strategy,)]
    for name, why in first.items():
        if flags.get(name) is not None and all(name in other for other in others):
            print(f"wend: {flag_name(name)} changes nothing here: {why}", file=sys.stderr)


def _unused_settings(s: "Scenario", strategy: str) -> dict[str, str]:
    """The settings without effect, each with the reason."""
    from wend.drivers.scenarios import Scenario

    hosted = _hosted_plugins(s, strategy)
    return {
        **_settings_of_other_plugins(s, strategy, hosted),
        **_settings_without_need(s, strategy, hosted),
        **unused_settings(declared_settings(Scenario), s.own_values()),
    }


def _hosted_plugins(s: "Scenario", strategy: str) -> Plugins:
    """The plug-ins that the peers host; the oracle has none."""
    from wend.drivers.settings import load_chosen
    from wend.protocol.config import DeliverySettings
    from wend.strategies.registry import STRATEGIES, hosted_plugins, plugin

    load_chosen({"strategy": strategy})
    if strategy not in STRATEGIES:
        return []
    names = hosted_plugins(strategy, s.interest, s.membership, s.of(DeliverySettings).persistence)
    return [plugin(kind, name) for kind, name in names]


def _settings_of_other_plugins(s: "Scenario", strategy: str, hosted: Plugins) -> dict[str, str]:
    """The settings of plug-ins that the peers do not host."""
    from wend.strategies.registry import PLUGINS, STRATEGIES, TITLES

    unused: dict[str, str] = {}
    for kind, table in PLUGINS.items():
        for group in dict.fromkeys(each.settings for each in table.values()):
            if not _has_settings(hosted, group):
                users = [name for name in STRATEGIES if _has_settings(_hosted_plugins(s, name), group)]
                owners = [name for name, each in table.items() if each.settings is group]
                whom = (
                    f"{join_with_and(users)}, not for {strategy}" if users else f"{TITLES[kind]} {join_with_or(owners)}"
                )
                unused |= dict.fromkeys((each.name for each in declared_settings(group)), f"it is for {whom}")
    used = {each.name for plugin in hosted for each in declared_settings(plugin.settings)}
    return {name: why for name, why in unused.items() if name not in used}


def _has_settings(plugins: Plugins, group: type[Settings]) -> bool:
    return any(plugin.settings is group for plugin in plugins)


def _settings_without_need(s: "Scenario", strategy: str, hosted: Plugins) -> dict[str, str]:
    """The settings of services that no hosted plug-in needs, each with the reason."""
    from wend.strategies.registry import STRATEGIES, follows_plan

    unused = {}
    if not any(plugin.needs.plan for plugin in hosted):
        followers = join_with_or([name for name in STRATEGIES if follows_plan(name)])
        unused["plan"] = f"only {followers} follows a plan, not {strategy}"
    if not any(plugin.needs.failure_detector for plugin in hosted):
        unused["detection"] = f"{strategy} does not use the failure detector"
    if s.underlay is None:
        unused["trace_paths"] = "there is no --underlay"
    elif not any(plugin.needs.paths for plugin in hosted):
        users = [name for name in STRATEGIES if any(plugin.needs.paths for plugin in _hosted_plugins(s, name))]
        unused["trace_paths"] = f"it is for {join_with_and(users)}, not for {strategy}"
    return unused
