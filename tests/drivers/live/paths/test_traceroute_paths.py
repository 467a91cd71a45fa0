"""Paths by traceroute: shared requests, limit, cache and counters; and real routers, which need root."""

import asyncio
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.drivers.live.net import until
from tests.drivers.live.routers import Line, line, needs_routers
from tests.errors import raises
from tests.lab.labs import needs
from wend.console.app import app
from wend.drivers.live.addressing.addresses import Address
from wend.drivers.live.config import load_peer_file
from wend.drivers.live.paths import traceroute_program
from wend.drivers.live.paths.probes import HAS_ERROR_QUEUE, Prober, make_probe_answer
from wend.drivers.live.paths.source import NoPaths, open_paths
from wend.drivers.live.paths.traceroute import TracerouteResult, TracerouteSettings
from wend.drivers.live.paths.traceroute_paths import TraceroutePaths
from wend.drivers.live.peer import LivePeer
from wend.lab import namespaces
from wend.model.errors import ConfigError
from wend.model.units import MINUTE, MS
from wend.protocol.config import PeerConfig
from wend.protocol.peer import Peer
from wend.protocol.ports import Effect, FindPath, Input, Neighbour, PathFound, Started

GOOD = TracerouteResult(("10.0.0.1", "10.0.1.1"), True, 3, 3)
HOLED = TracerouteResult(("10.0.0.1", None), True, 5, 2)
PORT = 7000
QUICK = TracerouteSettings(wait_ns=300 * MS, tries=2)
SILENT = TracerouteSettings(wait_ns=50 * MS, tries=2)
"""For targets that never answer."""


class Traces:
    """Traceroutes that block until `go` is set."""

    def __init__(self, *answers: TracerouteResult | Exception) -> None:
        self.answers = list(answers)
        self.go = threading.Event()
        self.running = self.most = 0
        self._lock = threading.Lock()

    def __call__(self, target: Address, stopped: threading.Event) -> TracerouteResult:
        with self._lock:
            self.running += 1
            self.most = max(self.most, self.running)
            answer = self.answers.pop(0)
        self.go.wait(30)
        with self._lock:
            self.running -= 1
        if isinstance(answer, Exception):
            raise answer
        return answer


def test_requests_share_a_traceroute_and_few_run_at_once() -> None:
    async def scene() -> None:
        traces, counts = Traces(*[GOOD] * 5), Counter[str]()
        paths = TraceroutePaths(traces, MINUTE, counts, at_once=2)
        asked = [asyncio.create_task(paths.find(0, peer % 5, (f"10.9.9.{peer % 5}", 1))) for peer in range(15)]
        await until(lambda: traces.running == 2)
        traces.go.set()
        assert await asyncio.gather(*asked) == [GOOD.hops] * 15
        assert traces.most == 2 and counts["traces"] == 5 and counts["probes"] == counts["answers"] == 15
        paths.close()

    asyncio.run(scene())


def test_the_cache_holds_a_path_and_an_incomplete_one_less_long() -> None:
    async def scene() -> None:
        now, counts = [0], Counter[str]()
        traces = Traces(GOOD, HOLED, GOOD, OSError("no route"))
        traces.go.set()
        paths = TraceroutePaths(traces, 10 * MINUTE, counts, clock=lambda: now[0])

        async def find() -> object:
            return await paths.find(0, 1, ("10.9.9.9", 1))

        assert await find() == GOOD.hops
        now[0] += 9 * MINUTE
        assert await find() == GOOD.hops and counts["remembered"] == 1
        now[0] += 1 * MINUTE
        assert await find() == HOLED.hops
        now[0] += 1 * MINUTE
        assert await find() == GOOD.hops
        now[0] += 10 * MINUTE
        assert await find() is None  # a failure is cached, too
        assert await find() is None
        assert counts["failed"] == 1 and counts["traces"] == 4 and counts["silent"] == 1 and counts["remembered"] == 2
        paths.close()

    asyncio.run(scene())


def test_closing_cancels_waiting_traceroutes() -> None:
    async def scene() -> None:
        traces, counts = Traces(GOOD, GOOD), Counter[str]()
        paths = TraceroutePaths(traces, MINUTE, counts, at_once=1)
        asked = [asyncio.create_task(paths.find(0, peer, (f"10.9.9.{peer}", 1))) for peer in (1, 2)]
        await until(lambda: traces.running == 1)
        paths.close()
        traces.go.set()
        assert await asked[0] == GOOD.hops
        with pytest.raises(asyncio.CancelledError):
            await asked[1]
        assert len(traces.answers) == 1

    asyncio.run(scene())


