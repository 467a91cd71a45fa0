"""Queue groups: one member gets each event, wherever the members are."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from tests.conformance.harness import SimHarness, published, subscribed
from tests.cores import pure_only
from wend.model.events import MAX_EVENT_GROUPS, Event, EventId, Qos, Subscription, SubscriptionId
from wend.protocol.config import PeerConfig
from wend.protocol.delivery.queue_groups import MAX_EVENT_GROUPS_BYTES, QueueGroups, group_bytes
from wend.protocol.messages import TX_SHIFT, Data
from wend.protocol.ports import Effect, LocalSubscription, Notice, Received, Started, Subscribed, Unsubscribed
from wend.strategies.registry import make_peer
from wend.strategies.subscriptions.summary import FilterSummary
from wend.strategies.subscriptions.table import PeerInterest, SubscriptionTable

RING = [(0, 1), (1, 2), (2, 3), (3, 0)]
EVENTS = 200


def member(number: int, group: str = "workers", filter: str = "topic = 'a'") -> Subscribed:
    return Subscribed(LocalSubscription(number, filter, Qos(group=group)))


def run(scene: Callable[[SimHarness], Awaitable[None]], folder: Path, persistence: bool = False) -> None:
    async def play() -> None:
        async with SimHarness(RING, "adaptive", persistence, folder) as world:
            await scene(world)

    asyncio.run(play())


async def known(world: SimHarness) -> None:
    """Until all that was said so far is known."""
    world.wait(1.0)
    world.got.clear()


async def publish(world: SimHarness, peer: int = 0, count: int = EVENTS) -> None:
    for number in range(count):
        world.tell(peer, published("a", b"%d" % number))
    await world.quiet()


@pytest.mark.parametrize("persistence", [False, True])
def test_one_member_gets_each_event_and_all_get_some(tmp_path: Path, persistence: bool) -> None:
    async def scene(world: SimHarness) -> None:
        for peer in (0, 1, 2):
            world.tell(peer, member(1))
        world.tell(2, member(2))
        await known(world)
        await publish(world, 0)
        await publish(world, 3)
        assert Counter(got.payload for got in world.got) == {b"%d" % number: 2 for number in range(EVENTS)}
        shares = Counter((got.peer, got.subscription) for got in world.got)
        assert shares.keys() == {(0, 1), (1, 1), (2, 1), (2, 2)}
        by_peer = Counter(got.peer for got in world.got)
        assert all(EVENTS / 2 < count < EVENTS for count in by_peer.values())

    run(scene, tmp_path, persistence)


def test_others_get_all_beside_a_group_and_groups_do_not_share(tmp_path: Path) -> None:
    async def scene(world: SimHarness) -> None:
        for peer in (1, 2):
            world.tell(peer, member(1))
            world.tell(peer, subscribed(2, "a"))
            world.tell(peer, member(3, "auditors", "true"))
        world.tell(3, member(1, filter="topic = 'b'"))
        await known(world)
        await publish(world)
        for peer in (1, 2):
            assert sum(got.peer == peer and got.subscription == 2 for got in world.got) == EVENTS
        for number in (1, 3):
            assert sum(got.subscription == number for got in world.got) == EVENTS
        assert not any(got.peer == 3 for got in world.got)

    run(scene, tmp_path)


@pytest.mark.parametrize("persistence", [False, True])
def test_an_event_for_a_member_that_has_just_gone_reaches_another(tmp_path: Path, persistence: bool) -> None:
    async def scene(world: SimHarness) -> None:
        for peer in (1, 2, 3):
            world.tell(peer, member(1))
        await known(world)
        world.tell(1, Unsubscribed(1))
        world.tell(2, Unsubscribed(1))  # the publisher does not know yet
        for number in range(EVENTS):
            world.tell(0, published("a", b"%d" % number))
        await world.quiet()
        assert Counter(got.payload for got in world.got) == {b"%d" % number: 1 for number in range(EVENTS)}
        assert {got.peer for got in world.got} == {3}

    run(scene, tmp_path, persistence)


def test_an_event_that_is_passed_on_to_another_member_is_for_no_other_subscription(tmp_path: Path) -> None:
    async def scene(world: SimHarness) -> None:
        for peer in (1, 3):
            world.tell(peer, member(1))
        world.tell(3, subscribed(2, "a"))
        await known(world)
        world.tell(1, Unsubscribed(1))  # the publisher does not know yet
        await publish(world)
        for number in (1, 2):
            found = Counter(got.payload for got in world.got if got.subscription == number)
            assert found == {b"%d" % one: 1 for one in range(EVENTS)}

    run(scene, tmp_path)


@pure_only
def test_an_event_that_nobody_is_left_for_is_reported(tmp_path: Path) -> None:
    async def scene(world: SimHarness) -> None:
        notices: Counter[str] = Counter()
        world.tell(2, member(1))
        await known(world)
        world.tell(2, Unsubscribed(1))
        peer = world.peers[2]
        assert peer is not None
        handle = peer.handle

        def noted(now: int, event: object) -> list[object]:
            effects = handle(now, event)  # type: ignore[arg-type]
            notices.update(effect.what for effect in effects if type(effect).__name__ == "Notice")  # type: ignore[attr-defined]
            return effects  # type: ignore[return-value]

        peer.handle = noted  # type: ignore[method-assign, assignment]
        world.tell(0, published("a", b"lost"))
        await world.quiet()
        assert notices["group-empty"] == 1 and not world.got

    run(scene, tmp_path)


def test_an_event_that_waited_in_vain_for_a_member_reaches_another(tmp_path: Path) -> None:
    async def scene(world: SimHarness) -> None:
        world.tell(2, member(1))
        await known(world)
        world.crash(2)
        world.tell(0, published("a", b"work"))
        world.wait(1.0)
        world.subscriptions[2].clear()
        world.restart(2)  # its client does not come back
        world.wait(5.0)
        world.tell(3, member(1))
        assert not world.got
        await world.until(lambda: [(got.peer, got.payload) for got in world.got] == [(3, b"work")])

    run(scene, tmp_path, persistence=True)


def test_an_event_keeps_its_id_when_it_is_sent_on(tmp_path: Path) -> None:
    async def scene(world: SimHarness) -> None:
        for peer in (1, 2):
            world.tell(peer, member(1))
        await known(world)
        world.tell(1, Unsubscribed(1))
        ids: list[tuple[EventId, EventId | None]] = []
        world.note = lambda peer, effect: ids.append((effect.event.id, effect.event.origin))  # type: ignore[method-assign]
        sent = [world.tell(0, published("a")) for _ in range(20)]
        await world.quiet()
        assert sorted(origin or id_ for id_, origin in ids) == [receipt.id for receipt in sent if receipt]
        assert {id_.publisher for id_, origin in ids if origin} == {1}

    run(scene, tmp_path)


# ---------------------------------------------------------------- what neighbours may send, and what is announced


def table(*subscriptions: Subscription) -> SubscriptionTable:
    found = SubscriptionTable(0)
    for subscription in subscriptions:
        origin = subscription.id.peer
        found.replace_interest(PeerInterest(origin, (1, 1), (subscription,), ()))
    return found


def test_a_choice_without_peers_is_no_choice() -> None:
    known = table(Subscription(SubscriptionId(1, 1), "topic = 'a'", Qos(group="g")))
    event = Event(EventId(5, 1, 1), {"topic": "a"}, groups=(("g", ()), ("h", (7,))))
    assert known.targets(event) == (7,)
    assert known.members(event) == {"g": (1,)}


def test_a_summary_does_not_merge_groups() -> None:
    from wend.matching.filters import parse

    texts = {number: f"topic = 'a' and x = {number}" for number in range(40)}
    wanted = {number: Qos(group="" if number % 2 else "g") for number in texts}
    summary = FilterSummary(lambda: ((n, texts[n], parse(texts[n]), wanted[n]) for n in texts), limit=600)
    for number, text in texts.items():
        summary.add(number, text, parse(text), wanted[number])
    assert not summary.is_exact
    assert sorted(qos.group for _, qos in summary.entries().values()) == ["", "g"]


def test_a_name_that_is_too_long_cannot_be() -> None:
    assert Qos(group="x" * 200).is_valid() and not Qos(group="x" * 201).is_valid()


def test_an_event_names_a_bounded_number_of_groups_and_each_group_gets_some(tmp_path: Path) -> None:
    async def scene(world: SimHarness) -> None:
        count = 2 * MAX_EVENT_GROUPS
        for number in range(count):
            world.tell(1, member(number, f"{number:04}"))
        world.tell(1, subscribed(count, "a"))
        await known(world)
        await publish(world, 0, 60)
        everyone = Counter(got.subscription for got in world.got)
        assert everyone.pop(count) == 60, "others get every event"
        assert len(everyone) == count and max(everyone.values()) < 60
        by_event = Counter(got.payload for got in world.got if got.subscription != count)
        assert {*by_event.values()} == {MAX_EVENT_GROUPS}

    run(scene, tmp_path)


@pure_only
def test_long_names_of_groups_leave_room_for_the_event() -> None:
    made: list[Effect] = []
    groups = QueueGroups(0, None, None)  # type: ignore[arg-type]
    wanted = {f"{number:03}{'g' * 190}": (1, 2) for number in range(200)}
    event = groups.choose_peers(Event(EventId(0, 1, 1), {"topic": "a"}), wanted, made)
    assert sum(group_bytes(group) for group, _ in event.groups) <= MAX_EVENT_GROUPS_BYTES
    assert made == [Notice("group-left-out", 0)] * (200 - len(event.groups)) != []


def test_a_group_that_an_event_names_often_is_served_once(tmp_path: Path) -> None:
    async def scene(world: SimHarness) -> None:
        world.tell(2, member(1))
        await known(world)
        hostile = Event(EventId(0, 1, 99), {"topic": "a"}, b"x", groups=(("workers", (1,)),) * 200)
        world.tell(1, Received(0, Data((1 << TX_SHIFT) + 2**20, hostile, 0, (1,))))
        await world.quiet()
        assert [(got.peer, got.payload) for got in world.got] == [(2, b"x")]

    run(scene, tmp_path)


def test_an_event_that_was_passed_on_is_for_no_subscription_where_there_are_no_groups() -> None:
    peer = make_peer(PeerConfig(peer=0, strategy="rendezvous"))
    peer.handle(0, Started(()))
    peer.handle(1, Subscribed(LocalSubscription(1, "topic = 'a'")))
    plain = Event(EventId(7, 1, 1), {"topic": "a"})
    assert peer.subscriptions.local(plain, peer.view)
    assert not peer.subscriptions.local(msgspec.structs.replace(plain, origin=EventId(8, 1, 1)), peer.view)
