"""Clusters of live peers in one process: they join by one address, with real multicast and without."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ipaddress import ip_address
from typing import Any

import pytest

import wend
from tests.drivers.live.key_ring import KeyRing, revoke
from tests.drivers.live.net import run, until
from tests.drivers.live.transport.test_multicast import needs_multicast
from tests.errors import raises
from tests.ports import free_ports
from wend.drivers.live.access.key_files import read_key_folder
from wend.drivers.live.addressing.addresses import format_address
from wend.drivers.live.config import PeerFile, network_prefix
from wend.drivers.live.process import PeerProcess
from wend.drivers.live.transport.multicast import group_number
from wend.drivers.live.transport.socket import PeerSocket
from wend.security import packets
from wend.strategies.clusters.membership.plugin import Clusters
from wend.strategies.clusters.membership.settings import ClusterSettings


def file_of(peer: int, **fields: Any) -> PeerFile:
    times = {"cluster_detection": "300ms", "directory": "100ms"}
    return PeerFile(id=peer, listen="127.0.0.1:0", clients="127.0.0.1:0", strategy="clusters", **{**times, **fields})


def url(service: PeerProcess) -> str:
    return f"wend://{format_address(service.listener.address)}"


def clusters(service: PeerProcess) -> Clusters:
    plugin = service.peer.peer.plugins["clusters"]
    assert isinstance(plugin, Clusters)
    return plugin


@asynccontextmanager
async def sites(
    *names: str, size: int, token: str, multicast_address: str = "auto", keys: KeyRing | None = None
) -> AsyncIterator[dict[str, list[PeerProcess]]]:
    """Clusters of so many peers; all but the first peer join by its address. `{}` in an address is a peer's number."""
    services: list[PeerProcess] = []
    found: dict[str, list[PeerProcess]] = {name: [] for name in names}
    try:
        for number in range(size):
            for place, name in enumerate(names):
                join = [format_address(services[0].peer.address)] if services else []
                peer = len(names) * number + place
                address = multicast_address.format(peer + 1)
                folder = None if keys is None else str(keys.enrol(f"site-{peer}", peer))
                file = file_of(peer, cluster=f"{name} {token}", join=join, multicast_address=address, keys=folder)
                services.append(PeerProcess(file))
                await services[-1].start()
                found[name].append(services[-1])
        yield found
    finally:
        for service in services:
            await service.abort()


def complete(found: dict[str, list[PeerProcess]]) -> bool:
    """Whether all members know each other, and coordinators all clusters."""
    for site in found.values():
        ids = tuple(sorted(service.peer.id for service in site))
        for service in site:
            plugin = clusters(service)
            if not plugin.has_joined or plugin.members != ids:
                return False
            if (plugin.my_trees or plugin.my_backups) and len(plugin.directory) != len(found):
                return False
    return True


def acquainted(found: dict[str, list[PeerProcess]]) -> bool:
    """Whether all coordinators have the addresses of all coordinators."""
    everyone = [service for site in found.values() for service in site]
    actives = {slot.active for site in found.values() for slot in clusters(site[0]).slots}
    return all(
        actives - {service.peer.id} <= service.peer.addresses.reachable.keys()
        for service in everyone
        if clusters(service).my_trees
    )


async def events_cross(publisher: PeerProcess, subscriber: PeerProcess) -> None:
    """A subscriber in another cluster gets events, each once."""
    async with (
        wend.connect(url(publisher)) as here,
        wend.connect(url(subscriber)) as there,
        there.subscribe("topic = 'weather'") as events,
    ):
        got: list[bytes] = []

        async def collect() -> None:
            async for event in events:
                got.append(event.payload)

        collecting = asyncio.create_task(collect())
        number = 0
        while not got:  # the subscription is on its way
            number += 1
            await here.publish({"topic": "weather"}, b"%d" % number)
            await asyncio.sleep(0.02)
        wanted = [b"more %d" % number for number in range(20)]
        for payload in wanted:
            await here.publish({"topic": "weather"}, payload)
        await until(lambda: set(wanted) <= set(got))
        assert len(got) == len(set(got))
        collecting.cancel()


@needs_multicast
def test_clusters_form_by_one_address_and_find_that_multicast_works(tmp_path: Any) -> None:
    async def scene() -> None:
        async with sites("north", "south", size=3, token=str(tmp_path)) as found:
            await until(lambda: complete(found) and acquainted(found))
            everyone = [service for site in found.values() for service in site]
            await until(lambda: all(clusters(service).multicast_works for service in everyone))
            for service in everyone:
                counters = service.peer.counters
                assert counters.notices["multicast"] and not counters.failed
                assert counters.refused.keys() <= {"no-address"}
            await events_cross(found["north"][1], found["south"][2])
            head = clusters(found["north"][0]).slots[0].active
            crashed = next(service for service in found["north"] if service.peer.id == head)
            await crashed.abort()
            left = {**found, "north": [service for service in found["north"] if service is not crashed]}
            await until(lambda: complete(left))
            await events_cross(left["south"][0], left["north"][-1])

    run(scene())


