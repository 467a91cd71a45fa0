"""`pastry` in whole peers of the large simulator: everyone knows one other peer, and all come to one ring."""

from collections.abc import Iterable

from tests.drivers.sim.echoes import HERE
from tests.drivers.sim.uniform_latencies import UniformLatencies
from tests.strategies.ring.rings import leaf_set
from wend.drivers.sim.dht_simulation import DhtConfig, DhtSimulation
from wend.drivers.sim.dht_workload import PeerChange, Workload
from wend.model.keys import RING, node_id
from wend.model.units import SECOND
from wend.strategies.ring.leaf_set import HALF
from wend.studies.settled_contacts import find_settled_contacts

PEERS = 24


def ring(
    settings: dict[str, object], contacts: Iterable[tuple[int, tuple[int, ...]]] | None, *changes: PeerChange
) -> DhtSimulation:
    config = DhtConfig(
        peers=PEERS, strategy=f"{HERE}:Spread", membership="pastry", loss=0.02,
        first_settings=settings,
    )  # fmt: skip
    return DhtSimulation(config, UniformLatencies(1), Workload(changes=changes), contacts)


def wrong(simulation: DhtSimulation) -> list[int]:
    """The peers that have not joined, or have another leaf set than the sorted ring."""
    live = {peer.me: peer.view.membership for peer in simulation.peers if peer is not None}
    found = []
    for peer, pastry in live.items():
        others = sorted(live.keys() - {peer}, key=lambda other: (node_id(other) - node_id(peer)) % RING)
        if not pastry.has_joined or set(leaf_set(pastry)) != {*others[:HALF], *others[-HALF:]}:
            found.append(peer)
    return found


def test_peers_that_know_one_other_come_to_one_ring_while_some_crash_and_return() -> None:
    crash, back = PeerChange(20 * SECOND, "crash", (3, 4, 5)), PeerChange(28 * SECOND, "restart", (3, 4))
    simulation = ring({}, None, crash, back)
    simulation.run(20 * SECOND - 1)
    assert wrong(simulation) == []
    simulation.run(20 * SECOND)
    assert wrong(simulation) != []
    simulation.run(40 * SECOND)
    assert wrong(simulation) == [] and simulation.peers[5] is None
    assert not simulation.results.refusals


def test_a_settled_ring_is_ready_at_once() -> None:
    contacts = find_settled_contacts(range(PEERS), lambda _, some: some[0])
    simulation = ring({"pastry_settled": True}, contacts, PeerChange(SECOND, "crash", (3,)))
    simulation.run(1)
    assert wrong(simulation) == []
    simulation.run(8 * SECOND)
    assert wrong(simulation) == []
