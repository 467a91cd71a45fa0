"""A link to one neighbour: its state, its estimates, and the packets that came over it.

The state is that of an automaton with two sides. This peer judges the direction from the neighbour itself; the
neighbour's hellos and ACKs judge the other direction, and only they can end `one-way`. Peers without the failure
detector know no `down`.

                 new_incarnation              gave_up, said_hello            declared_down
        unknown ─────────────────▶ up ─────────────────────────────▶ suspected ───────────▶ down
                                   ◀─────────────────────────────              ◀───────────
                                               cleared                           restored

                        hello, said_not_hearing          hello, acknowledged
                      any state ───────▶ one-way ──────────────────────────▶ the state that it would have without

    from       to         method           the caller, and what happened
    unknown    up         new_incarnation  LinkLayer: a message names the neighbour's incarnation for the first time
    unknown    suspected  gave_up          Retransmission: all transmissions of a packet went unanswered
    up         suspected  gave_up
    unknown    suspected  said_hello       HelloSchedule: it tells the neighbour that it has been silent for too long
    up         suspected  said_hello
    unknown    down       declared_down    FailureDetector: silence or unanswered packets prove an outage
    up         down       declared_down
    suspected  down       declared_down
    down       suspected  restored         FailureDetector: a packet came, and routing hears of it
    suspected  up         cleared          LinkLayer: a packet came
    suspected  unknown    cleared
    unknown    one-way    hello            LinkLayer: the neighbour says that it does not hear this peer
    up         one-way    hello
    suspected  one-way    hello
    down       one-way    hello
    down       one-way    said_not_hearing LinkLayer: the same, in a hello that comes while the link is down
    one-way    unknown    hello            LinkLayer: the neighbour says that it hears this peer
    one-way    up         hello
    one-way    suspected  hello
    one-way    down       hello
    one-way    unknown    acknowledged     Retransmission: an ACK came, so the neighbour hears this peer
    one-way    up         acknowledged
    one-way    suspected  acknowledged
    one-way    down       acknowledged

Only methods of `Link` change a link, and only methods of a part change that part: `hello_plan.py`, `detection_time.py`,
`unanswered.py`, `estimator.py` and, for congestion control, `send_queue.py`.
"""

from enum import Enum

from wend.model.events import PeerId
from wend.model.paths import Path
from wend.model.units import Nanos
from wend.protocol.config import LinkSettings, PeerConfig
from wend.protocol.link.detection_time import DetectionTime
from wend.protocol.link.estimator import LinkEstimator
from wend.protocol.link.hello_plan import HelloPlan
from wend.protocol.link.send_queue import LinkSender
from wend.protocol.link.unanswered import UnansweredPackets
from wend.protocol.link.window import SequenceWindow
from wend.protocol.messages import Hello

FLOOR_MARGINS = 8
"""The least timeout for an ACK, as a multiple of the margin for the jitter of a host. Over a short link the neighbour's
host takes longer than the link: it may not run for tens of milliseconds."""


class NeighbourState(Enum):
    """What a peer believes of a link."""

    UNKNOWN = "unknown"
    """The neighbour has not said its incarnation yet. Events may still go over the link."""
    UP = "up"
    SUSPECTED = "suspected"
    """A packet went unanswered, or the neighbour is silent. The next packet from it ends the suspicion."""
    DOWN = "down"
    """The failure detector has declared an outage. The next packet from the neighbour ends it, unless the neighbour
    says that it does not hear this peer."""
    ONE_WAY = "one-way"
    """The neighbour says that it does not hear this peer. The next ACK, or a hello that says it does, ends that."""


