"""`wend up`: the table, the object and how it ends."""

import io
import json
import os
import re
import signal
import subprocess

import pytest
from rich.console import Console

from tests.console.calls import WEND, started, wend
from wend.console import up

SMALL = ("--peers", "6", "--degree", "3", "--topics", "3", "--rate", "5", "--strategies", "dcrd,d-tree")


def test_up_ends_with_the_table() -> None:
    ended = wend("up", "--duration", "2", *SMALL)
    assert ended.returncode == 0, ended.stderr
    assert "\x1b" not in ended.stdout
    lines = ended.stdout.splitlines()
    assert lines[0].startswith("6 peers, 9 links")
    for strategy in ("dcrd", "d-tree", "oracle"):
        assert any(line.strip().startswith(strategy) for line in lines)


def test_up_with_more_peers_than_files_is_one_sentence() -> None:
    words = ["bash", "-c", 'ulimit -n 40 && exec "$@"', "-", *WEND, "up", "--duration", "1", "--peers", "30"]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 2
    assert "may not open more files" in ended.stderr and ended.stderr.count("\n") == 1


def test_up_prints_one_object() -> None:
    shown = json.loads(wend("up", "--duration", "2", "--json", "--pf", "0", "--pl", "0", *SMALL).stdout)
    assert set(shown["strategies"]) == {"dcrd", "d-tree", "oracle"}
    for row in shown["strategies"].values():
        assert row["delivery"] == 1.0 and row["expected"] > 0
        assert "delivered-twice" not in row["notices"]
    assert shown["loop_lag_ms"]["max"] >= 0
    assert shown["failed"] == {"dcrd": {}, "d-tree": {}}


def test_ctrl_c_gives_the_summary() -> None:
    with started("up", *SMALL) as process:
        assert process.stderr is not None
        process.stderr.readline()
        process.send_signal(signal.SIGINT)
        shown, _ = process.communicate(timeout=60)
        assert process.returncode == 0
        assert "oracle" in shown


def test_up_on_a_terminal_redraws_and_ends_with_the_table() -> None:
    pty = pytest.importorskip("pty")
    main, side = pty.openpty()
    process = subprocess.Popen([*WEND, "up", "--duration", "1", *SMALL], stdout=side, stderr=side, close_fds=True)
    os.close(side)
    shown = b""
    try:
        while chunk := os.read(main, 65536):
            shown += chunk
    except OSError:
        pass  # the terminal is gone: the process has ended
    assert process.wait() == 0
    assert b"finding routes" in shown and b"oracle" in shown


@pytest.mark.parametrize("width", [200, 80, 60, 40, 20])
def test_the_table_of_up_cuts_no_figure(width: int) -> None:
    line = ("[green]adaptive[/]", "100.00 %", "99.99 %", "12.34", "12345/s", "123 ms", "1234 ms", "12345")
    table, left_out = up._table([line], width)
    console = Console(width=width, file=io.StringIO())
    with console.capture() as shown:
        console.print(table)
    kept = [figure for name, figure in zip(up._HEADS[1:], line[1:], strict=True) if name not in left_out]
    assert re.split(r"  +", shown.get().splitlines()[3].strip()) == ["adaptive", *kept]
    assert ("on time" in left_out, left_out == []) == (False, width >= 80)
