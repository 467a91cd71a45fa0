"""Memory by need: a peer that has nothing to do takes little, and so does a link."""

import pytest

from benchmarks.memory import idle_kilobytes


@pytest.mark.parametrize(("links", "most_kb"), [(0, 9), (5, 17), (20, 40)])
def test_an_idle_peer_takes_few_kilobytes(links: int, most_kb: int) -> None:
    assert idle_kilobytes(links, peers=30) <= most_kb
