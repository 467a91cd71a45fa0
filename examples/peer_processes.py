"""Peers as processes of their own, for the examples."""

import asyncio
import contextlib
import random
import re
import signal
import socket
import sys
from collections.abc import Iterable
from pathlib import Path

from wend.drivers.live.access.throwaway_keys import ThrowawayRoot


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
        found = re.search(r"clients on (wend://\S+)", printed)
        if found is None:
            raise SystemExit(f"the peer of {config} did not start: {printed}")
        return cls(process, found[1])

    async def kill(self) -> None:
        self._process.kill()
        await self._process.communicate()

    async def stop(self) -> None:
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGTERM)
        await self._process.communicate()


def throwaway_keys(folder: Path, peers: Iterable[int]) -> None:
    """Folders `keys-0`, `keys-1`, ... with keys of one root, which is forgotten: links between the peers are sealed."""
    root = ThrowawayRoot()
    for peer in peers:
        root.write(folder / f"keys-{peer}", f"peer-{peer}", peer)


def free_ports(count: int) -> list[int]:
    """Ports that nobody uses, all different, below those that the system hands out by itself."""
    found: set[int] = set()
    while len(found) < count:
        port = random.SystemRandom().randrange(10_000, 32_000)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one, contextlib.suppress(OSError):
            one.bind(("127.0.0.1", port))
            found.add(port)
    return sorted(found)


def shown(payloads: list[bytes]) -> str:
    """The first ten of some payloads."""
    return " ".join(payload.decode() for payload in payloads[:10]) + (" ..." if len(payloads) > 10 else "") or "nothing"
