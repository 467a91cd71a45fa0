"""The overlays by name; the table below is all there is to register."""

from collections.abc import Callable

from wend.model.errors import ConfigError
from wend.model.events import PeerId
from wend.protocol.membership.chain import Chain
from wend.protocol.membership.random_links import RandomLinks
from wend.protocol.membership.settings import MembershipSettings
from wend.protocol.membership.shape import Overlay
from wend.protocol.membership.tdo_landmark import TdoLandmark
from wend.protocol.membership.tdo_random import Farthest, Nearest, TdoRandom

OVERLAYS: dict[str, Callable[[PeerId, int, MembershipSettings, int], Overlay]] = {
    "tdo-landmark": TdoLandmark,
    "tdo-random": TdoRandom,
    "tdo-nearest": Nearest,
    "tdo-farthest": Farthest,
    "random": RandomLinks,
    "chain": Chain,
}


def overlay(name: str, me: PeerId, incarnation: int, settings: MembershipSettings, seed: int) -> Overlay:
    try:
        return OVERLAYS[name](me, incarnation, settings, seed)
    except KeyError:
        raise ConfigError(f"unknown overlay {name!r}: choose one of {', '.join(OVERLAYS)}") from None
