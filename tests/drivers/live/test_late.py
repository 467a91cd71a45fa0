"""Late is late: time that a peer is suspended, or that datagrams and deliveries wait in a queue, counts in the age."""

import asyncio
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import wend
from tests.drivers.live.net import RawClient, Record, fresh, known, overlay, run, take, until
from tests.drivers.live.processes import Process
from tests.ports import free_ports
from wend.drivers.live import frames
from wend.drivers.live.broker import stalled_queue
from wend.drivers.live.counters import Counters
from wend.drivers.live.peer import LivePeer
from wend.drivers.live.store.store import Store
from wend.drivers.live.store.writer import StoreWriter
from wend.drivers.live.transport import kernel_queue
from wend.drivers.live.transport.kernel_queue import SHORT_NS, KernelQueue
from wend.model.events import DurableOptions, Event, EventId, PeerId, Qos, SubscriptionId
from wend.model.publication import Publication
from wend.model.units import MS, SECOND, Nanos
from wend.protocol.config import PeerConfig
from wend.protocol.messages import Ack, Data, DirectMessage, Message, PlainMessage, increase_age
from wend.protocol.ports import Attached, Deliver, LocalSubscription, Missed, Persist, Started
from wend.protocol.records import ConfirmedRecord, DeliveredRecord, QueuedRecord
from wend.strategies.clusters.interest.messages import ClusterEvent

HOUR = 3600 * SECOND
EVENT = Event(EventId(1, 1, 1), {"topic": "x"})


def _config(folder: Path, peer: PeerId, ports: list[int]) -> Path:
    path = folder / f"{peer}.toml"
    path.write_text(
        f'id = {peer}\nlisten = "127.0.0.1:{ports[peer]}"\nclients = "127.0.0.1:0"\ndetection = "10s"\n'
        f'[[neighbours]]\nid = {1 - peer}\naddress = "127.0.0.1:{ports[1 - peer]}"\ndelay = "5ms"\n'
    )
    return path


def test_events_that_a_suspended_peer_gets_too_late_are_late(tmp_path: Path) -> None:
    async def scene() -> None:
        ports = free_ports(2)
        here, there = [await Process.start(_config(tmp_path, peer, ports)) for peer in (0, 1)]
        async with (
            wend.connect(here.url) as publisher,
            wend.connect(there.url) as subscriber,
            subscriber.subscribe("topic = 'x'", deadline=0.1) as events,
        ):
            await known(publisher, "x", 1)
            await publisher.publish({"topic": "x"}, b"before")
            assert (await fresh(events)).payload == b"before"
            there.send_signal(signal.SIGSTOP)
            for number in range(10):
                await publisher.publish({"topic": "x"}, b"%d" % number)
            await asyncio.sleep(0.3)
            there.send_signal(signal.SIGCONT)
            held = await take(events, 10)
            assert {event.payload for event in held} == {b"%d" % number for number in range(10)}
            assert [event.late for event in held] == [True] * 10
            assert min(event.age for event in held) > 0.29
            await publisher.publish({"topic": "x"}, b"after")
            assert (await anext(events)).age < min(event.age for event in held)
        await asyncio.gather(here.stop(), there.stop())

    run(scene())


# ---------------------------------------------------------------- datagrams in the kernel


