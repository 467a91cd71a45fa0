"""What a peer is told once, at birth."""

import msgspec

from wend.model.choices import Ack, Covering, Estimator, Redundancy
from wend.model.events import PeerId
from wend.model.units import MS, SECOND, Nanos
from wend.protocol.membership.shape import OverlaySettings


class PeerConfig(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    peer: PeerId
    incarnation: int = 1
    strategy: str = "dcrd"
    m: int = 1
    ack: Ack = "round-trip"
    estimator: Estimator = "measured"
    monitor_ns: Nanos = 5 * SECOND
    margin_ns: Nanos = 5 * MS
    """What a timer allows on top of the measured round trip: the driver's own jitter."""
    persistency: bool = False
    remembers: bool = True
    """Whether the next life of this peer will find what it stored; without persistency it stores nothing."""
    keep_msgs: int = 10_000
    grace_ns: Nanos = 30 * SECOND
    """With persistency: how long after its start events wait for subscriptions that are made again."""
    redundancy: Redundancy = "tight"
    detect_ns: Nanos = 160 * MS
    overlay: str | None = None
    """Who decides which peers are linked; None: they are given, and stay."""
    overlay_settings: OverlaySettings = OverlaySettings()
    trees: int = 2
    """How many, for strategies that build some."""
    covering: Covering = "covering"
    """How much of what is wanted is told along them."""
    traces: bool = False
    """Whether it asks for the routers beneath its links, for strategies that heed them."""
    reliability: float | None = None
    """The target of subscriptions that state none."""
    fails: float = 0.0
    """How likely this peer is down, as far as it knows: trees lead around those that often are."""
