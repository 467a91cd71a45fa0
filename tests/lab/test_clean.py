"""No remains of a lab: after `close`, after a crash and after a failed start."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lab.labs import a_name, needs_lab, pair, remains, triangle, until
from wend.lab import Lab, clean, lab, lab_state, namespaces
from wend.model.errors import LabError

pytestmark = needs_lab


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def emulator_of(lab: Lab) -> int:
    return next(int(trace.split()[1]) for trace in remains(lab.name) if trace.startswith("emulator"))


def test_close_ends_everything_in_a_lab(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wend.lab.lab.ENDING_S", 0.3)
    before = len(os.listdir("/proc/self/fd"))
    lab = Lab.up(triangle(), name=a_name())
    plain = lab.popen(0, ["sleep", "1000"])
    # One process ignores SIGTERM, the other is an orphan.
    script = "trap '' TERM; setsid sleep 1001 & echo $!; while :; do sleep 1; done"
    stubborn = lab.popen(1, ["sh", "-c", script], stdout=subprocess.PIPE, text=True)
    assert stubborn.stdout is not None
    orphan = int(stubborn.stdout.readline())
    stubborn.stdout.close()
    assert len(remains(lab.name)) == 5
    emulator = emulator_of(lab)
    lab.close()
    assert remains(lab.name) == []
    assert plain.poll() is not None
    assert stubborn.poll() is not None
    assert gone(orphan)
    assert gone(emulator)
    assert len(os.listdir("/proc/self/fd")) <= before
    lab.close()  # a second call does nothing


def test_after_the_emulator_was_killed_clean_removes_the_rest() -> None:
    lab = Lab.up(triangle(), name=a_name())
    left = lab.popen(2, ["sleep", "1000"])
    os.kill(emulator_of(lab), signal.SIGKILL)
    until(lambda: not lab_state.is_in_use(lab.name))
    with pytest.raises(LabError, match="does not answer"):
        lab.status()
    clean(lab.name)
    assert remains(lab.name) == []
    assert left.wait(10) != 0


_HALF = """
import sys, time
from wend.lab import namespaces
from wend.lab import lab
from tests.lab.labs import triangle
def stop(host, routes):
    print("half", flush=True)
    time.sleep(1000)
namespaces.configure_devices = stop
lab.Lab.up(triangle(), name=sys.argv[1])
"""


def test_clean_spares_a_starting_lab_and_removes_a_killed_one(monkeypatch: pytest.MonkeyPatch) -> None:
    name = a_name()
    monkeypatch.setattr(lab_state, "list_labs", lambda: [name])  # leave other labs alone
    making = subprocess.Popen([sys.executable, "-c", _HALF, name], stdout=subprocess.PIPE, text=True)
    with making:
        try:
            assert making.stdout is not None
            assert making.stdout.readline() == "half\n"
            assert clean().spared == (name,)
            assert len(remains(name)) == 5
        finally:
            making.kill()
    removed = clean()
    assert (removed.labs, removed.emulators, len(removed.namespaces)) == ((name,), 1, 3)
    assert remains(name) == []
    assert clean() == lab_state.RemovedLabs()


def test_a_lab_that_is_up_is_spared(monkeypatch: pytest.MonkeyPatch) -> None:
    with Lab.up(pair(), name=a_name()) as lab:
        monkeypatch.setattr(lab_state, "list_labs", lambda: [lab.name])
        assert clean().spared == (lab.name,)
        assert lab.status().down == ()


@pytest.mark.parametrize("failing", ["make_namespaces", "write_kernel_settings", "configure_devices"])
def test_a_failed_start_removes_everything(failing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise LabError("injected")

    name = a_name()
    monkeypatch.setattr(namespaces, failing, fail)
    with pytest.raises(LabError, match="injected"):
        Lab.up(pair(), name=name)
    assert remains(name) == []


def test_an_emulator_that_cannot_start_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    name = a_name()
    monkeypatch.setattr(lab.emulator, "write_plan", lambda *_, **__: "1 1\nnonsense\n")
    with pytest.raises(LabError, match=r"link 0 of .* cannot be read"):
        Lab.up(pair(), name=name)
    assert remains(name) == []


def test_half_a_namespace_is_removed() -> None:
    name = a_name()
    namespaces.NETNS.mkdir(exist_ok=True)
    (namespaces.NETNS / f"wend-{name}-0").touch()
    assert clean(name).labs == (name,)
    assert remains(name) == []