@pytest.mark.parametrize("answer", [GOOD, OSError("no route")])
def test_a_peer_learns_of_every_result(answer: TracerouteResult | Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[PathFound] = []

    def handle(_: Peer, now: int, event: object) -> list[FindPath]:
        if isinstance(event, PathFound):
            told.append(event)
        return [FindPath(1), FindPath(2)] if isinstance(event, Started) else []  # the second has no address

    monkeypatch.setattr(Peer, "handle", handle)

    async def scene() -> None:
        traces = Traces(answer)
        traces.go.set()
        peer = LivePeer(PeerConfig(peer=0), paths=TraceroutePaths(traces, MINUTE, Counter()))
        peer.add_peer(1, ("127.0.0.1", 9))
        peer.start(Started((Neighbour(1, MS),)))
        await until(lambda: len(told) == 2)
        peer.close()

    asyncio.run(scene())
    assert {found.peer: found.path for found in told} == {1: GOOD.hops if answer is GOOD else None, 2: None}


# ---------------------------------------------------------------- choice by name


def test_a_path_source_is_chosen_by_name_or_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "trace").write_text("1 2 r1\n")

    def kind(name: str) -> type:
        return type(open_paths(name, ("127.0.0.1", 1), Counter()))

    assert [kind(name) for name in ("none", "trace")] == [NoPaths, TraceroutePaths]
    assert kind(str(tmp_path / "trace")).__name__ == "PathTable"
    with raises("unreadable", match="cannot read the paths in tracing"):
        kind("tracing")
    monkeypatch.setattr(traceroute_program, "find_program", lambda: None)
    with raises("invalid-setting", match="no program called traceroute"):
        kind("traceroute")


@pytest.mark.parametrize(("line", "paths"), [('paths = "trace"', "trace"), ('paths = "./trace"', "/trace"), ("", None)])
def test_a_source_name_is_not_a_file_beside_the_configuration(tmp_path: Path, line: str, paths: str | None) -> None:
    (tmp_path / "peer.toml").write_text(f"id = 1\n{line}\n")
    found = load_peer_file(tmp_path / "peer.toml").paths
    assert found == (f"{tmp_path}{paths}" if paths == "/trace" else paths)


def test_a_mistake_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "peer.toml").write_text('id = 1\nlisten = "127.0.0.1:0"\nclients = "127.0.0.1:0"\n')
    done = CliRunner().invoke(app, ["peer", "--config", str(tmp_path / "peer.toml"), "--paths", "nix"])
    assert isinstance(done.exception, ConfigError)
    assert str(done.exception) == "cannot read the paths in nix: No such file or directory"


# ---------------------------------------------------------------- on this host


def _loopback(host: str) -> Address:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM) as free:
        try:
            free.bind((host, 0))
        except OSError as error:
            pytest.skip(f"this host has no {host}: {error.strerror}")
        return free.getsockname()[:2]


@pytest.mark.skipif(not HAS_ERROR_QUEUE, reason="sockets of this system have no error queue")
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_port_where_nobody_listens_is_reached_without_routers(host: str) -> None:
    found = Prober(host, QUICK).trace(_loopback(host), threading.Event())
    assert (found.hops, found.reached) == ((), True) and found.answers >= 1


@pytest.mark.skipif(not HAS_ERROR_QUEUE, reason="sockets of this system have no error queue")
def test_invalid_answers_of_the_target_are_ignored() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as there:
        there.bind(("127.0.0.1", 0))
        there.settimeout(0.02)
        stopped = threading.Event()

        def babble() -> None:
            while not stopped.is_set():
                with suppress(TimeoutError):
                    probe, sender = there.recvfrom(99)
                    answer = make_probe_answer(memoryview(probe))
                    assert answer is not None
                    for wrong in (b"", probe, answer[:-1], answer + b"x", answer[:8] + bytes(6) + answer[14:]):
                        there.sendto(wrong, sender)

        thread = threading.Thread(target=babble)
        thread.start()
        found = Prober("127.0.0.1", SILENT).trace(there.getsockname(), threading.Event())
        stopped.set()
        thread.join()
    assert found.sent == SILENT.gap * SILENT.tries and not found.answers and not found.reached


@pytest.mark.skipif(not HAS_ERROR_QUEUE, reason="sockets of this system have no error queue")
def test_a_stopped_traceroute_sends_nothing() -> None:
    stopped = threading.Event()
    stopped.set()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        assert not Prober("127.0.0.1").trace(silent.getsockname(), stopped).sent


