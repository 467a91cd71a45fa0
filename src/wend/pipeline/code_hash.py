"""A hash of the code that made a result.

A stored result is valid only while the code that made it is unchanged. The model, topologies, matching, protocol and
simulator decide a simulation. The console, the live driver, the pipeline and the reports do not, so the hash leaves
them out. Each kind of trial names the sources that decide it. The source of a strategy from outside the tree goes
into the key of each run that names it.

The compiled core has the sources of the pure one, and gives the same results. Its hash still says which core ran, so
that no sweep mixes the times of both.

The hash is that of the syntax trees. Comments, docstrings and the layout of lines decide nothing, so an edit of prose
keeps the stored results.
"""

import ast
import sys
from functools import cache
from hashlib import blake2b
from importlib.resources import files
from importlib.resources.abc import Traversable

from wend.model.version import core_build
from wend.strategies.registry import top_level_module

PARTS = (
    "model", "topology", "matching", "protocol", "strategies", "drivers/sim",
    "drivers/arrivals.py", "drivers/scenario_fields.py", "drivers/scenario_underlay.py",
    "drivers/scenarios.py", "drivers/settings.py", "drivers/summaries.py", "drivers/workload.py", "drivers/world.py",
)  # fmt: skip


COMPILED = "-compiled"


@cache
def hash_code(parts: tuple[str, ...] = PARTS) -> str:
    """Hash the sources that decide runs, in order of path: twelve hex digits, and `-compiled` if that core runs."""
    digest = blake2b(digest_size=6)
    root = files("wend")
    for part in parts:
        sources = _list_sources(root.joinpath(*part.split("/")), part)
        if not sources:
            raise ValueError(f"Wend's source has no {part}: a misspelt path would let stale results stay")
        for name, source in sources:
            meaning = strip_prose(source)
            digest.update(f"{name}\0{len(meaning)}\0".encode())
            digest.update(meaning)
    return digest.hexdigest() + (COMPILED if core_build() == "compiled" else "")


def strip_prose(source: bytes) -> bytes:
    """What a source tells the interpreter: its syntax tree, without comments, docstrings and positions. Equal trees
    give equal bytes under every version of Python."""
    return repr(_strip_tree(ast.parse(source))).encode()


def _strip_tree(node: object) -> object:
    if isinstance(node, ast.AST):
        fields = [(name, _strip_tree(value)) for name, value in ast.iter_fields(node) if value not in (None, [])]
        return type(node).__name__, fields
    if isinstance(node, list):
        return [_strip_tree(each) for each in node if not _is_prose(each)]
    return repr(node)


def _is_prose(node: object) -> bool:
    """Whether a statement is a bare string: a docstring, or the explanation below a field."""
    match node:
        case ast.Expr(value=ast.Constant(value=str())):
            return True
    return False


def outside_sources(strategy: str) -> list[tuple[str, bytes]]:
    """The sources of a strategy from outside the tree, by path: its module, or the package around it."""
    name = top_level_module(strategy)
    spec = None if name is None else sys.modules[name].__spec__
    if name is None or spec is None:
        return []
    if spec.submodule_search_locations is not None:
        return _list_sources(files(name), name)
    return [(f"{name}.py", spec.loader.get_data(spec.origin))]  # type: ignore[union-attr]


def _list_sources(node: Traversable, name: str) -> list[tuple[str, bytes]]:
    if node.is_file():
        return [(name, node.read_bytes())] if name.endswith(".py") else []
    if not node.is_dir():
        return []
    entries = sorted(node.iterdir(), key=lambda entry: entry.name)
    return [found for entry in entries for found in _list_sources(entry, f"{name}/{entry.name}")]
