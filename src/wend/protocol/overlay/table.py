"""The overlays by name; the table below is all there is to register."""

from collections.abc import Callable

from wend.model.errors import ConfigError
from wend.model.events import PeerId
from wend.protocol.overlay.chain import Chain
from wend.protocol.overlay.shape import Overlay, OverlaySettings
from wend.protocol.overlay.tdo_landmark import TdoLandmark
from wend.protocol.overlay.tdo_random import Farthest, Nearest, TdoRandom
from wend.protocol.overlay.uniform import Uniform

OVERLAYS: dict[str, Callable[[PeerId, int, OverlaySettings], Overlay]] = {
    "tdo-landmark": TdoLandmark,
    "tdo-random": TdoRandom,
    "tdo-nearest": Nearest,
    "tdo-farthest": Farthest,
    "random": Uniform,
    "chain": Chain,
}


def overlay(name: str, me: PeerId, incarnation: int, settings: OverlaySettings) -> Overlay:
    try:
        return OVERLAYS[name](me, incarnation, settings)
    except KeyError:
        raise ConfigError(f"unknown overlay {name!r}: choose one of {', '.join(OVERLAYS)}") from None
