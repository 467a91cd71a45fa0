"""Build Wend with a compiled core: mypyc turns the modules of CORE into extension modules, from the same source.

    python scripts/compiled.py             # build/compiled: the package with the compiled core, for PYTHONPATH
    python scripts/compiled.py --wheel     # dist/: a wheel of it, for pip install

It needs a C compiler, and mypy and setuptools from the `dev` extra. Nothing is built again while no source changed.
"""

import ast
import os
import shutil
import subprocess
import sys
from hashlib import blake2b
from pathlib import Path
from typing import TypeGuard

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "wend"
BUILT = ROOT / "build" / "compiled"
STAMP = BUILT / "stamp"
LIBRARY = "wend_core"
"""The name of the shared library that all compiled modules are in."""
DECLARED = "wend_core"
"""The package for the declarations of compiled modules, which stay Python."""

CORE = (
    "matching/index.py",
    "matching/peer_bitmaps.py",
    "matching/peer_blocks.py",
    "matching/peer_grids.py",
    "model/trace.py",
    "model/units.py",
    "model/keys.py",
    "protocol/driver_inputs.py",
    "protocol/host.py",
    "protocol/packet_outcomes.py",
    "protocol/peer.py",
    "protocol/plugin_effects.py",
    "protocol/ports.py",
    "protocol/timers.py",
    "protocol/delivery/*.py",
    "protocol/link/*.py",
    "protocol/plugins/*.py",
    "strategies/adaptive/*.py",
    "strategies/clusters/interest/*.py",
    "strategies/dcrd/*.py",
    "strategies/dmm/*.py",
    "strategies/flooded/*.py",
    "strategies/link_state/*.py",
    "strategies/multipath/*.py",
    "strategies/path_diversity/*.py",
    "strategies/planned/*.py",
    "strategies/rendezvous/*.py",
    "strategies/ring/*.py",
    "strategies/source_trees/*.py",
    "strategies/subscriptions/*.py",
    "strategies/trees/graph.py",
    "strategies/trees/interest.py",
    "strategies/trees/queue.py",
    "strategies/trees/routing.py",
    "strategies/trees/table.py",
    "drivers/sim/bucket_agenda.py",
    "drivers/sim/capacity.py",
    "drivers/sim/disturbances.py",
    "drivers/sim/drop_ledger.py",
    "drivers/sim/engine.py",
    "drivers/sim/managed_network.py",
    "drivers/sim/network.py",
    "drivers/sim/dht_simulation.py",
)
"""The modules at work for every packet. Those that only declare messages and settings stay as they are."""
PLUGINS = ("strategies/", "protocol/plugins/")
NATIVE = (
    *("Received", "Send", "SendEach", "WakeAt", "Deliver", "Receipt", "Notice"),
    *("Arrived", "Forward", "OutgoingControl", "Packet", "Route"),
)
"""Structs that are made for every packet and never encoded. Here they become classes whose fields C code reads."""
OPEN = (
    "Graph",
    "Interest",
    "Membership",
    "Routing",
    "SubscriptionTable",
    "Controller",
    "Copa",
    "Engine",
    "GatedPeer",
    "Network",
    "Peer",
    "Transport",
)
"""Classes from which Python classes inherit that are not of the core, beside plug-ins."""


def core_modules() -> list[str]:
    """The paths of the core's modules in the package."""
    found = sorted(path for pattern in CORE for path in SOURCE.glob(pattern) if path.name != "__init__.py")
    return [path.relative_to(SOURCE).as_posix() for path in found]


def prepare_source(source: str, module: str) -> tuple[str, str]:
    """Split a module of the core into the module for mypyc and the one with its declarations, which may be empty.

    mypyc ignores the keywords of a class, so Structs and settings stay Python, but for `NATIVE`, with the named tuples
    that are fields of theirs: the module imports them. It also allows no Python class to inherit from a compiled one,
    unless that says so; plug-ins from outside the tree and tests need it. All other lines stay where they are, because
    tracebacks name them.
    """
    tree = ast.parse(source)
    made = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    declared = [node for node in made if node.keywords and node.name not in NATIVE]
    mentioned = {name.id for node in declared for name in ast.walk(node) if isinstance(name, ast.Name)}
    declared += [node for node in made if node.name in mentioned and _is_named_tuple(node)]
    lines = source.splitlines(keepends=True)
    out = list(lines)
    for node in made:
        assert node.end_lineno is not None
        if node.name in NATIVE and node.keywords:
            _make_native(out, node)
        elif node in declared:
            out[node.lineno - 1 : node.end_lineno] = ["\n"] * (node.end_lineno - node.lineno + 1)
            out[node.lineno - 1] = f"from {_declaring_module(module)} import {node.name} as {node.name}\n"
        elif node.name in OPEN or (module.startswith(PLUGINS) and _has_family(node, made)):
            _fill(out, node.lineno - 1, "@mypyc_attr(allow_interpreted_subclasses=True)")
    if any(line.startswith("@mypyc_attr") for line in out):
        end = tree.body[0].end_lineno
        assert end is not None
        out[end - 1] = f"{out[end - 1].rstrip()}; MYPY = False\n"  # mypy takes this name for true
        _fill(out, end + 1, "if MYPY: from typing import Final; from mypy_extensions import mypyc_attr")
    if not declared:
        return "".join(out), ""
    others = [node.name for node in made if node not in declared]
    kept = _needed_statements(tree, declared, set(others))
    path = f"wend.{module.removesuffix('.py').replace('/', '.')}"
    known = [f"    from {path} import {name}\n" for name in others] or ["    pass\n"]
    head = ["from __future__ import annotations\nfrom typing import TYPE_CHECKING\n", "if TYPE_CHECKING:\n", *known]
    return "".join(out), "".join(head) + "\n".join("".join(lines[n.lineno - 1 : n.end_lineno]) for n in kept)


