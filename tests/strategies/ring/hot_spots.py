"""A hot spot that wanders: peers subscribe around it, and publish all the time, while regions split and merge.

There are 20 random worlds of each kind. `WEND_WORLDS=200 ./test -k wanders` plays 200.
"""

import os
from collections import Counter
from random import Random
from typing import Any, NamedTuple

from tests.strategies.ring.interest_rings import Delivery, RingNet
from tests.strategies.ring.worlds import HIGH, LOW
from wend.matching.filters import parse
from wend.model.events import Attributes, PeerId, Range
from wend.model.units import SECOND, Nanos

TENS = range(int(os.environ.get("WEND_WORLDS", "20")) // 10)
PEERS = 6
DOMAINS = {name: [LOW, HIGH] for name in ("a", "b")}
BEACON_S = 5.0
QUICK: dict[str, Any] = {"beacon_ns": round(BEACON_S * SECOND), "expiry_ns": 2 * round(BEACON_S * SECOND)}
IN_FLUX_NS: Nanos = 2 * SECOND
"""A change of a subscription takes effect within this time. An event of the same time may or may not meet it."""


class Wish(NamedTuple):
    """A filter that a peer wanted for some time."""

    peer: PeerId
    number: int
    text: str
    begin_ns: Nanos
    end_ns: Nanos


class Publication(NamedTuple):
    time_ns: Nanos
    event: Any
    attributes: Attributes


class HotSpot(RingNet):
    """A ring of peers that remembers every subscription and publication with its time."""

    def __init__(self, strategy: str, **settings: Any) -> None:
        self.current: dict[tuple[PeerId, int], tuple[str, Nanos]] = {}
        self.wishes: list[Wish] = []
        self.publications: list[Publication] = []
        super().__init__(strategy, PEERS, domains=DOMAINS, **{**QUICK, **settings})

    def want(self, peer: PeerId, number: int, text: str) -> None:
        self.end(peer, number)
        self.current[peer, number] = (text, self.now)
        self.subscribe(peer, number, text)

    def end(self, peer: PeerId, number: int) -> None:
        if (peer, number) in self.current:
            text, begin_ns = self.current.pop((peer, number))
            self.wishes.append(Wish(peer, number, text, begin_ns, self.now))
            self.unsubscribe(peer, number)

    def emit(self, peer: PeerId, attributes: Attributes) -> None:
        time_ns = self.now
        self.publications.append(Publication(time_ns, self.publish(peer, attributes), attributes))

    @property
    def nodes(self) -> int:
        return sum(self.status(peer)["nodes"] for peer in self.peers)

    def check_in_flux(self, late_ns: Nanos = IN_FLUX_NS) -> int:
        """Every event reached those who wanted it all the time, once, and no others. Stored events may also reach those
        who wanted it up to `late_ns` later. Returns how many deliveries were due."""
        wishes = [*self.wishes, *[Wish(*key, text, begin, self.now) for key, (text, begin) in self.current.items()]]
        filters = {wish.text: parse(wish.text) for wish in wishes}
        due: set[Delivery] = set()
        allowed: set[Delivery] = set()
        for time_ns, event, attributes in self.publications:
            for wish in wishes:
                if filters[wish.text].matches(attributes):
                    delivery = (wish.peer, wish.number, event)
                    if wish.begin_ns + IN_FLUX_NS <= time_ns <= wish.end_ns - IN_FLUX_NS:
                        due.add(delivery)
                    if wish.begin_ns <= time_ns + late_ns and time_ns <= wish.end_ns + IN_FLUX_NS:
                        allowed.add(delivery)
        made = Counter(self.deliveries)
        assert not due - made.keys(), f"lost: {sorted(due - made.keys())[:5]}"
        assert not made.keys() - allowed, f"undue: {sorted(made.keys() - allowed)[:5]}"
        assert max(made.values(), default=1) == 1, "doubled"
        return len(due)


def wander(net: HotSpot, draw: Random, joins: int = 0, beacons: int = 10) -> None:
    """Peers subscribe around a spot, which moves on when it likes. They publish all the time, most of it there. At the
    end only a few subscriptions stay, for so many beacons."""
    names = list(DOMAINS)
    for peer in range(3):  # a few that stay
        net.want(peer, 0, f"{draw.choice(names)} in [{peer}, {peer + draw.randint(0, 8)}]")
    for move in range(draw.randint(2, 3)):
        spot = {name: draw.randint(LOW, HIGH) for name in draw.sample(names, draw.randint(1, 2))}
        has_load = move == 0 or draw.random() < 0.5
        for peer in draw.sample(range(PEERS), PEERS):
            for number in range(1, 3):
                if has_load:
                    net.want(peer, number, around(draw, spot))
                else:
                    net.end(peer, number)
            if draw.random() < 0.5:
                net.run(draw.random())
        end_ns = net.now + round(draw.choice([5, 15, 40]) * SECOND)
        while net.now < end_ns:
            if joins and draw.random() < 0.05:
                net.join(len(net.peers))
                net.run(1.0)  # events on the way to a former owner may come too early
                joins -= 1
            net.emit(draw.randrange(PEERS), event_near(draw, spot))
            net.run(draw.choice([0.0, 0.01, 0.1, 2.0, 2.0]))
    for peer, number in list(net.current):
        if number:
            net.end(peer, number)
    end_ns = net.now + beacons * BEACON_S * SECOND
    while net.now < end_ns:
        net.emit(draw.randrange(PEERS), event_near(draw, spot))
        net.run(draw.choice([0.01, 0.1, 4.0]))
    net.settle()


def around(draw: Random, spot: dict[str, int]) -> str:
    sides = []
    for name, centre in spot.items():
        low = max(LOW, centre - draw.randint(0, 2))
        sides.append(f"{name} in [{low}, {min(HIGH, low + draw.randint(0, 3))}]")
    return " and ".join(sides)


def event_near(draw: Random, spot: dict[str, int]) -> Attributes:
    attributes: Attributes = {}
    for name in DOMAINS:
        centre = spot.get(name, draw.randint(LOW, HIGH))
        value = min(HIGH, max(LOW, centre + draw.randint(-2, 2)))
        if draw.random() < 0.15:
            attributes[name] = Range(value, min(HIGH, value + draw.randint(0, 4)))
        elif draw.random() < 0.9:
            attributes[name] = value
    return attributes or {"a": 0}
