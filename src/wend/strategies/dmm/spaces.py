"""Which attribute spaces there are, and in which of them filters and events belong.

GlobalSpace     `dmm`: one space with all attributes that have a domain
AttributeRoots  `dmm-ar`: a space for each set of attributes that some filter requires, and a space of one dimension
                for each attribute, in which events are published
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

from wend.matching.conjunctions import Conjunction
from wend.matching.filters import Filter
from wend.matching.zcode import NumberDomain
from wend.model.errors import ConfigError
from wend.model.events import Attributes
from wend.strategies.dmm.attribute_space import AttributeSpace, SpaceName, remember

Primary = Callable[[AttributeSpace, Conjunction], str]
"""Chooses the primary attribute of a conjunction that requires several: the one by which events find it."""


def most_selective(space: AttributeSpace, one: Conjunction) -> str:
    shares = space.shares(one)
    return space.name[shares.index(min(shares))]


def first_attribute(space: AttributeSpace, one: Conjunction) -> str:
    return space.name[0]


PRIMARY: dict[str, Primary] = {"selective": most_selective, "first": first_attribute}
"""By the setting `primary`."""


class Spaces:
    """The spaces of all peers with the same domains. A subclass chooses them."""

    def __init__(self, domains: Mapping[str, NumberDomain]) -> None:
        self._domains = domains
        self._spaces: dict[SpaceName, AttributeSpace | None] = {}

    def __getitem__(self, name: SpaceName) -> AttributeSpace:
        space = self.find(name)
        assert space is not None
        return space

    def find(self, name: SpaceName) -> AttributeSpace | None:
        """None if there is no such space."""
        if name in self._spaces:
            return self._spaces[name]
        space = AttributeSpace(name, self._domains) if self.is_space(name) else None
        remember(self._spaces, name, space)
        return space

    def is_space(self, name: SpaceName) -> bool:
        raise NotImplementedError

    def home(self, filter_: Filter) -> SpaceName:
        """The space in which a filter is stored."""
        raise NotImplementedError

    def root(self, filter_: Filter) -> SpaceName:
        """The space in which events meet the filter: its home, or the one that the home passes it on to."""
        raise NotImplementedError

    def publishes_in(self, name: SpaceName) -> bool:
        """Whether events are published in this space, and not passed on from another."""
        raise NotImplementedError

    def of_event(self, attributes: Attributes) -> Sequence[SpaceName]:
        """The spaces in which an event is published."""
        raise NotImplementedError


class GlobalSpace(Spaces):
    """All attributes that have a domain, in one space."""

    def __init__(self, domains: Mapping[str, NumberDomain]) -> None:
        super().__init__(domains)
        self._only: SpaceName = tuple(sorted(domains))

    def is_space(self, name: SpaceName) -> bool:
        return name == self._only

    def home(self, filter_: Filter) -> SpaceName:
        return self._only

    def root(self, filter_: Filter) -> SpaceName:
        return self._only

    def publishes_in(self, name: SpaceName) -> bool:
        return True

    def of_event(self, attributes: Attributes) -> Sequence[SpaceName]:
        return (self._only,)


class AttributeRoots(Spaces):
    """A space for each set of attributes that a filter requires, and one for each attribute."""

    def __init__(self, domains: Mapping[str, NumberDomain], primary: Primary) -> None:
        super().__init__(domains)
        self._primary = primary

    def is_space(self, name: SpaceName) -> bool:
        return name == tuple(sorted(set(name)))

    def home(self, filter_: Filter) -> SpaceName:
        if len(filter_.conjunctions) != 1:
            return ()
        (one,) = filter_.conjunctions
        values = one.allowed().items() if one.bindings else one.values
        return tuple(sorted([name for name, allowed in values if not allowed.absent]))

    def root(self, filter_: Filter) -> SpaceName:
        home = self.home(filter_)
        return home if len(home) <= 1 else (self._primary(self[home], filter_.conjunctions[0]),)

    def publishes_in(self, name: SpaceName) -> bool:
        return len(name) <= 1

    def of_event(self, attributes: Attributes) -> Sequence[SpaceName]:
        return (*[(name,) for name in attributes], ())


Domains = tuple[tuple[str, NumberDomain], ...]


def read_domains(table: Mapping[str, Sequence[int | float]]) -> Domains:
    """The domains of a setting: `[low, high]` or `[low, high, granularity]` for each attribute."""
    domains = []
    for name, ends in sorted(table.items()):
        if len(ends) not in (2, 3):
            raise ConfigError(f"the domain of {name} needs a low and a high end and perhaps a granularity, got {ends}")
        try:
            domains.append((name, NumberDomain(*ends)))
        except ConfigError as error:
            raise ConfigError(f"the domain of {name}: {error}") from None
    return tuple(domains)


@lru_cache
def global_space(domains: Domains) -> GlobalSpace:
    """All peers of a process share one object, and its caches."""
    return GlobalSpace(dict(domains))


@lru_cache
def attribute_roots(domains: Domains, primary: str) -> AttributeRoots:
    """The same for attribute roots."""
    return AttributeRoots(dict(domains), PRIMARY[primary])
