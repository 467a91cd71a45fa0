"""Retained events for new subscriptions, at this peer and at others.

A broker whose peer retains events announces it by a subscription to the topic `wend.retained`, which no event has. When
a client subscribes, its broker hands over the events that its own peer retains, and asks every peer that announced it.
Questions and answers are events addressed to one peer, so no other subscription sees them. Other peers may become known
a little later, so the broker checks for new ones for some seconds.
"""

import asyncio
import logging
import secrets
from typing import TYPE_CHECKING

import msgspec

from wend.drivers.live.clock import monotonic
from wend.matching.filters import parse, topic_filter
from wend.model.errors import WendError
from wend.model.events import Attributes, Event, EventId, Headers, PeerId, Qos, Range, SubscriptionId
from wend.model.publication import Publication
from wend.model.units import FOREVER, SECOND, Nanos
from wend.protocol.notices import MissedCode
from wend.protocol.ports import Deliver

if TYPE_CHECKING:
    from wend.drivers.live.broker.broker import Broker, BrokerClient

log = logging.getLogger("wend.clients")

TOPIC = "wend.retained"
ASK = "wend.retained.ask"
REPLY_TO = "wend-reply-to"
RETAINED = "wend-retained"
"""The header of an answer: a `CarriedEvent`."""
MAX_ANSWERS = 1_000
"""The most events that a peer sends in answer to one question. They are the newest."""
CHECK_S = 1.0
OPEN_S = 5.0
"""How long a new subscription can get retained events of peers that become known later."""
_NONE: frozenset[EventId] = frozenset()
"""Shared by most subscriptions, because there may be very many."""
_ANNOUNCED, _QUESTIONS, _ANSWERS = 1, 2, 3
"""Handles of the exchange's own subscriptions."""


class CarriedEvent(msgspec.Struct, frozen=True, array_like=True):
    """Describes the event in an answer. The answer itself has its attributes, payload and headers."""

    question: int
    id: EventId
    age_ns: Nanos
    topic: bool | int | float | str | None
    """The topic of the event, since the answer has another topic; nil if it has none."""


class RetainedQuestion:
    """A new subscription of a client that may still get retained events."""

    __slots__ = ("asked", "client", "delivered", "filter", "handle", "until_s")

    def __init__(self, client: "BrokerClient", handle: int, filter: str, until_s: float) -> None:
        self.client = client
        self.handle = handle
        self.filter = filter
        self.until_s = until_s
        self.asked: tuple[PeerId, ...] = ()
        self.delivered: set[EventId] | frozenset[EventId] = _NONE
        """The events that the subscription got already, fresh or retained."""

    def record_delivery(self, id_: EventId) -> None:
        if isinstance(self.delivered, frozenset):
            self.delivered = set()
        self.delivered.add(id_)


