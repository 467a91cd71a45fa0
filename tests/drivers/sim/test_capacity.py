"""Links and peers with capacities: what queues, what is dropped, and that nothing is lost silently."""

from collections import Counter
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cores import pure_only
from tests.errors import raises
from wend.drivers.scenarios import Scenario, make_scenario
from wend.drivers.sim import simulate
from wend.drivers.sim.capacity import DropTailQueue
from wend.drivers.sim.checks import check
from wend.drivers.sim.drop_ledger import PEER_BUSY, QUEUE_FULL
from wend.drivers.sim.run import play_world
from wend.drivers.world import build_world
from wend.model.units import MS, SECOND, Nanos
from wend.protocol.peer import Peer
from wend.protocol.ports import Deliver, Input
from wend.protocol.timers import Effects
from wend.strategies.registry import linked_strategies
from wend.topology.faults import Intervals

TWO = Scenario(
    strategy="d-tree", topology="full-mesh", peers=2, topics=1, popularity=(1.0, 1.0), pf=0.0, pl=0.0, rate=10.0,
    duration="4s", drain="5s",
)  # fmt: skip

BUSY = Scenario(
    strategy="d-tree", peers=12, degree=4, topics=6, popularity=(0.5, 0.9), pf=0.0, pl=0.0, rate=10.0,
    duration="5s", drain="10s", link_capacity="12msg/s", queue=5,
)  # fmt: skip


