"""The memberships of topology-driven overlays: each samples peers, gossips, and tends an overlay once per period."""

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

from wend.model.events import PeerId
from wend.model.settings import Settings
from wend.model.units import Nanos
from wend.protocol.plugins import (
    Begun,
    ContactFound,
    Due,
    Heard,
    Membership,
    PathFound,
    PeerConfig,
    PluginEffect,
    PluginInput,
    SendTo,
    Stopping,
    View,
)
from wend.strategies.tdo.chain import ChainOverlay
from wend.strategies.tdo.landmark_trees import LandmarkTrees
from wend.strategies.tdo.link_overlay import LinkOverlay, RandomOverlay
from wend.strategies.tdo.messages import Effects, MembershipMessage, ProbePing, ProbePong, Shuffle
from wend.strategies.tdo.path_matching import PathMatching
from wend.strategies.tdo.rounds import MembershipSettings, Rounds

MemberOverlay = LandmarkTrees | LinkOverlay
"""Decides which peers a member links, and yields what it does for that."""


class OverlayMember(Membership):
    """Samples peers, gossips, and leaves it to an overlay which peers to link."""

    settings: ClassVar[type[Settings]] = MembershipSettings
    messages: ClassVar[Any] = MembershipMessage

    def __init__(self, config: PeerConfig, make_overlay: Callable[[PeerConfig, Rounds], MemberOverlay]) -> None:
        self._me = config.peer
        self.rounds = Rounds(config)
        self.overlay = make_overlay(config, self.rounds)
        self._has_left = False

    def handle(self, now: Nanos, event: PluginInput, view: View | None = None) -> list[PluginEffect]:
        if self._has_left:
            return []
        effects = self._handle(now, event)
        return [effect for effect in effects if not (type(effect) is SendTo and effect.peer == self._me)]

    def informants(self) -> tuple[PeerId, ...]:
        """Contacts, and other peers that it met."""
        return self.rounds.sampling.acquaintances

    def _handle(self, now: Nanos, event: PluginInput) -> Effects:
        match event:
            case Begun(contacts):
                yield self.rounds.begin(now, contacts)
            case Heard(sender, message):
                yield from self._on_message(now, sender, message)
            case ContactFound(peer):
                self.rounds.sampling.add_contact(peer)
            case PathFound(peer, path):
                yield from self.overlay.handle_path(peer, path)
            case Due():
                yield from self._run_round(now)
            case Stopping():
                yield from self.overlay.leave()
                self._has_left = True

    def _run_round(self, now: Nanos) -> Effects:
        timer = self.rounds.advance(now)
        if timer is None:
            return
        shuffle = self.rounds.sampling.shuffle()
        if shuffle is not None:
            partner, entries = shuffle
            yield SendTo(partner, Shuffle(entries, self.overlay.gossip()))
        yield from self.overlay.run_round(now)
        yield timer

    def _on_message(self, now: Nanos, sender: PeerId, message: MembershipMessage) -> Effects:
        match message:
            case Shuffle(entries, gossip, answer):
                mine = self.rounds.sampling.merge(sender, entries, answer)
                if mine is not None:
                    yield SendTo(sender, Shuffle(mine, self.overlay.gossip(), True))
                yield from self.overlay.on_gossip(sender, gossip)
            case ProbePing(number):
                yield SendTo(sender, ProbePong(number))
            case _:
                yield from self.overlay.on_message(now, sender, message)


class TdoLandmark(OverlayMember):
    """Links peers along the trees of elected landmarks."""

    def __init__(self, config: PeerConfig) -> None:
        super().__init__(config, LandmarkTrees)


class TdoRandom(OverlayMember):
    """Joins random peers and links along the measured paths."""

    def __init__(self, config: PeerConfig) -> None:
        super().__init__(config, PathMatching)


class Nearest(OverlayMember):
    """Joins the peers of a sample with the shortest round trips."""

    def __init__(self, config: PeerConfig) -> None:
        super().__init__(config, partial(PathMatching, sign=1))


class Farthest(OverlayMember):
    """Joins the peers of a sample with the longest round trips: the thesis's counter-example."""

    def __init__(self, config: PeerConfig) -> None:
        super().__init__(config, partial(PathMatching, sign=-1))


class RandomLinks(OverlayMember):
    """Links peers at random, all with about the same degree."""

    def __init__(self, config: PeerConfig) -> None:
        super().__init__(config, RandomOverlay)


class Chain(OverlayMember):
    """Links each peer of a measured path with the next."""

    def __init__(self, config: PeerConfig) -> None:
        super().__init__(config, ChainOverlay)
