"""TreeCache, as a conversation: which message fills which peer's cache, what expires, and what a stale leaf costs."""

from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.strategies.ring.interest_rings import RingNet
from tests.strategies.ring.worlds import DOMAINS, PEERS, Phase, events, phases, play, ranges
from wend.drivers.scenarios import make_scenario
from wend.drivers.sim import simulate
from wend.model.events import Attributes, PeerId
from wend.model.keys import make_key
from wend.strategies.dmm.cache import TreeCache
from wend.strategies.dmm.messages import UP, FromLeaves, SeekLeaf, ToCachedLeaf, ToLeaves, TreeInfo
from wend.strategies.dmm.spaces import attribute_roots, global_space, read_domains, region_name
from wend.strategies.ring.key_based import Entry, EntryId

BOTH = ["dmm", "dmm-ar"]
PLACES = ["last", "publisher", "every-arrival"]
WALK: Attributes = {"a": 5, "b": 5, "c": 1}
"""An event with all attributes of the space: its region is far below the root, the only active leaf."""
NO_WALK: Attributes = {"a": 5}
"""In the space of `dmm` its region is the root itself."""


class Sent(NamedTuple):
    sender: PeerId
    receiver: PeerId
    body: Any


class Conversation(RingNet):
    """A ring with a subscription, which records the messages of plug-ins."""

    def __init__(self, strategy: str, filters: tuple[str, ...] = ("a in [2, 9]",), **settings: Any) -> None:
        self.said: list[Sent] = []
        super().__init__(strategy, 16, domains=DOMAINS, **settings)
        self.tamper = self._listen
        for number, text in enumerate(filters):
            self.subscribe(3, number, text)
        self.settle()
        self.said.clear()

    def _listen(self, sender: PeerId, receiver: PeerId, message: Any) -> bool:
        self.said.append(Sent(sender, receiver, getattr(message, "body", None)))
        return False

    def of(self, kind: type) -> list[Sent]:
        return [each for each in self.said if type(each.body) is kind]

    def event(self, publisher: PeerId, attributes: Attributes) -> list[Sent]:
        """Publish an event, and return the messages until all is quiet."""
        self.said.clear()
        self.publish(publisher, attributes)
        self.settle()
        return self.said

    def seeks(self, space: tuple[str, ...]) -> list[Sent]:
        return [each for each in self.of(SeekLeaf) if each.body.space == space]

    def informed(self, space: tuple[str, ...]) -> list[PeerId]:
        return [each.receiver for each in self.of(TreeInfo) if each.body.space == space]


def space_of(strategy: str) -> tuple[str, ...]:
    return ("a", "b", "c") if strategy == "dmm" else ("a",)


def first_region(strategy: str, attributes: Attributes) -> str:
    domains = read_domains(DOMAINS)
    spaces = global_space(domains) if strategy == "dmm" else attribute_roots(domains)
    space = spaces[space_of(strategy)]
    return region_name(space.name, space.code(space.event_box(attributes)))


def far_publisher(net: Conversation, strategy: str) -> tuple[PeerId, PeerId]:
    """A publisher whose event passes another peer on its way to its region, and the last such peer."""
    key = make_key(first_region(strategy, WALK))
    for publisher in net.peers:
        path = [publisher]
        while (hop := net.peers[path[-1]].view.membership.next_hop(key)) != path[-1]:  # type: ignore[attr-defined]
            path.append(hop)
        if len(path) > 2 and net.owner(region_name(space_of(strategy), "")) != path[-2]:
            return publisher, path[-2]
    raise AssertionError("every peer is next to the owner")


@pytest.mark.parametrize("strategy", BOTH)
def test_the_leaf_informs_the_last_peer_before_the_walk(strategy: str) -> None:
    net = Conversation(strategy)
    publisher, last = far_publisher(net, strategy)
    net.event(publisher, WALK)
    root = net.owner(region_name(space_of(strategy), ""))
    assert net.informed(space_of(strategy)) == [last] != [publisher]
    assert [each.sender for each in net.of(TreeInfo) if each.body.space == space_of(strategy)] == [root]
    net.event(publisher, WALK)  # now from there straight to the leaf
    seeks = net.seeks(space_of(strategy))
    assert (seeks[-1].sender, seeks[-1].receiver, seeks[-1].body.cached) == (last, root, True)
    assert net.informed(space_of(strategy)) == []
    net.check()


