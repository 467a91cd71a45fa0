"""Underlay paths: how they relate to each other, and the traces that find them.

An anonymous router equals no other, so a path that contains one is no prefix of another path. Peers then match fewer
paths, but none wrongly.

Paths change while peers run, so peers trace them again from time to time. The more peers there are, the less often each
path is traced again, so that the work of a peer that traces paths to all others does not grow with their number.
"""

from typing import NamedTuple

from wend.model.events import PeerId
from wend.model.paths import Path
from wend.model.random_stream import peer_stream
from wend.protocol.plugins import FindPath, PeerConfig

LONGEST = 255
"""The most hops of a path: an IP packet travels no further."""
PATIENCE = 12
"""Rounds after which a peer stops waiting for a trace."""
RENEW = 5
"""The mean number of rounds between two repeated traces of one peer."""


class PendingTrace(NamedTuple):
    """A trace that is under way for a request or an offer."""

    since: int
    """The round in which it started."""
    offer: int
    """The number of the offer that waits for it; 0 for a request."""


class PathTracer:
    """The paths from one peer to others."""

    def __init__(self, config: PeerConfig) -> None:
        self.paths: dict[PeerId, Path] = {}
        """The traced paths, for overlays that use them more than once."""
        self._pending: dict[PeerId, PendingTrace] = {}
        self._repeated: dict[PeerId, Path] = {}
        """Peers whose paths are traced again, each with the path in use."""
        self._draw = peer_stream(config.seed, "overlay", config.peer, config.incarnation, "renew")

    def __bool__(self) -> bool:
        """Whether something waits for a trace."""
        return bool(self._pending)

    def is_pending(self, peer: PeerId) -> bool:
        return peer in self._pending

    def trace(self, peer: PeerId, round_: int, offer: int = 0) -> list[FindPath]:
        """Trace a path, unless that is under way. If an offer waits for the path, it replaces what waited before."""
        is_pending = peer in self._pending
        is_running = is_pending or self._repeated.pop(peer, None) is not None
        if offer or not is_pending:
            self._pending[peer] = PendingTrace(round_, offer)
        return [] if is_running else [FindPath(peer)]

    def finish(self, peer: PeerId) -> PendingTrace | None:
        """End the trace of a path. Return what waited for it."""
        return self._pending.pop(peer, None)

    def withdraw(self, peer: PeerId, number: int) -> None:
        """Drop an offer that a peer withdrew while its path was traced."""
        pending = self._pending.get(peer)
        if pending is not None and 0 < pending.offer <= number:
            del self._pending[peer]

    def expire(self, round_: int) -> None:
        for peer, pending in list(self._pending.items()):
            if round_ - pending.since > PATIENCE:
                del self._pending[peer]

    # ---------------------------------------------------------------- repeated traces

    def is_time_to_repeat(self, peers: float) -> bool:
        """Draw whether to trace a path again in this round, given the number of peers."""
        return self._draw.random() * RENEW * peers < 1

    def repeat(self, peer: PeerId, path: Path) -> list[FindPath]:
        """Trace a path again, unless it is being traced."""
        if peer in self._pending or peer in self._repeated:
            return []
        self._repeated[peer] = path
        return [FindPath(peer)]

    def finish_repeated(self, peer: PeerId) -> Path | None:
        """End a repeated trace. Return the path that was in use when it started; None if the trace was the first."""
        return self._repeated.pop(peer, None)


def has_valid_length(path: Path) -> bool:
    return 0 < len(path) <= LONGEST


def is_prefix(path: Path, other: Path) -> bool:
    """Whether `path` is a strict prefix of `other`. It is strict so that peers of one router are equal."""
    return len(path) < len(other) and None not in path and other[: len(path)] == path


def is_same(path: Path, other: Path) -> bool:
    return None not in path and path == other


def suffix(path: Path, begin: Path) -> Path:
    """The path from the end of `begin` to the end of `path`, given that `begin` is a prefix of `path`."""
    return path[len(begin) - 1 :]
