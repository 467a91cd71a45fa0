"""Names of segments, and the choice of the events that all peers write about."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wend.model.events import EventId
from wend.model.telemetry import SCHEMA, TABLES, Segment, is_sampled, parse_segment_name, sample_bound


@given(
    st.sampled_from(sorted(TABLES)), st.integers(0, 10**18 - 1), st.integers(0, 2**63 - 1), st.integers(0, 10**12 - 1)
)
def test_the_name_of_a_segment_says_what_it_is(table: str, peer: int, incarnation: int, number: int) -> None:
    segment = Segment(table, SCHEMA, peer, incarnation, number)
    assert parse_segment_name(segment.name) == segment


@pytest.mark.parametrize(
    "name", ["", "links.parquet", ".links-v1-3-1-000001.parquet", "links-v1-3-1-000001.parquet.tmp"]
)
def test_other_files_are_no_segments(name: str) -> None:
    assert parse_segment_name(name) is None


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 1.0])
def test_a_share_of_the_events_is_sampled_for_every_publisher(share: float) -> None:
    bound = sample_bound(share)
    for publisher in (0, 7, 2**40):
        chosen = sum(is_sampled(EventId(publisher, 1763424000 << 30, number), bound) for number in range(20_000))
        assert chosen / 20_000 == pytest.approx(share, abs=0.005)
