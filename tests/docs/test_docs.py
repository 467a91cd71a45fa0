"""What the pages say works. Fenced `sh` blocks are run, beside the files that a page shows; every other command must at
least exist. Python blocks compile; those of pages that promise more are run by the page's own tests.
"""

import re
import shlex
from functools import cache
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT, blocks, name_of, wend, write_files

COMMAND = re.compile(r"(?:^ {4}|^\$ |^|`)(wend [a-z][^`\n]*)", re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)\)")
NAMES = [name_of(page) for page in PAGES]
SHELL = list({block: (page, block) for page in reversed(NAMES) for block in blocks(page, "sh")}.values())
"""Each block once, of the first page that has it."""


@pytest.mark.parametrize(("page", "block"), SHELL)
def test_shell_blocks_run(page: str, block: str, tmp_path: Path) -> None:
    write_files(page, tmp_path)
    for line in block.splitlines():
        words = shlex.split(line, comments=True)
        assert words[0] == "wend", f"{page}: {line}"
        done = wend(*words[1:], folder=tmp_path)
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip()


@cache
def _help(*words: str) -> str:
    done = wend(*words, "--help", folder=ROOT)
    assert done.returncode == 0, f"wend {' '.join(words)} does not exist: {done.stderr}"
    return done.stdout


UNDER_PLAN = {
    ("plan", "workload"),
    ("plan", "show"),
    ("plan", "check"),
    ("plan", "load"),
    ("plan", "push"),
    ("plan", "watch"),
}
GROUPS = ("data", "key", "lab", "telemetry", "topology")
RUN = {(page, line) for page, block in SHELL for line in block.splitlines()}
COMMANDS = sorted({(page, line) for page in NAMES for line in COMMAND.findall((ROOT / page).read_text())} - RUN)
"""Those that are not run."""


@pytest.mark.parametrize(("page", "line"), COMMANDS)
def test_commands_exist_with_their_options(page: str, line: str) -> None:
    words = shlex.split(line, comments=True)[1:]
    command = words[:2] if words[0] in GROUPS or tuple(words[:2]) in UNDER_PLAN else words[:1]
    known = _help(*command)
    for option in [word.split("=")[0] for word in words if word.startswith("--")]:
        assert option in known or option == "--help", f"{page}: {line}: no {option}"


@pytest.mark.parametrize("page", NAMES)
def test_python_blocks_compile(page: str) -> None:
    for block in blocks(page, "python"):
        compile(block, page, "exec", flags=0x2000)  # ast.PyCF_ALLOW_TOP_LEVEL_AWAIT


@pytest.mark.parametrize("page", NAMES)
def test_links_lead_somewhere(page: str) -> None:
    for target in LINK.findall((ROOT / page).read_text()):
        if not target.startswith("http"):
            path, _, anchor = target.partition("#")
            place = (ROOT / page).parent / path if path else ROOT / page
            assert place.exists(), f"{page} points to {target}"
            if anchor:
                assert anchor in _anchors(place), f"{page} points to {target}"


@cache
def _anchors(page: Path) -> set[str]:
    """As GitHub makes them from headings, and those of a page's own."""
    text = page.read_text()
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    made = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    return made | set(re.findall(r'<a id="([^"]+)"></a>', text))


def test_the_index_names_every_page_once() -> None:
    index = ROOT / "docs" / "README.md"
    listed = [target for target in LINK.findall(index.read_text()) if target.endswith(".md")]
    pages = {str(page.relative_to(index.parent)) for page in PAGES if page.is_relative_to(index.parent)}
    studies = {page for page in pages if page.startswith("studies/") and page != "studies/README.md"}
    assert sorted(target for target in listed if not target.startswith("..")) == sorted(pages - studies - {"README.md"})
