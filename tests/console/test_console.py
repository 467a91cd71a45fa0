"""The `wend` command: help, exit codes and error sentences."""

import json
import platform
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from rich.text import Text

from tests.console.calls import Said
from wend.console.app import SUBCOMMANDS, app
from wend.console.terminal import count_text, stop_on_signals
from wend.model.version import __version__, core_build


def test_one_is_no_plural() -> None:
    assert [count_text(n, "run") for n in (0, 1, 2)] == ["0 runs", "1 run", "2 runs"]
    assert [count_text(n, "topology", "topologies") for n in (1, 3)] == ["1 topology", "3 topologies"]


def test_help_names_every_command_and_imports_nothing_heavy(said: Said) -> None:
    code, shown, _ = said("--help")
    assert code == 0
    for command in ("up", "peer", "pub", "sub", "status", "sim"):
        assert re.search(rf"\b{command}\b", shown)
    program = (
        "import sys, wend.console.app; print([m for m in ('numpy', 'scipy', 'pyarrow', 'pyspark') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_help_lists_each_command_with_its_own_first_sentence() -> None:
    loaded = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    assert {name: one.get_short_help_str(200) for name, one in loaded.items()} == {
        name: each.about for name, each in SUBCOMMANDS.items()
    }


def test_the_version(said: Said) -> None:
    assert said("--version")[1].startswith("wend ")


@pytest.mark.parametrize(
    ("call", "exit_code", "code", "sentence"),
    [
        (("status", "--peer", "wend://127.0.0.1:1", "--json"), 2, "unreachable", "cannot reach a peer at"),
        (("link", "add", "1", "here", "--json"), 2, "unreachable", "cannot reach a peer at"),
        (("sim", "--json", "--peers", "1"), 2, "invalid-setting", ""),
        (("sim", "--scenario", "none.toml", "--json"), 2, "unreadable", "cannot read none.toml"),
        (("status", "--json", "--colour"), 2, "usage", "No such option: --colour"),
        (("fly", "--json"), 2, "usage", "No such command 'fly'."),
        (("link", "add", "--json"), 2, "usage", "Missing argument"),
    ],
)
def test_with_json_an_error_is_an_object_with_its_code(
    said: Said, call: tuple[str, ...], exit_code: int, code: str, sentence: str
) -> None:
    ended, out, errors = said(*call)
    error = json.loads(errors.splitlines()[-1])["error"]
    assert (ended, out, error["code"], list(error)) == (exit_code, "", code, ["code", "sentence"])
    assert error["sentence"].startswith(sentence)


def test_with_json_a_command_still_ends_with_its_own_exit_code(said: Said) -> None:
    assert said("version", "--json")[0] == 0
    assert said("status", "--help", "--json")[0] == 0


def test_what_is_installed(said: Said) -> None:
    code, shown, _ = said("version")
    first, extras, *_ = shown.splitlines()
    assert (code, first) == (0, f"wend {__version__}, Python {platform.python_version()}, {core_build()} core")
    assert extras.startswith("extras: sim, maps, plan")
    found = json.loads(said("version", "--json")[1])
    assert found["installed"] == extras.removeprefix("extras: ").split(", ")
    assert (found["core"], found["missing"].keys() & set(found["installed"])) == (core_build(), set())


def test_help_shows_the_defaults_of_a_scenario(said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    shown = said("sim", "--help")[1]
    wanted = {
        "--duration": "600s",
        "--pf": "0.06",
        "--detection": "160ms",
        "--trace-paths": "trace-paths",
        "--strategy": "adaptive",
    }
    for option, default in wanted.items():
        line = next(line for line in shown.splitlines() if f" {option} " in line)
        after = shown[shown.index(line) :]
        assert re.search(r"\[default: (.*?)\]", after)[1] == default, option  # type: ignore[index]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("sim", "--strategy", "magic", "--trees", "3"), "unknown strategy 'magic'"),
        (("sim", "--degree", "20", "--peers", "20"), "degree 20 needs at least 21 peers, got 20"),
        (("sim", "--rate", "-1"), "rate must lie in"),
        (("sim", "--duration", "soon"), "cannot read 'soon' as a duration"),
        (("sim", "--duration", "1e999"), "1e999 is too long"),
        (("sim", "--trace-level", "off"), "trace_level must be deliveries or hops, got 'off'"),
        (("sim", "--topology", "nowhere.graphml"), "nowhere.graphml"),
        (("sim", "--scenario", "missing.toml"), "cannot read missing.toml: No such file"),
        (("sim", "--link-capacity", "fast"), "link_capacity is 'stated' or a rate: cannot read 'fast' as a rate"),
        (("sim", "--underlay", "sand"), "there is no network 'sand'"),
        (("sim", "--ack", "foo"), "ack must be free or round-trip, got 'foo'"),
        (("sim", "--topology", "brite"), "brite is an underlay, not an overlay: use --underlay brite"),
        (("sim", "--strategy", "planned"), "planned follows a plan: name one with --plan DIR"),
        (("sim", "--detection", "160"), "detection 160 needs a unit: 160ms or 160s"),
        (("sim", "--trace", "/proc/foo"), "cannot write /proc/foo: "),
        (("sim", "--trace", "."), ". is or contains the current folder"),
        (("sim", "--queue", "-1"), "queue must be at least 0, got -1"),
        (("sim", "--flows", "missing.jsonl"), "cannot read missing.jsonl: No such file"),
        (("sim", "--strategy", "planned", "--plan", "missing"), "missing is not a plan: cannot read plan.json"),
        (("plan", "load", "--peer", "wend://127.0.0.1:1"), "cannot reach a peer at wend://127.0.0.1:1"),
        (("up", "--strategies", "dcrd,magic"), "unknown strategy 'magic'"),
        (("up", "--strategies", "oracle"), "every table shows the oracle"),
        (("up", "--strategies", "planned"), "planned follows a plan, and an overlay of `wend up` has none"),
        (("up", "--degree", "30"), "degree 30 needs at least 31 peers, got 20"),
        (("up", "--pf", "2"), "pf must lie in 0..1, got 2"),
        (("peer", "--config", "missing.toml"), "cannot read missing.toml: No such file"),
        (("pub", "topic=x", "--peer", "wend://127.0.0.1:1"), "cannot reach a peer at wend://127.0.0.1:1"),
        (("status", "--peer", "wend://127.0.0.1:1"), "cannot reach a peer at wend://127.0.0.1:1"),
        (("pub", "nonsense"), "cannot read 'nonsense' as an attribute"),
        (("pub", "topic=x", "--header", "=b"), "cannot read '=b' as a header"),
        (("sub", "topic = 'x'", "--peer", "ftp://x"), "cannot read 'ftp://x' as a peer"),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, tuple) else "",
)
def test_a_mistake_is_one_sentence(said: Said, words: tuple[str, ...], sentence: str) -> None:
    code, out, err = said(*words)
    assert (code, out) == (2, "")
    assert sentence in err
    assert err.startswith("wend: ") and err.count("\n") == 1


