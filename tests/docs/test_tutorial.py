"""The tutorial: its commands are run in their order, as processes, and print what the page says."""

import re
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from tests.docs.pages import FENCED, files_of, read
from tests.ports import free_ports

PAGE = "docs/tutorial.md"
COMMAND = re.compile(r"^\$ (.*)\n((?:[^$].*\n)*)", re.MULTILINE)
"""A command, and what it prints."""
PORTS = ("7700", "7701", "7710", "7711")
SECONDS = 60
"""How long a line may take to appear on a busy machine."""


def pattern(line: str) -> re.Pattern[str]:
    """What a line of output looks like. Ids, ages and counters differ from run to run; the state of a link does not."""
    text = re.sub(r"\s+", " ", line.strip())
    escaped = re.escape(text).replace(r"\ ", r"\s+")
    if re.fullmatch(r"published \d+", text):
        return re.compile("published\\s+[1-9]\\d*")
    if text.startswith("published"):
        return re.compile(re.sub(r"1\\\.\d+\\\.\d+", r"1\\.\\d+\\.\\d+", escaped))
    if text.endswith("ms)") or text.endswith("late)"):
        return re.compile(re.sub(r"\\\(\d+\\\.\d", r"\\(\\d+\\.\\d", escaped))
    if re.fullmatch(r"(data|control acks|notices .*|stored|link-up) \d+", text):
        return re.compile(re.sub(r"\d+$", "[1-9]\\\\d*", re.sub(r"^notices\\s\+", "", escaped)))
    return re.compile(escaped)


class Terminal:
    """A command that goes on running, and what it has printed."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self._printed: list[str] = []
        self._more = threading.Condition()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with suppress(ValueError):  # the test has ended, and closed the pipe
            for line in self._process.stdout:
                with self._more:
                    self._printed.append(line)
                    self._more.notify()

    def wait_for(self, line: str) -> None:
        with self._more:
            shown = self._more.wait_for(lambda: any(pattern(line).fullmatch(p.strip()) for p in self._printed), SECONDS)
            assert shown, f"{line!r} is not in\n{''.join(self._printed)}"


@contextmanager
def running(words: list[str], folder: Path) -> Iterator[Terminal]:
    with subprocess.Popen(words, cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        try:
            yield Terminal(process)
        finally:
            process.terminate()


def finished(words: list[str], expected: list[str], folder: Path) -> None:
    """Run a command to its end; `wend status` again until it shows what is expected."""
    end = time.monotonic() + SECONDS
    while True:
        done = subprocess.run(words, cwd=folder, text=True, capture_output=True, timeout=SECONDS, check=False)
        assert done.returncode == 0, done.stderr
        missing = [line for line in expected if not pattern(line).search(done.stdout)]
        if not missing:
            return
        assert "status" in words and time.monotonic() < end, f"{missing} not in\n{done.stdout}"


def program(words: list[str]) -> list[str]:
    return [sys.executable, *({"wend": ["-m", "wend.console.app"], "python": []}[words[0]]), *words[1:]]


def test_the_tutorial_does_what_it_says(tmp_path: Path) -> None:
    ports = dict(zip(PORTS, free_ports(len(PORTS)), strict=True))

    def local(text: str) -> str:
        return re.sub(r"127\.0\.0\.1:(\d+)", lambda found: f"127.0.0.1:{ports[found[1]]}", text)

    for name, text in files_of(PAGE).items():
        (tmp_path / name).write_text(local(text))
    default = f"wend://127.0.0.1:{ports['7700']}"
    run = 0
    with ExitStack() as terminals:
        last: Terminal | None = None
        for kind, block in FENCED.findall(local(read(PAGE))):
            if kind == "text":
                assert last is not None
                last.wait_for(block)
            for command, output in COMMAND.findall(block) if kind == "console" else []:
                words = shlex.split(command)
                expected = [line for line in output.splitlines() if line.strip()]
                run += 1
                if words[:2] in (["wend", "peer"], ["wend", "sub"]):
                    last = terminals.enter_context(running(program(words), tmp_path))
                    for line in expected:
                        last.wait_for(line)
                else:
                    there = ["--peer", default] if words[0] == "wend" else []
                    finished([*program([*words[:2], *there, *words[2:]])], expected, tmp_path)
    assert run == len(re.findall(r"^\$ ", read(PAGE), re.MULTILINE)) >= 9
