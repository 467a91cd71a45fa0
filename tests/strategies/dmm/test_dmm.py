"""`dmm` and `dmm-ar` on an ideal ring: everybody who wants an event gets it once."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.strategies.ring.interest_rings import RingNet
from tests.strategies.ring.worlds import (
    DOMAINS,
    PEERS,
    Phase,
    events,
    odd,
    phases,
    play,
    range_topics,
    ranges,
)
from wend.model.errors import ConfigError
from wend.model.events import Event, EventId
from wend.strategies.dmm.messages import (
    ChildActive,
    DownPath,
    FromLeaves,
    GrowNode,
    LeafBranches,
    RenewInSpace,
    SeekLeaf,
    TellAgain,
    ToLeaves,
    TreeInfo,
    UnknownInSpace,
    UnwantInSpace,
    WantInSpace,
)
from wend.strategies.dmm.spaces import region_name
from wend.strategies.ring.key_based import Entry, EntryId

BOTH = ["dmm", "dmm-ar"]


@pytest.mark.parametrize("strategy", BOTH)
@given(phases(ranges(), events), st.sampled_from([1, 3, 1000]), st.booleans(), st.booleans())
@settings(max_examples=12)
def test_random_worlds(strategy: str, world: list[Phase], delegation: int, tree_cache: bool, hop_acks: bool) -> None:
    net = RingNet(strategy, PEERS, domains=DOMAINS, delegation=delegation, tree_cache=tree_cache, hop_acks=hop_acks)
    play(net, world)
    net.check()
    assert not net.refusals and not net.drops


@pytest.mark.parametrize("strategy", BOTH)
@given(phases(ranges() | odd, range_topics), st.sampled_from([1, 1000]), st.booleans())
@settings(max_examples=8)
def test_filters_of_any_form(strategy: str, world: list[Phase], delegation: int, known: bool) -> None:
    net = RingNet(strategy, PEERS, domains=DOMAINS if known else {}, delegation=delegation)
    play(net, world)
    net.check()


words = st.text("abmyzÄ", max_size=4)


@st.composite
def text_ranges(draw: st.DrawFn) -> str:
    low, high = sorted([draw(words), draw(words)])
    word = draw(words)
    texts = draw(
        st.sampled_from(
            [f"name >= '{low}' and name <= '{high}'", f"name = '{word}'", f"name prefix '{word}'", f"name != '{word}'"]
        )
    )
    return f"{texts} and a in [2, {draw(st.integers(2, 15))}]" if draw(st.booleans()) else texts


text_events = st.fixed_dictionaries({"name": words | st.integers(0, 9)}, optional={"a": st.integers(0, 15) | words})


@pytest.mark.parametrize("strategy", BOTH)
@given(phases(text_ranges(), text_events), st.sampled_from([1, 3, 1000]), st.booleans())
@settings(max_examples=12)
def test_texts_have_domains_too(strategy: str, world: list[Phase], delegation: int, tree_cache: bool) -> None:
    net = RingNet(strategy, PEERS, domains={"name": [3], "a": [0, 15]}, delegation=delegation, tree_cache=tree_cache)
    play(net, world)
    net.check()


def test_regions_of_texts_split_at_letters() -> None:
    net = RingNet("dmm", PEERS, domains={"name": [2]}, delegation=2)
    for number, name in enumerate(["ant", "bee", "cow", "yak", "zebra"]):
        net.subscribe(number, 0, f"name prefix '{name}'")
    net.settle()
    assert sum(net.status(peer)["nodes"] for peer in net.peers) > 3
    for name in ["ant", "antler", "bee", "yeti", "zebra", "Zoe", ""]:
        net.publish(5, {"name": name})
        net.settle()
    assert len(net.expected) == 4
    net.check()


RANGE = "a in [2, 9] and b in [3, 12]"
INSIDE = {"a": 5, "b": 5, "c": 1}


def with_everybody(strategy: str, **settings: object) -> RingNet:
    net = RingNet(strategy, PEERS, domains=DOMAINS, **settings)
    for peer in range(PEERS):
        net.subscribe(peer, 0, RANGE)
        net.subscribe(peer, 1, f"c in [0, {peer + 3}]")
    net.settle()
    return net


@pytest.mark.parametrize("strategy", BOTH)
@pytest.mark.parametrize("delegation", [1, 1000])
def test_subscriptions_stay_and_unsubscribed_ones_go(strategy: str, delegation: int) -> None:
    net = with_everybody(strategy, delegation=delegation)
    net.run(200.0)
    net.publish(0, INSIDE)
    net.settle()
    net.check()
    assert len(net.deliveries) == 2 * PEERS
    for peer in range(PEERS):
        net.unsubscribe(peer, 0)
        net.unsubscribe(peer, 1)
    net.run(1.0)
    status = [net.status(peer) for peer in range(PEERS)]
    assert sum(one["tree"] + one["leaf"] for one in status) == 0


@pytest.mark.parametrize("strategy", BOTH)
def test_what_nobody_renews_expires(strategy: str) -> None:
    net = with_everybody(strategy)
    for peer in range(1, PEERS):
        net.crash(peer)
    net.detect()
    net.run(130.0)
    status = net.status(0)
    mine = 2 if strategy == "dmm" else 3  # the space of two attributes has passed one on
    assert status["tree"] == mine
    assert status["leaf"] == mine


@pytest.mark.parametrize("strategy", BOTH)
@pytest.mark.parametrize("delegation", [1, 1000])
@pytest.mark.parametrize("hop_acks", [True, False])
def test_after_a_crash_events_arrive_again(strategy: str, delegation: int, hop_acks: bool) -> None:
    net = with_everybody(strategy, delegation=delegation, hop_acks=hop_acks)
    net.run(31.0)  # replicas know where entries came from
    root = ("a", "b", "c") if strategy == "dmm" else ("a",)
    net.crash(net.owner(region_name(root, "")))
    net.detect()
    net.run(31.0)
    net.publish(next(iter(net.peers)), INSIDE)
    net.settle()
    net.check()
    assert len(net.deliveries) == 2 * (PEERS - 1)


@pytest.mark.parametrize("strategy", BOTH)
def test_a_replica_takes_over_at_once(strategy: str) -> None:
    net = with_everybody(strategy)
    net.run(31.0)
    net.crash(net.owner(region_name(("a", "b", "c") if strategy == "dmm" else ("a",), "")))
    net.sent.clear()
    net.detect()
    net.run(1.0)
    assert net.sent["TellAgain"] > 0
    net.publish(next(iter(net.peers)), INSIDE)
    net.settle()
    net.check()


@pytest.mark.parametrize("strategy", BOTH)
@pytest.mark.parametrize("delegation", [1, 1000])
def test_peers_that_join_take_over_regions(strategy: str, delegation: int) -> None:
    net = with_everybody(strategy, delegation=delegation)
    for peer in range(PEERS, PEERS + 8):
        net.join(peer)
        net.settle()
        net.publish(peer, INSIDE)
        net.settle()
    net.check()
    assert len(net.deliveries) == 8 * 2 * PEERS
    for peer in range(4):
        net.leave(peer)
        net.settle()
    net.run(31.0)
    net.publish(PEERS, INSIDE)
    net.settle()
    net.check()


@pytest.mark.parametrize("strategy", BOTH)
def test_a_dead_hop_is_avoided_before_anybody_notices(strategy: str) -> None:
    net = with_everybody(strategy, tree_cache=False)
    net.run(31.0)
    owner = net.owner(region_name(("a", "b", "c") if strategy == "dmm" else ("c",), "0000"))
    net.crash(owner)
    net.publish(next(iter(net.peers)), INSIDE)
    net.run(10.0)
    assert net.notices["reroute"] > 0


@pytest.mark.parametrize("strategy", BOTH)
def test_a_warm_cache_saves_the_walk(strategy: str) -> None:
    net = with_everybody(strategy, tree_cache_place="publisher")
    net.publish(0, INSIDE)
    net.settle()
    walk = net.sent["SeekLeaf"]
    assert net.status(0)["cached"] == (1 if strategy == "dmm" else 3)  # two attributes, and the empty space
    assert net.sent["TreeInfo"] > 0
    net.sent.clear()
    net.publish(0, INSIDE)
    net.settle()
    assert net.sent["SeekLeaf"] < walk
    net.check()
    net.sent.clear()
    net.run(20.0)
    assert net.sent["TreeInfo"] > 0
    net.run(100.0)
    assert net.status(0)["cached"] == 0


@pytest.mark.parametrize("strategy", BOTH)
def test_a_stale_cache_costs_only_a_detour(strategy: str) -> None:
    net = with_everybody(strategy)
    net.publish(0, INSIDE)
    net.settle()
    assert net.status(0)["cached"] > 0
    for peer in range(PEERS, PEERS + 12):
        net.join(peer)
    net.settle()
    net.publish(0, INSIDE)
    net.settle()
    for peer in [peer for peer in net.peers if peer != 0][:6]:
        net.crash(peer)
        net.detect()
        net.run(31.0)
    net.publish(0, INSIDE)
    net.run(10.0)
    net.check()


@pytest.mark.parametrize("strategy", BOTH)
def test_bad_input_is_refused_and_counted(strategy: str) -> None:
    net = with_everybody(strategy)
    name = ("a", "b", "c") if strategy == "dmm" else ("a",)
    event = Event(EventId(1, 1, 99), {"a": 1})
    entry = Entry(EntryId(9, 0, 0), "a <")
    unsorted = ("b", "a")
    for message in (
        SeekLeaf(name, "0" * 99, event, 0, 1, 0, False, 0),
        SeekLeaf(name, "01x", event, 0, 1, 0, False, 0),
        SeekLeaf(unsorted, "0", event, 0, 1, 1, False, 0),
        DownPath(unsorted, event, 0, 1),
        TreeInfo(name, "2"),
        GrowNode(unsorted, ""),
    ):
        net.say(1, 2, message)
    assert net.refusals == {"invalid-region": 6}
    for message in (
        WantInSpace(name, (entry,)),
        ToLeaves(name, "", 1, (entry,)),
        UnwantInSpace(name, (entry,)),
        FromLeaves(name, "", 1, (entry,)),
        SeekLeaf(name, "0", event, 0, 1, 2, False, 0),
        SeekLeaf(name, "0", event, 0, 1, 1, False, 64),
        UnknownInSpace(name, (entry.id,)),
        RenewInSpace(name, (entry.id,)),
        TellAgain(name),
        LeafBranches(name, "01", True, ()),
        TreeInfo(name, "01"),
        DownPath(name, event, -5, 1),
        ChildActive(name, "0"),
    ):
        for peer in net.peers:
            net.say(1, peer, message)
            net.settle()
    assert net.refusals["filter-syntax"] > 0
    net.run(100.0)
    net.publish(0, INSIDE)
    net.settle()
    net.check()


# ---------------------------------------------------------------- the primary attribute

OFTEN, SELDOM = "a in [3, 4]", "in [2, 12]"
"""What all events meet, though it is a small part of the domain, and what few meet, though it is a large part."""


def publish_often(net: RingNet, count: int) -> None:
    for number in range(count):
        other = 14 if number % 20 else 5
        net.publish(number % PEERS, {"a": 3 + number % 2, "b": other, "c": other})
        net.settle()


def nodes(net: RingNet) -> int:
    return sum(net.status(peer)["nodes"] for peer in net.peers)


@pytest.mark.parametrize(("choice", "roots"), [("narrowest", 1), ("observed", 2)])
def test_the_primary_attribute_follows_the_events(choice: str, roots: int) -> None:
    net = RingNet("dmm-ar", PEERS, domains=DOMAINS, tree_cache=False, primary_attribute=choice)
    for peer in range(PEERS):
        net.subscribe(peer, 0, f"{OFTEN} and b {SELDOM}")
        net.subscribe(peer, 1, f"{OFTEN} and c {SELDOM}")
    net.settle()
    assert nodes(net) == 3  # of a, of a and b, of a and c
    publish_often(net, 40)
    net.run(80.0)
    assert nodes(net) == 2 + roots
    publish_often(net, 40)
    for peer in range(PEERS):
        net.unsubscribe(peer, 0)
    net.run(80.0)
    publish_often(net, 40)
    net.check()
    assert nodes(net) == 2
    for peer in range(PEERS):
        net.unsubscribe(peer, 1)
    net.run(150.0)
    assert nodes(net) == 0


@given(phases(ranges(), events), st.sampled_from([1, 3, 1000]))
@settings(max_examples=12)
def test_random_worlds_with_observed_attributes(world: list[Phase], delegation: int) -> None:
    net = RingNet("dmm-ar", PEERS, domains=DOMAINS, delegation=delegation, primary_attribute="observed")
    for phase in world:
        play(net, [phase])
        publish_often(net, 20)
        net.run(31.0)
    net.check()


def test_domains_are_checked() -> None:
    with pytest.raises(ConfigError, match="the domain of a needs a low and a high end"):
        RingNet("dmm", 1, domains={"a": []})
    with pytest.raises(ConfigError, match="the domain of a: a domain needs bounds in order"):
        RingNet("dmm-ar", 1, domains={"a": [3, 1]})
    with pytest.raises(ConfigError, match="the domain of a needs 1 to 16 letters of a text, got 0"):
        RingNet("dmm", 1, domains={"a": [0]})
