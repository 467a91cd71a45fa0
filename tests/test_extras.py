"""The base install and the extras: what works without them, and what says which one is missing."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from wend.model.errors import MissingExtra
from wend.model.extras import EXTRAS, INCLUDED, extra_modules, needed_by
from wend.model.version import __version__

ROOT = Path(__file__).resolve().parent.parent
DECLARED: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
MODULES = {"eclipse-zenoh": "zenoh", "nats-py": "nats", "paho-mqtt": "paho"}
"""By distribution: its module, where that has another name."""


def declared(extra: str) -> tuple[set[str], set[str]]:
    """The modules that pyproject.toml lists for an extra, and the extras that it includes."""
    modules, included = set(), set()
    for line in DECLARED["optional-dependencies"][extra]:
        name, inside = re.match(r"([\w-]+)(?:\[([\w,]+)\])?", line).groups()  # type: ignore[union-attr]
        if name == "wend":
            included |= set(inside.split(","))
        else:
            modules.add(MODULES.get(name, name))
    return modules, included


def test_the_extras_are_those_of_the_package() -> None:
    for extra, modules in EXTRAS.items():
        assert declared(extra) == (set(modules), set(INCLUDED.get(extra, ()))), extra
    assert declared("all") == (set(), set(EXTRAS))
    assert set(DECLARED["optional-dependencies"]) == {*EXTRAS, "all", "dev"}
    assert DECLARED["version"] == __version__


@pytest.mark.parametrize(
    ("module", "extra", "sentence"),
    [
        ("numpy", "sim", "wend it needs NumPy: pip install 'wend[sim]'"),
        ("numpy.linalg", "plan", "wend it needs NumPy: pip install 'wend[plan]'"),
        ("highspy", "plan", "wend it needs HiGHS: pip install 'wend[plan]'"),
        ("numba", "sim", "wend it needs Numba: pip install 'wend[maps]'"),
        ("topohub", "plan", "wend it needs topohub: pip install 'wend[maps]'"),
        ("matplotlib", None, "wend it needs Matplotlib: pip install 'wend[pictures]'"),
    ],
)
def test_the_sentence_names_the_extra_that_brings_the_package(module: str, extra: str | None, sentence: str) -> None:
    with pytest.raises(MissingExtra) as raised, needed_by("wend it", extra):
        raise ModuleNotFoundError(f"No module named {module!r}", name=module)
    assert str(raised.value) == sentence


def test_a_module_that_no_extra_brings_stays_an_error_of_its_own() -> None:
    with pytest.raises(ModuleNotFoundError), needed_by("wend it", "sim"):
        raise ModuleNotFoundError("No module named 'nobody_has_this'", name="nobody_has_this")


def test_a_peer_and_a_client_need_no_extra(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.base_install", str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["modules"] > 90
    assert found["conversation"] == {"payload": "hello", "x": 7, "buffered": 0}
    assert found["planned"] == "a peer that follows a plan needs NumPy: pip install 'wend[plan]'"
    assert found["recorded"] == "a peer that writes telemetry needs PyArrow: pip install 'wend[telemetry]'"
    assert found["simulate"] == "MissingExtra: wend.simulate needs NumPy: pip install 'wend[sim]'"
    assert found["absent"] == []
    commands = {words.partition(" ")[0]: said for words, said in found["commands"].items()}
    assert commands.pop("version") == [0, ""]
    extras = {
        "sim": "sim",
        "up": "sim",
        "plan": "plan",
        "topology": "maps",
        "data": "spark",
        "study": "spark",
        "lab": "lab",
    }
    assert commands.keys() == extras.keys()
    for name, (code, said) in commands.items():
        sentence = rf"wend: wend {name} needs (\w+): pip install 'wend\[{extras[name]}\]'\n"
        assert re.fullmatch(sentence, said), (name, said)
        assert code == 2


def test_an_extra_brings_what_the_extras_in_it_bring() -> None:
    assert set(extra_modules("spark")) == {*EXTRAS["spark"], *EXTRAS["sim"], *EXTRAS["pictures"]}
