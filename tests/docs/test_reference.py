"""The reference pages follow from the code, and name everything that peers and drivers count."""

import ast
import asyncio
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

import wend
from tests.cores import pure_only
from tests.drivers.live import datagrams
from wend.drivers.live.access.grants import DENIALS
from wend.drivers.live.addressing.address_book import Unidentified
from wend.drivers.live.config import load_peer_file
from wend.drivers.live.counters import FAILURES
from wend.drivers.live.process import PeerProcess
from wend.drivers.live.transport import wire
from wend.protocol import notices
from wend.protocol.messages import ACKS, HELLOS, Ack
from wend.protocol.notices import DROPS, NOTICES, REFUSALS, DropCode, NoticeName, RefusalCode
from wend.strategies.registry import PLUGINS

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "wend"
NOTICES_PAGE = (ROOT / "docs" / "reference" / "notices.md").read_text()
WIRE_PAGE = (ROOT / "docs" / "reference" / "wire-format.md").read_text()


def section(title: str) -> str:
    return NOTICES_PAGE.split(f"## {title}\n")[1].split("\n## ")[0]


@pure_only
def test_the_generated_files_are_up_to_date() -> None:
    script = [sys.executable, "scripts/reference.py", "--check"]
    done = subprocess.run(script, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


# ---------------------------------------------------------------- notices and counters


def test_every_notice_has_its_row() -> None:
    rows = re.findall(r"^\| `(.+?)` \| (.+?)(?: Counted by .+\.)? \|$", section("Notices"), re.MULTILINE)
    assert rows == list(NOTICES.items())


def test_remarks_are_about_notices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "scripts")
    from reference_pages.notices import COUNTED_BY

    assert COUNTED_BY.keys() <= NOTICES.keys()


def test_every_drop_and_refusal_has_its_row() -> None:
    rows = re.findall(r"^\| `(.+?)` \| (.+) \|$", section("Drops"), re.MULTILINE)
    assert rows == list(DROPS.items())
    rows = re.findall(r"^\| `(.+?)` \| (.+) \|$", section("Refusals"), re.MULTILINE)
    assert rows == list(REFUSALS.items())


LIVE = re.findall(r"^\| `(.+?)` \| .+ \|$", section("Counters of the live driver"), re.MULTILINE)
OTHER = re.findall(r"^\| `(.+?)` \| .+ \|$", section("Counters of the simulator and of `wend up`"), re.MULTILINE)
COMPUTED = {"drops.queue-full", "drops.peer-queue-full", "notices.queue-full", "notices.queue-full-again"}
COMPUTED |= {"drops.queue-delay", "notices.background-packets", "notices.refused-corrupted"}
"""Counters whose names stand in no one place (`drivers/sim/capacity.py`, `drivers/sim/disturbances.py`)."""


def test_every_counter_of_drivers_has_its_row() -> None:
    packages = (SOURCE / "drivers", SOURCE / "security")
    trees = [ast.parse(path.read_text()) for package in packages for path in sorted(package.rglob("*.py"))]
    found = {one for tree in trees for one in counted(tree)}
    found |= {f"refused.{reason}" for reason in (*get_args(Unidentified), *get_args(wire.Fault))}
    found |= {"published", "delivered", "late", "subscriptions", "in_flight", "waiting"}
    found |= {"data", "data_unicast", f"control.{ACKS}", f"control.{HELLOS}", "control.flooded"}
    found |= {"shaper.lost", "shaper.corrupted"}
    found |= {f"clients.{denial}" for denial in DENIALS} | {f"failed.{code}" for code in FAILURES}
    assert {*LIVE, *OTHER} == found | COMPUTED
    assert len(LIVE) == len(set(LIVE)) and len(OTHER) == len(set(OTHER))
    assert "flooded" in PLUGINS["interest"]


def counted(tree: ast.AST) -> Iterator[str]:
    """`counters.refused["stale"] += 1` -> refused.stale, `self._broker.counts["silent"] += 1` -> clients.silent"""
    kinds = {"notices": "notices", "refused": "refused", "failed": "failed", "counts": "clients", "_counts": "paths"}
    kinds["paths"] = "paths"
    for node in ast.walk(tree):
        match node:
            case ast.AugAssign(
                target=ast.Subscript(value=ast.Attribute(attr=kind), slice=ast.Constant(value=str(what)))
            ) if kind in kinds:
                yield f"{kinds[kind]}.{what}"


