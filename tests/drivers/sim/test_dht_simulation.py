"""The large simulator: the same seed is the same run, everything is counted, and peers come and go."""

import os
import subprocess
import sys
from heapq import heappop, heappush

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cores import pure_only
from tests.drivers.sim.delivery_accounts import account, brute_force
from tests.drivers.sim.echoes import HERE
from tests.drivers.sim.uniform_latencies import UniformLatencies
from tests.errors import raises
from wend.drivers.sim.bucket_agenda import BucketAgenda
from wend.drivers.sim.dht_results import MessageClass
from wend.drivers.sim.dht_simulation import LINKS, DhtConfig, DhtSimulation
from wend.drivers.sim.dht_workload import (
    PeerChange,
    TimedPublication,
    TimedSubscription,
    TimedUnsubscription,
    Workload,
    find_due_pairs,
)
from wend.drivers.sim.latencies import LAN_NS, MAX_LINKS, RouterLatencies, RouterTable
from wend.model.units import MS, SECOND
from wend.topology.routing import shortest_paths
from wend.topology.transit_stub import TransitStub, transit_stub

PEERS = 12
SMALL = TransitStub(transit_domains=3, transit_size=2, stubs=2, stub_size=4)
COPIES = MessageClass(f"{HERE}:Spread", "Copy")
PINGS = MessageClass(f"{HERE}:Echo", "Ping")
BYES = MessageClass(f"{HERE}:Echo", "Bye")


def simulation(workload: Workload, loss: float = 0.0, seed: int = 3, **settings: object) -> DhtSimulation:
    """Everybody knows everybody."""
    config = DhtConfig(
        peers=PEERS, strategy=f"{HERE}:Spread", membership=f"{HERE}:Echo", loss=loss,
        seed=seed, settings=settings,
    )  # fmt: skip
    late = {peer for change in workload.changes if change.what == "join" for peer in change.peers}
    everybody = [(one, [peer for peer in range(PEERS) if peer != one]) for one in range(PEERS) if one not in late]
    return DhtSimulation(config, UniformLatencies(seed), workload, everybody)


def workload(*changes: PeerChange) -> Workload:
    """Every peer wants about half of the events, one subscription ends, one starts late."""
    return Workload(
        [
            *(TimedSubscription(peer * MS, peer, 1, f"x > {peer} and x < {peer + 8}") for peer in range(PEERS)),
            TimedSubscription(1300 * MS, 2, 7, "x >= 0"),
        ],
        [TimedUnsubscription(1500 * MS, 4, 1)],
        [TimedPublication(SECOND + at * 100 * MS, at % 3, {"x": at}) for at in range(20)],
        changes,
    )


def told(run: DhtSimulation) -> tuple[object, ...]:
    """Everything that a run counts."""
    found = run.results
    rows = [found.deliveries.column(name).tolist() for name in found.deliveries.__slots__]
    counters = (found.drops, found.notices, found.refusals)
    return rows, sorted((*one, str(counts)) for one, counts in found.messages.items()), *map(sorted, counters)


def test_every_event_reaches_those_who_want_it_once() -> None:
    made = workload()
    run = simulation(made)
    results = run.run(10 * SECOND)
    due = find_due_pairs(made, brute_force(made))
    found = account(made, due, results)
    assert (found.due, found.delivered, found.undue, found.repeated) == (len(due.publication), found.due, 0, 0)
    assert found.due > 80
    assert len(results.receipts) == 20
    deliveries = results.deliveries
    latencies = UniformLatencies(3)
    here = there = 0
    for at in range(len(deliveries)):
        event, peer = made.publications[deliveries.publication[at]], deliveries.peer[at]
        assert deliveries.delay_ns[at] == latencies.delay_ns(event.peer, peer)
        assert deliveries.time_ns[at] == event.time_ns + deliveries.delay_ns[at]
        assert deliveries.hops[at] == (0 if peer == event.peer else 1)
        here, there = here + (peer == event.peer), there + (peer != event.peer)
    assert here > 0 < there


def test_messages_are_counted_by_class_with_their_physical_hops() -> None:
    made = workload()
    results = simulation(made).run(10 * SECOND)
    latencies = UniformLatencies(3)
    copies = results.messages[COPIES]
    assert (copies.sent, copies.lost, copies.receiver_down) == (20 * (PEERS - 1), 0, 0)
    assert copies.physical == sum(
        latencies.hops(event.peer, peer) for event in made.publications for peer in range(PEERS)
    )
    acks = results.messages[MessageClass(LINKS, "DirectAck")]
    assert acks.sent == copies.sent
    assert acks.physical == copies.physical
    assert results.total().sent == copies.sent + acks.sent + results.messages[PINGS].sent


