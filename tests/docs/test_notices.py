"""The page on notices has every word that peers and drivers count under, with its sentence, as the code has it."""

import ast
import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

import wend
from wend.drivers.live.address_book import Unidentified
from wend.drivers.live.config import load
from wend.drivers.live.process import PeerService
from wend.protocol import notices
from wend.protocol.messages import CONTROL
from wend.protocol.notices import DROPS, NOTICES, DropReason, NoticeName, RefusalReason

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "notices.md").read_text()
SOURCE = ROOT / "src" / "wend"


def section(title: str) -> str:
    return PAGE.split(f"## {title}\n")[1].split("\n## ")[0]


def test_every_notice_has_its_row() -> None:
    rows = re.findall(r"^\| `(.+?)` \| (.+) \| (.+) \|$", section("Notices"), re.MULTILINE)
    assert [(name, sentence) for name, sentence, _ in rows] == list(NOTICES.items())


def test_every_reason_has_its_row() -> None:
    rows = re.findall(r"^\| `(.+?)` \| (.+) \|$", section("Why an event is dropped"), re.MULTILINE)
    assert rows == list(DROPS.items())
    assert tuple(re.findall(r"^- `(.+)`$", section("What a neighbour did wrong"), re.MULTILINE)) == get_args(
        RefusalReason
    )


def test_what_drivers_count_has_its_row() -> None:
    rows = re.findall(r"^\| `(\w+\..+?)` \| .+ \|$", section("What drivers count"), re.MULTILINE)
    trees = [ast.parse(path.read_text()) for path in sorted((SOURCE / "drivers").rglob("*.py"))]
    refused = {f"refused.{reason}" for reason in get_args(Unidentified)}
    assert set(rows) == refused | {found for tree in trees for found in counted(tree)}
    assert len(rows) == len(set(rows))


def counted(tree: ast.AST) -> Iterator[str]:
    """`counters.refused["stale"] += 1` -> refused.stale"""
    for node in ast.walk(tree):
        match node:
            case ast.AugAssign(
                target=ast.Subscript(
                    value=ast.Attribute(attr="notices" | "refused" | "failed" as kind),
                    slice=ast.Constant(value=str(what)),
                )
            ):
                yield f"{kind}.{what}"


STATUS = re.findall(r"^\| `(.+?)` \| [A-Z1].+ \|$", section("How a peer stands, and what it sent"), re.MULTILINE)


def test_what_status_shows_has_its_row() -> None:
    trees = [ast.parse(path.read_text()) for path in sorted((SOURCE / "drivers" / "live").rglob("*.py"))]
    found = {f"control.{kind}" for kind in CONTROL} | {one for tree in trees for one in shown(tree)}
    standing = {"data", "data_unicast", "links.5", "trees.generation", "trees.caller", "trees.life", "trees.0.5"}
    assert set(STATUS) == found | standing | {"clients.now", "shaper.lost"}
    assert len(STATUS) == len(set(STATUS))


def shown(tree: ast.AST) -> Iterator[str]:
    """`self._broker.counts["silent"] += 1` -> clients.silent, `self._counts["probes"] += 1` -> paths.probes"""
    kinds = {"counts": "clients", "_counts": "paths", "paths": "paths"}
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
        peer = PeerService(load(file))
        await peer.start()
        try:
            url = f"wend://127.0.0.1:{peer.listener.address[1]}"
            async with wend.connect(url) as client, client.subscribe("topic = 'a'"):
                await client.publish({"topic": "a"})
                return (await client.status()).flat()
        finally:
            await peer.stop()

    keys = asyncio.run(ask())
    assert {"data", "control.link_state", "clients.now", "links.2", "shaper.lost"} <= set(keys)
    counted = re.findall(r"^\| `(\w+\..+?)` \|", section("What drivers count"), re.MULTILINE)
    words = [f"notices.{what}" for what in NOTICES] + [f"drops.{why}" for why in DROPS]
    known = [re.sub(r"\\\.\d+", r"\\.\\d+", re.escape(key)) for key in (*STATUS, *counted, *words)]
    assert [key for key in keys if not any(re.fullmatch(each, key) for each in known)] == []


@pytest.mark.parametrize(("words", "sentences"), [(NoticeName, NOTICES), (DropReason, DROPS)])
def test_each_word_has_one_sentence(words: object, sentences: dict[str, str]) -> None:
    assert tuple(sentences) == get_args(words)
    assert [s for s in sentences.values() if not re.fullmatch(r"[A-Z][^.]*\.", s)] == []
    assert len(set(sentences.values())) == len(sentences)


def test_notices_are_spelt_alike() -> None:
    assert [name for name in NOTICES if not re.fullmatch(r"[a-z]+(-[a-z]+)*", name)] == []


def test_nothing_is_declared_that_no_peer_says() -> None:
    named = {value: name for name, value in vars(notices).items() if name.isupper() and isinstance(value, str)}
    said: set[object] = set()
    used: set[str] = set()
    for path in sorted((SOURCE / "protocol").rglob("*.py")):
        if path.name != "notices.py":
            nodes = list(ast.walk(ast.parse(path.read_text())))
            said |= {node.value for node in nodes if isinstance(node, ast.Constant)}
            used |= {node.id for node in nodes if isinstance(node, ast.Name)}
    words = (*get_args(NoticeName), *get_args(DropReason), *get_args(RefusalReason))
    assert [word for word in words if word not in said and named.get(word) not in used] == []
