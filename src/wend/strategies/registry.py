"""The plug-ins by kind and name, the strategies that are made of them, and the peers that host them.

A plug-in of the tree is a line in a table here: its name, and `module:Class` below this package. It is imported when
somebody asks for it. If its folder is not there, neither is its name. A plug-in from outside the tree has
`package.module:Class` for a name; Python looks for that module where it looks for all, then in the current folder.

A strategy is a line, too: its routing, its interest and its membership. A routing from outside the tree is a strategy
of the same name, and so is an interest that needs no routing.
"""

import sys
from collections.abc import Iterator, Mapping, MutableMapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import msgspec

from wend.model.error_text import join_with_or
from wend.model.errors import ConfigError
from wend.model.settings import Settings, declared_settings
from wend.protocol.config import DeliverySettings, LinkSettings, PeerConfig
from wend.protocol.peer import Peer
from wend.protocol.plugins import (
    FLOODED,
    LINK_STATE,
    OUTSIDE,
    Graph,
    Interest,
    Kind,
    Membership,
    Needs,
    NoSettings,
    Plugin,
    Routing,
)


class PluginTable(MutableMapping[str, type[Plugin]]):
    """The plug-ins of one kind by name. A class is imported when it is asked for."""

    def __init__(self, modules: dict[str, str]) -> None:
        self._modules = {name: f"{__package__}.{module}" for name, module in modules.items()}
        self._classes: dict[str, type[Plugin]] = {}
        self._has_folder: dict[str, bool] = {}

    def __getitem__(self, name: str) -> type[Plugin]:
        plugin_class = self._classes.get(name)
        if plugin_class is None:
            if name not in self:
                raise KeyError(name)
            module, _, title = self._modules[name].partition(OUTSIDE)
            plugin_class = self._classes[name] = getattr(import_module(module), title)
        return plugin_class

    def __contains__(self, name: object) -> bool:
        return name in self._classes or (name in self._modules and self._module_exists(self._modules[str(name)]))

    def __iter__(self) -> Iterator[str]:
        yield from (name for name, module in self._modules.items() if self._module_exists(module))
        yield from (name for name in self._classes if name not in self._modules)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __setitem__(self, name: str, plugin_class: type[Plugin]) -> None:
        self._classes[name] = plugin_class

    def __delitem__(self, name: str) -> None:
        del self._classes[name]

    def loaded_plugins(self) -> list[tuple[str, type[Plugin]]]:
        """The plug-ins from outside the tree."""
        return [(name, plugin_class) for name, plugin_class in self._classes.items() if name not in self._modules]

    def ships(self, name: str) -> bool:
        """Whether it is a plug-in of the tree."""
        return name in self._modules

    def clear(self) -> None:
        """Forget all plug-ins from outside the tree. Those of the tree stay."""
        self._classes.clear()

    def _module_exists(self, module: str) -> bool:
        folder = ".".join(module.split(".")[:3])
        if folder not in self._has_folder:
            self._has_folder[folder] = find_spec(folder) is not None
        return self._has_folder[folder]


MEMBERSHIP = PluginTable(
    {
        "tdo-landmark": "tdo.plugin:TdoLandmark",
        "tdo-random": "tdo.plugin:TdoRandom",
        "tdo-nearest": "tdo.plugin:Nearest",
        "tdo-farthest": "tdo.plugin:Farthest",
        "random": "tdo.plugin:RandomLinks",
        "chain": "tdo.plugin:Chain",
        "pastry": "ring.pastry:Pastry",
        "clusters": "clusters.membership.plugin:Clusters",
        "clusters-linked": "clusters.membership.plugin:LinkedClusters",
    }
)
GRAPHS = PluginTable(
    {
        LINK_STATE: "link_state.plugin:LinkStateGraph",
        "mrst-trees": "trees.graph:MrstTrees",
        "spt-k-trees": "trees.graph:SptKTrees",
    }
)
INTEREST = PluginTable(
    {
        "flooded": "flooded.plugin:FloodedInterest",
        "trees": "trees.interest:TreeInterest",
        "trees-by-name": "trees.interest:NamedTreeInterest",
        "scribe": "ring.scribe:Scribe",
        "hermes": "ring.hermes:Hermes",
        "dmm": "dmm.plugin:Dmm",
        "dmm-ar": "dmm.plugin:DmmAr",
        "rendezvous": "rendezvous.plugin:Rendezvous",
        "cluster-trees": "clusters.interest.plugin:ClusterInterest",
        "cluster-graph": "clusters.interest.graph:ClusterGraph",
        "esposito": "esposito.plugin:Esposito",
    }
)
ROUTING = PluginTable(
    {
        "adaptive": "adaptive.plugin:Adaptive",
        "dcrd": "dcrd.plugin:Dcrd",
        "d-tree": "source_trees.plugin:DelayTree",
        "r-tree": "source_trees.plugin:HopTree",
        "multipath": "multipath.plugin:Multipath",
        "planned": "planned.plugin:PlannedRouting",
        "planned-failover": "planned.failover:FailoverRouting",
        "mrst": "trees.routing:MrstRouting",
        "spt-k": "trees.routing:SptKRouting",
    }
)
PLUGINS: dict[Kind, PluginTable] = {
    "membership": MEMBERSHIP,
    "graph": GRAPHS,
    "interest": INTEREST,
    "routing": ROUTING,
}
TITLES: dict[Kind, str] = {"membership": "membership", "graph": "graph", "interest": "interest", "routing": "strategy"}
"""The name that users know for each kind of plug-in."""
_BASES: dict[Kind, type[Membership | Graph | Interest | Routing]] = {
    "membership": Membership,
    "graph": Graph,
    "interest": Interest,
    "routing": Routing,
}
_ASKED_FIRST = {"membership": 0, "interest": 2, "routing": 4}


