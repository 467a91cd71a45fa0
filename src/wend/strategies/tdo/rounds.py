"""The rounds of a peer: once per period it shuffles its view of other peers, and its overlay acts."""

from typing import Annotated, ClassVar

from wend.model.events import PeerId
from wend.model.random_stream import peer_stream
from wend.model.settings import Settings, setting
from wend.model.units import SECOND, Nanos
from wend.protocol.plugins import PeerConfig, Timer
from wend.strategies.tdo.messages import INCARNATION_SHIFT
from wend.strategies.tdo.sampling import VIEW, Sampling

WARM = 3
"""The number of periods after which a peer knows enough others to choose among them."""


class MembershipSettings(Settings, frozen=True, kw_only=True):
    """How peers choose their links."""

    title: ClassVar[str] = "Membership"

    membership_k: Annotated[int, setting("Landmarks to elect, or peers to join.", low=1)] = 3
    membership_degree: Annotated[int, setting("Links of a peer, for the membership `random`.", low=1)] = 15
    membership_period_ns: Annotated[
        Nanos,
        setting(
            "How often peers exchange messages; one that stays silent for some periods is dead.", unit="s", low=0.02
        ),
    ] = SECOND
    membership_sample: Annotated[
        int, setting("How many more peers `tdo-nearest` and `tdo-farthest` sample than they join.", low=0)
    ] = 10
    trace_both_ends: Annotated[
        bool, setting("Whether both ends measure the path of a link; one is enough if routes are symmetric.")
    ] = True


class Rounds:
    """The number of the current round, and what every overlay draws from: random numbers and a sample of peers."""

    def __init__(self, config: PeerConfig) -> None:
        settings = config.of(MembershipSettings)
        self.number = 0
        self.first_beat = config.incarnation << INCARNATION_SHIFT
        """Where this incarnation starts to number its heartbeats and links."""
        self.draw = peer_stream(config.seed, "overlay", config.peer, config.incarnation)
        size = max(VIEW, settings.membership_k + settings.membership_sample)
        self.sampling = Sampling(config.peer, size, self.draw)
        self._period_ns = settings.membership_period_ns
        self._next_ns: Nanos = 0

    @property
    def beat(self) -> int:
        """The heartbeat of this round."""
        return self.first_beat + self.number

    def begin(self, now: Nanos, contacts: tuple[PeerId, ...]) -> Timer:
        self.sampling.begin(contacts)
        self._next_ns = now + round(self.draw.random() * self._period_ns)
        return Timer(self._next_ns)

    def advance(self, now: Nanos) -> Timer | None:
        """Start the next round, if it is time. Return the timer of the one after it."""
        if now < self._next_ns:
            return None
        self.number += 1
        self._next_ns = now + self._period_ns
        return Timer(self._next_ns)
