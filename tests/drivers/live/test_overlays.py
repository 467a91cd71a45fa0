"""Live peers that choose their neighbours, grow trees and keep delivering while links and peers go."""

import asyncio
from pathlib import Path

import pytest

from tests.drivers.live.net import until
from tests.protocol.overlay.worlds import Underlay
from wend.drivers.live.config import load
from wend.drivers.live.paths import book
from wend.drivers.live.peer import LivePeer
from wend.model.errors import ConfigError
from wend.model.events import EventId
from wend.model.units import MS
from wend.protocol.config import PeerConfig
from wend.protocol.overlay.shape import OverlaySettings
from wend.protocol.ports import Deliver, Neighbour, Standing, Started

PEERS = 8
EVENTS = 300


class Site:
    def __init__(self, peer: int, paths: book.PathBook) -> None:
        self.got: list[EventId] = []
        self.live = LivePeer(
            PeerConfig(
                peer=peer,
                strategy="mrst",
                margin_ns=100 * MS,
                detect_ns=400 * MS,
                overlay="tdo-landmark",
                overlay_settings=OverlaySettings(k=3, period_ns=100 * MS),
            ),
            paths=paths,
            on_deliver=self._got,
        )

    def _got(self, delivery: Deliver) -> None:
        self.got.append(delivery.event.id)

    def on_trees(self) -> tuple[tuple[int, ...], ...]:
        newest = self.live._peer.routing._grove.newest  # type: ignore[attr-defined]
        return () if newest is None else newest.trees

    def serves(self) -> bool:
        tables = self.live._peer.routing._serving()  # type: ignore[attr-defined]
        return tables is not None and tables[0].generation == self.live._peer.routing._grove.newest.generation  # type: ignore[attr-defined]


@pytest.mark.slow
def test_a_cut_link_and_a_dead_peer_lose_no_event(tmp_path: Path) -> None:
    underlay = Underlay(11, 12, PEERS)
    file = tmp_path / "paths"
    file.write_text(
        "".join(f"{a} {b}  {' '.join(f'r{r}' for r in underlay.path(a, b))}\n" for a in range(PEERS) for b in range(a))
    )
    asyncio.run(asyncio.wait_for(_scene(book.read(file)), 240))


async def _scene(paths: book.PathBook) -> None:
    sites = [Site(peer, paths) for peer in range(PEERS)]
    for one in sites:
        for other in sites:
            if other is not one:
                one.live.link(other.live.id, other.live.address)
    for site in sites:
        near = tuple(Neighbour(n, 1 * MS) for n in range(PEERS) if n != site.live.id)
        narrow = Standing(0, f"topic = 't' and x > {site.live.id}")
        site.live.start(Started(near, (narrow, Standing(1, "topic = 't'"))))
    try:
        await until(lambda: all(site.serves() for site in sites))
        await asyncio.sleep(3)  # links that are still moving
        await until(lambda: all(site.serves() for site in sites))
        publisher = sites[0]
        cut = publisher.on_trees()[0][0]
        sent = await _publish(publisher, EVENTS // 3)
        publisher.live.shaper.cut(cut)
        sites[cut].live.shaper.cut(0)
        sent += await _publish(publisher, EVENTS // 3)
        await until(lambda: all(site.serves() and cut not in publisher.on_trees()[0] for site in sites))
        dead = next(peer for peer in range(1, PEERS) if peer != cut)
        sites[dead].live.close()
        sent += await _publish(publisher, EVENTS // 3)
        alive = [site for site in sites if site.live.id != dead]
        await until(lambda: all(set(sent) <= set(site.got) for site in alive))
        for site in alive:
            narrow = sum(1 for id_ in sent if id_.sequence > site.live.id)
            assert len(site.got) == len(sent) + narrow, f"peer {site.live.id}"
    finally:
        for site in sites:
            site.live.close()


async def _publish(site: Site, count: int) -> list[EventId]:
    ids = []
    for _ in range(count):
        number = site.live._peer._sequence + 1
        ids.append(site.live.publish({"topic": "t", "x": number}).id)
        await asyncio.sleep(0.01)
    return ids


# ---------------------------------------------------------------- the file of paths


def test_a_path_holds_both_ways(tmp_path: Path) -> None:
    file = tmp_path / "paths"
    file.write_text("1 2  r1 r7 r2   # over the bridge\n\n1 3  r1 * r3\n3 1  r3 r1\n")
    paths = book.read(file)
    assert paths.path(1, 2) == ("r1", "r7", "r2")
    assert paths.path(2, 1) == ("r2", "r7", "r1")
    assert paths.path(1, 3) == ("r1", None, "r3") and paths.path(3, 1) == ("r3", "r1")
    assert paths.path(2, 3) is None


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("1\n", r"line 1: a path begins with two peers, got '1'"),
        ("\none two r1\n", r"line 2: a path begins with two peers"),
        ("1 2\n", r"line 1: a path leads from one peer over routers to another"),
        ("1 1 r1\n", r"line 1: a path leads from one peer over routers to another"),
    ],
)
def test_a_line_that_is_no_path_is_named(tmp_path: Path, text: str, sentence: str) -> None:
    (tmp_path / "paths").write_text(text)
    with pytest.raises(ConfigError, match=sentence):
        book.read(tmp_path / "paths")
    with pytest.raises(ConfigError, match="cannot read the paths in"):
        book.read(tmp_path / "none")


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ('overlay = "ring"', "unknown overlay 'ring': choose one of tdo-landmark"),
        ("trees = 0", "an overlay needs overlay_k and trees of 1 or more"),
        ('overlay_period = "1ms"', "an overlay_period of 20ms or more"),
        ('covering = "some"', "Invalid enum value 'some'"),
    ],
)
def test_an_overlay_that_cannot_be_is_named(tmp_path: Path, line: str, sentence: str) -> None:
    file = tmp_path / "peer.toml"
    file.write_text(f"id = 1\n{line}\n")
    with pytest.raises(ConfigError, match=sentence):
        load(file)
