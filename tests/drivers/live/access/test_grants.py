"""Grants: what is granted is what the filters say, for all filters, subscriptions and events."""

import math
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.errors import raises
from tests.matching.strategies import events, filters, range_events
from wend.drivers.live.access.forwarding_grants import message_publishers
from wend.drivers.live.access.grants import (
    LOCAL,
    NO_LIMITS,
    Grant,
    GrantTable,
    Rights,
    UsageLimits,
    check_inbox,
    read_grants,
)
from wend.matching.filters import parse, topic_filter
from wend.model.errors import ConfigError, FilterError, Refused
from wend.model.events import Event, EventId, Range
from wend.protocol.messages import Data, Fragment, PlainMessage

few_filters = st.lists(filters, min_size=1, max_size=3)


def rights_of(publish: list[str], subscribe: list[str]) -> Rights:
    """Of a client with a group for each filter. Skips filters that are too large."""
    try:
        pairs = list(zip(publish, subscribe, strict=False))
        granted = {f"group-{place}": Grant(publish=p, subscribe=s) for place, (p, s) in enumerate(pairs)}
        for group, grant in granted.items():
            grant.check(group)
        return Rights(granted)
    except ConfigError:
        assume(False)
        raise


@settings(max_examples=200)
@given(few_filters, filters, st.lists(range_events, min_size=1, max_size=5))
def test_a_granted_subscription_never_receives_what_the_grant_excludes(
    granted: list[str], wanted: str, published: list[Any]
) -> None:
    rights = rights_of(["false"] * len(granted), granted)
    try:
        found = parse(rights.granted_filter(wanted))
    except Refused:
        found = parse("false")
    except FilterError:
        assume(False)
        raise
    for event in published:
        allowed = any(parse(grant).matches(event) for grant in granted)
        if found.matches(event):
            assert allowed and parse(wanted).matches(event)
        is_plain = not any(isinstance(value, Range) for value in event.values())
        if is_plain:  # of events without ranges it also receives all that is granted
            assert found.matches(event) == (allowed and parse(wanted).matches(event))


@settings(max_examples=150)
@given(few_filters, st.lists(events, min_size=1, max_size=5))
def test_a_publication_is_granted_if_one_of_the_grants_matches_it(granted: list[str], published: list[Any]) -> None:
    rights = rights_of(granted, ["false"] * len(granted))
    for event in published:
        assert rights.may_publish(event) == any(parse(grant).matches(event) for grant in granted)


@settings(max_examples=200)
@given(few_filters, range_events)
def test_any_event_can_be_checked(granted: list[str], event: Any) -> None:
    rights = rights_of(granted, ["false"] * len(granted))
    if rights.may_publish(event):
        assert any(parse(grant).matches(event) for grant in granted)


ENDS = st.integers(-4, 4)


@st.composite
def small_ranges(draw: st.DrawFn) -> Range:
    low, high = sorted((draw(ENDS), draw(ENDS)))
    return Range(low, high)


NUMERIC = st.recursive(
    st.tuples(st.sampled_from("ab"), st.sampled_from(["=", "!=", "<", "<=", ">", ">="]), ENDS).map(
        lambda each: f"{each[0]} {each[1]} {each[2]}"
    ),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda two: f"({two[0]} and {two[1]})"),
        st.tuples(inner, inner).map(lambda two: f"({two[0]} or {two[1]})"),
        inner.map(lambda one: f"not ({one})"),
    ),
    max_leaves=5,
)


@settings(max_examples=200)
@given(NUMERIC, st.dictionaries(st.sampled_from("ab"), st.one_of(ENDS, small_ranges()), min_size=1))
def test_a_range_is_granted_only_if_all_of_its_values_are(granted: str, event: dict[str, Any]) -> None:
    """The values between whole numbers are tried in quarters: the filters have whole numbers as their ends."""
    rights = rights_of([granted], ["false"])
    if not rights.may_publish(event):
        return
    grant = parse(granted)
    tried: list[dict[str, Any]] = [{}]
    for name, value in event.items():
        values = [value]
        if isinstance(value, Range):
            assert isinstance(value.low, int) and isinstance(value.high, int)
            values = [quarter / 4 for quarter in range(4 * value.low, 4 * value.high + 1)]
        tried = [{**one, name: each} for one in tried for each in values]
    assert all(grant.matches(one) for one in tried)


