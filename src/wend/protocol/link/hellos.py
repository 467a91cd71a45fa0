"""The schedule of hellos: when a peer sends one over a quiet link, and what it announces.

Each side of a link sends something at least once per detection time: data, an ACK or, on a quiet link, a `Hello`. Some
links get hellos more often:

- Twice per detection time if the peer has carried an event recently. Most late events were sent into an outage that
  the sender had not detected yet.
- Twice over a link that is down, so that its peers soon notice when it is up again.
- Two or three times over a link that loses packets, so that one missing packet proves nothing.

A peer that has carried no event for a while is idle: it sends one hello in three detection times, until the next event.

A peer whose host is busy announces longer silences than it plans, so that its neighbours do not mistake the times when
it does not run for outages. It does the same over a link whose packets wait in queues of the network: the delay between
two packets may then vary by the whole length of a queue.

A hello announces when the sender will transmit again at the latest. A longer silence means an outage. So the receiver
detects an outage within the detection time plus the delay of the link, usually within half of that, and with fewer
packets than BFD sends (RFC 5880; `drivers/sim/detection.py` measures both). A hello also reports whether its sender
hears the receiver, so both ends learn that a link is dead in one direction.
"""

from wend.model.events import PeerId
from wend.model.units import FOREVER, SECOND, Nanos
from wend.protocol.config import LinkSettings, PeerConfig
from wend.protocol.link.link import Link
from wend.protocol.link.news import News, NewsTable
from wend.protocol.messages import Hello
from wend.protocol.ports import Send, SendEach
from wend.protocol.timers import Effects

_ACTIVE_NS = 3 * SECOND
"""How long after an event a peer sends hellos twice per detection time."""
_IDLE_NS = 10 * SECOND
"""How long after an event a peer becomes idle."""
_IDLE_PERIODS = 3
"""Detection times between two hellos of an idle peer."""
_BUSY_NS = 10 * SECOND
"""How long after a pause a peer considers its host busy."""
_MAX_STRETCH = 8
_EARLY = 3
"""A hello that is due within 1 / this of its interval is sent now, together with others."""

Batch = tuple[bool, Nanos, list[PeerId]]
"""Hellos that are due: whether their sender hears the receivers, the silence that they announce, and the receivers."""


class HelloMode:
    """The silences that hellos announce over links that are up and over others, by `detect_multiplier` - 1.

    A plan is valid for one object of this class. A tuple would not work: compiled code makes a new one at every use.
    """

    __slots__ = ("others", "up")

    def __init__(self, up: tuple[Nanos, ...], others: tuple[Nanos, ...]) -> None:
        self.up = up
        self.others = others


