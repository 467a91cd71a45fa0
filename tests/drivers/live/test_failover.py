"""Live peers that follow a plan for failures: a link goes down while events flow, and none is lost or comes twice."""

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path

import numpy as np

import wend
from tests.drivers.live.net import known, run, until
from tests.ports import free_ports
from wend.drivers.live.config import load_peer_file
from wend.drivers.live.process import PeerProcess
from wend.model.rates import Rate
from wend.planning.flow_network import FlowNetwork
from wend.planning.flow_workload import FlowWorkload
from wend.planning.models import parse_goal
from wend.planning.planner import make_plan
from wend.strategies.planned.failover import FailoverRouting
from wend.topology.graph import Overlay, OverlayLink

# Over 1 the way from 0 to 2 is shorter, so the plan takes that one, and the other after a failure.
LINKS = {(0, 1): 2, (1, 2): 2, (2, 3): 4, (0, 3): 4}
PEERS = 4


def write_plan(folder: Path) -> None:
    overlay = Overlay(PEERS, [OverlayLink(a, b, delay * 10**6) for (a, b), delay in LINKS.items()])
    flow = FlowWorkload(
        np.array([0], dtype=np.int32), np.array([0, 1]), np.array([2], dtype=np.int32),
        np.array([[10.0], [0.0]]), np.ones(1),
    )  # fmt: skip
    made = make_plan(FlowNetwork(overlay, link=Rate(100.0)), flow, parse_goal("min-usage"), 2, survive=1)
    assert {(a, b) for a, b, _ in made.published_flows(0)[0].backups} == {(0, 1), (1, 2)}
    made.write(folder)


def write_config(folder: Path, peer: int, ports: list[int]) -> Path:
    lines = [
        f"id = {peer}",
        f'listen = "127.0.0.1:{ports[peer]}"',
        'clients = "127.0.0.1:0"',
        'strategy = "planned-failover"',
        'plan = "plan"',
        'margin = "300ms"',
        "transmissions = 6",
        'detection = "1500ms"',
        "experiments = true",
    ]
    for (a, b), delay in LINKS.items():
        if peer in (a, b):
            other = a + b - peer
            lines += [
                "[[neighbours]]",
                f"id = {other}",
                f'address = "127.0.0.1:{ports[other]}"',
                f'delay = "{delay}ms"',
            ]
            lines += ["[neighbours.shape]", f'delay = "{delay}ms"']
    path = folder / f"{peer}.toml"
    path.write_text("\n".join(lines))
    return path


def test_a_link_that_fails_while_events_flow_loses_none(tmp_path: Path) -> None:
    async def scene() -> None:
        write_plan(tmp_path / "plan")
        ports = free_ports(PEERS)
        services = [PeerProcess(load_peer_file(write_config(tmp_path, peer, ports))) for peer in range(PEERS)]
        got: Counter[bytes] = Counter()
        sent = 0
        async with AsyncExitStack() as stack:
            for service in services:
                await service.start()
                stack.push_async_callback(service.abort)
            urls = [f"wend://127.0.0.1:{each.listener.address[1]}" for each in services]
            clients = [await stack.enter_async_context(wend.connect(url)) for url in urls]
            events = await stack.enter_async_context(clients[2].subscribe("topic = 't'"))
            await known(clients[0], "t", 1)
            routing = services[0].peer.peer.plugins["planned-failover"]
            assert isinstance(routing, FailoverRouting)

            async def read() -> None:
                async for event in events:
                    if event.payload != b"are you there":
                        got[event.payload] += 1

            async def publish_until(done: "asyncio.Event") -> None:
                nonlocal sent
                while not done.is_set():
                    await clients[0].publish({"topic": "t"}, f"{sent}".encode())
                    sent += 1
                    await asyncio.sleep(0.01)

            reading = asyncio.create_task(read())
            done = asyncio.Event()
            publishing = asyncio.create_task(publish_until(done))
            await until(lambda: len(got) >= 10)
            before = services[3].peer.counters.data
            await clients[1].cut(2)
            await clients[2].cut(1)
            await until(lambda: routing.down == {(1, 2)})
            so_far = sent
            await until(lambda: sent > so_far + 10 and len(got) >= so_far)
            assert services[3].peer.counters.data > before, "no event took the route for the failure"
            await clients[1].heal(2)
            await clients[2].heal(1)
            await until(lambda: not routing.down)
            so_far = sent
            await until(lambda: sent > so_far + 10)
            done.set()
            await publishing
            await until(lambda: len(got) >= sent)
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
            for service in services:
                assert not service.peer.counters.drops and not service.peer.counters.failed
        assert set(got) == {f"{number}".encode() for number in range(sent)}
        assert set(got.values()) == {1}

    run(scene())
