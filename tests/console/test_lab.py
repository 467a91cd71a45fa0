"""`wend lab`: output, exit codes, and the commands on its page."""

import json
import os
import re
import shlex
from pathlib import Path

import pytest

from tests.console.calls import Said, wend
from tests.lab.labs import a_name, needs_lab, remains
from wend.lab import clean, lab
from wend.model.errors import LabError

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "lab.md"


@needs_lab
def test_a_lab_from_up_to_down(said: Said) -> None:
    """`up` and `run` are processes: a lab stays when its command ends, and `run` becomes the command."""
    name = a_name()
    try:
        created = wend("lab", "up", "--peers", "4", "--degree", "2", "--seed", "3", "--name", name, "--json")
        assert created.returncode == 0, created.stderr
        lab = json.loads(created.stdout)
        assert (len(lab["nodes"]), len(lab["links"])) == (4, 4)

        ran = wend("lab", "run", "1", "--name", name, "--", "sh", "-c", "ip -o addr show dev lo; exit 7")
        assert (ran.returncode, "10.255.0.2/32" in ran.stdout) == (7, True)
        assert said("lab", "run", "1", "--name", name, "--", "no-such-program") == (
            2,
            "",
            "wend: cannot run 'no-such-program': No such file or directory\n",
        )

        ends = "{a}-{b}".format(**lab["links"][2])
        assert said("lab", "cut", ends, "--name", name) == (0, "", "")
        _, shown, _ = said("lab", "status", "--name", name)
        assert [line.split()[0] for line in shown.splitlines() if " down " in line and "ms" in line] == ["2"]
        assert said("lab", "heal", "2", "--name", name) == (0, "", "")
        links = json.loads(said("lab", "status", "--name", name, "--json")[1])["links"]
        assert [link["up"] for link in links] == [True] * 4

        assert "is up, or a crash left its remains" in said("lab", "up", "--name", name)[2]
        assert said("lab", "down", "--name", name) == (0, f"lab {name} is down\n", "")
        assert remains(name) == []
        assert said("lab", "down", "--name", name) == (2, "", f"wend: no lab named {name!r} is up\n")
    finally:
        clean(name)


@needs_lab
def test_links_fail_with_pf(said: Said) -> None:
    name = a_name()
    flags = ("--peers", "3", "--degree", "2", "--pf", "0.5", "--schedule-for", "60s", "--name", name)
    try:
        code, shown, error = said("lab", "up", *flags)
        assert code == 0, error
        assert "Pf 0.5" in shown
        ahead = re.search(r"(\d+) scheduled changes", shown)
        assert ahead is not None
        assert int(ahead[1]) > 20
        assert said("lab", "clean", "--name", name)[0] == 0
        assert remains(name) == []
    finally:
        clean(name)


def fails(said: Said, *words: str) -> str:
    code, out, error = said("lab", *words)
    assert (code, out) == (2, "")
    return error


@pytest.mark.parametrize("words", [("up",), ("status",), ("run", "0", "true"), ("cut", "0"), ("down",), ("clean",)])
def test_without_root_there_is_one_sentence(
    said: Said, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert fails(said, *words) == "wend: a lab needs root, for network namespaces and TUN devices: run it with sudo\n"


def test_without_tun_or_a_program_there_is_one_sentence(said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(lab, "TUN", Path("/nowhere/tun"))
    assert fails(said, "up") == "wend: a lab needs TUN devices, and this system has no /nowhere/tun\n"

    def lacking(program: str) -> str:
        raise LabError(f"a lab needs the program {program!r}")

    monkeypatch.setattr(lab, "TUN", Path("/"))
    monkeypatch.setattr(lab.namespaces, "find_program", lacking)
    assert fails(said, "up") == "wend: a lab needs the program 'ip'\n"


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
def test_invalid_flags_are_one_sentence(said: Said, words: tuple[str, ...], sentence: str) -> None:
    assert sentence in fails(said, "up", *words)


def test_the_page_names_commands_and_options_that_exist(said: Said) -> None:
    lines = re.findall(r"sudo wend lab (.*)", PAGE.read_text())
    assert {line.split()[0] for line in lines} >= {"up", "run", "cut", "heal", "status", "down", "clean"}
    for line in lines:
        words = shlex.split(line, comments=True)
        words = words[: words.index("--")] if "--" in words else words
        _, known, _ = said("lab", words[0], "--help")
        assert all(word in known for word in words if word.startswith("--")), line
