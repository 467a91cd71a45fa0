"""The automaton of a link: the transitions are those of its drawing, and only the link itself makes them."""

import ast
import re
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path

import pytest

import wend
from tests.cores import pure_only
from wend.model.units import MS
from wend.protocol.config import PeerConfig
from wend.protocol.link.detection_time import DetectionTime
from wend.protocol.link.estimator import LinkEstimator
from wend.protocol.link.hello_plan import HelloPlan
from wend.protocol.link.link import Link, NeighbourState
from wend.protocol.link.unanswered import UnansweredPackets
from wend.protocol.messages import Hello

SOURCE = Path(wend.__file__).parent
DRAWING = (
    ast.get_docstring(ast.parse((SOURCE / "protocol" / "link" / "link.py").read_text(encoding="utf-8")), False) or ""
)
PARTS = {
    "link": Link, "estimator": LinkEstimator, "hello_plan": HelloPlan, "detection_time": DetectionTime,
    "unanswered": UnansweredPackets,
}  # fmt: skip
"""A link and its parts, by file."""
HOME = {f"protocol/link/{name}.py" for name in PARTS}
FIELDS = {field for part in PARTS.values() for field in getattr(part, "__slots__", ())}
OTHERS = {("strategies/clusters/membership/detector.py", "heard_ns"), ("strategies/tdo/handshake.py", "path")}
"""Fields of other objects that have the name of one of a link's."""
OF_EVERY_PACKET = {
    *(("protocol/peer.py", field) for field in ("heard_ns", "sent_ns")),
    ("protocol/link/hellos.py", "sent_ns"),
    *(("protocol/link/retransmission.py", field) for field in ("sent_ns", "transmitted", "answers")),
}
"""Times and counters that others set for every packet, because a call for each is slow."""

STEPS: dict[str, tuple[Callable[[Link], object], ...]] = {
    "begin_incarnation": (lambda link: link.begin_incarnation(link.incarnation + 1),),
    "restore": (Link.restore,),
    "clear_suspicion": (Link.clear_suspicion,),
    "on_hello": (lambda link: link.on_hello(Hello(1, True)), lambda link: link.on_hello(Hello(1, False, 7 * MS))),
    "on_not_hearing": (Link.on_not_hearing,),
    "end": (Link.end,),
    "record_heard": (lambda link: link.record_heard(7),),
    "record_sent": (lambda link: link.record_sent(7),),
    "record_transmission": (lambda link: link.record_transmission(7),),
    "on_pause": (lambda link: link.on_pause(9, 5),),
    "on_ack": (Link.on_ack,),
    "on_timeout": (Link.on_timeout,),
    "on_give_up": (Link.on_give_up,),
    "on_control_given_up": (Link.on_control_given_up,),
    "declare_down": (Link.declare_down,),
    "record_hello": (lambda link: link.record_hello(5, MS, True), lambda link: link.record_hello(5, MS, False)),
    "record_ack": (lambda link: link.record_ack(30 * MS, False),),
    "end_period": (Link.end_period,),
    "discount_losses": (Link.discount_losses,),
    "set_path": (lambda link: link.set_path((1, 2)),),
    "on_announced_silence": (lambda link: link.on_announced_silence(9 * MS),),
}
"""Every method that changes a link."""

Transition = tuple[str, str, str]


def fresh() -> Link:
    return Link(1, 10 * MS, 1.0, PeerConfig(peer=0, estimator="nominal"))


def key(link: Link) -> tuple[object, ...]:
    return (
        link.is_up,
        link.heard_by_neighbour,
        link.suspected,
        link.hellos.reports_silence,
        link.missed,
        link.incarnation > 0,
    )


def made() -> set[Transition]:
    """All transitions, by trying every method in every state that can be reached."""
    todo, known, found = [fresh()], {key(fresh())}, set[Transition]()
    while todo:
        before = todo.pop()
        for name, steps in STEPS.items():
            for step in steps:
                after = deepcopy(before)
                step(after)
                if after.state is not before.state:
                    found.add((before.state.value, after.state.value, name))
                if key(after) not in known:
                    known.add(key(after))
                    todo.append(after)
    return found


def drawn() -> set[Transition]:
    """The table in the docstring."""
    states = "|".join(state.value for state in NeighbourState)
    rows = re.findall(rf"^    ({states}) +({states}) +(\w+)", DRAWING, re.MULTILINE)
    return set(rows)