class HelloSchedule:
    def __init__(self, config: PeerConfig, links: dict[PeerId, Link], news: NewsTable | None = None) -> None:
        self._links = links
        self._news = news
        settings = config.of(LinkSettings)
        self._incarnation = config.incarnation
        detection = settings.detection_ns
        announced = (_IDLE_PERIODS * detection, *(detection // times for times in (1, 2, 3)))
        """The announced silence by the number of hellos per detection time; first, that of idle peers."""
        active = (announced[2], announced[2], announced[3])
        self._idle = HelloMode((announced[0], announced[2], announced[3]), active)
        self._quiet = HelloMode(announced[1:], active)
        self._active = HelloMode(active, active)
        self._longest = announced[:2]
        """The longest silence of an idle peer, and that of an active one."""
        self._margin_ns = settings.margin_ns
        self._intervals = {within: _hello_interval(within, settings.margin_ns) for within in announced}
        self._stretch = 1
        """The factor by which announced silences exceed planned ones; a power of two."""
        self._busy_ns: Nanos = 0
        """Until when `_stretch` applies."""
        self._hellos: dict[tuple[bool, Nanos], Hello] = {}
        """Hellos by content. Most are equal, so each is made once."""
        self._told: News = ()
        self._with_news: dict[tuple[bool, Nanos], Hello] = {}
        """Hellos with the current news, by content."""
        self._patience = detection // 2
        """How long after news changed a link gets a hello even if data is in transit over it."""
        self._used_ns: Nanos = -_ACTIVE_NS
        self._idle_ns: Nanos = _IDLE_NS

    def begin(self, now: Nanos) -> None:
        self._idle_ns = now + _IDLE_NS

    def on_event(self, now: Nanos) -> bool:
        """Record an event. Return whether the peer was idle, and so has to announce shorter silences at once."""
        was_idle = now >= self._idle_ns
        self._used_ns = now
        self._idle_ns = now + _IDLE_NS
        return was_idle

    def on_pause(self, now: Nanos, ns: Nanos) -> bool:
        """Allow for a pause of this peer. Return whether it has to announce longer silences at once."""
        stretch = self._stretch_for(2 * ns)
        if stretch < self._stretch or stretch == 1:
            return False
        if stretch == self._stretch:
            self._busy_ns = now + _BUSY_NS
            return False
        self._set_stretch(now, stretch)
        return True

    def on_delay(self, link: Link) -> bool:
        """Allow for packets that wait long in queues of the network. Return whether the peer has to announce longer
        silences over the link at once."""
        stretch = link.hellos.stretch
        if self._stretch_for(link.spread_ns) > stretch:
            link.hellos.discard()
            return True
        if link.sender is not None:
            link.sender.expect_round_trips(self._lateness_ns(stretch))
        return False

    def _lateness_ns(self, stretch: int) -> Nanos:
        """How late a packet may be if announced silences exceed planned ones by this factor."""
        within = self._active.up[0]
        return FOREVER if stretch == _MAX_STRETCH else within * stretch - self._intervals[within]

    def _stretch_for(self, ns: Nanos) -> int:
        """The factor by which silences must be longer if packets may be this late."""
        stretch = 1
        while self._lateness_ns(stretch) < ns:
            stretch *= 2
        return stretch

    def _set_stretch(self, now: Nanos, stretch: int) -> None:
        self._stretch = stretch
        self._busy_ns = now + _BUSY_NS
        for link in self._links.values():
            link.hellos.discard()

    def collect_due(self, now: Nanos, silent: list[Link], batches: list[Batch]) -> Nanos:
        """Collect the hellos that are due now or soon, so that one wake-up serves all links.

        Return the time of the next one. Add the links that no longer seem up to `silent`.
        """
        mode = self._current_mode(now)
        again = now + self._longest[now < self._idle_ns]
        news, forced_ns = self._news_to_send(now)
        last_within, last_heard = -1, True
        peers: list[PeerId] = []
        for link in self._links.values():
            plan = link.hellos
            if plan.mode is not mode:
                self._plan_hello(link, mode)
            silence = now - link.heard_ns
            news_ns = FOREVER if plan.last_news is news else forced_ns
            if link.sent_ns + plan.early_ns <= now or news_ns <= now:
                heard, within = silence <= link.silence_ns + 2 * link.delay_ns, plan.within_ns
                if heard and plan.is_repetition:
                    link.sent_ns = now
                else:
                    link.record_hello(now, within, heard)
                if within != last_within or heard != last_heard:
                    peers, last_within, last_heard = [], within, heard
                    batches.append((heard, within, peers))
                peers.append(link.peer)
                due = now + plan.after_ns
            else:
                due = link.sent_ns + plan.interval_ns
                if news_ns < due:  # noqa: PLR1730 - a call of min() costs as much as the rest
                    due = news_ns
            if due < again:  # noqa: PLR1730
                again = due
            if link.is_up and (silence > link.silence_ns or not link.heard_by_neighbour):
                silent.append(link)
        return again

    def _current_mode(self, now: Nanos) -> HelloMode:
        """The silences that hellos announce now. After a while without pauses, the host no longer counts as busy."""
        if self._stretch > 1 and now > self._busy_ns:
            self._set_stretch(now, self._stretch // 2)
        if now - self._used_ns < _ACTIVE_NS:
            return self._active
        return self._idle if now >= self._idle_ns else self._quiet

    def _news_to_send(self, now: Nanos) -> tuple[News, Nanos]:
        """The current news, and when links with data in transit have to get it."""
        if self._news is None:
            return (), 0
        return self._news.outgoing_news(now), self._news.told_ns + self._patience

    def send(self, now: Nanos, batches: list[Batch], effects: Effects) -> None:
        """Send hellos that are due, with the current news."""
        links = self._links
        for heard, within, peers in batches:
            hello = self.make_hello(now, heard, within)
            for peer in peers if self._news is not None else ():
                plan = links[peer].hellos
                if plan.last_news is not hello.news:
                    plan.record_news(hello.news)
            effects.append(SendEach(tuple(peers), hello) if len(peers) > 1 else Send(peers[0], hello))

    def make_hello(self, now: Nanos, heard: bool, within: Nanos = 0) -> Hello:
        news: News = () if self._news is None else self._news.outgoing_news(now)
        hellos = self._hellos
        if news:
            if news is not self._told:
                self._told = news
                self._with_news.clear()
            hellos = self._with_news
        found = hellos.get((heard, within))
        if found is None:
            found = hellos[heard, within] = Hello(self._incarnation, heard, within, news)
        return found

    def _plan_hello(self, link: Link, mode: HelloMode) -> None:
        """Plan the next hello over a link. The plan holds until the mode or the link changes."""
        planned = (mode.up if link.is_up else mode.others)[link.detection.multiplier - 1]
        stretch = max(self._stretch, self._stretch_for(link.spread_ns))
        # a shorter interval that was announced applies until the next hello
        announced = min(planned, link.hellos.announced_ns)
        interval = 0
        if announced and stretch == link.hellos.stretch:  # else the neighbour has to be notified at once
            interval = self._intervals.get(announced) or _hello_interval(announced, self._margin_ns)
        early = interval - interval // _EARLY
        link.hellos.set(mode, planned * stretch, stretch, interval, early, self._intervals[planned])
        if link.sender is not None:
            link.sender.expect_round_trips(self._lateness_ns(stretch))


def _hello_interval(within: Nanos, margin: Nanos) -> Nanos:
    """How long to wait before the next hello, so that it arrives in time even from a busy host."""
    late = max(margin, within // 4) if margin else 0
    return max(within // 4, within - late, 1)
