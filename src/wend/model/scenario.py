"""What a scenario says of the world around the peers: topology, failures, workload, capacities and durations.

Each field is declared as a setting (`model/settings.py`). The names follow section IV-A of the dcrd paper, whose
values are the defaults. `drivers/scenarios.py` adds the settings of the peers.
"""

import tomllib
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import msgspec

from wend.model.background import BackgroundFlows
from wend.model.choices import PluginChoices
from wend.model.errors import ConfigError
from wend.model.fault_settings import Congestion, DelaySpikes, Outages, Partitions
from wend.model.rates import parse_rate
from wend.model.settings import setting
from wend.model.units import MS, SECOND, Nanos

TraceLevel = Literal["deliveries", "hops"]
Charge = Literal["data", "all"]
QueueDiscipline = Literal["drop-tail", "codel"]
Pace = Literal["even", "moving"]

STATED = "stated"
"""As a capacity: only the capacities that the topology states."""
AGGREGATE = "links"
"""As a peer's capacity: the sum of its links' capacities."""
DRAWN = ("full-mesh", "regular")
"""Topologies that have as many peers as the scenario says."""
TOPICS = 10
MIN_DELAY_MS = 1e-3
MAX_S = 1e8
"""Three years: a longer time is a slip."""
MAX_MS = 1e3 * MAX_S


