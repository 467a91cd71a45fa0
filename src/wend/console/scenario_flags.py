"""What the flags of `wend sim` and `wend up` make of a scenario: how it is read, and which flags change nothing."""

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
    """A scenario from flags that were given, over the file if there is one."""
    from wend.drivers.scenarios import load_scenario, make_scenario

    stated = {name: value for name, value in flags.items() if value is not None}
    return make_scenario(stated) if path is None else load_scenario(path, **stated)


def overlay_of_flags(topology: str, peers: int | None, degree: int | None, seed: int | None) -> "Overlay":
    """The overlay that these flags name."""
    from wend.drivers.world import make_overlay

    return make_overlay(read_scenario({"topology": topology, "peers": peers, "degree": degree, "seed": seed}))


def check_strategy(s: "Scenario") -> None:
    """Refuse a run that would end without a delivery."""
    if s.plan is None and any(plugin.needs.plan for plugin in _hosted(s, s.strategy)):
        raise ConfigError(f"{s.strategy} follows a plan: name one with --plan DIR, as `wend plan` writes it")


def runs_failure_detector(s: "Scenario", strategy: str | None = None) -> bool:
    """Whether its peers look for dead links, with this strategy or its own."""
    return any(plugin.needs.failure_detector for plugin in _hosted(s, strategy or s.strategy))


def say_topics(world: "World") -> None:
    """On stderr, how many topics a small overlay has, if nobody said how many."""
    from wend.drivers.workload import TOPICS

    s = world.scenario
    if s.topics is None and s.flows is None and len(world.topics) < TOPICS:
        print(f"wend: {len(world.topics)} topics, one for each peer; --topics says otherwise", file=sys.stderr)


def played(world: "World") -> dict[str, Any]:
    """The scenario of a world for JSON output, with the numbers of peers and topics that the world has."""
    s = world.scenario
    topics = {"topics": len(world.topics)} if s.flows is None else {}
    return {**s.flat(), "peers": world.overlay.peers, **topics}


# ---------------------------------------------------------------- flags without effect


def say_unused(s: "Scenario", flags: Mapping[str, Any], strategies: tuple[str, ...] = ()) -> None:
    """On stderr, each flag that was given and that changes nothing, with the scenario's strategy or any of these."""
    from wend.drivers.sim import can_simulate

    if not can_simulate(s.strategy):
        return  # the simulator says so, and that is enough
    first, *others = [_unused(s, name) for name in strategies or (s.strategy,)]
    for name, why in first.items():
        if flags.get(name) is not None and all(name in other for other in others):
            print(f"wend: {flag_name(name)} changes nothing here: {why}", file=sys.stderr)


def _unused(s: "Scenario", strategy: str) -> dict[str, str]:
    """Setting -> why it has no effect."""
    from wend.drivers.scenarios import Scenario

    hosted = _hosted(s, strategy)
    return {
        **_of_other_plugins(s, strategy, hosted),
        **_without_needs(s, strategy, hosted),
        **unused_settings(declared_settings(Scenario), s.own_values()),
    }


def _hosted(s: "Scenario", strategy: str) -> Plugins:
    """The plug-ins of its peers; the oracle has none."""
    from wend.drivers.settings import load_chosen
    from wend.protocol.config import DeliverySettings
    from wend.strategies.registry import STRATEGIES, hosted_plugins, plugin

    load_chosen({"strategy": strategy})
    if strategy not in STRATEGIES:
        return []
    names = hosted_plugins(strategy, s.interest, s.membership, s.of(DeliverySettings).persistence)
    return [plugin(kind, name) for kind, name in names]


def _of_other_plugins(s: "Scenario", strategy: str, hosted: Plugins) -> dict[str, str]:
    """The settings of plug-ins that the peers do not host."""
    from wend.strategies.registry import PLUGINS, STRATEGIES, TITLES

    unused: dict[str, str] = {}
    for kind, table in PLUGINS.items():
        for group in dict.fromkeys(each.settings for each in table.values()):
            if not _has(hosted, group):
                users = [name for name in STRATEGIES if _has(_hosted(s, name), group)]
                owners = [name for name, each in table.items() if each.settings is group]
                whom = (
                    f"{join_with_and(users)}, not for {strategy}" if users else f"{TITLES[kind]} {join_with_or(owners)}"
                )
                unused |= dict.fromkeys((each.name for each in declared_settings(group)), f"it is for {whom}")
    heeded = {each.name for plugin in hosted for each in declared_settings(plugin.settings)}
    return {name: why for name, why in unused.items() if name not in heeded}


def _has(plugins: Plugins, group: type[Settings]) -> bool:
    return any(plugin.settings is group for plugin in plugins)


def _without_needs(s: "Scenario", strategy: str, hosted: Plugins) -> dict[str, str]:
    """The settings of things that none of the plug-ins asks for."""
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
        users = [name for name in STRATEGIES if any(plugin.needs.paths for plugin in _hosted(s, name))]
        unused["trace_paths"] = f"it is for {join_with_and(users)}, not for {strategy}"
    return unused
