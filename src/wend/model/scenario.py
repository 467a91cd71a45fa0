"""A scenario is everything that decides a run: two runs of one scenario are the same run.

It comes from a TOML file, from flags, or from a row of a sweep; it is frozen, it checks itself, and it
says in one sentence what is wrong with it. The names follow section IV-A of the dcrd paper, whose
values are the defaults.
"""

import tomllib
from math import inf
from pathlib import Path
from typing import Any, Literal

import msgspec

from wend.model.choices import Ack, Covering, Estimator, Redundancy
from wend.model.error_text import reworded
from wend.model.errors import ConfigError
from wend.model.rates import parse_rate

TraceLevel = Literal["deliveries", "hops"]
Charge = Literal["data", "all"]
Pace = Literal["even", "moving"]

STATED = "stated"
"""As a capacity: what the topology states, and nothing where it states none."""
AGGREGATE = "links"
"""As a peer's capacity: what its links together can bring in."""
DRAWN = ("full-mesh", "regular")
"""Topologies of as many peers as the scenario says."""
TOPICS = 10
MIN_DELAY_MS = 1e-3
MAX_S = 1e8
"""Three years: what lies beyond is a slip."""


class Spread(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A distribution of seconds: fixed(mean), exponential(mean) or uniform(low, high)."""

    kind: Literal["fixed", "exponential", "uniform"]
    mean_s: float = 0.0
    low_s: float = 0.0
    high_s: float = 0.0

    def check(self, name: str) -> None:
        if self.kind == "uniform":
            if not 0 <= self.low_s <= self.high_s < inf or self.high_s == 0:
                raise ConfigError(f"{name}: uniform needs 0 <= low_s <= high_s, got {self.low_s} and {self.high_s}")
        elif not 0 < self.mean_s < inf:
            raise ConfigError(f"{name}: {self.kind} needs a mean_s above 0, got {self.mean_s}")


class Outages(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A part that works for a time drawn from `up`, then fails for a time drawn from `down`, and so on."""

    up: Spread
    down: Spread

    def check(self, name: str) -> None:
        self.up.check(f"{name}.up")
        self.down.check(f"{name}.down")


class Content(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Events with numbers as attributes, and at each peer one subscription with ranges on some of them."""

    attributes: int = 10
    domain: int = 256
    """Values are whole numbers from 1 to this."""
    predicates: tuple[int, int] = (1, 5)
    """How many attributes a filter speaks of: the fewest and the most."""
    width: float = 1.0
    """The widest range, as a share of the domain."""

    def check(self) -> None:
        low, high = self.predicates
        if not 1 <= low <= high <= self.attributes or self.domain < 1 or not 0 < self.width <= 1:
            raise ConfigError(
                f"content needs 1 <= predicates <= attributes, a domain of 1 or more and a width in 0..1, got "
                f"{low} to {high} of {self.attributes}, {self.domain} and {self.width:g}"
            )


class Scenario(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One run. Times that people choose are in seconds or milliseconds; inside the run they are nanoseconds."""

    strategy: str = "dcrd"
    """One of the table in `protocol/routing`, `oracle`, or `MODULE:CLASS` of one's own."""
    seed: int = 1

    topology: str = "regular"
    """`full-mesh`, `regular`, `topohub:<name>`, or the path of a GraphML file."""
    peers: int = 20
    degree: int = 5
    delay_ms: tuple[float, float] = (10.0, 50.0)
    """Link delays are uniform in this range where the topology has none of its own."""

    underlay: str | None = None
    """What lies beneath: `brite`, `transit-stub`, `power-law`, ..., `topohub:<name>`, or a GraphML or GML file. Peers
    live on its routers, and an overlay link is as slow as its way and fails with whatever is on it."""
    last_mile_ms: float = 1.0
    """From a peer to its router."""
    router_outages: Outages | None = None
    """Routers that fail, with all that runs through them."""
    mean_outage_s: float | None = None
    """Routers, links and last miles of the underlay are as reliable as quist's Table 7.1 says, and fail for this long
    on average; instead of any other failures of links."""
    aware: bool = True
    """Whether peers trace the ways beneath their links, for strategies that heed what those share (`adaptive`)."""
    anonymous: float = 0.0
    """The share of routers that no traceroute gets an answer from."""
    traceroute_loss: float = 0.0
    """The share of other answers to traceroutes that get lost."""

    capacity: str | None = None
    """What each direction of a link carries: `40msg/s` or `10Mbit/s` where the topology states nothing, or `stated`:
    only what it states. Without one, links carry whatever comes."""
    peer_capacity: str | None = None
    """What a peer takes in from its links together, one packet after the other: a rate, or `links` (as much as they can
    bring), where the topology states nothing; or `stated`. Without one, peers take in whatever comes."""
    queue_msgs: int = 64
    """Packets that may wait for a link, or at a peer, that has a capacity; one that finds the queue full is dropped."""
    charge: Charge = "data"
    """What capacities are charged with: data alone, or also ACKs and control."""

    pf: float = 0.06
    """Probability that a link fails, drawn anew for every link and second. On an underlay its routers and links are
    drawn, all alike, so that overlay links are down this often on average."""
    pl: float = 1e-4
    """Probability that one packet is lost on a working link."""
    outages: Outages | None = None
    """Link outages with given distributions, instead of the per-second draw; on an underlay, those of its links."""
    failures: str | None = None
    """A trace's `faults.parquet`: these link outages are played again, instead of any that are drawn."""
    peer_outages: Outages | None = None
    """Peers that crash and return with a new incarnation."""
    heal_s: float | None = None
    """From this time on (counted from the first publication) nothing fails and everything is repaired."""

    topics: int = TOPICS
    """Each has a publisher of its own; fewer where nothing is said and there are fewer peers."""
    rate_hz: float = 1.0
    pace: Pace = "even"
    """Topics publish once in every period: always at the same moment of it, or at one that moves on by the golden
    ratio, so that failures which begin with the second are met at every age."""
    interest: tuple[float, float] = (0.2, 0.6)
    """Each topic draws its own probability that a peer subscribes to it from this range."""
    content: Content | None = None
    """Subscriptions by content, drawn anew; then `topics` are just publishers, and `interest` has no say."""
    flows: str | None = None
    """A file of flows, as plans are made for: who publishes what for whom, evenly spaced; instead of topics."""
    plan: str | None = None
    """The directory of a plan, for peers that follow one (`planned`)."""
    factor: float = 3.0
    """Deadline as a multiple of the shortest delay between publisher and subscriber."""
    payload_bytes: int = 0

    duration_s: float = 600.0
    """How long publishers publish."""
    warmup_s: float = 5.0
    """Time before the first publication, in which peers find their routes."""
    drain_s: float = 10.0
    """Time after the last publication, in which packets may still arrive."""

    m: int = 1
    """Transmissions over a link before the sender looks for another way."""
    ack: Ack = "round-trip"
    estimator: Estimator = "nominal"
    monitor_s: float = 300.0
    margin_ms: float = 0.0
    """What a timer allows on top of the measured round trip. A simulated host has no jitter; a real one has."""
    persistency: bool = False
    keep_msgs: int = 10_000
    redundancy: Redundancy = "tight"
    detect_ms: float = 160.0
    """How soon a dead link is noticed (a one-way delay comes on top), by strategies that probe."""

    overlay: str | None = None
    """Who decides which peers are linked, where the topology only says who can reach whom; None: all links are used."""
    overlay_k: int = 3
    """Landmarks to elect, or peers to join."""
    trees: int = 2
    """How many trees, for `mrst` and `spt-k`."""
    covering: Covering = "covering"
    """How much of what is wanted is told along them."""
    reliability: float | None = None
    """The share of events that subscribers want at the first go: no more trees are used than that takes. None: all."""

    trace: TraceLevel = "deliveries"

    def __post_init__(self) -> None:
        _check(self)

    def with_(self, **changes: Any) -> "Scenario":
        """A copy with some fields changed, checked again."""
        return make_scenario({**msgspec.structs.asdict(self), **changes})


def _check(s: Scenario) -> None:
    if s.peers < 2:
        raise ConfigError(f"an overlay needs at least 2 peers, got {s.peers}")
    if s.topology == "regular":
        if s.degree < 1:
            raise ConfigError(f"degree must be at least 1, got {s.degree}")
        if s.degree >= s.peers:
            raise ConfigError(f"degree {s.degree} needs at least {s.degree + 1} peers, got {s.peers}")
        if s.degree * s.peers % 2:
            raise ConfigError(f"degree {s.degree} times {s.peers} peers is odd: no regular graph has that")
        if s.degree == 1 and s.peers > 2:
            raise ConfigError(f"degree 1 cannot connect {s.peers} peers: choose 2 or more")
    if not MIN_DELAY_MS <= s.delay_ms[0] <= s.delay_ms[1] < inf:
        raise ConfigError(f"delay_ms needs {MIN_DELAY_MS} <= low <= high, got {s.delay_ms[0]} and {s.delay_ms[1]}")
    for name, value, low, high in (
        ("pf", s.pf, 0.0, 1.0),
        ("pl", s.pl, 0.0, 1.0),
        ("anonymous", s.anonymous, 0.0, 1.0),
        ("traceroute_loss", s.traceroute_loss, 0.0, 1.0),
        ("interest (low)", s.interest[0], 0.0, 1.0),
        ("interest (high)", s.interest[1], s.interest[0], 1.0),
    ):
        if not low <= value <= high:
            raise ConfigError(f"{name} must lie in {low:g}..{high:g}, got {value:g}")
    for name, value, low, high in (
        ("rate_hz", s.rate_hz, 1e-6, 1e6),
        ("factor", s.factor, 1e-6, 1e6),
        ("duration_s", s.duration_s, 1e-3, MAX_S),
        ("warmup_s", s.warmup_s, 1e-3, MAX_S),
        ("monitor_s", s.monitor_s, 1e-3, MAX_S),
        ("detect_ms", s.detect_ms, 1.0, 1e3 * MAX_S),
        ("margin_ms", s.margin_ms, 0.0, 1e3 * MAX_S),
        ("last_mile_ms", s.last_mile_ms, MIN_DELAY_MS, 1e3 * MAX_S),
        ("mean_outage_s", MAX_S if s.mean_outage_s is None else s.mean_outage_s, 1e-3, MAX_S),
        ("drain_s", s.drain_s, 0.0, MAX_S),
        ("heal_s", 0.0 if s.heal_s is None else s.heal_s, 0.0, MAX_S),
    ):
        if not low <= value <= high:
            raise ConfigError(f"{name} must lie in {low:g}..{high:g}, got {value:g}")
    if s.reliability is not None and not 0.0 < s.reliability <= 1.0:
        raise ConfigError(f"reliability must lie above 0 and up to 1, got {s.reliability:g}")
    if not -(2**63) <= s.seed < 2**63:
        raise ConfigError(f"seed must be a 64-bit number, got {s.seed}")
    for name, count, least in (
        ("m", s.m, 1),
        ("topics", s.topics, 1),
        ("keep_msgs", s.keep_msgs, 1),
        ("payload_bytes", s.payload_bytes, 0),
        ("queue_msgs", s.queue_msgs, 0),
        ("overlay_k", s.overlay_k, 1),
        ("trees", s.trees, 1),
    ):
        if count < least:
            raise ConfigError(f"{name} must be at least {least}, got {count}")
    if s.topology in DRAWN and s.flows is None and s.topics > s.peers:
        raise ConfigError(f"{s.topics} topics need {s.topics} publishers, but there are {s.peers} peers")
    if s.overlay is not None and s.topology != "full-mesh":
        raise ConfigError(f"an overlay of its own needs peers that all reach each other: full-mesh, not {s.topology}")
    if s.failures is not None and (s.outages is not None or s.heal_s is not None):
        raise ConfigError("failures that are played again are neither drawn nor healed: leave out outages and heal_s")
    _check_underlay(s)
    if s.content is not None:
        s.content.check()
        if s.flows is not None:
            raise ConfigError("flows name their receivers: leave content out")
    for name, rate, words in (
        ("capacity", s.capacity, (STATED,)),
        ("peer_capacity", s.peer_capacity, (STATED, AGGREGATE)),
    ):
        meant = f"{name} is {', '.join(map(repr, words))} or a rate"
        if rate is not None and rate not in words and not parse_rate(rate, meant).value > 0:
            raise ConfigError(f"{name} must be above 0, got {rate}")
    if s.peer_capacity == AGGREGATE and s.capacity is None:
        raise ConfigError(f"peer_capacity {AGGREGATE!r} is what links can bring in: give them a capacity")
    for name, outages in (
        ("outages", s.outages),
        ("router_outages", s.router_outages),
        ("peer_outages", s.peer_outages),
    ):
        if outages is not None:
            outages.check(name)


def _check_underlay(s: Scenario) -> None:
    beneath = {
        "router_outages": s.router_outages,
        "mean_outage_s": s.mean_outage_s,
        "anonymous": s.anonymous or None,
        "traceroute_loss": s.traceroute_loss or None,
    }
    said = [name for name, value in beneath.items() if value is not None]
    if s.underlay is None:
        if said:
            raise ConfigError(f"{said[0]} speaks of routers, and there are none: name an underlay")
        return
    if s.topology not in DRAWN:
        raise ConfigError(f"on an underlay peers are linked by full-mesh or regular, not by {s.topology}")
    if s.mean_outage_s is not None and (s.outages is not None or s.router_outages is not None):
        raise ConfigError("mean_outage_s says how components fail: leave out outages and router_outages")
    if s.failures is not None and (s.mean_outage_s is not None or s.router_outages is not None):
        raise ConfigError("failures that are played again are not drawn: leave out mean_outage_s and router_outages")


def make_scenario(fields: dict[str, Any]) -> Scenario:
    """A scenario from plain values; the sentence says which field is wrong and why.

    Each topic has a publisher of its own, so a small overlay that says nothing of topics has fewer of them."""
    peers, drawn = fields.get("peers"), fields.get("topology", "regular") in DRAWN
    if drawn and "topics" not in fields and isinstance(peers, int) and 1 < peers < TOPICS:
        fields = {**fields, "topics": peers}
    try:
        return msgspec.convert(fields, Scenario)
    except msgspec.ValidationError as error:
        cause = error.__cause__
        if isinstance(cause, ConfigError):
            raise cause from None
        raise ConfigError(reworded(error, Scenario)) from None


def read_toml(path: Path) -> dict[str, Any]:
    """What a file says that a person wrote, or one sentence about why it cannot be read."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not a TOML file: {error}") from None


def load_scenario(path: Path, **overrides: Any) -> Scenario:
    """A scenario from a TOML file; what `overrides` names (flags) wins over the file."""
    fields = read_toml(path)
    try:
        return make_scenario({**fields, **overrides})
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