class Content(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Events with numbers as attributes, and at each peer one subscription with ranges on some of them."""

    attributes: int = 10
    domain: int = 256
    """Values are whole numbers from 1 to this."""
    predicates: tuple[int, int] = (1, 5)
    """How many attributes a filter constrains: the fewest and the most."""
    width: float = 1.0
    """The widest range, as a share of the domain."""

    def check(self) -> None:
        low, high = self.predicates
        if not 1 <= low <= high <= self.attributes or self.domain < 1 or not 0 < self.width <= 1:
            raise ConfigError(
                f"content needs 1 <= predicates <= attributes, a domain of 1 or more and a width in 0..1, got "
                f"{low} to {high} of {self.attributes}, {self.domain} and {self.width:g}"
            )


class WorldSettings(PluginChoices):
    """The world of a run. Two runs of one scenario are the same run."""

    title: ClassVar[str] = "Run"

    seed: Annotated[int, setting("Decides everything that is drawn.", low=-(2**63), high=2**63 - 1)] = 1
    duration_ns: Annotated[Nanos, setting("How long publishers publish.", unit="s", low=1e-3, high=MAX_S)] = (
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
    trace_level: Annotated[TraceLevel, setting("What the trace records: deliveries, or hops too.")] = "deliveries"

    topology: Annotated[
        str, setting("The overlay: regular, full-mesh, topohub:NAME or a GraphML file.", title="Topology")
    ] = "regular"
    peers: Annotated[int, setting("Number of peers, where the topology is drawn.", title="Topology", low=2)] = 20
    degree: Annotated[int, setting("Neighbours of each peer (regular).", title="Topology", low=1)] = 5
    clusters: Annotated[
        int,
        setting(
            "Groups of near peers that form clusters, for strategies with clusters. On an underlay with domains, a "
            "cluster is a domain.",
            title="Topology",
            low=1,
        ),
    ] = 4
    delay_ns: Annotated[
        tuple[Nanos, Nanos],
        setting(
            "The range from which link delays are drawn, where the topology states none.",
            title="Topology",
            low=MIN_DELAY_MS,
            high=MAX_MS,
        ),
    ] = (10 * MS, 50 * MS)

    underlay: Annotated[
        str | None,
        setting(
            "The network of routers that carries the overlay: brite, transit-stub, power-law, topohub:NAME, or a "
            "GraphML or GML file. An overlay link then has the delay of its path, and fails with any component of it.",
            title="Underlay",
        ),
    ] = None
    last_mile_ns: Annotated[
        Nanos, setting("Delay from a peer to its router.", title="Underlay", low=MIN_DELAY_MS, high=MAX_MS)
    ] = MS
    router_outages: Annotated[
        Outages | None, setting("Routers that fail, with all paths through them.", title="Underlay")
    ] = None
    partitions: Annotated[
        bool,
        setting(
            "Whether outages of links may partition the underlay; if not, an outage that would do so does not happen.",
            title="Underlay",
        ),
    ] = True
    reroute_in_domains: Annotated[
        bool,
        setting(
            "Whether the domains of two peers route around outages of their own links at once; then outages interrupt "
            "paths only in other domains and between domains.",
            title="Underlay",
        ),
    ] = False
    mean_outage_ns: Annotated[
        Nanos | None,
        setting(
            "Mean outage of the underlay's components, which then are as reliable as quist's Table 7.1 says; instead "
            "of all other link failures.",
            title="Underlay",
            unit="s",
            low=1e-3,
            high=MAX_S,
        ),
    ] = None
    anonymous: Annotated[
        float, setting("The share of routers that answer no traceroute.", title="Underlay", low=0, high=1)
    ] = 0.0
    traceroute_loss: Annotated[
        float, setting("The share of other traceroute answers that are lost.", title="Underlay", low=0, high=1)
    ] = 0.0

    link_capacity: Annotated[
        str | None,
        setting(
            "Capacity of each direction of a link: 40msg/s or 10Mbit/s where the topology states none, or stated: only "
            "what it states. Without it, links have no limit.",
            title="Capacities",
        ),
    ] = None
    peer_capacity: Annotated[
        str | None,
        setting(
            "What a peer receives from all its links together: a rate, or links (the sum of their capacities), where "
            "the topology states none, or stated. Without it, peers have no limit.",
            title="Capacities",
        ),
    ] = None
    queue_msgs: Annotated[
        int,
        setting(
            "Packets that may wait for a link or peer of limited capacity; a full queue drops the next one.",
            title="Capacities",
            unit="msgs",
            low=0,
        ),
    ] = 64
    queue_discipline: Annotated[
        QueueDiscipline,
        setting(
            "What a link's queue drops: drop-tail (what comes when it is full), or codel (also the first packet, while "
            "packets wait too long; RFC 8289).",
            title="Capacities",
        ),
    ] = "drop-tail"
    background_flows: Annotated[
        BackgroundFlows | None,
        setting(
            "Other traffic: transfers with TCP-like congestion control that share the queues of links with capacities; "
            "on an underlay, the queues of its links.",
            title="Capacities",
        ),
    ] = None
    charge: Annotated[
        Charge, setting("Which packets use capacity: data, or all, ACKs and control too.", title="Capacities")
    ] = "data"

    pf: Annotated[
        float,
        setting(
            "Probability that a link is down, drawn for every link and second. On an underlay the draws are for its "
            "components, such that overlay links are down this often on average.",
            title="Failures",
            low=0,
            high=1,
        ),
    ] = 0.06
    pl: Annotated[
        float, setting("Probability that a packet is lost on a working link.", title="Failures", low=0, high=1)
    ] = 1e-4
    multicast: Annotated[
        bool, setting("Whether multicast packets of one peer reach others, for plug-ins that use it.", title="Failures")
    ] = True
    outages: Annotated[
        Outages | None,
        setting(
            "Link outages with given distributions, instead of pf; on an underlay, outages of its links.",
            title="Failures",
        ),
    ] = None
    failures: Annotated[
        str | None,
        setting("A trace's faults.parquet: the run repeats these link outages and draws none.", title="Failures"),
    ] = None
    peer_outages: Annotated[
        Outages | None, setting("Peers that crash and restart with a new incarnation.", title="Failures")
    ] = None
    churn: Annotated[
        Outages | None,
        setting(
            "Peers that leave in order, withdraw their subscriptions, and join again with a new incarnation.",
            title="Failures",
        ),
    ] = None
    peer_partitions: Annotated[
        Partitions | None,
        setting("Times in which a random group of peers is cut off from all others.", title="Failures"),
    ] = None
    reordering: Annotated[
        float,
        setting(
            "Probability that a link holds a packet back, so that later ones overtake it.",
            title="Failures",
            low=0,
            high=1,
        ),
    ] = 0.0
    reordering_delay_ns: Annotated[
        Nanos,
        setting(
            "The longest time for which a link holds such a packet back.",
            title="Failures",
            low=MIN_DELAY_MS,
            high=MAX_MS,
        ),
    ] = 50 * MS
    corruption: Annotated[
        float,
        setting(
            "Probability that a link corrupts a packet; the receiver refuses and counts it.",
            title="Failures",
            low=0,
            high=1,
        ),
    ] = 0.0
    delay_spikes: Annotated[
        DelaySpikes | None,
        setting(
            "Times in which packets on a link take longer; on an underlay, on its links.",
            title="Failures",
        ),
    ] = None
    congestion: Annotated[
        Congestion | None,
        setting(
            "Times in which background load makes packets on a link wait and get lost; on an underlay, on its links.",
            title="Failures",
        ),
    ] = None
    heal_ns: Annotated[
        Nanos | None,
        setting(
            "When everything but pl is repaired for good, counted from the first publication.",
            title="Failures",
            unit="s",
            low=0,
            high=MAX_S,
        ),
    ] = None

    topics: Annotated[
        int,
        setting(
            "Topics, each with a publisher of its own; by default no more than there are peers.",
            title="Workload",
            low=1,
        ),
    ] = TOPICS
    rate_hz: Annotated[
        float, setting("Events per second and topic.", title="Workload", unit="hz", low=1e-6, high=1e6)
    ] = 1.0
    pace: Annotated[
        Pace,
        setting(
            "When in its period a topic publishes: even (always at the same moment), or moving (on by the golden "
            "ratio, so that events meet failures of every age).",
            title="Workload",
        ),
    ] = "even"
    popularity: Annotated[
        tuple[float, float],
        setting(
            "The range from which each topic draws the probability that a peer subscribes to it.",
            title="Workload",
            low=0,
            high=1,
        ),
    ] = (0.2, 0.6)
    content: Annotated[
        Content | None,
        setting("Subscriptions by content: ranges on numbers. The topics are then just publishers.", title="Workload"),
    ] = None
    flows: Annotated[
        str | None,
        setting(
            "A file of flows, as plans are made for: who publishes what for whom, evenly spaced; instead of topics.",
            title="Workload",
        ),
    ] = None
    factor: Annotated[
        float,
        setting(
            "Deadline as a multiple of the shortest delay between publisher and subscriber.",
            title="Workload",
            low=1e-6,
            high=1e6,
        ),
    ] = 3.0
    payload_bytes: Annotated[int, setting("Size of each event's payload, in bytes.", title="Workload", low=0)] = 0

    def __post_init__(self) -> None:
        _check(self)


def _check(s: WorldSettings) -> None:
    """What no field by itself can tell."""
    if s.topology == "regular":
        if s.degree >= s.peers:
            raise ConfigError(f"degree {s.degree} needs at least {s.degree + 1} peers, got {s.peers}")
        if s.degree * s.peers % 2:
            raise ConfigError(f"degree {s.degree} times {s.peers} peers is odd: no regular graph has that")
        if s.degree == 1 and s.peers > 2:
            raise ConfigError(f"degree 1 cannot connect {s.peers} peers: choose 2 or more")
    if s.topology in DRAWN and s.flows is None and s.topics > s.peers:
        raise ConfigError(f"{s.topics} topics need {s.topics} publishers, but there are {s.peers} peers")
    if s.membership is not None and s.topology != "full-mesh":
        raise ConfigError(f"a membership needs peers that all reach each other: full-mesh, not {s.topology}")
    if s.failures is not None and (s.outages is not None or s.peer_partitions is not None or s.heal_ns is not None):
        raise ConfigError(
            "failures that are repeated are neither drawn nor healed: leave out outages, peer_partitions and heal"
        )
    _check_underlay(s)
    if s.content is not None:
        s.content.check()
        if s.flows is not None:
            raise ConfigError("flows name their receivers: leave content out")
    for name, rate, words in (
        ("link_capacity", s.link_capacity, (STATED,)),
        ("peer_capacity", s.peer_capacity, (STATED, AGGREGATE)),
    ):
        meant = f"{name} is {', '.join(map(repr, words))} or a rate"
        if rate is not None and rate not in words and not parse_rate(rate, meant).value > 0:
            raise ConfigError(f"{name} must be above 0, got {rate}")
    if s.peer_capacity == AGGREGATE and s.link_capacity is None:
        raise ConfigError(f"peer_capacity {AGGREGATE!r} is the sum of the links' capacities: give a link_capacity")
    if s.link_capacity is None and (s.background_flows is not None or s.queue_discipline != "drop-tail"):
        wants = "queue_discipline" if s.background_flows is None else "background_flows"
        raise ConfigError(f"{wants} concerns the queues of links, and there are none: give a link_capacity")
    if s.background_flows is not None and s.underlay is not None and s.link_capacity == STATED:
        raise ConfigError("links of an underlay state no capacities: give a rate as link_capacity")
    for name, outages in (
        ("background_flows", s.background_flows),
        ("outages", s.outages),
        ("router_outages", s.router_outages),
        ("peer_outages", s.peer_outages),
        ("churn", s.churn),
        ("peer_partitions", s.peer_partitions),
        ("delay_spikes", s.delay_spikes),
        ("congestion", s.congestion),
    ):
        if outages is not None:
            outages.check(name)


def _check_underlay(s: WorldSettings) -> None:
    needing = {
        "router_outages": s.router_outages,
        "partitions": None if s.partitions else False,
        "reroute_in_domains": s.reroute_in_domains or None,
        "mean_outage": s.mean_outage_ns,
        "anonymous": s.anonymous or None,
        "traceroute_loss": s.traceroute_loss or None,
    }
    given = [name for name, value in needing.items() if value is not None]
    if s.underlay is None:
        if given:
            raise ConfigError(f"{given[0]} concerns routers, and there are none: name an underlay")
        return
    if s.topology not in DRAWN:
        raise ConfigError(f"on an underlay peers are linked by full-mesh or regular, not by {s.topology}")
    if s.mean_outage_ns is not None and (s.outages is not None or s.router_outages is not None):
        raise ConfigError("mean_outage says how components fail: leave out outages and router_outages")
    if not s.partitions and (s.outages is None or s.router_outages is not None):
        raise ConfigError("an underlay without partitions needs outages of its links, and no router_outages")
    if s.failures is not None and (s.mean_outage_ns is not None or s.router_outages is not None):
        raise ConfigError("failures that are repeated are not drawn: leave out mean_outage and router_outages")


def read_toml(path: Path) -> dict[str, Any]:
    """The content of a TOML file. Raises ConfigError with one sentence if it cannot be read."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:  # also a number of thousands of digits, and endless brackets
        raise ConfigError(f"{path} is not a TOML file: {error}") from None
