"""The page on Python: its lines are run beside a peer and print what they say, and it names all there is to name."""

import asyncio
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

import wend
from wend.drivers.live.config import NeighbourEntry, PeerFile, Shape, load_peer_file
from wend.drivers.live.process import PeerProcess
from wend.drivers.settings import peer_settings
from wend.model.settings import declared_settings

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "python.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
PRINTS = re.compile(r"^ *print\(.*\)  # (.*)$", re.MULTILINE)
TOP_LEVEL_AWAIT = 0x2000  # ast.PyCF_ALLOW_TOP_LEVEL_AWAIT


def test_the_lines_print_what_they_say(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    example = (ROOT / "examples" / "peer.toml").read_text()
    file = tmp_path / "peer.toml"
    file.write_text(re.sub(r"127\.0\.0\.1:770[01]", "127.0.0.1:0", example))

    async def play() -> None:
        peer = PeerProcess(load_peer_file(file))
        await peer.start()
        url = f"127.0.0.1:{peer.listener.address[1]}"
        names: dict[str, Any] = {}
        try:
            for block in BLOCKS:
                code = compile(block.replace("127.0.0.1:7700", url), "python.md", "exec", TOP_LEVEL_AWAIT)
                found = eval(code, names)
                if inspect.iscoroutine(found):
                    await found
            await names["client"].close()
        finally:
            await peer.stop()

    asyncio.run(play())
    said = [line for block in BLOCKS for line in PRINTS.findall(block)]
    assert capsys.readouterr().out.splitlines() == said
    assert len(said) == PAGE.count("print(")


def test_the_example_of_a_peer_names_every_field() -> None:
    example = (ROOT / "examples" / "peer.toml").read_text()
    settings = {each.name for each in declared_settings(PeerFile)} | peer_settings().keys() - {"ack"}  # a simulation's
    for name in {*settings, *NeighbourEntry.__struct_fields__, *Shape.__struct_fields__}:
        assert re.search(rf"^(# |\[+)?([a-z]+\.)?{name}( = |\])", example, re.MULTILINE), name


def test_the_page_names_all_that_is_public() -> None:
    listed = PAGE[PAGE.index("## All names") :]
    assert set(re.findall(r"`wend\.(\w+)`", listed)) == set(wend.__all__)


@pytest.mark.parametrize(
    "kind",
    [
        wend.Client,
        wend.EventStream,
        wend.PublishReceipt,
        wend.Arrival,
        wend.EventId,
    ],
)
def test_the_page_names_what_they_offer(kind: type) -> None:
    (row,) = [line for line in PAGE.splitlines() if line.startswith("|") and f"`wend.{kind.__name__}`" in line]
    fields = getattr(kind, "__struct_fields__", getattr(kind, "_fields", ()))
    offered = {*fields} or {name for base in kind.__mro__[:-1] for name in vars(base) if not name.startswith("_")}
    assert offered <= set(re.findall(r"`(\w+)`", row))
