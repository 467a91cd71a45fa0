"""Random worlds on a ring of peers: who wants what and when, and what is published then.

In a phase peers subscribe and unsubscribe, all at once. When that has settled, some publish.
"""

from typing import NamedTuple

from hypothesis import strategies as st

from tests.strategies.ring.interest_rings import RingNet
from wend.model.events import Attributes, PeerId, Range

PEERS = 7
NAMES = ("a", "b", "c")
LOW, HIGH = 0, 15
DOMAINS = {name: [LOW, HIGH] for name in NAMES}


class Subscribe(NamedTuple):
    peer: PeerId
    number: int
    filter: str


class Unsubscribe(NamedTuple):
    peer: PeerId
    number: int


class Publish(NamedTuple):
    peer: PeerId
    attributes: Attributes


Phase = tuple[list[Subscribe | Unsubscribe], list[Publish]]

_peers = st.integers(0, PEERS - 1)
_numbers = st.integers(0, 2)
_ends = st.tuples(st.integers(LOW, HIGH), st.integers(LOW, HIGH)).map(sorted)


@st.composite
def ranges(draw: st.DrawFn) -> str:
    """dmm, section VI: a range on some of the attributes."""
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True))
    sides = [(name, *draw(_ends)) for name in names]
    return " and ".join(f"{name} in [{low}, {high}]" for name, low, high in sides)


topics = st.one_of(st.sampled_from(["x", "y"]).map(lambda topic: f"topic = '{topic}'"), ranges())
odd = st.sampled_from(
    (
        "true", "a absent", "a != 7", "a in {1, 9}", "not (b in [3, 9])", "c < 2 * a", "a exists", "topic prefix 'x'",
        "a < 3 or b > 12", "b = 'text'", "topic > 'm' or c <= 4", "zone = true", "depth > 1e6", "a absent and b = 3",
    )
)  # fmt: skip
"""Filters that are no ranges: sets, negations, bindings, alternatives, other kinds of values, absence."""
_values = st.one_of(st.integers(LOW, HIGH), _ends.map(lambda ends: Range(*ends)))
events = st.dictionaries(st.sampled_from(NAMES), _values, min_size=1, max_size=3)
_topics = st.sampled_from(["x", "xy", "y", "Ü"])


def _odd(published_topics: st.SearchStrategy[str | Range]) -> st.SearchStrategy[Attributes]:
    some = {
        "a": st.one_of(_values, st.just("text")),
        "b": st.one_of(_values, st.just("text")),
        "c": _values,
        "topic": published_topics,
        "zone": st.booleans(),
        "depth": st.sampled_from([0.5, 2e6, 2**63]),
    }
    return st.fixed_dictionaries({}, optional=some)


odd_events = _odd(_topics)
range_topics = _odd(st.one_of(_topics, st.just(Range("m", "xx"))))
"""Also with a range of topics, which no group has."""


def phases(filters: st.SearchStrategy[str], published: st.SearchStrategy[Attributes]) -> st.SearchStrategy[list[Phase]]:
    subscribe = st.builds(Subscribe, _peers, _numbers, filters)
    changes = st.lists(st.one_of(subscribe, subscribe, st.builds(Unsubscribe, _peers, _numbers)), max_size=12)
    return st.lists(st.tuples(changes, st.lists(st.builds(Publish, _peers, published), max_size=5)), max_size=3)


def play(net: RingNet, world: list[Phase]) -> None:
    for changes, publications in world:
        for change in changes:
            if isinstance(change, Subscribe):
                net.subscribe(*change)
            else:
                net.unsubscribe(*change)
        net.settle()
        for publication in publications:
            net.publish(*publication)
        net.settle()
