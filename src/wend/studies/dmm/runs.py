"""One run of the dmm study: a strategy, a workload with the deliveries that are due, and the measured rows.

The seed decides the network, the placement of peers, subscriptions, publications, losses and crashes, so all strategies
of one seed meet the same conditions. `direct` is the bound, computed from the latencies alone: the publisher knows
all peers and sends each event straight to those of its subscribers.
"""

import gc
from collections.abc import Mapping
from time import process_time
from typing import Any, Literal, NamedTuple, get_args

import msgspec
import numpy as np
from numpy.typing import NDArray

from wend.drivers.sim.dht_results import UNKNOWN_HOPS, DhtResults, MessageCounts
from wend.drivers.sim.dht_simulation import LINKS, DhtConfig, DhtSimulation
from wend.drivers.sim.dht_workload import MatchingPairs, Workload
from wend.drivers.sim.latencies import RouterLatencies, transit_stub_table
from wend.model.randomness import stream
from wend.model.units import SECOND, Nanos
from wend.strategies.registry import plugin, strategy_named
from wend.studies.dmm.range_workload import HIGHEST, NAMES
from wend.studies.settled_contacts import find_settled_contacts
from wend.topology.transit_stub import DMM
from wend.topology.underlay import Ints

DIRECT = "direct"
Metrics = dict[str, float]


DRAIN_NS: Nanos = 60 * SECOND
"""How long a run goes on after the last publication."""
LONG_DRAIN_NS: Nanos = 240 * SECOND
"""The same for dmm: the walk from a leaf of ten attributes has up to 80 routes."""


class StudiedStrategy(NamedTuple):
    """A strategy of the study: the routing, and the settings of its peers."""

    routing: str
    settings: Mapping[str, Any] = {}
    cached: Mapping[str, Any] = {}
    """Other settings with TreeCache."""
    leaf: str = "leaf"
    """Its name in the status for subscriptions that a peer stores to match events."""
    tree: str = "tree"
    """The same for those on paths of deliveries."""
    drain_ns: Nanos = DRAIN_NS


PRINTED: dict[str, Any] = {"hop_acks": False}
"""The paper's peers send messages once, without ACKs."""
SPACES: dict[str, Any] = {**PRINTED, "domains": {name: [1, HIGHEST, 1] for name in NAMES}, "tree_cache": False}
CACHED: dict[str, Any] = {"tree_cache": True}
CachePlace = Literal["last", "publisher", "every-arrival"]
PrimaryAttribute = Literal["narrowest", "observed"]
CACHE_BODIES = frozenset({"TreeInfo"})
"""The messages that fill caches."""
ROUND_TRIP_NS: Nanos = 2 * SECOND
"""How long peers wait for an ACK if no round trip is measured; the mean is 1.4 s. Without ACKs it would only decide the
age of events, hop by hop: after a hundred hops they would seem older than the run."""
STRATEGIES = {
    "dmm": StudiedStrategy("dmm", SPACES, CACHED, drain_ns=LONG_DRAIN_NS),
    "dmm-ar": StudiedStrategy("dmm-ar", SPACES, CACHED),
    "hermes": StudiedStrategy("hermes", PRINTED, tree="entries"),
    "rendezvous": StudiedStrategy("rendezvous", {"pastry_round_trip_ns": ROUND_TRIP_NS}, leaf="entries"),
}
TABLE_NS: Nanos = 3600 * SECOND
"""How often peers probe their routing tables."""
COMMON: dict[str, Any] = {
    "beacon_ns": 30 * SECOND,
    "expiry_ns": 60 * SECOND,
    "pastry_detection_ns": 30 * SECOND,
    "pastry_table_ns": TABLE_NS,
}
CANDIDATES = 32
"""Each entry of a routing table is the nearest of so many. The paper's overlay has run for long, too."""
StrategyName = Literal["dmm", "dmm-ar", "hermes", "rendezvous", "direct"]

# ---------------------------------------------------------------- one run


class RunSetting(NamedTuple):
    """Everything that a run needs besides its strategy."""

    peers: int
    workload: Workload
    due: MatchingPairs
    """The deliveries that are due."""
    latencies: RouterLatencies
    end_ns: Nanos
    """When the last publication has been made."""
    loss: float
    seed: int


class RunOutcome(NamedTuple):
    """A run, with a row for each delivery that was due."""

    setting: RunSetting
    made: NDArray[np.bool_]
    """Whether the delivery was made."""
    delay_ns: Ints
    """-1 if the delivery was not made."""
    hops: Ints
    messages: dict[str, MessageCounts]
    """By what they are for: `publication`, `detour`, `subscription`, `cache`, `acks`, `membership`. A detour carries an
    event to the space without attributes, which no filter of the paper needs."""
    states: dict[str, Ints]
    """By kind: the subscriptions that each peer stores."""
    cpu_s: float
    """Processor time of the run. A clock on the wall would count the time in which the process did not run."""
    memory_per_peer: float

    def message_counts(self, *purposes: str) -> MessageCounts:
        return sum((self.messages.get(each, MessageCounts()) for each in purposes), MessageCounts())