class Strategy(msgspec.Struct, frozen=True):
    """The plug-ins of a strategy, by name. The graphs follow from what these need."""

    routing: str | None
    """None: the interest sends events by messages of its own."""
    interest: str = FLOODED
    durable_interest: str = ""
    """The interest with persistence, if it is another one."""
    membership: str | None = None
    """None: links are given, or a membership makes them."""

    def interest_for(self, persistence: bool) -> str:
        return (self.durable_interest if persistence else "") or self.interest

    @property
    def is_there(self) -> bool:
        """Whether the folders of its plug-ins are there."""
        return (
            (self.routing is None or self.routing in ROUTING)
            and self.interest in INTEREST
            and (self.membership is None or self.membership in MEMBERSHIP)
        )


class StrategyTable(Mapping[str, Strategy]):
    """The strategies by name: those of the tree, and those that were loaded from outside."""

    def __init__(self, shipped: dict[str, Strategy]) -> None:
        self._shipped = shipped

    def __getitem__(self, name: str) -> Strategy:
        strategy = self._shipped.get(name)
        if strategy is None:
            strategy = self._loaded_strategies()[name]
        elif not strategy.is_there:
            raise KeyError(name)
        return strategy

    def __iter__(self) -> Iterator[str]:
        yield from (name for name, strategy in self._shipped.items() if strategy.is_there)
        yield from (name for name in self._loaded_strategies() if name not in self._shipped)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def ships(self, name: str) -> bool:
        """Whether it is a strategy of the tree."""
        return name in self._shipped

    def _loaded_strategies(self) -> dict[str, Strategy]:
        alone = [
            (name, made) for name, made in INTEREST.loaded_plugins() if not getattr(made, "knows_all_subscribers", True)
        ]
        return {
            name: _make_declared_strategy(name, plugin_class)
            for name, plugin_class in [*ROUTING.loaded_plugins(), *alone]
        }


def _make_declared_strategy(name: str, plugin_class: type[Plugin]) -> Strategy:
    """The strategy that a plug-in from outside the tree makes."""
    needs = plugin_class.needs
    if issubclass(plugin_class, Interest):
        return Strategy(None, name, membership=needs.membership)
    return Strategy(name, needs.interest, needs.durable_interest, needs.membership)


STRATEGIES = StrategyTable(
    {
        "adaptive": Strategy("adaptive"),
        "dcrd": Strategy("dcrd"),
        "d-tree": Strategy("d-tree"),
        "r-tree": Strategy("r-tree"),
        "multipath": Strategy("multipath"),
        "planned": Strategy("planned"),
        "planned-failover": Strategy("planned-failover"),
        "mrst": Strategy("mrst", "trees", "trees-by-name"),
        "spt-k": Strategy("spt-k", "trees", "trees-by-name"),
        "scribe": Strategy(None, "scribe", membership="pastry"),
        "hermes": Strategy(None, "hermes", membership="pastry"),
        "dmm": Strategy(None, "dmm", membership="pastry"),
        "dmm-ar": Strategy(None, "dmm-ar", membership="pastry"),
        "rendezvous": Strategy(None, "rendezvous", membership="pastry"),
        "clusters": Strategy(None, "cluster-trees", membership="clusters"),
        "esposito": Strategy(None, "esposito", membership="clusters"),
        "clusters-adaptive": Strategy("adaptive", "cluster-graph", membership="clusters-linked"),
    }
)


