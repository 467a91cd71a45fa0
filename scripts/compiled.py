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

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "wend"
BUILT = ROOT / "build" / "compiled"
STAMP = BUILT / "stamp"
LIBRARY = "wend_core"
"""The name of the shared library that all compiled modules are in."""

CORE = (
    "matching/index.py",
    "matching/peer_bitmaps.py",
    "model/trace.py",
    "protocol/copy_ranks.py",
    "protocol/host.py",
    "protocol/peer.py",
    "protocol/timers.py",
    "protocol/delivery/*.py",
    "protocol/graph/*.py",
    "protocol/interest/*.py",
    "protocol/link/*.py",
    "protocol/routing/*.py",
    "drivers/sim/capacity.py",
    "drivers/sim/engine.py",
    "drivers/sim/network.py",
)
"""The modules at work for every packet. Those that only declare messages and settings stay as they are."""


def core() -> list[str]:
    """The paths of the core's modules in the package."""
    found = sorted(path for pattern in CORE for path in SOURCE.glob(pattern) if path.name != "__init__.py")
    return [path.relative_to(SOURCE).as_posix() for path in found]


def quoted(source: str) -> str:
    """The same module, with the annotations of class attributes as texts.

    mypyc reduces an annotation to a plain type, but a text it leaves alone. Structs and settings need all of it.
    """
    lines = source.encode().splitlines(keepends=True)
    classes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef)]
    annotations = [node.annotation for made in classes for node in made.body if isinstance(node, ast.AnnAssign)]
    annotations = [node for node in annotations if not isinstance(node, ast.Constant)]
    for node in sorted(annotations, key=lambda node: -node.lineno):
        assert node.end_lineno is not None
        before, after = lines[node.lineno - 1][: node.col_offset], lines[node.end_lineno - 1][node.end_col_offset :]
        lines[node.lineno - 1 : node.end_lineno] = [before + repr(ast.unparse(node)).encode() + after]
    return b"".join(lines).decode()


def fingerprint() -> str:
    """What the build depends on: the sources, this script, Python and mypy."""
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
    print("compiling the core (once, about a minute) ...", file=sys.stderr)
    shutil.rmtree(BUILT, ignore_errors=True)
    shutil.copytree(SOURCE, BUILT / "wend", ignore=shutil.ignore_patterns("__pycache__"))
    modules = core()
    for module in modules:
        path = BUILT / "wend" / module
        path.write_text(quoted(path.read_text(encoding="utf-8")), encoding="utf-8")
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


def _inside(modules: list[str]) -> None:
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
        _inside(modules)
        return
    build()
    print(f"the compiled core is in {BUILT.relative_to(ROOT)}")
    if "--wheel" in sys.argv:
        print(f"pip install {wheel().relative_to(ROOT)}")


if __name__ == "__main__":
    main()
