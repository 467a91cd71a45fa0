"""Clients with keys: who may connect by TLS, with what, and what everybody else is told."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import wend
from tests.drivers.live.key_ring import KeyRing, add_token, revoke
from tests.drivers.live.net import RawClient, Site, overlay, run, until
from tests.errors import raises
from wend.drivers.live import frames
from wend.drivers.live.access import admission, tls
from wend.drivers.live.access.admission import ClientAdmission
from wend.drivers.live.access.grants import NO_GRANTS, Grant, GrantTable
from wend.drivers.live.access.key_files import read_key_folder
from wend.drivers.live.access.tls import make_client_tls
from wend.drivers.live.clock import wall_s
from wend.model.errors import ErrorCode


@asynccontextmanager
async def served(ring: KeyRing, **grants: Grant) -> AsyncIterator[tuple[Site, str, Path]]:
    """A peer with keys, its URL for TLS, and the folder of its keys."""
    folder = ring.enrol("site", 0)
    admission = ClientAdmission(read_key_folder(folder), GrantTable(grants), tls=True)
    async with overlay([], admission=admission) as (site,):
        yield site, site.url.replace("wend://", "wends://"), folder


def renew(site: Site, folder: Path, grants: GrantTable = NO_GRANTS) -> None:
    site.listener.admission.replace_keys(read_key_folder(folder), grants)
    site.listener.recheck()


@pytest.fixture(scope="module")
def ring(tmp_path_factory: pytest.TempPathFactory) -> KeyRing:
    return KeyRing(tmp_path_factory.mktemp("keys"))


async def round_trip(client: Any) -> None:
    async with client.subscribe("topic = 'a'") as events:
        await client.publish({"topic": "a"}, b"x" * 100_000)
        assert (await anext(events)).payload == b"x" * 100_000


# ---------------------------------------------------------------- who is served


def test_a_client_with_a_certificate_is_served(ring: KeyRing) -> None:
    async def scene() -> None:
        async with served(ring) as (site, url, _), wend.connect(url, keys=ring.enrol("alice")) as client:
            await round_trip(client)
            assert client.peer == 0
            assert site.counts["now"] == 1

    run(scene())


def test_single_files_do_as_well_as_a_folder(ring: KeyRing) -> None:
    async def scene() -> None:
        mine = ring.enrol("alice")
        files = {"root": ring.root, "certificate": str(mine / "certificate.pem"), "key": mine / "signing.key"}
        async with served(ring) as (_, url, _), wend.connect(url, **files) as client:
            await round_trip(client)

    run(scene())


def test_a_client_with_a_token_is_served(ring: KeyRing, tmp_path: Path) -> None:
    async def scene() -> None:
        async with served(ring) as (site, url, folder):
            token = add_token(folder, "cam")
            renew(site, folder)
            async with wend.connect(url, root=ring.root, token=token) as client:
                await round_trip(client)
            file = tmp_path / "cam.token"
            file.write_text(f"{token}\n")
            file.chmod(0o600)
            async with wend.connect(url, root=ring.root, token=file) as client:
                await round_trip(client)

    run(scene())


def test_one_url_names_several_peers_with_keys(ring: KeyRing) -> None:
    async def scene() -> None:
        async with served(ring) as (site, url, _):
            gone = "wends://127.0.0.1:1,"
            async with wend.connect(gone + url.removeprefix("wends://"), keys=ring.enrol("alice")) as client:
                await round_trip(client)
                for session in list(site.listener.sessions):
                    session.end()
                await until(lambda: client.reconnects == 1)
                await round_trip(client)

    run(scene())


# ---------------------------------------------------------------- who is not


def test_strangers_are_told_why(ring: KeyRing, tmp_path: Path) -> None:
    async def scene() -> None:
        other = KeyRing(tmp_path, "other")
        async with served(ring) as (site, url, folder):
            late = add_token(folder, "late", ends_s=-5)
            gone = ring.enrol("gone")
            revoke(folder, read_key_folder(gone).credentials.identity.serial)
            renew(site, folder)
            mine = other.enrol("eve")
            refusals: list[tuple[dict[str, Any], ErrorCode]] = [
                ({"keys": mine}, "untrusted"),
                ({"keys": gone}, "credentials-revoked"),
                ({"root": ring.root, "token": "wend-token-guessed"}, "untrusted"),
                ({"root": ring.root, "token": late}, "credentials-expired"),
            ]
            for options, code in refusals:
                with raises(code):
                    await wend.connect(url, **options)
            assert site.counts["not-admitted"] == 3
            await until(lambda: site.counts["tls-failed"] == 1)
            assert site.listener.limits.waiting == 0

    run(scene())


def test_certificates_of_another_root_and_those_that_ended_end_the_handshake(ring: KeyRing, tmp_path: Path) -> None:
    async def scene() -> None:
        other = KeyRing(tmp_path, "other").enrol("eve")
        async with served(ring) as (site, _, _):
            for folder in (other, ring.enrol("ended", ends_s=-5), ring.enrol("early", begins_s=600)):
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
                context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
                context.load_cert_chain(folder / "certificate.pem", folder / "signing.key")
                client = await RawClient.connect(site.listener.address, ssl=context)
                client.send(frames.Greet(), frames.Publish(1, {"topic": "a"}))
                with suppress(OSError):  # an alert, or a reset
                    assert await client.reader.read() == b""
            await until(lambda: site.counts["tls-failed"] == 3)
            assert (site.counts["connected"], site.peer.counters.publications) == (0, 0)

    run(scene())


def test_a_client_without_certificate_and_token_is_turned_away(ring: KeyRing) -> None:
    async def scene() -> None:
        async with served(ring) as (site, _, _):
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            client = await RawClient.connect(site.listener.address, ssl=context)
            client.send(frames.Greet(), frames.Publish(1, {"topic": "a"}))
            assert await client.receive() == [
                frames.RefusedFrame(0, "untrusted", "this peer needs a certificate or a token")
            ]
            assert await client.reader.read() == b""
            assert site.peer.counters.publications == 0

    run(scene())


def test_a_request_before_the_token_ends_the_connection(ring: KeyRing) -> None:
    async def scene() -> None:
        async with served(ring) as (site, _, _):
            tls = make_client_tls(root=ring.root, token="none")
            client = await RawClient.connect(site.listener.address, ssl=tls.context, server_hostname="x")
            client.send(frames.Publish(1, {"topic": "a"}))
            assert await client.receive() == [frames.RefusedFrame(0, "not-greeted", "a client has to greet first")]
            assert site.peer.counters.publications == 0

    run(scene())


def test_the_first_frame_of_a_stranger_is_short(ring: KeyRing) -> None:
    async def scene() -> None:
        async with served(ring) as (site, _, _):
            tls = make_client_tls(root=ring.root, token="none")
            client = await RawClient.connect(site.listener.address, ssl=tls.context, server_hostname="x")
            client.send(frames.Greet(token="t" * 5000))
            (answer,) = await client.receive()
            assert isinstance(answer, frames.RefusedFrame) and answer.code == "too-large"

    run(scene())


def test_a_client_that_speaks_no_tls_is_turned_away_and_told_so(ring: KeyRing) -> None:
    async def scene() -> None:
        async with served(ring) as (site, url, _):
            with raises("unreachable"):
                await wend.connect(site.url, timeout=5)
            await until(lambda: site.counts["tls-failed"] == 1)
        async with overlay([]) as (plain,):
            url = plain.url.replace("wend://", "wends://")
            with raises("untrusted"):
                await wend.connect(url, keys=ring.enrol("alice"))

    run(scene())


def test_older_tls_is_refused(ring: KeyRing) -> None:
    async def scene() -> None:
        async with served(ring) as (site, _, _):
            context = make_client_tls(keys=ring.enrol("alice")).context
            context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_2
            with pytest.raises(OSError):  # an alert, or a reset
                await RawClient.connect(site.listener.address, ssl=context, server_hostname="x")

    run(scene())


def test_a_client_cannot_serve_as_a_peer_and_a_peer_not_as_another(ring: KeyRing) -> None:
    async def scene() -> None:
        for folder, why in (
            (ring.enrol("bob"), "not trusted: unsuitable certificate purpose"),
            (ring.enrol("other", 9), "says that it is peer 0, but has the certificate of peer 9"),
        ):
            admission = ClientAdmission(read_key_folder(folder), tls=True)
            async with overlay([], admission=admission) as (site,):
                with raises("untrusted", match=why):
                    await wend.connect(site.url.replace("wend://", "wends://"), keys=ring.enrol("alice"))

    run(scene())


def test_a_client_does_not_trust_a_revoked_peer(ring: KeyRing) -> None:
    async def scene() -> None:
        async with served(ring) as (_, url, folder):
            mine = ring.enrol("careful")
            revoke(mine, read_key_folder(folder).credentials.identity.serial)
            with raises("credentials-revoked"):
                await wend.connect(url, keys=mine)

    run(scene())


# ---------------------------------------------------------------- while it is connected


def test_a_client_that_is_revoked_or_withdrawn_is_disconnected_at_once(ring: KeyRing) -> None:
    async def scene() -> None:
        async with served(ring) as (site, url, folder):
            token, mine = add_token(folder, "cam"), ring.enrol("mallory")
            renew(site, folder)
            async with (
                wend.connect(url, keys=mine) as first,
                wend.connect(url, root=ring.root, token=token) as second,
                wend.connect(url, keys=ring.enrol("alice")) as third,
            ):
                streams = [await client.subscribe("topic = 'a'") for client in (first, second, third)]
                revoke(folder, read_key_folder(mine).credentials.identity.serial)
                (folder / "tokens.jsonl").unlink()
                renew(site, folder)
                with raises("credentials-revoked"):
                    await anext(streams[0])
                with raises("untrusted"):
                    await anext(streams[1])
                await round_trip(third)
                assert third.reconnects == 0

    run(scene())


def test_a_certificate_that_ends_while_its_client_is_connected_disconnects_it(
    ring: KeyRing, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene() -> None:
        mine = ring.enrol("short", ends_s=600)
        async with served(ring) as (site, url, _), wend.connect(url, keys=mine) as client:
            stream = await client.subscribe("topic = 'none'")
            site.listener.recheck()
            await round_trip(client)
            now_s = wall_s()
            for place in (admission, tls):
                monkeypatch.setattr(place, "wall_s", lambda: now_s + 700)
            site.listener.recheck()
            with raises("invalid-setting", match="the certificate of short has ended"):
                await anext(stream)
            assert site.counts["not-admitted"] == 1

    run(scene())


def test_a_client_shows_its_renewed_certificate_when_it_connects_again(ring: KeyRing) -> None:
    async def scene() -> None:
        mine = ring.enrol("renewing")
        async with served(ring) as (site, url, folder), wend.connect(url, keys=mine) as client:
            former = read_key_folder(mine).credentials.identity.serial
            ring.enrol("renewing")
            revoke(folder, former)
            renew(site, folder)
            await until(lambda: client.reconnects == 1)
            await round_trip(client)

    run(scene())


def test_a_renewed_certificate_of_the_peer_is_shown_to_new_clients(ring: KeyRing) -> None:
    async def scene() -> None:
        async with served(ring) as (site, url, folder), wend.connect(url, keys=ring.enrol("alice")) as first:
            before = read_key_folder(folder).credentials.certificate
            ring.enrol("site", 0)
            renew(site, folder)
            tls = make_client_tls(keys=ring.enrol("bob"))
            raw = await RawClient.connect(site.listener.address, ssl=tls.context, server_hostname="x")
            shown = raw.writer.get_extra_info("ssl_object").getpeercert(True)
            assert shown == read_key_folder(folder).credentials.certificate != before
            await round_trip(first)
            assert first.reconnects == 0

    run(scene())


# ---------------------------------------------------------------- mistakes of the caller


@pytest.mark.parametrize(
    ("url", "options", "why"),
    [
        ("wend://127.0.0.1:1", {"token": "x"}, "token is for wends://, not for wend://127.0.0.1:1"),
        ("wends://127.0.0.1:1", {}, "wends:// needs a certificate with its key, or a token"),
        ("wends://127.0.0.1:1", {"token": "x"}, "needs the certificate of the overlay's root"),
        ("wends://127.0.0.1:1", {"certificate": "x"}, "a certificate needs its key"),
        ("wends://127.0.0.1:1", {"keys": "missing"}, "cannot read missing/certificate.pem"),
        ("wends://a,wend://b", {"token": "x"}, "all peers of a client are reached by wend://, or all by wends://"),
        ("http://a", {}, "it looks like wend://127.0.0.1:7700"),
    ],
)
def test_options_that_do_not_fit(url: str, options: dict[str, str], why: str) -> None:
    with pytest.raises(wend.ConfigError, match=why):
        wend.connect(url, **options)  # type: ignore[arg-type]


def test_a_certificate_that_cannot_work_is_told_at_once(ring: KeyRing, tmp_path: Path) -> None:
    other = KeyRing(tmp_path, "other").enrol("eve")
    files = {"root": ring.root, "certificate": other / "certificate.pem", "key": other / "signing.key"}
    with raises("invalid-setting", match=r"certificate\.pem: the certificate is not signed by the root"):
        wend.connect("wends://127.0.0.1:1", **files)
    with raises("invalid-setting", match="the certificate of ended has ended"):
        wend.connect("wends://127.0.0.1:1", keys=ring.enrol("ended", ends_s=-5))


def test_a_key_that_others_can_read_is_not_used(ring: KeyRing) -> None:
    mine = ring.enrol("careless")
    (mine / "signing.key").chmod(0o644)
    with raises("invalid-setting", match="other users can read or write"):
        wend.connect("wends://127.0.0.1:1", keys=mine)
