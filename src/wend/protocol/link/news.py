"""News of failures: which links of other peers are down, as hellos report.

A hello names the links of its sender that are down (`FailureNews`), and relays the news of other peers as far as
`news_hops` allows. A hello contains all news of its sender: without news, no link is down. So a peer stores only the
news of each neighbour's last hello, and a false claim ends with the hellos that repeat it.

- A link is believed to be down if either end reports it.
- A version is (incarnation, counter). The newest version of relayed news is believed, so the news of a restarted peer
  replaces its earlier news. A peer that hears the origin itself ignores the news that others relay.
- News expires when its sender has been silent for `EXPIRY_NS`. A peer relays empty news for `LINGER_NS`, which is
  longer, so an older version expires everywhere before the newer one does.
- A link that carries data needs no hellos. It still gets one if news changes (`HelloSchedule`).
"""

from collections.abc import Iterable

from wend.model.events import PeerId
from wend.model.units import FOREVER, SECOND, Nanos
from wend.protocol.link.link import Link
from wend.protocol.messages import FailureNews, Hello

EXPIRY_NS: Nanos = 2 * SECOND
"""How long news is valid after its sender was last heard."""
LINGER_NS: Nanos = 4 * SECOND
"""How long a peer relays that links are up again."""
MAX_CLAIMS = 128
"""The most links that the news of a hello may name, and the most origins that it may have."""
_LOOK_NS: Nanos = SECOND
"""How often a peer looks for expired news."""

Edge = tuple[PeerId, PeerId]
"""A link between two peers; lower id first."""
News = tuple[FailureNews, ...]


