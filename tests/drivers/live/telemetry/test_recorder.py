"""What a recorder writes about a peer, hour by hour of a clock that the test moves."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.drivers.live.net import run
from tests.drivers.live.telemetry.tables import rows
from wend.drivers.live.peer import LivePeer
from wend.drivers.live.telemetry.recorder import TelemetryOptions, TelemetryRecorder
from wend.model.events import Event, EventId, Qos, SubscriptionId
from wend.model.publication import Publication
from wend.model.telemetry import KEY, TABLES, is_sampled, sample_bound
from wend.model.units import MS, SECOND
from wend.protocol.config import PeerConfig
from wend.protocol.messages import TX_SHIFT, Data
from wend.protocol.ports import (
    Advertised,
    Deliver,
    Drop,
    LocalSubscription,
    Neighbour,
    Notice,
    Refuse,
    Started,
    Subscribed,
    Unsubscribed,
)

OFFSET_NS = 10**18
KEYS = {name for name, _ in KEY}


class Clock:
    def __init__(self) -> None:
        self.now = SECOND

    def __call__(self) -> int:
        return self.now


class Scene:
    """Peer 0 with the neighbours 1 and 2, and its recorder."""

    def __init__(self, folder: Path, clock: Clock, **options: Any) -> None:
        self.clock = clock
        self.folder = folder
        self.peer = LivePeer(PeerConfig(peer=0, incarnation=7, strategy="adaptive"), clock=clock)
        for neighbour in (1, 2):
            self.peer.add_peer(neighbour, ("127.0.0.1", 9))
        made = TelemetryOptions(folder=folder, **{"sample": 1.0, **options})
        self.recorder = TelemetryRecorder(
            self.peer.peer, self.peer.counters, made, clock=clock, offset_ns=OFFSET_NS, about={"place": "here"}
        )
        self.peer.observe(self.recorder)

    def start(self, **started: Any) -> None:
        neighbours = (Neighbour(1, 20 * MS), Neighbour(2, 30 * MS))
        self.peer.start(Started(neighbours=neighbours, **started))
        self.recorder.begin()

    def sample(self, after_ns: int = SECOND) -> None:
        self.clock.now += after_ns
        self.recorder.take_sample()

    def end(self) -> None:
        self.recorder.end()
        assert self.recorder.writer.join(60)
        self.peer.close()

    def table(self, name: str) -> list[dict[str, Any]]:
        """The rows without their keys, with times as the clock of the test has them."""
        found = []
        for row in rows(self.folder, name):
            assert (row["peer"], row["incarnation"]) == (0, 7)
            times = {key: row[key] - OFFSET_NS for key in ("time_ns", "heard_ns") if key in row}
            found.append({**{key: value for key, value in row.items() if key not in KEYS}, **times})
        return found


@pytest.fixture
def clock() -> Iterator[Clock]:
    yield Clock()


def test_events_are_written_where_they_are_published_arrive_and_are_delivered(tmp_path: Path, clock: Clock) -> None:
    async def scene() -> None:
        here = Scene(tmp_path, clock)
        here.start(subscriptions=(LocalSubscription(3, "topic = 'a'", Qos(deadline_ns=50 * MS)),))
        receipt = here.peer.publish(Publication({"topic": "a"}, b"12345"))
        event = Event(EventId(1, 4, 9), {"topic": "a"}, b"123")
        data = Data((4 << TX_SHIFT) + 1, event, 15 * MS, (0,), (1,))
        here.clock.now += SECOND
        for _ in range(2):  # its ACK is lost, and it comes again
            here.peer.driver.receive_all(1, [data], 2 * MS)
        here.end()
        assert here.table("publications") == [
            {
                "time_ns": SECOND, "publisher": 0, "publisher_incarnation": 7, "sequence": receipt.id.sequence,
                "topic": "a", "size_bytes": 5, "expected": 0,
            }
        ], "only a subscriber of its own wants it"  # fmt: skip
        of = {"publisher": 1, "publisher_incarnation": 4, "sequence": 9}
        came = {"time_ns": 2 * SECOND, "age_ns": 37 * MS}
        assert here.table("hops") == [{**of, **came, "sender": 1, "link_ns": 22 * MS, "waited_ns": 2 * MS}]
        theirs = {**of, **came, "subscription": 3, "deadline_ns": 50 * MS, "size_bytes": 3}
        assert [row for row in here.table("deliveries") if row["publisher"] == 1] == [theirs]
        assert [row["age_ns"] for row in here.table("deliveries") if row["publisher"] == 0] == [0]

    run(scene())


def test_repeated_and_retained_deliveries_are_not_written(tmp_path: Path, clock: Clock) -> None:
    async def scene() -> None:
        here = Scene(tmp_path, clock)
        here.start()
        event = Event(EventId(1, 4, 9), {})
        here.peer.perform(
            [
                Deliver(SubscriptionId(0, 1), event, 5, None, again=True),
                Deliver(SubscriptionId(0, 1), event, 5, None, retained=True),
                Deliver(SubscriptionId(0, 1), event, 5, None),
            ]
        )
        here.end()
        assert [(row["age_ns"], row["deadline_ns"]) for row in here.table("deliveries")] == [(5, -1)]

    run(scene())


def test_only_sampled_events_are_written(tmp_path: Path, clock: Clock) -> None:
    async def scene() -> None:
        here = Scene(tmp_path, clock, sample=0.25)
        here.start()
        ids = [EventId(1, 4, number) for number in range(400)]
        here.peer.perform([Deliver(SubscriptionId(0, 1), Event(id_, {}), 5, None) for id_ in ids])
        here.end()
        wanted = [id_.sequence for id_ in ids if is_sampled(id_, sample_bound(0.25))]
        assert [row["sequence"] for row in here.table("deliveries")] == wanted
        assert 60 < len(wanted) < 140

    run(scene())


def test_subscriptions_and_advertisements_are_written_as_they_come_and_go(tmp_path: Path, clock: Clock) -> None:
    async def scene() -> None:
        here = Scene(tmp_path, clock)
        here.start(subscriptions=(LocalSubscription(1, "x > 1", Qos(factor=3.0)),), advertisements=("topic = 'a'",))
        here.clock.now += 1
        here.peer.ask(Subscribed(LocalSubscription(2, "x > 2", Qos(deadline_ns=MS))))
        here.peer.ask(Advertised("topic = 'b'"))
        here.clock.now += 1
        here.peer.ask(Unsubscribed(2))
        here.end()
        order = ("time_ns", "kind", "change", "number", "filter", "deadline_ns", "factor")
        assert [tuple(row[name] for name in order) for row in here.table("interest")] == [
            (SECOND, "subscription", "begin", 1, "x > 1", -1, 3.0),
            (SECOND, "advertisement", "begin", -1, "topic = 'a'", -1, 0.0),
            (SECOND + 1, "subscription", "begin", 2, "x > 2", MS, 0.0),
            (SECOND + 1, "advertisement", "begin", -1, "topic = 'b'", -1, 0.0),
            (SECOND + 2, "subscription", "end", 2, "", -1, 0.0),
        ]

    run(scene())


def test_changes_of_a_link_name_the_last_time_that_its_neighbour_was_heard(tmp_path: Path, clock: Clock) -> None:
    async def scene() -> None:
        here = Scene(tmp_path, clock)
        here.start()
        link = here.peer.peer.links[1]
        link.heard_ns, link.silence_ns = SECOND + 5, 80 * MS
        here.clock.now += 100 * MS
        here.peer.perform([Notice("link-down", 1)])
        link.heard_ns = here.clock.now = SECOND + 900 * MS
        here.peer.perform([Notice("link-up", 1), Notice("reroute", 1)])
        here.peer.unlink(2)
        here.end()
        order = ("time_ns", "neighbour", "state", "heard_ns", "detection_ns", "delay_ns")
        assert link.delay_ns > 0
        assert [tuple(row[name] for name in order) for row in here.table("changes")] == [
            (SECOND + 100 * MS, 1, "down", SECOND + 5, 80 * MS, link.delay_ns),
            (SECOND + 900 * MS, 1, "up", SECOND + 5, 80 * MS, link.delay_ns),
            (SECOND + 900 * MS, 2, "unlinked", SECOND + 900 * MS, 0, 0),
        ]

    run(scene())


def test_links_and_counters_are_written_once_a_period_by_their_differences(tmp_path: Path, clock: Clock) -> None:
    async def scene() -> None:
        here = Scene(tmp_path, clock)
        here.start()
        here.sample()
        link = here.peer.peer.links[1]
        link.transmitted, link.answers = link.transmitted + 5, link.answers + 3
        link.unanswered.timed_out += 2
        here.peer.perform([Refuse(1, "not-neighbour"), Drop(EventId(1, 1, 1), (4, 5), "no-route")])
        here.sample()
        link.unanswered.timed_out -= 1  # an outage explains one of them
        here.sample()
        link.unanswered.timed_out += 2
        here.sample()
        here.end()
        found = [row for row in here.table("links") if row["neighbour"] == 1][1:4]
        assert [(row["sent"], row["acknowledged"], row["lost"]) for row in found] == [(5, 3, 2), (0, 0, 0), (0, 0, 1)]
        assert {(row["period_ns"], row["delay_ns"], row["state"]) for row in found} == {(SECOND, 20 * MS, "unknown")}
        counts = [tuple(row.values()) for row in here.table("counts") if row["time_ns"] == 3 * SECOND]
        assert counts == [(3 * SECOND, "drop", "no-route", 2), (3 * SECOND, "refusal", "not-neighbour", 1)]
        beats = here.table("heartbeats")
        assert [row["time_ns"] for row in beats] == [2 * SECOND, 3 * SECOND, 4 * SECOND, 5 * SECOND, 5 * SECOND]
        assert {row["sample"] for row in beats} == {1.0}

    run(scene())


def test_an_event_with_a_number_that_no_row_can_hold_is_counted_and_harms_no_other_row(
    tmp_path: Path, clock: Clock
) -> None:
    async def scene() -> None:
        here = Scene(tmp_path, clock)
        here.start()
        for sequence in (1, 2**70, 3):
            here.peer.perform([Deliver(SubscriptionId(0, 1), Event(EventId(1, 1, sequence), {}), 5, None)])
        here.end()
        assert [row["sequence"] for row in here.table("deliveries")] == [1, 3]
        assert here.peer.counters.failed == {"tell-observer": 1}

    run(scene())


def test_segments_close_by_age_and_by_size(tmp_path: Path, clock: Clock) -> None:
    async def scene() -> None:
        here = Scene(tmp_path, clock, segment_age_ns=10 * SECOND, segment_bytes=8 * 8 * 5)
        here.start()
        for number in range(12):
            here.peer.perform([Deliver(SubscriptionId(0, 1), Event(EventId(1, 1, number), {}), 5, None)])
        for _ in range(15):
            here.sample()
        here.end()
        found = rows(tmp_path, "deliveries")
        per_segment = [
            sum(row["segment"] == number for row in found) for number in sorted({r["segment"] for r in found})
        ]
        assert per_segment == [5, 5, 2]
        assert [row["sequence"] for row in found] == list(range(12))

    run(scene())


def test_the_manifest_and_every_segment_say_who_wrote_them(tmp_path: Path, clock: Clock) -> None:
    from pyarrow import parquet

    async def scene() -> None:
        here = Scene(tmp_path, clock)
        here.start()
        here.end()

    run(scene())
    told = json.loads((tmp_path / "manifest-0-7.json").read_text())
    assert (told["peer"], told["incarnation"], told["schema"], told["strategy"]) == (0, 7, 1, "adaptive")
    assert (told["place"], told["unwritten"], told["removed"]) == ("here", 0, 0)
    found = sorted(tmp_path.glob("*.parquet"))
    assert told["segments"] == len(found) > 0
    for path in found:
        metadata = parquet.read_schema(path).metadata
        assert metadata[b"wend.peer"], metadata[b"wend.schema"] == (b"0", b"1")
    assert not list(tmp_path.glob(".*"))


def test_columns_are_those_of_the_contract(tmp_path: Path, clock: Clock) -> None:
    async def scene() -> None:
        here = Scene(tmp_path, clock)
        here.start(subscriptions=(LocalSubscription(1, "true"),))
        here.peer.publish(Publication({"topic": "a"}))
        here.peer.driver.receive_all(1, [Data(4 << TX_SHIFT, Event(EventId(1, 4, 9), {}), 0, (0,), (1,))], 0)
        here.peer.perform([Notice("link-down", 1)])
        here.sample()
        here.end()

    run(scene())
    for table, columns in TABLES.items():
        found = rows(tmp_path, table)
        assert found, table
        assert list(found[0]) == [name for name, _ in (*KEY, *columns)]


def test_control_and_packets_that_an_outage_explains_are_not_lost(tmp_path: Path, clock: Clock) -> None:
    async def scene() -> None:
        here = Scene(tmp_path, clock)
        here.start()
        link = here.peer.peer.links[1]
        link.on_give_up(is_data=False)
        assert link.unanswered.timed_out == 0, (
            "a neighbour that does not run yet does not answer, and nobody sends it data"
        )
        link.clear_suspicion()
        link.on_timeout()
        link.on_give_up()
        assert link.unanswered.timed_out == 2
        link.declare_down()
        link.on_give_up()
        link.on_give_up(is_data=False)
        assert link.unanswered.timed_out == 1, "the outage explains the packet that was given up"
        link.restore()
        link.clear_suspicion()
        link.on_give_up()
        link.clear_suspicion()
        link.declare_down()
        assert link.unanswered.timed_out == 2, "the neighbour was heard since, so that packet was lost"
        here.end()

    run(scene())
