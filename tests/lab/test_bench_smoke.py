"""The whole lab, with failing links: UDP packets obey the failure log, and Wend delivers every event."""

import asyncio
from collections.abc import Iterator
from itertools import pairwise

import pytest

from tests.lab.labs import a_name, needs_lab, remains
from wend.drivers.world import World
from wend.lab.address_plan import link_costs
from wend.lab.bench import measurement
from wend.lab.bench.cell import Cell, CellSettings
from wend.lab.systems.udp_forwarder import Route, find_tree_routes
from wend.model.units import MS, SECOND, Nanos
from wend.topology.faults import Intervals

SLACK_NS: Nanos = 20 * MS
"""How much later than planned a packet may enter a link on a busy machine. Nearer to a change, either is right."""

pytestmark = [needs_lab, pytest.mark.slow]


@pytest.fixture(scope="module")
def cell() -> Iterator[Cell]:
    """A window of Wend, with the canary beside it: plain UDP on the delay tree."""
    name = a_name()
    settings = CellSettings(
        system="wend", peers=6, degree=3, topics=6, rate_hz=4.0, topology_seed=1, failure_seed=7, pf=0.1,
        duration_s=4.0, cutoff_s=3.0,
    )  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measurement, "SETTLE_S", 0.2)
        patch.setattr(measurement, "CANARY_PERIOD_NS", SECOND // 4)
        yield asyncio.run(measurement.measure_cell(settings, windows=1, tell=lambda _: None, name=name))
    assert remains(name) == []


def test_a_tree_packet_arrives_if_and_only_if_every_link_was_up_when_it_entered(cell: Cell) -> None:
    world = cell.settings.world()
    faults = Intervals(len(world.overlay.links), cell.outages)
    lost = {(late.topic, late.sequence, late.subscriber) for late in cell.canary_late if late.delay_ns is None}
    decided = 0
    for number, topic in enumerate(world.topics):
        routes = find_tree_routes(link_costs(world.overlay), topic.publisher, topic.subscribers)
        planned = list(measurement.make_canary_topic(topic).publication_times(world.begin_ns, world.stop_ns))
        for sequence, time in enumerate(planned):
            for subscriber, route in zip(topic.subscribers, routes, strict=True):
                arrives = fate(world, faults, route, time)
                if arrives is not None:
                    decided += 1
                    assert arrives == ((number, sequence, subscriber) not in lost)
    assert decided > 0.8 * cell.canary.expected > 100
    assert cell.canary.delivered < cell.canary.expected  # links did fail


def fate(world: World, faults: Intervals, route: Route, time: Nanos) -> bool | None:
    """Whether a packet that leaves at this time arrives; None if a link changed about when it entered."""
    for here, there in pairwise(route):
        link = world.overlay.link(here, there)
        about = {faults.is_up(link, time + error) for error in (-MS, 0, SLACK_NS)}
        if len(about) > 1:
            return None
        if about == {False}:
            return False
        time += world.overlay.links[link].delay_ns
    return True


def test_wend_delivers_everything_through_failing_links(cell: Cell) -> None:
    assert (cell.metrics.delivered, cell.metrics.strays, cell.exited) == (cell.metrics.expected, 0, [])
    assert cell.metrics.on_time_ratio > cell.canary.on_time_ratio
    assert cell.oracle.delivered == cell.oracle.expected
    assert cell.traffic.data > 0 < cell.traffic.control
