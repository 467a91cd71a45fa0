"""The settings of `rendezvous`."""

from typing import Annotated

from wend.model.settings import setting
from wend.strategies.ring.key_based import KeyBasedSettings


class RendezvousSettings(KeyBasedSettings, frozen=True, kw_only=True):
    """How regions are shared among peers."""

    fan_out: Annotated[
        int, setting("Peers that the owner of a region notifies itself; others pass the event on.", low=1)
    ] = 256
    replicas: Annotated[int, setting("Neighbours on the ring that hold a copy of each region.", low=0, high=8)] = 2
    split_rate_hz: Annotated[float, setting("Events per second above which a region splits.", unit="hz", above=0.0)] = (
        500.0
    )
    split_entries: Annotated[int, setting("Subscriptions above which a region splits.", low=2)] = 50_000
