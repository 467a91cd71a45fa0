"""The operators' page: its file loads, the unit and the container run an existing command, and the log lines exist."""

import ast
import configparser
import json
import re
import shlex
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, files_of, read, section, wend
from wend.drivers.live.config import PeerFile, load_peer_file
from wend.drivers.live.peer import LINGER_S
from wend.drivers.live.store.compaction import STEP_BYTES
from wend.drivers.live.store.store import GROWTH_BYTES, Store
from wend.drivers.live.store.writer import RETRY_S
from wend.model.events import Event, EventId
from wend.model.units import SECOND
from wend.protocol.config import DeliverySettings
from wend.protocol.records import PendingRecord

PAGE = "docs/how-to/operate.md"
DAY = 24 * 3600 * SECOND
UNIT = ROOT / "deploy" / "wend.service"
CONTAINER = (ROOT / "deploy" / "Containerfile").read_text()


def test_the_file_is_a_peers_file(tmp_path: Path) -> None:
    (tmp_path / "peer.toml").write_text(files_of(PAGE)["peer.toml"])
    file = load_peer_file(tmp_path / "peer.toml")
    assert (file.listen_address[1], file.clients_address[1]) == (7701, 7700)
    assert file.store == "/var/lib/wend/peer.store"
    assert file.of(DeliverySettings).persistence


def unit() -> dict[str, str]:
    parser = configparser.ConfigParser(interpolation=None, strict=True)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(UNIT.read_text())
    return dict(parser["Service"])


def test_the_unit_and_the_container_run_the_same_command() -> None:
    program, *words = shlex.split(unit()["ExecStart"])
    (entry,) = re.findall(r"^ENTRYPOINT (\[.*\])$", CONTAINER, re.MULTILINE)
    assert ["wend", *words] == json.loads(entry) and program.endswith("/bin/wend")
    done = wend(words[0], "--help", folder=ROOT)
    assert all(word in done.stdout for word in words if word.startswith("--"))
    assert f"/var/lib/{unit()['StateDirectory']}" in CONTAINER
    assert set(re.findall(r"(\d+)/(tcp|udp)", CONTAINER)) == {("7700", "tcp"), ("7701", "udp")}


def test_a_peer_that_cannot_start_ends_as_the_unit_expects(tmp_path: Path) -> None:
    (tmp_path / "peer.toml").write_text('id = 1\npersistence = true\nstore = "s"\n')
    (tmp_path / "s").write_bytes(b"something else")
    done = wend("peer", "--config", "peer.toml", folder=tmp_path)
    assert str(done.returncode) == unit()["RestartPreventExitStatus"]
    assert "is not the store of a Wend peer" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    program = shlex.split(unit()["ExecStart"])[0]
    text = UNIT.read_text().replace(program, sys.executable).replace("User=wend", "User=root")
    (tmp_path / "wend.service").write_text(text)
    call = ["systemd-analyze", "verify", "--man=no", str(tmp_path / "wend.service")]
    done = subprocess.run(call, capture_output=True, text=True, timeout=60, check=False)
    assert [line for line in done.stderr.splitlines() if "wend.service" in line] == []


@cache
def sentences() -> str:
    """All texts in the live driver, placeholders and all."""
    found = []
    for path in sorted((ROOT / "src" / "wend" / "drivers" / "live").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
            elif isinstance(node, ast.JoinedStr):
                found.append("".join(str(v.value) if isinstance(v, ast.Constant) else "X" for v in node.values))
    return "\n".join(found)


def test_the_log_lines_exist() -> None:
    lines = re.findall(r"^\| `(.+?)` \|", section(PAGE, "What the log says"), re.MULTILINE)
    assert len(lines) == 12
    both = sentences() + "\nis a store of a newer version of Wend"  # put together from two texts
    assert "a newer version of Wend" in sentences()
    assert [line for line in lines if line not in both] == []


def test_the_numbers_are_those_of_the_code() -> None:
    page = read(PAGE)
    assert f"plus {GROWTH_BYTES >> 20} MiB" in page
    assert 1 / RETRY_S == 10 and "ten times a second" in page
    assert PeerFile(id=1).away_ns == DAY and "for up to `away` (a day)" in page
    assert LINGER_S == 0.5 and "within half a second" in page


def test_a_store_may_be_copied_while_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wend.drivers.live.store.store.GROWTH_BYTES", 10 * STEP_BYTES)
    store = Store(tmp_path / "peer.store")
    for number in range(1000):
        store.append(PendingRecord(Event(EventId(1, 1, number), {}, bytes(100)), 0, (2,)))
        if number % 100 == 99:
            copy = tmp_path / f"{number}.store"
            shutil.copy(tmp_path / "peer.store", copy)
            restored = Store(copy)
            assert len(restored.records) == number + 1 and not restored.damaged
            restored.close()
    store.close()
