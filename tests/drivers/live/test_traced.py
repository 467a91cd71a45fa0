"""Traces as paths: shared, few at once, remembered, counted; and on real routers where root allows."""

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
from tests.lab.labs import needs
from wend.console.app import app
from wend.drivers.live.addresses import Address
from wend.drivers.live.config import load
from wend.drivers.live.paths import program
from wend.drivers.live.paths.probes import HAS_ERROR_QUEUE, Prober, answer_to
from wend.drivers.live.paths.source import NoPaths, open_paths
from wend.drivers.live.paths.trace import Settings, Traced
from wend.drivers.live.paths.traced import TracedPaths
from wend.drivers.live.peer import LivePeer
from wend.lab import namespaces
from wend.model.errors import ConfigError
from wend.model.units import MINUTE, MS
from wend.protocol.config import PeerConfig
from wend.protocol.membership.shape import OverlaySettings
from wend.protocol.ports import Neighbour, PathFound, Started

GOOD = Traced(("10.0.0.1", "10.0.1.1"), True, 3, 3)
HOLED = Traced(("10.0.0.1", None), True, 5, 2)
PORT = 7000
QUICK = Settings(wait_ns=300 * MS, tries=2)


class Traces:
    """Traces that last until they are let go."""

    def __init__(self, *answers: Traced | Exception) -> None:
        self.answers = list(answers)
        self.go = threading.Event()
        self.running = self.most = 0
        self._lock = threading.Lock()

    def __call__(self, target: Address, stopped: threading.Event) -> Traced:
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


def test_who_asks_meanwhile_gets_the_same_answer_and_few_are_under_way_at_once() -> None:
    async def scene() -> None:
        traces, counts = Traces(*[GOOD] * 5), Counter[str]()
        paths = TracedPaths(traces, MINUTE, counts, at_once=2)
        asked = [asyncio.create_task(paths.find(0, peer % 5, (f"10.9.9.{peer % 5}", 1))) for peer in range(15)]
        await until(lambda: traces.running == 2)
        traces.go.set()
        assert await asyncio.gather(*asked) == [GOOD.hops] * 15
        assert traces.most == 2 and counts["traces"] == 5 and counts["probes"] == counts["answers"] == 15
        paths.close()

    asyncio.run(scene())


def test_a_path_is_remembered_and_one_with_holes_less_long() -> None:
    async def scene() -> None:
        now, counts = [0], Counter[str]()
        traces = Traces(GOOD, HOLED, GOOD, OSError("no way"))
        traces.go.set()
        paths = TracedPaths(traces, 10 * MINUTE, counts, clock=lambda: now[0])

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
        assert await find() is None  # a failure is an answer too, and is remembered as such
        assert await find() is None
        assert counts["failed"] == 1 and counts["traces"] == 4 and counts["silent"] == 1 and counts["remembered"] == 2
        paths.close()

    asyncio.run(scene())


def test_what_a_closed_peer_no_longer_wants_is_not_measured() -> None:
    async def scene() -> None:
        traces, counts = Traces(GOOD, GOOD), Counter[str]()
        paths = TracedPaths(traces, MINUTE, counts, at_once=1)
        asked = [asyncio.create_task(paths.find(0, peer, (f"10.9.9.{peer}", 1))) for peer in (1, 2)]
        await until(lambda: traces.running == 1)
        paths.close()
        traces.go.set()
        assert await asked[0] == GOOD.hops
        with pytest.raises(asyncio.CancelledError):
            await asked[1]
        assert len(traces.answers) == 1

    asyncio.run(scene())


