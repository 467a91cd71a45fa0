"""News of failures: which links of other peers are down, told in hellos.

A hello names the links of its sender that are down (`FailureNews`), and relays what other peers said of theirs, as far
as `news_hops` allows. A hello says all that its sender knows: without news, nothing is down. So a peer stores no more
than the news of each neighbour's last hello, and a false claim ends with the hellos that repeat it.

- A link is believed to be down if either end says so.
- A version is (incarnation, counter). Of relayed news the newest version counts, so that of a restarted peer replaces
  all that it said before. A peer that hears the origin itself ignores what others relay of it.
- News expires when its teller has been silent for `EXPIRY_NS`. A peer relays that nothing is down any more for
  `LINGER_NS`. That is longer, so an older version is gone everywhere before the newer one is.
- Where data flows there are no hellos. If news changes, the link gets a hello all the same (`HelloSchedule`).
"""

from collections.abc import Iterable

from wend.model.events import PeerId
from wend.model.units import FOREVER, SECOND, Nanos
from wend.protocol.link.link import Link
from wend.protocol.messages import FailureNews, Hello

EXPIRY_NS: Nanos = 2 * SECOND
"""How long news holds after its teller was last heard."""
LINGER_NS: Nanos = 4 * SECOND
"""How long a peer relays that links are up again."""
MAX_CLAIMS = 128
"""The most links that the news of a hello may name, and the most peers that it may speak of."""
_LOOK_NS: Nanos = SECOND
"""How often a peer looks for news that has expired."""

Edge = tuple[PeerId, PeerId]
"""A link of two peers; lower id first."""
News = tuple[FailureNews, ...]