class NewsTable:
    """The news of failures that this peer sends and receives."""

    def __init__(self, me: PeerId, incarnation: int, hops: int, links: dict[PeerId, Link]) -> None:
        self._me = me
        self.hops = hops
        """How many links news travels at most."""
        self._links = links
        self._own = FailureNews(me, (incarnation, 0), 1, ())
        self._own_ns: Nanos = -LINGER_NS
        """When this peer's own news last changed."""
        self._outgoing: News = ()
        self.told_ns: Nanos = 0
        """When the news that this peer sends last changed."""
        self._told: dict[PeerId, News] = {}
        """The news in the last hello of each neighbour, if it had any."""
        self._by_origin: dict[PeerId, dict[PeerId, FailureNews]] = {}
        """The same by origin and sender, without news of this peer and news that crossed too many links."""
        self._newest: dict[PeerId, FailureNews] = {}
        """The news that this peer believes, by origin."""
        self._relayed: dict[PeerId, tuple[FailureNews, Nanos, FailureNews]] = {}
        """By origin: the newest news, when it first arrived, and the news that this peer relays."""
        self._changed: set[PeerId] = set()
        """The origins with news since the last update."""
        self._look_ns: Nanos = 0
        """When to look for expired news next."""
        self._down: frozenset[Edge] = frozenset()
        self._fresh_ns: Nanos = FOREVER
        """Until when `_outgoing` and `_down` are valid if nothing happens."""

    # ---------------------------------------------------------------- what happens

    def on_links_changed(self, now: Nanos) -> None:
        """Update this peer's own news from the state of its links."""
        links = self._links
        down = sorted([peer for peer, link in links.items() if not (link.is_up and link.heard_by_neighbour)])
        found = tuple(down[:MAX_CLAIMS])
        if found != self._own.down:
            incarnation, counter = self._own.version
            self._own = FailureNews(self._me, (incarnation, counter + 1), 1, found)
            self._own_ns = now
            self._fresh_ns = now

    def on_hello(self, now: Nanos, sender: PeerId, hello: Hello) -> bool:
        """Store the news of a hello. Return False if it is invalid: the peer then drops all news from that sender."""
        news = hello.news
        before = self._told.get(sender, ())
        if news is before or news == before:
            return True
        if not news:
            self.forget(now, sender)
            return True
        if not _is_valid(sender, news):
            self.forget(now, sender)
            return False
        if before and before[0].origin == sender == news[0].origin and news[0].version < before[0].version:
            return True  # an older hello that was overtaken
        self._told[sender] = news
        for one in before:
            if one not in news:
                self._remove_news(now, sender, one)
        for one in news:
            if one not in before and one.hops <= self.hops and one.origin != self._me:
                self._add_news(now, sender, one)
        if self._fresh_ns == FOREVER:
            self._fresh_ns = now
        return True

    def forget(self, now: Nanos, sender: PeerId) -> None:
        """Drop the news of a neighbour: no link is down, it restarted, or it is no longer a neighbour."""
        for one in self._told.pop(sender, ()):
            self._remove_news(now, sender, one)

    def _add_news(self, now: Nanos, sender: PeerId, one: FailureNews) -> None:
        """Add news. Another neighbour usually sent it already, and then the beliefs of this peer stay the same."""
        origin = one.origin
        tellers = self._by_origin.get(origin)
        if tellers is None:
            tellers = self._by_origin[origin] = {}
        tellers[sender] = one
        if origin != sender and origin in self._links and self._links[origin].is_heard(now):
            return
        known = self._newest.get(origin)
        if known is None or (known.version, -known.hops) < (one.version, -one.hops):
            self._changed.add(origin)
            self._fresh_ns = now

    def _remove_news(self, now: Nanos, sender: PeerId, one: FailureNews) -> None:
        tellers = self._by_origin.get(one.origin)
        if tellers is not None and tellers.get(sender) == one:  # each decoded hello has its own object
            del tellers[sender]
            if not tellers:
                del self._by_origin[one.origin]
            if self._newest.get(one.origin) == one:
                self._changed.add(one.origin)
                self._fresh_ns = now

    # ---------------------------------------------------------------- what follows

    def outgoing_news(self, now: Nanos) -> News:
        """The news of a hello sent now; the same object while nothing changes."""
        if now >= self._fresh_ns:
            self._update_beliefs(now)
        return self._outgoing

    def down(self, now: Nanos) -> frozenset[Edge]:
        """The links of other peers that are believed to be down; the same object while nothing changes."""
        if now >= self._fresh_ns:
            self._update_beliefs(now)
        return self._down

    def is_down(self, a: PeerId, b: PeerId, now: Nanos) -> bool:
        """Whether a link between two other peers is believed to be down."""
        return (min(a, b), max(a, b)) in self.down(now)

    def _update_beliefs(self, now: Nanos) -> None:
        changed: Iterable[PeerId] = self._changed
        if now >= self._look_ns:
            self._look_ns = now + _LOOK_NS
            changed = {*self._by_origin, *self._newest}
        newest = self._newest
        for origin in changed:
            believed = self._select_believed(now, origin)
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
        outgoing = self._combine_relayed_news(now) if self.hops > 1 else (self._own,) if self._own.down else ()
        if outgoing != self._outgoing:
            self._outgoing = outgoing
            self.told_ns = now
        self._fresh_ns = self._look_ns if self._told or self._outgoing else FOREVER

    def _select_believed(self, now: Nanos, origin: PeerId) -> FailureNews | None:
        """Select the newest news of an origin from senders heard recently; its own if the origin itself is heard."""
        links = self._links
        told = self._by_origin.get(origin, {})
        if origin in links and links[origin].is_heard(now):
            return told.get(origin)
        found: FailureNews | None = None
        for teller, news in told.items():
            if now - links[teller].heard_ns <= EXPIRY_NS and (
                found is None or (found.version, -found.hops) < (news.version, -news.hops)
            ):
                found = news
        return found

    def _combine_relayed_news(self, now: Nanos) -> News:
        """Combine this peer's own news with the news of others that may travel further."""
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


def _is_valid(sender: PeerId, news: News) -> bool:
    """Whether the news of a neighbour is valid: it names few links, and as their end reports only its own."""
    claims = len(news)
    for one in news:
        claims += len(one.down)
        if one.hops < 1 or (one.hops == 1) != (one.origin == sender):
            return False
    return claims <= MAX_CLAIMS
