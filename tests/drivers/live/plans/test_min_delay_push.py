"""A plan for short delays, made for the links of eight live peers and pushed to them while events flow."""

from pathlib import Path

import pytest

from tests.drivers.live.net import run, until
from tests.drivers.live.plans.test_plan_push import DEADLINE_S, LINKS, PEERS, SLOW, WANTED, overlay
from wend.drivers.live.observer import Observer
from wend.drivers.live.status import PlanStatus
from wend.model.events import PeerId
from wend.model.plan import Plan
from wend.model.rates import Rate
from wend.model.units import MS, Nanos
from wend.planning.flow_network import FlowNetwork
from wend.planning.flow_workload import Flow, make_workload
from wend.planning.models import parse_goal
from wend.planning.plan_check import check_plan
from wend.planning.planner import make_plan
from wend.protocol.messages import Data
from wend.topology.graph import Overlay, OverlayLink

RATE = 150.0


def planned(goal: str, deadline: str | None = None) -> Plan:
    links = sorted((min(a, b), max(a, b)) for a, b in LINKS)
    delays = [OverlayLink(a, b, (1500 if (a, b) == SLOW else 2) * MS) for a, b in links]
    network = FlowNetwork(Overlay(PEERS, delays), link=Rate(1000.0))
    flows = [Flow(publisher, list(receivers), RATE, deadline=deadline) for publisher, receivers in WANTED.items()]
    return make_plan(network, make_workload(flows, network.names), parse_goal(goal), 3)


class Arrivals(Observer):
    """The numbers of a publisher's events that a neighbour sent to this peer."""

    def __init__(self, neighbour: PeerId) -> None:
        self.neighbour = neighbour
        self.numbers: set[int] = set()

    def on_packet(self, sender: PeerId, data: Data, waited_ns: Nanos) -> None:
        if sender == self.neighbour and data.event.payload.isdigit():
            self.numbers.add(int(data.event.payload))


def uses_slow_link(plan: Plan) -> bool:
    return SLOW in zip(plan.hops["peer"].tolist(), plan.hops["next"].tolist(), strict=True)


@pytest.mark.parametrize(("goal", "deadline"), [("min-delay", None), ("min-delay", "1s"), ("balance", "1s")])
def test_a_plan_for_short_delays_leads_events_off_a_slow_link(tmp_path: Path, goal: str, deadline: str | None) -> None:
    balanced, short = planned("balance"), planned(goal, deadline)
    assert uses_slow_link(balanced) and balanced.head.delay_ms > 1000 * DEADLINE_S / 2
    assert check_plan(short) == [] and not uses_slow_link(short)
    assert short.head.highest_load > balanced.head.highest_load, "the short routes are shared"

    async def scene() -> None:
        a, b = SLOW
        slow = Arrivals(a)
        async with overlay(tmp_path) as net:
            net.services[b].peer.observe(slow)
            async with net.load():
                assert (await net.push(balanced)).kept
                await until(lambda: len(slow.numbers) > 3)
                report = await net.push(short)
                assert report.kept and report.version == 2
                assert net.plans() == [PlanStatus(short.id, 2)] * PEERS
                first = net.sent[a]
                await until(lambda: net.sent[a] > first + 50)
            assert max(slow.numbers) < first, "an event took the slow link"
            assert sum(each.broker.status().late for each in net.services) >= len(slow.numbers)
            assert net.notices("unknown-plan") == 0
            assert net.notices("plan-adopted") == 2 * PEERS

    run(scene())