def test_a_range_that_reaches_beyond_the_grant_is_refused() -> None:
    rights = rights_of(["sensor in [1, 10]"], ["false"])
    assert rights.may_publish({"sensor": Range(2, 5)}) and not rights.may_publish({"sensor": Range(2, 500)})
    with raises("publish-refused"):
        rights.check_publication({"sensor": Range(2, 500)})
    assert not rights.may_publish({"sensor": math.nan})
    others = {"x": Range(low="a"), "y": math.nan}
    assert rights.may_publish({"sensor": Range(1, 10), **others})
    open_ended = rights_of(["sensor > 3 and name absent"], ["false"])
    assert open_ended.may_publish({"sensor": Range(3, low_open=True)})
    assert not open_ended.may_publish({"sensor": Range(3)})
    assert not open_ended.may_publish({"sensor": Range(4), "name": "a"})


# ---------------------------------------------------------------- groups

TABLE = GrantTable(
    {
        "plant": Grant(
            publish="topic = 'p'",
            subscribe="topic = 'p'",
            client_limits=UsageLimits(connections=2, events_per_s=10),
            group_limits=UsageLimits(connections=5),
        ),
        "office": Grant(subscribe="topic = 'o'", admin=True, client_limits=UsageLimits(connections=3)),
        "transit": Grant(publishers=("own", 7)),
        "hub": Grant(publishers=(8,)),
    }
)


def test_a_client_has_the_rights_of_all_of_its_groups() -> None:
    both = TABLE.find_rights(("plant", "office", "unknown"))
    assert both is not None and tuple(both.granted) == ("office", "plant") and both.admin
    assert both.granted_filter("true") == "topic = 'o' or topic = 'p'"
    assert both.may_publish({"topic": "p"}) and not both.may_publish({"topic": "o"})
    assert both.limits == UsageLimits(connections=3, events_per_s=None)
    assert both.group_limits == {"office": NO_LIMITS, "plant": UsageLimits(connections=5)}
    assert TABLE.find_rights(("plant", "office", "unknown")) is both


def test_who_is_in_no_group_with_a_grant_may_do_nothing_where_there_are_grants() -> None:
    for groups in ((), ("unknown",), (LOCAL, "unknown"), (LOCAL,)):
        nobody = TABLE.find_rights(groups)
        assert nobody is not None and not nobody.admin and not nobody.may_publish({"topic": "p"})
        with raises("subscribe-refused"):
            nobody.granted_filter("topic = 'p'")
    assert GrantTable({}).find_rights(("plant",)) is None


def test_clients_of_this_machine_are_limited_only_by_a_grant_for_them() -> None:
    assert TABLE.find_rights(None) is None
    table = GrantTable({LOCAL: Grant(subscribe="topic = 'l'")})
    limited, claimed = table.find_rights(None), table.find_rights((LOCAL,))
    assert limited is not None and not limited.may_publish({"topic": "l"}) and limited.may_receive({"topic": "l"})
    assert claimed is not None and not claimed.may_receive({"topic": "l"})


def test_a_subscription_that_the_grant_excludes_is_refused() -> None:
    rights = rights_of(["false"], ["topic prefix 'plant.'"])
    with raises("subscribe-refused"):
        rights.granted_filter("topic = 'office'")
    assert rights.granted_filter("topic = 'plant.1'") == "topic = 'plant.1'"
    with raises("filter-syntax"):
        rights.granted_filter("topic = ")
    assert rights_of(["false"], ["true"]).granted_filter("a > 1") == "a > 1"


