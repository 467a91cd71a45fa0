"""The page on history: its peer runs, its commands print what it says, and so do its lines of Python."""

import asyncio
import inspect
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.console.calls import wend
from tests.docs.pages import blocks, files_of
from wend.drivers.live.config import load_peer_file
from wend.drivers.live.process import PeerProcess

PAGE = "docs/history.md"
COMMAND = re.compile(r"^\$ wend (.*)\n((?:[^$].*\n)*)", re.MULTILINE)
PRINTS = re.compile(r"^ *print\(.*\)  # (.*)$", re.MULTILINE)
VARYING = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z|\d+ B|\s+")
TOP_LEVEL_AWAIT = 0x2000  # ast.PyCF_ALLOW_TOP_LEVEL_AWAIT


def fixed(text: str) -> str:
    """The part of a command's output that does not differ from run to run."""
    return VARYING.sub(" ", text).strip()


def test_the_page_prints_what_it_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "peer.toml"
    file.write_text(re.sub(r"127\.0\.0\.1:770[01]", "127.0.0.1:0", files_of(PAGE)["peer.toml"]))
    commands = [found for block in blocks(PAGE, "console") for found in COMMAND.findall(block)]
    lines = [block for block in blocks(PAGE, "python") if "#" in block]
    assert len(commands) == 6
    printed: list[str] = []

    async def play() -> None:
        peer = PeerProcess(load_peer_file(file))
        await peer.start()
        url = f"wend://127.0.0.1:{peer.listener.address[1]}"
        names: dict[str, Any] = {}
        try:
            for words, said in commands:
                done = await asyncio.to_thread(wend, *shlex.split(words), "--peer", url)
                assert done.returncode == 0, done.stderr
                if said:
                    assert fixed(done.stdout) == fixed(said)
            for block in lines:
                code = compile(block.replace("wend://127.0.0.1:7700", url), PAGE, "exec", TOP_LEVEL_AWAIT)
                found = eval(code, names)
                if inspect.iscoroutine(found):
                    await found
        finally:
            await peer.stop()

    asyncio.run(play())
    printed = capsys.readouterr().out.splitlines()
    assert printed == [line for block in lines for line in PRINTS.findall(block)]
    assert len(printed) == 3
