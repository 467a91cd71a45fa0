"""The traceroute state machine on synthetic paths: routers that answer, silent routers and lost probes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wend.drivers.live.paths import traceroute_program
from wend.drivers.live.paths.probes import PROBE, PROBE_MAGIC, make_probe_answer
from wend.drivers.live.paths.traceroute import TracerouteResult, TracerouteSession, TracerouteSettings
from wend.drivers.live.paths.traceroute_paths import name_routers
from wend.model.paths import UNKNOWN
from wend.model.units import MS

SETTINGS = TracerouteSettings(wait_ns=100 * MS, pace_ns=MS, window=4, tries=2, gap=3, hops=12)


class RouterPath:
    """`routers[i]` answers probes with TTL i + 1, None never does. The target comes after the last router."""

    def __init__(self, routers: list[str | None], rtt: int = 10 * MS, answers: bool = True) -> None:
        self.routers = routers
        self.rtt = rtt
        self.answers = answers
        self.most = 0
        self.asked: list[int] = []

    def walk(
        self, settings: TracerouteSettings = SETTINGS, quotes: bool = True, lost: frozenset[int] = frozenset()
    ) -> TracerouteResult:
        """`quotes`: whether answers show their probe. `lost`: the numbers of lost probes."""
        now, pending = 0, list[tuple[int, int, int]]()
        trace = TracerouteSession(settings, now)
        while True:
            while (probe := trace.next_probe(now)) is not None:
                number, hop = probe
                self.asked.append(hop)
                if number not in lost and self._who(hop) is not None:
                    pending.append((now + self.rtt, number, hop))
                self.most = max(self.most, trace.in_flight)
            if trace.is_done:
                return trace.result()
            now = max(now + 1, min([trace.wake_ns(now), *(at for at, _, _ in pending)]))
            for at, number, hop in [one for one in pending if one[0] <= now]:
                pending.remove((at, number, hop))
                kind = "target" if hop > len(self.routers) else "router"
                trace.on_answer(number if quotes or kind == "target" else None, kind, self._who(hop) or "")

    def _who(self, hop: int) -> str | None:
        if hop <= len(self.routers):
            return self.routers[hop - 1]
        return "target" if self.answers else None


paths = st.lists(st.one_of(st.none(), st.sampled_from("abcdefgh")), max_size=11)


def _longest_gap(routers: list[str | None]) -> int:
    longest = run = 0
    for router in routers:
        run = run + 1 if router is None else 0
        longest = max(longest, run)
    return longest


@given(paths, st.booleans())
def test_the_path_is_found_with_gaps_at_silent_routers(routers: list[str | None], quotes: bool) -> None:
    path = RouterPath(routers)
    found = path.walk(quotes=quotes)
    assert path.most <= SETTINGS.window and max(map(path.asked.count, path.asked)) <= SETTINGS.tries
    if _longest_gap(routers) < SETTINGS.gap:
        if quotes:
            assert found.hops == tuple(routers) and found.reached
        else:  # unquoted answers to the first window are lost; later, one probe at a time is in flight
            assert found.reached and all(a in (b, None) for a, b in zip(found.hops, routers, strict=True))
            assert [a for a in found.hops if a] or not [a for a in routers if a]


@given(paths, st.frozensets(st.integers(0, 30), max_size=6))
def test_lost_probes_may_hide_a_router_but_never_move_one(routers: list[str | None], lost: frozenset[int]) -> None:
    found = RouterPath(routers).walk(lost=lost)
    beyond = [None] * len(found.hops)
    for seen, there in zip(found.hops, [*routers, *beyond], strict=False):
        assert seen is None or seen == there


def test_no_probe_goes_beyond_the_target_or_far_beyond_silent_routers() -> None:
    near = RouterPath(["a", "b"])
    near.walk()
    assert max(near.asked) <= 2 + SETTINGS.window
    silent = RouterPath(["a", "b", *[None] * 9], answers=False)
    assert silent.walk() == TracerouteResult(("a", "b"), False, len(silent.asked), 2)
    assert max(silent.asked) == 2 + SETTINGS.gap


def test_a_late_answer_counts_and_an_impossible_one_does_not() -> None:
    trace = TracerouteSession(SETTINGS, 0)
    assert trace.next_probe(0) == (0, 1) and trace.next_probe(MS) == (1, 2)
    assert trace.next_probe(200 * MS) == (2, 3)  # the first two have timed out
    assert trace.on_answer(0, "router", "a")
    assert not trace.on_answer(7, "router", "x") and not trace.on_answer(-1, "router", "x")
    assert trace.on_answer(1, "target", "t")
    assert trace.is_done and trace.result() == TracerouteResult(("a",), True, 3, 2)


@pytest.mark.parametrize(("kind", "hops"), [("unreachable", ("a", "b")), ("nowhere", ("a",))])
def test_no_probe_goes_beyond_the_end_of_a_path(kind: str, hops: tuple[str, ...]) -> None:
    trace = TracerouteSession(SETTINGS, 0)
    for number in range(3):
        assert trace.next_probe(number * MS) == (number, number + 1)
    trace.on_answer(0, "router", "a")
    trace.on_answer(1, kind, "b")  # type: ignore[arg-type]
    assert trace.next_probe(50 * MS) is None and trace.is_done
    assert trace.result().hops == hops and not trace.result().reached


# ---------------------------------------------------------------- names


@pytest.mark.parametrize(
    ("hops", "target", "path"),
    [
        (["10.0.0.1", "10.0.1.1"], "10.0.2.9", ("10.0.0.1", "10.0.1.1")),  # one private network
        (["192.168.1.1", "62.0.0.1", "62.0.0.2"], "8.8.8.8", ("62.0.0.1", "62.0.0.2")),
        (["192.168.1.1", None, "62.0.0.1", "10.0.0.1", "8.0.0.1"], "8.8.8.8", (None, "62.0.0.1", None, "8.0.0.1")),
        (["100.64.0.1", "62.0.0.1"], "8.8.8.8", ("62.0.0.1",)),  # shared address space of a provider
        (["62.0.0.1", "62.0.0.2", "62.0.0.1"], "8.8.8.8", ("62.0.0.1", "62.0.0.2", None)),
        ([], "10.0.0.9", UNKNOWN),
        (["192.168.1.1"], "8.8.8.8", UNKNOWN),
        (["2a02::1", "fd00::1"], "2a00::9", ("2a02::1", None)),
        (["fe80::1%eth0"], "fd00::2", ("fe80::1%eth0",)),
    ],
)
def test_private_addresses_are_no_names(hops: list[str | None], target: str, path: tuple[str | None, ...]) -> None:
    assert name_routers(TracerouteResult(tuple(hops), True), target) == path


def test_a_path_that_does_not_reach_the_target_ends_with_a_gap() -> None:
    assert name_routers(TracerouteResult(("10.0.0.1",), False), "10.0.2.9") == ("10.0.0.1", None)
    assert name_routers(TracerouteResult((), False), "8.8.8.8") == (None,)


# ---------------------------------------------------------------- formats


@given(st.binary(max_size=40) | st.binary(min_size=PROBE.size - 6, max_size=PROBE.size - 6).map(PROBE_MAGIC.__add__))
def test_an_answer_is_as_long_as_its_probe_and_no_probe_itself(datagram: bytes) -> None:
    answer = make_probe_answer(memoryview(datagram))
    if datagram.startswith(PROBE_MAGIC) and len(datagram) == PROBE.size:
        assert answer is not None and len(answer) == len(datagram)
        assert make_probe_answer(memoryview(answer)) is None
    else:
        assert answer is None


@pytest.mark.parametrize(
    ("said", "hops", "reached"),
    [
        (" 1  10.0.0.1  0.1 ms  0.2 ms\n 2  10.0.9.9  0.3 ms *\n", ("10.0.0.1",), True),
        (" 1  10.0.0.1  0.1 ms 10.0.0.2  0.2 ms\n 2  * * *\n 3  10.0.9.9  9 ms\n", ("10.0.0.1", None), True),
        (" 1  10.0.0.1  0.1 ms\n 2  10.0.1.1  3000 ms !H\n", ("10.0.0.1", "10.0.1.1"), False),
        (" 1  10.0.0.1  0.1 ms\n 2  * * *\n 3  * * *\n", ("10.0.0.1",), False),
        ("", (), False),
        ("99999999999 nothing at all\n 7 10.0.0.1\n\x00\xff", (), False),
    ],
)
def test_the_output_of_the_program_is_parsed(said: str, hops: tuple[str | None, ...], reached: bool) -> None:
    found = traceroute_program.parse_output(
        "traceroute to 10.0.9.9 (10.0.9.9), 30 hops max, 60 byte packets\n" + said, "10.0.9.9"
    )
    assert (found.hops, found.reached) == (hops, reached)
