"""Configurations of the systems, trees and the UDP forwarder, without a network."""

import asyncio
import subprocess
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from wend.drivers.live.config import load_peer_file
from wend.drivers.live.process import read_keys
from wend.drivers.live.status import StatusSnapshot
from wend.lab.address_plan import link_costs, make_nodes
from wend.lab.bench.cell import CellSettings
from wend.lab.bench.delivery_log import Stamp, make_payload
from wend.lab.systems.frr import Frr
from wend.lab.systems.mosquitto import Mosquitto
from wend.lab.systems.nats import Nats
from wend.lab.systems.overlay_trees import find_best_tree
from wend.lab.systems.system import (
    CountsData,
    Processes,
    RunContext,
    find_missing_module,
    find_missing_program,
    render_template,
)
from wend.lab.systems.system_table import SYSTEMS
from wend.lab.systems.udp_forwarder import Forwarder, Mode, find_tree_routes, find_two_routes, make_plan
from wend.lab.systems.wend import Wend
from wend.lab.systems.zenoh import Zenoh
from wend.protocol.config import DeliverySettings
from wend.strategies.adaptive.plugin import AdaptiveSettings

WORLD = CellSettings(system="udp-tree", peers=8, degree=3, topics=3).world()
HOSTS = make_nodes("test", WORLD.overlay)


class PlannedLab:
    """A lab without processes."""

    name = "test"
    hosts = HOSTS

    def popen(self, host: int, argv: list[str], **_: Any) -> Any:
        raise AssertionError("no process may start")


def a_context(folder: Path) -> RunContext:
    return RunContext(PlannedLab(), WORLD, folder, lambda *_: None)  # type: ignore[arg-type]


def rendered(template: str, **values: object) -> str:
    text = render_template(template, **values)
    assert "$" not in text
    return text


# ---------------------------------------------------------------- configurations


def test_every_system_has_a_description() -> None:
    made = {name: make() for name, make in SYSTEMS.items()}
    assert all(system.name == name and system.about for name, system in made.items())
    assert {
        "wend",
        "wend-none",
        "wend-free",
        "wend-sealed",
        "wend-dcrd",
        "nats-ospf",
        "nats-leaf",
        "zenoh-tuned",
    } <= set(made)


@pytest.mark.parametrize("sealed", [False, True])
def test_a_peer_of_wend_reads_its_configuration(tmp_path: Path, sealed: bool) -> None:
    system = Wend("wend", "adaptive", "tight", sealed=sealed)
    for host in HOSTS:
        path = tmp_path / f"{host.number}.toml"
        path.write_text(rendered("wend-peer.toml", **system.template_values(a_context(tmp_path), host)))
        file = load_peer_file(path)
        assert file.insecure is not sealed
        if sealed:
            keys = read_keys(file)
            assert keys is not None and keys.credentials.identity.peer == host.number
        config = file.peer_config(1)
        assert (config.peer, config.strategy) == (host.number, "adaptive")
        assert config.of(AdaptiveSettings).redundancy == "tight"
        assert config.of(DeliverySettings).persistence
        assert [n.address for n in file.neighbours] == [f"{interface.remote}:7701" for interface in host.interfaces]
        assert len(file.advertise) == sum(t.publisher == host.number for t in WORLD.topics)


def test_peers_count_the_data_packets_that_the_lab_cannot_read(monkeypatch: pytest.MonkeyPatch) -> None:
    class Connected:
        async def status(self) -> StatusSnapshot:
            return StatusSnapshot(peer=1, incarnation=1, software="", data=7)

    for sealed, counted in ((False, None), (True, 14)):
        system = Wend("wend", "adaptive", sealed=sealed)
        monkeypatch.setattr(system, "_clients", {1: Connected(), 2: Connected()})
        assert isinstance(system, CountsData) and asyncio.run(system.data_packets()) == counted
    assert not isinstance(SYSTEMS["udp-tree"](), CountsData)


@pytest.mark.skipif(find_missing_program(["nats-server"], "nats-server") is not None, reason="needs nats-server")
@pytest.mark.parametrize("tuned", [False, True])
def test_nats_accepts_its_configurations(tmp_path: Path, tuned: bool) -> None:
    from wend.lab.systems.nats import cluster_values

    tuning = rendered("nats-tuning.conf") if tuned else ""
    leaf = Nats("nats-leaf", "leaf", tuned=tuned).leaf_values(HOSTS[1], {1: HOSTS[1].interfaces[0].neighbour})
    for template, values in (("cluster", cluster_values(a_context(tmp_path), HOSTS[1])), ("leaf", leaf)):
        path = tmp_path / f"{template}.conf"
        path.write_text(rendered(f"nats-{template}.conf", id=1, tuning=tuning, **values))
        done = subprocess.run(["nats-server", "-c", str(path), "-t"], capture_output=True, text=True, check=False)
        assert "is valid" in done.stdout + done.stderr


def test_brokers_bridge_to_their_parents_only(tmp_path: Path) -> None:
    system = Mosquitto("mosquitto-tuned", tuned=True)
    interface = HOSTS[2].interfaces[1]
    text = system.bridge_config(HOSTS[2], {2: interface.neighbour})
    assert f"address {interface.remote}:1883" in text and "topic # both 1" in text and "keepalive_interval 5" in text
    assert system.bridge_config(HOSTS[2], {}) == ""
    assert "keepalive_interval" not in Mosquitto("mosquitto").bridge_config(HOSTS[2], {2: interface.neighbour})


