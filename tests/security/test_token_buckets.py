"""Token buckets, of one source and of many."""

import pytest

from wend.security.token_buckets import MAX_SOURCES, SourceBuckets, TokenBucket, source_network


@pytest.mark.parametrize(
    ("host", "source"),
    [
        ("127.0.0.1", "loopback"),
        ("127.9.9.9", "loopback"),
        ("::1", "loopback"),
        ("10.0.0.7", "10.0.0.7"),
        ("::ffff:10.0.0.7", "10.0.0.7"),
        ("2001:db8::1", "2001:db8::/64"),
        ("2001:db8::ffff:1", "2001:db8::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("no address", "no address"),
    ],
)
def test_what_counts_as_one_source(host: str, source: str) -> None:
    assert source_network(host) == source


def test_a_bucket_lends_what_is_more_than_a_burst() -> None:
    bucket = TokenBucket(10.0, 10.0, 0.0)
    assert bucket.has_tokens(0.0, 25.0)
    bucket.spend(25.0)
    assert not bucket.has_tokens(1.5, 1.0) and bucket.has_tokens(1.6, 1.0)
    assert not bucket.is_full(1.6) and bucket.is_full(2.5)
    assert not TokenBucket(0.0, 0.0, 0.0).has_tokens(100.0, 1.0)


def test_buckets_of_sources_are_apart_and_bounded() -> None:
    buckets = SourceBuckets(1.0, 2.0)
    assert [buckets.take("a", 0.0) for _ in range(3)] == [True, True, False]
    assert buckets.take("b", 0.0) and buckets.take("a", 1.0)
    for number in range(2 * MAX_SOURCES):
        assert buckets.take(f"source {number}", 1.0)
    assert len(buckets) == MAX_SOURCES
