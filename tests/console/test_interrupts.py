"""Ctrl-C in the first moments of a command, while it imports modules, ends it quietly."""

import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.console.calls import ROOT

PROGRAM = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "{module}":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
from wend.console.start import main
sys.argv = ["wend", "status"]
main()
"""


@pytest.mark.parametrize("module", ["typer", "wend.console.app", "wend.console.peer_options", "uvloop"])
def test_ctrl_c_during_an_import_is_quiet(module: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(module=module)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")


def test_the_command_starts_where_ctrl_c_is_handled() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["scripts"] == {"wend": "wend.console.start:main"}


def test_the_start_imports_next_to_nothing() -> None:
    """Ctrl-C before the handler exists prints a traceback, so it must exist within a few milliseconds."""
    program = "import sys; before = {*sys.modules}; import wend.console.start; print(*sorted({*sys.modules} - before))"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout.split() == ["wend", "wend.console", "wend.console.start", "wend.model", "wend.model.version"]


TERMINABLE = """
import sys
from pathlib import Path
import typer
from wend.console.terminal import stop_on_signals
from wend.model.files import new_folder

def work():
    with stop_on_signals("nothing was written"), new_folder(Path("out")) as (draft, scratch):
        draft.mkdir()
        (draft / "half").write_text("written")
        print("ready", flush=True)
        sys.stdin.read()

app = typer.Typer()
app.command()(work)
app([])
"""


def test_sigterm_leaves_no_half_written_folder(tmp_path: Path) -> None:
    command = [sys.executable, "-c", TERMINABLE]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, cwd=tmp_path, text=True, **pipes) as process:  # type: ignore[call-overload]
        assert process.stdout.readline() == "ready\n"
        assert len(list(tmp_path.iterdir())) == 1
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate()
    assert (process.returncode, said) == (143, "wend: terminated; nothing was written\n")
    assert list(tmp_path.iterdir()) == []
