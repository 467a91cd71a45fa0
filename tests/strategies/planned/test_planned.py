"""Peers that follow a plan: how events are dealt out, where packets go, and what a switch of plans does."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from tests.plans import Arcs, Flow, plan_of
from tests.protocol.talk import GRAPH, A, B, C, D, S, ScriptedMembership, T, Talk, event, tx
from wend.model import files
from wend.model.errors import ConfigError
from wend.model.events import EventId, PeerId
from wend.model.forwarding import Forwarding, read_forwarding
from wend.model.plan import TABLES, fingerprint
from wend.model.publication import Publication
from wend.model.units import MS
from wend.protocol.messages import Ack, Data
from wend.protocol.notices import MISFIT, REFUSED
from wend.protocol.plugins.copy_ranks import fork
from wend.protocol.ports import Drop, Effect, Notice, PathFound, Planned, Received, Refuse, Send, Woken
from wend.strategies.multipath.plugin import SourceRoutes
from wend.strategies.planned.delivery import LINGER_NS, PlanLabel
from wend.strategies.planned.plugin import PlannedRouting
from wend.strategies.planned.shares import ShareScheduler
from wend.strategies.registry import MEMBERSHIP

OVER_C: Arcs = [(A, C), (C, S)]
OVER_D: Arcs = [(A, D), (D, S)]
B_TO_BOTH: Arcs = [(B, A), (A, C), (C, S), (C, T)]


def plan_for(*flows: Flow) -> Forwarding:
    return Forwarding(plan_of(6, GRAPH, *flows))


HALVES: Flow = (A, (S,), 10.0, [(0.5, OVER_C), (0.5, OVER_D)])
BOTH: Flow = (B, (S, T), 1.0, [(1.0, B_TO_BOTH)])
HALF: Flow = (A, (T,), 20.0, [(0.5, [(A, C), (C, T)])])


def sent(effects: list[Effect]) -> list[tuple[PeerId, tuple[PeerId, ...], PlanLabel | None]]:
    return [
        (e.peer, e.message.dests, e.message.header)
        for e in effects
        if isinstance(e, Send) and isinstance(e.message, Data)
    ]


# ---------------------------------------------------------------- dealing


@given(
    weights=st.lists(st.integers(1, 50), min_size=1, max_size=6),
    refused=st.sampled_from([0.0, 0.1, 0.5, 0.93]),
    events=st.integers(1, 300),
)
def test_every_graph_has_its_share_to_within_one_event_at_all_times(
    weights: list[int], refused: float, events: int
) -> None:
    shares = [(1 - refused) * w / sum(weights) for w in weights]
    deal = ShareScheduler(tuple(enumerate(shares)))
    counts: dict[int | None, int] = {}
    for step in range(1, events + 1):
        got = deal.choose_graph()
        counts[got] = counts.get(got, 0) + 1
        for graph, share in (*enumerate(shares), (None, refused)):
            assert abs(counts.get(graph, 0) - share * step) < 1


def test_a_flow_that_the_plan_carries_in_no_part_is_refused() -> None:
    assert [ShareScheduler(()).choose_graph() for _ in range(3)] == [None] * 3


# ---------------------------------------------------------------- where packets go


def test_a_publisher_deals_its_events_out_in_the_plans_shares() -> None:
    talk = Talk("planned", wants=(S,))
    talk.peer.handle(0, Planned(plan_for(HALVES)))
    hops = [hop for n in range(6) for hop, *_ in sent(talk.peer.handle(n * MS, Publication({"topic": "t"})))]
    assert sorted(hops) == [C, C, C, D, D, D]
    assert hops[0] != hops[1]  # by turns


def test_a_peer_copies_only_where_routes_part_and_passes_the_label_on() -> None:
    forwarding = plan_for(BOTH)
    talk = Talk("planned")
    talk.peer.handle(0, Planned(forwarding))
    label = PlanLabel(forwarding.id, 0)
    packet = Data(tx(50), event(), 0, (S, T), (B,), label)
    answer = talk.peer.handle(0, Received(B, packet))
    assert sent(answer) == [(C, (S, T), label)]
    assert Send(B, Ack(tx(50))) in answer


def test_a_packet_that_came_back_goes_on_as_a_new_copy() -> None:
    """Its earlier copy may be acknowledged after it came back. That ACK must not end what is owed for the new one."""
    talk = Talk("planned")
    (forwarded,) = [
        effect.message
        for effect in talk.peer.handle(0, Received(B, Data(tx(50), event(), 0, (S,), (A, B))))
        if isinstance(effect, Send) and isinstance(effect.message, Data)
    ]
    assert forwarded.ranks == (fork(0, A),)


def test_what_the_plan_does_not_admit_is_refused_and_said() -> None:
    talk = Talk("planned", wants=(T,))
    talk.peer.handle(0, Planned(plan_for(HALF)))
    effects = [e for n in range(10) for e in talk.peer.handle(n * MS, Publication({"topic": "t"}))]
    assert len(sent(effects)) == 5
    drops = [e for e in effects if isinstance(e, Drop)]
    assert len(drops) == 5 and {d.code for d in drops} == {REFUSED} and {d.dests for d in drops} == {(T,)}


def test_a_peer_with_persistence_does_not_answer_for_what_is_refused() -> None:
    talk = Talk("planned", wants=(T,), persistence=True)
    talk.peer.handle(0, Planned(plan_for(HALF)))
    refused = [
        e.id for n in range(4) for e in talk.peer.handle(n * MS, Publication({"topic": "t"})) if isinstance(e, Drop)
    ]
    assert refused
    assert talk.peer.responsible_ids, "but for what the plan admits"
    assert not set(refused) & (talk.peer.unfinished() | set(talk.peer.responsible_ids))


@pytest.mark.parametrize("told", [False, True])
def test_an_event_that_no_flow_fits_takes_the_shortest_route(told: bool) -> None:
    talk = Talk("planned", wants=(S, T))
    if told:
        talk.peer.handle(0, Planned(plan_for(HALVES)))
    effects = talk.peer.handle(0, Publication({"topic": "t"}))
    assert sent(effects) == [(C, (S, T), None)]
    assert (Notice("unplanned", A) in effects) == told


@pytest.mark.parametrize(
    "label", [PlanLabel(1, 0), PlanLabel(-5, 3), PlanLabel(0, 1 << 80), "own plan, graph 99", "own plan, graph -1"]
)
def test_a_packet_of_an_unknown_plan_takes_the_shortest_route(label: PlanLabel | str) -> None:
    forwarding = plan_for(BOTH)
    talk = Talk("planned")
    talk.peer.handle(0, Planned(forwarding))
    if isinstance(label, str):
        label = PlanLabel(forwarding.id, int(label.split()[-1]))
    known = label.plan == forwarding.id
    effects = talk.peer.handle(0, Received(B, Data(tx(50), event(), 0, (S, T), (B,), label)))
    assert sent(effects) == [(C, (S, T), None)]
    assert [e for e in effects if isinstance(e, Notice)] == [Notice("off-plan" if known else "unknown-plan", A)]


@pytest.mark.parametrize("header", [(1,), (1, 2, 3), (1, 0), SourceRoutes(((C, S), (C, T)))])
def test_a_header_that_is_no_label_is_refused(header: object) -> None:
    talk = Talk("planned")
    talk.peer.handle(0, Planned(plan_for(BOTH)))
    packet = Data(tx(50), event(), 0, (S, T), (B,), header)
    assert talk.peer.handle(0, Received(B, packet)) == [Refuse(B, MISFIT)]


def test_a_packet_that_goes_in_circles_is_given_up() -> None:
    talk = Talk("planned")
    effects = talk.peer.handle(0, Received(B, Data(tx(50), event(), 0, (S,), (B, A) * 13)))
    assert Drop(EventId(B, 1, 1), (S,), "routing-loop") in effects and not sent(effects)


# ---------------------------------------------------------------- switching


def test_packets_in_flight_follow_their_plan_and_old_plans_are_forgotten_when_unused() -> None:
    first, second = plan_for(BOTH), plan_for((*BOTH[:2], 2.0, BOTH[3]))
    assert first.id != second.id
    talk = Talk("planned")
    talk.peer.handle(0, Planned(first))
    talk.peer.handle(0, Planned(second))
    strategy = talk.peer.plugins["planned"]
    assert isinstance(strategy, PlannedRouting)
    numbers = iter(range(50, 60))

    def packet(plan: Forwarding, now: int) -> list[Effect]:
        n = next(numbers)
        return talk.peer.handle(now, Received(B, Data(tx(n), event(n), 0, (S, T), (B,), PlanLabel(plan.id, 0))))

    for now in (0, LINGER_NS - 1, 2 * LINGER_NS - 2):
        talk.peer.handle(now, Woken())
        assert [label for *_, label in sent(packet(first, now))] == [PlanLabel(first.id, 0)]
    talk.peer.handle(3 * LINGER_NS, Woken())
    assert strategy.plans == (second.id,)
    assert Notice("unknown-plan", A) in packet(first, 3 * LINGER_NS)


def test_a_plan_that_sends_where_no_link_is_is_refused() -> None:
    plan = Forwarding(plan_of(6, [(A, S), (S, T)], (A, (T,), 1.0, [(1.0, [(A, S), (S, T)])])))
    talk = Talk("planned")
    with pytest.raises(ConfigError, match=r"the plan sends from peer 0 to 4, which is not its neighbour"):
        talk.peer.handle(0, Planned(plan))


def test_a_plan_over_a_link_that_is_no_more_is_left_for_the_shortest_route(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MEMBERSHIP, "scripted", ScriptedMembership)
    talk = Talk("planned", wants=(S,), membership="scripted")
    plan = plan_for(HALVES, BOTH)
    talk.peer.handle(0, Planned(plan))
    assert Notice("unlinked", C) in talk.peer.handle(0, PathFound(C, None))
    published = [talk(0, Publication({"topic": "t"})) for _ in range(2)]
    assert [hop for effects in published for hop, *_ in sent(effects)] == [D, D]
    passed = talk.hear(0, B, Data(tx(9), event(9), 0, (S, T), (B,), PlanLabel(plan.id, 0)))
    assert Notice("off-plan", A) in passed
    assert C not in [hop for hop, *_ in sent(passed)]


# ---------------------------------------------------------------- the tables


def test_the_next_hops_are_those_of_the_graph_walked_by_hand(tmp_path: Path) -> None:
    to_all: Arcs = [(A, B), (A, C), (C, T), (A, D), (D, S)]
    back: Arcs = [(S, C), (C, T), (C, A), (A, B), (A, D)]
    plan = plan_of(6, GRAPH, (A, (B, S, T), 9.0, [(1.0, to_all)]), (S, (B, D, T), 3.0, [(1.0, back)]), HALVES, BOTH)
    plan.write(tmp_path)
    shared = read_forwarding(tmp_path)
    assert shared.id == plan.id
    for peer in range(6):
        alone = read_forwarding(tmp_path, peer=peer)
        assert alone.published_flows(peer) == shared.published_flows(peer) == plan.published_flows(peer)
        for graph in range(plan.head.graphs):
            rows = plan.hops["graph"] == graph
            parent = dict(zip(plan.hops["next"][rows].tolist(), plan.hops["peer"][rows].tolist(), strict=True))
            expected = {}
            for dest in parent:
                here = dest
                while here in parent and parent[here] != peer:
                    here = parent[here]
                if here in parent:
                    expected[dest] = here
            assert alone.hops(peer, graph) == shared.hops(peer, graph) == expected


def test_plans_are_named_by_what_they_make_peers_do() -> None:
    plan = plan_for(HALVES)
    assert plan.id == plan_for(HALVES).id
    assert plan.id != plan_for((*HALVES[:3], [(0.25, OVER_C), (0.75, OVER_D)])).id
    assert plan.id != plan_for((*HALVES[:3], [(0.5, OVER_D), (0.5, OVER_C)])).id


def test_a_plan_for_another_topology_or_peer_is_one_sentence(tmp_path: Path) -> None:
    plan_of(6, GRAPH, HALVES).write(tmp_path)
    with pytest.raises(ConfigError, match="is a plan for another topology"):
        read_forwarding(tmp_path, fingerprint(2, [(0, 1)]))
    with pytest.raises(ConfigError, match="is a plan for 6 peers, and 17 is not one of them"):
        read_forwarding(tmp_path, peer=17)


@pytest.mark.parametrize("name", ["plan.json", *(f"{table}.parquet" for table in TABLES)])
def test_files_of_two_plans_are_no_plan(name: str, tmp_path: Path) -> None:
    """Planned again, flows are often as many as before: only their order tells the two apart."""
    plan_of(6, GRAPH, HALVES, BOTH).write(tmp_path)
    former = (tmp_path / name).read_bytes()
    plan_of(6, GRAPH, BOTH, HALVES).write(tmp_path)
    (tmp_path / name).write_bytes(former)
    with pytest.raises(ConfigError, match=r"is not one plan: plan.json and \w+.parquet belong to different plans"):
        read_forwarding(tmp_path)


def test_a_table_that_was_changed_is_not_followed(tmp_path: Path) -> None:
    plan_of(6, GRAPH, HALVES).write(tmp_path)
    hops = parquet.read_table(tmp_path / "hops.parquet")
    parquet.write_table(hops.slice(1), tmp_path / "hops.parquet")
    with pytest.raises(ConfigError, match="its tables are not those that were planned"):
        read_forwarding(tmp_path)


def test_a_plan_that_cannot_be_written_whole_leaves_the_former(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_of(6, GRAPH, HALVES)
    plan.write(tmp_path)
    files = sorted(tmp_path.iterdir())
    write = parquet.write_table

    def full(table: object, where: Path, **options: object) -> None:
        if "graphs" in where.name:
            raise OSError(28, "No space left on device")
        write(table, where, **options)

    monkeypatch.setattr(parquet, "write_table", full)
    with pytest.raises(ConfigError, match=r"cannot write the plan to .*: No space left on device"):
        plan_of(6, GRAPH, BOTH).write(tmp_path)
    assert read_forwarding(tmp_path).id == plan.id
    assert sorted(tmp_path.iterdir()) == files


@pytest.mark.parametrize("at_once", [True, False])
def test_a_write_that_is_torn_leaves_one_plan_or_the_other(
    at_once: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped before each step that moves something, there is a plan that peers can follow."""
    before, after = plan_of(6, GRAPH, HALVES), plan_of(6, GRAPH, BOTH)
    exchange, replace, steps = files.swap_folders, Path.replace, iter(list[str]())

    def step(move: Callable[..., Any]) -> Callable[..., Any]:
        def moved(*paths: Path) -> Any:
            if next(steps, None) == "stop":
                raise KeyboardInterrupt
            return move(*paths)

        return moved

    monkeypatch.setattr(files, "swap_folders", step(exchange) if at_once else lambda *_: False)
    monkeypatch.setattr(Path, "replace", step(replace))
    found = []
    for number in range(9):
        folder = tmp_path / str(number)
        steps = iter(list[str]())
        before.write(folder)
        steps = iter([*["go"] * number, "stop"])
        with suppress(KeyboardInterrupt):
            after.write(folder)
        found.append(read_forwarding(folder).id)
        assert len(list(tmp_path.iterdir())) == number + 1, "nothing is left beside it"
    assert found[0] == before.id and found[-1] == after.id
    assert set(found) == {before.id, after.id}


def test_only_a_plan_is_written_over(tmp_path: Path) -> None:
    plan_of(6, GRAPH, HALVES).write(tmp_path / "plan")
    (tmp_path / "plan" / "plan.svg").touch()
    plan_of(6, GRAPH, BOTH).write(tmp_path / "plan")
    assert not (tmp_path / "plan" / "plan.svg").exists(), "it showed another plan"
    (tmp_path / "plan" / "thesis.tex").touch()
    with pytest.raises(ConfigError, match=r"it also holds thesis\.tex"):
        plan_of(6, GRAPH, BOTH).write(tmp_path / "plan")
