"""`wend up`: its table, its JSON object and its end."""

import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest
from rich.console import Console

from tests.console.calls import WEND, Said, started
from wend.console import up_command
from wend.console.app import main
from wend.model.units import SECOND

SMALL = ("--peers", "6", "--degree", "3", "--topics", "3", "--rate", "5", "--strategies", "dcrd,d-tree")


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Little time before and after the events."""
    monkeypatch.setitem(up_command.LIVE_DEFAULTS, "warmup", round(0.5 * SECOND))
    monkeypatch.setitem(up_command.LIVE_DEFAULTS, "drain", round(0.5 * SECOND))


@pytest.mark.usefixtures("quick")
def test_up_ends_with_the_table(said: Said) -> None:
    code, out, error = said("up", "--duration", "1", *SMALL)
    assert code == 0, error
    assert "\x1b" not in out
    lines = out.splitlines()
    assert lines[0].startswith("6 peers, 9 links")
    assert "On time means within 3 x the shortest delay" in " ".join(out.split())
    for strategy in ("dcrd", "d-tree", "oracle"):
        assert any(line.strip().startswith(strategy) for line in lines)


@pytest.mark.parametrize(
    ("elapsed_s", "stopped", "shown"),
    [
        (7.2, False, "4 s of 8 s"),
        (13.0, False, "8 s of 8 s, waiting for events in transit"),
        (7.2, True, "stopped; waiting for events in transit (Ctrl-C ends it at once)"),
    ],
)
def test_the_progress_of_up_ends_at_the_duration(elapsed_s: float, stopped: bool, shown: str) -> None:
    world = SimpleNamespace(begin_ns=3 * SECOND, scenario=SimpleNamespace(duration_ns=8 * SECOND))
    run = SimpleNamespace(world=world, elapsed_ns=lambda: elapsed_s * SECOND, is_stopped=stopped)
    assert up_command.progress_text(run) == shown  # type: ignore[arg-type]


@pytest.mark.parametrize(("kill", "duration"), [("8", "8"), ("2min", "8s"), ("24h", None)])
def test_a_peer_cannot_be_killed_after_the_end(said: Said, kill: str, duration: str | None) -> None:
    code, out, error = said("up", "--kill", kill, *(() if duration is None else ("--duration", duration)), *SMALL)
    assert (code, out) == (2, "")
    assert f"--kill {kill} is not before the end" in error and error.count("\n") == 1


def test_up_with_more_peers_than_files_is_one_sentence() -> None:
    words = ["bash", "-c", 'ulimit -n 40 && exec "$@"', "-", *WEND, "up", "--duration", "1", "--peers", "30"]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 2
    assert "may not open more files" in ended.stderr and ended.stderr.count("\n") == 1


def test_up_prints_one_object(said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(up_command.LIVE_DEFAULTS, "warmup", round(1.5 * SECOND))
    monkeypatch.setitem(up_command.LIVE_DEFAULTS, "drain", round(1.0 * SECOND))
    shown = json.loads(said("up", "--duration", "1", "--json", "--pf", "0", "--pl", "0", *SMALL)[1])
    assert set(shown["strategies"]) == {"dcrd", "d-tree", "oracle"}
    for row in shown["strategies"].values():
        assert row["delivery"] == 1.0 and row["expected"] > 0
        assert "delivered-twice" not in row["notices"]
    assert shown["loop_lag_ms"]["max"] >= 0
    assert shown["failed"] == {"dcrd": {}, "d-tree": {}}
    assert shown["sealed"] == {"dcrd": True, "d-tree": True}


def test_ctrl_c_gives_the_summary() -> None:
    with started("up", *SMALL) as process:
        assert process.stderr is not None
        process.stderr.readline()
        process.send_signal(signal.SIGINT)
        shown, _ = process.communicate(timeout=60)
        assert process.returncode == 0
        assert "oracle" in shown


@pytest.mark.usefixtures("quick")
def test_up_on_a_terminal_redraws_and_ends_with_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    pty = pytest.importorskip("pty")
    near, far = pty.openpty()
    shown: list[bytes] = []

    def read() -> None:
        try:
            while chunk := os.read(near, 65536):
                shown.append(chunk)
        except OSError:
            pass  # the far end is closed

    reader = threading.Thread(target=read)
    reader.start()
    monkeypatch.setattr(sys, "argv", ["wend", "up", "--duration", "1", *SMALL])
    with monkeypatch.context() as patch, os.fdopen(far, "w") as terminal, pytest.raises(SystemExit) as ended:
        patch.setenv("TERM", "xterm")
        patch.setattr(sys, "stdout", terminal)
        main()
    reader.join()
    os.close(near)
    assert not ended.value.code
    assert b"finding routes" in b"".join(shown) and b"oracle" in b"".join(shown)


@pytest.mark.parametrize("width", [200, 80, 60, 40, 20])
def test_the_table_of_up_shows_whole_columns(width: int) -> None:
    line = ("[green]adaptive[/]", "100.00 %", "99.99 %", "12.34", "12345/s", "123 ms", "1234 ms", "12345")
    table, left_out = up_command.comparison_table([line], width)
    console = Console(width=width, file=io.StringIO())
    with console.capture() as shown:
        console.print(table)
    columns = [text for name, text in zip(up_command.HEADS[1:], line[1:], strict=True) if name not in left_out]
    assert re.split(r"  +", shown.get().splitlines()[3].strip()) == ["adaptive", *columns]
    assert ("on time" in left_out, left_out == []) == (False, width >= 80)