# ---------------------------------------------------------------- on real routers


ROUTERS = 5


@pytest.fixture(scope="module")
def routers() -> Iterator[Line]:
    with line(ROUTERS) as made:
        yield made


def _trace(
    routers: Line, here: int, there: int, how: Callable[[Address, threading.Event], TracerouteResult]
) -> TracerouteResult:
    with namespaces.inside(routers.names[here]):
        return how((routers.address(there, here), PORT), threading.Event())


def _configured(routers: Line, here: int, there: int) -> tuple[str, ...]:
    step = 1 if there > here else -1
    return tuple(routers.address(router, here) for router in range(here + step, there, step))


@needs_routers
def test_the_path_found_is_the_path_configured(routers: Line) -> None:
    for here, there in ((0, routers.last), (routers.last, 0), (0, 1), (2, 4)):
        found = _trace(routers, here, there, Prober("0.0.0.0").trace)
        assert (found.hops, found.reached) == (_configured(routers, here, there), True)


@needs_routers
@needs("traceroute")
def test_the_program_finds_the_same(routers: Line) -> None:
    found = _trace(routers, 0, routers.last, traceroute_program.run_traceroute)
    assert (found.hops, found.reached) == (_configured(routers, 0, routers.last), True)


@needs_routers
def test_live_peers_measure_the_path_to_each_other(routers: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    """Probes go to the ports of the peers, so the peers answer them and no host sends an ICMP error."""

    told: dict[int, list[PathFound]] = {0: [], routers.last: []}
    handle = Peer.handle

    def spy(peer: Peer, now: int, event: Input) -> list[Effect]:
        if isinstance(event, PathFound):
            told[peer.config.peer].append(event)
        return handle(peer, now, event)

    monkeypatch.setattr(Peer, "handle", spy)

    def at(node: int, other: int) -> LivePeer:
        prober = Prober(routers.address(node, other), QUICK)

        def trace(target: Address, stopped: threading.Event) -> TracerouteResult:
            with namespaces.inside(routers.names[node]):  # a new thread starts in the default namespace
                return prober.trace(target, stopped)

        config = PeerConfig(peer=node, membership="tdo-random", membership_k=1, membership_period_ns=50 * MS)
        with namespaces.inside(routers.names[node]):
            counts = Counter[str]()
            peer = LivePeer(
                config,
                listen=(routers.address(node, other), PORT),
                insecure=True,
                paths=TraceroutePaths(trace, MINUTE, counts),
            )
        peer.counters.paths = counts
        return peer

    async def scene() -> None:
        a, b = at(0, routers.last), at(routers.last, 0)
        a.add_peer(b.id, b.address)
        b.add_peer(a.id, a.address)
        try:
            a.start(Started((Neighbour(b.id, MS),)))
            b.start(Started((Neighbour(a.id, MS),)))
            await until(lambda: all(told.values()))
            assert told[a.id][0] == PathFound(b.id, _configured(routers, 0, routers.last))
            assert told[b.id][0] == PathFound(a.id, _configured(routers, routers.last, 0))
            await until(lambda: len(a.status().links) > 0)
            for peer in (a, b):
                assert peer.counters.paths["named"] == ROUTERS and peer.counters.paths["probes-answered"] > 0
                assert not peer.counters.failed and not peer.counters.refused["stranger"]
        finally:
            a.close()
            b.close()

    asyncio.run(scene())


@needs_routers
def test_a_silent_router_is_a_gap(routers: Line) -> None:
    routers.silence(3)
    assert routers.silent(3)
    hops = list(_configured(routers, 0, routers.last))
    hops[2] = None  # type: ignore[call-overload]
    found = _trace(routers, 0, routers.last, Prober("0.0.0.0", QUICK).trace)
    assert (list(found.hops), found.reached) == (hops, True)
    assert found.sent >= ROUTERS + QUICK.tries > found.answers


@needs_routers
def test_a_missing_host_ends_the_path(routers: Line) -> None:
    nobody = (routers.address(routers.last, 0).removesuffix(".2") + ".99", PORT)
    with namespaces.inside(routers.names[0]):
        found = Prober("0.0.0.0", QUICK).trace(nobody, threading.Event())
    assert found.hops[0] == routers.address(1, 0) and not found.reached
    with namespaces.inside(routers.names[0]), pytest.raises(OSError, match="unreachable"):
        Prober("0.0.0.0", QUICK).trace(("192.0.2.1", PORT), threading.Event())
