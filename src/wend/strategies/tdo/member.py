"""The base of all memberships: it samples peers, gossips, and acts once per period."""

from typing import Any, ClassVar

from wend.model.events import PeerId
from wend.model.paths import Path
from wend.model.random_stream import peer_stream
from wend.model.settings import Settings
from wend.model.units import Nanos
from wend.protocol.plugins import (
    Begun,
    ComposedReason,
    ContactFound,
    Due,
    FindPath,
    Heard,
    Membership,
    PathFound,
    PeerConfig,
    PluginEffect,
    PluginInput,
    Refuse,
    SendTo,
    Stopping,
    Timer,
    View,
)
from wend.strategies.tdo.messages import (
    INCARNATION_SHIFT,
    Gossip,
    MembershipMessage,
    ProbePing,
    ProbePong,
    Shuffle,
)
from wend.strategies.tdo.sampling import VIEW, Sampling
from wend.strategies.tdo.settings import MembershipSettings

WARM = 3
"""The number of periods after which a peer knows enough others to choose among them."""


class Member(Membership):
    """Samples peers and acts once per period. A subclass implements `_tend`, `_hear`, `_found` and `_leave`."""

    settings: ClassVar[type[Settings]] = MembershipSettings
    messages: ClassVar[Any] = MembershipMessage

    def __init__(self, config: PeerConfig) -> None:
        self.me = me = config.peer
        self._settings = settings = config.of(MembershipSettings)
        self.round = 0
        self._first_number = config.incarnation << INCARNATION_SHIFT
        self._draw = peer_stream(config.seed, "overlay", me, config.incarnation)
        self._sampling = Sampling(me, max(VIEW, settings.membership_k + settings.membership_sample), self._draw)
        self._next: Nanos = 0
        self._gone = False
        self._out: list[PluginEffect] = []

    def handle(self, now: Nanos, event: PluginInput, view: View | None = None) -> list[PluginEffect]:
        if not self._gone:
            self._handle(now, event)
        out, self._out = self._out, []
        return out

    def _handle(self, now: Nanos, event: PluginInput) -> None:
        match event:
            case Begun(contacts):
                self._sampling.begin(contacts)
                self._next = now + round(self._draw.random() * self._settings.membership_period_ns)
                self._out.append(Timer(self._next))
            case Heard(sender, message):
                self._told(now, sender, message)
            case ContactFound(peer):
                self._sampling.add_contact(peer)
            case PathFound(peer, path):
                self._found(peer, path)
            case Due():
                if now >= self._next:
                    self._rounds(now)
            case Stopping():
                self._leave()
                self._gone = True

    def informants(self) -> tuple[PeerId, ...]:
        """Contacts, and other peers that it met."""
        return self._sampling.acquaintances

    def _rounds(self, now: Nanos) -> None:
        self.round += 1
        self._next = now + self._settings.membership_period_ns
        shuffle = self._sampling.shuffle()
        if shuffle is not None:
            partner, entries = shuffle
            self._say(partner, Shuffle(entries, self._gossip()))
        self._tend(now)
        self._out.append(Timer(self._next))

    def _told(self, now: Nanos, sender: PeerId, message: MembershipMessage) -> None:
        match message:
            case Shuffle(entries, gossip, answer):
                mine = self._sampling.merge(sender, entries, answer)
                if mine is not None:
                    self._say(sender, Shuffle(mine, self._gossip(), True))
                self._learn(sender, gossip)
            case ProbePing(number):
                self._say(sender, ProbePong(number))
            case _:
                self._hear(now, sender, message)

    def _say(self, peer: PeerId, message: MembershipMessage) -> None:
        if peer != self.me:
            self._out.append(SendTo(peer, message))

    def _refuse(self, peer: PeerId, message: MembershipMessage) -> None:
        self._out.append(Refuse(peer, ComposedReason(f"{type(message).__name__}: a message that cannot be")))

    def _find_path(self, peer: PeerId) -> None:
        self._out.append(FindPath(peer))

    # ---------------------------------------------------------------- for subclasses

    def _gossip(self) -> Gossip:
        return Gossip()

    def _learn(self, sender: PeerId, gossip: Gossip) -> None:
        pass

    def _tend(self, now: Nanos) -> None:
        """Do the work of one period."""
        raise NotImplementedError

    def _hear(self, now: Nanos, sender: PeerId, message: MembershipMessage) -> None:
        raise NotImplementedError

    def _found(self, peer: PeerId, path: Path | None) -> None:
        pass

    def _leave(self) -> None:
        raise NotImplementedError
