"""What the pages say works. Fenced `sh` blocks are run, beside the files that a page shows; every other command must at
least exist. Python blocks compile; those of pages that promise more are run by the page's own tests.
"""

import re
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCED = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# (\S+\.(?:py|toml))\n")
"""The first line of a block that is a file."""
COMMAND = re.compile(r"(?:^ {4}|^|`)(wend [a-z][^`\n]*)", re.MULTILINE)
LINK = re.compile(r"\]\(([^)#]+)\)")


def _wend(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    call = [sys.executable, "-m", "wend.console.app", *words]
    return subprocess.run(call, capture_output=True, text=True, timeout=200, check=False, cwd=folder)


ALL_BLOCKS = [(page.name, kind, block) for page in PAGES for kind, block in FENCED.findall(page.read_text())]


def _fenced(kind: str) -> list[tuple[str, str]]:
    return [(page, block) for page, k, block in ALL_BLOCKS if k == kind]


def files_of(page: str) -> dict[str, str]:
    blocks = [block for name, kind, block in ALL_BLOCKS if name == page and kind in ("python", "toml")]
    return {found[1]: block for block in blocks if (found := FILE.match(block))}


SHELL = [(page, line) for page, block in _fenced("sh") for line in block.splitlines() if line.strip()]


@pytest.mark.parametrize(("page", "line"), SHELL)
def test_shell_blocks_run(page: str, line: str, tmp_path: Path) -> None:
    words = shlex.split(line, comments=True)
    assert words[0] == "wend", f"{page}: {line}"
    for name, text in files_of(page).items():
        (tmp_path / name).write_text(text)
    done = _wend(*words[1:], folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


@cache
def _help(*command: str) -> str:
    done = _wend(*command, "--help", folder=ROOT)
    assert done.returncode == 0, f"wend {' '.join(command)} does not exist: {done.stderr}"
    return done.stdout


UNDER_PLAN = {("plan", "workload"), ("plan", "show"), ("plan", "check"), ("plan", "load")}
COMMANDS = sorted({(page.name, found) for page in PAGES for found in COMMAND.findall(page.read_text())})


@pytest.mark.parametrize(("page", "line"), COMMANDS)
def test_commands_exist_with_their_options(page: str, line: str) -> None:
    words = shlex.split(line, comments=True)[1:]
    command = words[:2] if words[0] in ("data", "lab", "topology") or tuple(words[:2]) in UNDER_PLAN else words[:1]
    known = _help(*command)
    for option in [word.split("=")[0] for word in words if word.startswith("--")]:
        assert option in known, f"{page}: {line}: no {option}"


def test_python_blocks_compile() -> None:
    for page, block in _fenced("python"):
        compile(block, page, "exec", flags=0x2000)  # ast.PyCF_ALLOW_TOP_LEVEL_AWAIT


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text()):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), f"{page.name} points to {target}"