def _make_native(lines: list[str], node: ast.ClassDef) -> None:
    """Replace a Struct by a plain class with the same behaviour, except that it is not frozen, in the same lines."""
    fields = [(ast.unparse(f.target), ast.unparse(f.annotation), f.value) for f in node.body if _is_field(f)]
    names = [name for name, _, _ in fields]
    takes = [f"{name}: {kind}" + ("" if value is None else f" = {ast.unparse(value)}") for name, kind, value in fields]
    shown = ", ".join(f"{name}={{self.{name}!r}}" for name in names)
    new = (
        f"class {node.name}:",
        f"    __match_args__: Final = ({' '.join(f'{name!r},' for name in names)})",
        f"    def __init__(self, {', '.join(takes)}) -> None: {'; '.join(f'self.{name} = {name}' for name in names)}",
        f"    def __eq__(self, other: object) -> bool: return type(other) is {node.name} and "
        + " and ".join(f"self.{name} == other.{name}" for name in names),
        f"    def __hash__(self) -> int: return hash(({' '.join(f'self.{name},' for name in names)}))",
        f"    def __repr__(self) -> str: return f{f'{node.name}({shown})'!r}",
    )
    functions = [f for f in node.body if isinstance(f, ast.FunctionDef)]
    end = node.end_lineno
    assert end is not None
    if functions:
        first = functions[0]
        end = min([first.lineno, *(d.lineno for d in first.decorator_list)]) - 1
    lines[node.lineno - 1 : end] = ["\n"] * (end - node.lineno + 1)
    _fill(lines, node.lineno - 1, "@mypyc_attr(acyclic=True)")
    for at, line in enumerate(new, node.lineno - 1):
        assert lines[at] == "\n", f"there is no room for {node.name}"
        lines[at] = f"{line}\n"


def _is_named_tuple(node: ast.ClassDef) -> bool:
    return any(ast.unparse(base) == "NamedTuple" for base in node.bases)


def _is_field(node: ast.stmt) -> TypeGuard[ast.AnnAssign]:
    return isinstance(node, ast.AnnAssign)


def _has_family(node: ast.ClassDef, made: list[ast.ClassDef]) -> bool:
    """Whether a class inherits from another one, or another one of its module from it, and mypyc compiles it."""
    bases = {ast.unparse(base) for base in node.bases}
    derived = any(ast.unparse(base) == node.name for one in made for base in one.bases)
    return bool(bases or derived) and not bases & {"NamedTuple", "Protocol"}


def _needed_statements(tree: ast.Module, declared: list[ast.ClassDef], others: set[str]) -> list[ast.stmt]:
    """The declarations, with the imports and constants of their module, except those that need its other classes."""
    found: list[ast.stmt] = []
    absent = set(others)
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            used = {name.id for name in ast.walk(node) if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Load)}
            if used & absent:
                absent |= {name.id for name in ast.walk(node) if isinstance(name, ast.Name)} - used
                continue
            found.append(node)
        elif isinstance(node, ast.Import | ast.ImportFrom | ast.If) or node in declared:
            found.append(node)
    return found


def _fill(lines: list[str], before: int, text: str) -> None:
    """Put a text into the empty line before another one."""
    assert lines[before - 1] == "\n", f"there is no empty line before {lines[before]!r}"
    lines[before - 1] = f"{text}\n"


def _declaring_module(module: str) -> str:
    """The Python module that has the declarations of a compiled one."""
    return f"{DECLARED}.{module.removesuffix('.py').replace('/', '_')}"


