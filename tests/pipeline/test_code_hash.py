"""The hash changes with the code that decides runs, and with nothing else."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import grimp
import pytest

import wend
from wend.pipeline import code_hash as code


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    source = Path(wend.__file__).parent
    place = tmp_path / "wend"
    shutil.copytree(source, place, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(code, "files", lambda _: place)
    code.hash_code.cache_clear()
    yield place
    code.hash_code.cache_clear()


def hash_now() -> str:
    code.hash_code.cache_clear()
    return code.hash_code()


def test_the_same_code_has_the_same_hash_wherever_it_lies(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = hash_now()
    monkeypatch.undo()
    assert hash_now() == there


@pytest.mark.parametrize("part", code.PARTS)
def test_a_changed_line_changes_the_hash(copy: Path, part: str) -> None:
    before = hash_now()
    file = copy / part if part.endswith(".py") else copy / part / "__init__.py"
    file.write_text(file.read_text() + "\nCHANGED = True\n")
    assert hash_now() != before


def test_prose_decides_nothing(copy: Path) -> None:
    before = hash_now()
    file = copy / "strategies" / "dcrd" / "__init__.py"
    file.write_text(f"# A comment.\n{file.read_text()}\n\n# Another one.\n")
    assert hash_now() == before


FUNCTION = b"""
class Delay:
    ns: int = 3

    def plus(self, more: int) -> int:
        return self.ns + more
"""
DOCUMENTED = b""""A module."

class Delay:
    "A delay."

    ns: int = 3
    "In nanoseconds."

    def plus(
        self, more: int,  # also in nanoseconds
    ) -> int:
        "Add some."
        return (self.ns + more)
"""


def test_docstrings_comments_and_layout_are_prose() -> None:
    assert code.strip_prose(DOCUMENTED) == code.strip_prose(FUNCTION)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"3", b"4"), (b"3", b"3.0"), (b"3", b"'3'"), (b"self.ns + more", b"self.ns - more"),
        (b"plus", b"minus"), (b"more: int", b"more: int = 0"), (b"return self.ns + more", b"self.ns + more"),
        (b"3", b"None"), (b"return self.ns + more", b"return 'text'"),
    ],
)  # fmt: skip
def test_everything_else_is_code(old: bytes, new: bytes) -> None:
    assert code.strip_prose(FUNCTION.replace(old, new)) != code.strip_prose(FUNCTION)


def test_a_new_file_changes_the_hash(copy: Path) -> None:
    before = hash_now()
    (copy / "strategies" / "dcrd" / "new.py").write_text("")
    assert hash_now() != before


@pytest.mark.parametrize("room", ["console", "pipeline", "studies", "drivers/live"])
def test_what_decides_no_run_is_not_in_the_hash(copy: Path, room: str) -> None:
    before = hash_now()
    (copy / room / "new.py").write_text("x = 1\n")
    assert hash_now() == before


def test_all_that_the_simulator_imports_is_in_the_hash() -> None:
    imported = grimp.build_graph("wend", cache_dir=None).find_upstream_modules("wend.drivers.sim", as_package=True)
    files = {module.removeprefix("wend.").replace(".", "/") for module in imported}
    parts = tuple(part.removesuffix(".py") for part in code.PARTS)
    assert {"drivers/world", "drivers/arrivals", "protocol/peer"} <= files
    assert {file for file in files if not file.startswith(parts)} == set()
