"""`wend lab`: output, exit codes, and the commands on its page."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lab.labs import a_name, needs_lab, remains
from wend.console import app
from wend.lab import network
from wend.model.errors import LabError

PAGE = Path(__file__).parents[2] / "docs" / "lab.md"
WEND = [sys.executable, "-m", "wend.console.app", "lab"]


def lab(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([*WEND, *words], capture_output=True, text=True, timeout=120, check=False)


@needs_lab
def test_a_lab_from_up_to_down() -> None:
    name = a_name()
    try:
        made = lab("up", "--peers", "4", "--degree", "2", "--seed", "3", "--name", name, "--json")
        assert made.returncode == 0, made.stderr
        said = json.loads(made.stdout)
        assert (len(said["nodes"]), len(said["links"])) == (4, 4)

        ran = lab("run", "1", "--name", name, "--", "sh", "-c", "ip -o addr show dev lo; exit 7")
        assert (ran.returncode, "10.255.0.2/32" in ran.stdout) == (7, True)
        missing = lab("run", "1", "--name", name, "--", "no-such-program")
        assert (missing.returncode, missing.stderr) == (
            2,
            "wend: cannot run 'no-such-program': No such file or directory\n",
        )

        ends = "{a}-{b}".format(**said["links"][2])
        assert lab("cut", ends, "--name", name).returncode == 0
        shown = lab("status", "--name", name).stdout
        assert [line.split()[0] for line in shown.splitlines() if " down " in line and "ms" in line] == ["2"]
        assert lab("heal", "2", "--name", name).returncode == 0
        links = json.loads(lab("status", "--name", name, "--json").stdout)["links"]
        assert [link["up"] for link in links] == [True] * 4

        assert "is up, or a crash left its remains" in lab("up", "--name", name).stderr
        assert lab("down", "--name", name).stdout == f"lab {name} is down\n"
        assert remains(name) == []
        assert lab("down", "--name", name).stderr == f"wend: no lab named {name!r} is up\n"
    finally:
        network.clean(name)


@needs_lab
def test_links_fail_with_pf() -> None:
    name = a_name()
    try:
        made = lab("up", "--peers", "3", "--degree", "2", "--pf", "0.5", "--schedule-for", "60s", "--name", name)
        assert made.returncode == 0, made.stderr
        assert "Pf 0.5" in made.stdout
        ahead = re.search(r"(\d+) scheduled changes", made.stdout)
        assert ahead is not None
        assert int(ahead[1]) > 20
        assert lab("clean", "--name", name).returncode == 0
        assert remains(name) == []
    finally:
        network.clean(name)


def fails(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    monkeypatch.setattr(sys, "argv", ["wend", "lab", *words])
    with pytest.raises(SystemExit) as ended:
        app.main()
    assert ended.value.code == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    return shown.err


@pytest.mark.parametrize("words", [("up",), ("status",), ("run", "0", "true"), ("cut", "0"), ("down",), ("clean",)])
def test_without_root_there_is_one_sentence(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    said = fails(monkeypatch, capsys, *words)
    assert said == "wend: a lab needs root, for network namespaces and TUN devices: run it with sudo\n"


def test_without_tun_or_a_program_there_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(network, "_TUN", Path("/nowhere/tun"))
    assert fails(monkeypatch, capsys, "up") == "wend: a lab needs TUN devices, and this system has no /nowhere/tun\n"

    def lacking(program: str) -> str:
        raise LabError(f"a lab needs the program {program!r}")

    monkeypatch.setattr(network, "_TUN", Path("/"))
    monkeypatch.setattr(network.namespaces, "require", lacking)
    assert fails(monkeypatch, capsys, "up") == "wend: a lab needs the program 'ip'\n"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--link-capacity", "fast"), "--link-capacity: cannot read 'fast' as a rate"),
        (("--link-capacity", "40msg/s"), "--link-capacity of a lab is in bits and above 0"),
        (("--link-capacity", "0Mbit/s"), "--link-capacity of a lab is in bits and above 0"),
        (("--name", "Big Lab"), "no name for a lab"),
        (("--routers", "0-99"), "there is no node '20'"),
        (("--routes", "scenic"), "routes are shortest or neighbours"),
        (("--queue-bytes", "5"), "a queue holds"),
        (("--peers", "5", "--degree", "3"), "is odd"),
        (("--topology", "nowhere.graphml"), "neither"),
    ],
)
def test_invalid_flags_are_one_sentence(
    words: tuple[str, ...], sentence: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sentence in fails(monkeypatch, capsys, "up", *words)


def test_the_page_names_commands_and_options_that_exist() -> None:
    lines = re.findall(r"sudo wend lab (.*)", PAGE.read_text())
    assert {line.split()[0] for line in lines} >= {"up", "run", "cut", "heal", "status", "down", "clean"}
    for line in lines:
        words = shlex.split(line, comments=True)
        words = words[: words.index("--")] if "--" in words else words
        known = lab(words[0], "--help").stdout
        assert all(word in known for word in words if word.startswith("--")), line
