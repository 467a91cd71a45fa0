"""The homes of durable subscriptions: the peers that a client's URL names.

A client that knows one peer has its durable subscriptions there. A client that knows several has each of them at all
these peers, over a connection to each, and goes on when one of them fails.
"""

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Protocol

from wend.model.errors import ClientError

if TYPE_CHECKING:
    from wend.drivers.live.client.client import Client


class ClientHome(Protocol):
    """One of the peers that a client's URL names."""

    async def connected_client(self) -> "Client":
        """Return a connected client of this peer. Raises `ClientError` if the peer cannot be reached."""
        ...

    async def close(self) -> None:
        """End the connection."""
        ...


class OnlyHome:
    """The home of a client that knows one peer: the connection that the client has anyway."""

    def __init__(self, client: "Client") -> None:
        self._client = client

    async def connected_client(self) -> "Client":
        return self._client

    async def close(self) -> None:
        """Do nothing: the client closes its connection itself."""


class RemoteHome:
    """One of several homes, with a connection of its own. The connection is made when it is needed, and restored as
    long as the client lives."""

    def __init__(self, make_client: "Callable[[], Client]") -> None:
        self._make_client = make_client
        self._client: Client | None = None
        self._connecting = asyncio.Lock()

    async def connected_client(self) -> "Client":
        async with self._connecting:
            if self._client is None or self._client.ended:
                self._client = await self._make_client()
        return self._client

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()


class Homes:
    """All homes of one client."""

    def __init__(self, client: "Client", urls: tuple[str, ...], make_client: "Callable[[str], Client]") -> None:
        self._all: list[ClientHome] = [OnlyHome(client)]
        if len(urls) > 1:
            self._all = [RemoteHome(partial(make_client, url)) for url in urls]

    def __iter__(self) -> Iterator[ClientHome]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    async def remove(self, name: str) -> None:
        """Remove a durable subscription from all of them. Raises if one has none of that name, or cannot be reached."""
        failures: list[ClientError] = []
        for home in self._all:
            try:
                await (await home.connected_client()).streams.remove(name)
            except ClientError as error:
                failures.append(error)
        if failures:
            raise failures[0]

    async def close(self) -> None:
        for home in self._all:
            await home.close()