def play_run(setting: RunSetting, name: str, cache: bool, candidates: int = CANDIDATES, **settings: Any) -> RunOutcome:
    if name == DIRECT:
        return _run_direct(setting)
    strategy = STRATEGIES[name]
    own = {**COMMON, **strategy.settings, **(strategy.cached if cache else {}), **settings}
    config = DhtConfig(
        peers=setting.peers,
        strategy=strategy.routing,
        settings=own,
        first_settings={"pastry_settled": True},
        loss=setting.loss,
        seed=setting.seed,
    )
    gc.collect()  # garbage of an earlier run would count as memory of this one
    contacts = find_settled_contacts(range(setting.peers), setting.latencies.find_nearest, candidates)
    simulation = DhtSimulation(config, setting.latencies, setting.workload, contacts)
    began = process_time()
    results = simulation.run(setting.end_ns + strategy.drain_ns)
    cpu_s = process_time() - began
    made, delay, hops = _find_deliveries(setting, results)
    return RunOutcome(
        setting,
        made,
        delay,
        hops,
        _separate_detours(_count_by_purpose(strategy.routing, results), simulation),
        _count_states(simulation, strategy),
        cpu_s,
        simulation.memory_per_peer,
    )


def _find_deliveries(setting: RunSetting, results: DhtResults) -> tuple[NDArray[np.bool_], Ints, Ints]:
    """The delivery of each pair that was due, the first one if it was repeated."""
    deliveries, due = results.deliveries, setting.due
    size = max(1, len(setting.workload.subscriptions))
    keys = deliveries.column("publication") * size + deliveries.column("number")
    order = keys.argsort(kind="stable")
    keys = keys[order]  # millions: one copy at a time
    wanted_keys = due.publication * size + due.subscription
    at = np.searchsorted(keys, wanted_keys)
    made = np.zeros(len(wanted_keys), dtype=np.bool_)
    inside = at < len(keys)
    made[inside] = keys[at[inside]] == wanted_keys[inside]
    rows = order[at[made]]
    del keys, wanted_keys, at, order
    delay, hops = np.full(len(made), -1), np.full(len(made), UNKNOWN_HOPS)
    delay[made] = deliveries.column("delay_ns")[rows]
    hops[made] = deliveries.column("hops")[rows]
    return made, delay, hops


def _count_by_purpose(routing: str, results: DhtResults) -> dict[str, MessageCounts]:
    interest = strategy_named(routing).interest
    declared = plugin("interest", interest).messages
    events = {each.__name__ for each in get_args(declared) if "event" in each.__struct_fields__}
    messages: dict[str, MessageCounts] = {}
    for kind, counts in results.messages.items():
        if kind.plugin == LINKS:
            purpose = "acks"
        elif kind.plugin != interest:
            purpose = "membership"
        elif kind.body in events:
            purpose = "publication"
        else:
            purpose = "cache" if kind.body in CACHE_BODIES else "subscription"
        messages[purpose] = messages.get(purpose, MessageCounts()) + counts
    return messages


def _separate_detours(messages: dict[str, MessageCounts], simulation: DhtSimulation) -> dict[str, MessageCounts]:
    """Count detours apart from publications. Their share of physical hops is that of overlay messages."""
    live = [peer.interest.status() for peer in simulation.peers if peer is not None]
    sent = sum(status.get("detours", 0) for status in live)
    every = messages.get("publication", MessageCounts())
    if not sent:
        return messages
    physical = round(every.physical * sent / every.sent)
    publication = MessageCounts(every.sent - sent, every.physical - physical)
    return {**messages, "publication": publication, "detour": MessageCounts(sent, physical)}


def _count_states(simulation: DhtSimulation, strategy: StudiedStrategy) -> dict[str, Ints]:
    rows: list[tuple[int, int]] = []
    for peer in simulation.peers:
        if peer is not None:
            status = peer.interest.status()
            rows.append((status.get(strategy.leaf, 0), status.get(strategy.tree, 0)))
    columns = np.array(rows, dtype=np.int64).reshape(-1, 2)
    return {"leaf": columns[:, 0], "tree": columns[:, 1], "all": columns.sum(axis=1)}


def _run_direct(setting: RunSetting) -> RunOutcome:
    """Compute the bound: one message to each peer with a subscriber, without losses."""
    due, workload, latencies = setting.due, setting.workload, setting.latencies
    publisher = np.array([event.peer for event in workload.publications], dtype=np.int64)[due.publication]
    subscriber = np.array([one.peer for one in workload.subscriptions], dtype=np.int64)[due.subscription]
    delay = latencies.delays_ns(publisher, subscriber)
    sent = np.unique(np.stack([due.publication, subscriber]), axis=1)
    apart = [latencies.hops(workload.publications[event].peer, peer) for event, peer in sent.T.tolist()]
    messages = {"publication": MessageCounts(sent.shape[1], sum(apart))}
    everywhere = np.ones(len(delay), dtype=np.bool_)
    return RunOutcome(setting, everywhere, delay, everywhere.astype(np.int64), messages, {}, 0.0, 0.0)


def choose_roles(peers: int, publishers: int, seed: int) -> tuple[Ints, Ints]:
    """The publishers, and all other peers: these subscribe."""
    turns = stream(seed, "dmm", "roles").permutation(peers)
    return turns[:publishers], turns[publishers:]


def place_peers(peers: int, domains: int, seed: int, density: float = DMM.transit_density) -> RouterLatencies:
    """Attach peers to the routers of the paper's transit-stub network, or of one with other transit domains."""
    shape = msgspec.structs.replace(DMM, transit_domains=domains, transit_density=density)
    return RouterLatencies(transit_stub_table(seed, shape), peers, seed)
