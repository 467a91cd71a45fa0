"""A strategy is a folder that can be deleted: without it the core, the simulator and `adaptive` work as before."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
CORE_TESTS = (
    "tests/strategies/adaptive",
    "tests/strategies/flooded",
    "tests/protocol/test_conversations.py",
    "tests/protocol/test_retransmission.py",
    "tests/protocol/test_failure_detector.py",
    "tests/protocol/delivery",
    "tests/drivers/sim/test_adaptive.py",
    "tests/drivers/sim/test_detection.py",
)
NAMES = """
from wend.strategies.registry import PLUGINS, STRATEGIES
print(*[name for table in (*PLUGINS.values(), STRATEGIES) for name in table])
[plugin for table in PLUGINS.values() for plugin in table.values()]
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("folder", "names"),
    [
        ("dmm", {"dmm", "dmm-ar"}),
        ("esposito", {"esposito"}),
        ("clusters", {"clusters", "clusters-linked", "clusters-adaptive", "cluster-trees", "cluster-graph"}),
        ("trees", {"mrst", "spt-k", "mrst-trees", "spt-k-trees", "trees", "trees-by-name"}),
        ("tdo", {"tdo-landmark", "tdo-random", "tdo-nearest", "tdo-farthest", "random", "chain"}),
    ],
)
def test_a_strategy_can_be_deleted(folder: str, names: set[str], tmp_path: Path) -> None:
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "src")}
    before = run(environment, "-c", NAMES).split()
    shutil.rmtree(tmp_path / "src" / "wend" / "strategies" / folder)
    assert set(before) - set(run(environment, "-c", NAMES).split()) == names
    run(environment, "-m", "pytest", "-q", "-x", *CORE_TESTS)


def run(environment: dict[str, str], *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout
