"""Grants: the rights of the clients and peers of a group, as filters and limits.

    [grants.plant]
    publish = "topic prefix 'plant.'"
    subscribe = "topic prefix 'plant.' and secret absent"
    client_limits = { connections = 4, events_per_s = 100 }

A publication must match `publish`. The peer combines `subscribe` with every subscription by `and`, so the overlay does
not learn of interest in events that are not granted. A client with several groups has the rights of all of them. If a
peer has grants, a client that is in no group with a grant may do nothing. If a peer has no grants, every client that
may connect may do everything. The group `local` stands for clients on this machine that connect without TLS; it has all
rights unless a grant names it.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeGuard, get_args

import msgspec

from wend.matching.filters import Filter, parse, topic_filter
from wend.matching.printer import name_text, value_text
from wend.model.errors import ConfigError, FilterError, Refused
from wend.model.events import Attributes, PeerId, Range, Value
from wend.model.scenario import read_toml

LOCAL = "local"
"""The group of clients on this machine that show no certificate and no token."""
NOTHING = "false"
OWN = "own"
"""Stands for the neighbour itself among `publishers`."""
INBOX = "wend.inbox."
"""The prefix of the topics of inboxes for replies, which have random names."""
MIN_INBOX_CHARS = len(INBOX) + 16
MAX_INBOX_CHARS = 256


Denial = Literal[
    "not-admitted", "rights-changed", "publish-refused", "subscribe-refused", "reply-refused", "admin-refused",
    "rate-refused", "connections-refused", "subscriptions-refused", "kept-refused", "status-refused",
]  # fmt: skip
DENIALS: frozenset[str] = frozenset(get_args(Denial))
"""The codes of refusals that the operator counts, each under its own name."""


class UsageLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Limits on the usage of a peer by a client, or by all clients of a group together. None means no limit."""

    connections: int | None = None
    subscriptions: int | None = None
    events_per_s: float | None = None
    """The average rate of publications. A burst may have the publications of one second."""
    bytes_per_s: float | None = None
    """The same for the bytes of publications."""
    kept_bytes: int | None = None
    """The bytes of backlogs and retained events."""

    def check(self, whose: str) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value is not None and not 0 <= value < 2**60:
                raise ConfigError(f"{whose}: {name} must be 0 or more, got {value:g}")


NO_LIMITS = UsageLimits()


