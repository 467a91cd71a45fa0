"""A link to one neighbour: its state, its estimates, and which packets arrived over it.

The state covers both directions. This peer itself judges the direction from the neighbour. The neighbour's hellos and
ACKs judge the other direction, and only they can end `one-way`. Peers without the failure detector do not use `down`.

                begin_incarnation         on_give_up, record_hello          declare_down
        unknown ─────────────────▶ up ─────────────────────────────▶ suspected ───────────▶ down
                                   ◀─────────────────────────────              ◀───────────
                                           clear_suspicion                       restore

                       on_hello, on_not_hearing            on_hello, on_ack
                      any state ───────▶ one-way ──────────────────────────▶ the state that it would have without

    from       to         method             the caller, and what happened
    unknown    up         begin_incarnation  LinkLayer: a message has the neighbour's incarnation for the first time
    unknown    suspected  on_give_up         Retransmission: all transmissions of a packet went unanswered
    up         suspected  on_give_up
    unknown    suspected  record_hello       HelloSchedule: a hello reports that the neighbour is silent for too long
    up         suspected  record_hello
    unknown    down       declare_down       FailureDetector: silence or unanswered packets prove an outage
    up         down       declare_down
    suspected  down       declare_down
    down       suspected  restore            FailureDetector: a packet arrived, and routing is notified
    suspected  up         clear_suspicion    LinkLayer: a packet arrived
    suspected  unknown    clear_suspicion
    unknown    one-way    on_hello           LinkLayer: the neighbour reports that it does not hear this peer
    up         one-way    on_hello
    suspected  one-way    on_hello
    down       one-way    on_hello
    down       one-way    on_not_hearing     LinkLayer: the same, in a hello that arrives while the link is down
    one-way    unknown    on_hello           LinkLayer: the neighbour reports that it hears this peer
    one-way    up         on_hello
    one-way    suspected  on_hello
    one-way    down       on_hello
    one-way    unknown    on_ack             Retransmission: an ACK proves that the neighbour hears this peer
    one-way    up         on_ack
    one-way    suspected  on_ack
    one-way    down       on_ack

Only methods of `Link` change a link, and only methods of a part change that part: `hello_plan.py`, `detection_time.py`,
`unanswered.py`, `estimator.py` and, for congestion control, `link_sender.py`. One exception: `Peer` sets `heard_ns` and
`sent_ns` of every packet itself, because a call for each would cost 2% of the speed.
"""

from enum import Enum

from wend.model.events import PeerId
from wend.model.paths import Path
from wend.model.units import Nanos
from wend.protocol.config import LinkSettings, PeerConfig
from wend.protocol.link.detection_time import DetectionTime
from wend.protocol.link.estimator import LinkEstimator
from wend.protocol.link.hello_plan import HelloPlan
from wend.protocol.link.link_sender import LinkSender
from wend.protocol.link.unanswered import UnansweredPackets
from wend.protocol.link.window import SequenceWindow
from wend.protocol.messages import Hello

FLOOR_MARGINS = 8
"""The least timeout for an ACK, as a multiple of the margin for the jitter of a host. Over a short link the neighbour's
host takes longer than the link: it may not run for tens of milliseconds."""


class NeighbourState(Enum):
    """The state of a link, as a peer believes it to be."""

    UNKNOWN = "unknown"
    """The incarnation of the neighbour is not known yet. Events may already be sent over the link."""
    UP = "up"
    SUSPECTED = "suspected"
    """A packet went unanswered, or the neighbour is silent. The next packet from it ends the suspicion."""
    DOWN = "down"
    """The failure detector has declared an outage. The next packet from the neighbour ends it, unless the neighbour
    reports that it does not hear this peer."""
    ONE_WAY = "one-way"
    """The neighbour reports that it does not hear this peer, until an ACK or another hello proves the contrary."""


