"""Live peers on links that corrupt and reorder datagrams: every event arrives once, and no other."""

import asyncio
import re
from pathlib import Path

import pytest

from tests.drivers.live.net import Record, run, until
from tests.errors import raises
from wend.drivers.live.config import load_peer_file
from wend.drivers.live.peer import LivePeer
from wend.drivers.live.transport.shaper import PacketFaults
from wend.model.events import Qos
from wend.model.publication import Publication
from wend.model.units import MS
from wend.protocol.config import PeerConfig
from wend.protocol.ports import LocalSubscription, Neighbour, Started

EVENTS = 60


def test_corrupted_datagrams_are_refused_and_every_event_arrives_once() -> None:
    async def scene() -> None:
        settings = {"margin_ns": 20 * MS, "persistence": True, "transmissions": 3}
        a, b = (LivePeer(PeerConfig(peer=peer, **settings)) for peer in (1, 2))  # type: ignore[arg-type]
        faults = PacketFaults(corruption=0.2, reordering=0.2, hold_ns=5 * MS)
        a.add_peer(2, b.address, faults=faults, seed=1)
        b.add_peer(1, a.address, faults=faults, seed=2)
        record = Record()
        b.observe(record)
        try:
            wanted = LocalSubscription(0, "topic = 't'", Qos())
            a.start(Started((Neighbour(2, MS),), advertisements=("topic = 't'",)))
            b.start(Started((Neighbour(1, MS),), (wanted,)))
            await until(
                lambda: (
                    a.peer.subscriptions.knows((2,)) and bool(a.publish(Publication({"topic": "t", "n": -1})).targets)
                )
            )
            for number in range(EVENTS):
                a.publish(Publication({"topic": "t", "n": number}))
                if number % 10 == 0:
                    await asyncio.sleep(0.002)
            await until(lambda: len({str(d.event.attributes["n"]) for d in record.deliveries}) == EVENTS + 1)
            got = [(d.event.id, d.event.attributes["n"]) for d in record.deliveries]
            assert len(got) == len({id_ for id_, _ in got})
            assert {n for _, n in got} == set(range(-1, EVENTS))
            refused = a.counters.refused["corrupted"] + b.counters.refused["corrupted"]
            assert 0 < refused <= a.pipes.corrupted_count() + b.pipes.corrupted_count()
            assert a.status().flat()["shaper.corrupted"] == a.pipes.corrupted_count()
        finally:
            a.close()
            b.close()

    run(scene())


@pytest.mark.parametrize(
    ("shape", "why"),
    [
        ("loss = 2.0", "a loss in 0..1, got 2.0"),
        ("corruption = -0.5", "a corruption in 0..1, got -0.5"),
        ("reordering = 7.0", "a reordering in 0..1, got 7.0"),
        ('reordering_delay = "soon"', "soon"),
    ],
)
def test_a_shape_that_cannot_be_is_one_sentence(shape: str, why: str, tmp_path: Path) -> None:
    file = tmp_path / "peer.toml"
    file.write_text(f'id = 1\n[[neighbours]]\nid = 2\naddress = "127.0.0.1:7"\n[neighbours.shape]\n{shape}\n')
    with raises("invalid-setting", match=re.escape(why)):
        load_peer_file(file)
