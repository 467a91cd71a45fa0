"""The page of guarantees: tests prove every fault on it, and its numbers are those of the code."""

import ast
import re
from functools import cache
from pathlib import Path

from wend.drivers.live import peer
from wend.drivers.live.access.source_limits import MAX_CLIENTS
from wend.drivers.live.broker import broker, listener
from wend.drivers.sim.checks import ALWAYS, ONCE_HEALED
from wend.model.events import MAX_ATTRIBUTES, MAX_HEADERS
from wend.model.publication import MAX_ATTRIBUTES_BYTES, MAX_PAYLOAD_BYTES
from wend.model.units import SECOND
from wend.protocol.config import DeliverySettings
from wend.protocol.delivery.late_joiners import HOLD_NS
from wend.protocol.link.window import DuplicateFilter, SequenceWindow
from wend.protocol.notices import AWAY, DROPS
from wend.strategies.subscriptions.summary import SUMMARY_BYTES
from wend.strategies.trees.queue import HOLD_NS as TREE_HOLD_NS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "guarantees.md").read_text()
FAULTS = re.findall(r"^### (.+)$", PAGE, re.MULTILINE)
PROOFS = (ROOT / "docs" / "reference" / "proofs.md").read_text().split("\n## ")[1:]


@cache
def functions_of(path: str) -> set[str]:
    tree = ast.parse((ROOT / "tests" / path).read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_every_fault_has_tests_that_exist() -> None:
    assert len(FAULTS) == 27
    assert sorted(proof.splitlines()[0] for proof in PROOFS) == sorted(FAULTS)
    for proof in PROOFS:
        named = re.findall(r"`([\w/]+\.py)::(\w+)`", proof)
        assert named, proof
        assert [f"{path}::{name}" for path, name in named if name not in functions_of(path)] == []


def test_every_fault_has_a_table() -> None:
    for fault in PAGE.split("\n### ")[1:]:
        assert "\n| | lost | late |" in fault.split("\n## ")[0], fault


def test_the_numbers_are_those_of_the_code() -> None:
    assert f"beyond {listener.QUEUE_MSGS:,} or {listener.QUEUE_BYTES >> 20} MiB".replace(",", " ") in PAGE
    assert (listener.STALL_S, peer.LINGER_S) == (60.0, 0.5)
    assert f"{TREE_HOLD_NS // SECOND} s with `mrst`" in PAGE
    assert f"{HOLD_NS // SECOND} s for subscribers" in " ".join(PAGE.split())
    assert f"each of the {DuplicateFilter().incarnations} publisher" in " ".join(PAGE.split())
    assert f"the last {SequenceWindow().size} events" in PAGE
    assert f"at most {MAX_PAYLOAD_BYTES >> 10} KiB" in PAGE
    assert f"{MAX_ATTRIBUTES} attributes and {MAX_HEADERS} headers" in PAGE
    assert MAX_ATTRIBUTES_BYTES == SUMMARY_BYTES == 48_000 and PAGE.count("48 000 bytes") == 2
    subscriptions = f"{broker.MAX_HANDLES:,} subscriptions".replace(",", " ")
    clients = f"serves at most {MAX_CLIENTS} clients, at most {MAX_CLIENTS * 3 // 4} of them from one address"
    assert clients in " ".join(PAGE.split())
    assert f"at most {subscriptions} each" in " ".join(PAGE.split())
    assert DeliverySettings().grace_ns == 30 * SECOND


def test_the_properties_are_those_that_are_checked() -> None:
    rows = dict(re.findall(r"^\| (\w+) \| .+ \| (.+) \|$", PAGE.split("## What is checked")[1], re.MULTILINE))
    assert {name for name, when in rows.items() if when.startswith("always")} == set(ALWAYS)
    assert {name for name, when in rows.items() if when.startswith("with persistence")} == set(ONCE_HEALED)


def test_the_drop_reasons_that_it_names_exist() -> None:
    for name in ("retry-queue-full", "plan-refused", "beyond-duplicate-filter", AWAY):
        assert f"`{name}`" in PAGE and name in DROPS
    assert "`before-incarnation`" in PAGE and "before-incarnation" in DROPS