# ---------------------------------------------------------------- looking up


def plugin(kind: Kind, name: str) -> type[Plugin]:
    """The class of a plug-in. Raises ConfigError if the name is unknown."""
    try:
        return PLUGINS[kind][name]
    except KeyError:
        raise _unknown_error(kind, name, PLUGINS[kind]) from None


def strategy_named(name: str) -> Strategy:
    """The strategy with this name. Raises ConfigError if the name is unknown."""
    try:
        return STRATEGIES[name]
    except KeyError:
        raise _unknown_error("routing", name, STRATEGIES) from None


def _unknown_error(kind: Kind, name: str, names: Mapping[str, object]) -> ConfigError:
    return ConfigError(f"unknown {TITLES[kind]} {name!r}: choose one of {', '.join(names)}, or MODULE:CLASS")


def find_routing(strategy: str) -> type[Routing] | None:
    """The routing of a strategy; None if it has none."""
    name = strategy_named(strategy).routing
    return None if name is None else ROUTING[name]  # type: ignore[return-value]


def follows_plan(strategy: str) -> bool:
    routing = find_routing(strategy)
    return routing is not None and routing.needs.plan


def linked_strategies() -> tuple[str, ...]:
    """The strategies that work on given links: they have a routing, and need no membership."""
    return tuple(name for name, each in STRATEGIES.items() if each.routing is not None and each.membership is None)


def find_membership(strategy: str, membership: str | None) -> str | None:
    """The membership of such a peer: the one that its configuration names, or that its strategy needs."""
    return membership or strategy_named(strategy).membership


def joins_by_contacts(membership: str) -> bool:
    """Whether peers with this membership join by any peer that they know."""
    plugin_class = plugin("membership", membership)
    return issubclass(plugin_class, Membership) and plugin_class.joins


def hosted_setting_groups(strategy: str, interest: str | None, membership: str | None) -> tuple[type[Settings], ...]:
    """The groups of settings of such a peer, with and without persistence."""
    names = {name for on in (False, True) for name in hosted_plugins(strategy, interest, membership, on)}
    return tuple(dict.fromkeys([LinkSettings, DeliverySettings, *(plugin(*name).settings for name in sorted(names))]))


def setting_groups() -> tuple[type[Settings], ...]:
    """All groups of settings: the link layer's, the delivery's, and those of every plug-in in the tables."""
    groups: list[type[Settings]] = [LinkSettings, DeliverySettings]
    for table in PLUGINS.values():
        groups += [each.settings for each in table.values() if each.settings is not NoSettings]
    return tuple(dict.fromkeys(groups))


# ---------------------------------------------------------------- the plug-ins of a peer


def make_peer(config: PeerConfig) -> Peer:
    """A peer with the plug-ins that its configuration asks for."""
    membership = find_membership(config.strategy, config.membership)
    if membership != config.membership:
        config = config.with_(membership=membership)
    persistence = config.of(DeliverySettings).persistence
    names = hosted_plugins(config.strategy, config.interest, membership, persistence)
    hosted = tuple((name, plugin(kind, name)) for kind, name in names)
    if config.has_other_settings((LinkSettings, DeliverySettings, *(each.settings for _, each in hosted))):
        config.check(setting_groups())
    return Peer(config, hosted)


def hosted_plugins(
    strategy: str, interest: str | None, membership: str | None, persistence: bool
) -> tuple[tuple[Kind, str], ...]:
    """The plug-ins that such a peer hosts, by kind and name, in the order in which its host asks them."""
    named = strategy_named(strategy)
    hosted: list[tuple[Kind, str]] = [("interest", interest or named.interest_for(persistence))]
    if named.routing is not None:
        hosted.append(("routing", named.routing))
    decides = find_membership(strategy, membership)
    if decides is not None:
        _check_membership(strategy, decides)
        hosted.append(("membership", decides))
    for kind, name in hosted:  # grows while plug-ins need graphs, and graphs others
        hosted += [("graph", graph) for graph in plugin(kind, name).needs.graphs if ("graph", graph) not in hosted]
    return tuple(sorted(hosted, key=_host_order))