@pytest.mark.parametrize("answer", [GOOD, OSError("no way")])
def test_a_peer_is_told_whatever_comes_back(answer: Traced | Exception) -> None:
    told: list[PathFound] = []

    async def scene() -> None:
        traces = Traces(answer)
        traces.go.set()
        peer = LivePeer(PeerConfig(peer=0), paths=TracedPaths(traces, MINUTE, Counter()))
        peer.link(1, ("127.0.0.1", 9))
        peer.start(Started((Neighbour(1, MS),)))
        peer._tell = lambda event: told.append(event) if isinstance(event, PathFound) else None  # type: ignore[assignment,method-assign,func-returns-value]
        for other in (1, 2):  # of the second only rumours are known
            peer._find_path(PathFound(other, None))  # type: ignore[arg-type]
        await until(lambda: len(told) == 2)
        peer.close()

    asyncio.run(scene())
    assert {found.peer: found.path for found in told} == {1: GOOD.hops if answer is GOOD else None, 2: None}


# ---------------------------------------------------------------- the choice


def test_paths_are_chosen_by_word_or_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "trace").write_text("1 2 r1\n")

    def kind(name: str) -> type:
        return type(open_paths(name, ("127.0.0.1", 1), MINUTE, Counter()))

    assert [kind(name) for name in ("none", "trace")] == [NoPaths, TracedPaths]
    assert kind(str(tmp_path / "trace")).__name__ == "PathBook"
    with pytest.raises(ConfigError, match="cannot read the paths in tracing"):
        kind("tracing")
    monkeypatch.setattr(program, "where", lambda: None)
    with pytest.raises(ConfigError, match="no program called traceroute"):
        kind("traceroute")


@pytest.mark.parametrize(("line", "paths"), [('paths = "trace"', "trace"), ('paths = "./trace"', "/trace"), ("", None)])
def test_a_word_is_no_file_beside_the_configuration(tmp_path: Path, line: str, paths: str | None) -> None:
    (tmp_path / "peer.toml").write_text(f"id = 1\n{line}\n")
    found = load(tmp_path / "peer.toml").paths
    assert found == (f"{tmp_path}{paths}" if paths == "/trace" else paths)


def test_a_mistake_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "peer.toml").write_text('id = 1\nlisten = "127.0.0.1:0"\nclients = "127.0.0.1:0"\n')
    done = CliRunner().invoke(app, ["peer", "--config", str(tmp_path / "peer.toml"), "--paths", "nix"])
    assert isinstance(done.exception, ConfigError)
    assert str(done.exception) == "cannot read the paths in nix: No such file or directory"
    (tmp_path / "peer.toml").write_text('id = 1\npaths_age = "0s"\n')
    with pytest.raises(ConfigError, match="paths_age must be above 0"):
        load(tmp_path / "peer.toml")


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
def test_nonsense_from_the_target_is_no_answer() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as there:
        there.bind(("127.0.0.1", 0))
        there.settimeout(0.1)
        stopped = threading.Event()

        def babble() -> None:
            while not stopped.is_set():
                with suppress(TimeoutError):
                    probe, sender = there.recvfrom(99)
                    answer = answer_to(memoryview(probe))
                    assert answer is not None
                    for wrong in (b"", probe, answer[:-1], answer + b"x", answer[:8] + bytes(6) + answer[14:]):
                        there.sendto(wrong, sender)

        thread = threading.Thread(target=babble)
        thread.start()
        found = Prober("127.0.0.1", QUICK).trace(there.getsockname(), threading.Event())
        stopped.set()
        thread.join()
    assert found.sent == QUICK.gap * QUICK.tries and not found.answers and not found.reached


@pytest.mark.skipif(not HAS_ERROR_QUEUE, reason="sockets of this system have no error queue")
def test_who_no_longer_wants_to_know_does_not_wait() -> None:
    stopped = threading.Event()
    stopped.set()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        assert not Prober("127.0.0.1").trace(silent.getsockname(), stopped).sent


# ---------------------------------------------------------------- on real routers


ROUTERS = 5


@pytest.fixture(scope="module")
def way() -> Iterator[Line]:
    with line(ROUTERS) as made:
        yield made


def _trace(way: Line, here: int, there: int, how: Callable[[Address, threading.Event], Traced]) -> Traced:
    with namespaces.inside(way.names[here]):
        return how((way.address(there, here), PORT), threading.Event())


