"""Keys, tokens and grants that change while clients are connected: whoever may not stay goes, and nobody else."""

import asyncio
from pathlib import Path

import pytest

import wend
from tests.drivers.live.granting import ADMIN, GRANTS, deliveries, granting, refusals
from tests.drivers.live.key_ring import KeyRing, add_token, revoke
from tests.drivers.live.net import RawClient, overlay, run, until
from tests.errors import raises
from wend.drivers.live import frames
from wend.drivers.live.access.admission import ClientAdmission
from wend.drivers.live.access.grants import Grant, GrantTable
from wend.drivers.live.access.key_files import read_key_folder
from wend.model.publication import Publication


@pytest.fixture(scope="module")
def ring(tmp_path_factory: pytest.TempPathFactory) -> KeyRing:
    return KeyRing(tmp_path_factory.mktemp("keys"))


def test_a_token_whose_groups_change_connects_again_with_the_others(ring: KeyRing) -> None:
    async def scene() -> None:
        folder = ring.enrol("site", 0)
        token = add_token(folder, "cam", groups=("office",))
        async with granting(ring) as s:
            s.site.listener.admission.replace_keys(read_key_folder(folder), GrantTable(GRANTS))
            async with wend.connect(s.url, root=ring.root, token=token) as client:
                await client.publish({"topic": "office"})
                tokens = folder / "tokens.jsonl"
                tokens.write_text(tokens.read_text().replace("office", "plant"))
                s.site.listener.admission.replace_keys(read_key_folder(folder), GrantTable(GRANTS))
                s.site.listener.recheck()
                await until(lambda: client.reconnects == 1)
                with raises("publish-refused"):
                    await client.publish({"topic": "office"})
            tokens.unlink()

    run(scene())


def test_a_session_that_has_ended_is_aborted_however_often_keys_are_checked() -> None:
    async def scene() -> None:
        admission = ClientAdmission(None, GrantTable({"local": Grant(publish="true", subscribe="true")}))
        async with overlay([], admission=admission, stall_s=0.5) as (site,):
            silent = await RawClient.connect(site.listener.address)
            silent.send(frames.Greet(), frames.Subscribe(1, 1, "topic = 'a'"))
            await silent.receive(2)
            transport = silent.writer.transport
            assert isinstance(transport, asyncio.Transport)
            transport.pause_reading()
            (session,) = site.listener.sessions
            while session.transport is not None and not session.transport.get_write_buffer_size():
                site.broker.publish(Publication({"topic": "a"}, bytes(30_000), {}))
                await asyncio.sleep(0)
            admission.replace_keys(None, GrantTable({"local": Grant(publish="true")}))

            def is_gone() -> bool:
                site.listener.recheck()
                return not site.listener.sessions

            await until(is_gone)
            assert site.counts["rights-changed"] == 1
            transport.abort()

    run(scene())


def test_clients_of_a_root_that_is_taken_out_are_disconnected(tmp_path: Path) -> None:
    async def scene() -> None:
        old, new = KeyRing(tmp_path / "old", "old"), KeyRing(tmp_path / "new", "new")
        folder = new.enrol("site", 0)
        (folder / "root.pem").write_bytes(old.root.read_bytes())
        admission = ClientAdmission(read_key_folder(folder), GrantTable(GRANTS), tls=True)
        async with overlay([], admission=admission) as (site,):
            keys = old.enrol("c", groups=("office",))
            (keys / "root.pem").write_bytes(new.root.read_bytes() + old.root.read_bytes())
            url = site.url.replace("wend://", "wends://")
            async with wend.connect(url, keys=keys) as client:
                await client.publish({"topic": "office"})
                admission.replace_keys(read_key_folder(folder), GrantTable(GRANTS))
                site.listener.recheck()
                await client.publish({"topic": "office"})
                assert client.reconnects == 0
                (folder / "root.pem").unlink()
                admission.replace_keys(read_key_folder(folder), GrantTable(GRANTS))
                site.listener.recheck()
                await until(lambda: site.counts["now"] == 0)
                assert site.counts["not-admitted"] == 1

    run(scene())


def test_grants_that_are_too_large_together_turn_one_client_away_and_no_other_check_is_left_out(ring: KeyRing) -> None:
    async def scene() -> None:
        large = {
            name: Grant(publish=" or ".join(f"(x{name} = {i} and y{name} = {i})" for i in range(100)))
            for name in ("a", "b")
        }
        async with granting(ring) as s:
            both = await s.raw("both", "a", "b")
            others = [await s.raw(f"other{n}", "office") for n in range(6)]
            s.change(**{**GRANTS, **large})
            (told,) = await both.receive()
            assert isinstance(told, frames.RefusedFrame) and told.code == "not-admitted"
            assert told.why.startswith("a, b: ")
            # a change for some is no change for all
            for other in others:
                assert not refusals(await other.tell(frames.Publish(1, {"topic": "office"})))
            assert s.counts["rights-changed"] == 0
            s.change(office=Grant(subscribe="true"), plant=GRANTS["plant"])
            await until(lambda: s.counts["rights-changed"] == 6)

    run(scene())


def test_a_revoked_member_of_a_queue_group_gets_no_more_events_though_it_stays_connected(ring: KeyRing) -> None:
    async def scene() -> None:
        grants = {"w": Grant(subscribe="topic = 'job'"), "admin": ADMIN}
        async with granting(ring, **grants) as s, s.connect("adm", "admin") as admin:
            mallory, good = await s.raw("mallory", "w"), await s.raw("good", "w")
            for client in (mallory, good):
                assert not refusals(await client.tell(frames.Subscribe(1, 1, "topic = 'job'", group="workers")))
            transport = mallory.writer.transport
            assert isinstance(transport, asyncio.Transport)
            transport.pause_reading()  # it does not answer the end of TLS either
            folder = ring.folder / "site"
            serial = read_key_folder(ring.folder / "mallory").credentials.identity.serial
            revoke(folder, serial)
            s.site.listener.admission.replace_keys(read_key_folder(folder), GrantTable(grants))
            s.site.listener.recheck()
            (folder / "revoked.txt").unlink()
            for number in range(10):
                await admin.publish({"topic": "job"}, b"%d" % number)
            assert sorted(deliveries(await good.tell())) == [b"%d" % number for number in range(10)]
            transport.abort()
            good.close()

    run(scene())
