"""What the examples share: peers as processes of their own, clients of them, and a program that plays a scene."""

import asyncio
import contextlib
import random
import re
import signal
import socket
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Sequence
from pathlib import Path
from typing import Any

import wend
from wend.drivers.live.access.throwaway_keys import ThrowawayRoot

ANSWER_S = 60.0


class PeerProcess:
    """A `wend peer` that listens for clients."""

    def __init__(self, process: asyncio.subprocess.Process, url: str) -> None:
        self._process = process
        self.url = url

    @classmethod
    async def start(cls, config: Path) -> "PeerProcess":
        call = (sys.executable, "-m", "wend.console.start", "peer", "--quiet", "--config", str(config))
        process = await asyncio.create_subprocess_exec(*call, stdout=asyncio.subprocess.PIPE)
        assert process.stdout is not None
        printed = (await process.stdout.readline()).decode()
        url = re.search(r"clients on (wend://\S+)", printed)
        if url is None:
            raise SystemExit(f"the peer of {config} did not start: {printed}")
        return cls(process, url[1])

    async def kill(self) -> None:
        self._process.kill()
        await self._process.communicate()

    async def stop(self) -> None:
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGTERM)
        await self._process.communicate()


class PeerScene(contextlib.AsyncExitStack):
    """Peers and clients, which end with the scene."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self.processes: dict[int, PeerProcess] = {}
        self.clients: dict[int, wend.Client] = {}
        self._tasks: list[asyncio.Task[None]] = []

    def config(self, peer: int) -> Path:
        return self.folder / f"{peer}.toml"

    async def launch(self, config: Path) -> PeerProcess:
        """Start one peer. Tests override it."""
        return await PeerProcess.start(config)

    async def start_peers(self, files: Sequence[str]) -> None:
        """Start peers 0, 1, ... with these texts as their files."""
        throwaway_keys(self.folder, range(len(files)))
        for peer, text in enumerate(files):
            self.config(peer).write_text(text)
        self.push_async_callback(self._stop)
        started = await asyncio.gather(*(self.launch(self.config(peer)) for peer in range(len(files))))
        self.processes = dict(enumerate(started))

    async def connect_clients(self) -> None:
        for peer, process in self.processes.items():
            self.clients[peer] = await self.enter_async_context(wend.connect(process.url, timeout=ANSWER_S))

    def go_on(self, work: Coroutine[Any, Any, None]) -> None:
        """Run this until the scene ends."""
        self._tasks.append(asyncio.create_task(work))

    async def _stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        # All at once: one by one, each would wait for answers of those that are gone.
        await asyncio.gather(*(process.stop() for process in self.processes.values()))


def play_example(play: Callable[[Path], Coroutine[Any, Any, list[str]]]) -> int:
    """Play a scene in a temporary folder, and print the mistakes that it returns. Returns the exit code."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # like Ctrl-C, it ends the peers first
    with tempfile.TemporaryDirectory() as folder:
        try:
            wrong = asyncio.run(play(Path(folder)))
        except KeyboardInterrupt:
            return 130
    for sentence in wrong:
        print(sentence, file=sys.stderr)
    return int(bool(wrong))


async def collect(events: wend.EventStream, into: Counter[bytes]) -> None:
    """Count the payloads of a subscription."""
    async for event in events:
        into[event.payload] += 1


def throwaway_keys(folder: Path, peers: Iterable[int]) -> None:
    """Make folders `keys-0`, `keys-1`, ... with keys of one root, so that links between the peers are sealed."""
    root = ThrowawayRoot()
    for peer in peers:
        root.write_folder(folder / f"keys-{peer}", f"peer-{peer}", peer)


def free_ports(count: int) -> list[int]:
    """Different ports that nobody uses, below those that the system assigns by itself."""
    ports: set[int] = set()
    while len(ports) < count:
        port = random.SystemRandom().randrange(10_000, 32_000)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one, contextlib.suppress(OSError):
            one.bind(("127.0.0.1", port))
            ports.add(port)
    return sorted(ports)


def shown(payloads: list[bytes]) -> str:
    """The first ten of some payloads."""
    return " ".join(payload.decode() for payload in payloads[:10]) + (" ..." if len(payloads) > 10 else "") or "nothing"


def nonzero(counts: dict[str, int], prefix: str) -> dict[str, int]:
    """The counters of a section that have counted something, under dotted names."""
    return {f"{prefix}.{name}": count for name, count in counts.items() if count}