@pure_only  # it copies links
def test_the_transitions_are_those_of_the_table() -> None:
    assert made() == drawn()


@pure_only
def test_every_method_that_changes_a_link_was_tried() -> None:
    reads = {"state", "is_working", "is_heard", "queue_ns", "price_ns", "spread_ns", "needs_probe"}
    assert {name for name in vars(Link) if not name.startswith("_")} - set(Link.__slots__) - reads == set(STEPS)


def test_every_state_is_drawn_and_reached() -> None:
    table = drawn()
    assert {state.value for state in NeighbourState} == {a for a, _, _ in table} == {b for _, b, _ in table}


@pytest.mark.parametrize("silent", [True, False])
def test_a_packet_ends_an_outage_unless_the_neighbour_does_not_hear_this_peer(silent: bool) -> None:
    link = fresh()
    link.begin_incarnation(1)
    if not silent:
        link.on_hello(Hello(1, False))
    assert link.declare_down()
    assert not link.declare_down(), "it is known"
    assert link.restore() == silent
    assert link.state is (NeighbourState.SUSPECTED if silent else NeighbourState.ONE_WAY)
    link.on_ack()
    assert link.restore() != silent
    assert not link.clear_suspicion()
    assert link.state is NeighbourState.UP


def test_the_same_hello_is_news_again_after_an_ack_contradicted_it() -> None:
    link, silent = fresh(), Hello(1, False)
    link.begin_incarnation(1)
    assert link.on_hello(silent)
    assert link.last_hello is silent, "so a repetition changes nothing"
    link.on_ack()
    assert link.last_hello is None
    assert link.on_hello(silent)


def test_a_plan_of_hellos_is_void_after_every_change_that_it_depends_on() -> None:
    for change in (
        Link.declare_down,
        Link.end_period,
        lambda link: link.hellos.discard(),
        lambda link: link.record_hello(5, MS, True),
    ):
        link = Link(1, 10 * MS, 1.0, PeerConfig(peer=0, estimator="measured"))
        link.hellos.set(mode := object(), 3, 1, 2, 1, 2)
        assert link.hellos.mode is mode
        change(link)
        assert link.hellos.mode is None
    link.declare_down()
    link.hellos.set(object(), 3, 1, 2, 1, 2)
    assert link.restore()
    assert link.hellos.mode is None


def test_a_neighbour_that_missed_control_is_found_out_once() -> None:
    link = fresh()
    link.on_give_up()
    link.on_control_given_up()
    assert link.declare_down()
    assert not link.clear_suspicion(), "not before the link is back"
    assert link.missed
    assert link.restore()
    assert link.clear_suspicion()
    assert not link.clear_suspicion()
    assert (link.unanswered.fails, link.suspected, link.missed) == (0, False, False)


# ---------------------------------------------------------------- nobody else changes a link


def assignments(source: str) -> list[tuple[int, str]]:
    """Attributes that a file assigns to something other than `self`, by line: also in tuples, and by setattr."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
            if not (isinstance(node.value, ast.Name) and node.value.id == "self"):
                found.append((node.lineno, node.attr))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "setattr":
            name = node.args[1] if len(node.args) > 1 else None
            if isinstance(name, ast.Constant):
                found.append((node.lineno, str(name.value)))
    return found


def meddling(source: str) -> list[tuple[int, str]]:
    return [(line, name) for line, name in assignments(source) if name in FIELDS]


@pure_only
def test_no_other_file_changes_a_link() -> None:
    files = {
        path.relative_to(SOURCE).as_posix(): path
        for package in ("protocol", "strategies")
        for path in sorted((SOURCE / package).rglob("*.py"))
    }
    assert set(files) > HOME
    found = {name: meddling(path.read_text(encoding="utf-8")) for name, path in files.items() if name not in HOME}
    assert {(file, field) for file, lines in found.items() for _, field in lines} == OTHERS | OF_EVERY_PACKET


@pure_only
@pytest.mark.parametrize(
    "source",
    ["link.is_up = False", "link.unanswered.fails += 1", "self._links[peer].path = path", "a, link.missed = 1, True",
     "setattr(link, 'suspected', True)", "for link.is_up in (True,): pass", "link.estimator.srtt_ns = 3",
     "del link.is_up", "link.sent_ns = now"],
)  # fmt: skip
def test_the_checker_sees_who_changes_a_link(source: str) -> None:
    assert len(meddling(source)) == 1
    assert meddling("self.up = True") == []