def _configured(way: Line, here: int, there: int) -> tuple[str, ...]:
    step = 1 if there > here else -1
    return tuple(way.address(router, here) for router in range(here + step, there, step))


@needs_routers
def test_the_path_found_is_the_path_configured(way: Line) -> None:
    for here, there in ((0, way.last), (way.last, 0), (0, 1), (2, 4)):
        found = _trace(way, here, there, Prober("0.0.0.0").trace)
        assert (found.hops, found.reached) == (_configured(way, here, there), True)


@needs_routers
@needs("traceroute")
def test_the_program_finds_the_same(way: Line) -> None:
    found = _trace(way, 0, way.last, program.trace)
    assert (found.hops, found.reached) == (_configured(way, 0, way.last), True)


@needs_routers
def test_live_peers_measure_the_way_to_each_other(way: Line) -> None:
    """Each listens where it is probed, so nobody is unreachable: the peers themselves say that they are reached."""

    def at(node: int, other: int) -> tuple[LivePeer, list[PathFound]]:
        told: list[PathFound] = []
        prober = Prober(way.address(node, other), QUICK)

        def trace(target: Address, stopped: threading.Event) -> Traced:
            with namespaces.inside(way.names[node]):  # the thread is nobody's until then
                return prober.trace(target, stopped)

        config = PeerConfig(peer=node, overlay="tdo-random", overlay_settings=OverlaySettings(k=1, period_ns=50 * MS))
        with namespaces.inside(way.names[node]):
            counts = Counter[str]()
            peer = LivePeer(
                config,
                listen=(way.address(node, other), PORT),
                insecure=True,
                paths=TracedPaths(trace, MINUTE, counts),
            )
        peer.counters.paths = counts
        tell = peer._tell

        def listen(event: object) -> None:
            if isinstance(event, PathFound):
                told.append(event)
            tell(event)  # type: ignore[arg-type]

        peer._tell = listen  # type: ignore[assignment]
        return peer, told

    async def scene() -> None:
        (a, a_told), (b, b_told) = at(0, way.last), at(way.last, 0)
        a.link(b.id, b.address)
        b.link(a.id, a.address)
        try:
            a.start(Started((Neighbour(b.id, MS),)))
            b.start(Started((Neighbour(a.id, MS),)))
            await until(lambda: bool(a_told and b_told))
            assert a_told[0] == PathFound(b.id, _configured(way, 0, way.last))
            assert b_told[0] == PathFound(a.id, _configured(way, way.last, 0))
            await until(lambda: len(a.standing()) > 0)
            for peer in (a, b):
                assert peer.counters.paths["named"] == ROUTERS and peer.counters.paths["probes answered"] > 0
                assert not peer.counters.failed and not peer.counters.refused["stranger"]
        finally:
            a.close()
            b.close()

    asyncio.run(scene())


@needs_routers
def test_a_router_that_says_nothing_is_a_hole(way: Line) -> None:
    way.silence(3)
    assert way.silent(3)
    hops = list(_configured(way, 0, way.last))
    hops[2] = None  # type: ignore[call-overload]
    found = _trace(way, 0, way.last, Prober("0.0.0.0", QUICK).trace)
    assert (list(found.hops), found.reached) == (hops, True)
    assert found.sent >= ROUTERS + QUICK.tries > found.answers


@needs_routers
def test_a_host_that_is_not_there_ends_the_path(way: Line) -> None:
    nobody = (way.address(way.last, 0).removesuffix(".2") + ".99", PORT)
    with namespaces.inside(way.names[0]):
        found = Prober("0.0.0.0", QUICK).trace(nobody, threading.Event())
    assert found.hops[0] == way.address(1, 0) and not found.reached
    with namespaces.inside(way.names[0]), pytest.raises(OSError, match="unreachable"):
        Prober("0.0.0.0", QUICK).trace(("192.0.2.1", PORT), threading.Event())
