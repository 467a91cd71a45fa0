"""The public face: what `import wend` offers, typed for those who check their programs, and documented."""

import re
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pytest

import wend
from tests.docs.pages import write_files

ROOT = Path(__file__).parents[1]

PROGRAM = """\
import asyncio
import wend


def first_attributes(arrival: wend.Arrival) -> wend.Attributes:
    return arrival.attributes


async def main() -> wend.EventId:
    async with wend.connect("wend://127.0.0.1:7700", timeout=5.0, patience=10.0) as client:
        async with client.subscribe("temperature in [10, 20]", deadline=0.2) as events:
            headers: wend.Headers = {"unit": "celsius"}
            receipt = await client.publish({"temperature": wend.Range(14, 16)}, b"mild", headers)
            async for event in events:
                first_attributes(event)["temperature"]
                size: int = event.payload  # wrong
                events.take(event)  # wrong
            await client.forget(events)  # wrong
    kept: str = receipt.kept  # wrong
    return receipt.id


def on_time(seed: int) -> float:
    outcome: wend.Outcome = wend.simulate(wend.Scenario(strategy="dcrd", seed=seed, duration="1s"))
    summary: wend.Summary = outcome.summary
    wend.Scenario(straegy="dcrd")  # wrong
    wend.simulated  # wrong
    return summary.on_time


try:
    asyncio.run(main())
except (wend.ConnectionLost, wend.Refused, wend.FilterError, wend.ConfigError) as error:
    late: wend.WendError = error
"""


def test_a_typed_program_is_checked_against_the_package(tmp_path: Path) -> None:
    """In one run, with the project's own options and cache: what is wrong is found, and nothing else; nor in the
    plug-ins that the page shows."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    write_files("docs/how-to/write-a-plugin.md", tmp_path)
    plugins = sorted(str(file) for file in tmp_path.glob("*.py") if file != program)
    mypy = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary"]
    call = [*mypy, "src/wend/__init__.py", str(program), *plugins]
    done = subprocess.run(call, capture_output=True, text=True, check=False, cwd=ROOT, timeout=250)
    found = {int(line) for line in re.findall(r"program\.py:(\d+): error", done.stdout)}
    wrong = {number for number, line in enumerate(PROGRAM.splitlines(), 1) if line.endswith("# wrong")}
    assert found == wrong, done.stdout + done.stderr
    assert len(plugins) >= 3
    assert re.findall(r"(\w+\.py):\d+: error", done.stdout) == ["program.py"] * len(wrong)


def test_the_package_says_that_it_is_typed() -> None:
    assert files("wend").joinpath("py.typed").is_file()


@pytest.mark.parametrize("name", wend.__all__)
def test_every_name_is_there(name: str) -> None:
    assert getattr(wend, name) is not None
    assert name in dir(wend)


def test_other_names_are_not() -> None:
    with pytest.raises(AttributeError, match="module 'wend' has no attribute 'simulated'"):
        wend.simulated  # noqa: B018
