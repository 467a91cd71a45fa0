"""A peer's file with keys and grants: what it needs, what the peer says, and what SIGHUP takes over."""

import asyncio
import re
import signal
import sys
from pathlib import Path

import pytest

import wend
from tests.console.calls import started
from tests.drivers.live.key_ring import KeyRing, add_token, revoke
from tests.drivers.live.net import fresh, known, run, until
from tests.drivers.live.processes import Process
from tests.errors import raises
from wend.drivers.live.access.key_files import read_key_folder
from wend.drivers.live.config import PeerFile, load_peer_file
from wend.drivers.live.process import PeerProcess
from wend.model.errors import Refused

PLAIN = 'id = 1\nlisten = "127.0.0.1:0"\nclients = "127.0.0.1:0"\n'
KEYS = PLAIN + 'keys = "site"\ntls = true\n'


@pytest.fixture
def ring(tmp_path: Path) -> KeyRing:
    made = KeyRing(tmp_path)
    made.enrol("site", 1)
    return made


def file_of(folder: Path, content: str) -> PeerFile:
    path = folder / "peer.toml"
    path.write_text(content)
    return load_peer_file(path)


# ---------------------------------------------------------------- the file


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (PLAIN + "tls = true", "tls = true needs keys"),
        ('id = 1\nclients = "0.0.0.0:0"', r"refusing to listen on 0\.0\.0\.0:0 without keys"),
        ('id = 1\nkeys = "site"\ntls = false\nclients = "0.0.0.0:0"', r"refusing to listen on 0\.0\.0\.0:0 without"),
        (PLAIN + "[grants.a]\npublish = 'topic ='", "grants.a: publish: "),
        (PLAIN + "[grants.a]\nread = 'true'", "has no field 'read'"),
    ],
)
def test_files_that_cannot_work(ring: KeyRing, tmp_path: Path, content: str, why: str) -> None:
    with raises("invalid-setting", match=why):
        file_of(tmp_path, content)


def test_tls_follows_from_the_address_of_clients(ring: KeyRing, tmp_path: Path) -> None:
    assert not file_of(tmp_path, PLAIN).uses_tls
    assert not file_of(tmp_path, PLAIN + 'keys = "site"\n').uses_tls
    assert file_of(tmp_path, KEYS).uses_tls
    assert file_of(tmp_path, 'id = 1\nlisten = "127.0.0.1:0"\nclients = "0.0.0.0:0"\nkeys = "site"\n').uses_tls


def test_keys_of_another_peer_or_that_others_can_read_are_refused(ring: KeyRing, tmp_path: Path) -> None:
    ring.enrol("other", 2)
    ring.enrol("client")
    for name, why in (
        ("other", "is for peer 2, and this is peer 1"),
        ("client", "is for a client, and this is peer 1"),
    ):
        with raises("invalid-setting", match=why):
            PeerProcess(file_of(tmp_path, PLAIN + f'keys = "{name}"\n'))
    (tmp_path / "site" / "session.key").chmod(0o644)
    with raises("invalid-setting", match="other users can read or write"):
        PeerProcess(file_of(tmp_path, KEYS))


# ---------------------------------------------------------------- SIGHUP


def test_a_reload_takes_over_certificates_tokens_and_grants(ring: KeyRing, tmp_path: Path) -> None:
    async def scene() -> None:
        service = PeerProcess(file_of(tmp_path, KEYS))
        await service.start()
        url = f"wends://127.0.0.1:{service.listener.address[1]}"
        try:
            async with wend.connect(url, keys=ring.enrol("alice", groups=("plant",))) as client:
                await client.publish({"topic": "a"})
                token = add_token(tmp_path / "site", "cam", ("plant",))
                with raises("untrusted"):
                    await wend.connect(url, root=ring.root, token=token)
                ring.enrol("site", 1)
                await service.reload(
                    lambda: file_of(tmp_path, KEYS + "[grants.plant]\nsubscribe = 'true'\npublish = 'x = 1'\n")
                )
                assert service.keys is not None
                assert service.keys.credentials == read_key_folder(tmp_path / "site").credentials
                async with wend.connect(url, root=ring.root, token=token) as other:
                    await other.publish({"x": 1})
                while True:  # until it has connected again
                    try:
                        await client.publish({"topic": "a"})
                    except Refused as error:
                        assert "may publish only events with x = 1" in str(error)
                        break
                    except wend.ConnectionLost:
                        pass
                assert not service.peer.counters.failed
        finally:
            await service.stop()

    run(scene())


def test_keys_and_grants_that_cannot_be_read_again_change_nothing(ring: KeyRing, tmp_path: Path) -> None:
    async def scene() -> None:
        service = PeerProcess(file_of(tmp_path, KEYS))
        await service.start()
        try:
            before = service.keys
            (tmp_path / "site" / "revoked.txt").write_text("nonsense\n")
            await service.reload(lambda: file_of(tmp_path, KEYS))
            assert service.keys is before and service.peer.counters.failed["read-keys"] == 1
            (tmp_path / "site" / "revoked.txt").unlink()
            ring.enrol("site", 1, ends_s=-5)  # an operator's slip
            await service.reload(lambda: file_of(tmp_path, KEYS))
            assert service.keys is before and service.peer.counters.failed["read-keys"] == 2
            url = f"wends://127.0.0.1:{service.listener.address[1]}"
            async with wend.connect(url, keys=ring.enrol("alice")) as client:
                await client.publish({"topic": "a"})
        finally:
            await service.stop()

    run(scene())