@pytest.mark.parametrize("strategy", BOTH)
def test_the_leaf_informs_the_peer_of_the_publisher(strategy: str) -> None:
    net = Conversation(strategy, tree_cache_place="publisher")
    publisher, _ = far_publisher(net, strategy)
    net.event(publisher, WALK)
    assert net.informed(space_of(strategy)) == [publisher]
    net.event(publisher, WALK)
    (seek,) = net.seeks(space_of(strategy))
    assert (seek.sender, seek.receiver, seek.body.cached) == (
        publisher,
        net.owner(region_name(space_of(strategy), "")),
        True,
    )
    net.check()


@pytest.mark.parametrize("where", PLACES)
def test_an_event_that_did_not_walk_fills_no_cache(where: str) -> None:
    net = Conversation("dmm", tree_cache_place=where)
    root = net.owner(region_name(("a", "b", "c"), ""))
    publisher = next(peer for peer in net.peers if peer not in (root, 3))
    net.event(publisher, NO_WALK)
    assert net.informed(("a", "b", "c")) == ([publisher] if where == "every-arrival" else [])
    net.check()


@pytest.mark.parametrize("where", PLACES)
def test_the_leaf_reminds_while_events_come_and_no_longer(where: str) -> None:
    net = Conversation("dmm", tree_cache_place=where)
    publisher, last = far_publisher(net, "dmm")
    user = last if where == "last" else publisher
    for _ in range(5):  # 50 s: a cache entry without reminders would be gone
        net.event(publisher, WALK)
        net.run(10.0)
        assert net.status(user)["cached"] == 1
    net.said.clear()
    net.run(29.0)
    assert 1 <= len(net.informed(("a", "b", "c"))) <= 3
    net.run(71.0)
    assert net.status(user)["cached"] == 0
    net.said.clear()
    net.run(60.0)
    assert net.informed(("a", "b", "c")) == []


def test_leaves_expire_and_replace_those_that_overlap() -> None:
    cache = TreeCache(expiry_ns=30)
    cache.add(0, ("a",), "01", 7)
    cache.add(5, ("a",), "0110", 8)
    assert cache.find(5, ("a",), "01") is None
    assert cache.find(34, ("a",), "011011") == ("0110", 8)
    assert cache.find(35, ("a",), "011011") is None
    cache.expire(35)
    assert len(cache) == 0


@pytest.mark.parametrize("strategy", BOTH)
@pytest.mark.parametrize("where", PLACES)
def test_a_stale_leaf_still_leads_to_an_active_one(strategy: str, where: str) -> None:
    """A peer believes that another peer owns an active leaf below the root. It does not, and there is none."""
    net = Conversation(strategy, tree_cache_place=where)
    space, code = space_of(strategy), first_region(strategy, WALK).split("|")[1][:2]
    root = net.owner(region_name(space, ""))
    publisher = next(peer for peer in net.peers if peer not in (root, 3))
    wrong = next(peer for peer in net.peers if peer not in (root, publisher, net.owner(region_name(space, code))))
    net.say(wrong, publisher, TreeInfo(space, code))
    net.event(publisher, WALK)
    first = net.seeks(space)[0]
    assert (first.receiver, first.body.state, first.body.code) == (wrong, UP, code)
    assert net.informed(space) == [publisher]  # of the leaf that is active
    net.event(publisher, WALK)
    assert [each.receiver for each in net.seeks(space)] == [root]
    net.check()


@pytest.mark.parametrize("delegation", [1, 1000])
def test_a_subscription_that_walks_informs_the_last_peer_of_its_path(delegation: int) -> None:
    net = Conversation("dmm", ("a in [0, 3]", "a in [12, 15]", "b in [0, 3]"), delegation=delegation)
    net.subscribe(9, 0, "a in [5, 6] and b in [5, 6] and c in [5, 6]")
    net.settle()
    backs = {each.body.back for each in net.of(ToLeaves) if each.body.entries[0].id.peer == 9}
    if delegation == 1:
        assert len(backs) == 1
        assert set(net.informed(("a", "b", "c"))) == backs
    else:  # the root is the leaf: nothing walks
        assert not backs
        assert not net.informed(("a", "b", "c"))
    net.event(0, {"a": 5, "b": 5, "c": 5})
    net.check()