def test_ctrl_c_ends_in_a_sentence_about_what_is_left(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as ended, stop_on_signals("nothing was written"):
        raise KeyboardInterrupt
    assert (ended.value.exit_code, capsys.readouterr().err) == (130, "wend: stopped; nothing was written\n")


def commands(found: Any = None, *names: str) -> Iterator[tuple[str, Any]]:
    """Every command of `wend`, with its full name."""
    found = typer.main.get_command(app) if found is None else found
    yield " ".join(names), found
    for name, below in getattr(found, "commands", {}).items():
        yield from commands(below, *names, name)


def options(command: Any) -> list[Any]:
    """All of them, with those that are made from settings."""
    return list(command.get_params(typer.Context(command)))


def test_help_texts_read_as_they_were_written() -> None:
    """Rich would read text in brackets as markup and omit it."""
    for name, command in commands():
        for text in (command.help, *(getattr(param, "help", None) for param in options(command))):
            words = Text.from_markup(text or "").plain
            assert "  " not in words, f"{name}: {words}"
    [scenarios] = [p for name, c in commands() if name == "data sweep" for p in c.params if p.name == "scenarios"]
    assert Text.from_markup(scenarios.help).plain.startswith("TOML with [base] and [sweep] (")


def test_the_same_option_is_the_same_everywhere() -> None:
    """Options with the same name have the same help text, except in commands that use them differently."""
    alike = ("--topology", "--peers", "--degree", "--pl", "--redundancy", "--rate", "--k", "--ship", "--overwrite")
    for option in alike:
        texts = set()
        for name, command in commands():
            if name in ("topology show", "data topology", "data replay", "plan workload"):
                continue  # these options mean something else here
            for param in options(command):
                if option in param.opts:
                    texts.add(Text.from_markup(param.help).plain.split(" [default")[0])
        assert len(texts) == 1, (option, texts)


def test_what_prints_something_can_print_an_object() -> None:
    silent = {"lab run", "lab cut", "lab heal"}
    for name, command in commands():
        if not hasattr(command, "commands") or name == "plan":
            has = any("--json" in param.opts for param in command.params)
            assert has != (name in silent), name
