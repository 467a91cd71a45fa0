"""The overlay to which the benchmark of telemetry's loop pushes its plan: its peers take one."""

import asyncio
from pathlib import Path

import wend
from benchmarks.planned_overlay import run as run_overlay
from tests.drivers.live.net import run, until
from wend.drivers.live.plans.push import PushSettings, push_plan
from wend.drivers.scenarios import make_scenario
from wend.drivers.world import World, build_world
from wend.model.flows import Flow, unambiguous_names
from wend.model.plan import Plan, read_plan
from wend.model.rates import Rate
from wend.model.units import SECOND
from wend.planning.flow_network import FlowNetwork
from wend.planning.flow_workload import make_workload
from wend.planning.models import parse_goal
from wend.planning.planner import make_plan


def plan_for(world: World, folder: Path) -> Plan:
    peers = unambiguous_names(world.overlay.names)
    flows = [
        Flow(peers[topic.publisher], [peers[peer] for peer in topic.subscribers], SECOND / topic.period_ns)
        for topic in world.topics
    ]
    network = FlowNetwork(world.overlay, link=Rate(100.0))
    make_plan(network, make_workload(flows, network.names, "the scenario"), parse_goal("balance"), 3).write(folder)
    return read_plan(folder)


def test_its_peers_follow_a_plan_for_its_links(tmp_path: Path) -> None:
    world = build_world(
        make_scenario({"peers": 5, "degree": 4, "topics": 2, "delay": ["2ms", "4ms"], "popularity": [0.5, 0.9]})
    )
    made, addresses = plan_for(world, tmp_path / "plan"), tmp_path / "peers.txt"

    async def scene() -> None:
        stopped = asyncio.Event()
        running = asyncio.create_task(run_overlay(world, tmp_path, addresses, stopped))
        await until(lambda: addresses.exists() or running.done())
        urls = [f"wend://{line}" for line in addresses.read_text().split()]
        settings = PushSettings(before_s=0.0, watch_s=0.0)
        report = await push_plan(made, urls, settings, lambda url: wend.connect(url, timeout=30, patience=0.1))
        assert report.kept and [each.peer for each in report.peers] == list(range(5))
        async with wend.connect(urls[0]) as client:
            status = await client.status()
        assert status.plan is not None and status.plan.id == made.id
        stopped.set()
        await running

    run(scene())