class Link:
    __slots__ = (
        "allows_for_queues", "answers", "control_discount_ns", "delay_ns", "detection", "estimator",
        "heard_by_neighbour", "heard_ns", "hellos", "incarnation", "last_hello", "missed", "not_hearing_ns", "path",
        "peer", "reliability", "sender", "sent_ns", "silence_ns", "suspected", "timeout_ns", "transmitted",
        "unanswered", "up", "window",
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
        """The routers on the link's path in the underlay, if they are known."""
        self.delay_ns = delay_ns
        self.reliability = reliability
        self.timeout_ns = delays * delay_ns + margin_ns
        """How long to wait for an ACK of data. Control waits `control_discount_ns` less."""
        self.control_discount_ns = 0 if control_waits else wait_ns
        self.allows_for_queues = settings.estimator == "nominal" and wait_ns > 0
        """Whether the timeout allows for the longest queue: then a longer wait shows a loss."""
        self.estimator: LinkEstimator | None = None
        """None if the peer trusts nominal values."""
        if settings.estimator == "measured":
            self.estimator = LinkEstimator(delay_ns, reliability, delays, margin_ns, FLOOR_MARGINS * settings.margin_ns)
            self.timeout_ns = self.estimator.timeout_ns
        self.incarnation = 0
        """That of the neighbour; 0 before it is known."""
        self.window = SequenceWindow()
        """Which data packets of the neighbour's incarnation came."""
        self.last_hello: Hello | None = None
        """The neighbour's last hello, unless something happened since that a repetition would change."""
        self.up = True
        """Whether the failure detector has not declared the link down."""
        self.heard_by_neighbour = True
        """Whether the neighbour says that it hears this peer."""
        self.not_hearing_ns = now
        """When it last said that it does not."""
        self.suspected = False
        """Whether the next packet from the neighbour is news: it ends a suspicion or an outage."""
        self.missed = False
        """Whether the neighbour missed control that nobody repeats: it needs everything anew when it is heard again."""
        self.heard_ns = self.sent_ns = now
        """When the last packet came, and when the last one left."""
        self.transmitted = self.answers = 0
        """Transmissions of data, and ACKs for them."""
        self.unanswered = UnansweredPackets()
        self.hellos = HelloPlan()
        self.sender = sender
        """Its congestion window and send queue; None if no strategy asks for congestion control."""
        self.detection = DetectionTime(settings.detection_ns, reliability)
        self.silence_ns = self.detection.silence_ns
        """The longest silence of a link that is up."""

    @property
    def state(self) -> NeighbourState:
        if not self.heard_by_neighbour:
            return NeighbourState.ONE_WAY
        if not self.up:
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
        """What routing adds to the delay of the link, because it is full."""
        return 0 if self.sender is None else self.sender.price_ns

    @property
    def spread_ns(self) -> Nanos:
        """By how much round trips differed of late, because packets waited for others."""
        return 0 if self.sender is None or self.estimator is None else self.sender.controller.spread_ns

    def seems_up(self, now: Nanos) -> bool:
        """For strategies that use the failure detector: both directions work, as far as is known now."""
        return self.up and self.heard_by_neighbour and now - self.heard_ns <= self.silence_ns

    def heard_lately(self, now: Nanos) -> bool:
        """The same for the direction from the neighbour alone."""
        return self.up and now - self.heard_ns <= self.silence_ns

    # ---------------------------------------------------------------- packets

    def note_heard(self, now: Nanos) -> None:
        """A packet of the neighbour came."""
        self.heard_ns = now

    def note_sent(self, now: Nanos) -> None:
        """A packet to the neighbour leaves."""
        self.sent_ns = now

    def note_transmission(self, now: Nanos) -> None:
        """Data for the neighbour leaves."""
        self.sent_ns = now
        self.transmitted += 1

    def paused(self, now: Nanos, ns: Nanos) -> None:
        """This peer did not run for this time, so it could not hear the neighbour."""
        self.heard_ns = min(now, self.heard_ns + ns)
        if self.sender is not None:
            self.sender.controller.paused(now, ns)

    def answered(self, round_trip_ns: Nanos, retransmitted: bool, is_data: bool = True) -> None:
        """Measure the link by an ACK that came this long after the first transmission."""
        if is_data:
            self.answers += 1
        estimator = self.estimator
        if estimator is not None:
            estimator.answered(round_trip_ns, retransmitted)
            self.delay_ns, self.timeout_ns = estimator.delay_ns, estimator.timeout_ns

    def timed_out(self) -> None:
        """No ACK came for a transmission. Over a link that is down, that says nothing about loss."""
        if self.up:
            self.unanswered.time_out()
            if self.estimator is not None:
                self.estimator.unanswered()

    def gave_up(self, is_data: bool = True) -> None:
        """No ACK came for the last transmission of a packet, or for one of control."""
        self.unanswered.give_up(is_data=is_data, is_up=self.up)
        if self.up and self.estimator is not None:
            self.estimator.unanswered()
        self.suspected = True

    def missed_control(self) -> None:
        """Retransmission stopped repeating control that the neighbour did not acknowledge."""
        self.missed = True

    # ---------------------------------------------------------------- what the neighbour says

    def new_incarnation(self, incarnation: int) -> bool:
        """The neighbour numbers its packets anew. True if it restarted, False if this is the first contact."""
        restarted = self.incarnation != 0
        self.incarnation = incarnation
        self.last_hello = None
        self.window = SequenceWindow()
        return restarted

    def ended(self) -> None:
        """The peer is no longer a neighbour."""
        self.last_hello = None

    def hello(self, hello: Hello) -> bool:
        """The neighbour says whether it hears this peer, and how soon it will speak again (0: no change).

        True if the former is news.
        """
        self.last_hello = hello
        within_ns = hello.within_ns
        if within_ns and within_ns != self.detection.promised_ns:
            self.promised(within_ns)
        if not hello.hearing:
            self.not_hearing_ns = self.heard_ns
        if hello.hearing == self.heard_by_neighbour:
            return False
        self.heard_by_neighbour = hello.hearing
        return True

    def promised(self, within_ns: Nanos) -> None:
        """The neighbour says how soon it will speak again."""
        self.detection.promise(within_ns)
        self.silence_ns = self.detection.silence_ns

    def said_not_hearing(self) -> None:
        """The neighbour says that it does not hear this peer. If the link is down, that is no news to anybody: the
        outage goes on in the other direction."""
        if not self.up:
            self.heard_by_neighbour = False
            self.not_hearing_ns = self.heard_ns

    def needs_probe(self, now: Nanos) -> bool:
        """Whether the neighbour may hear this peer again, and the hello that says so is lost: it would have come by
        now. Data of the neighbour suppresses further hellos, so this peer has to ask for an ACK."""
        if self.up or self.heard_by_neighbour:
            return False
        return now - self.not_hearing_ns > self.silence_ns + self.timeout_ns

    def acknowledged(self) -> None:
        """An ACK came, so the neighbour hears this peer."""
        self.last_hello = None
        self.heard_by_neighbour = True

    # ---------------------------------------------------------------- suspicions and outages

    def said_hello(self, now: Nanos, within_ns: Nanos, heard: bool) -> None:
        """This peer says whether it hears the neighbour, and how soon it will speak again."""
        self.sent_ns = now
        if heard and self.hellos.is_repetition:
            return
        if not heard:
            self.suspected = True
        self.hellos.announce(within_ns, heard)

    def declared_down(self) -> bool:
        """An outage has begun. False if that is known. Packets that it swallowed say nothing about loss."""
        if not self.up:
            return False
        self.up = False
        self.suspected = True
        self.hellos.discard()
        self.unanswered.excuse()
        if self.sender is not None:
            self.sender.stop()
        if self.estimator is not None:
            self.estimator.forgive(self.unanswered.fails)
        return True

    def restored(self) -> bool:
        """A packet came. True if that ends an outage: not over a link that is dead in the other direction.

        RFC 5880 asks for a three-way handshake too. Without it, such a link would go down and up again and again.
        """
        if self.up or not self.heard_by_neighbour:
            return False
        self.up = True
        self.hellos.discard()
        if self.sender is not None:
            self.sender.restart(self.heard_ns)
        return True

    def cleared(self) -> bool:
        """A packet came over a link that is not down. True if the neighbour missed control earlier."""
        if not self.up:
            return False
        missed, self.missed = self.missed, False
        self.suspected = False
        self.unanswered.clear()
        return missed

    # ---------------------------------------------------------------- what this peer measures

    def forgive_losses(self) -> None:
        """Discount what went unanswered in this period: the neighbour may not have been running yet."""
        if self.estimator is not None:
            self.estimator.forgive_all()

    def adopt(self) -> bool:
        """Adopt what was measured in the period that ends now. True if it differs noticeably from the last one."""
        estimator = self.estimator
        if estimator is None:
            return False
        changed = estimator.adopt()
        if self.sender is not None:
            self.sender.controller.end_period()
        self.delay_ns, self.reliability = estimator.delay_ns, estimator.reliability
        self.hellos.discard()
        self.detection.allow_loss(estimator.latest_reliability)
        self.silence_ns = self.detection.silence_ns
        return changed

    def traced(self, path: Path) -> None:
        """The path of the link in the underlay is known."""
        self.path = path
