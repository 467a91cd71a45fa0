"""The broker by itself: clients of any listener share subscriptions, and leave nothing behind."""

import msgspec
import pytest

from tests.drivers.live.net import run, until
from tests.errors import raises
from wend.drivers.live.broker import broker as brokers
from wend.drivers.live.broker.broker import Broker
from wend.drivers.live.peer import LivePeer
from wend.model.events import DurableOptions, Qos
from wend.model.publication import Publication
from wend.protocol.config import PeerConfig
from wend.protocol.ports import Deliver, Started
from wend.strategies.subscriptions.summary import SUMMARY_BYTES

SOON = Qos(deadline_ns=10**9)


class Client:
    """A client of some other protocol than `wend://`."""

    def __init__(self) -> None:
        self.got: list[tuple[int, bytes]] = []
        self.is_stalled = False

    def deliver(self, handle: int, effect: Deliver) -> None:
        self.got.append((handle, effect.event.payload))


def started() -> Broker:
    peer = LivePeer(PeerConfig(peer=0))
    peer.start(Started(()))
    return Broker(peer)


def test_events_reach_every_handle_of_every_client() -> None:
    async def scene() -> None:
        broker, one, two = started(), Client(), Client()
        broker.subscribe(one, 1, "topic = 'x'", Qos())
        broker.subscribe(one, 2, "topic = 'x'", SOON)
        broker.subscribe(two, 1, "topic = 'x'", Qos())
        assert broker.subscriptions == ("topic = 'x'", "topic = 'x'")
        receipt = broker.publish(Publication({"topic": "x"}, b"first", {}))
        assert receipt.targets == (0,)
        assert (sorted(one.got), two.got) == ([(1, b"first"), (2, b"first")], [(1, b"first")])
        broker.unsubscribe(one, 1)
        assert len(broker.subscriptions) == 2, "the other client still wants it"
        broker.disconnect(one)
        broker.disconnect(one)
        broker.publish(Publication({"topic": "x"}, b"second", {}))
        assert (len(one.got), two.got[1:]) == (2, [(1, b"second")])
        broker.disconnect(two)
        assert not broker.subscriptions
        assert broker.publish(Publication({"topic": "x"}, b"third", {})).targets == ()
        broker.peer.close()

    run(scene())


def test_what_is_refused_leaves_no_subscription(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        broker, client = started(), Client()
        with raises("filter-syntax"):
            broker.subscribe(client, 1, "topic =", Qos())
        with raises("invalid-subscription"):
            broker.subscribe(client, 1, "topic = 'x'", Qos(deadline_ns=0))
        with raises("invalid-subscription"):
            broker.subscribe(client, 1, "topic = 'x'", Qos(reliability=1.5))
        monkeypatch.setattr(brokers, "MAX_HANDLES", 1)
        assert not broker.subscriptions
        broker.subscribe(client, 1, "topic = 'x'", Qos())
        with raises("invalid-subscription"):
            broker.subscribe(client, 1, "topic = 'y'", Qos())
        with raises("too-many-subscriptions"):
            broker.subscribe(client, 2, "topic = 'y'", Qos())
        broker.peer.close()
        broker.disconnect(client)  # though the peer is closed
        assert not broker.subscriptions

    run(scene())


def test_a_client_may_have_more_subscriptions_than_a_peer_announces() -> None:
    async def scene() -> None:
        broker, client = started(), Client()
        for number in range(1, 1001):
            broker.subscribe(client, number, f"topic = 'a/topic/with/a/long/name/{number}'", Qos())
        assert len(broker.subscriptions) == 1000
        known = broker.peer.peer.subscriptions.interests[0]  # type: ignore[attr-defined]
        assert len(msgspec.msgpack.encode(known)) <= SUMMARY_BYTES
        assert broker.publish(Publication({"topic": "a/topic/with/a/long/name/77"}, b"here", {})).targets == (0,)
        assert broker.publish(Publication({"topic": "a/topic/with/a/long/name/0"}, b"nowhere", {})).targets == ()
        assert client.got == [(77, b"here")]
        broker.peer.close()

    run(scene())


def test_a_client_with_many_subscriptions_leaves_without_holding_up_the_peer() -> None:
    async def scene() -> None:
        broker, client, other = started(), Client(), Client()
        for handle in range(1, 20_001):
            broker.subscribe(client, handle, f"topic = 't{handle}'", Qos())
        broker.subscribe(client, 20_001, "topic = 'x'", Qos(group="workers"))
        broker.subscribe(client, 20_002, "topic = 'x'", Qos(), DurableOptions("orders"))
        broker.disconnect(client)
        assert 0 < len(broker.subscriptions) <= 20_000, "it goes on in later turns of the event loop"
        broker.subscribe(other, 1, "topic = 'x'", Qos(group="workers"))
        broker.subscribe(other, 2, "topic = 'x'", Qos(), DurableOptions("orders"))
        broker.publish(Publication({"topic": "x"}, b"for others", {}))
        assert sorted(other.got) == [(1, b"for others"), (2, b"for others")] and not client.got
        await until(lambda: len(broker.subscriptions) == 1)
        broker.peer.close()

    run(scene())


def test_experiments_and_plans_need_the_configuration_of_the_peer() -> None:
    async def scene() -> None:
        broker = started()
        with raises("experiments-off"):
            broker.administration.set_link(1, False)
        with raises("no-plan"):
            broker.administration.followed_plan()
        free = Broker(broker.peer, experiments=True)
        with raises("invalid-link"):
            free.administration.set_link(1, False)
        broker.peer.close()

    run(scene())


def test_a_member_of_a_group_that_reads_too_slowly_is_passed_over() -> None:
    async def scene() -> None:
        broker, clients = started(), [Client(), Client(), Client()]
        for client in clients:
            broker.subscribe(client, 1, "topic = 'x'", Qos(group="workers"))
        clients[1].is_stalled = True
        for _ in range(6):
            broker.publish(Publication({"topic": "x"}, b"work", {}))
        assert [len(client.got) for client in clients] == [3, 0, 3]
        for client in clients:
            client.is_stalled = True
        broker.publish(Publication({"topic": "x"}, b"work", {}))
        assert sum(len(client.got) for client in clients) == 7
        broker.peer.close()

    run(scene())
