"""`write.format("wend")` and `writeStream.format("wend")`: rows become events, each once."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import DateType, LongType, StringType, StructType

from tests.drivers.live.key_ring import KeyRing, add_token
from tests.errors import raises
from tests.pipeline.log_peer_process import LogPeerProcess
from tests.spark import needs_java
from wend.pipeline.log_source.data_source import WendDataSource
from wend.pipeline.log_source.event_rows import EventRows
from wend.pipeline.log_source.event_writer import publish_rows
from wend.pipeline.log_source.options import peer_access

pytestmark = [needs_java, pytest.mark.spark]

COPIES = '[[logs]]\nname = "copies"\nfilter = "topic = \'copy\'"\nevents = 1000000\n'


@pytest.fixture
def peer(tmp_path: Path) -> Iterator[LogPeerProcess]:
    with LogPeerProcess(tmp_path, more=COPIES) as peer:
        yield peer


def batches(numbers: range) -> Iterator[Any]:
    for number in numbers:
        yield pa.RecordBatch.from_pylist([{"topic": "order", "number": number}])


def test_rows_become_events(spark: Any, peer: LogPeerProcess) -> None:
    rows = spark.sql(
        "select 'order' as topic, id as number, id % 2 = 0 as even, id / 8 as degrees, if(id = 3, 'ulm', null) as city,"
        " map('a', string(id)) as attributes, encode(string(id), 'utf-8') as payload, map('by', 'test') as headers"
        " from range(1, 6)"
    ).coalesce(1)
    rows.write.format("wend").option("peers", peer.url).mode("append").save()
    events = peer.events()
    assert [event.attributes for event in events] == [
        {"topic": "order", "number": number, "even": number % 2 == 0, "degrees": number / 8, "a": str(number)}
        | ({"city": "ulm"} if number == 3 else {})
        for number in range(1, 6)
    ]
    assert [(event.payload, event.headers["by"]) for event in events] == [(b"%d" % n, "test") for n in range(1, 6)]


def test_rows_with_the_same_content_are_different_events(spark: Any, peer: LogPeerProcess) -> None:
    spark.sql("select 'order' as topic, 1 as number from range(0, 20, 1, 2)").write.format("wend").options(
        peers=peer.url
    ).mode("append").save()
    assert len(peer.events()) == 20


def test_a_table_with_keys_that_is_written_twice_is_published_once(spark: Any, peer: LogPeerProcess) -> None:
    for _ in range(2):
        rows = spark.sql("select 'order' as topic, id as number, concat('order-', id) as key from range(0, 30, 1, 2)")
        rows.write.format("wend").options(peers=peer.url).mode("append").save()
    assert sorted(event.attributes["number"] for event in peer.events()) == list(range(30))


def test_a_partition_that_is_tried_again_is_published_once(peer: LogPeerProcess) -> None:
    """Also if the first try breaks, the peer restarts, and the rows come in another order."""
    access = peer_access({"peers": peer.url})

    def breaking() -> Iterator[Any]:
        yield from EventRows("q:1", 0).events(batches(range(700)))
        raise RuntimeError("the executor was lost")

    with pytest.raises(RuntimeError):
        publish_rows(access, breaking())
    assert len(peer.events()) == 512
    peer.restart()
    again = [*batches(range(700))][::-1]
    published = publish_rows(access, EventRows("q:1", 0).events(iter(again)))
    assert (published.events, published.repeated) == (700, 512)
    assert sorted(event.attributes["number"] for event in peer.events()) == list(range(700))
    other = publish_rows(access, EventRows("q:2", 0).events(batches(range(5))))
    assert (other.events, other.repeated) == (5, 0)


def copy_stream(spark: Any, peer: LogPeerProcess, folder: Path) -> None:
    """Copy `orders` to `copies`, as far as they are there now."""
    reader = spark.readStream.format("wend").schema("number long, payload binary")
    orders = reader.options(peers=peer.url, log="orders", startingOffsets="earliest", maxEventsPerTrigger=60).load()
    writer = orders.selectExpr("'copy' as topic", "number", "payload").writeStream.format("wend")
    query = writer.options(peers=peer.url, checkpointLocation=f"file://{folder}").trigger(availableNow=True).start()
    query.awaitTermination()
    assert query.exception() is None


def test_from_a_log_through_a_query_into_a_log_each_event_once(
    spark: Any, peer: LogPeerProcess, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The query is tried again from the middle of each of its last batches, as if it had been killed there."""
    checkpoint = tmp_path_factory.mktemp("checkpoint")
    peer.publish_numbers(range(200))
    copy_stream(spark, peer, checkpoint)
    for turn in range(2):
        last = max((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
        last.unlink()
        last.with_name(f".{last.name}.crc").unlink(missing_ok=True)
        peer.restart()
        peer.publish_numbers(range(200 + 50 * turn, 250 + 50 * turn))
        copy_stream(spark, peer, checkpoint)
    copies = peer.events("topic = 'copy'")
    assert [(copy.attributes["number"], copy.payload) for copy in copies] == [
        (number, f"payload {number}".encode()) for number in range(300)
    ]


@pytest.mark.parametrize(
    ("name", "kind", "said"),
    [
        ("payload", LongType(), "column payload is binary or string, got bigint"),
        ("day", DateType(), "an attribute such as day is string or boolean"),
    ],
)
def test_columns_that_no_event_has_are_refused(name: str, kind: Any, said: str) -> None:
    with raises("invalid-setting", said):
        WendDataSource({"peers": "wend://127.0.0.1:1"}).writer(StructType().add(name, kind), overwrite=False)


def test_other_mistakes_are_sentences() -> None:
    schema = StructType().add("topic", StringType())
    with raises("invalid-setting", "cannot be overwritten"):
        WendDataSource({"peers": "wend://127.0.0.1:1"}).writer(schema, overwrite=True)
    with raises("invalid-setting", "has no option log"):
        WendDataSource({"peers": "wend://127.0.0.1:1", "log": "orders"}).streamWriter(schema, overwrite=False)


def test_a_row_that_the_peer_refuses_is_named(peer: LogPeerProcess) -> None:
    access = peer_access({"peers": peer.url})
    rows = [{"topic": "order"}, {"topic": "x" * 50_000}]
    with raises("too-large", "row 2 of a partition: the attributes and headers of an event may have 48000 bytes"):
        publish_rows(access, EventRows("q", 0).events(iter([pa.RecordBatch.from_pylist(rows)])))


def test_a_peer_that_is_not_there_ends_the_write(peer: LogPeerProcess) -> None:
    peer.kill()
    access = peer_access({"peers": peer.url, "patience": "1ms"})
    with raises("unreachable", "cannot reach a peer at"):
        publish_rows(access, EventRows("q", 0).events(batches(range(1))))


def test_credentials_are_options(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("keys")
    ring = KeyRing(folder / "ring")
    site, alice = ring.enrol("site", 1), ring.enrol("alice")
    token, file = add_token(site, "bob"), folder / "bob.token"
    file.write_text(token)
    file.chmod(0o600)
    with LogPeerProcess(folder, more=f'keys = "{site}"\ntls = true\n') as peer:
        url = peer.url.replace("wend://", "wends://")
        access = {"peers": url, "keys": str(alice)}
        publish_rows(peer_access(access), EventRows("q", 0).events(batches(range(5))))
        schema = StructType().add("number", LongType())
        for given in (access, {"peers": url, "root": str(ring.root), "tokenFile": str(file)}):
            reader = WendDataSource(given | {"log": "orders"}).reader(schema)
            rows = [n for part in reader.partitions() for batch in reader.read(part) for n in batch[0].to_pylist()]
            assert rows == list(range(5))
            assert str(file) not in repr(reader) and token not in repr(vars(reader))
        with raises("untrusted"):
            WendDataSource({"peers": url, "root": str(ring.root), "token": token + "x", "log": "orders"}).reader(
                schema
            ).partitions()
