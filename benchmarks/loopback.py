"""Peers and clients on loopback, as benchmarks start them."""

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

from wend.drivers.live.client.client import Client
from wend.drivers.live.client.connect import connect
from wend.model.errors import ConnectionLost

CLIENTS = 100
"""The port for the clients of a peer is so far above its own."""
_START_S = 120.0
_FILE = """
id = {id}
listen = "127.0.0.1:{port}"
clients = "127.0.0.1:{clients}"
"""
_NEIGHBOUR = """
[[neighbours]]
id = {id}
address = "127.0.0.1:{port}"
delay = "1ms"
"""


def write_peer(folder: Path, port: int, me: int, neighbours: Iterable[int], more: str = "") -> Path:
    """The file of a peer. Peer n listens at `port + n`."""
    text = _FILE.format(id=me, port=port + me, clients=port + CLIENTS + me) + more
    text += "".join(_NEIGHBOUR.format(id=other, port=port + other) for other in neighbours)
    file = folder / f"peer-{me}.toml"
    file.write_text(text)
    return file


def peer_command(file: Path) -> list[str]:
    return [sys.executable, "-m", "wend.console.start", "peer", "--config", str(file)]


def peer_url(port: int, peer: int) -> str:
    """The address of a peer for clients."""
    return f"wend://127.0.0.1:{port + CLIENTS + peer}"


@asynccontextmanager
async def open_client(port: int, peer: int) -> AsyncIterator[Client]:
    """A client of a peer, which may still be starting."""
    give_up = time.monotonic() + _START_S
    while True:
        try:
            client = await connect(peer_url(port, peer))
            break
        except ConnectionLost:
            if time.monotonic() > give_up:
                raise
            await asyncio.sleep(0.05)
    try:
        yield client
    finally:
        await client.close()


def start_quietly(command: Iterable[str]) -> "subprocess.Popen[bytes]":
    quiet = subprocess.DEVNULL
    return subprocess.Popen([*command], stdin=quiet, stdout=quiet, stderr=quiet)
