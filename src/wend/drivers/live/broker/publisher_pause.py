"""Pauses a client that publishes while too much waits for the links of the peer."""

import asyncio
from collections.abc import Callable

ROOM_S = 0.005
"""How often to check whether the peer has room again."""
MAX_PAUSE_S = 2.0
"""The longest pause. Then one more request is served, so that the client does not think that the peer has died."""


class PublisherPause:
    """A pause that ends when there is room again, or after `MAX_PAUSE_S`."""

    def __init__(self, is_crowded: Callable[[], bool], resume: Callable[[], None]) -> None:
        self._is_crowded = is_crowded
        self._resume = resume
        self._begun: float | None = None

    @property
    def is_active(self) -> bool:
        return self._begun is not None

    def begin(self) -> None:
        loop = asyncio.get_running_loop()
        self._begun = loop.time()
        loop.call_later(ROOM_S, self._check)

    def _check(self) -> None:
        loop = asyncio.get_running_loop()
        if self._begun is not None and self._is_crowded() and loop.time() < self._begun + MAX_PAUSE_S:
            loop.call_later(ROOM_S, self._check)
        else:
            self._begun = None
            self._resume()
