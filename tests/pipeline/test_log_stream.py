"""`spark.readStream.format("wend")`: a log that a query follows."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from tests.drivers.live.log_events import make_event, open_log
from tests.pipeline.log_peer_process import LogPeerProcess
from tests.spark import needs_java

pytestmark = [needs_java, pytest.mark.spark]

SCHEMA = "position long, id string, number long, payload binary"


@pytest.fixture
def peer(tmp_path: Path) -> Iterator[LogPeerProcess]:
    with LogPeerProcess(tmp_path) as peer:
        yield peer


class Copy:
    """A query that copies a log to a folder of Parquet files."""

    def __init__(self, spark: Any, peer: LogPeerProcess, folder: Path, **options: Any) -> None:
        self._spark = spark
        self._folder = folder
        self.options = {"peers": peer.url, "log": "orders", "startingOffsets": "earliest", **options}

    def start(self, **trigger: Any) -> Any:
        reader = self._spark.readStream.format("wend").options(**self.options).schema(SCHEMA)
        writer = reader.load().writeStream.format("parquet").option("path", f"file://{self.files}")
        return writer.option("checkpointLocation", f"file://{self.checkpoint}").trigger(**trigger).start()

    @property
    def files(self) -> str:
        return str(self._folder / "table")

    @property
    def checkpoint(self) -> str:
        return str(self._folder / "checkpoint")

    def run(self) -> list[int]:
        """Read what is available now. Returns the rows of each batch."""
        query = self.start(availableNow=True)
        query.awaitTermination()
        assert query.exception() is None
        return [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]

    def rows(self) -> list[Any]:
        table: list[Any] = self._spark.read.schema(SCHEMA).parquet(f"file://{self.files}").orderBy("position").collect()
        return table


@pytest.fixture
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for tables: Spark's streams take no path with patterns."""
    return tmp_path_factory.mktemp("stream")


def same(copy: Copy, peer: LogPeerProcess) -> bool:
    """Whether the table has each event of the log once, and in order."""
    expected = [(each.position, str(each.id), each.attributes["number"], each.payload) for each in peer.events()]
    return [(row.position, row.id, row.number, bytes(row.payload)) for row in copy.rows()] == expected


def test_what_is_available_now_is_read_in_batches_and_ends(spark: Any, peer: LogPeerProcess, plain: Path) -> None:
    copy = Copy(spark, peer, plain, maxEventsPerTrigger=400, maxEventsPerPartition=150)
    peer.publish_numbers(range(1000))
    assert copy.run() == [400, 400, 200]
    assert same(copy, peer)
    assert copy.run() == []
    peer.publish_numbers(range(1000, 1100))
    assert copy.run() == [100]
    assert same(copy, peer)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_query_and_its_peer_that_are_stopped_again_and_again(spark: Any, peer: LogPeerProcess, plain: Path) -> None:
    """The query is stopped in the middle of a batch, the peer killed while the query runs. What Spark may do twice, it
    does: the last batches are removed from the checkpoint as if they had not been committed."""
    copy = Copy(spark, peer, plain, maxEventsPerTrigger=70, patience="120s")
    for turn in range(4):
        peer.publish_numbers(range(turn * 300, turn * 300 + 150))
        query = copy.start(processingTime="0 seconds")
        peer.restart()
        peer.publish_numbers(range(turn * 300 + 150, turn * 300 + 300))
        if turn % 2:
            query.processAllAvailable()
            assert same(copy, peer)
        query.stop()
        commits = sorted(Path(copy.checkpoint, "commits").glob("[0-9]*"), key=lambda path: int(path.name))
        if commits:
            commits[-1].unlink()
            commits[-1].with_name(f".{commits[-1].name}.crc").unlink(missing_ok=True)
    copy.run()
    assert same(copy, peer)
    assert [row.number for row in copy.rows()] == list(range(1200))


def test_where_a_stream_begins(spark: Any, peer: LogPeerProcess, plain: Path) -> None:
    peer.publish_numbers(range(10))
    for name, options, expected in (
        ("latest", {"startingOffsets": "latest"}, []),
        ("position", {"startingOffsets": 4}, range(3, 10)),
        ("time", {"startingTime": "1h", "startingOffsets": None}, range(10)),
    ):
        copy = Copy(spark, peer, plain / name)
        copy.options = {key: value for key, value in (copy.options | options).items() if value is not None}
        copy.run()
        rows = copy.rows() if list(Path(copy.files).glob("*.parquet")) else []
        assert [row.number for row in rows] == list(expected)
        peer.publish_numbers(range(0))


def test_a_latest_stream_gets_what_comes_after_its_first_start(spark: Any, peer: LogPeerProcess, plain: Path) -> None:
    peer.publish_numbers(range(10))
    copy = Copy(spark, peer, plain, startingOffsets="latest")
    assert copy.run() == []
    peer.publish_numbers(range(10, 15))
    assert copy.run() == [5]
    assert [row.number for row in copy.rows()] == list(range(10, 15))


