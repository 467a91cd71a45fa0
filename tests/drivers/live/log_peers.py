"""Peers with logs, in this process and as processes, for tests."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.ports import free_ports
from wend.drivers.live.client.client import Client
from wend.drivers.live.client.connect import connect
from wend.drivers.live.config import load_peer_file
from wend.drivers.live.logs.log import Log
from wend.drivers.live.process import PeerProcess

PATIENCE_S = 60
ORDERS = '[[logs]]\nname = "orders"\nfilter = "topic = \'order\'"\nevents = 1000000\n'


def write_peers(folder: Path, logs: str = ORDERS, count: int = 2) -> list[Path]:
    """The files of linked peers 0, 1, ...; the last one has logs."""
    places, clients = free_ports(count), free_ports(count)
    for peer in range(count):
        neighbours = "".join(
            f'[[neighbours]]\nid = {other}\naddress = "127.0.0.1:{places[other]}"\ndelay = "5ms"\n'
            for other in range(count)
            if other != peer
        )
        (folder / f"{peer}.toml").write_text(
            f'id = {peer}\nlisten = "127.0.0.1:{places[peer]}"\nclients = "127.0.0.1:{clients[peer]}"\n'
            f'persistence = true\nstore = "{peer}.store"\nmargin = "100ms"\ndetection = "1s"\n{neighbours}'
            f"{logs if peer == count - 1 else ''}"
        )
    return [folder / f"{peer}.toml" for peer in range(count)]


@asynccontextmanager
async def running(file: Path) -> AsyncIterator[PeerProcess]:
    """The peer of a file, in this process."""
    peer = PeerProcess(load_peer_file(file))
    await peer.start()
    try:
        yield peer
    finally:
        await peer.abort()


@asynccontextmanager
async def client_of(peer: PeerProcess) -> AsyncIterator[Client]:
    async with connect(f"wend://127.0.0.1:{peer.listener.address[1]}", patience=PATIENCE_S) as client:
        yield client


def log_of(peer: PeerProcess, name: str = "orders") -> Log:
    assert peer.logs is not None
    return peer.logs.named(name).log
