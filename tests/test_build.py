"""The wheel and the source package: what is in them, and what they need."""

import re
import subprocess
import tarfile
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest
from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder

from wend.model.version import __version__

ROOT = Path(__file__).resolve().parent.parent
UNPACKED = f"wend-{__version__}"


def tracked(*places: str) -> set[str]:
    """The files of the clone, as git knows them."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *places],
        cwd=ROOT, capture_output=True, check=False,
    )  # fmt: skip
    if listing.returncode != 0:
        pytest.skip("not a git clone")
    names = {name for name in listing.stdout.decode().split("\0") if name}
    return {name for name in names if (ROOT / name).is_file()}


def test_the_wheel_holds_the_package_and_nothing_else(tmp_path: Path) -> None:
    (wheel,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    with zipfile.ZipFile(wheel) as opened:
        names = set(opened.namelist())
        about = f"{UNPACKED}.dist-info"
        metadata = message_from_bytes(opened.read(f"{about}/METADATA"))
        scripts = opened.read(f"{about}/entry_points.txt").decode()
    package = {name for name in names if not name.startswith(f"{about}/")}
    assert package == {name.removeprefix("src/") for name in tracked("src/wend", "src/pyspark_wend")}
    assert f"{about}/licenses/LICENSE" in names
    assert "wend = wend.console.start:main" in scripts
    needs = metadata.get_all("Requires-Dist") or []
    base = {re.split("[<>=;]", line)[0] for line in needs if "extra ==" not in line}
    assert base == {"cryptography", "msgspec", "rich", "typer", "uvloop"}


def test_the_source_package_holds_what_git_holds(tmp_path: Path) -> None:
    (package,) = SdistBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    with tarfile.open(package) as opened:
        names = {name.removeprefix(f"{UNPACKED}/") for name in opened.getnames()}
    assert names - {"PKG-INFO"} == tracked()
