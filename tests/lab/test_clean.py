"""Nothing is left behind: not after `close`, not after a crash, not after half a start."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lab.labs import a_name, needs_lab, pair, traces, triangle, until
from wend.lab import Lab, clean, namespaces, network, state
from wend.model.errors import LabError

pytestmark = needs_lab


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def emulator_of(lab: Lab) -> int:
    return next(int(trace.split()[1]) for trace in traces(lab.name) if trace.startswith("emulator"))


def test_a_lab_goes_with_everything_that_runs_in_it() -> None:
    before = len(os.listdir("/proc/self/fd"))
    lab = Lab.up(triangle(), name=a_name())
    plain = lab.popen(0, ["sleep", "1000"])
    # One that ignores being asked, and one that nobody waits for.
    script = "trap '' TERM; setsid sleep 1001 & echo $!; while :; do sleep 1; done"
    stubborn = lab.popen(1, ["sh", "-c", script], stdout=subprocess.PIPE, text=True)
    assert stubborn.stdout is not None
    orphan = int(stubborn.stdout.readline())
    stubborn.stdout.close()
    assert len(traces(lab.name)) == 5
    emulator = emulator_of(lab)
    lab.close()
    assert traces(lab.name) == []
    assert plain.poll() is not None
    assert stubborn.poll() is not None
    assert gone(orphan)
    assert gone(emulator)
    assert len(os.listdir("/proc/self/fd")) <= before
    lab.close()  # again is harmless


def test_after_the_emulator_was_killed_clean_removes_the_rest() -> None:
    lab = Lab.up(triangle(), name=a_name())
    left = lab.popen(2, ["sleep", "1000"])
    os.kill(emulator_of(lab), signal.SIGKILL)
    until(lambda: not state.in_use(lab.name))
    with pytest.raises(LabError, match="does not answer"):
        lab.status()
    clean(lab.name)
    assert traces(lab.name) == []
    assert left.wait(10) != 0


_HALF = """
import sys, time
from wend.lab import network, namespaces
from tests.lab.labs import triangle
def stop(host, routes):
    print("half", flush=True)
    time.sleep(1000)
namespaces.connect = stop
network.Lab.up(triangle(), name=sys.argv[1])
"""


def test_what_is_being_made_is_spared_and_what_was_killed_half_way_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    name = a_name()
    monkeypatch.setattr(state, "known", lambda: [name])  # other labs are none of this test's business
    making = subprocess.Popen([sys.executable, "-c", _HALF, name], stdout=subprocess.PIPE, text=True)
    with making:
        try:
            assert making.stdout is not None
            assert making.stdout.readline() == "half\n"
            assert clean().spared == (name,)
            assert len(traces(name)) == 5
        finally:
            making.kill()
    removed = clean()
    assert (removed.labs, removed.emulators, len(removed.namespaces)) == ((name,), 1, 3)
    assert traces(name) == []
    assert clean() == state.Removed()


def test_a_lab_that_is_up_is_spared(monkeypatch: pytest.MonkeyPatch) -> None:
    with Lab.up(pair(), name=a_name()) as lab:
        monkeypatch.setattr(state, "known", lambda: [lab.name])
        assert clean().spared == (lab.name,)
        assert lab.status().down == ()


@pytest.mark.parametrize("failing", ["make", "prepare", "connect"])
def test_a_start_that_fails_half_way_takes_everything_down_again(failing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise LabError("no luck")

    name = a_name()
    monkeypatch.setattr(namespaces, failing, fail)
    with pytest.raises(LabError, match="no luck"):
        Lab.up(pair(), name=name)
    assert traces(name) == []


def test_an_emulator_that_cannot_start_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    name = a_name()
    monkeypatch.setattr(network.emulator, "plan", lambda *_, **__: "1 1\nnonsense\n")
    with pytest.raises(LabError, match=r"link 0 of .* cannot be read"):
        Lab.up(pair(), name=name)
    assert traces(name) == []


def test_half_a_namespace_is_removed() -> None:
    name = a_name()
    namespaces.NETNS.mkdir(exist_ok=True)
    (namespaces.NETNS / f"wend-{name}-0").touch()
    assert clean(name).labs == (name,)
    assert traces(name) == []
