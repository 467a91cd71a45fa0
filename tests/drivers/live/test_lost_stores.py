"""A subscriber's peer whose store is damaged or gone marks what its client may have got before."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

import wend
from tests.drivers.live.processes import Process
from tests.drivers.live.test_home_crashes import write_files

PUBLISHER, HOME = 0, 1


async def publish(publisher: wend.Client, *numbers: int) -> None:
    for number in numbers:
        receipt = await publisher.publish({"topic": "x"}, str(number).encode())
        assert receipt.kept and receipt.targets


def destroy(store: Path, how: str) -> None:
    if how == "wiped":
        store.unlink()
    elif how == "damaged":
        content = bytearray(store.read_bytes())
        content[-1] ^= 0xFF
        store.write_bytes(content)


@pytest.mark.parametrize("how", ["intact", "damaged", "wiped"])
def test_events_from_before_the_loss_are_marked_and_later_ones_are_not(tmp_path: Path, how: str) -> None:
    async def scene() -> None:
        async with asyncio.timeout(120), AsyncExitStack() as stage:
            files = write_files(tmp_path)
            peers = [await Process.start(file) for file in files]
            publisher = await stage.enter_async_context(wend.connect(peers[PUBLISHER].url))
            async with wend.connect(peers[HOME].url) as client:
                events = await client.subscribe("topic = 'x'", name="orders")
                await publish(publisher, 1)
                assert (await anext(events)).payload == b"1"
                await events.close()
            await peers[HOME].kill()
            await publish(publisher, 2)
            destroy(tmp_path / f"{HOME}.store", how)
            peers[HOME] = await Process.start(files[HOME])
            client = await stage.enter_async_context(wend.connect(peers[HOME].url))
            events = await client.subscribe("topic = 'x'", name="orders")
            while (event := await anext(events)).payload != b"2":
                assert event.payload == b"1" and event.redelivered  # its acknowledgement was lost with the store
            assert event.redelivered == (how != "intact")
            await publish(publisher, 3)
            event = await anext(events)
            assert (event.payload, event.redelivered) == (b"3", False)
            await events.close()
            for peer in peers:
                await peer.stop()

    asyncio.run(scene())
