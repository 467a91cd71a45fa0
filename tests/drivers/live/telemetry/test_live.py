"""Telemetry of peers that run: they write about the same events, over open and sealed links, and outlive a bad disk."""

import asyncio
import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import wend
from tests.drivers.live.key_ring import KeyRing
from tests.drivers.live.net import run, until
from tests.drivers.live.processes import Process
from tests.drivers.live.telemetry.tables import rows
from tests.errors import raises
from tests.ports import free_ports
from wend.drivers.live.addressing.addresses import format_address
from wend.drivers.live.config import PeerFile, load_peer_file
from wend.drivers.live.process import PeerProcess
from wend.drivers.live.telemetry import segments
from wend.model.events import EventId
from wend.model.telemetry import is_sampled, sample_bound

SAMPLE = 0.3
EVENTS = 200


def service(number: int, ports: list[int], folder: Path, **settings: Any) -> PeerProcess:
    other = 3 - number
    neighbours = [{"id": other, "address": f"127.0.0.1:{ports[other - 1]}", "delay": "1ms"}]
    places = {"listen": f"127.0.0.1:{ports[number - 1]}", "clients": "127.0.0.1:0"}
    telemetry = {"telemetry": str(folder / f"peer-{number}"), "telemetry_sample": SAMPLE, "strategy": "adaptive"}
    return PeerProcess(PeerFile(id=number, neighbours=neighbours, **places, **telemetry, **settings))


def url(peer: PeerProcess) -> str:
    return f"wend://{format_address(peer.listener.address)}"


@pytest.mark.parametrize("sealed", [False, True])
def test_two_peers_write_about_the_same_events(tmp_path: Path, sealed: bool) -> None:
    async def scene() -> None:
        ports = free_ports(2)
        ring = KeyRing(tmp_path / "keys")
        keys = {n: {"keys": str(ring.enrol(f"site-{n}", peer=n))} if sealed else {} for n in (1, 2)}
        peers = [service(number, ports, tmp_path, **keys[number]) for number in (1, 2)]
        for peer in peers:
            await peer.start()
        async with (
            wend.connect(url(peers[0])) as publisher,
            wend.connect(url(peers[1])) as subscriber,
            subscriber.subscribe("x >= 0", deadline=30.0) as events,
        ):
            while not (await publisher.publish({"x": 0})).targets:
                await asyncio.sleep(0.01)
            for number in range(EVENTS):
                await publisher.publish({"x": number + 1, "topic": "numbers"}, bytes(number))
            async for event in events:
                if event.attributes["x"] == EVENTS:
                    break
        for peer in peers:
            await peer.stop()
        assert (peers[0].peer.sealed is not None) == sealed

    run(scene())
    here, there = tmp_path / "peer-1", tmp_path / "peer-2"
    published = [row for row in rows(here, "publications") if row["topic"] == "numbers"]
    ids = [EventId(row["publisher"], row["publisher_incarnation"], row["sequence"]) for row in published]
    assert ids and all(is_sampled(id_, sample_bound(SAMPLE)) for id_ in ids)
    assert 0.15 * EVENTS < len(ids) < 0.5 * EVENTS
    names = ("publisher", "publisher_incarnation", "sequence")
    arrived = [EventId(*(row[name] for name in names)) for row in rows(there, "hops")]
    delivered = [EventId(*(row[name] for name in names)) for row in rows(there, "deliveries")]
    assert set(ids) <= set(arrived) and set(ids) <= set(delivered)
    assert len(set(arrived)) == len(arrived) and len(set(delivered)) == len(delivered)
    assert all(row["sender"] == 1 and 0 < row["link_ns"] <= row["age_ns"] for row in rows(there, "hops"))
    sizes = {row["sequence"]: row["size_bytes"] for row in published}
    assert all(sizes.get(r["sequence"], r["size_bytes"]) == r["size_bytes"] for r in rows(there, "deliveries"))
    assert {row["deadline_ns"] for row in rows(there, "deliveries")} == {30 * 10**9}
    assert [(row["kind"], row["change"]) for row in rows(there, "interest")][:1] == [("subscription", "begin")]
    totals = rows(there, "heartbeats")
    assert sum(row["delivered"] for row in totals) > EVENTS > len(delivered)
    assert sum(row["published"] for row in rows(here, "heartbeats")) > EVENTS


async def events_pass(sender: PeerProcess, receiver: PeerProcess) -> None:
    async with (
        wend.connect(url(sender)) as publisher,
        wend.connect(url(receiver)) as subscriber,
        subscriber.subscribe("x > 0") as events,
    ):
        while not (await publisher.publish({"x": 1}, b"it goes on")).targets:
            await asyncio.sleep(0.01)
        assert (await anext(events)).payload == b"it goes on"


