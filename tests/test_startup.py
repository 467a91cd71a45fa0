"""What is heavy is imported where it is used: a command that needs none of it starts without it."""

import subprocess
import sys

import pytest

HEAVY = (
    "numpy",
    "scipy",
    "scipy.optimize",
    "scipy.sparse",
    "numba",
    "pyarrow",
    "pyspark",
    "matplotlib",
    "asyncio",
    "cryptography",
    "rich",
)


@pytest.mark.parametrize(
    ("code", "allowed"),
    [
        ("import wend", set()),
        ("import wend; wend.connect", {"asyncio"}),
        ("import wend.drivers.live.process", {"asyncio"}),
        (
            "import wend.console.app, wend.console.peer_command, wend.console.terminal, wend.console.pub_sub_commands",
            {"asyncio"},
        ),
        ("import wend.drivers.sim", {"numpy", "scipy", "scipy.sparse", "pyarrow"}),
        ("import wend.topology.catalog", {"numpy"}),
    ],
)
def test_only_what_is_needed_is_imported(code: str, allowed: set[str]) -> None:
    told = f"{code}; import sys; print(*(name for name in {HEAVY} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True, timeout=60)
    assert set(done.stdout.split()) <= allowed
