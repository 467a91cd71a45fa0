"""Live peers that follow plans, and are told others while events flow: none is lost, none comes twice."""

import asyncio
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import wend
from tests.drivers.live.net import known, until
from tests.drivers.live.processes import Process
from tests.errors import raises
from tests.plans import Flow, plan_of
from tests.ports import free_ports
from wend.drivers.live.config import load_peer_file
from wend.drivers.live.process import PeerProcess

# Two ways from 0 to 3, and 4 behind it.
LINKS = [(0, 1), (0, 2), (1, 3), (2, 3), (3, 4)]
PEERS = 5
OVER_1, OVER_2 = [(0, 1), (1, 3), (3, 4)], [(0, 2), (2, 3), (3, 4)]
FIRST: Flow = (0, (3, 4), 10.0, [(1.0, OVER_1)])
SECOND: Flow = (0, (3, 4), 10.0, [(1.0, OVER_2)])
HALVES: Flow = (0, (3, 4), 10.0, [(0.5, OVER_1), (0.5, OVER_2)])
EVENTS = 60


def put(folder: Path, name: str, flow: Flow) -> None:
    """As an operator does: write it elsewhere, then turn the link over, so that nobody reads half a plan."""
    plan_of(PEERS, LINKS, flow).write(folder / name)
    fresh = folder / "fresh"
    fresh.symlink_to(name)
    fresh.replace(folder / "plan")


def write_config(folder: Path, peer: int, ports: list[int], *more: str) -> Path:
    lines = [
        f"id = {peer}",
        f'listen = "127.0.0.1:{ports[peer]}"',
        'clients = "127.0.0.1:0"',
        'strategy = "planned"',
        'plan = "plan"',
        'margin = "200ms"',
        "transmissions = 5",
        'detection = "500ms"',
        *more,
    ]
    for a, b in LINKS:
        if peer in (a, b):
            other = a + b - peer
            lines += ["[[neighbours]]", f"id = {other}", f'address = "127.0.0.1:{ports[other]}"', 'delay = "2ms"']
            lines += ["[neighbours.shape]", 'delay = "2ms"']
    path = folder / f"{peer}.toml"
    path.write_text("\n".join(lines))
    return path


@asynccontextmanager
async def overlay(folder: Path) -> AsyncIterator[list[PeerProcess]]:
    ports = free_ports(PEERS)
    opened = [PeerProcess(load_peer_file(write_config(folder, peer, ports))) for peer in range(PEERS)]
    try:
        for peer in opened:
            await peer.start()
        yield opened
    finally:
        for peer in opened:
            await peer.listener.stop()
            peer.peer.close()


def url(opened: PeerProcess) -> str:
    return f"wend://127.0.0.1:{opened.listener.address[1]}"


async def play(folder: Path, *plans: Flow) -> tuple[Counter[tuple[int, bytes]], list[PeerProcess]]:
    """Events flow from 0; after each batch every peer is told the next plan, one after the other, as events go on."""
    got: Counter[tuple[int, bytes]] = Counter()
    put(folder, "plan-0", plans[0])
    async with overlay(folder) as opened, AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(wend.connect(url(peer))) for peer in opened]
        streams = [(peer, await stack.enter_async_context(clients[peer].subscribe("topic = 't'"))) for peer in (3, 4)]
        await known(clients[0], "t", 2)

        async def read(peer: int, events: wend.EventStream) -> None:
            async for event in events:
                if event.payload != b"are you there":
                    got[peer, event.payload] += 1

        readers = [asyncio.create_task(read(peer, events)) for peer, events in streams]
        sent = 0
        for turn, plan in enumerate(plans):
            if turn:
                put(folder, f"plan-{turn}", plan)
            for n in range(EVENTS):
                if turn and n % (EVENTS // PEERS) == 0 and n // (EVENTS // PEERS) < PEERS:
                    await clients[n // (EVENTS // PEERS)].load_plan()
                await clients[0].publish({"topic": "t"}, f"{sent}".encode())
                sent += 1
        await until(lambda: len(got) >= 2 * sent)
        await clients[0].status()
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
        for peer in opened:
            assert not peer.peer.counters.drops and not peer.peer.counters.failed
    assert set(got) == {(peer, f"{n}".encode()) for peer in (3, 4) for n in range(sent)}
    return got, opened


def test_a_switch_loses_no_event_and_doubles_none(tmp_path: Path) -> None:
    got, opened = asyncio.run(play(tmp_path, FIRST, SECOND, HALVES))
    assert set(got.values()) == {1}
    for peer in opened:
        assert peer.peer.counters.notices["plan-adopted"] == 3
    # the publisher is told first, so some packets met peers that did not know their plan yet
    assert sum(peer.peer.counters.notices["unknown-plan"] for peer in opened) > 0
    # one way by the first plan, the other by the second, both by the third
    carried = [peer.peer.counters.data for peer in opened]
    assert carried[2] >= EVENTS
    assert carried[1] >= EVENTS


def test_what_cannot_be_loaded_is_said_and_changes_nothing(tmp_path: Path) -> None:
    async def run() -> None:
        put(tmp_path, "plan-0", FIRST)
        async with overlay(tmp_path) as opened, wend.connect(url(opened[0])) as client:
            plan_of(PEERS, [(0, 4)], (0, (4,), 1.0, [(1.0, [(0, 4)])])).write(tmp_path / "plan-0")
            with raises("invalid-setting", match="which is not its neighbour"):
                await client.load_plan()
            (tmp_path / "plan-0" / "plan.json").unlink()
            with raises("unreadable", match="is not a plan"):
                await client.load_plan()
            assert (await client.status()).notices["plan-adopted"] == 1

    asyncio.run(run())


def test_a_peer_of_another_strategy_says_so(tmp_path: Path) -> None:
    ports = free_ports(PEERS)
    path = write_config(tmp_path, 0, ports)
    text = path.read_text()
    path.write_text(text.replace('"planned"', '"dcrd"'))
    with raises("invalid-setting", match=r"a plan is followed by strategy = .*, not by 'dcrd'"):
        load_peer_file(path)
    path.write_text(text.replace('plan = "plan"\n', ""))

    async def run() -> None:
        opened = PeerProcess(load_peer_file(path))
        await opened.start()
        async with wend.connect(url(opened)) as client:
            with raises("no-plan"):
                await client.load_plan()
        await opened.stop()

    asyncio.run(run())


def test_a_signal_and_a_command_have_the_plan_read_again(tmp_path: Path) -> None:
    async def run() -> None:
        put(tmp_path, "plan-0", FIRST)
        process = await Process.start(write_config(tmp_path, 0, free_ports(PEERS)))
        try:
            async with wend.connect(process.url) as client:
                put(tmp_path, "plan-1", SECOND)
                process.send_signal(signal.SIGHUP)
                async with asyncio.timeout(60):
                    while (await client.status()).notices["plan-adopted"] != 2:
                        await asyncio.sleep(0.01)
                (tmp_path / "plan-1" / "plan.json").write_text("{}")
                process.send_signal(signal.SIGHUP)
                async with asyncio.timeout(60):
                    while not (await client.status()).failed.get("load-plan"):
                        await asyncio.sleep(0.01)
                put(tmp_path, "plan-2", HALVES)
                loading = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", "wend.console.app", "plan", "load", "--peer", process.url),
                    stdout=asyncio.subprocess.PIPE,
                )
                said, _ = await loading.communicate()
                assert said.decode() == f"peer 0 follows plan {plan_of(PEERS, LINKS, HALVES).id:08x}\n"
                assert (await client.status()).notices["plan-adopted"] == 3
        finally:
            await process.stop()

    asyncio.run(run())