class Slow:
    """The same queue, played step by step: each limit works off what waits for it, in order."""

    def __init__(self, msgs: float, bps: float, queue_msgs: int) -> None:
        self.costs = (0 if msgs == inf else int(SECOND / msgs), bps)
        self.room = queue_msgs + 1
        self.inside: list[tuple[int, int]] = []

    def enter(self, now: int, parts: int, bits: int) -> int | None:
        if sum(max(through) > now for through in self.inside) >= self.room:
            return None
        before = self.inside[-1] if self.inside else (0, 0)
        work = (self.costs[0] // parts, int(bits * SECOND / self.costs[1]))
        self.inside.append((max(now, before[0]) + work[0], max(now, before[1]) + work[1]))
        return max(self.inside[-1])


@given(
    msgs=st.sampled_from([inf, 10.0, 33.0]),
    bps=st.sampled_from([inf, 1e3, 1e4]),
    room=st.integers(0, 4),
    packets=st.lists(st.tuples(st.integers(0, 120), st.integers(1, 3), st.integers(0, 2000)), max_size=40),
)
def test_a_queue_does_what_one_played_step_by_step_does(
    msgs: float, bps: float, room: int, packets: list[tuple[int, int, int]]
) -> None:
    queue, slow = DropTailQueue(msgs, bps, room), Slow(msgs, bps, room)
    now = 0
    for wait_ms, parts, bits in packets:
        now += wait_ms * MS
        assert queue.add_packet(now, parts, bits) == slow.enter(now, parts, bits)


def test_a_packet_takes_the_time_of_its_message_and_the_delay() -> None:
    outcome = simulate(TWO.with_(link_capacity="20msg/s"))
    delay = outcome.world.overlay.links[0].delay_ns
    assert set(outcome.trace.deliveries.column("delay_ns")) == {delay + SECOND // 20}
    outcome = simulate(TWO.with_(link_capacity="100kbit/s", payload_bytes=250))
    assert set(outcome.trace.deliveries.column("delay_ns")) == {delay + 20 * MS}


def test_a_link_that_is_offered_too_much_delivers_its_capacity_and_drops_the_rest() -> None:
    outcome = simulate(TWO.with_(link_capacity="5msg/s", queue=3))
    summary = outcome.summary
    dropped = summary.drops[QUEUE_FULL]
    assert summary.delivered + dropped == summary.publications == 40
    assert summary.delivered == 20 + 3  # what fits into four seconds, and what waits at their end
    rows = list(outcome.trace.drops.rows())
    full = [row for row in rows if row[-1] == QUEUE_FULL]
    assert len(full) == dropped
    # the sender learns of it as of any loss, by the ACK that does not come; that it gives up then is no other drop
    assert Counter(row[-1] for row in rows) == summary.drops == summary.missing == {QUEUE_FULL: dropped}


@pytest.mark.parametrize("limit", [{"link_capacity": "5msg/s"}, {"peer_capacity": "5msg/s"}])
@pytest.mark.parametrize("payload_bytes", [0, 3000])
def test_a_destination_that_a_queue_drops_again_and_again_is_counted_once(
    limit: dict[str, str], payload_bytes: int
) -> None:
    crowd = TWO.with_(**limit, peers=3, topics=3, queue=1, transmissions=3, payload_bytes=payload_bytes)
    outcome = simulate(crowd)
    rows = [row[2:6] for row in outcome.trace.drops.rows()]
    assert len(rows) == len(set(rows)) == sum(outcome.summary.drops.values())
    delivered = {row[1:5] for row in outcome.trace.deliveries.rows()}
    assert len(delivered | set(rows)) == outcome.summary.expected
    assert sum(outcome.summary.missing.values()) == len(set(rows) - delivered) > 0
    assert outcome.summary.notices[f"{QUEUE_FULL if 'link_capacity' in limit else PEER_BUSY}-again"] > 0


def test_a_peer_with_one_link_drops_and_delays_as_the_link_would() -> None:
    link = simulate(TWO.with_(link_capacity="5msg/s", queue=3))
    peer = simulate(TWO.with_(peer_capacity="5msg/s", queue=3))
    assert list(peer.trace.deliveries.rows()) == list(link.trace.deliveries.rows())
    assert peer.summary.drops == {PEER_BUSY: link.summary.drops[QUEUE_FULL]}


def test_what_only_queues_is_not_sent_again() -> None:
    summary = simulate(TWO.with_(link_capacity="9msg/s", transmissions=3, ack="round-trip")).summary
    assert summary.drops == {} and summary.delivery == 1.0
    assert summary.data_packets == summary.publications


def test_directions_do_not_disturb_each_other() -> None:
    both = TWO.with_(topics=2, link_capacity="11msg/s", queue=0)
    assert simulate(both).summary.drops == {}


def test_a_peer_takes_in_only_so_much_from_all_its_links() -> None:
    star = Scenario(
        strategy="d-tree", topology="full-mesh", peers=4, topics=4, popularity=(1.0, 1.0), pf=0.0, pl=0.0, rate=10.0,
        duration="4s", drain="10s",
    )  # fmt: skip
    assert simulate(star.with_(peer_capacity="31msg/s", queue=4)).summary.drops == {}
    outcome = simulate(star.with_(peer_capacity="15msg/s", queue=4))
    summary = outcome.summary
    assert summary.delivered + summary.drops[PEER_BUSY] == summary.expected
    assert summary.delivered == pytest.approx(4 * (4 * 15 + 5), rel=0.05)
    rows = [row for row in outcome.trace.drops.rows() if row[-1] == PEER_BUSY]
    assert len(rows) == summary.drops[PEER_BUSY]


def test_a_peer_as_wide_as_its_links_never_drops() -> None:
    wide = BUSY.with_(link_capacity="40msg/s", peer_capacity="links", queue=40)
    assert simulate(wide).summary.drops == {}
    with raises("invalid-setting", match="is the sum of the links' capacities: give a link_capacity"):
        BUSY.with_(link_capacity=None, peer_capacity="links")


@pytest.mark.parametrize("strategy", sorted(linked_strategies()))
def test_promises_hold_on_links_that_drop(strategy: str) -> None:
    outcome = simulate(BUSY.with_(strategy=strategy, peer_capacity="60msg/s"))
    assert outcome.summary.drops[QUEUE_FULL] > 0
    assert check(outcome) == []


def test_large_events_are_charged_once_as_a_message_and_by_their_bits() -> None:
    large = TWO.with_(payload_bytes=3000, rate=4.0, queue=8)
    assert simulate(large.with_(link_capacity="5msg/s")).summary.delivery == 1.0
    assert simulate(large.with_(link_capacity="100kbit/s")).summary.delivery == 1.0
    full = simulate(large.with_(link_capacity="60kbit/s", queue=4, transmissions=1))
    assert full.summary.drops[QUEUE_FULL] > 0


def test_acks_and_control_are_charged_only_if_asked() -> None:
    data = simulate(BUSY.with_(charge="data")).summary
    everything = simulate(BUSY.with_(charge="all")).summary
    assert QUEUE_FULL not in data.notices
    assert everything.notices[QUEUE_FULL] > 0  # ACKs that were dropped
    assert everything.delivered < data.delivered


def test_a_crash_empties_the_queue_of_a_peer() -> None:
    crash = {"up": {"kind": "fixed", "mean_s": 2.0}, "down": {"kind": "fixed", "mean_s": 0.05}}
    scenario = make_scenario(
        {"strategy": "d-tree", "topology": "full-mesh", "peers": 3, "topics": 3, "popularity": (1.0, 1.0), "pf": 0.0,
         "pl": 0.0, "rate": 20.0, "duration": "4s", "peer_capacity": "25msg/s", "queue": 50,
         "peer_outages": crash}
    )  # fmt: skip
    outcome = simulate(scenario)
    assert check(outcome) == []
    assert outcome.summary.delivery < 1.0


@pytest.mark.parametrize("back_s", [0.5, 100.0])
def test_a_crash_empties_the_queues_of_the_links_from_a_peer(back_s: float) -> None:
    world = build_world(TWO.with_(link_capacity="2msg/s", queue=64, trace_level="hops", drain="30s", factor=1e5))
    dead = world.topics[0].publisher
    crash, back = world.begin_ns + 2 * SECOND, world.begin_ns + 2 * SECOND + round(back_s * SECOND)
    world.peer_faults = Intervals(2, [(dead, crash, back)])
    outcome = play_world(world)
    hops = list(outcome.trace.hops.rows())
    assert [row for row in hops if row[0] <= crash]
    assert not [row for row in hops if crash < row[0] <= back]
    after = [row for row in hops if row[0] > back]
    published = {row[1:4]: row[0] for row in outcome.trace.publications.rows()}
    assert all(published[row[3:6]] > back for row in after) and bool(after) == (back_s < 1)
    assert not after or after[0][0] == published[after[0][3:6]] + SECOND // 2  # the queue began anew


@pytest.mark.parametrize("strategy", ["adaptive", "multipath"])
def test_nobody_is_notified_twice_though_copies_queue_while_it_restarts(strategy: str) -> None:
    crash = {"up": {"kind": "exponential", "mean_s": 1.5}, "down": {"kind": "exponential", "mean_s": 0.05}}
    scenario = make_scenario(
        {"strategy": strategy, "peers": 6, "degree": 3, "topics": 4, "popularity": (1.0, 1.0), "pf": 0.0, "pl": 0.0,
         "rate": 2.0, "duration": "5s", "drain": "8s", "link_capacity": "6msg/s", "peer_capacity": "20msg/s",
         "queue": 32, "peer_outages": crash}
    )  # fmt: skip
    outcome = simulate(scenario)
    assert outcome.summary.drops["before-incarnation"] > 0
    assert check(outcome) == []


@pure_only
def test_a_packet_is_as_old_as_it_is_though_it_queued(monkeypatch: pytest.MonkeyPatch) -> None:
    ages = []
    handle = Peer.handle

    def noting(peer: Peer, now: Nanos, event: Input) -> Effects:
        effects = handle(peer, now, event)
        ages.extend(effect.age_ns for effect in effects if isinstance(effect, Deliver))
        return effects

    monkeypatch.setattr(Peer, "handle", noting)
    for size in (100, 3000):
        ages.clear()
        busy = TWO.with_(link_capacity="200kbit/s", peer_capacity="8msg/s", queue=9, payload_bytes=size, rate=12.0)
        delays = simulate(busy).trace.deliveries.column("delay_ns")
        assert ages == list(delays)
        assert max(ages) > 2 * min(ages)


def test_a_map_binds_only_where_the_scenario_says_so(tmp_path: object) -> None:
    path = f"{tmp_path}/map.graphml"
    with open(path, "w", encoding="utf-8") as file:
        file.write(
            '<graphml xmlns="http://graphml.graphdrawing.org/xmlns">'
            '<key id="c" for="all" attr.name="capacity" attr.type="string"/><graph edgedefault="undirected">'
            '<node id="a"><data key="c">9kbit/s</data></node><node id="b"/><node id="c"/>'
            '<edge source="a" target="b"><data key="c">3msg/s</data></edge><edge source="b" target="c"/>'
            "</graph></graphml>"
        )
    free = TWO.with_(topology=path)
    assert not build_world(free).has_capacities
    assert [link.capacity_msgs for link in build_world(free.with_(link_capacity="stated")).overlay.links] == [3.0, inf]
    assert [link.capacity_msgs for link in build_world(free.with_(link_capacity="7")).overlay.links] == [3.0, 7.0]
    with raises("invalid-setting", match="states no capacities: give a rate"):
        build_world(TWO.with_(link_capacity="stated"))
    assert build_world(free.with_(peer_capacity="stated")).peer_capacity == ((inf, 9e3), (inf, inf), (inf, inf))
    assert build_world(free.with_(peer_capacity="5", link_capacity="7")).peer_capacity == (
        (inf, 9e3),
        (5.0, inf),
        (5.0, inf),
    )
    assert build_world(free.with_(peer_capacity="links", link_capacity="7")).peer_capacity == (
        (inf, 9e3),
        (10.0, inf),
        (7.0, inf),
    )
    with raises("invalid-setting", match="states no capacities of peers"):
        build_world(TWO.with_(peer_capacity="stated"))


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"link_capacity": "fast"}, "capacity is 'stated' or a rate: cannot read 'fast' as a rate"),
        ({"link_capacity": "0"}, "capacity must be above 0, got 0"),
        ({"link_capacity": "-3msg/s"}, "capacity must be above 0"),
        ({"peer_capacity": "fast"}, "peer_capacity is 'stated', 'links' or a rate: cannot read 'fast' as a rate"),
        ({"peer_capacity": "0bit/s"}, "peer_capacity must be above 0"),
        ({"queue": -1}, "queue must be at least 0, got -1"),
        ({"charge": "acks"}, "charge must be data or all, got 'acks'"),
    ],
)
def test_what_cannot_work_is_one_sentence(fields: dict[str, object], sentence: str) -> None:
    with raises("invalid-setting", match=sentence):
        make_scenario(fields)


def test_the_oracle_says_that_it_knows_no_capacities() -> None:
    with raises("invalid-setting", match="oracle knows no capacities"):
        simulate(BUSY.with_(strategy="oracle"))
