"""A peer with a log as a process of its own, for tests of Spark, which know no event loop."""

import asyncio
from collections.abc import Coroutine, Iterable
from pathlib import Path
from typing import Any, TypeVar

from tests.drivers.live.processes import Process
from tests.ports import free_ports
from wend.drivers.live.client.client import Client
from wend.drivers.live.client.connect import connect
from wend.drivers.live.client.event_stream import EventStream
from wend.drivers.live.status import LogStatus

T = TypeVar("T")


class LogPeerProcess:
    """Peer 1 with the log `orders`. It can be stopped and started again."""

    def __init__(self, folder: Path, bounds: str = "events = 1000000", more: str = "") -> None:
        place, clients = free_ports(2)
        self.url = f"wend://127.0.0.1:{clients}"
        self.file = folder / "peer.toml"
        self.file.write_text(
            f'id = 1\nlisten = "127.0.0.1:{place}"\nclients = "127.0.0.1:{clients}"\n'
            f'persistence = true\nstore = "peer.store"\n{more}'
            f'[[logs]]\nname = "orders"\nfilter = "topic = \'order\'"\n{bounds}\n'
        )
        self._runner = asyncio.Runner()
        self._process: Process | None = None

    def __enter__(self) -> "LogPeerProcess":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._runner.close()

    def run(self, play: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(play)

    def start(self) -> None:
        self._process = self.run(Process.start(self.file))

    def kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            self.run(process.kill())

    def restart(self) -> None:
        self.kill()
        self.start()

    def publish(self, events: Iterable[dict[str, Any]], headers: dict[str, str] | None = None) -> None:
        """Publish events with a payload that names their number."""

        async def play() -> None:
            async with connect(self.url) as client:
                for event in events:
                    await client.post({"topic": "order", **event}, f"payload {event['number']}".encode(), headers)
                await client.flush()

        self.run(play())

    def publish_numbers(self, *ranges: range) -> None:
        self.publish({"number": number, "even": number % 2 == 0} for each in ranges for number in each)

    def status(self) -> LogStatus:
        async def play() -> LogStatus:
            async with connect(self.url) as client:
                return (await client.status()).logs["orders"]

        return self.run(play())

    def events(self, filter: str = "topic = 'order'") -> list[Any]:
        """All events of the log, as a client gets them."""

        async def play() -> list[Any]:
            async with connect(self.url) as client, _history(client, filter) as events:
                return [event async for event in events]

        return self.run(play())


def _history(client: Client, filter: str) -> EventStream:
    return client.subscribe(filter, since="first", until="now")
