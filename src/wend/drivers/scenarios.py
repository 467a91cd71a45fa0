"""Scenarios: everything that decides a run. Two runs of one scenario are the same run.

A scenario comes from a TOML file, from flags, or from a row of a sweep. It declares the settings of the world around
the peers: topology, failures, workload, capacities and durations. Their names follow section IV-A of the dcrd paper,
whose values are the defaults. By name, it also holds the settings of its peers.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from wend.drivers.settings import ByName, Chosen, Configuration, peer_settings
from wend.model.choices import PluginChoices
from wend.model.errors import ConfigError
from wend.model.fault_settings import Congestion, DelaySpikes, Outages, Partitions
from wend.model.rates import parse_rate
from wend.model.scenario import (
    AGGREGATE,
    DRAWN,
    STATED,
    BackgroundFlows,
    Charge,
    Content,
    Pace,
    QueueDiscipline,
    TraceLevel,
    read_toml,
)
from wend.model.settings import OnlyFor, Rule, Setting, check_rules, declared_settings, everyday, setting
from wend.model.units import MS, SECOND, Nanos

if TYPE_CHECKING:
    from typing import Unpack

    from wend.drivers.scenario_fields import ScenarioFields

MIN_DELAY_MS = 1e-3
MAX_S = 1e8
"""Three years: a longer time is a typing error."""
MAX_MS = 1e3 * MAX_S
SIMULATED: dict[str, Any] = {
    "estimator": "nominal",  # as in the dcrd paper, section IV-A
    "monitoring": 300 * SECOND,
    "margin": 0,  # a simulated host has no jitter
    "trace_paths": True,  # it costs nothing; only an underlay has paths
}
"""Defaults of simulated peers that differ from those of live ones."""

ROUTERS = Rule(("underlay",), "concerns routers, and there are none: name an underlay")
QUEUES = Rule(("link_capacity",), "concerns the queues of links, and there are none: give a link_capacity")
CAPACITIES = Rule(("link_capacity", "peer_capacity"), "nothing has a capacity")
FLOWS = Rule(("flows",), "flows state who publishes what, and how often")


def check_capacity(name: str, text: str, words: tuple[str, ...]) -> None:
    """Raise ConfigError for a capacity that is neither one of these words nor a rate."""
    meant = f"{name} is {', '.join(map(repr, words))} or a rate"
    if text not in words and not parse_rate(text, meant).value > 0:
        raise ConfigError(f"{name} must be above 0, got {text}")


class Scenario(Configuration, PluginChoices, metaclass=ByName, kw_only=True):
    """One run, made from names as people write them: `Scenario(peers=30, duration="60s", redundancy="free")`."""

    title: ClassVar[str] = "Run"
    undeclared: ClassVar[frozenset[str]] = frozenset({"settings"})

    seed: Annotated[int, everyday("The seed of everything random.", low=-(2**63), high=2**63 - 1)] = 1
    duration_ns: Annotated[Nanos, everyday("How long publishers publish.", unit="s", low=1e-3, high=MAX_S)] = (
        600 * SECOND
    )
    warmup_ns: Annotated[
        Nanos,
        setting("Time before the first publication, in which peers find their routes.", unit="s", low=1e-3, high=MAX_S),
    ] = 5 * SECOND
    drain_ns: Annotated[
        Nanos,
        setting("Time after the last publication, in which packets may still arrive.", unit="s", low=0, high=MAX_S),
    ] = 10 * SECOND
    trace_level: Annotated[TraceLevel, everyday("What the trace records: deliveries, or hops too.")] = "deliveries"

    topology: Annotated[
        str, everyday("The overlay: regular, random, full-mesh, topohub:NAME or a GraphML file.", title="Topology")
    ] = "regular"
    peers: Annotated[
        int,
        everyday(
            "Number of peers, if the topology is drawn.",
            low=2,
            only_for=OnlyFor("topology", DRAWN, "{value} says how many there are"),
        ),
    ] = 20
    degree: Annotated[
        int,
        everyday(
            "Neighbours of each peer (regular), or their mean number (random).",
            low=1,
            only_for=OnlyFor("topology", ("regular", "random")),
        ),
    ] = 5
    clusters: Annotated[
        int,
        setting(
            "Groups of near peers that form clusters, for strategies with clusters. On an underlay with domains, a "
            "cluster is a domain.",
            low=1,
        ),
    ] = 4
    delay_ns: Annotated[
        tuple[Nanos, Nanos],
        everyday(
            "The range from which link delays are drawn, if the topology states none.", low=MIN_DELAY_MS, high=MAX_MS
        ),
    ] = (10 * MS, 50 * MS)

    underlay: Annotated[
        str | None,
        everyday(
            "The network of routers that carries the overlay: brite, transit-stub, power-law, topohub:NAME, or a "
            "GraphML or GML file. An overlay link then has the delay of its path, and fails with any component of it.",
            title="Underlay",
        ),
    ] = None
    last_mile_ns: Annotated[Nanos, setting("Delay from a peer to its router.", low=MIN_DELAY_MS, high=MAX_MS)] = MS
    access_routers: Annotated[
        int,
        setting(
            "Routers to which each peer is attached, each by a last mile of its own. The path between two peers joins "
            "those that are nearest to each other.",
            low=1,
            high=4,
            requires=ROUTERS,
        ),
    ] = 1
    router_outages: Annotated[
        Outages | None, setting("Routers that fail, with all paths through them.", requires=ROUTERS)
    ] = None
    partitions: Annotated[
        bool,
        setting(
            "Whether outages of links may partition the underlay; if not, an outage that would do so does not happen.",
            requires=ROUTERS,
        ),
    ] = True
    reroute_in_domains: Annotated[
        bool,
        setting(
            "Whether the domains of two peers route around outages of their own links at once; then outages interrupt "
            "paths only in other domains and between domains.",
            requires=ROUTERS,
        ),
    ] = False
    mean_outage_ns: Annotated[
        Nanos | None,
        setting(
            "Mean outage of the underlay's components, which are then as reliable as quist's Table 7.1 says; instead "
            "of all other link failures.",
            unit="s",
            low=1e-3,
            high=MAX_S,
            requires=ROUTERS,
            excludes=Rule(("outages", "router_outages"), "mean_outage says how components fail"),
        ),
    ] = None
    anonymous: Annotated[
        float, setting("The share of routers that answer no traceroute.", low=0, high=1, requires=ROUTERS)
    ] = 0.0
    traceroute_loss: Annotated[
        float, setting("The share of other traceroute answers that are lost.", low=0, high=1, requires=ROUTERS)
    ] = 0.0

    link_capacity: Annotated[
        str | None,
        everyday(
            "Capacity of each direction of a link: 40msg/s or 10Mbit/s if the topology states none, or stated: only "
            "what it states. Without it, links have no limit.",
            title="Capacities",
            check=partial(check_capacity, words=(STATED,)),
        ),
    ] = None
    peer_capacity: Annotated[
        str | None,
        setting(
            "What a peer receives from all its links together: a rate, or links (the sum of their capacities), if "
            "the topology states none, or stated. Without it, peers have no limit.",
            check=partial(check_capacity, words=(STATED, AGGREGATE)),
        ),
    ] = None
    queue_msgs: Annotated[
        int,
        setting(
            "Packets that may wait for a link or peer of limited capacity; a full queue drops the next one.",
            unit="msgs",
            low=0,
            only_with=CAPACITIES,
        ),
    ] = 64
    queue_discipline: Annotated[
        QueueDiscipline,
        setting(
            "What a link's queue drops: drop-tail (packets that arrive when it is full), or codel (also the "
            "first packet, while packets wait too long; RFC 8289).",
            requires=QUEUES,
        ),
    ] = "drop-tail"
    background_flows: Annotated[
        BackgroundFlows | None,
        setting(
            "Other traffic: transfers with TCP-like congestion control that share the queues of links with capacities; "
            "on an underlay, the queues of its links.",
            requires=QUEUES,
        ),
    ] = None
    charge: Annotated[
        Charge, setting("Which packets use capacity: data, or all (ACKs and control, too).", only_with=CAPACITIES)
    ] = "data"

    pf: Annotated[
        float,
        everyday(
            "Probability that a link is down, drawn for every link and second. On an underlay the draws are for its "
            "components, so that overlay links are down this often on average.",
            title="Failures",
            low=0,
            high=1,
            replaced_by=Rule(("failures", "mean_outage", "outages"), "the scenario has other failures"),
        ),
    ] = 0.06
    pl: Annotated[float, everyday("Probability that a packet is lost on a working link.", low=0, high=1)] = 1e-4
    multicast: Annotated[
        bool, setting("Whether multicast packets of one peer reach others, for plug-ins that use it.")
    ] = True
    outages: Annotated[
        Outages | None,
        everyday("Link outages with given distributions, instead of pf; on an underlay, outages of its links."),
    ] = None
    failures: Annotated[
        str | None,
        setting(
            "A trace's faults.parquet: the run repeats these link outages and draws none.",
            excludes=Rule(
                ("outages", "router_outages", "mean_outage", "peer_partitions", "heal"),
                "failures that are repeated are neither drawn nor healed",
            ),
        ),
    ] = None
    peer_outages: Annotated[Outages | None, everyday("Peers that crash and restart with a new incarnation.")] = None
    churn: Annotated[
        Outages | None,
        everyday("Peers that leave gracefully, withdraw their subscriptions, and join again with a new incarnation."),
    ] = None
    peer_partitions: Annotated[
        Partitions | None, setting("Times in which a random group of peers is cut off from all others.")
    ] = None
    reordering: Annotated[
        float, setting("Probability that a link holds a packet back, so that later ones overtake it.", low=0, high=1)
    ] = 0.0
    reordering_delay_ns: Annotated[
        Nanos, setting("The longest time for which a link holds such a packet back.", low=MIN_DELAY_MS, high=MAX_MS)
    ] = 50 * MS
    corruption: Annotated[
        float, setting("Probability that a link corrupts a packet; the receiver refuses and counts it.", low=0, high=1)
    ] = 0.0
    delay_spikes: Annotated[
        DelaySpikes | None, setting("Times in which packets on a link take longer; on an underlay, on its links.")
    ] = None
    congestion: Annotated[
        Congestion | None,
        setting("Times in which background load delays and drops packets on a link; on an underlay, on its links."),
    ] = None
    heal_ns: Annotated[
        Nanos | None,
        setting(
            "When everything but pl is repaired for good, counted from the first publication.",
            unit="s",
            low=0,
            high=MAX_S,
        ),
    ] = None

    topics: Annotated[
        int | None,
        everyday(
            "Topics, each with a publisher of its own; by default 10, or as many as there are peers if they are fewer.",
            title="Workload",
            low=1,
            replaced_by=FLOWS,
        ),
    ] = None
    rate_hz: Annotated[
        float, everyday("Events per second and topic.", unit="hz", low=1e-6, high=1e6, replaced_by=FLOWS)
    ] = 1.0
    pace: Annotated[
        Pace,
        setting(
            "When in its period a topic publishes: even (always at the same time), or moving (later by the golden "
            "ratio each time, so that events meet failures of every age).",
            replaced_by=FLOWS,
        ),
    ] = "even"
    popularity: Annotated[
        tuple[float, float],
        everyday("The range from which each topic draws the probability that a peer subscribes to it.", low=0, high=1),
    ] = (0.2, 0.6)
    content: Annotated[
        Content | None,
        everyday(
            "Subscriptions by content: ranges on numbers. Topics are then only publishers.",
            excludes=Rule(("flows",), "content draws who wants an event, and flows name their receivers"),
        ),
    ] = None
    flows: Annotated[
        str | None,
        everyday("A file of flows, as for plans: who publishes what to whom, evenly spaced; instead of topics."),
    ] = None
    factor: Annotated[
        float,
        everyday("Deadline as a multiple of the shortest delay between publisher and subscriber.", low=1e-6, high=1e6),
    ] = 3.0
    payload_bytes: Annotated[int, everyday("Size of each event's payload, in bytes.", low=0)] = 0

    settings: dict[str, Any]
    """The peers' settings, typed, by name, with all defaults."""

    if TYPE_CHECKING:

        def __init__(self, **fields: Unpack[ScenarioFields]) -> None: ...

    def __post_init__(self) -> None:
        check_rules(declared_settings(Scenario), self.own_values())
        if self.topology in ("regular", "random"):
            self._check_degree()
        if self.topics is not None and self.flows is None and self.topology in DRAWN and self.topics > self.peers:
            raise ConfigError(f"{self.topics} topics need {self.topics} publishers, but there are {self.peers} peers")
        if self.membership is not None and self.topology != "full-mesh":
            raise ConfigError(f"a membership needs peers that all reach each other: full-mesh, not {self.topology}")
        if self.peer_capacity == AGGREGATE and self.link_capacity is None:
            raise ConfigError(f"peer_capacity {AGGREGATE!r} is the sum of the links' capacities: give a link_capacity")
        if self.underlay is not None:
            self._check_underlay()
        elif self.inferred_topology is not None:
            raise ConfigError(f"inferred_topology {ROUTERS.why}")

    def _check_degree(self) -> None:
        degree, peers = self.degree, self.peers
        if degree >= peers:
            raise ConfigError(f"degree {degree} needs at least {degree + 1} peers, got {peers}")
        if degree * peers % 2:
            raise ConfigError(f"degree {degree} times {peers} peers is odd: no {self.topology} graph has that")
        if degree == 1 and peers > 2:
            raise ConfigError(f"degree 1 cannot connect {peers} peers: choose 2 or more")

    def _check_underlay(self) -> None:
        if self.topology not in DRAWN:
            raise ConfigError(f"on an underlay peers are linked by {' or '.join(DRAWN)}, not by {self.topology}")
        if self.background_flows is not None and self.link_capacity == STATED:
            raise ConfigError("links of an underlay state no capacities: give a rate as link_capacity")
        if not self.partitions and (self.outages is None or self.router_outages is not None):
            raise ConfigError("an underlay without partitions needs outages of its links, and no router_outages")

    @classmethod
    def default_settings(cls, chosen: Chosen) -> dict[str, Any]:
        return {name: simulated_default(each) for name, each in peer_settings(chosen).items()}


def simulated_default(setting: Setting) -> Any:
    """The value of a setting of peers in a simulation if nobody states it."""
    return SIMULATED.get(setting.name, setting.default)


def make_scenario(fields: Mapping[str, Any]) -> Scenario:
    """A scenario from plain values. Raises ConfigError with a sentence that says which one is wrong and why."""
    return Scenario.read(fields)


def load_scenario(path: Path, **overrides: Any) -> Scenario:
    """A scenario from a TOML file; values in `overrides` (flags) win over the file."""
    fields = read_toml(path)
    try:
        return make_scenario({**fields, **overrides})
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}", code=error.code) from None
