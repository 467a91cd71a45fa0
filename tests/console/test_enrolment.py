"""Enrolment as docs/security.md has it: a fresh host joins an overlay in under five commands.

The hosts are network namespaces with addresses that are not loopback, so that peers listen there only because they have
keys. Skipped where the system makes no namespaces.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.console.calls import ROOT, WEND

A, B = "10.213.7.1", "10.213.7.2"


def ip(*words: str) -> bool:
    return subprocess.run(["ip", *words], capture_output=True, check=False).returncode == 0


class Host:
    """A network namespace."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.folder = folder
        self.commands = 0
        folder.mkdir()

    def wend(self, *words: str) -> str:
        """Run a command that an operator types here."""
        self.commands += 1
        argv = ["ip", "netns", "exec", self.name, *WEND, *words]
        done = subprocess.run(
            argv, cwd=self.folder, env=environment(), capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    @contextmanager
    def started(self, *words: str) -> "Iterator[subprocess.Popen[str]]":
        self.commands += 1
        process = subprocess.Popen(
            ["ip", "netns", "exec", self.name, *WEND, *words],
            cwd=self.folder,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.communicate(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()


def environment() -> dict[str, str]:
    paths = [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[tuple[Host, Host]]:
    """Two hosts with a cable between them."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and the program ip")
    mark = uuid.uuid4().hex[:6]
    names = [f"enrol-{mark}-a", f"enrol-{mark}-b"]
    cable = [f"en{mark}a", f"en{mark}b"]
    with ExitStack() as stack:
        for name in names:
            if not ip("netns", "add", name):
                pytest.skip("this system does not allow network namespaces")
            stack.callback(ip, "netns", "del", name)
        assert ip("link", "add", cable[0], "type", "veth", "peer", "name", cable[1])
        for name, end, address in zip(names, cable, (A, B), strict=True):
            assert ip("link", "set", end, "netns", name)
            assert ip("-n", name, "addr", "add", f"{address}/30", "dev", end)
            assert ip("-n", name, "link", "set", end, "up") and ip("-n", name, "link", "set", "lo", "up")
        yield Host(names[0], tmp_path / "a"), Host(names[1], tmp_path / "b")


def peer_file(host: Host, peer: int, address: str, more: str = 'keys = "keys"\n') -> None:
    content = f'id = {peer}\nlisten = "{address}:7701"\nclients = "{address}:7700"\n{more}'
    (host.folder / "peer.toml").write_text(content)


def listens(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None and process.stderr is not None
    line = process.stdout.readline()
    found = re.search(r"clients on (wends?://\S+)", line)
    assert found is not None, line + process.stderr.read()
    return found[1]


def enrol(root: Host, host: Host, name: str, *options: str, keys: str = "keys") -> None:
    host.wend("key", "new", keys, "--name", name)
    request, made = host.folder / keys / "request.pem", root.folder / f"{name}.pem"
    root.wend("key", "sign", str(request), "--root", "root", "--out", made.name, *options)
    shutil.copy(made, host.folder / keys / "certificate.pem")  # the operator carries it
    host.commands += 1


def test_a_fresh_host_joins_in_under_five_commands(hosts: tuple[Host, Host]) -> None:
    first, fresh = hosts
    first.wend("key", "root", "root")
    enrol(first, first, "site-1", "--peer", "1")
    enrol(first, first, "alice", keys="alice")
    peer_file(first, 1, A)
    with ExitStack() as stack:
        there = listens(stack.enter_context(first.started("peer", "--config", "peer.toml")))
        assert there == f"wends://{A}:7700"

        before = first.commands
        enrol(first, fresh, "site-2", "--peer", "2")
        peer_file(fresh, 2, B)
        here = listens(stack.enter_context(fresh.started("peer", "--config", "peer.toml", "--join", f"{A}:7701")))
        assert fresh.commands + first.commands - before < 5

        alice = ("--keys", "alice")
        words = ("sub", "topic = 'x'", "--count", "1", "--timeout", "60s", "--json", "--peer", there, *alice)
        subscriber = stack.enter_context(first.started(*words))
        assert subscriber.stderr is not None and subscriber.stdout is not None
        assert "subscribed at peer 1" in subscriber.stderr.readline()
        shutil.copytree(first.folder / "alice", fresh.folder / "alice")
        while True:  # until the interest has crossed the new link
            receipt = json.loads(fresh.wend("pub", "topic=x", "--payload", "hello", "--json", "--peer", here, *alice))
            if receipt["targets"]:
                break
        event = json.loads(subscriber.stdout.readline())
        assert (event["payload"], event["id"].partition(".")[0]) == ("hello", "2")


def test_a_host_without_a_certificate_of_the_root_does_not_join(hosts: tuple[Host, Host]) -> None:
    first, stranger = hosts
    first.wend("key", "root", "root")
    enrol(first, first, "site-1", "--peer", "1")
    enrol(first, first, "alice", keys="alice")
    stranger.wend("key", "root", "root")
    enrol(stranger, stranger, "site-2", "--peer", "2")
    peer_file(first, 1, A)
    with first.started("peer", "--config", "peer.toml") as serving:
        there = listens(serving)
        for more, who, why in (
            ('keys = "keys"\n', "stranger", "the certificate is not signed by the root"),
            ("insecure = true\n", "first", "they are not sealed, and this peer has keys"),
        ):
            peer_file(stranger, 2, B, more)
            with stranger.started("peer", "--config", "peer.toml", "--join", f"{A}:7701") as process:
                listens(process)
                told = process.stderr if who == "stranger" else serving.stderr
                assert told is not None and any(why in line for line in told)
                status = json.loads(first.wend("status", "--json", "--peer", there, "--keys", "alice"))
                assert status["links"] == []
