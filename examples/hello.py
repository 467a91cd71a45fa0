"""Publish and subscribe through a running peer: `wend peer --config examples/peer.toml`, then this."""

import asyncio
import sys

import wend


async def main(url: str) -> None:
    async with wend.connect(url) as client, client.subscribe("topic = 'stuttgart'", deadline=0.2) as events:
        receipt = await client.publish({"topic": "stuttgart", "temperature": 15}, b"a mild day")
        print(f"published {receipt.id} to {receipt.targets} peer(s)")
        event = await anext(events)
        print(f"{event.attributes['temperature']} degrees, {event.payload.decode()}, late: {event.late}")


try:
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "wend://127.0.0.1:7700"))
except wend.WendError as error:
    sys.exit(f"hello: {error}")
