"""`clusters` in random worlds: whoever joins, leaves, crashes, returns or is cut off, one peer speaks on each tree."""

import pytest

from tests.strategies.clusters.membership.worlds import turbulent
from wend.model.events import PeerId
from wend.strategies.clusters.membership import election as cluster_election
from wend.strategies.clusters.membership.messages import Slots

WORLDS = 20


@pytest.mark.parametrize("seed", range(WORLDS))
def test_every_part_of_a_cluster_has_one_coordinator_for_each_tree(seed: int) -> None:
    net = turbulent(seed)
    net.check()


def term_alone(term: int, head: PeerId, other_term: int, other_head: PeerId) -> bool:
    """A broken rule: of two heads of the same term, neither wins."""
    return term > other_term


def lowest_alone(slots: Slots, live: list[PeerId], *others: object) -> Slots:
    """A broken rule: only the lowest member speaks."""
    return tuple(type(slot)(live[0], (), others[2]) for slot in slots)  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "broken"), [("wins", term_alone), ("reassign", lowest_alone)])
def test_a_broken_election_is_caught(name: str, broken: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_election, name, broken)
    assert any(turbulent(seed).mistakes() for seed in range(WORLDS))