class Queue:
    """A socket whose queue in the kernel is looked at, and clocks that somebody sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.skipped_ns = self.wall_jump_ns = 0
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self._socket.setblocking(False)
        real = time.time_ns
        monkeypatch.setattr(kernel_queue.time, "time_ns", lambda: real() + self.skipped_ns + self.wall_jump_ns)
        self.queue = KernelQueue(self._socket, self.clock)

    def clock(self) -> Nanos:
        return time.monotonic_ns() + self.skipped_ns

    def arrive(self) -> None:
        self._socket.sendto(b"x", self._socket.getsockname())

    def read(self) -> Nanos:
        assert self._socket.recv(10) == b"x"
        return self.queue.waited_ns(self.clock())

    def find_empty(self) -> None:
        with pytest.raises(BlockingIOError):
            self._socket.recv(10)
        self.queue.note_empty(self.clock())

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> Iterator[Queue]:
    made = Queue(monkeypatch)
    made.arrive()
    made.read()
    made.find_empty()
    yield made
    made.close()


linux = pytest.mark.skipif(not hasattr(socket, "IPPROTO_UDPLITE"), reason="the kernel of Linux tells it")


@linux
def test_the_wait_of_each_datagram_is_its_own(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    stamps: list[Nanos] = []
    for _ in range(3):
        queue.arrive()
        stamps.append(kernel_queue.time.time_ns())  # the kernel does not know of the time that was skipped
        queue.skipped_ns += 60 * SECOND
    monkeypatch.setattr(queue.queue, "arrival_time_ns", lambda: stamps.pop(0))
    assert [queue.read() // (60 * SECOND) for _ in range(3)] == [3, 2, 1]


@linux
def test_a_wait_that_a_busy_peer_has_anyway_counts_as_none(queue: Queue) -> None:
    queue.arrive()
    queue.skipped_ns += SHORT_NS // 2
    assert not 0 < queue.read() <= SHORT_NS  # a loaded machine may add to it


@linux
def test_a_clock_set_forward_invents_no_age(queue: Queue) -> None:
    queue.arrive()
    queue.wall_jump_ns += HOUR
    assert queue.read() < HOUR // 2, "the queue was empty just before"
    queue.arrive()
    assert queue.read() < HOUR // 2, "it arrived behind another one"


@linux
def test_a_clock_set_back_makes_no_negative_age(queue: Queue) -> None:
    queue.arrive()
    queue.skipped_ns += SECOND
    queue.wall_jump_ns -= HOUR
    assert queue.read() == 0


def test_where_the_kernel_does_not_tell_nothing_waits(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(25, "Inappropriate ioctl for device")

    monkeypatch.setattr(kernel_queue.fcntl, "ioctl", refuse)
    queue.arrive()
    queue.skipped_ns += SECOND
    assert queue.read() == 0


@pytest.mark.parametrize(
    ("message", "age_ns"),
    [
        (Data(1, EVENT, 5, (1,)), lambda m: m.age_ns),
        (PlainMessage("cluster-trees", ClusterEvent("c", (), EVENT, 5)), lambda m: m.body.age_ns),
        (DirectMessage(1, "cluster-trees", ClusterEvent("c", (), EVENT, 5)), lambda m: m.body.age_ns),
    ],
)
def test_every_message_that_carries_an_event_and_every_ack_grows_older(message: Message, age_ns: object) -> None:
    assert callable(age_ns)
    assert (age_ns(message), age_ns(increase_age(message, 7))) == (5, 12)
    assert increase_age(Ack(1), 7) == Ack(1, held_ns=7)


# ---------------------------------------------------------------- deliveries in queues of the peer


def test_the_time_in_the_queue_of_a_slow_client_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        async with overlay([]) as (site,), wend.connect(site.url) as client:
            raw = await RawClient.connect(site.listener.address, limit=1024)
            raw.send(frames.Greet(), frames.Subscribe(1, 1, "topic = 'x'", HOUR // 2))
            await until(lambda: bool(site.broker.subscriptions))
            published = 0
            while not any(session.queued_bytes for session in site.listener.sessions):
                await client.publish({"topic": "x"}, bytes(40_000))
                published += 1
            real = stalled_queue.monotonic
            monkeypatch.setattr(stalled_queue, "monotonic", lambda: real() + HOUR)
            last = (await raw.receive(2 + published))[-1]
            assert isinstance(last, frames.Delivery)
            assert last.late and last.age_ns >= HOUR
            await client.publish({"topic": "x"}, b"next")
            (following,) = await raw.receive()
            assert isinstance(following, frames.Delivery)
            assert not following.late
            raw.close()

    run(scene())


def test_the_time_for_which_a_delivery_waits_for_the_disk_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene() -> None:
        now, delivered = SECOND, list[tuple[Deliver, Nanos]]()
        store = Store(tmp_path / "s")
        writer = StoreWriter(0, store, lambda *late: delivered.append(late), lambda *_: None, Counters(), lambda: now)

        def full(_: object) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(store, "append", full)
            writer.write(Persist(DeliveredRecord(EVENT.id)))
            assert writer.hold_back(Deliver(SubscriptionId(0, 1), EVENT, 5 * MS, 10 * MS))
        assert not delivered
        now += HOUR
        writer.close()
        assert [waited_ns for _, waited_ns in delivered] == [HOUR]
        assert f"cannot write its store {tmp_path / 's'}: No space left on device" in caplog.text
        assert "can write its store again, after 3600.0 s" in caplog.text and "Traceback" not in caplog.text

    run(scene())


@pytest.mark.parametrize("kind", ["ttl", "deadline", "durable"])
def test_an_event_that_expires_while_it_waits_for_the_disk_is_not_delivered(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene() -> None:
        now, store, seen = SECOND, Store(tmp_path / "s"), Record()
        config = PeerConfig(peer=0, strategy="dcrd", persistence=True)
        peer = LivePeer(config, store=store, clock=lambda: now)
        missed = list[dict[str, int]]()
        peer.observe(seen)
        qos = Qos(deadline_ns=SECOND, expire=True) if kind == "deadline" else Qos()
        durable = DurableOptions("orders") if kind == "durable" else None
        peer.start(Started((), (LocalSubscription(1, "topic = 'x'", qos, durable),)))
        peer.serve(Told(missed))
        if durable is not None:
            peer.tell(Attached(1, 10))

        def full(_: object) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(store, "append", full)
            ttl_ns = None if kind == "deadline" else SECOND
            peer.publish(Publication({"topic": "x"}, b"short-lived", {}, ttl_ns))
            peer.publish(Publication({"topic": "x"}, b"long-lived", {}, HOUR if kind != "deadline" else None))
            now += SECOND // 2
            peer.publish(Publication({"topic": "x"}, b"newer", {}, ttl_ns))
            now += SECOND // 2 + 1
        await until(lambda: not peer.driver.store.held)
        lived = {"ttl": [b"long-lived", b"newer"], "deadline": [b"newer"], "durable": [b"long-lived", b"newer"]}[kind]
        assert [effect.event.payload for effect in seen.deliveries] == lived
        assert peer.counters.drops["expired"] == sum(counts["expired"] for counts in missed) == 3 - len(lived)
        peer.close()
        if durable is not None:
            again = Store(tmp_path / "s")
            expired = [r.positions for r in again.records if isinstance(r, ConfirmedRecord)]
            queued = [r.event.payload for r in again.records if isinstance(r, QueuedRecord)]
            assert not expired and queued == lived
            again.close()

    run(scene())


class Told:
    """An application in the peer's process that records what it misses."""

    def __init__(self, missed: list[dict[str, int]]) -> None:
        self._missed = missed

    def deliver(self, delivery: Deliver) -> None:
        """The observer records it."""

    def report_missed(self, effect: Missed) -> None:
        self._missed.append({str(reason): count for reason, count in effect.counts.items()})
