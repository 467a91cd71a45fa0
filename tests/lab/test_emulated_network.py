"""A running lab: delays, failures, losses, counters and commands of its links."""

import re
import socket
import statistics
import subprocess
import time
from collections.abc import Iterator
from itertools import permutations
from threading import Event
from typing import Any

import pytest

from tests.lab.labs import PORT, a_name, ends, interface, needs, needs_lab, pair, remains, sent, triangle, until
from wend.drivers.live.paths.probes import Prober
from wend.lab import Lab, outages
from wend.lab.address_plan import find_next_hops
from wend.lab.emulator_control import EmulatorClient
from wend.model.errors import LabError
from wend.model.units import MS, SECOND
from wend.topology.graph import Overlay, OverlayLink
from wend.topology.paths import path_in_tree

pytestmark = needs_lab


@pytest.fixture
def lab() -> Iterator[Lab]:
    with Lab.up(triangle(), name=a_name()) as made:
        yield made


def output(lab: Lab, host: int, *argv: str) -> str:
    process = lab.popen(host, argv, stdout=subprocess.PIPE, text=True)
    return str(process.communicate(timeout=60)[0])


# ---------------------------------------------------------------- delays and routes


@needs("ping")
def test_a_ping_takes_twice_the_delay(lab: Lab) -> None:
    for a, b in ((0, 1), (2, 0)):
        through = interface(lab, a, b)
        shown = output(lab, a, "ping", "-n", "-c", "9", "-i", "0.05", through.remote)
        took_ms = statistics.median(float(ms) for ms in re.findall(r"time=([0-9.]+)", shown))
        assert took_ms == pytest.approx(2 * through.delay_ns / MS, abs=5.0)


@needs("ping")
def test_routed_packets_take_the_shortest_path_from_the_loopback_address(lab: Lab) -> None:
    shown = output(lab, 0, "ping", "-n", "-c", "3", "-i", "0.1", lab.hosts[2].address)
    assert len(re.findall(r"ttl=63 ", shown)) == 3
    crossed = {(c.sender, c.receiver): c.packets for c in lab.counters() if c.port == -1}
    assert crossed == {(0, 1): 3, (1, 2): 3, (2, 1): 3, (1, 0): 3}