@pytest.mark.parametrize("delegation", [1, 3])
def test_entries_go_straight_to_a_remembered_leaf(delegation: int) -> None:
    """Events fill the caches of peers that subscribe then. The subscriptions take the same way."""
    net = Conversation("dmm-ar", tuple(f"a in [{at}, {at + 1}]" for at in range(0, 14, 2)), delegation=delegation)
    aware: dict[PeerId, int] = {}
    for publisher in net.peers:
        for value in range(16):
            net.event(publisher, {"a": value})
            aware |= {peer: value for peer in net.informed(("a",)) if peer != 3}
    assert aware
    net.said.clear()
    for peer, value in aware.items():
        net.subscribe(peer, 7, f"a = {value}")
    net.settle()
    direct = net.of(ToCachedLeaf)
    assert direct
    assert all(each.body.back == each.sender for each in direct)
    for value in aware.values():
        net.event(0, {"a": value})
    net.run(100.0)  # renewed at the leaves
    for value in aware.values():
        net.event(0, {"a": value})
    net.check()
    for peer in aware:
        net.unsubscribe(peer, 7)
    net.unsubscribe(3, 0)
    net.settle()
    for value in range(16):
        net.event(0, {"a": value})
    net.check()
    for number in range(7):
        net.unsubscribe(3, number)
    net.run(1.0)
    assert sum(net.status(peer)["leaf"] + net.status(peer)["tree"] for peer in net.peers) == 0


def test_a_late_withdrawal_does_not_remove_the_entry_that_replaced_it() -> None:
    """A shortcut is faster than the message that takes the former filter back."""
    net = Conversation("dmm")
    former, new = (Entry(EntryId(9, 0, 0), f"a = {value}") for value in (1, 2))
    root = net.owner(region_name(("a", "b", "c"), ""))
    leaf = net.status(root)["leaf"]
    for message in (ToLeaves, FromLeaves, ToLeaves):
        net.say(9, root, message(("a", "b", "c"), "", 9, (former,)))
    assert net.status(root)["leaf"] == leaf + 1
    net.say(9, root, ToCachedLeaf(("a", "b", "c"), "", 9, (new,)))
    net.say(9, root, FromLeaves(("a", "b", "c"), "", 9, (former,)))
    assert net.status(root)["leaf"] == leaf + 1
    net.say(9, root, FromLeaves(("a", "b", "c"), "", 9, (new,)))
    assert net.status(root)["leaf"] == leaf


def test_the_detour_to_the_space_without_attributes_is_one_message_and_counted() -> None:
    net = Conversation("dmm-ar")
    owner = net.owner(region_name((), ""))

    def detour(publisher: PeerId) -> int:
        net.event(publisher, WALK)
        return len(net.seeks(()))

    lengths = {peer: detour(peer) for peer in net.peers}
    assert lengths[owner] == 0
    far = max(lengths, key=lambda peer: lengths[peer])
    assert lengths[far] > 1
    assert detour(far) == 1
    assert sum(net.status(peer)["detours"] for peer in net.peers) == sum(lengths.values()) + 1
    net.subscribe(5, 9, "d absent")  # and the detour still finds filters that require no attribute
    net.settle()
    assert detour(far) == 1
    net.check()
    cold = Conversation("dmm-ar", tree_cache=False)
    for _ in range(2):
        cold.event(far, WALK)
        assert len(cold.seeks(())) == lengths[far]


@pytest.mark.parametrize("strategy", BOTH)
@pytest.mark.parametrize("where", PLACES)
@given(phases(ranges(), events), st.sampled_from([1, 3, 1000]))
@settings(max_examples=10)
def test_random_worlds(strategy: str, where: str, world: list[Phase], delegation: int) -> None:
    net = RingNet(strategy, PEERS, domains=DOMAINS, delegation=delegation, tree_cache_place=where)
    play(net, world)
    net.check()
    assert not net.refusals and not net.drops


@pytest.mark.parametrize("where", PLACES)
def test_a_simulation_delivers_everything(where: str) -> None:
    found = simulate(
        make_scenario(
            {
                "strategy": "dmm-ar",
                "peers": 12,
                "topology": "full-mesh",
                "topics": 3,
                "rate": 3.0,
                "content": {"attributes": 3, "domain": 16, "predicates": [1, 2], "width": 0.5},
                "delegation": 2,
                "tree_cache_place": where,
                "pf": 0.0,
                "pl": 0.0,
                "duration": "20s",
                "warmup": "15s",
                "drain": "20s",
            }
        )
    ).summary
    assert found.delivered == found.expected > 100