def fingerprint() -> str:
    """A hash of everything that the build depends on: the sources, this script, Python and mypy."""
    from mypy.version import __version__ as mypy

    digest = blake2b(f"{sys.version} {mypy}".encode(), digest_size=16)
    for path in (Path(__file__), *sorted(SOURCE.rglob("*"))):
        if path.is_file() and "__pycache__" not in path.parts:
            digest.update(f"{path.name}\0{path.stat().st_size}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def build() -> None:
    wanted = fingerprint()
    if STAMP.is_file() and STAMP.read_text(encoding="utf-8") == wanted:
        return
    print("compiling the core (once, a few minutes) ...", file=sys.stderr)
    shutil.rmtree(BUILT, ignore_errors=True)
    shutil.copytree(SOURCE, BUILT / "wend", ignore=shutil.ignore_patterns("__pycache__"))
    modules = core_modules()
    (BUILT / DECLARED).mkdir()
    (BUILT / DECLARED / "__init__.py").touch()
    for module in modules:
        path = BUILT / "wend" / module
        text, declared = prepare_source(path.read_text(encoding="utf-8"), module)
        path.write_text(text, encoding="utf-8")
        if declared:
            (BUILT / f"{_declaring_module(module).replace('.', '/')}.py").write_text(declared, encoding="utf-8")
    log = ROOT / ".cache" / "compiled.log"
    log.parent.mkdir(exist_ok=True)
    command = [sys.executable, __file__, "--inside", *(f"wend/{module}" for module in modules)]
    environment = {**os.environ, "PYTHONPATH": str(BUILT), "MYPY_CACHE_DIR": str(ROOT / ".cache" / "mypy-compiled")}
    with log.open("w", encoding="utf-8") as out:
        done = subprocess.run(command, cwd=BUILT, env=environment, stdout=out, stderr=subprocess.STDOUT, check=False)
    if done.returncode:
        shutil.rmtree(BUILT)
        sys.exit(f"cannot compile the core: {_last_error(log)} ({log.relative_to(ROOT)} has all of it)")
    shutil.rmtree(BUILT / "build")
    for module in modules:  # what tracebacks show, and what the hash of the code reads
        shutil.copy2(SOURCE / module, BUILT / "wend" / module)
    STAMP.write_text(wanted, encoding="utf-8")


def _last_error(log: Path) -> str:
    lines = log.read_text(encoding="utf-8").splitlines()
    return next((line.strip() for line in reversed(lines) if "error" in line.lower()), "the build failed")


def _compile_here(modules: list[str]) -> None:
    """Compile in the current folder."""
    from mypyc.build import mypycify
    from setuptools import setup

    options = ["--strict", "--config-file", str(ROOT / "pyproject.toml")]
    extensions = mypycify([*options, *modules], opt_level="3", debug_level="0", group_name=LIBRARY)
    setup(name="wend", packages=[], py_modules=[], ext_modules=extensions, script_args=["build_ext", "--inplace"])


def wheel() -> Path:
    """Make a wheel of the build: the pure one, with the extension modules added and the tags of this platform."""
    work = ROOT / "build" / "wheel"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    _run("hatchling", "build", "-t", "wheel", "-d", str(work))
    (pure,) = work.glob("*.whl")
    _run("wheel", "unpack", str(pure), "-d", str(work))
    pure.unlink()
    (content,) = work.iterdir()
    shutil.copytree(BUILT / DECLARED, content / DECLARED, ignore=shutil.ignore_patterns("__pycache__"))
    for path in BUILT.rglob("*.so"):
        shutil.copy2(path, content / path.relative_to(BUILT))
    (about,) = content.glob("*.dist-info/WHEEL")
    text = about.read_text(encoding="utf-8").replace("Root-Is-Purelib: true", "Root-Is-Purelib: false")
    about.write_text(text, encoding="utf-8")
    _run("wheel", "pack", str(content), "-d", str(work))
    from packaging.tags import sys_tags

    tag = next(sys_tags())
    (packed,) = work.glob("*.whl")
    tags = ("--python-tag", tag.interpreter, "--abi-tag", tag.abi, "--platform-tag", tag.platform)
    _run("wheel", "tags", "--remove", *tags, str(packed))
    (tagged,) = work.glob("*.whl")
    out = ROOT / "dist" / tagged.name
    out.parent.mkdir(exist_ok=True)
    shutil.move(tagged, out)
    shutil.rmtree(work)
    return out


def _run(module: str, *words: str) -> None:
    done = subprocess.run([sys.executable, "-m", module, *words], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{module} failed: {(done.stderr or done.stdout).strip().splitlines()[-1]}")


def main() -> None:
    if "--inside" in sys.argv:
        modules = sys.argv[sys.argv.index("--inside") + 1 :]
        sys.argv = sys.argv[:1]
        _compile_here(modules)
        return
    build()
    print(f"the compiled core is in {BUILT.relative_to(ROOT)}")
    if "--wheel" in sys.argv:
        print(f"pip install {wheel().relative_to(ROOT)}")


if __name__ == "__main__":
    main()
