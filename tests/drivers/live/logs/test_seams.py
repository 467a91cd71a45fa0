"""Between history and what comes there is no gap, and no event comes twice, whatever happens meanwhile."""

import asyncio
import random
import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.drivers.live.log_events import crash
from tests.drivers.live.log_peers import ORDERS, client_of, log_of, running, write_peers
from tests.drivers.live.net import known, run, until
from wend.drivers.live import frames
from wend.drivers.live.broker.log_readers import LogReader
from wend.drivers.live.client.client import Client
from wend.drivers.live.log_frames import LogPlace
from wend.drivers.live.logs.peer_logs import PeerLog
from wend.drivers.live.logs.settings import EventLogEntry
from wend.matching.filters import parse
from wend.model.events import Event, EventId, SubscriptionId
from wend.protocol.ports import Deliver

SEAMS = 40


class ClientMachine(RuleBasedStateMachine):
    """A client that reads a log, and everything that it gets."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.open_log()
        self.next = 0
        self.positions: list[int] = []
        """Of the events that match, by the order in which they were appended."""
        self.is_ready = True
        self.wanted = 0
        """The position from which the client reads; 0 before it does."""
        self.got: list[int] = []
        self.taken = 0
        self.missed = 0
        self.reader: LogReader | None = None
        self.scheduled: list[LogReader] = []

    def open_log(self) -> None:
        self.source = PeerLog(EventLogEntry("orders", "true", events=800), self.folder)

    def teardown(self) -> None:
        self.source.log.close()
        shutil.rmtree(self.folder)

    # the output of the peer

    def write_delivery(self, delivery: frames.Delivery, size: int) -> None:
        assert self.is_ready
        assert delivery.event.attributes["number"] % 3 == 0  # type: ignore[operator]
        self.got.append(delivery.position)

    def answer(self, frame: frames.ToClient) -> None:
        if isinstance(frame, frames.Reading) and not self.wanted:
            self.wanted = frame.position
        elif isinstance(frame, frames.MissedFrame):
            self.missed += sum(frame.counts.values())

    # what happens

    @rule(count=st.integers(1, 40))
    def append(self, count: int) -> None:
        for _ in range(count):
            self.next += 1
            event = Event(EventId(1, 1, self.next), {"number": self.next, "third": self.next % 3 == 0})
            self.source.append(Deliver(SubscriptionId(1, 1), event, 0, None))
            if self.next % 3 == 0:
                self.positions.append(self.source.log.next_position - 1)

    @rule(begin=st.sampled_from(["first", "last", "end", "position"]), value=st.integers(0, 30))
    def connect(self, begin: str, value: int) -> None:
        if self.reader is not None:
            return
        place = LogPlace(begin, value)  # type: ignore[arg-type]
        if self.wanted:
            place = LogPlace("position", max(self.wanted, self.got[-1] + 1 if self.got else 0))
        self.is_ready = True
        request = frames.ReadLog(1, 1, "third = true", place, window=7)
        self.reader = LogReader(
            self.source, request, parse(request.filter), self, lambda event: event, self.scheduled.append
        )
        self.reader.wake()

    @rule()
    def disconnect(self) -> None:
        if self.reader is not None:
            self.reader.close()
            self.reader = None
            self.scheduled.clear()

    @rule()
    def kill_peer(self) -> None:
        self.disconnect()
        crash(self.source.log)
        self.open_log()

    @rule(is_ready=st.booleans())
    def stall(self, is_ready: bool) -> None:
        self.is_ready = is_ready
        if is_ready and self.reader is not None:
            self.reader.wake()

    @rule()
    def take(self) -> None:
        if self.reader is not None and self.got:
            self.reader.take(self.got[-1])

    @rule(turns=st.integers(1, 50))
    def work(self, turns: int) -> None:
        for _ in range(turns):
            if not self.scheduled:
                return
            reader = self.scheduled.pop(0)
            if reader.work(0.0):
                self.scheduled.append(reader)

    @rule()
    def catch_up(self) -> None:
        """With a client that takes all, the reader comes to the end."""
        self.connect("end", 0)
        self.stall(is_ready=True)
        while self.scheduled or (self.reader is not None and not self.source.waiting):
            self.take()
            self.work(10)
        expected = [each for each in self.positions if each >= self.wanted]
        if self.missed:
            expected = [each for each in expected if each in self.got or each >= self.source.log.first_position]
        assert self.got == expected

    @invariant()
    def in_order_once(self) -> None:
        assert all(a < b for a, b in zip(self.got, self.got[1:], strict=False))


ClientMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
test_no_gap_and_no_double = ClientMachine.TestCase


async def _publish_without_end(client: Client, sent: list[int]) -> None:
    """Publish orders as fast as the peer takes them, for ever."""
    while True:
        numbers = range(len(sent), len(sent) + 20)
        await client.publish_many([{"topic": "order", "number": number} for number in numbers])
        sent += numbers
        await asyncio.sleep(0)


def test_random_seams_under_load_while_links_fail(tmp_path: Path) -> None:
    """Readers begin anywhere while events flow over links that fail, and each gets what the log holds."""
    chosen = random.Random(7)

    async def read_some(client: Client, begin: int, count: int) -> list[tuple[int, object]]:
        options = chosen.choice(
            [{"since": begin}, {"since": "first"}, {"last": chosen.randrange(1, 300)}, {"since": "1s"}]
        )
        async with client.subscribe("topic = 'order'", **options) as events:
            found = []
            for _ in range(count):
                event = await anext(events)
                found.append((event.position, event.id))
            return found

    async def scene() -> None:
        mine, its = write_peers(tmp_path, ORDERS)
        mine.write_text("experiments = true\n" + mine.read_text())
        async with running(mine) as here, running(its) as there, client_of(here) as client, client_of(there) as reader:
            await known(client, "order", 1)
            sent: list[int] = []
            load = asyncio.create_task(_publish_without_end(client, sent))
            seams: list[list[tuple[int, object]]] = []
            for number in range(SEAMS // 4):
                await (client.cut(1) if number % 3 == 1 else client.heal(1))
                log = log_of(there)
                begins = [chosen.randrange(1, log.next_position + 20) for _ in range(4)]
                readers = [asyncio.create_task(read_some(reader, begin, 100)) for begin in begins]
                await asyncio.sleep(0.02)
                await client.heal(1)
                seams += await asyncio.gather(*readers)
            load.cancel()
            await until(lambda: not here.peer.peer.unfinished())
            async with reader.subscribe("topic = 'order'", since="first", until="now") as events:
                held = [(event.position, event.id, event.attributes.get("number")) async for event in events]
            places = {position: place for place, (position, _, _) in enumerate(held)}
            for seam in seams:
                begin = places[seam[0][0]]
                assert seam == [each[:2] for each in held[begin : begin + 100]]
            assert {number for *_, number in held if number is not None} >= {*sent}
            assert len({id_ for _, id_, _ in held}) == len(held)

    run(scene())