def test_a_signal_disconnects_who_is_revoked(ring: KeyRing, tmp_path: Path) -> None:
    async def scene() -> None:
        path = tmp_path / "peer.toml"
        path.write_text(KEYS)
        mallory = ring.enrol("mallory")
        process = await Process.start(path)
        assert process.url.startswith("wends://")
        try:
            async with wend.connect(process.url, keys=mallory) as client:
                events = await client.subscribe("topic = 'a'")
                revoke(tmp_path / "site", read_key_folder(mallory).credentials.identity.serial)
                process.send_signal(signal.SIGHUP)
                with raises("credentials-revoked"):
                    await anext(events)
            async with wend.connect(process.url, keys=ring.enrol("alice")) as other:
                assert (await other.status()).clients["not-admitted"] >= 1
        finally:
            await process.stop()

    run(scene())


# ---------------------------------------------------------------- what it says


def test_plan_load_reaches_a_peer_with_keys(ring: KeyRing, tmp_path: Path) -> None:
    async def scene() -> None:
        path = tmp_path / "peer.toml"
        path.write_text(KEYS)
        process = await Process.start(path)
        try:
            asked = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "wend.console.start", "plan", "load", "--peer", process.url),
                *("--keys", str(ring.enrol("alice"))),
                stderr=asyncio.subprocess.PIPE,
            )
            said = (await asked.communicate())[1].decode()
        finally:
            await process.stop()
        assert "names no plan" in said and asked.returncode, "it was asked, and refused for want of a plan"

    run(scene())


def said_at_start(path: Path, *options: str) -> tuple[str, str]:
    with started("peer", "--config", str(path), *options) as process:
        assert process.stdout is not None and process.stderr is not None
        line = process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        return line, process.communicate()[1]


def test_a_peer_says_who_can_speak_to_it(ring: KeyRing, tmp_path: Path) -> None:
    path = tmp_path / "peer.toml"
    path.write_text(KEYS)
    line, err = said_at_start(path)
    assert re.search(r"clients on wends://127\.0\.0\.1:\d+", line) and "without TLS" not in err
    path.write_text(PLAIN + 'keys = "site"\n')
    line, err = said_at_start(path)
    assert "clients on wend://" in line and "clients connect without TLS, and show no keys" in err
    path.write_text(PLAIN + "insecure = true\n")
    assert "INSECURE" in said_at_start(path, "--quiet")[1]
    path.write_text(PLAIN)
    assert said_at_start(path, "--quiet")[1] == ""


def test_commands_connect_with_keys_and_tokens(ring: KeyRing, tmp_path: Path) -> None:
    from tests.console.calls import wend as command

    path = tmp_path / "peer.toml"
    path.write_text(KEYS)
    token = tmp_path / "cam.token"
    token.write_text(add_token(tmp_path / "site", "cam"))
    token.chmod(0o600)
    alice = ring.enrol("alice")

    async def scene() -> None:
        process = await Process.start(path)
        try:
            for options in (("--keys", str(alice)), ("--root", str(ring.root), "--token", str(token))):
                for words in (("pub", "topic=a"), ("status",), ("subscriptions",), ("link", "list", "--json")):
                    done = await asyncio.to_thread(command, *words, "--peer", process.url, *options)
                    assert (done.returncode, done.stderr) == (0, "")
            done = await asyncio.to_thread(command, "pub", "topic=a", "--peer", process.url)
            assert done.returncode == 2
            assert done.stderr == "wend: wends:// needs a certificate with its key, or a token\n"
        finally:
            await process.stop()

    run(scene())


# ---------------------------------------------------------------- peers


def test_a_neighbour_forwards_only_what_its_group_may(tmp_path: Path) -> None:
    """A leaf of the overlay brings its own events, and no others', though they pass through it."""

    async def scene() -> None:
        ring = KeyRing(tmp_path)
        for peer in (1, 2, 3):
            ring.enrol(f"site-{peer}", peer, ("leaves",) if peer == 2 else ())
        services: list[PeerProcess] = []
        try:
            for peer in (1, 2, 3):
                near = [f"127.0.0.1:{services[-1].peer.address[1]}"] if services else []
                content = f'id = {peer}\nlisten = "127.0.0.1:0"\nclients = "127.0.0.1:0"\nkeys = "site-{peer}"\n'
                content += f'strategy = "dcrd"\njoin = {near}\n'
                limit = '[grants.leaves]\npublishers = ["own"]\n[grants.local]\npublish = "true"\nsubscribe = "true"\n'
                services.append(PeerProcess(file_of(tmp_path, content + (limit if peer == 1 else ""))))
                await services[-1].start()
            urls = [f"wend://127.0.0.1:{service.listener.address[1]}" for service in services]
            async with wend.connect(urls[0]) as a, wend.connect(urls[1]) as b, wend.connect(urls[2]) as c:
                events = await a.subscribe("topic = 'x'")
                await known(c, "x", 1)
                await known(b, "x", 1)
                refused = services[0].peer.counters.refused
                await c.publish({"topic": "x"}, b"forged or not, it comes by a leaf")
                await until(lambda: refused["forwarding-not-granted"] > 0)
                await b.publish({"topic": "x"}, b"own")
                event = await fresh(events)
                assert (event.payload, event.id.publisher) == (b"own", 2)
        finally:
            for service in services:
                await service.stop()

    run(scene())
