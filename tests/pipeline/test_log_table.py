"""`spark.read.format("wend")`: a range of a log as a table."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import DateType, DoubleType, LongType, StructType

from tests.drivers.live.log_events import crash, make_event, open_log
from tests.errors import raises
from tests.pipeline.log_peer_process import LogPeerProcess
from tests.ports import free_ports
from tests.spark import needs_java
from wend.drivers.live.client.log_ranges import LogRange
from wend.drivers.live.logs.record import next_epoch
from wend.model.errors import WendError
from wend.pipeline.log_source.data_source import WendDataSource
from wend.pipeline.log_source.ranges import split_range

pytestmark = [needs_java, pytest.mark.spark]

EVENTS = 2000
TYPED = "position long, time timestamp, number long, even boolean, city string, degrees double, payload binary"


@pytest.fixture(scope="module")
def peer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LogPeerProcess]:
    """A log of 2000 events, of which some have a city, a temperature and headers."""
    with LogPeerProcess(tmp_path_factory.mktemp("peer")) as peer:
        peer.publish(
            {"number": number, "even": number % 2 == 0, "city": ("bonn", "ulm")[number % 2], "degrees": number / 8}
            for number in range(1, 1001)
        )
        peer.publish(({"number": number} for number in range(1001, 2001)), {"by": "test"})
        yield peer


def table(spark: Any, peer: LogPeerProcess, schema: str | None = None, **options: Any) -> Any:
    reader = spark.read.format("wend").option("peers", peer.url).option("log", "orders").options(**options)
    return (reader if schema is None else reader.schema(schema)).load()


def numbers(frame: Any) -> list[int]:
    return sorted(int(row[0]) for row in frame.select("number").collect())


def test_a_table_has_the_events_as_a_client_gets_them(spark: Any, peer: LogPeerProcess) -> None:
    rows = table(spark, peer, maxEventsPerPartition=300).orderBy("position").collect()
    expected = peer.events()
    assert len(rows) == len(expected) == EVENTS
    for row, event in zip(rows, expected, strict=True):
        assert (row.position, row.id) == (event.position, str(event.id))
        assert (bytes(row.payload), row.headers) == (event.payload, event.headers)
        texts = {True: "true", False: "false"}
        assert row.attributes == {
            name: texts[value] if isinstance(value, bool) else str(value) for name, value in event.attributes.items()
        }
        assert abs(row.time.timestamp() - event.time) < 1e-5
        assert 0 <= row.age < 60 and row.late is None


def test_attributes_are_columns_of_the_schema_that_the_reader_names(spark: Any, peer: LogPeerProcess) -> None:
    rows = table(spark, peer, f"{TYPED}, absent int, topic double").orderBy("number").collect()
    assert [row.number for row in rows] == list(range(1, EVENTS + 1))
    first, last = rows[0], rows[-1]
    assert (first.even, first.city, first.degrees, first.absent, first.topic) == (False, "ulm", 0.125, None, None)
    assert (last.even, last.city, last.degrees) == (None, None, None)


def test_a_deadline_tells_what_was_late(spark: Any, peer: LogPeerProcess) -> None:
    assert {row.late for row in table(spark, peer, "late boolean", deadline="1h").collect()} == {False}
    late = table(spark, peer, "age double, late boolean", deadline="1ns").collect()
    assert all(row.late == (row.age > 1e-9) for row in late)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"startingOffsets": "earliest", "endingOffsets": "latest"}, range(1, 2001)),
        ({"startingOffsets": 500, "endingOffsets": 503}, range(500, 503)),
        ({"startingTime": "1h"}, range(1, 2001)),
        ({"startingTime": "2001-01-01T00:00:00Z", "endingTime": "2002-01-01T00:00:00Z"}, range(0)),
        ({"filter": "number <= 5 or number > 1998"}, [1, 2, 3, 4, 5, 1999, 2000]),
        ({"filter": "number < 4", "startingOffsets": 3, "maxEventsPerPartition": 7}, [3]),
    ],
)
def test_ranges(spark: Any, peer: LogPeerProcess, options: dict[str, Any], expected: Any) -> None:
    assert numbers(table(spark, peer, TYPED, **options)) == list(expected)


@pytest.fixture
def pushing(spark: Any) -> Iterator[None]:
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    yield
    spark.conf.unset("spark.sql.python.filterPushdown.enabled")


@pytest.mark.parametrize(
    ("condition", "expected", "sent"),
    [
        ("number in (3, 5) and even is not null", [3, 5], 2),
        ("city = 'ulm' and degrees < 1.0", [1, 3, 5, 7], 4),
        ("city like 'bo%' and not number = 2 and number <= 6", [4, 6], 2),
        ("even = true and number >= 996 and number < 1500", [996, 998, 1000], 3),
        ("length(city) = 3 and number < 5", [1, 3], 4),  # a length stays with Spark
        ("city is null and number < 1002", [1001], 1001),  # so does a null
        ("time >= timestamp '2001-01-01 00:00:00' and number = 1", [1], 1),
    ],
)
@pytest.mark.usefixtures("pushing")
def test_the_peer_sends_only_what_a_filter_lets_pass(
    spark: Any, peer: LogPeerProcess, condition: str, expected: list[int], sent: int
) -> None:
    before = peer.status().read
    assert numbers(table(spark, peer, TYPED).where(condition)) == expected
    assert peer.status().read - before == sent


def test_without_the_setting_spark_filters(spark: Any, peer: LogPeerProcess) -> None:
    before = peer.status().read
    assert numbers(table(spark, peer, TYPED).where("number = 7")) == [7]
    assert peer.status().read - before == EVENTS


@pytest.mark.usefixtures("pushing")
def test_bounds_of_time_and_position_are_exact(spark: Any, peer: LogPeerProcess) -> None:
    every = {each.position: each.time for each in table(spark, peer, TYPED).collect()}
    pivot = every[1000]
    moment = f"timestamp_micros({round(pivot.timestamp() * 1e6)})"
    later = table(spark, peer, TYPED).where(f"time > {moment}")
    rows = later.unionAll(table(spark, peer, TYPED).where(f"time <= {moment} and position >= 900"))
    assert sorted(row.position for row in rows.collect()) == list(range(900, 2001))
    assert all(every[row.position] > pivot for row in later.collect())


MISTAKES: list[tuple[dict[str, str], str]] = [
    ({"log": "trades"}, "this peer has no log 'trades'"),
    ({"log": ""}, 'format("wend") needs the option log: the name of a log'),
    ({"peers": "http://x"}, "cannot read 'http://x' as a peer"),
    ({"startOffsets": "earliest"}, 'format("wend") has no option startoffsets: did you mean startingOffsets?'),
    ({"startingOffsets": "first"}, "option startingOffsets is earliest, latest or a position, got 'first'"),
    ({"startingOffsets": "5000"}, "position 5000 is not in the log 'orders' yet: its next one is 2001"),
    ({"startingTime": "soon"}, "option startingTime is a time such as"),
    ({"startingTime": "1h", "startingOffsets": "1"}, "options startingOffsets and startingTime both say where"),
    ({"maxEventsPerTrigger": "5"}, "option maxEventsPerTrigger: only a stream has triggers"),
    ({"maxEventsPerPartition": "0"}, "option maxEventsPerPartition is a number of events from 1, got '0'"),
    ({"failOnDataLoss": "maybe"}, "option failOnDataLoss is true or false, got 'maybe'"),
    ({"filter": "number ="}, "cannot read the filter"),
    ({"token": "secret"}, "token is for wends://, not for wend://"),
]


@pytest.mark.parametrize(("options", "said"), MISTAKES)
def test_a_mistake_is_a_sentence(peer: LogPeerProcess, options: dict[str, str], said: str) -> None:
    given = CaseInsensitiveDict({"peers": peer.url, "log": "orders"} | options)
    with pytest.raises(WendError) as error:
        WendDataSource(given).reader(StructType().add("number", LongType())).partitions()
    assert said in str(error.value) and "secret" not in str(error.value)
    assert str(error.value).count("\n") == ("filter" in options) * 2  # a mark below the mistake


def test_spark_prints_the_sentence(spark: Any, peer: LogPeerProcess) -> None:
    with pytest.raises(Exception, match="wend") as error:
        table(spark, peer, log="trades").collect()
    assert "this peer has no log 'trades'" in str(error.value)


@pytest.mark.parametrize(
    ("name", "kind", "said"),
    [
        ("time", DoubleType(), "column time of a log is timestamp, got double"),
        ("when", DateType(), "column when is date, but an attribute is one of"),
    ],
)
def test_a_schema_that_no_event_fits_is_refused(peer: LogPeerProcess, name: str, kind: Any, said: str) -> None:
    with raises("invalid-setting", said):
        WendDataSource({"peers": peer.url, "log": "orders"}).reader(StructType().add(name, kind))


def test_a_peer_that_is_not_there_is_a_sentence(spark: Any) -> None:
    url = f"wend://127.0.0.1:{free_ports(1)[0]}"
    with pytest.raises(Exception, match="cannot reach a peer") as error:
        spark.read.format("wend").options(peers=url, log="orders").load().collect()
    assert f"cannot reach a peer at {url}" in str(error.value)


def test_another_peer_is_asked_if_one_is_away_or_lacks_the_log(
    spark: Any, peer: LogPeerProcess, tmp_path: Path
) -> None:
    away = f"127.0.0.1:{free_ports(1)[0]}"
    with LogPeerProcess(tmp_path) as other:
        text = other.file.read_text().replace('"orders"', '"others"')
        other.file.write_text(text)
        other.restart()
        urls = f"wend://{away},{other.url.removeprefix('wend://')},{peer.url.removeprefix('wend://')}"
        found = spark.read.format("wend").options(peers=urls, log="orders").schema("number long").load()
        assert found.count() == EVENTS


def test_retention_that_removed_the_beginning_is_said_or_counted(spark: Any, tmp_path: Path) -> None:
    with LogPeerProcess(tmp_path, "events = 160") as peer:
        peer.publish_numbers(range(1, 301))
        first = peer.status().first
        assert first > 100
        assert numbers(table(spark, peer, TYPED)) == list(range(first, 301))
        with pytest.raises(Exception, match="has lost") as error:
            table(spark, peer, TYPED, startingOffsets=11).collect()
        assert f"the log 'orders' has lost {first - 11} events before position {first}" in str(error.value)
        rest = table(spark, peer, TYPED, startingOffsets=11, failOnDataLoss="false", maxEventsPerPartition=20)
        assert numbers(rest) == list(range(first, 301))


def test_positions_of_two_epochs_are_one_range() -> None:
    later = next_epoch(500)
    assert split_range(LogRange("orders", "id", 400, later), 10)[0].end == later
    parts = split_range(LogRange("orders", "id", 400, 500), 30)
    assert [part.begin for part in parts] == [400, 425, 450, 475]
    assert [part.end for part in parts] == [425, 450, 475, 500]
    assert split_range(LogRange("orders", "id", 400, 400), 30) == []


def test_a_log_that_lost_its_end_is_read_with_both_epochs(spark: Any, tmp_path: Path) -> None:
    peer = LogPeerProcess(tmp_path)
    log = open_log(tmp_path / "logs-1" / "orders")
    for number in range(1, 31):
        log.append(make_event(number))
    crash(log)
    segment = next((tmp_path / "logs-1" / "orders").glob("*.segment"))
    segment.write_bytes(segment.read_bytes()[:-20])
    with peer:
        peer.publish_numbers(range(100, 110))
        rows = table(spark, peer, "position long, number long").orderBy("position").collect()
    assert [row.number for row in rows] == [*range(1, 30), *range(100, 110)]
    assert rows[-1].position > 2**40


def test_no_plan_prints_credentials(spark: Any, peer: LogPeerProcess, capsys: pytest.CaptureFixture[str]) -> None:
    frame = spark.read.format("wend").options(peers=peer.url.replace("wend", "wends"), log="orders")
    frame = frame.option("token", "tok-secret").option("keys", "/no/such/folder").load()
    frame.explain("extended")
    frame.createOrReplaceTempView("orders")
    plan = spark.sql("explain extended select * from orders").collect()[0][0]
    assert "tok-secret" not in capsys.readouterr().out + plan
    assert "Relation" in plan


def test_times_are_those_of_the_log(spark: Any, peer: LogPeerProcess) -> None:
    newest = table(spark, peer).agg({"time": "max"}).collect()[0][0]
    assert abs(newest.timestamp() - peer.status().newest_ns / 1e9) < 1e-5
    assert newest.astimezone(UTC) < datetime.now(UTC)
