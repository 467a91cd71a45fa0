"""`rendezvous` while the owner of a region changes: no peer settles an event for which it lacks entries."""

from random import Random

import pytest

from tests.strategies.rendezvous import test_rendezvous  # noqa: F401 - it registers the strategy
from tests.strategies.ring.interest_rings import RingNet
from wend.model.keys import distance, make_key, node_id
from wend.strategies.rendezvous import replicas
from wend.strategies.rendezvous.messages import (
    CopyEntries,
    EventSettled,
    MatchEvent,
    PlaceEntries,
    RenewCopy,
)

PLACE = "attribute a|"


def net_with(peers: int) -> RingNet:
    net = RingNet("rendezvous", peers, persistence=True)
    for peer in range(peers):
        net.subscribe(peer, 0, f"a in [0, {peer}]")
    net.settle()
    for peer in range(peers):  # now all know the owner
        net.publish(peer, {"a": 0})
    net.run(5)
    net.check()
    return net


@pytest.mark.parametrize("persistence", [True, False])
def test_events_that_are_published_before_anybody_notices_the_crash(persistence: bool) -> None:
    net = RingNet("rendezvous", 12, persistence=persistence)
    for peer in range(12):
        net.subscribe(peer, 0, f"a in [0, {peer}]")
    net.settle()
    owner = net.owner(PLACE)
    net.crash(owner)
    for publisher in sorted(net.peers):
        net.publish(publisher, {"a": 0})
    net.run(2)
    net.detect()
    net.run(60)
    net.check()


@pytest.mark.parametrize("attribute", ["a1", "a5", "a20", "a26"])
@pytest.mark.parametrize("side", [-1, 1])
def test_the_owner_crashes_together_with_a_neighbour(attribute: str, side: int) -> None:
    """The next owner may be no replica. The replica that is left passes the entries on."""
    net = RingNet("rendezvous", 16, persistence=True)
    for peer in range(16):
        net.subscribe(peer, 0, f"{attribute} in [0, {peer}]")
    net.run(5)
    owner = net.owner(f"attribute {attribute}|")
    order = sorted(net.peers, key=node_id)
    net.crash(order[(order.index(owner) + side) % 16])
    net.crash(owner)
    publishers = sorted(net.peers)[:6]
    net.publish(publishers[0], {attribute: 0})
    net.run(1)
    net.detect()
    for pause in (0.05, 8):
        net.run(pause)
        for publisher in publishers:
            net.publish(publisher, {attribute: 0})
    net.run(40)
    net.check()


def test_a_new_owner_settles_nothing_before_it_has_the_entries() -> None:
    net = net_with(6)
    old = net.owner(PLACE)
    comer = next(p for p in range(6, 1000) if _owns(net, p))
    net.tamper = lambda sender, receiver, message: (
        receiver == comer and isinstance(getattr(message, "body", None), PlaceEntries | CopyEntries)
    )
    net.join(comer)
    net.run(0.05)
    for publisher in sorted(net.peers):
        net.publish(publisher, {"a": 0})
    net.run(0.05)
    net.tamper = None
    assert net.owner(PLACE) == comer != old
    net.run(120)
    net.check()


def _owns(net: RingNet, peer: int) -> bool:
    """Whether this peer would own the place if it joined."""
    net.peers[peer] = net.peers[0]
    found = net.owner(PLACE)
    del net.peers[peer]
    return found == peer