class NewsTable:
    """What this peer tells of its links, and what its neighbours tell of theirs."""

    def __init__(self, me: PeerId, incarnation: int, hops: int, links: dict[PeerId, Link]) -> None:
        self._me = me
        self.hops = hops
        """Over how many links news travels."""
        self._links = links
        self._own = FailureNews(me, (incarnation, 0), 1, ())
        self._own_ns: Nanos = -LINGER_NS
        """When this peer's own news last changed."""
        self._outgoing: News = ()
        self.told_ns: Nanos = 0
        """When what this peer tells last changed."""
        self._told: dict[PeerId, News] = {}
        """The news of each neighbour's last hello, if it had any."""
        self._by_origin: dict[PeerId, dict[PeerId, FailureNews]] = {}
        """The same by origin and teller, without what speaks of this peer or came over too many links."""
        self._newest: dict[PeerId, FailureNews] = {}
        """By origin, the news that this peer believes."""
        self._relayed: dict[PeerId, tuple[FailureNews, Nanos, FailureNews]] = {}
        """By origin: the newest news, when it first came, and what this peer tells of it."""
        self._changed: set[PeerId] = set()
        """The origins of which something came since."""
        self._look_ns: Nanos = 0
        """When to look for news that has expired."""
        self._down: frozenset[Edge] = frozenset()
        self._fresh_ns: Nanos = FOREVER
        """How long `_outgoing` and `_down` hold if nothing happens."""

    # ---------------------------------------------------------------- what happens

    def links_changed(self, now: Nanos) -> None:
        """Look which links of this peer are down."""
        links = self._links
        down = sorted([peer for peer, link in links.items() if not (link.up and link.heard_by_neighbour)])
        found = tuple(down[:MAX_CLAIMS])
        if found != self._own.down:
            incarnation, counter = self._own.version
            self._own = FailureNews(self._me, (incarnation, counter + 1), 1, found)
            self._own_ns = now
            self._fresh_ns = now

    def heard(self, now: Nanos, sender: PeerId, hello: Hello) -> bool:
        """Store the news of a hello. Return False if it is invalid: then the peer forgets all news of the sender."""
        news = hello.news
        before = self._told.get(sender, ())
        if news is before or news == before:
            return True
        if not news:
            self.forget(now, sender)
            return True
        if not _sensible(sender, news):
            self.forget(now, sender)
            return False
        if before and before[0].origin == sender == news[0].origin and news[0].version < before[0].version:
            return True  # an older hello that was overtaken
        self._told[sender] = news
        for one in before:
            if one not in news:
                self._remove(now, sender, one)
        for one in news:
            if one not in before and one.hops <= self.hops and one.origin != self._me:
                self._add(now, sender, one)
        if self._fresh_ns == FOREVER:
            self._fresh_ns = now
        return True

    def forget(self, now: Nanos, sender: PeerId) -> None:
        """A neighbour has no news: no link is down, it restarted, or it is no longer a neighbour."""
        for one in self._told.pop(sender, ()):
            self._remove(now, sender, one)

    def _add(self, now: Nanos, sender: PeerId, one: FailureNews) -> None:
        """Most news came over another neighbour already: then what this peer believes stays the same."""
        origin = one.origin
        tellers = self._by_origin.get(origin)
        if tellers is None:
            tellers = self._by_origin[origin] = {}
        tellers[sender] = one
        if origin != sender and origin in self._links and self._links[origin].heard_lately(now):
            return
        known = self._newest.get(origin)
        if known is None or (known.version, -known.hops) < (one.version, -one.hops):
            self._changed.add(origin)
            self._fresh_ns = now

    def _remove(self, now: Nanos, sender: PeerId, one: FailureNews) -> None:
        tellers = self._by_origin.get(one.origin)
        if tellers is not None and tellers.get(sender) == one:  # each hello that is decoded has its own
            del tellers[sender]
            if not tellers:
                del self._by_origin[one.origin]
            if self._newest.get(one.origin) == one:
                self._changed.add(one.origin)
                self._fresh_ns = now

    # ---------------------------------------------------------------- what follows

    def outgoing(self, now: Nanos) -> News:
        """The news of a hello that leaves now; the same object while nothing changes."""
        if now >= self._fresh_ns:
            self._update(now)
        return self._outgoing

    def down(self, now: Nanos) -> frozenset[Edge]:
        """The links of other peers that are believed to be down; the same object while nothing changes."""
        if now >= self._fresh_ns:
            self._update(now)
        return self._down

    def is_down(self, a: PeerId, b: PeerId, now: Nanos) -> bool:
        """Whether a link of two other peers is believed to be down."""
        return (min(a, b), max(a, b)) in self.down(now)

    def _update(self, now: Nanos) -> None:
        changed: Iterable[PeerId] = self._changed
        if now >= self._look_ns:
            self._look_ns = now + _LOOK_NS
            changed = {*self._by_origin, *self._newest}
        newest = self._newest
        for origin in changed:
            believed = self._believed(now, origin)
            if believed is None:
                newest.pop(origin, None)
            else:
                newest[origin] = believed
        self._changed.clear()
        me = self._me
        down = frozenset(
            [(a, b) if a < b else (b, a) for a, one in newest.items() for b in one.down if me not in (a, b)]
        )
        if down != self._down:
            self._down = down
        outgoing = self._relay(now) if self.hops > 1 else (self._own,) if self._own.down else ()
        if outgoing != self._outgoing:
            self._outgoing = outgoing
            self.told_ns = now
        self._fresh_ns = self._look_ns if self._told or self._outgoing else FOREVER

    def _believed(self, now: Nanos, origin: PeerId) -> FailureNews | None:
        """The newest news of an origin, by tellers heard lately. An origin that is heard speaks for itself."""
        links = self._links
        told = self._by_origin.get(origin, {})
        if origin in links and links[origin].heard_lately(now):
            return told.get(origin)
        found: FailureNews | None = None
        for teller, news in told.items():
            if now - links[teller].heard_ns <= EXPIRY_NS and (
                found is None or (found.version, -found.hops) < (news.version, -news.hops)
            ):
                found = news
        return found

    def _relay(self, now: Nanos) -> News:
        """This peer's own news, and that of others which may go on."""
        found = [self._own] if self._own.down or now - self._own_ns < LINGER_NS else []
        room = MAX_CLAIMS - 1 - len(self._own.down)
        newest, relayed = self._newest, self._relayed
        for origin in [origin for origin in relayed if origin not in newest]:
            del relayed[origin]
        for origin, news in sorted(newest.items()):
            before = relayed.get(origin)
            if before is None or before[0] is not news:
                since = now if before is None or before[0].version != news.version else before[1]
                before = (news, since, FailureNews(origin, news.version, news.hops + 1, news.down))
                relayed[origin] = before
            if news.hops < self.hops and (news.down or now - before[1] < LINGER_NS):
                room -= max(1, len(news.down))
                if room >= 0:
                    found.append(before[2])
        return tuple(found)


def _sensible(sender: PeerId, news: News) -> bool:
    """Whether a neighbour may say so: of few links, and only of its own links as their end."""
    claims = len(news)
    for one in news:
        claims += len(one.down)
        if one.hops < 1 or (one.hops == 1) != (one.origin == sender):
            return False
    return claims <= MAX_CLAIMS
