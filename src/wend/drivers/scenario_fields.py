"""The keywords of `Scenario`, with their types, for type checkers. Written by scripts/reference.py."""

from typing import Literal, TypedDict

from wend.model.fault_settings import Congestion, DelaySpikes, Outages, Partitions
from wend.model.scenario import BackgroundFlows, Content


class ScenarioFields(TypedDict, total=False):
    """All settings of a scenario that come with Wend."""

    strategy: str
    interest: str | None
    membership: str | None
    plan: str | None
    inferred_topology: str | None
    seed: int
    duration: str
    warmup: str
    drain: str
    trace_level: Literal["deliveries", "hops"]
    topology: str
    peers: int
    degree: int
    clusters: int
    delay: tuple[str, str] | list[str]
    underlay: str | None
    last_mile: str
    access_routers: int
    router_outages: Outages | None
    partitions: bool
    reroute_in_domains: bool
    mean_outage: str | None
    anonymous: float
    traceroute_loss: float
    link_capacity: str | None
    peer_capacity: str | None
    queue: int
    queue_discipline: Literal["drop-tail", "codel"]
    background_flows: BackgroundFlows | None
    charge: Literal["data", "all"]
    pf: float
    pl: float
    multicast: bool
    outages: Outages | None
    failures: str | None
    peer_outages: Outages | None
    churn: Outages | None
    peer_partitions: Partitions | None
    reordering: float
    reordering_delay: str
    corruption: float
    delay_spikes: DelaySpikes | None
    congestion: Congestion | None
    heal: str | None
    topics: int | None
    rate: float
    pace: Literal["even", "moving"]
    popularity: tuple[float, float] | list[float]
    content: Content | None
    flows: str | None
    factor: float
    payload_bytes: int
    transmissions: int
    ack: Literal["free", "round-trip"]
    estimator: Literal["nominal", "measured"]
    monitoring: str
    margin: str
    detection: str
    news_hops: int
    congestion_control: Literal["copa", "aimd", "none"]
    send_queue_limit: int
    trace_paths: bool
    persistence: bool
    retry_limit: int
    store_limit: int
    grace: str
    order_wait: str
    reliability: float | None
    coding: str
    coding_least: int
    membership_k: int
    membership_degree: int
    membership_period: str
    membership_sample: int
    trace_both_ends: bool
    pastry_detection: str
    pastry_table: str
    pastry_round_trip: str
    pastry_settled: bool
    cluster: str
    cluster_domain: str
    coordinators: int
    backups: int
    cluster_detection: str
    directory: str
    trees: int
    failure_probability: float
    covering: Literal["identity", "covering", "merging"]
    hop_acks: bool
    beacon: str
    expiry: str
    domains: dict[str, list[float]]
    delegation: int
    tree_cache: bool
    tree_cache_place: Literal["last", "publisher", "every-arrival"]
    primary_attribute: Literal["narrowest", "observed"]
    fan_out: int
    replicas: int
    split_rate: float
    split_entries: int
    cluster_beacon: str
    diverse_parents: bool
    place_beacon: str
    first_gap: str
    redundancy: Literal["none", "tight", "free"]
    copies: int
    send_once: bool