class Grant(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The rights of one group. By default it has no rights, and no limits either."""

    publish: str = NOTHING
    subscribe: str = NOTHING
    admin: bool = False
    """Whether its clients may change links and plans, and subscriptions and retained events of other clients."""
    publishers: tuple[PeerId | str, ...] | None = None
    """For groups of peers: the ids of publishers whose events they may forward to this peer; "own" for themselves."""
    client_limits: UsageLimits = NO_LIMITS
    """For each of its clients. A client with several groups has their highest limits."""
    group_limits: UsageLimits = NO_LIMITS
    """For all of its clients together."""

    def check(self, group: str) -> None:
        """Raise `ConfigError` for invalid filters, publishers or limits."""
        for name, text in (("publish", self.publish), ("subscribe", self.subscribe)):
            try:
                parse(text)
            except FilterError as error:
                raise ConfigError(f"grants.{group}: {name}: {error}") from None
        for publisher in self.publishers or ():
            if isinstance(publisher, str) and publisher != OWN:
                raise ConfigError(f'grants.{group}: publishers are ids of peers and "{OWN}", got {publisher!r}')
        self.client_limits.check(f"grants.{group}.client_limits")
        self.group_limits.check(f"grants.{group}.group_limits")


class Rights:
    """The rights of a client: the grants of all its groups together."""

    def __init__(self, granted: Mapping[str, Grant]) -> None:
        self.granted = dict(granted)
        """The grants, by group."""
        grants = granted.values()
        self.admin = any(grant.admin for grant in grants)
        self.subscribe = _union_filter([grant.subscribe for grant in grants])
        self.limits = _highest_limits([grant.client_limits for grant in grants])
        self.group_limits = {group: grant.group_limits for group, grant in granted.items()}
        self._publish = parse(_union_filter([grant.publish for grant in grants]))
        self._receives = parse(self.subscribe)
        self._publish_names = _filter_names(self._publish)

    def check_publication(self, attributes: Attributes) -> None:
        """Raise `Refused` for an event that the client may not publish."""
        if not self.may_publish(attributes):
            raise Refused(f"this client may publish only events with {self._publish}", code="publish-refused")

    def may_publish(self, attributes: Attributes) -> bool:
        """Whether a client may publish an event. All values of a range must be granted; matching needs only one."""
        if not self._publish.matches(attributes):
            return False
        if not any(isinstance(value, Range) for value in attributes.values()):
            return True
        event = _values_filter(attributes, self._publish_names)
        return bool(event.conjunctions) and self._publish.covers(event)  # an empty range is not granted

    def may_receive(self, attributes: Attributes) -> bool:
        return self._receives.matches(attributes)

    def granted_filter(self, text: str) -> str:
        """The part of a filter that is granted to the client. Raises `FilterError` or `Refused`."""
        request = parse(text)
        if not self._receives.conjunctions:
            raise Refused("this client may not subscribe", code="subscribe-refused")
        if self.subscribe == "true":
            return text
        try:
            granted = parse(f"({self.subscribe}) and ({request})")
        except FilterError:
            sentence = f"together with what is granted ({self.subscribe}) this filter is too large"
            raise Refused(sentence, code="subscribe-refused") from None
        if request.conjunctions and not granted.conjunctions:
            raise Refused(f"this client may subscribe only to events with {self._receives}", code="subscribe-refused")
        return str(granted)


def is_inbox(topic: object) -> TypeGuard[str]:
    """Whether this is the topic of an inbox. Such topics cannot be guessed."""
    return isinstance(topic, str) and topic.startswith(INBOX) and MIN_INBOX_CHARS <= len(topic) <= MAX_INBOX_CHARS


def check_inbox(text: str) -> None:
    """Raise `Refused` unless a subscription that is not announced is for an inbox. Any other subscription could see the
    replies to other clients."""
    topic = parse(text).topic
    if not is_inbox(topic) or text != topic_filter(topic):
        raise Refused(
            "this client may have subscriptions that are not announced for replies only", code="subscribe-refused"
        )


class GrantTable:
    """The grants of a peer."""

    def __init__(self, grants: Mapping[str, Grant]) -> None:
        for group, grant in grants.items():
            grant.check(group)
        self._grants = dict(sorted(grants.items()))
        self._rights: dict[tuple[str, ...], Rights] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GrantTable) and self._grants == other._grants

    __hash__ = None  # type: ignore[assignment]

    def find_rights(self, groups: Sequence[str] | None) -> Rights | None:
        """The rights of a client of these groups; None if it may do everything. `groups` is None for a local client,
        which shows neither certificate nor token. Raises `Refused` if the grants of the groups are too large
        together."""
        if not self._grants:
            return None
        names = {LOCAL} if groups is None else {*groups} - {LOCAL}
        mine = {group: grant for group, grant in self._grants.items() if group in names}
        if groups is None and not mine:
            return None
        key = tuple(mine)
        if key not in self._rights:  # certificates bound how many combinations there are
            try:
                self._rights[key] = Rights(mine)
            except ConfigError as error:
                raise Refused(f"{', '.join(key)}: {error}", code="not-admitted") from None
        return self._rights[key]

    def may_forward(self, neighbour: PeerId, groups: Sequence[str], publishers: set[PeerId]) -> bool:
        """Whether a neighbour of these groups may forward an event of these publishers to this peer."""
        rules = [self._grants[group].publishers for group in groups if group in self._grants]
        stated = [rule for rule in rules if rule is not None]
        if not stated:
            return True
        allowed = {neighbour if publisher == OWN else publisher for rule in stated for publisher in rule}
        return publishers <= allowed

    @property
    def has_publisher_limits(self) -> bool:
        """Whether the grants limit what some peers may forward."""
        return any(grant.publishers is not None for grant in self._grants.values())


NO_GRANTS = GrantTable({})


def read_grants(inline: Mapping[str, Grant], folder: Path | None) -> dict[str, Grant]:
    """The grants of a peer's file, and those of all TOML files of a folder. Raises `ConfigError`."""
    grants = dict(inline)
    if folder is None:
        return grants
    if not folder.is_dir():
        raise ConfigError(f"there is no folder {folder} with grants", code="unreadable")
    for path in sorted(folder.glob("*.toml")):
        for group, table in read_toml(path).items():
            if group in grants:
                raise ConfigError(f"{path}: the group {group!r} has grants already")
            try:
                grants[group] = _read_grant(group, table)
            except ConfigError as error:
                raise ConfigError(f"{path}: {error}", code=error.code) from None
    return grants


def _read_grant(group: str, table: Any) -> Grant:
    try:
        grant = msgspec.convert(table, Grant)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{group}: {error}") from None
    grant.check(group)
    return grant


def _union_filter(texts: Sequence[str]) -> str:
    """A filter for events that match one of these, in its normal form."""
    joined = " or ".join(f"({text})" for text in texts) or NOTHING
    try:
        return str(parse(joined))
    except FilterError as error:
        raise ConfigError(f"the grants of these groups are too large together: {error}") from None


def _filter_names(filter_: Filter) -> list[str]:
    """The attributes that a filter names."""
    names = {name for one in filter_.conjunctions for name, _ in one.values}
    names |= {name for one in filter_.conjunctions for each in one.bindings for name in (each.left, each.right)}
    return sorted(names)


def _values_filter(attributes: Attributes, names: Sequence[str]) -> Filter:
    """A filter for exactly the values that these attributes of an event may have."""
    return parse(" and ".join(_value_predicate(name_text(name), attributes.get(name)) for name in names) or "true")


def _value_predicate(name: str, value: Value | None) -> str:
    if value is None:
        return f"{name} absent"
    if not isinstance(value, Range):
        return f"{name} = {value_text(value)}"
    ends = []
    if value.low is not None:
        ends.append(f"{name} {'>' if value.low_open else '>='} {value_text(value.low)}")
    if value.high is not None:
        ends.append(f"{name} {'<' if value.high_open else '<='} {value_text(value.high)}")
    return " and ".join(ends)


def _highest_limits(limits: Sequence[UsageLimits]) -> UsageLimits:
    """The highest of several limits, each by itself."""
    highest = {}
    for name in UsageLimits.__struct_fields__:
        values = [getattr(each, name) for each in limits]
        highest[name] = None if not values or None in values else max(values)
    return UsageLimits(**highest)