def test_what_is_lost_is_counted() -> None:
    made = workload()
    run = simulation(made, loss=0.3)
    results = run.run(60 * SECOND)
    total = results.total()
    assert 0.25 < total.lost / total.sent < 0.35
    copies, acks = results.messages[COPIES], results.messages[MessageClass(LINKS, "DirectAck")]
    assert acks.sent == copies.sent - copies.lost  # every copy that arrived is acknowledged, none is in transit
    assert results.notices["retransmit"] == copies.sent - 20 * (PEERS - 1)
    found = account(made, find_due_pairs(made, brute_force(made)), results)
    assert found.delivered + len(found.missing.publication) == found.due
    assert found.repeated == 0


@pytest.mark.parametrize("until_ns", [2350 * MS, 60 * SECOND])
def test_acks_that_stay_out_of_the_agenda_change_nothing(until_ns: int) -> None:
    quiet = simulation(workload(), loss=0.2)
    all_queued = simulation(workload(PeerChange(100 * SECOND, "crash", (1,))), loss=0.2)  # they may meet a crashed peer
    for run in (quiet, all_queued):
        run.run(until_ns)
    assert told(quiet) == told(all_queued)
    assert quiet.results.in_transit == all_queued.results.in_transit
    assert (quiet.results.in_transit > 0) == (until_ns < SECOND * 60)


def test_a_run_in_stretches_is_the_same_run() -> None:
    whole, stretches = simulation(workload(), loss=0.1), simulation(workload(), loss=0.1)
    whole.run(4005 * MS)
    for until in range(5, 4006, 100):
        stretches.run(until * MS)
    assert told(whole) == told(stretches)
    assert whole.results.in_transit == stretches.results.in_transit > 0
    assert told(simulation(workload(), loss=0.1, seed=4)) != told(whole)


def test_a_crashed_peer_says_and_hears_nothing() -> None:
    made = workload(PeerChange(1850 * MS, "crash", (1, 5)))
    run = simulation(made)
    results = run.run(10 * SECOND)
    assert [peer for peer, up in enumerate(run.peers) if up is None] == [1, 5]
    late = [at for at in range(20) if at % 3 == 1 and made.publications[at].time_ns >= 1850 * MS]
    assert results.unpublished == late
    assert results.messages[COPIES].receiver_down > 0
    found = account(made, find_due_pairs(made, brute_force(made)), results)
    assert (found.delivered, found.undue) == (found.due, 0)
    rows = zip(results.deliveries.time_ns, results.deliveries.peer, strict=True)
    assert max(time for time, peer in rows if peer == 5) < 1850 * MS


def test_a_restarted_peer_finds_what_it_stored_and_subscribes_again() -> None:
    made = workload(PeerChange(1450 * MS, "crash", (5, 6)), PeerChange(1650 * MS, "restart", (5,)))
    run = simulation(made, persistence=True)
    run.run(10 * SECOND)
    again = run.peers[5]
    assert again is not None
    assert again.config.incarnation == 2
    echo = again.plugins[f"{HERE}:Echo"]
    assert echo.recalled == 1  # type: ignore[attr-defined]
    assert len(echo.contacts) == 1  # type: ignore[attr-defined]
    assert run.peers[6] is None
    late = [at for at in range(20) if made.publications[at].time_ns > 1650 * MS and 5 < at < 13]
    rows = zip(run.results.deliveries.publication, run.results.deliveries.peer, strict=True)
    assert {at for at, peer in rows if peer == 5} >= set(late)


def test_a_peer_joins_through_one_live_peer() -> None:
    run = simulation(workload(PeerChange(1450 * MS, "join", (7,))))
    run.run(1400 * MS)
    assert run.peers[7] is None
    run.run(1500 * MS)
    made = run.peers[7]
    assert made is not None
    (contact,) = made.plugins[f"{HERE}:Echo"].contacts  # type: ignore[attr-defined]
    assert run.peers[contact] is not None
    assert made.status().plugins is not None


def test_a_leaving_peer_says_goodbye_and_is_gone_a_little_later() -> None:
    run = simulation(workload(PeerChange(2 * SECOND, "leave", (3,))))
    run.run(3 * SECOND)
    assert run.peers[3] is not None
    run.run(8 * SECOND)
    assert run.peers[3] is None
    assert run.results.messages[BYES].sent == PEERS - 1


@pure_only
def test_everything_sent_arrived_or_is_accounted_for() -> None:
    run = simulation(workload(PeerChange(1450 * MS, "crash", (1, 5))), loss=0.05)
    handled = 0
    for peer in run.peers:
        assert peer is not None
        plain = peer.handle

        def counting(now: int, event: object, plain: object = plain) -> object:
            nonlocal handled
            handled += type(event).__name__ == "Received"
            return plain(now, event)  # type: ignore[operator]

        peer.handle = counting  # type: ignore[method-assign, assignment]
    results = run.run(3005 * MS)
    total = results.total()
    assert total.sent == handled + total.lost + total.receiver_down + results.in_transit
    assert min(handled, total.lost, total.receiver_down, results.in_transit) > 0