@pytest.mark.skipif(find_missing_module(["zenoh"]) is not None, reason="needs eclipse-zenoh")
@pytest.mark.parametrize(("tuned", "template", "link"), [(False, "zenoh", "tcp"), (True, "zenoh-tuned", "udp")])
def test_zenoh_accepts_its_configuration(tuned: bool, template: str, link: str) -> None:
    import zenoh

    system = Zenoh("zenoh", tuned=tuned)
    opened = []
    for host in HOSTS:
        config = zenoh.Config.from_json5(rendered(f"{template}.json5", **system.template_values(host)))
        opened += [host.number] * config.get_json("connect/endpoints").count(f"{link}/")
        assert config.get_json("transport/shared_memory/enabled") == "false"
        weights = config.get_json("routing/router/linkstate/transport_weights")
        assert weights.count("dst_zid") == (len(host.interfaces) if tuned else 0)
        # Above the longest round trip: shorter leases had much worse results.
        assert int(config.get_json("transport/link/tx/lease")) > 2 * 50
        assert (int(config.get_json("transport/unicast/open_timeout")) < 1000) == tuned
    assert len(opened) == len(WORLD.overlay.links)  # one connection per link


def test_routers_have_costs_by_delay(tmp_path: Path) -> None:
    text = rendered("frr-ospfd.conf", **Frr(Processes()).template_values(HOSTS[0]))
    for interface in HOSTS[0].interfaces:
        assert f"interface {interface.device}\n" in text
        assert f" ip ospf cost {round(interface.delay_ns / 100_000)}\n" in text
    assert Processes().cpu_s() == 0.0


def test_tuned_routers_detect_a_silent_link_sooner() -> None:
    routers = [Frr(Processes(), tuned=tuned) for tuned in (False, True)]
    shipped, tuned = (rendered("frr-bfdd.conf", **router.template_values(HOSTS[0])) for router in routers)
    assert "transmit-interval 50\n  receive-interval 50\n  detect-multiplier 3\n" in shipped
    assert "transmit-interval 30\n  receive-interval 30\n  detect-multiplier 3\n" in tuned


def test_a_missing_program_is_named_with_its_package() -> None:
    assert find_missing_program(["no-such-server"], "no-such") == (
        "no-such-server is not installed: apt-get install no-such"
    )
    assert find_missing_module(["no_such_module"]) == (
        "the Python module no_such_module is not installed: pip install 'wend[lab]'"
    )
    assert find_missing_module(["wend"]) is None
    assert Processes().exited() == []


# ---------------------------------------------------------------- trees and forwarding


def test_the_best_tree_reaches_everyone_over_links() -> None:
    parent = find_best_tree(WORLD)
    assert len(parent) == WORLD.overlay.peers - 1
    assert all(above in WORLD.overlay.neighbours(child) for child, above in parent.items())


def test_two_routes_begin_with_the_shortest_and_differ() -> None:
    graph = link_costs(WORLD.overlay)
    for topic in WORLD.topics:
        for subscriber in topic.subscribers:
            first, second = find_two_routes(graph, topic.publisher, subscriber)
            assert first == find_tree_routes(graph, topic.publisher, (subscriber,))[0] != second
            assert (second[0], second[-1]) == (topic.publisher, subscriber)


def flow(mode: Mode, topic: int, *, lost: tuple[int, int] | None = None) -> tuple[list[int], int]:
    """Send one publication through a forwarder. Returns the receivers in order and the number of packets."""
    plan = make_plan(WORLD, "test", mode, 1, 2)
    forwarder = Forwarder(plan, {h.number: tuple(interface.neighbour for interface in h.interfaces) for h in HOSTS})
    todo: list[tuple[int, int | None, bytes]] = [
        (WORLD.topics[topic].publisher, None, b"\0" + make_payload(Stamp(topic, 1, 0), 40))
    ]
    got, packets = [], 0
    while todo:
        host, sender, data = todo.pop(0)
        onward, delivered = forwarder.handle(host, sender, data)
        if delivered is not None:
            assert delivered == make_payload(Stamp(topic, 1, 0), 40)
            got.append(host)
        for neighbour, packet in onward:
            packets += 1
            if {host, neighbour} != set(lost or ()):
                todo.append((neighbour, host, packet))
    return got, packets


@pytest.mark.parametrize("mode", ["tree", "two-path", "flood"])
@pytest.mark.parametrize("topic", range(3))
def test_every_subscriber_gets_one_copy(mode: Mode, topic: int) -> None:
    got, packets = flow(mode, topic)
    assert sorted(got) == sorted(WORLD.topics[topic].subscribers)
    graph = link_costs(WORLD.overlay)
    branches = find_tree_routes(graph, WORLD.topics[topic].publisher, WORLD.topics[topic].subscribers)
    edges = len({(a, b) for branch in branches for a, b in pairwise(branch)})
    if mode == "tree":
        assert packets == edges
    elif mode == "flood":
        assert packets == 2 * len(WORLD.overlay.links) - (WORLD.overlay.peers - 1)
    else:
        assert edges < packets <= 2 * sum(len(b) for b in branches) + 2 * len(branches)


def test_one_broken_link_costs_the_tree_and_not_the_others() -> None:
    topic = max(range(3), key=lambda t: len(WORLD.topics[t].subscribers))
    publisher, subscribers = WORLD.topics[topic].publisher, WORLD.topics[topic].subscribers
    branch = find_tree_routes(link_costs(WORLD.overlay), publisher, subscribers[:1])[0]
    assert subscribers[0] not in flow("tree", topic, lost=branch[:2])[0]  # type: ignore[arg-type]
    assert sorted(flow("flood", topic, lost=branch[:2])[0]) == sorted(subscribers)  # type: ignore[arg-type]


def test_a_module_of_a_package_that_is_not_there_is_missing_too() -> None:
    said = find_missing_module(["nowhere.at.all"])
    assert said is not None and "nowhere.at.all is not installed" in said
    assert find_missing_module(["json.decoder"]) is None