@needs("ping")
def test_with_neighbour_routes_further_hosts_are_unreachable() -> None:
    line = Overlay(3, [OverlayLink(0, 1, MS), OverlayLink(1, 2, MS)])
    with Lab.up(line, name=a_name(), routes="neighbours") as lab:
        assert "ttl=64" in output(lab, 0, "ping", "-n", "-c", "1", interface(lab, 0, 1).remote)
        far = lab.popen(
            0, ["ping", "-n", "-c", "1", lab.hosts[2].address], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        assert b"unreachable" in far.communicate(timeout=30)[0]


# 14 routers (the NSFNET backbone of 1991, as it is usually drawn), and a host at five of them.
_BACKBONE = [
    (0, 1), (0, 2), (0, 7), (1, 2), (1, 3), (2, 5), (3, 4), (3, 10), (4, 5), (4, 6), (5, 9), (5, 13), (6, 7), (7, 8),
    (8, 9), (8, 11), (8, 12), (10, 11), (10, 12), (11, 13), (12, 13),
]  # fmt: skip
_HOSTS_AT = (0, 4, 9, 11, 13)


@needs("traceroute")
def test_traceroute_shows_the_configured_path_on_an_underlay_of_14_routers() -> None:
    links = [OverlayLink(a, b, (1 + (7 * a + 3 * b) % 5) * MS) for a, b in _BACKBONE]
    links += [OverlayLink(router, 14 + i, MS // 2) for i, router in enumerate(_HOSTS_AT)]
    underlay = Overlay(14 + len(_HOSTS_AT), links)
    hops = [hops for _, hops in find_next_hops(underlay)]
    with Lab.up(underlay, name=a_name(), routers=range(14)) as lab:
        assert [host.number for host in lab.hosts] == [14, 15, 16, 17, 18]
        number = {node.address: node.number for node in lab.nodes}
        asked = {
            (a.number, b.number): lab.popen(
                a.number, ["traceroute", "-n", "-q", "1", "-w", "3", b.address], stdout=subprocess.PIPE, text=True
            )
            for a, b in permutations(lab.hosts, 2)
        }
        for (a, b), process in asked.items():
            shown = process.communicate(timeout=60)[0]
            seen = [number.get(address) for address in re.findall(r"^ *\d+ +(\S+)", shown, re.MULTILINE)]
            assert [a, *seen] == list(reversed(path_in_tree(hops[b], b, a))), shown
        for a, b in permutations(lab.hosts, 2):
            with lab.inside(a.number):
                found = Prober(a.address).trace((b.address, PORT), Event())
            assert found.reached and None not in found.hops
            path = [a.number, *(number[hop] for hop in found.hops if hop), b.number]
            assert path == list(reversed(path_in_tree(hops[b.number], b.number, a.number)))


# ---------------------------------------------------------------- links that fail


def test_a_cut_link_drops_both_ways_and_a_healed_one_passes(lab: Lab) -> None:
    a, b = ends(lab, 0, 1)
    lab.cut(0)
    a.send(b"lost")
    b.send(b"lost")
    until(lambda: sum(c.down for c in lab.counters()) == 2)
    assert lab.status().down == (0,)
    lab.heal(0)
    a.send(b"there")
    b.send(b"back")
    assert (b.recv(99), a.recv(99)) == (b"there", b"back")
    assert [(f.link, f.a, f.b, f.up, f.cause) for f in lab.failures()] == [
        (0, 0, 1, False, "command"),
        (0, 0, 1, True, "command"),
    ]


def test_packets_in_flight_arrive_although_the_link_is_cut() -> None:
    with Lab.up(pair(delay_ms=400), name=a_name()) as lab:
        a, b = ends(lab, 0, 1)
        a.send(b"in flight")
        until(lambda: sent(lab) == 1)
        lab.cut(0)
        assert b.recv(99) == b"in flight"


def test_links_follow_the_schedule_and_log_it(lab: Lab) -> None:
    begin = time.monotonic_ns() + 50 * MS
    wanted = [(0, 0, 200 * MS), (2, 100 * MS, 400 * MS), (0, 200 * MS, 300 * MS)]
    lab.schedule(wanted, begin)
    assert lab.status().changes_ahead == 4  # adjacent outages become one
    until(lambda: lab.status().changes_ahead == 0)
    found = outages(lab.failures(), begin, time.monotonic_ns())
    assert [link for link, _, _ in found] == [0, 2]
    for (_, start, end), (planned_start, planned_end) in zip(found, [(0, 300 * MS), (100 * MS, 400 * MS)], strict=True):
        assert start == pytest.approx(planned_start, abs=50 * MS)
        assert end == pytest.approx(planned_end, abs=50 * MS)
    assert all(f.cause == "schedule" for f in lab.failures())


def test_unschedule_cancels_future_outages_and_ends_current_ones(lab: Lab) -> None:
    lab.schedule([(0, 0, 3600 * SECOND), (1, 1800 * SECOND, 3600 * SECOND)], time.monotonic_ns())
    until(lambda: lab.status().down == (0,))
    lab.clear_schedule()
    assert lab.status().down == ()
    assert lab.status().changes_ahead == 0


def test_an_outage_needs_an_existing_link(lab: Lab) -> None:
    for wrong in ((3, 0, SECOND), (-1, 0, SECOND), (0, -5, SECOND)):
        with pytest.raises(LabError):
            lab.schedule([wrong], time.monotonic_ns())


# ---------------------------------------------------------------- loss, rate, counters


def test_losses_follow_the_seed() -> None:
    lost = []
    for seed in (1, 1, 2):
        with Lab.up(pair(1.0, loss=0.5), name=a_name(), seed=seed) as lab:
            a, b = ends(lab, 0, 1)
            for _ in range(200):
                a.send(b"x")
            until(lambda lab=lab: sent(lab) == 200)
            lost.append(sum(c.loss for c in lab.counters()))
            a.close()
            b.close()
    assert lost[0] == lost[1]
    assert all(50 < count < 150 for count in lost)


def test_corrupted_packets_arrive_with_one_wrong_bit() -> None:
    with Lab.up(pair(1.0), name=a_name(), corruption=0.3) as lab:
        a, b = ends(lab, 0, 1)
        payload = bytes(100)
        for _ in range(100):
            a.send(payload)
        found = [b.recv(200) for _ in range(100)]
        a.close()
        b.close()
        wrong = [sum(byte.bit_count() for byte in each) for each in found if each != payload]
        assert wrong == [1] * sum(c.corrupted for c in lab.counters())
        assert 10 < len(wrong) < 60


def test_reordered_packets_are_overtaken_and_none_is_lost() -> None:
    with Lab.up(pair(1.0), name=a_name(), reordering=0.2, reordering_delay_ns=20 * MS) as lab:
        a, b = ends(lab, 0, 1)
        for number in range(100):
            a.send(bytes([number]))
            if number % 10 == 0:
                time.sleep(0.003)
        found = [b.recv(10)[0] for _ in range(100)]
        a.close()
        b.close()
        assert found != sorted(found) == list(range(100))
        assert 5 < sum(c.reordered for c in lab.counters()) < 50


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"corruption": 1.5}, "corrupt 1.5"),
        ({"reordering": -1}, "reorder -1"),
        ({"reordering_delay_ns": -1}, "0 ns or"),
    ],
)
def test_faults_that_cannot_be_are_one_sentence(fields: dict[str, Any], why: str) -> None:
    with pytest.raises(LabError, match=re.escape(why)):
        Lab.up(pair(), name=a_name(), **fields)


