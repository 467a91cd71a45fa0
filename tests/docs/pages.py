"""The pages of the documentation, and what stands in them, for the tests of pages."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCED = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"# (\S+\.(?:py|toml))\n")
"""The first line of a block that is a file."""


def name_of(page: Path) -> str:
    """The path of a page in the repository."""
    return str(page.relative_to(ROOT))


def read(page: str) -> str:
    return (ROOT / page).read_text()


def section(page: str, heading: str) -> str:
    """The text below a heading of the second level."""
    text = read(page)
    return text[text.index(f"\n## {heading}\n") + 1 :].split("\n## ")[0]


def blocks(page: str, kind: str) -> list[str]:
    """The fenced blocks of a kind, in their order."""
    return [block for each, block in FENCED.findall(read(page)) if each == kind]


def files_of(page: str) -> dict[str, str]:
    """The blocks that are files, by name."""
    found = [block for kind in ("python", "toml") for block in blocks(page, kind)]
    return {first[1]: block for block in found if (first := _FILE.match(block))}


def write_files(page: str, folder: Path) -> None:
    for name, text in files_of(page).items():
        (folder / name).write_text(text)


def wend(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the command in a folder."""
    call = [sys.executable, "-m", "wend.console.app", *words]
    return subprocess.run(call, capture_output=True, text=True, timeout=200, check=False, cwd=folder)