def test_parentheses_in_a_filter_do_not_reach_out_of_the_grant() -> None:
    rights = rights_of(["false"], ["a = 1"])
    for text in ("b = 1) or (b = 2", "true) or (true"):
        with raises("filter-syntax"):
            rights.granted_filter(text)


@pytest.mark.parametrize(
    "text",
    [
        "true",
        "topic prefix 'wend.inbox.'",
        "topic = 'wend.inbox.'",
        "topic = 'wend.retained.ask'",
        "topic = 'wend.inbox.0123456789abcdef' or topic = 'wend.retained.ask'",
        "topic = 'orders'",
    ],
)
def test_only_inboxes_need_not_be_announced(text: str) -> None:
    with raises("subscribe-refused"):
        check_inbox(text)
    check_inbox(topic_filter("wend.inbox.0123456789abcdef"))


# ---------------------------------------------------------------- peers


def test_neighbours_forward_what_their_groups_may() -> None:
    may = TABLE.may_forward
    assert may(3, ("transit",), {3}) and may(3, ("transit",), {7}) and not may(3, ("transit",), {4})
    assert may(3, ("transit", "hub"), {8}) and not may(3, ("hub",), {3})
    assert may(3, (), {4}) and may(3, ("plant",), {4})
    assert not may(3, ("transit",), {3, 4})
    assert TABLE.has_publisher_limits and not GrantTable({"a": Grant()}).has_publisher_limits


def test_the_publishers_of_every_message_are_known() -> None:
    event = Event(EventId(3, 1, 1), {})
    packet = Data(1, event, 0, (1,))
    assert message_publishers(packet) == {3}
    assert message_publishers(Fragment(1, 1, 0, 2, EventId(3, 1, 1), b"", packet)) == {3}
    assert message_publishers(Fragment(1, 1, 1, 2, EventId(4, 1, 1), b"")) == {4}
    # A member of a queue group that passes an event on does not hide who published it.
    moved = Event(EventId(3, 1, 1), {}, origin=EventId(5, 1, 1))
    assert message_publishers(Data(1, moved, 0, (1,))) == {3, 5}
    assert message_publishers(PlainMessage("rendezvous", Carries(event))) == {3}
    assert message_publishers(PlainMessage("rendezvous", None)) == set()


class Carries(msgspec.Struct):
    """The message of a plug-in with an event."""

    event: Event


# ---------------------------------------------------------------- files


def test_grants_come_from_the_peers_file_and_a_folder(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text("[plant]\npublish = \"topic = 'p'\"\nclient_limits = { connections = 2 }\n")
    (tmp_path / "b.toml").write_text("[office]\nsubscribe = 'true'\npublishers = ['own', 3]\n")
    found = read_grants({"inline": Grant(admin=True)}, tmp_path)
    assert found == {
        "inline": Grant(admin=True),
        "plant": Grant(publish="topic = 'p'", client_limits=UsageLimits(connections=2)),
        "office": Grant(subscribe="true", publishers=("own", 3)),
    }
    with raises("invalid-setting", match="the group 'plant' has grants already"):
        read_grants({"plant": Grant()}, tmp_path)
    with raises("unreadable", match="there is no folder"):
        read_grants({}, tmp_path / "missing")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("[a]\npublish = 'topic ='", "grants.a: publish: "),
        ("[a]\nsubscribe = 3", "a: Expected `str`"),
        ("[a]\nread = 'true'", "unknown field `read`"),
        ("[a]\nclient_limits = { connections = -1 }", "connections must be 0 or more, got -1"),
        ("[a]\npublishers = ['all']", "publishers are ids of peers and \"own\", got 'all'"),
        ("[a", "is not a TOML file"),
    ],
)
def test_grants_that_cannot_be_read_get_a_sentence(tmp_path: Path, content: str, why: str) -> None:
    (tmp_path / "a.toml").write_text(content)
    with pytest.raises(ConfigError) as caught:
        read_grants({}, tmp_path)
    assert why in str(caught.value)
