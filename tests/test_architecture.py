"""What the source promises about itself, held by reading it.

The rooms that decide what a peer does are pure: time, input and randomness are handed to them. The
import contracts (pyproject.toml) say which room may know which; this file says what of the outside
world a room may know. Both are fed what they must not let pass, to see that they complain.
"""

import ast
import re
import subprocess
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path

import grimp
import pytest
from importlinter.api import read_configuration
from importlinter.contracts.forbidden import ForbiddenContract
from importlinter.contracts.layers import LayersContract

from wend.strategies import registry

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "wend"
PURE = ("model", "matching", "protocol", "security", "strategies", "topology/__init__.py", "topology/paths.py")
"""Rooms, and files of rooms that are not pure as a whole."""

BANNED = {
    "a clock": {"time", "datetime", "sched", "zoneinfo"},
    "randomness": {"random", "secrets", "uuid"},
    "the network": {"socket", "socketserver", "ssl", "select", "selectors", "http", "urllib"},
    "an event loop": {"asyncio", "uvloop", "trio", "anyio"},
    "threads and processes": {
        "_thread",
        "concurrent",
        "contextvars",
        "multiprocessing",
        "queue",
        "signal",
        "subprocess",
        "threading",
    },
    "files and the system": {
        "fileinput",
        "glob",
        "io",
        "mmap",
        "os",
        "pathlib",
        "platform",
        "pyarrow.dataset",
        "pyarrow.fs",
        "pyarrow.parquet",
        "shutil",
        "sqlite3",
        "sys",
        "tempfile",
    },
    "imports that cannot be read": {"importlib", "runpy"},
    "Spark": {"pyspark", "py4j"},
    "the terminal": {"logging", "rich", "typer"},
}

BANNED_CALLS = {"open", "input", "print", "breakpoint", "__import__"}

# Plans, scenarios and traces are the files through which the loop closes; the model reads and writes them.
ALLOWED = {
    # The command that prints a canonical filter.
    "matching/__main__.py": {"sys"},
    # How they and all other results are put in their places.
    "model/files.py": {"os", "pathlib", "shutil"},
    "model/flows.py": {"pathlib", "pyarrow.parquet"},
    "model/forwarding.py": {"pathlib"},
    "model/plan.py": {"pathlib", "pyarrow.parquet"},
    # The one place that makes generators, each from a seed.
    "model/random_stream.py": {"random"},
    "model/scenario.py": {"pathlib"},
    "model/trace.py": {"pathlib", "pyarrow.parquet"},
    # It asks which build of the protocol there is, and imports nothing of it.
    "model/version.py": {"importlib"},
    # It imports the strategies that somebody asks for.
    "strategies/registry.py": {"importlib", "pathlib", "sys"},
    # X.509 has dates; the time now is handed in.
    "security/certificates.py": {"datetime"},
}

# numpy.random offers a hidden global generator; these names do not touch it.
SEEDED = {"BitGenerator", "Generator", "PCG64", "PCG64DXSM", "Philox", "SeedSequence"}


