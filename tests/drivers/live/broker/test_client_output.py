"""What a session writes: a delivery that no frame holds stops nothing else."""

import asyncio
from collections import Counter
from typing import Any, cast

import pytest

from wend.drivers.live import frames
from wend.drivers.live.broker.client_output import ClientOutput
from wend.drivers.live.transport import wire
from wend.model.events import Event, EventId, SubscriptionId
from wend.protocol.ports import Deliver


class Written:
    """A transport that remembers."""

    def __init__(self) -> None:
        self.data = bytearray()

    def write(self, data: bytes) -> None:
        self.data += data

    def set_write_buffer_limits(self, high: int) -> None:
        pass

    def frames(self) -> list[frames.ToClient]:
        return [wire.decode_to_client(body) for body in wire.FrameSplitter().feed(bytes(self.data))]


def delivery(sequence: int, **fields: Any) -> Deliver:
    return Deliver(SubscriptionId(0, 1), Event(EventId(1, 1, sequence), {"topic": "a"}, **fields), 5, None)


@pytest.mark.parametrize("batches", [False, True])
@pytest.mark.parametrize("stalled", [False, True])
def test_an_event_that_cannot_be_encoded_is_missed_and_others_arrive(batches: bool, stalled: bool) -> None:
    async def scene() -> list[frames.ToClient]:
        written, counts = Written(), Counter[str]()
        output = ClientOutput(counts, 100, 10**6, lambda handle, positions: None)
        output.open(cast(asyncio.Transport, written))
        output.batches, output.is_stalled = batches, stalled
        for sequence in (1, 10**30, 3):
            output.deliver(7, delivery(sequence))
        if stalled:
            output.resume()
        await asyncio.sleep(0)
        output.deliver(7, delivery(4))  # and it goes on
        await asyncio.sleep(0)
        assert counts["undeliverable"] == 1
        return written.frames()

    found = asyncio.run(scene())
    told = [one for frame in found for one in (frame.deliveries if isinstance(frame, frames.Deliveries) else (frame,))]
    ids = [one.event.id.sequence for one in told if isinstance(one, frames.Delivery)]
    assert ids == [1, 3, 4]
    assert frames.MissedFrame(7, {"undeliverable": 1}) in told


def test_what_other_peers_need_is_not_written_to_clients() -> None:
    async def scene() -> list[frames.ToClient]:
        written = Written()
        output = ClientOutput(Counter(), 100, 10**6, lambda handle, positions: None)
        output.open(cast(asyncio.Transport, written))
        output.deliver(7, delivery(1, groups=(("workers", (1, 2)),), previous=((3, 4),)))
        output.flush()
        return written.frames()

    (found,) = asyncio.run(scene())
    assert isinstance(found, frames.Delivery) and not found.event.groups and not found.event.previous