def test_a_filter_is_applied_by_the_peer(spark: Any, peer: LogPeerProcess, plain: Path) -> None:
    peer.publish_numbers(range(100))
    copy = Copy(spark, peer, plain, filter="even = true and number >= 50", maxEventsPerTrigger=30)
    assert sum(copy.run()) == 25
    assert [row.number for row in copy.rows()] == list(range(50, 100, 2))
    assert peer.status().read == 25


def fill(peer: LogPeerProcess, numbers: range) -> None:
    """Publish more than the log keeps."""
    peer.publish_numbers(numbers)


def test_events_that_retention_removed_end_a_query_with_a_sentence(spark: Any, tmp_path: Path, plain: Path) -> None:
    with LogPeerProcess(tmp_path, "events = 160") as peer:
        copy = Copy(spark, peer, plain)
        peer.publish_numbers(range(1, 101))
        assert copy.run() == [100]
        peer.publish_numbers(range(101, 501))
        first = peer.status().first
        query = copy.start(availableNow=True)
        with pytest.raises(Exception, match="has lost") as error:
            query.awaitTermination()
        assert f"the log 'orders' has lost {first - 101} events before position {first}; to read on" in str(error.value)
        copy.options["failOnDataLoss"] = "false"
        assert copy.run() == [501 - first]
        assert [row.number for row in copy.rows()] == [*range(1, 101), *range(first, 501)]


def test_another_log_of_the_same_name_ends_a_query_with_a_sentence(spark: Any, tmp_path: Path, plain: Path) -> None:
    with LogPeerProcess(tmp_path) as peer:
        copy = Copy(spark, peer, plain)
        peer.publish_numbers(range(20))
        assert copy.run() == [20]
        peer.kill()
        (tmp_path / "logs-1" / "orders").rename(tmp_path / "lost")
        peer.start()
        peer.publish_numbers(range(20, 25))
        query = copy.start(availableNow=True)
        with pytest.raises(Exception, match="is not the one") as error:
            query.awaitTermination()
        assert "the log 'orders' is not the one that was read before" in str(error.value)
        copy.options["failOnDataLoss"] = "false"
        assert copy.run() == [5]
        assert [row.number for row in copy.rows()] == [0, 20, 1, 21, 2, 22, 3, 23, 4, 24, *range(5, 20)]


def test_a_stream_has_no_end(spark: Any, peer: LogPeerProcess, plain: Path) -> None:
    with pytest.raises(Exception, match="wend") as error:
        Copy(spark, peer, plain, endingOffsets="latest").run()
    assert "option endingOffsets: a stream has no end" in str(error.value)


def test_offsets_go_on_where_a_log_lost_its_end(tmp_path: Path) -> None:
    """A limit that lies beyond the last event of the old epoch does not hide those of the new one."""
    from pyspark.sql.types import LongType, StructType

    from tests.drivers.live.log_events import crash
    from wend.pipeline.log_source.options import read_options
    from wend.pipeline.log_source.stream_reader import LogStreamReader

    peer = LogPeerProcess(tmp_path)
    log = open_log(tmp_path / "logs-1" / "orders")
    for number in range(1, 31):
        log.append(make_event(number))
    crash(log)
    segment = next((tmp_path / "logs-1" / "orders").glob("*.segment"))
    segment.write_bytes(segment.read_bytes()[:-20])
    with peer:
        peer.publish_numbers(range(100, 110))
        options = read_options({"peers": peer.url, "log": "orders", "startingOffsets": "earliest"}, is_stream=True)
        reader = LogStreamReader(options, StructType().add("number", LongType()))
        offset, numbers = reader.initialOffset(), []
        while (later := reader.latestOffset(offset, ReadMaxRows(4))) != offset:
            for part in reader.partitions(offset, later):
                numbers += [each for batch in reader.read(part) for each in batch.column(0).to_pylist()]
            offset = later
        reader.stop()
    assert numbers == [*range(1, 30), *range(100, 110)]


def test_all_that_is_available_ignores_the_limit_of_the_options(peer: LogPeerProcess) -> None:
    from pyspark.sql.types import LongType, StructType

    from wend.pipeline.log_source.options import read_options
    from wend.pipeline.log_source.stream_reader import LogStreamReader

    peer.publish_numbers(range(20))
    given = {"peers": peer.url, "log": "orders", "startingOffsets": "earliest", "maxEventsPerTrigger": "3"}
    reader = LogStreamReader(read_options(given, is_stream=True), StructType().add("number", LongType()))
    start = reader.initialOffset()
    assert reader.getDefaultReadLimit() == ReadMaxRows(3)
    (log_id,) = start
    assert reader.latestOffset(start, ReadAllAvailable()) == {log_id: 21}
    assert reader.latestOffset(start, ReadMaxRows(3)) == {log_id: 4}
    reader.prepareForTriggerAvailableNow()
    peer.publish_numbers(range(20, 30))
    assert reader.latestOffset(start, ReadAllAvailable()) == {log_id: 21}
    assert reader.latestOffset({log_id: 21}, ReadAllAvailable()) == {log_id: 21}
    reader.commit({log_id: 21})
    assert peer.status().events == 30
    reader.stop()
