"""A neighbour on a tree may say anything that parses. The peer refuses or copes; it never raises and never stops."""

import asyncio
import random
from collections import defaultdict
from pathlib import Path
from typing import Any, get_args

import pytest

from tests.conformance.harness import SimHarness, published, subscribed
from wend.model.events import Event, EventId
from wend.protocol.messages import TX_SHIFT, Control, Data, Message
from wend.protocol.ports import Received
from wend.strategies.trees import messages
from wend.strategies.trees.ghs import GhsBuilder
from wend.strategies.trees.graph import tree_graph
from wend.strategies.trees.interest import NamedTreeInterest, TreeInterest
from wend.strategies.trees.messages import FilterDemand, Generation, SequencedMessage, SubtreeInterest
from wend.strategies.trees.routing import TreeHeader
from wend.strategies.trees.sptk import SptBuilder

PEERS = (0, 1, 2, 3, 7, -1, 2**40)
NUMBERS = (0, 1, 2, -1, 10**9, -(10**18), 2**62)
FLOATS = (0.0, 1.0, -1.0, 0.5, 1e300, float("inf"), float("nan"))
FILTERS = ("topic = 'a'", "topic = 'b'", "junk", "")
KEYS = ((0, 0.0, 0, 1), (0, 0.0, 1, 2), (-1, float("nan"), 7, 7))
LOTS = tuple((f, p) for f in FLOATS for p in PEERS)
COSTS = tuple((a, b) for a in NUMBERS for b in NUMBERS)
SIZES = tuple((a, 1, f) for a in NUMBERS for f in FLOATS)
ROUNDS = 200


class Babble:
    def __init__(self, seed: int, generation: Generation, graph: str = "", interest: str = "") -> None:
        self.rng = random.Random(seed)
        self.any = self.rng.choice
        self.generation = generation
        self.graph = graph
        self.interest = interest
        self._tx = 1 << (TX_SHIFT - 1)

    def some(self, kind: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(self.any(kind) for _ in range(self.rng.randrange(3)))

    def which(self) -> Generation:
        number, caller, incarnation = same = self.generation
        others = (
            (number + self.rng.randrange(3), 1, 1),
            (number - 1, 1, 1),
            (-1, -3, 0),
            (number, caller, -incarnation),
        )
        return self.any((same, same, same, same, *others, (2**63, 1, 2**63)))

    def tree_message(self) -> Any:
        """Any message of the builders, filled with whatever fits its fields."""
        kind = self.any([*get_args(messages.GhsMessage), *get_args(messages.SptMessage), messages.LinkWeight])
        values = {
            "tree": self.any((0, 1, 1, 2, -1)), "level": self.any((0, 1, 5, -1)), "core": self.any(KEYS),
            "finding": self.any((True, False)), "best": self.any((None, *KEYS)), "peers": self.any(NUMBERS),
            "lots": self.some(LOTS), "roots": self.some(PEERS),
            "chosen": self.any(NUMBERS), "costs": self.some(COSTS),
            "places": self.some(NUMBERS), "sizes": self.some(SIZES),
            "total": self.any(FLOATS), "place": self.any(NUMBERS),
            "peer_fails": self.any(FLOATS), "link_fails": self.any(FLOATS),
        }  # fmt: skip
        if kind is messages.Best:
            return kind(values["tree"], values["total"], values["place"])
        return kind(*(values[name] for name in kind.__struct_fields__))

    def message(self) -> Message:
        self._tx += 1
        tx = (1 << TX_SHIFT) + self._tx
        match self.rng.randrange(3):
            case 0:
                claims = tuple(
                    FilterDemand(self.any(FLOATS), self.any(NUMBERS), self.any(NUMBERS), self.some(FILTERS))
                    for _ in range(2)
                )
                peers = tuple((self.any(PEERS), self.any(NUMBERS), self.any(NUMBERS)) for _ in range(3))
                told = SubtreeInterest(self.which(), self.any((0, 1, 2, -1)), self.any(NUMBERS), claims, peers)
                return Control(tx, self.interest, told)
            case 1:
                built = SequencedMessage(self.which(), self.any((0, 1, 2, 3, -1, 10**9)), self.tree_message())
                return Control(tx, self.graph, built)
        event = Event(EventId(self.any(PEERS), 1, self.any((1, 2, 2**50))), {"topic": self.any(("a", "b", 3))})
        dests = self.some(PEERS)
        ranks = self.any(((), tuple(self.any(NUMBERS) for _ in dests)))
        header = TreeHeader(self.which(), self.any((0, 1, 2, -1)))
        return Data(tx, event, self.any(NUMBERS), dests, (), header, ranks)


@pytest.mark.parametrize("strategy", ["mrst", "spt-k"])
@pytest.mark.parametrize("persistence", [False, True])
def test_nothing_that_parses_makes_a_peer_on_trees_raise_or_stop(strategy: str, persistence: bool) -> None:
    async def scene(seed: int) -> None:
        async with SimHarness([(0, 1), (1, 2), (2, 0)], strategy, persistence, Path()) as world:
            world.tell(2, subscribed(1, "a"))
            world.wait(4)
            peer = world.peers[0]
            assert peer is not None
            interest, trees = peer.interest, tree_graph(peer.view)
            assert isinstance(interest, TreeInterest | NamedTreeInterest)
            serving = interest.tables.serving()
            assert serving is not None
            names = {plugin: name for name, plugin in peer.plugins.items()}
            babble = Babble(seed, serving[0].generation, names[trees], names[interest])
            for number in range(ROUNDS):
                world.tell(0, Received(1, babble.message()))
                if number % 20 == 0:
                    world.tell(0, published("a"))
                    world.wait(0.3)
                    assert trees.newest is not None
                    babble.generation = trees.newest.generation
            world.wait(5)

    for seed in (1, 2, 124):
        asyncio.run(scene(seed))


@pytest.mark.parametrize("first", [0, 1])
def test_a_liar_among_those_who_build_trees_makes_nobody_raise(first: int) -> None:
    """Four peers build trees by GHS (odd seeds) or from roots (even ones), while one of them lies to another."""
    for seed in range(first, 80, 2):
        babble, queue = Babble(seed, (1, 1, 1)), defaultdict(list)
        weight = {(i, j): 0.1 * babble.rng.random() for i in range(4) for j in range(i)}
        forests: list[Any] = []
        for me in range(4):
            near = {n: weight[max(me, n), min(me, n)] for n in range(4) if n != me}
            forests.append(GhsBuilder(me, 2, near) if seed % 2 else SptBuilder(me, 2, near, 2, roots=2))
        for me in range(4):
            for to, said in forests[me].start():
                queue[me, to].append(said)
        kinds = get_args(messages.GhsMessage if seed % 2 else messages.SptMessage)
        for _ in range(300):
            links = sorted(link for link in queue if queue[link])
            sender, to = babble.any(links) if links and babble.rng.random() < 0.85 else (1, 0)
            lie = babble.tree_message()
            said = queue[sender, to].pop(0) if queue[sender, to] else lie
            if (sender, to) == (1, 0) and isinstance(lie, kinds) and babble.rng.random() < 0.5:
                said = lie
            if isinstance(said, kinds):
                for then, answer in forests[to].on_message(sender, said) or []:
                    queue[to, then].append(answer)