def test_a_rate_delays_packets_that_fit_the_queue_and_drops_others() -> None:
    with Lab.up(pair(1.0), name=a_name(), rate_bps=80_000, queue_bytes=3500) as lab:
        a, b = ends(lab, 0, 1)
        begin = time.monotonic()
        for number in range(10):
            a.send(bytes([number]) * 1000)
        assert [b.recv(2000)[0] for _ in range(3)] == [0, 1, 2]
        assert time.monotonic() - begin >= 3 * 1028 / 10_000  # at 10 kB/s
        until(lambda: sent(lab) == 10)
        assert sum(c.queue for c in lab.counters()) == 7


def test_counters_tell_ports_and_data_from_control(lab: Lab) -> None:
    a, b = ends(lab, 0, 1)
    a.send(b"an event: WENDLAB! and more")
    a.send(b"an acknowledgement")
    assert [b.recv(99)[:6], b.recv(99)[:6]] == [b"an eve", b"an ack"]
    (counter,) = [c for c in lab.counters() if c.port == PORT]
    assert (counter.link, counter.sender, counter.receiver) == (0, 0, 1)
    assert (counter.packets, counter.data, counter.dropped) == (2, 1, 0)
    assert counter.bytes == 27 + 18 + 2 * 28
    lab.reset_counters()
    assert lab.counters() == []
    EmulatorClient(lab.folder).ask(f"mark {b'ack'.hex()}")
    a.send(b"an ack")
    until(lambda: [c.data for c in lab.counters()] == [1])


def test_an_answer_is_counted_under_the_port_that_was_asked(lab: Lab) -> None:
    with lab.inside(1), socket.create_server((lab.hosts[1].address, 4222)) as server:
        with lab.inside(0):
            asking = socket.create_connection((lab.hosts[1].address, 4222), timeout=10)
        answering, (origin, port) = server.accept()
        answering.sendall(b"hello")
        assert asking.recv(5) == b"hello"
    assert (origin, port >= 32768) == (lab.hosts[0].address, True)
    assert {c.port for c in lab.counters()} == {4222}
    asking.close()
    answering.close()


# ---------------------------------------------------------------- commands and mistakes


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ("", "no command"),
        ("dance", "no command is called 'dance'"),
        ('"\\\x07', "no command"),
        ("cut", "number of a link"),
        ("cut 0-1", "number of a link"),
        ("cut 3", "no such link"),
        ("heal -1", "no such link"),
        ("heal 99999999999999999999", "number of a link"),
        ("schedule", "start time"),
        ("schedule 5 1:2", "link:from:until"),
        ("schedule 5 1:2:3x", "link:from:until"),
        ("schedule 5 9:2:3", "does not exist"),
        ("schedule 5 0:3:2", "ends after it starts"),
        ("schedule 9223372036854775807 0:3:4", "start time"),
        ("mark xyz", "hexadecimal"),
        ("mark " + "00" * 65, "64 bytes"),
        ("cut 0\ncut 1", "one line"),
    ],
)
def test_a_bad_command_is_answered_with_a_sentence(shared: Lab, command: str, sentence: str) -> None:
    with pytest.raises(LabError, match=sentence):
        EmulatorClient(shared.folder).ask(command)
    assert shared.status().down == ()


@pytest.fixture(scope="module")
def shared() -> Iterator[Lab]:
    with Lab.up(triangle(), name=a_name()) as made:
        yield made


def test_a_lab_can_be_attached_to(shared: Lab) -> None:
    again = Lab.attach(shared.name)
    assert again.hosts == shared.hosts
    assert again.overlay.links == shared.overlay.links
    assert again.status().down == ()
    with pytest.raises(LabError, match="no host 3"):
        again.popen(3, ["true"])


def test_a_name_is_unique(shared: Lab) -> None:
    with pytest.raises(LabError, match="is up, or a crash left its remains"):
        Lab.up(pair(), name=shared.name)
    assert len(remains(shared.name)) == 5  # three namespaces, an emulator and a folder: unchanged