class RetainedExchange:
    """Hands retained events to new subscriptions. To the broker it is a client."""

    is_stalled = False

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._inbox = f"{TOPIC}.{secrets.token_hex(8)}"
        self._offers = False
        self._asks = False
        self._looks = False
        """Whether a timer is set to look for peers that retain events."""
        self._next = 1
        self._questions: dict[int, RetainedQuestion] = {}
        """The questions of the last seconds, by number."""
        self._numbers: dict[tuple[BrokerClient, int], int] = {}
        self._new: list[int] = []
        """Questions that the broker has not sent yet."""

    # ---------------------------------------------------------------- for clients of this broker

    def on_subscribed(self, client: "BrokerClient", handle: int, filter: str) -> None:
        """Deliver retained events to a new subscription."""
        loop = asyncio.get_running_loop()
        question = RetainedQuestion(client, handle, filter, loop.time() + OPEN_S)
        for event, age_ns in self._broker.peer.retained_events(filter):
            self._deliver_retained(question, event, age_ns)
        number, self._next = self._next, self._next + 1
        self._questions[number] = question
        self._numbers[client, handle] = number
        if not self._new:
            loop.call_soon(self._ask_for_new_subscriptions)
        self._new.append(number)
        if not self._looks:
            self._looks = True
            loop.call_later(CHECK_S, self._check_questions)

    def _ask_for_new_subscriptions(self) -> None:
        """Ask for all new subscriptions together, so that the retaining peers are looked up only once."""
        numbers, self._new = self._new, []
        peers = self._find_retaining_peers()
        for number in numbers if peers else ():
            if number in self._questions:
                self._ask(number, self._questions[number], peers)

    def on_delivered(self, client: "BrokerClient", handle: int, id_: EventId) -> None:
        """Record that a subscription got a new event, so that it does not get the event again as a retained one."""
        number = self._numbers.get((client, handle)) if self._numbers else None
        if number is not None:
            self._questions[number].record_delivery(id_)

    def on_ended(self, client: "BrokerClient", handle: int) -> None:
        """Drop the question of a subscription that has ended."""
        number = self._numbers.pop((client, handle), None)
        if number is not None:
            del self._questions[number]

    def _find_retaining_peers(self) -> list[PeerId]:
        peer = self._broker.peer
        return [other for other in peer.interested_peers({"topic": TOPIC}) if other != peer.id]

    def _check_questions(self) -> None:
        """Ask peers that have become known since the last check, and drop old questions."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        for question in [each for each in self._questions.values() if each.until_s < now]:
            self.on_ended(question.client, question.handle)
        peers = self._find_retaining_peers()
        for number, question in self._questions.items():
            if len(question.asked) != len(peers) or question.asked != tuple(peers):
                self._ask(number, question, peers)
        self._looks = bool(self._questions)
        if self._looks:
            loop.call_later(CHECK_S, self._check_questions)

    def _ask(self, number: int, question: RetainedQuestion, peers: list[PeerId]) -> None:
        for other in peers:
            if other not in question.asked:
                question.asked = tuple(sorted((*question.asked, other)))
                self._subscribe_answers()
                headers = {REPLY_TO: f"{self._inbox}/{number}"}
                self._publish({"topic": ASK}, question.filter.encode(), headers, other)

    def _deliver_retained(self, question: RetainedQuestion, event: Event, age_ns: Nanos) -> None:
        if event.id not in question.delivered:
            question.record_delivery(event.id)
            event = self._broker.signatures.verify(event, monotonic())
            subscription = SubscriptionId(self._broker.peer.id, 0)
            question.client.deliver(question.handle, Deliver(subscription, event, age_ns, None, retained=True))

    # ---------------------------------------------------------------- for other peers

    def announce(self) -> None:
        """Announce that this peer retains events, and accept questions."""
        if not self._offers:
            self._offers = True
            self._broker.subscribe(self, _ANNOUNCED, topic_filter(TOPIC), Qos())
            self._broker.subscribe(self, _QUESTIONS, topic_filter(ASK), Qos(), announced=False)

    def _subscribe_answers(self) -> None:
        if not self._asks:
            self._asks = True
            self._broker.subscribe(self, _ANSWERS, topic_filter(self._inbox), Qos(), announced=False)

    def _publish(self, attributes: Attributes, payload: bytes, headers: Headers, to: PeerId) -> None:
        try:
            self._broker.peer.publish(Publication(attributes, payload, headers, 60 * SECOND, to))
        except WendError as error:
            self._broker.counts["retained-unsent"] += 1
            log.info("cannot ask or answer peer %d about retained events: %s", to, error)

    # ---------------------------------------------------------------- as a client of the broker

    def deliver(self, handle: int, effect: Deliver) -> None:
        try:
            if handle == _QUESTIONS:
                self._on_question(effect.event)
            elif handle == _ANSWERS:
                self._on_answer(effect)
        except (WendError, msgspec.MsgspecError, ValueError) as error:
            log.info("cannot read what peer %d asks or answers: %s", effect.event.id.publisher, error)

    def on_missed(self, handle: int, counts: dict[MissedCode, int]) -> None:
        """Do nothing: the exchange's own subscriptions are neither ordered nor expire, so they miss no event."""

    def on_replaced(self, handle: int) -> None:
        """Do nothing: the exchange's own subscriptions are not durable."""

    def _on_question(self, question: Event) -> None:
        inbox, _, number = question.headers.get(REPLY_TO, "").rpartition("/")
        events = self._broker.peer.retained_events(question.payload.decode())
        for event, age_ns in events[-MAX_ANSWERS:]:
            topic = event.attributes.get("topic")
            carried = CarriedEvent(int(number), event.id, age_ns, None if isinstance(topic, Range) else topic)
            headers = {**event.headers, RETAINED: msgspec.json.encode(carried).decode()}
            self._publish({**event.attributes, "topic": inbox}, event.payload, headers, question.id.publisher)

    def _on_answer(self, effect: Deliver) -> None:
        headers = dict(effect.event.headers)
        carried = msgspec.json.decode(headers.pop(RETAINED, ""), type=CarriedEvent)
        numbers = (*carried.id, carried.age_ns, abs(carried.topic) if isinstance(carried.topic, int) else 0)
        if not all(0 <= number <= FOREVER for number in numbers):
            raise ValueError("a number is out of range")
        question = self._questions.get(carried.question)
        teller = effect.event.id.publisher
        if question is None or teller not in question.asked or teller != carried.id.publisher:
            return  # a peer retains events of its own clients alone
        attributes = {**effect.event.attributes}
        if carried.topic is None:
            del attributes["topic"]
        else:
            attributes["topic"] = carried.topic
        if not parse(question.filter).matches(attributes):
            return  # the subscription did not ask for it, or may not have it
        event = Event(carried.id, attributes, effect.event.payload, headers)
        self._deliver_retained(question, event, carried.age_ns + effect.age_ns)