class Link:
    __slots__ = (
        "allows_for_queues",
        "answers",
        "control_discount_ns",
        "delay_ns",
        "detection",
        "estimator",
        "heard_by_neighbour",
        "heard_ns",
        "hellos",
        "incarnation",
        "is_up",
        "last_hello",
        "missed",
        "not_hearing_ns",
        "path",
        "peer",
        "reliability",
        "sender",
        "sent_ns",
        "silence_ns",
        "suspected",
        "timeout_ns",
        "transmitted",
        "unanswered",
        "window",
    )  # fmt: skip

    def __init__(
        self,
        peer: PeerId,
        delay_ns: Nanos,
        reliability: float,
        config: PeerConfig,
        wait_ns: Nanos = 0,
        control_waits: bool = True,
        now: Nanos = 0,
        sender: LinkSender | None = None,
    ) -> None:
        """`wait_ns`: how long data may queue for the link; `control_waits`: whether control queues with it."""
        settings = config.of(LinkSettings)
        delays = 1 if settings.ack == "free" else 2
        margin_ns = settings.margin_ns + wait_ns
        self.peer = peer
        self.path: Path = ()
        """The routers on the underlay path of the link, if they are known."""
        self.delay_ns = delay_ns
        self.reliability = reliability
        self.timeout_ns = delays * delay_ns + margin_ns
        """How long to wait for an ACK of data. Control waits `control_discount_ns` less."""
        self.control_discount_ns = 0 if control_waits else wait_ns
        self.allows_for_queues = settings.estimator == "nominal" and wait_ns > 0
        """Whether the timeout allows for the longest queue, so that a longer wait indicates a loss."""
        self.estimator: LinkEstimator | None = None
        """None if the peer uses nominal values."""
        if settings.estimator == "measured":
            self.estimator = LinkEstimator(delay_ns, reliability, delays, margin_ns, FLOOR_MARGINS * settings.margin_ns)
            self.timeout_ns = self.estimator.timeout_ns
        self.incarnation = 0
        """The incarnation of the neighbour; 0 before it is known."""
        self.window = SequenceWindow()
        """The numbers of the data packets received from the current incarnation of the neighbour."""
        self.last_hello: Hello | None = None
        """The neighbour's last hello; None if a repetition of it would no longer be without effect."""
        self.is_up = True
        """Whether the failure detector has not declared the link down."""
        self.heard_by_neighbour = True
        """Whether the neighbour reports that it hears this peer."""
        self.not_hearing_ns = now
        """When the neighbour last reported that it does not hear this peer."""
        self.suspected = False
        """Whether the next packet from the neighbour ends a suspicion or an outage."""
        self.missed = False
        """Whether the neighbour missed control that is no longer repeated: it needs the full state when heard again."""
        self.heard_ns = self.sent_ns = now
        """When the last packet arrived, and when the last one was sent."""
        self.transmitted = self.answers = 0
        """How many transmissions of data were sent, and how many ACKs for them arrived."""
        self.unanswered = UnansweredPackets()
        self.hellos = HelloPlan()
        self.sender = sender
        """The congestion window and send queue of the link; None without congestion control."""
        self.detection = DetectionTime(settings.detection_ns, reliability)
        self.silence_ns = self.detection.silence_ns
        """The longest silence of a link that is up."""

    @property
    def state(self) -> NeighbourState:
        if not self.heard_by_neighbour:
            return NeighbourState.ONE_WAY
        if not self.is_up:
            return NeighbourState.DOWN
        if self.suspected:
            return NeighbourState.SUSPECTED
        return NeighbourState.UP if self.incarnation else NeighbourState.UNKNOWN

    @property
    def queue_ns(self) -> Nanos:
        """How long a packet would wait for the link now, behind others that are due."""
        return 0 if self.sender is None else self.sender.wait_ns

    @property
    def price_ns(self) -> Nanos:
        """The cost that routing adds to the delay of a congested link."""
        return 0 if self.sender is None else self.sender.price_ns

    @property
    def spread_ns(self) -> Nanos:
        """The range of recent round trips, which differ because packets waited in queues."""
        return 0 if self.sender is None or self.estimator is None else self.sender.controller.spread_ns

    def is_working(self, now: Nanos) -> bool:
        """Whether both directions seem to work. For strategies that use the failure detector."""
        return self.is_up and self.heard_by_neighbour and now - self.heard_ns <= self.silence_ns

    def is_heard(self, now: Nanos) -> bool:
        """Whether this peer seems to hear the neighbour."""
        return self.is_up and now - self.heard_ns <= self.silence_ns

    # ---------------------------------------------------------------- packets

    def record_heard(self, now: Nanos) -> None:
        """Record that a packet arrived from the neighbour."""
        self.heard_ns = now

    def record_sent(self, now: Nanos) -> None:
        """Record that a packet is sent to the neighbour."""
        self.sent_ns = now

    def record_transmission(self, now: Nanos) -> None:
        """Record that data is sent to the neighbour."""
        self.sent_ns = now
        self.transmitted += 1

    def on_pause(self, now: Nanos, ns: Nanos) -> None:
        """Allow for a pause of this peer, in which it could not hear the neighbour."""
        self.heard_ns = min(now, self.heard_ns + ns)
        if self.sender is not None:
            self.sender.controller.on_pause(now, ns)

    def record_ack(self, round_trip_ns: Nanos, retransmitted: bool) -> None:
        """Update the estimates by an ACK that arrived this long after the first transmission."""
        estimator = self.estimator
        if estimator is not None:
            estimator.count_ack(round_trip_ns, retransmitted)
            self.delay_ns, self.timeout_ns = estimator.delay_ns, estimator.timeout_ns

    def on_timeout(self) -> None:
        """Count a transmission without an ACK, unless the link is down: then it is no evidence of loss."""
        if self.is_up:
            self.unanswered.count_timeout()
            if self.estimator is not None:
                self.estimator.count_unanswered()

    def on_give_up(self, is_data: bool = True) -> None:
        """Suspect the link, since the last transmission of a packet, or one of control, was not acknowledged."""
        self.unanswered.count_given_up(is_data=is_data, is_up=self.is_up)
        if self.is_up and self.estimator is not None:
            self.estimator.count_unanswered()
        self.suspected = True

    def on_control_given_up(self) -> None:
        """Note that the neighbour needs the full state, since control to it is no longer repeated."""
        self.missed = True

    # ---------------------------------------------------------------- what the neighbour reports

    def begin_incarnation(self, incarnation: int) -> bool:
        """Begin a new incarnation of the neighbour. Return True if it restarted, False at the first contact."""
        restarted = self.incarnation != 0
        self.incarnation = incarnation
        self.last_hello = None
        self.window = SequenceWindow()
        return restarted

    def end(self) -> None:
        """End the link, since the peer is no longer a neighbour."""
        self.last_hello = None

    def on_hello(self, hello: Hello) -> bool:
        """Handle a hello: whether the neighbour hears this peer, and the silence that it announces (0: no change).

        Return whether the neighbour has started or stopped hearing this peer.
        """
        self.last_hello = hello
        within_ns = hello.within_ns
        if within_ns and within_ns != self.detection.announced_ns:
            self.on_announced_silence(within_ns)
        if not hello.hearing:
            self.not_hearing_ns = self.heard_ns
        if hello.hearing == self.heard_by_neighbour:
            return False
        self.heard_by_neighbour = hello.hearing
        return True

    def on_announced_silence(self, within_ns: Nanos) -> None:
        """Adopt the longest silence that the neighbour announces."""
        self.detection.set_silence(within_ns)
        self.silence_ns = self.detection.silence_ns

    def on_not_hearing(self) -> None:
        """Record that the neighbour of a link that is down does not hear this peer. No notification is needed: the
        outage goes on in the other direction."""
        if not self.is_up:
            self.heard_by_neighbour = False
            self.not_hearing_ns = self.heard_ns

    def needs_probe(self, now: Nanos) -> bool:
        """Whether the neighbour may hear this peer again, but the hello that reports it is lost, since it is overdue.
        Data from the neighbour suppresses further hellos, so this peer has to ask for an ACK."""
        if self.is_up or self.heard_by_neighbour:
            return False
        return now - self.not_hearing_ns > self.silence_ns + self.timeout_ns

    def on_ack(self) -> None:
        """Record that the neighbour hears this peer, as its ACK proves."""
        self.last_hello = None
        self.heard_by_neighbour = True

    # ---------------------------------------------------------------- suspicions and outages

    def record_hello(self, now: Nanos, within_ns: Nanos, heard: bool) -> None:
        """Record a hello to the neighbour that differs from the last: whether this peer hears it, and the silence
        announced. A repetition only changes `sent_ns`."""
        self.sent_ns = now
        if not heard:
            self.suspected = True
        self.hellos.record_hello(within_ns, heard)

    def declare_down(self) -> bool:
        """Declare an outage, and discount the packets lost in it. Return False if the link is down already."""
        if not self.is_up:
            return False
        self.is_up = False
        self.suspected = True
        self.hellos.discard()
        self.unanswered.blame_outage()
        if self.sender is not None:
            self.sender.stop()
        if self.estimator is not None:
            self.estimator.discount(self.unanswered.fails)
        return True

    def restore(self) -> bool:
        """End an outage, since a packet arrived. Return False if there is none, or the other direction is still dead.

        RFC 5880 also requires a three-way handshake. Without it, a link that is dead in one direction would flap.
        """
        if self.is_up or not self.heard_by_neighbour:
            return False
        self.is_up = True
        self.hellos.discard()
        if self.sender is not None:
            self.sender.restart(self.heard_ns)
        return True

    def clear_suspicion(self) -> bool:
        """Clear the suspicion of a link that is not down. Return whether the neighbour missed control earlier."""
        if not self.is_up:
            return False
        missed, self.missed = self.missed, False
        self.suspected = False
        self.unanswered.count_as_loss()
        return missed

    # ---------------------------------------------------------------- what this peer measures

    def discount_losses(self) -> None:
        """Discount the unanswered packets of this period: the neighbour may not have been running yet."""
        if self.estimator is not None:
            self.estimator.discount_all()

    def end_period(self) -> bool:
        """Adopt the estimates of the period that ends now. Return whether they changed noticeably."""
        estimator = self.estimator
        if estimator is None:
            return False
        changed = estimator.end_period()
        if self.sender is not None:
            self.sender.controller.end_period()
        self.delay_ns, self.reliability = estimator.delay_ns, estimator.reliability
        self.hellos.discard()
        self.detection.allow_loss(estimator.latest_reliability)
        self.silence_ns = self.detection.silence_ns
        return changed

    def set_path(self, path: Path) -> None:
        """Set the underlay path of the link."""
        self.path = path