@needs_multicast
def test_clusters_of_peers_with_keys_multicast_under_a_key_that_rolls(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[bytes] = []
    transmit = PeerSocket.transmit

    def observed(self: PeerSocket, address: Any, datagram: bytes) -> None:
        sent.append(datagram)
        transmit(self, address, datagram)

    monkeypatch.setattr(PeerSocket, "transmit", observed)

    def epochs(services: list[PeerProcess]) -> set[int]:
        found = set()
        for service in services:
            assert service.peer.sealed is not None
            number = group_number(f"cluster {clusters(service).cluster_name}")
            found |= {key.epoch for key in service.peer.sealed.groups.keys(number)[:1]} or {0}
        return found

    async def scene() -> None:
        ring = KeyRing(tmp_path / "keys")
        async with sites("north", size=3, token=str(tmp_path), keys=ring) as found:
            north = found["north"]
            await until(lambda: complete(found) and all(clusters(service).multicast_works for service in north))
            await until(lambda: len(epochs(north)) == 1)
            (first,) = epochs(north)
            await events_cross(north[1], north[2])
            before = len([datagram for datagram in sent if datagram[3] == packets.MULTICAST])
            await events_cross(north[2], north[0])
            assert len([datagram for datagram in sent if datagram[3] == packets.MULTICAST]) > before
            assert all(service.peer.counters.notices["multicast"] for service in north)
            # a member is revoked: the others have another key
            assert north[2].keys is not None
            for service, folder in ((north[0], "site-0"), (north[1], "site-1")):
                revoke(tmp_path / "keys" / folder, north[2].keys.credentials.identity.serial)
                renewed, sealed = read_key_folder(tmp_path / "keys" / folder), service.peer.sealed
                assert sealed is not None
                sealed.renew(renewed.credentials, renewed.verifier)
            await until(lambda: len(epochs(north[:2])) == 1 and epochs(north[:2]) != {first})
            assert epochs(north[2:]) == {first}
            await events_cross(north[0], north[1])
            assert not any(service.peer.counters.failed for service in north)

    run(scene())
    assert sent and all(packets.is_sealed(datagram) for datagram in sent)
    assert not any(b"weather" in datagram or b"more 1" in datagram for datagram in sent)


def test_without_multicast_they_find_each_other_by_unicast_and_say_so(tmp_path: Any) -> None:
    async def scene(address: str, counted: str) -> None:
        async with sites("north", "south", size=3, token=str(tmp_path), multicast_address=address) as found:
            await until(lambda: complete(found) and acquainted(found))
            everyone = [service for site in found.values() for service in site]
            await until(lambda: all(service.peer.counters.notices["multicast-blocked"] for service in everyone))
            assert not any(clusters(service).multicast_works for service in everyone)
            await events_cross(found["north"][1], found["south"][2])
            assert all(service.peer.counters.notices[counted] for service in everyone)
            assert all(service.peer.counters.failed.keys() <= {"send"} for service in everyone)  # the system may refuse

    async def both() -> None:
        # multicast that is off; multicast that nobody else hears, as behind a switch that does not forward it
        port = free_ports(1)[0]
        await asyncio.gather(scene("off", "multicast-off"), scene(f"239.194.7.{{}}:{port}", "multicast"))

    run(both())


# ---------------------------------------------------------------- the name


def name_of(**fields: Any) -> str:
    return PeerFile(id=1, strategy="clusters", **fields).peer_config(1).of(ClusterSettings).cluster


def test_the_address_names_the_cluster_where_nothing_else_does() -> None:
    assert name_of() == "127.0.0.0/24"
    assert name_of(listen="127.1.2.3:0", cluster_prefix=16) == "127.1.0.0/16"
    assert name_of(listen="[::1]:0") == "::/64"
    assert name_of(cluster="plant", cluster_prefix=8) == "plant"
    assert name_of(paths="trace") == ""
    with raises("invalid-setting", match="no prefix of 64"):
        PeerFile(id=1, strategy="clusters", cluster_prefix=64).check()
    with raises("invalid-setting", match=r"listens on 0\.0\.0\.0 has no address that names its cluster"):
        PeerFile(id=1, strategy="clusters", listen="0.0.0.0:0", insecure=True).check()
    PeerFile(id=1, strategy="clusters", listen="0.0.0.0:0", insecure=True, cluster="plant").check()
    PeerFile(id=1, listen="0.0.0.0:0", insecure=True).check()


def test_the_network_of_an_address_names_its_routing_domain() -> None:
    assert network_prefix(ip_address("10.1.2.3"), 16) == "10.1.0.0/16"
    assert network_prefix(ip_address("2001:db8::1"), 32) == "2001:db8::/32"
    for bits in (33, -1):
        with pytest.raises(ValueError, match="prefix"):
            network_prefix(ip_address("10.1.2.3"), bits)
