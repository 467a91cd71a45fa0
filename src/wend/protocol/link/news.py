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

from wend.model.events import PeerId
from wend.model.units import FOREVER, MS, SECOND, Nanos
from wend.protocol.link.link import Link
from wend.protocol.messages import FailureNews, Hello

EXPIRY_NS: Nanos = 2 * SECOND
"""How long news holds after its teller was last heard."""
LINGER_NS: Nanos = 4 * SECOND
"""How long a peer relays that nothing is down any more."""
MAX_CLAIMS = 128
"""The most links that the news of a hello may name, and the most peers that it may speak of."""
_LOOK_NS: Nanos = 250 * MS
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
        """The news of each neighbour's last hello, where it has some."""
        self._learned: dict[PeerId, tuple[tuple[int, int], Nanos]] = {}
        """By origin of relayed news: the version, and when it first came."""
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
        """Store the news of a hello. False if it cannot be: then the sender has told nothing."""
        news = hello.news
        if not news:
            self.forget(now, sender)
            return True
        if not _sensible(sender, news):
            self.forget(now, sender)
            return False
        before = self._told.get(sender, ())
        if before and before[0].origin == sender == news[0].origin and news[0].version < before[0].version:
            return True  # an older hello that was overtaken
        self._told[sender] = tuple([one for one in news if one.hops <= self.hops and one.origin != self._me])
        self._fresh_ns = now
        return True

    def forget(self, now: Nanos, sender: PeerId) -> None:
        """A neighbour tells nothing: nothing is down, or it restarted, or it is none any more."""
        if self._told.pop(sender, None) is not None:
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
        me, newest = self._me, self._newest(now)
        claims = [(origin, end) for origin, news in newest.items() for end in news.down]
        down = frozenset([(min(a, b), max(a, b)) for a, b in claims if me not in (a, b)])
        if down != self._down:
            self._down = down
        outgoing = self._relay(now, newest) if self.hops > 1 else (self._own,) if self._own.down else ()
        if outgoing != self._outgoing:
            self._outgoing = outgoing
            self.told_ns = now
        self._fresh_ns = now + _LOOK_NS if self._told or self._outgoing else FOREVER

    def _newest(self, now: Nanos) -> dict[PeerId, FailureNews]:
        """By origin, the newest news of tellers that were heard lately. An origin that is heard speaks for itself."""
        links = self._links
        found: dict[PeerId, FailureNews] = {}
        for teller, told in self._told.items():
            if now - links[teller].heard_ns > EXPIRY_NS:
                continue
            for news in told:
                origin = news.origin
                if origin != teller and origin in links and links[origin].heard_lately(now):
                    continue
                known = found.get(origin)
                if known is None or (known.version, -known.hops) < (news.version, -news.hops):
                    found[origin] = news
        return found

    def _relay(self, now: Nanos, newest: dict[PeerId, FailureNews]) -> News:
        """This peer's own news, and that of others which may go on."""
        found = [self._own] if self._own.down or now - self._own_ns < LINGER_NS else []
        room = MAX_CLAIMS - 1 - len(self._own.down)
        learned: dict[PeerId, tuple[tuple[int, int], Nanos]] = {}
        for origin, news in sorted(newest.items()):
            before = self._learned.get(origin)
            since = before[1] if before is not None and before[0] == news.version else now
            learned[origin] = (news.version, since)
            if news.hops < self.hops and (news.down or now - since < LINGER_NS):
                room -= max(1, len(news.down))
                if room >= 0:
                    found.append(FailureNews(origin, news.version, news.hops + 1, news.down))
        self._learned = learned
        return tuple(found)


def _sensible(sender: PeerId, news: News) -> bool:
    """Whether a neighbour may say so: of few links, and only of its own links as their end."""
    if len(news) > MAX_CLAIMS or sum([len(one.down) for one in news]) > MAX_CLAIMS:
        return False
    return all(one.hops >= 1 and (one.hops == 1) == (one.origin == sender) for one in news)
