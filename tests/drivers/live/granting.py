"""A live peer with grants, clients of it, and a clock that tests set."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import wend
from tests.drivers.live.key_ring import KeyRing
from tests.drivers.live.net import RawClient, Site, overlay
from wend.drivers.live import frames
from wend.drivers.live.access.admission import ClientAdmission
from wend.drivers.live.access.grants import Grant, GrantTable
from wend.drivers.live.access.key_files import KeyFolder
from wend.drivers.live.access.tls import make_client_tls

PLANT = Grant(publish="topic prefix 'plant.'", subscribe="topic prefix 'plant.' and secret absent")
OFFICE = Grant(publish="topic = 'office'", subscribe="topic = 'office'")
ADMIN = Grant(publish="true", subscribe="true", admin=True)
GRANTS = {"plant": PLANT, "office": OFFICE, "admin": ADMIN}


class Clock:
    """Time that passes only when a test says so."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class HostileClient(RawClient):
    """A client that says what no honest one would."""

    _pings = 10**6

    async def tell(self, *sent: frames.ToPeer) -> list[frames.ToClient]:
        """Send frames. Returns all that comes until the peer has served them."""
        HostileClient._pings += 1
        self.send(*sent, frames.PingFrame(HostileClient._pings))
        found = await self.receive()
        while found[-1] != frames.Completed(HostileClient._pings):
            found += await self.receive()
        return found[:-1]


class Scene:
    """A peer with keys and grants, and clients by name."""

    def __init__(self, site: Site, ring: KeyRing, keys: KeyFolder, clock: Clock) -> None:
        self.site = site
        self.counts = site.counts
        self.clock = clock
        self._ring = ring
        self._keys = keys

    @property
    def url(self) -> str:
        return self.site.url.replace("wend://", "wends://")

    def connect(self, name: str, *groups: str) -> Any:
        return wend.connect(self.url, keys=self._ring.enrol(name, groups=groups))

    async def raw(self, name: str, *groups: str) -> "HostileClient":
        """A connection on which a client can say anything."""
        tls = make_client_tls(keys=self._ring.enrol(name, groups=groups))
        address = self.site.listener.address
        client = await HostileClient.connect(address, ssl=tls.context, server_hostname="x")
        assert isinstance(client, HostileClient)
        client.send(frames.Greet())
        assert isinstance((await client.receive())[0], frames.Welcome)
        return client

    def change(self, **grants: Grant) -> None:
        self.site.listener.admission.replace_keys(self._keys, GrantTable(grants))
        self.site.listener.recheck()


@asynccontextmanager
async def granting(ring: KeyRing, **grants: Grant) -> AsyncIterator[Scene]:
    keys, clock = ring.keys("site", 0), Clock()
    admission = ClientAdmission(keys, GrantTable(grants or GRANTS), tls=True, clock_s=clock)
    async with overlay([], admission=admission) as (site,):
        yield Scene(site, ring, keys, clock)


def refusals(answers: list[frames.ToClient]) -> list[str]:
    """The codes of the requests that were refused."""
    return [answer.code for answer in answers if isinstance(answer, frames.RefusedFrame)]


def deliveries(answers: list[frames.ToClient]) -> list[bytes]:
    """The payloads of events."""
    return [answer.event.payload for answer in answers if isinstance(answer, frames.Delivery)]
