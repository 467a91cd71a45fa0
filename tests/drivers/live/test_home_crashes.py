"""The homes of a durable subscription are killed in turn: its client gets every event that was kept, once, in order."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

import wend
from tests.drivers.live.net import until
from tests.drivers.live.processes import Process
from tests.ports import free_ports

PUBLISHER, HOMES = 0, (1, 2)


def write_files(folder: Path) -> list[Path]:
    """A publisher's peer that is linked to both homes, and homes that are linked to each other."""
    ports, clients = free_ports(3), free_ports(3)
    for peer in range(3):
        others = "".join(
            f'[[neighbours]]\nid = {other}\naddress = "127.0.0.1:{ports[other]}"\ndelay = "2ms"\n'
            for other in range(3)
            if other != peer
        )
        (folder / f"{peer}.toml").write_text(
            f'id = {peer}\nlisten = "127.0.0.1:{ports[peer]}"\nclients = "127.0.0.1:{clients[peer]}"\n'
            f'persistence = true\nstore = "{peer}.store"\nmargin = "100ms"\ndetection = "500ms"\n{others}'
        )
    return [folder / f"{peer}.toml" for peer in range(3)]


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_a_client_of_two_homes_gets_every_kept_event_once_and_in_order(tmp_path: Path, how: str) -> None:
    async def scene() -> None:
        async with asyncio.timeout(240), AsyncExitStack() as stage:
            files = write_files(tmp_path)
            peers = [await Process.start(file) for file in files]
            url = ",".join(peers[home].url for home in HOMES)
            publisher = await stage.enter_async_context(wend.connect(peers[PUBLISHER].url))
            client = await stage.enter_async_context(wend.connect(url))
            events = await client.subscribe("topic = 'x'", name="orders", order="publisher")
            await until(lambda: events.homes == HOMES)
            got: list[int] = []
            kept: list[int] = []

            async def read() -> None:
                async for event in events:
                    got.append(int(event.payload))

            async def publish() -> None:
                number = 0
                while True:
                    number += 1
                    receipt = await publisher.publish({"topic": "x"}, str(number).encode())
                    if receipt.kept and receipt.targets:
                        kept.append(number)
                    await asyncio.sleep(0.002)

            reading, publishing = asyncio.create_task(read()), asyncio.create_task(publish())
            for home in (1, 2, 1):
                await asyncio.sleep(0.5)
                await (peers[home].kill() if how == "kill" else peers[home].stop())
                await asyncio.sleep(0.5)
                peers[home] = await Process.start(files[home])
                await until(lambda: events.homes == HOMES)
            publishing.cancel()
            await until(lambda: bool(kept) and set(kept) <= set(got))
            await asyncio.sleep(1.5)  # longer than a home is on standby: what comes twice would come now
            reading.cancel()
            assert len(got) == len(set(got)), "doubled"
            assert got == sorted(got), "out of order"
            assert not events.missed
            await events.close()
            for peer in peers:
                await peer.stop()

    asyncio.run(scene())