def imported(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Every module that is imported, wherever in the file; `from a import b` counts as a and a.b."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.lineno, node.module
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def is_within(module: str, names: set[str]) -> bool:
    return any(module == name or module.startswith(f"{name}.") for name in names)


def full_names(tree: ast.AST) -> dict[str, str]:
    """What each imported local name stands for: {"np": "numpy", "rng": "numpy.random.default_rng"}."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                root = alias.name.partition(".")[0]
                names[alias.asname or root] = alias.name if alias.asname else root
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return names


def dotted(node: ast.expr, names: dict[str, str]) -> str:
    match node:
        case ast.Name(id=name):
            return names.get(name, name)
        case ast.Attribute(value=value, attr=attr):
            return f"{dotted(value, names)}.{attr}"
    return ""


def impurities(source: str, file: str) -> list[str]:
    """What a pure file does that it must not, one sentence each; `file` is relative to src/wend."""
    tree = ast.parse(source)
    allowed = ALLOWED.get(file, set())
    found = [
        (line, f"imports {module}, which is {kind}")
        for line, module in imported(tree)
        for kind, banned in BANNED.items()
        if is_within(module, banned) and not is_within(module, allowed)
    ]
    names = full_names(tree)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = dotted(node.func, names)
        room, _, function = called.rpartition(".")
        if called in BANNED_CALLS:
            found.append((node.lineno, f"calls {called}()"))
        elif called == "numpy.random.default_rng" and not (node.args or node.keywords):
            found.append((node.lineno, "calls numpy.random.default_rng() without a seed"))
        elif room == "numpy.random" and function not in SEEDED | {"default_rng"}:
            found.append((node.lineno, f"calls numpy.random.{function}(), which draws from a global generator"))
    return [f"{file}:{line} {what}" for line, what in sorted(set(found))]


def spark_imports(source: str, file: str) -> list[str]:
    if file.startswith("pipeline/"):
        return []
    lines = {line for line, module in imported(ast.parse(source)) if is_within(module, {"pyspark"})}
    return [f"{file}:{line} imports pyspark outside pipeline" for line in sorted(lines)]


def impure_friends(source: str, file: str) -> list[str]:
    """What of ours a pure file imports that is not held to be pure."""
    found = set()
    for line, module in imported(ast.parse(source)):
        path = module.removeprefix("wend.").replace(".", "/")
        place = next((p for p in (f"{path}.py", f"{path}/__init__.py") if (SOURCE / p).exists()), None)
        if module.startswith("wend.") and place is not None and not place.startswith(PURE):
            found.add((line, f"imports {module}, which may be impure"))
    return [f"{file}:{line} {what}" for line, what in sorted(found)]


def python_files(place: Path) -> list[tuple[str, str]]:
    paths = [place] if place.is_file() else sorted(place.rglob("*.py"))
    return [(path.relative_to(SOURCE).as_posix(), path.read_text(encoding="utf-8")) for path in paths]


@pytest.mark.parametrize("place", PURE)
def test_what_is_pure_knows_no_clock_no_io_and_no_hidden_randomness(place: str) -> None:
    files = python_files(SOURCE / place)
    assert files, f"src/wend/{place} holds no Python files"
    assert [complaint for file, source in files for complaint in impurities(source, file)] == []
    assert [complaint for file, source in files for complaint in impure_friends(source, file)] == []


def test_only_the_pipeline_imports_spark() -> None:
    assert [c for file, source in python_files(SOURCE) for c in spark_imports(source, file)] == []


def test_every_exception_is_still_needed() -> None:
    for file, allowed in ALLOWED.items():
        modules = {module for _, module in imported(ast.parse((SOURCE / file).read_text(encoding="utf-8")))}
        unused = {name for name in allowed if not any(is_within(module, {name}) for module in modules)}
        assert not unused, f"{file} no longer imports {sorted(unused)}: take it out of ALLOWED"


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("import time", "imports time, which is a clock"),
        ("from datetime import datetime as now", "imports datetime, which is a clock"),
        ("def f():\n    import asyncio.events", "imports asyncio.events, which is an event loop"),
        ("from random import choice", "imports random, which is randomness"),
        ("import os.path", "imports os.path, which is files and the system"),
        ("from pyarrow import parquet", "imports pyarrow.parquet, which is files and the system"),
        ("import pyspark.sql", "imports pyspark.sql, which is Spark"),
        ("import numpy as np\nx = np.random.random(3)", "calls numpy.random.random()"),
        ("import numpy\nnumpy.random.seed(1)", "calls numpy.random.seed()"),
        ("from numpy import random as r\nr.shuffle([1])", "calls numpy.random.shuffle()"),
        ("from numpy.random import normal\nnormal()", "calls numpy.random.normal()"),
        ("import numpy as np\nrng = np.random.default_rng()", "without a seed"),
        ("text = open('a').read()", "calls open()"),
    ],
)
def test_the_checker_complains(source: str, complaint: str) -> None:
    assert complaint in "\n".join(impurities(source, "protocol/peer.py"))


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("model/scenario.py", "import tomllib\nfrom pathlib import Path"),
        ("model/randomness.py", "import numpy as np\nrng = np.random.default_rng(np.random.SeedSequence(7))"),
        ("protocol/peer.py", "import wend.model.time\nfrom .random import walk\nwalk.open()"),
        ("protocol/peer.py", "def f(rng):\n    return rng.random()"),
    ],
)
def test_the_checker_lets_pure_source_pass(file: str, source: str) -> None:
    assert impurities(source, file) == []


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("from wend.topology.maps import read", "imports wend.topology.maps, which may be impure"),
        ("from wend.topology import underlay_files", "imports wend.topology.underlay_files, which may be impure"),
        ("def f():\n    import wend.drivers.live.clock", "imports wend.drivers.live.clock, which may be impure"),
    ],
)
def test_the_checker_sees_through_friends(source: str, complaint: str) -> None:
    assert [c.partition(" ")[2] for c in impure_friends(source, "topology/paths.py")] == [complaint]
    assert impure_friends("from wend.topology import paths\nfrom wend.model.events import Event", "a.py") == []


def test_the_checker_sees_spark_outside_the_pipeline() -> None:
    source = "def f():\n    from pyspark.sql import functions"
    assert spark_imports(source, "console/app.py") == ["console/app.py:2 imports pyspark outside pipeline"]
    assert spark_imports(source, "pipeline/spark/session.py") == []


# ---------------------------------------------------------------- plug-ins are asked for what they declare

SHARED_PACKAGES = ("drivers", "console", "pipeline", "protocol", "lab")
PLUGIN_CLASSES = {name: made for table in registry.PLUGINS.values() for name, made in table.items()}
NAMED = {
    # What a plug-in needs that does not say otherwise.
    "protocol/plugins/kinds.py": {"link-state", "flooded"},
    # Overlays that a command draws by a central computation, beside those that peers make.
    "console/topology_commands.py": {"tdo-landmark", "chain", "random"},
    # Colours: who has none is white.
    "console/terminal.py": {"adaptive", "dcrd", "multipath", "d-tree", "r-tree"},
    # Settings of the world that have the name of a plug-in.
    "console/up_command.py": {"clusters"},
    "drivers/scenarios.py": {"random"},
    "drivers/world.py": {"random"},
    # What is set beside other systems.
    "lab/bench/simulated_replay.py": {"adaptive", "dcrd", "d-tree"},
    "lab/systems/system_table.py": {"adaptive", "dcrd"},
}


def plugins_named(source: str, file: str) -> list[tuple[int, str]]:
    """Where shared code names a plug-in, or knows the class of one, instead of asking for what it declares."""
    if file.startswith("strategies/"):
        return []
    tree = ast.parse(source)
    all_made = PLUGIN_CLASSES.values()
    classes = {kind for each in all_made for kind in each.__mro__ if kind.__module__ == each.__module__}
    known = {f"{kind.__module__}.{kind.__name__}" for kind in classes}
    texts = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and node.value in PLUGIN_CLASSES]
    found = [(text.lineno, str(text.value)) for text in texts]
    return sorted(found + [(line, module) for line, module in imported(tree) if module in known])


def test_shared_code_names_no_plug_in() -> None:
    files = [each for room in SHARED_PACKAGES for each in python_files(SOURCE / room)]
    found = {file: named for file, source in files if (named := plugins_named(source, file))}
    new = [f"{f}:{line} {name}" for f, all_ in found.items() for line, name in all_ if name not in NAMED.get(f, ())]
    assert new == [], "ask for what it declares (protocol/plugins), so that a plug-in stays one file and one line"
    assert {file: {name for _, name in all_} for file, all_ in found.items()} == NAMED, "an allowance is not needed"


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("if config.strategy != 'planned': pass", "planned"),
        ("TREES = ('mrst',)\nif s in TREES: pass", "mrst"),
        ("match name:\n    case 'dcrd': pass", "dcrd"),
        ("WEIGHTS = {'multipath': 1.5}", "multipath"),
        (
            "from wend.strategies.trees.routing import TreeRouting\nisinstance(r, TreeRouting)",
            "wend.strategies.trees.routing.TreeRouting",
        ),
        ("if peer.interest == 'trees-by-name': pass", "trees-by-name"),
        (
            "from wend.strategies.link_state.plugin import LinkStateGraph",
            "wend.strategies.link_state.plugin.LinkStateGraph",
        ),
        ("SLOW = {'tdo-farthest'}", "tdo-farthest"),
    ],
)
def test_the_checker_sees_a_plug_in_in_shared_code(source: str, name: str) -> None:
    assert [found for _, found in plugins_named(source, "console/up_command.py")] == [name]
    assert plugins_named(source, "strategies/planned/plugin.py") == []
    assert plugins_named(source, "strategies/tdo/chain.py") == []


# ---------------------------------------------------------------- import contracts

CONTRACTS = {"forbidden": ForbiddenContract, "layers": LayersContract}
PLUGINS = "A strategy knows the plug-in interface, not the peer that hosts it"
STRATEGIES = "Strategies know shared folders, not each other"
PATHS = "Of topology, strategies know paths on a graph"
SCENARIOS = "A peer does not know which scenario it is in"
DRIVERS = "The drivers do not know each other"


def broken(importer: str, module: str) -> set[str]:
    """The contracts that one more import would break."""
    graph = grimp.build_graph("wend", include_external_packages=True, cache_dir=None)
    graph.add_import(importer=f"wend.{importer}", imported=f"wend.{module}")
    config = read_configuration(str(ROOT / "pyproject.toml"))
    contracts = [
        CONTRACTS[options["type"]](options["name"], config["session_options"], options)
        for options in config["contracts_options"]
    ]
    return {contract.name for contract in contracts if not contract.check(deepcopy(graph), verbose=False).kept}


def test_the_contracts_are_kept() -> None:
    assert broken("protocol.peer", "protocol.host") == set()  # that one is there already


@pytest.mark.parametrize(
    ("importer", "module", "contract"),
    [
        ("strategies.dcrd.plugin", "protocol.peer", PLUGINS),
        ("strategies.flooded.plugin", "protocol.host", PLUGINS),
        ("strategies.tdo.handshake", "protocol.link.retransmission", PLUGINS),
        ("strategies.trees.generations", "protocol.delivery.store_and_forward", PLUGINS),
        ("strategies.link_state.plugin", "protocol.link.link", PLUGINS),
        ("strategies.tdo.rounds", "protocol.link.direct", PLUGINS),
        ("protocol.plugins", "protocol.delivery.local", PLUGINS),  # through a friend
        ("strategies.dcrd.plugin", "strategies.trees.routing", STRATEGIES),
        ("strategies.rendezvous.plugin", "strategies.dmm.spaces", STRATEGIES),
        ("strategies.ring.pastry", "strategies.clusters.routing", STRATEGIES),
        ("strategies.trees.table", "strategies.registry", STRATEGIES),
        ("protocol.host", "strategies.flooded.plugin", "Imports go one way"),
        ("strategies.link_state.plugin", "topology.maps", PATHS),
        ("strategies.planned.plugin", "topology.graph", PATHS),
        ("protocol.config", "model.scenario", SCENARIOS),
        ("drivers.live.comparison.meter", "drivers.sim.oracle", DRIVERS),
        ("drivers.sim.engine", "drivers.live.clock", DRIVERS),
        ("drivers.arrivals", "drivers.sim.missing", DRIVERS),
        ("drivers.world", "drivers.live.config", DRIVERS),
    ],
)
def test_a_planted_import_breaks_its_contract(importer: str, module: str, contract: str) -> None:
    assert contract in broken(importer, module)


# ---------------------------------------------------------------- names that are nobody's business

# Where packages come from is the choice of whoever installs them, and nobody has our home directory.
# The names are put together here so that this file does not hold them itself.
REGISTRIES = [
    ".".join(parts)
    for parts in (
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("anaconda", "org"),
        ("maven", "org"),
        ("npmjs", "org"),
        ("npmjs", "com"),
    )
]
PRIVATE = re.compile(
    "|".join(
        [
            *(rf"\b{re.escape(host)}\b" for host in REGISTRIES),
            r"--(?:extra-)?index" + r"-url",
            r"(?<![\w.~$}-])/(?:home|Users)" + r"/\w",
            r"(?<![\w.~$}-])/root" + r"/",
            r"[A-Z]:\\Users" + r"\\",
        ]
    )
)


def tracked_texts() -> Iterator[tuple[str, str]]:
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if listing.returncode != 0:
        pytest.skip("not a git clone")
    for name in sorted(filter(None, listing.stdout.decode().split("\0"))):
        path = ROOT / name
        content = path.read_bytes() if path.is_file() else b""
        if b"\0" not in content:
            yield name, content.decode("utf-8", errors="replace")


def test_no_file_names_a_registry_or_a_home_directory() -> None:
    found = [
        f"{name}:{number} {hit.group()}"
        for name, text in tracked_texts()
        for number, line in enumerate(text.splitlines(), 1)
        if (hit := PRIVATE.search(line))
    ]
    assert found == []


@pytest.mark.parametrize(
    "line",
    [
        f"see https://{REGISTRIES[0]}/project/wend",
        f"https://files.{REGISTRIES[1]}/packages",
        "pip install --index" + "-url x",
        "cd /home" + "/someone/wend",
        "cache = '/root" + "/.cache'",
    ],
)
def test_the_search_finds_what_it_looks_for(line: str) -> None:
    assert PRIVATE.search(line)


def test_constraints_are_names_and_versions_only() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if not re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][A-Za-z0-9.]*", line)] == []
