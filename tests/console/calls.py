"""Calls of the `wend` command: as a process, or in this one."""

import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
WEND = [sys.executable, "-m", "wend.console.start"]
COMPILING = "wend: compiling code for its first use; this may take a minute\n"
"""The message of a command that compiles code."""
Said = Callable[..., tuple[object, str, str]]


def wend(*words: str, given: str | None = None, folder: Path | None = None) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*WEND, *words], capture_output=True, text=True, timeout=120, input=given, check=False, cwd=folder
    )


def interruptible() -> None:
    """In the child: accept Ctrl-C, which a background process may have inherited as ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def started(*words: str) -> "Iterator[subprocess.Popen[str]]":
    process = subprocess.Popen(
        [*WEND, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=interruptible,  # noqa: PLW1509
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def lonely(tmp_path: Path, **fields: str) -> Path:
    """A peer without neighbours."""
    all_fields = {"id": "1", "listen": '"127.0.0.1:0"', "clients": '"127.0.0.1:0"'} | fields
    path = tmp_path / "peer.toml"
    path.write_text("\n".join(f"{name} = {value}" for name, value in all_fields.items()))
    return path


@contextmanager
def running_peer(tmp_path: Path) -> "Iterator[tuple[subprocess.Popen[str], str]]":
    with started("peer", "--config", str(lonely(tmp_path))) as process:
        assert process.stdout is not None
        found = re.search(r"clients on (wends?://\S+)", process.stdout.readline())
        assert found is not None
        yield process, found[1]