def _host_order(hosted: tuple[Kind, str]) -> int:
    kind, name = hosted
    if kind == "graph":
        return 1 if name == LINK_STATE else 3
    return _ASKED_FIRST[kind]


def _check_membership(strategy: str, membership: str) -> None:
    """Raise ConfigError if the strategy needs links and the membership makes none, or the other way."""
    needed = STRATEGIES[strategy].membership
    makes_links = not joins_by_contacts(membership)
    if OUTSIDE in strategy:
        return
    if needed is None:
        if not makes_links:
            strategies = {name: each.membership for name, each in STRATEGIES.items() if each.membership is not None}
            able = [name for name, needs in strategies.items() if needs == membership] or [*strategies]
            raise ConfigError(f"{strategy} sends over links, and {membership} makes none: choose {join_with_or(able)}")
    elif OUTSIDE not in membership:
        if makes_links:
            raise ConfigError(f"{strategy} writes to any peer, and {membership} makes links: choose {needed}")
        if membership != needed and MEMBERSHIP.ships(membership):
            raise ConfigError(f"{strategy} needs the membership {needed}, got {membership}")


# ---------------------------------------------------------------- plug-ins from outside the tree


def load(kind: Kind, name: str | None) -> None:
    """Put a plug-in from outside the tree into its table, with the graphs that it needs. Raises ConfigError."""
    if name is not None and OUTSIDE in name and name not in PLUGINS[kind]:
        plugin_class = _import_plugin(kind, name)
        _check_settings(kind, name, plugin_class)
        PLUGINS[plugin_class.kind][name] = plugin_class
        for graph in plugin_class.needs.graphs:
            load("graph", graph)


def load_all(strategy: str, interest: str | None, membership: str | None) -> None:
    """Load all plug-ins from outside the tree that a configuration names. Raises ConfigError."""
    load("routing", strategy)
    load("interest", interest)
    load("membership", membership)


def top_level_module(name: str | None) -> str | None:
    """The top-level module or package of a plug-in from outside the tree; None for those of the tree."""
    return None if name is None or OUTSIDE not in name else name.partition(OUTSIDE)[0].partition(".")[0]


def _import_plugin(kind: Kind, name: str) -> type[Plugin]:
    what = f"{TITLES[kind]} {name!r}"
    module, _, title = name.partition(OUTSIDE)
    if not all(part.isidentifier() for part in (*module.split("."), title)):
        raise ConfigError(f"{what} is not of the form MODULE:CLASS")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)
    try:
        plugin_class = getattr(import_module(module), title, None)
    except Exception as error:  # whatever a module does when it is imported
        if isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}."):
            why = f"there is no module {error.name}, neither installed nor in {here}"
        else:
            why = f"{module} cannot be imported: {type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
        raise ConfigError(f"{what}: {why}") from None
    if not isinstance(plugin_class, type):
        raise ConfigError(f"{what}: {module} has no class {title}")
    return _check_plugin(kind, what, plugin_class)


def _check_plugin(kind: Kind, what: str, plugin_class: type) -> type[Plugin]:
    base = _BASES[kind]
    if kind == "routing" and issubclass(plugin_class, Interest) and not plugin_class.knows_all_subscribers:
        base = Interest  # it needs no routing
    if not issubclass(plugin_class, base):
        raise ConfigError(f"{what} does not inherit from wend.protocol.plugins.{base.__name__}")
    if plugin_class.handle is base.handle or not callable(plugin_class.handle):
        raise ConfigError(f"{what} has no method handle(self, now, event, view)")
    if not isinstance(plugin_class.needs, Needs):
        raise ConfigError(f"{what}: its needs are a {type(plugin_class.needs).__name__}, not Needs(...)")
    made: type[Plugin] = plugin_class
    try:
        made(PeerConfig(peer=0))
    except Exception as error:
        raise ConfigError(f"{what} cannot be made: {error}") from None
    return made


def _check_settings(kind: Kind, name: str, plugin_class: type[Plugin]) -> None:
    if not (isinstance(plugin_class.settings, type) and issubclass(plugin_class.settings, Settings)):
        raise ConfigError(f"{TITLES[kind]} {name!r}: its settings are not a subclass of Settings")
    groups = {one.name: group for group in setting_groups() for one in declared_settings(group)}
    for one in declared_settings(plugin_class.settings):
        if groups.get(one.name, plugin_class.settings) is not plugin_class.settings:
            raise ConfigError(f"{TITLES[kind]} {name!r} declares the setting {one.name}, which exists already")
