"""The status snapshot: the state of a peer at one moment, typed and versioned, for drivers and their users."""

import msgspec

from wend.model.events import PeerId
from wend.model.units import Nanos

VERSION = 1


class LinkStatus(msgspec.Struct, frozen=True):
    """One link of the peer."""

    neighbour: PeerId
    """The peer at the other end."""
    state: str
    """`unknown`, `up`, `suspected`, `down` or `one-way`."""
    up: bool
    """Whether the link works, as far as this peer can tell."""
    delay_ns: Nanos
    """The one-way delay: half of the measured round trip, or the configured value."""
    reliability: float
    """The share of packets that arrive, as measured or as configured."""
    address: str = ""
    """Where the neighbour is, as far as the driver knows."""
    changed_ns: Nanos = 0
    """How long ago the link was made, first heard, found down or up again, or its neighbour restarted."""

    @property
    def rtt_ns(self) -> Nanos:
        """The round trip: twice the delay."""
        return 2 * self.delay_ns

    @property
    def loss(self) -> float:
        """The share of packets that get lost."""
        return 1.0 - self.reliability


class PeerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a peer, without the counters of its driver."""

    version: int = VERSION
    """Grows when a field changes its meaning."""
    peer: PeerId
    """The id of the peer."""
    incarnation: int
    """Higher after each restart."""
    strategy: str
    """The routing plug-in."""
    interest: str
    """The interest plug-in."""
    membership: str | None
    """The membership plug-in; nil if the links are given."""
    links: tuple[LinkStatus, ...]
    """One entry for each link, by neighbour."""
    in_flight: int
    """Events that wait for an acknowledgement of the next hop."""
    waiting: int
    """Events that wait for a retry."""
    plugins: dict[str, dict[str, int]]
    """A section for each plug-in that has one."""
