"""The status snapshot: how a peer is at this moment, typed and versioned, for drivers and whoever watches them."""

import msgspec

from wend.model.events import PeerId
from wend.model.units import Nanos

VERSION = 1


class LinkStatus(msgspec.Struct, frozen=True):
    """One link of the peer."""

    neighbour: PeerId
    state: str
    """`unknown`, `up`, `suspected`, `down` or `one-way`; `link/link.py` draws how one follows the other."""
    up: bool
    """Whether the link works, as far as this peer can tell."""
    delay_ns: Nanos
    reliability: float


class PeerStatus(msgspec.Struct, frozen=True, kw_only=True):
    version: int = VERSION
    peer: PeerId
    incarnation: int
    strategy: str
    interest: str
    membership: str | None
    links: tuple[LinkStatus, ...]
    in_flight: int
    """Events that wait for an acknowledgement of the next hop."""
    waiting: int
    """Events that wait for a retry."""
    plugins: dict[str, dict[str, int]]
    """A section for each plug-in that has one."""