def test_every_key_of_a_live_peer_is_on_the_page(tmp_path: Path) -> None:
    example = (ROOT / "examples" / "peer.toml").read_text()
    file = tmp_path / "peer.toml"
    file.write_text(re.sub(r"127\.0\.0\.1:770[01]", "127.0.0.1:0", example))

    async def ask() -> dict[str, int]:
        peer = PeerProcess(load_peer_file(file))
        await peer.start()
        try:
            url = f"wend://127.0.0.1:{peer.listener.address[1]}"
            async with wend.connect(url) as client, client.subscribe("topic = 'a'"):
                await client.publish({"topic": "a"})
                return (await client.status()).flat()
        finally:
            await peer.stop()

    keys = asyncio.run(ask())
    assert {"data", "control.link-state", "clients.now", "links.2", "shaper.lost"} <= keys.keys()
    plugins = [name for table in PLUGINS.values() for name in table]
    known = {*LIVE, "links.2", "links.3", *(f"control.{name}" for name in plugins)}
    known |= {f"notices.{what}" for what in NOTICES} | {f"drops.{why}" for why in DROPS}
    assert sorted(keys.keys() - known) == []


# ---------------------------------------------------------------- the wire format


def test_the_header_is_as_drawn() -> None:
    open_page = WIRE_PAGE.split("## Sessions\n")[0]
    rows = re.findall(r"^\| (\d+) \| (\d+) \| (\w+) \|", open_page, re.MULTILINE)
    assert [name for _, _, name in rows] == ["magic", "version", "kind", "sender", "receiver", "incarnation"]
    made = wire.make_header(sender=1, receiver=2, incarnation=3)
    for (offset, size, _), value in zip(rows[1:], (wire.VERSION, 0, 1, 2, 3), strict=True):
        assert int.from_bytes(made[int(offset) : int(offset) + int(size)]) == value
    assert sum(int(size) for _, size, _ in rows) == len(made) == wire.HEADER_BYTES


def test_the_bytes_on_the_page_are_read_as_it_says() -> None:
    (datagram,) = (bytes.fromhex(line) for line in re.findall(r"^ {4}([0-9a-f ]+)$", WIRE_PAGE, re.MULTILINE))
    assert datagrams.decode(datagram) == ((1, 2, 3), Ack(7))


def test_every_message_is_on_the_page() -> None:
    for table in PLUGINS.values():
        for name, made in table.items():
            assert made.messages is None or f"`{name}`" in WIRE_PAGE
            for message in get_args(made.messages) or ([made.messages] if made.messages else []):
                name, tag = message.__name__, message.__struct_config__.tag
                assert f"| `{name}` | `{tag}` |" in WIRE_PAGE or f"`{tag}` {name}" in WIRE_PAGE


def test_every_struct_has_a_meaning() -> None:
    rows = [line for line in WIRE_PAGE.splitlines() if line.startswith("| `")]
    assert len(rows) > 20
    assert [row for row in rows if row.endswith("|  |")] == []


@pytest.mark.parametrize("page", ["wire-format", "client-protocol"])
def test_every_type_of_a_field_is_defined(page: str) -> None:
    text = (ROOT / "docs" / "reference" / f"{page}.md").read_text()
    fields = [
        cells[2] for row in re.findall(r"^\| (`\w+` .*) \|$", text, re.MULTILINE) if len(cells := row.split(" | ")) > 3
    ]
    named = {word for cell in fields for word in re.findall(r"\b[A-Z][a-z]\w+", re.sub(r"`\w+`", "", cell))}
    defined = {*re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE), "StatusSnapshot", "Event", "Range"}
    assert named and named <= defined


# ---------------------------------------------------------------- the names themselves


@pytest.mark.parametrize(("words", "sentences"), [(NoticeName, NOTICES), (DropCode, DROPS), (RefusalCode, REFUSALS)])
def test_each_word_has_one_sentence(words: object, sentences: dict[str, str]) -> None:
    assert tuple(sentences) == get_args(words)
    assert [s for s in sentences.values() if not re.fullmatch(r"[A-Z][^.]*\.", s)] == []
    assert len(set(sentences.values())) == len(sentences)


def test_codes_are_spelt_alike() -> None:
    codes = [*NOTICES, *DROPS, *REFUSALS]
    assert [code for code in codes if not re.fullmatch(r"[a-z]+(-[a-z]+)*", code)] == []


def test_every_counter_of_a_driver_can_be_a_metric_label(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "scripts")
    from reference_pages.notices import LIVE, SIMULATED

    assert [name for name in (*LIVE, *SIMULATED) if not re.fullmatch(r"[a-z]+([._-][a-z]+)*", name)] == []


def test_nothing_is_declared_that_no_peer_says() -> None:
    named = {value: name for name, value in vars(notices).items() if name.isupper() and isinstance(value, str)}
    said: set[object] = set()
    used: set[str] = set()
    for path in (*sorted((SOURCE / "protocol").rglob("*.py")), *sorted((SOURCE / "strategies").rglob("*.py"))):
        if path.name != "notices.py":
            nodes = list(ast.walk(ast.parse(path.read_text())))
            said |= {node.value for node in nodes if isinstance(node, ast.Constant)}
            used |= {node.id for node in nodes if isinstance(node, ast.Name)}
    words = (*get_args(NoticeName), *get_args(DropCode), *get_args(RefusalCode))
    assert [word for word in words if word not in said and named.get(word) not in used] == []