@pytest.mark.parametrize("split_entries", [3, 1000])
@pytest.mark.parametrize("seed", range(6))
def test_a_region_is_gone_with_its_owner_and_all_replicas(seed: int, split_entries: int) -> None:
    """Nobody has its entries any more. Nothing is settled before all subscribers' peers have renewed them."""
    draw = Random(seed)
    net = RingNet("rendezvous", 16, persistence=True, split_entries=split_entries)
    for peer in range(16):
        net.subscribe(peer, 0, f"a in [{draw.randrange(8)}, {draw.randrange(8, 32)}]")
    net.run(40)
    code = draw.choice(["", "0", "1"]) if split_entries == 3 else ""
    order = sorted(net.peers, key=node_id)
    at = order.index(net.owner(f"attribute a|{code}"))
    for peer in [order[(at + side) % 16] for side in (-2, -1, 0, 1, 2)]:
        net.crash(peer)
    publishers = sorted(net.peers)
    for pause in (0.5, 1.5, 4, 20):
        net.publish(draw.choice(publishers), {"a": draw.randrange(32)})
        net.run(0.2)
        net.detect()
        net.run(pause)
        net.publish(draw.choice(publishers), {"a": draw.randrange(32)})
    net.run(120)
    net.check()


def test_a_half_settles_nothing_before_it_has_the_entries_of_the_whole() -> None:
    """The region splits; its events overtake its entries on the way to the halves."""
    net = RingNet("rendezvous", 12, persistence=True, split_rate_hz=3.0)
    for peer in range(12):
        net.subscribe(peer, 0, f"a in [{peer}, {peer + 20}]")
    net.run(40)
    net.tamper = lambda sender, receiver, message: (
        isinstance(getattr(message, "body", None), PlaceEntries) and bool(message.body.code and message.body.entries)
    )
    for number in range(60):
        net.publish(number % 12, {"a": number % 32})
        net.run(0.2)
    assert sum(net.status(peer)["splits"] for peer in net.peers) > 0
    net.tamper = None
    net.run(180)
    net.check()


def test_a_peer_that_returns_settles_nothing_before_it_has_the_entries() -> None:
    """Others know it again before it knows its neighbours on the ring."""
    net = net_with(6)
    owner = net.owner(PLACE)
    net.crash(owner)
    net.join(owner, settled=False)
    for publisher in sorted(net.peers):
        net.publish(publisher, {"a": 0})
    net.run(5)
    net.detect()
    net.run(120)
    net.check()


def test_a_stranger_cannot_split_the_regions_of_others() -> None:
    net = net_with(8)
    owner = net.owner(PLACE)
    liar = max(sorted(net.peers), key=lambda peer: distance(node_id(peer), make_key(PLACE)))
    for peer in sorted(net.peers):
        net.say(liar, peer, CopyEntries("attribute a", "", (), (), True))
        net.say(liar, peer, RenewCopy("attribute a", "", 0, True))
    net.run(2)
    net.crash(owner)  # whoever takes over has no lie in its copy
    net.detect()
    net.run(40)
    for publisher in sorted(net.peers):
        net.publish(publisher, {"a": 0})
    net.run(10)
    net.check()


def test_copies_of_regions_are_bounded_and_end_if_nobody_speaks_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicas, "MAX_COPIES", 50)
    net = net_with(4)
    liar, victim = sorted(net.peers)[:2]
    mine = [name for number in range(2000) if net.owner(f"{(name := f'attribute n{number}')}|") == liar]
    for name in mine:
        net.say(liar, victim, RenewCopy(name, "", 0, True))
    net.run(1)
    assert len(mine) > 100 and net.status(victim)["copies"] == 50
    net.run(300)
    assert net.status(victim)["copies"] < 10


def test_what_settles_an_event_must_be_a_region_and_counts_once() -> None:
    net = net_with(4)
    publisher = sorted(net.peers)[0]
    net.tamper = lambda sender, receiver, message: isinstance(getattr(message, "body", None), MatchEvent)
    id_ = net.publish(publisher, {"a": 0.5})
    other = sorted(net.peers)[1]
    for _ in range(3):
        net.say(other, publisher, EventSettled("attribute a", "g", id_))
        net.say(other, publisher, EventSettled("attribute a", "11", id_))
    net.tamper = None
    net.run(60)
    net.check()
    assert sum(net.status(peer)["unsettled"] for peer in net.peers) == 0