RUN = """
from wend.model.units import MS, SECOND
from tests.drivers.sim.test_dht_simulation import PeerChange, simulation, told, workload
changes = PeerChange(1450 * MS, "crash", (1, 5)), PeerChange(1650 * MS, "restart", (5,))
run = simulation(workload(*changes), loss=0.05, persistence=True)
run.run(4 * SECOND)
print(told(run))
"""


def test_two_processes_with_different_hash_seeds_run_the_same_run(pytestconfig: pytest.Config) -> None:
    def printed(hash_seed: str) -> str:
        env = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(["", *sys.path])}
        return subprocess.run(
            [sys.executable, "-c", RUN], env=env, cwd=pytestconfig.rootpath, capture_output=True, text=True, check=True
        ).stdout

    one = printed("1")
    assert len(one) > 1000
    assert one == printed("4242")


def test_latencies_between_routers_are_those_of_the_shortest_paths() -> None:
    underlay = transit_stub(5, SMALL)
    paths = shortest_paths(underlay)
    table = RouterTable(underlay)
    assert np.array_equal(table.paths % MAX_LINKS, paths.hops())
    assert np.abs(table.paths // MAX_LINKS * 1000 - paths.delay_ns).max() <= 500
    latencies = RouterLatencies(table, 60, seed=1)
    assert set(latencies.router.tolist()) <= set(underlay.access().tolist())
    a, b = np.divmod(np.arange(3600), 60)
    assert [latencies.delay_ns(x, y) for x, y in zip(a, b, strict=True)] == latencies.delays_ns(a, b).tolist()
    assert latencies.delay_ns(3, 3) == latencies.hops(3, 3) == 0
    near = next((x, y) for x in range(60) for y in range(x) if latencies.router[x] == latencies.router[y])
    assert latencies.delay_ns(*near) == 2 * LAN_NS
    assert latencies.hops(*near) == 2


def test_uniform_latencies_are_symmetric_and_within_their_range() -> None:
    latencies = UniformLatencies(9, 5 * MS, 7 * MS)
    found = [latencies.delay_ns(a, b) for a in range(40) for b in range(a)]
    assert min(found) >= 5 * MS
    assert max(found) <= 7 * MS
    assert len(set(found)) > 700
    assert latencies.delay_ns(3, 8) == latencies.delay_ns(8, 3) != UniformLatencies(10, 5 * MS, 7 * MS).delay_ns(3, 8)


@pytest.mark.parametrize(
    ("made", "sentence"),
    [
        (Workload([TimedSubscription(0, 12, 1, "x = 1")]), "there is no peer 12 among 12"),
        (Workload([TimedSubscription(0, 1, 1, "x = 1")] * 2), "peer 1 has two subscriptions with the number 1"),
        (Workload([], [TimedUnsubscription(0, 1, 1)]), "peer 1 has no subscription 1 to end"),
        (Workload([], [], [TimedPublication(0, -1, {})]), "there is no peer -1 among 12"),
        (Workload([], [], [], [PeerChange(0, "crash", (99,))]), "there is no peer 99 among 12"),
    ],
)
def test_a_workload_that_cannot_be_played_is_refused(made: Workload, sentence: str) -> None:
    with raises("invalid-setting", match=sentence):
        simulation(made)


def test_an_invalid_configuration_is_refused() -> None:
    with raises("invalid-setting", match="at least one peer"):
        DhtConfig(peers=0, strategy="dcrd")
    with raises("invalid-setting", match="loss must lie in"):
        DhtConfig(peers=1, strategy="dcrd", loss=1.0)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3), st.integers(0, 1 << 22)), max_size=60))
def test_the_agenda_has_the_order_of_one_heap(entries: list[tuple[int, int, int]]) -> None:
    """Entries come in while others leave, some of them for the present."""
    agenda, heap = BucketAgenda(), []  # type: ignore[var-annotated]
    now = 0
    for number, (leave, kind, later) in enumerate(entries, 1):
        agenda.push(now + later, kind, number % 7, None)
        heappush(heap, (now + later, kind, number, number % 7, None))
        assert agenda.count_entries(kind) == sum(entry[1] == kind for entry in heap)
        for _ in range(leave if leave < 4 else 0):
            until = now + (1 << 20)
            expected = heappop(heap) if heap and heap[0][0] <= until else None
            assert agenda.pop(until) == expected
            now = expected[0] if expected else until
    while heap:
        assert agenda.pop(heap[0][0] - 1) is None
        assert agenda.pop(heap[0][0]) == heappop(heap)
    assert agenda.pop(1 << 60) is None