def test_a_full_disk_does_not_disturb_the_peer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    async def scene() -> None:
        ports = free_ports(2)
        quick = {"telemetry_period": "20ms", "telemetry_segment_age": "20ms"}
        peers = [service(number, ports, tmp_path, **quick) for number in (1, 2)]
        monkeypatch.setattr(segments.os, "fsync", full)
        for peer in peers:
            await peer.start()
        counters = peers[1].peer.counters
        await until(lambda: counters.failed["telemetry-segment"] > 3 and counters.failed["telemetry-rows"] > 3)
        await events_pass(*peers)
        monkeypatch.undo()
        for peer in peers:
            await peer.stop()

    run(scene())
    told = json.loads(next((tmp_path / "peer-2").glob("manifest-*")).read_text())
    assert told["unwritten"] > 3
    assert sum(row["unwritten"] for row in rows(tmp_path / "peer-2", "heartbeats")) > 0
    reasons = {row["reason"] for row in rows(tmp_path / "peer-2", "counts") if row["kind"] == "failure"}
    assert "telemetry-rows" in reasons


@contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """A file system of 256 KiB at a folder."""
    folder.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)], check=False, capture_output=True, text=True
    )
    if made.returncode:
        pytest.skip(f"this process may not mount a file system: {made.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.mark.skipif(shutil.which("mount") is None, reason="there is no command mount")
def test_a_peer_goes_on_while_its_disk_is_full_and_writes_again_when_there_is_room(tmp_path: Path) -> None:
    """Nothing is simulated: its own segments fill the disk, and somebody removes them."""

    async def scene() -> None:
        ports = free_ports(2)
        quick = {"telemetry_period": "20ms", "telemetry_segment_age": "20ms"}
        peers = [service(number, ports, tmp_path, **quick) for number in (1, 2)]
        for peer in peers:
            await peer.start()
        counters, seen = peers[1].peer.counters, tmp_path / "peer-2"
        await until(lambda: counters.failed["telemetry-segment"] > 3 and counters.failed["telemetry-rows"] > 3)
        assert shutil.disk_usage(seen).free < 16 * 1024
        filled = {path.name for path in seen.glob("*.parquet")}
        assert len(filled) > 10
        await events_pass(*peers)
        for name in filled:
            (seen / name).unlink()
        await until(lambda: sum(row["unwritten"] for row in rows(seen, "heartbeats")) > 0)
        assert not filled & {path.name for path in seen.glob("*.parquet")}
        for peer in peers:
            await peer.stop()

    with small_disk(tmp_path / "peer-2"):
        run(scene())


def test_a_peer_that_is_stopped_closes_its_segments_and_one_that_is_killed_leaves_no_half_ones(tmp_path: Path) -> None:
    file = tmp_path / "peer.toml"
    port = free_ports(1)[0]
    file.write_text(
        f'id = 3\nlisten = "127.0.0.1:{port}"\nclients = "127.0.0.1:0"\n'
        'telemetry = "seen"\ntelemetry_sample = 1.0\ntelemetry_period = "20ms"\ntelemetry_segment_age = "20ms"\n'
    )
    seen = tmp_path / "seen"

    async def scene() -> None:
        peer = await Process.start(file)
        async with wend.connect(peer.url) as client:
            await client.publish({"topic": "a"}, b"123")
        assert await peer.stop() == 0
        assert [(row["topic"], row["size_bytes"]) for row in rows(seen, "publications")] == [("a", 3)]
        peer = await Process.start(file)
        await until(lambda: len({path.name.split("-")[3] for path in seen.glob("heartbeats-*")}) == 2)
        await peer.kill()
        before = len(list(seen.glob("*.parquet")))
        peer = await Process.start(file)
        assert await peer.stop() == 0
        assert not list(seen.glob(".*"))
        assert len(list(seen.glob("*.parquet"))) > before

    run(scene())
    for table in ("heartbeats", "interest", "publications"):
        rows(seen, table)  # all can be read
    assert len(list(seen.glob("manifest-*.json"))) == 3


def test_a_peer_says_what_is_wrong_with_its_folder_and_closes_its_socket(tmp_path: Path) -> None:
    (tmp_path / "peer-1").write_text("")
    ports = free_ports(2)
    with raises("unwritable", match=r"cannot write telemetry to .*peer-1: "):
        service(1, ports, tmp_path)
    (tmp_path / "peer-1").unlink()

    async def scene() -> None:
        peer = service(1, ports, tmp_path)  # the address is free again
        await peer.start()
        await peer.stop()

    run(scene())


def test_the_folder_is_relative_to_the_file(tmp_path: Path) -> None:
    file = tmp_path / "peer.toml"
    file.write_text('id = 1\ntelemetry = "seen"\n')
    assert load_peer_file(file).telemetry == str(tmp_path / "seen")
    file.write_text("id = 1\ntelemetry_sample = 1.5\n")
    with raises("invalid-setting", match="telemetry_sample"):
        load_peer_file(file)
