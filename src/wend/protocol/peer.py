"""The peer: a pure state machine. `handle(now, input)` returns effects, and nothing else happens.

The peer owns three things and branches once, at the input:

    link layer          link/        numbers, ACKs and retransmission, fragments, estimators, failure detector
    delivery            delivery/    local subscribers, duplicate filter, store-and-forward
    plug-in host        host.py      membership, graphs, interest, routing

A driver needs to know `ports.py`, and of this file `handle` and the read-only questions that follow it.
"""

from collections.abc import Callable
from typing import Any, Final

from wend.model.errors import ConfigError
from wend.model.events import Event, EventId, PeerId
from wend.model.publication import Publication
from wend.model.units import FOREVER, Nanos
from wend.protocol.config import DeliverySettings, LinkSettings, PeerConfig
from wend.protocol.delivery.durable import Backlog
from wend.protocol.delivery.late_joiners import LateJoiners
from wend.protocol.delivery.local import LocalDelivery
from wend.protocol.delivery.retained import RetainedEvents
from wend.protocol.delivery.store_and_forward import StoreAndForward
from wend.protocol.host import Host, Hosted, NamedPlugins, blamed
from wend.protocol.link.in_flight import OutgoingControl
from wend.protocol.link.layer import LinkLayer
from wend.protocol.link.link import Link
from wend.protocol.link.waiting import HEADER_BYTES
from wend.protocol.messages import (
    TX_MASK,
    TX_SHIFT,
    Ack,
    Control,
    Data,
    DirectAck,
    DirectMessage,
    Fragment,
    Hello,
    PlainMessage,
)
from wend.protocol.notices import MISFIT, TOO_OLD
from wend.protocol.plugins import (
    Acked,
    Arrived,
    Begun,
    DeliverHere,
    EndLink,
    Failed,
    Forward,
    GiveUp,
    InterestLearned,
    LeaveToInterest,
    LinkChanged,
    LinksChanged,
    MakeLink,
    Plugin,
    PluginEffect,
    Reroute,
    RouteEvent,
    SendTo,
    SubscriptionsChanged,
    Tell,
    Unanswered,
    Undelivered,
)
from wend.protocol.plugins.copy_ranks import Ranks
from wend.protocol.ports import (
    Advertised,
    Attached,
    Confirmed,
    ContactFound,
    Detached,
    Drop,
    Input,
    LinkAdded,
    LinkRemoved,
    Multicast,
    Notice,
    PathFound,
    Paused,
    Planned,
    Receipt,
    Received,
    Refuse,
    Send,
    Started,
    Stopping,
    Subscribed,
    Unretained,
    Unsent,
    Unsubscribed,
    WakeAt,
    Woken,
)
from wend.protocol.records import DeliveredRecord, PendingRecord, Record, ReleasedRecord, RetainedRecord, StateRecord
from wend.protocol.status import PeerStatus
from wend.protocol.timers import Effects, Timers

NOT_TO_ONE: Final = "strategy {} does not name the destinations of events, so an event cannot be for one peer alone"
OLDEST_NS: Final = FOREVER
"""The greatest age that a packet may have: what is computed from it must fit records and messages."""


class Peer:
    def __init__(self, config: PeerConfig, plugins: NamedPlugins) -> None:
        self.config = config
        self.me = config.peer
        self.links: dict[PeerId, Link] = {}
        self._forms = config.membership is not None
        """Whether the first links are yet to be made while the peer runs."""
        self._timers = Timers()
        self._next_timers = self._timers.heap
        self._asked: Nanos = FOREVER
        self._host = host = Host(config, plugins, self.links, self._timers, self._carry_out)
        self._router = host.router
        self._header = host.router.header
        self._next_hops = host.router.handle
        self.view = host.view
        self.interest = host.interest
        self.subscriptions = host.interest.table
        controlled = any(needs.congestion_control for needs in host.needs)
        self._layer = LinkLayer(
            config,
            self.links,
            self._timers,
            self,
            header=self._header,
            detects_failures=any(needs.failure_detector for needs in host.needs),
            shares_news=any(needs.news for needs in host.needs),
            controls_congestion=controlled,
            uses_paths=config.of(LinkSettings).trace_paths and any(needs.paths for needs in host.needs),
        )
        self._detector = self._layer.detector
        self._retransmission = self._layer.retransmission
        self.view.news = self._layer.news
        self.view.outages = None if self._detector is None else self._detector.outages
        self._stored: StoreAndForward | None = None
        if config.of(DeliverySettings).persistence:
            forming = host.interest.names_everyone and (host.interest.learns_late or config.membership is not None)
            limits = config.of(DeliverySettings)
            late = LateJoiners(limits.retry_limit, limits.store_limit) if forming else None
            self._stored = StoreAndForward(config, self._timers, self.subscriptions, self.view, late, self._route)
        queue = None if self._stored is None else self._stored.queue
        waiting = config.of(LinkSettings).send_queue_limit // HEADER_BYTES if controlled else 0
        self._local = LocalDelivery(
            config, self.subscriptions, self.view, self._timers, queue, self._send_alone, waiting
        )
        self._pending = self._local.pending
        self.retained = RetainedEvents(self.me, stores=self._stored is not None)
        """The newest events that publishers asked to retain, to look at."""

    # ---------------------------------------------------------------- what a driver may ask

    def handle(self, now: Nanos, event: Input) -> Effects:
        effects: Effects = []
        if type(event) is not Received:
            INPUTS[type(event)](self, now, event, effects)
        elif (link := self.links.get(event.sender)) is None:
            self._layer.received_directly(now, event.sender, event.message, effects)
        else:  # most of all inputs, so they take the shortest path
            link.note_heard(now)
            message = event.message
            if link.suspected:
                self._layer.heard_again(now, link, effects, message)
            if type(message) is Data:
                self.on_data(now, link, message, effects)
            elif type(message) is Ack:
                forward = self._retransmission.answered(now, link, message, effects)
                if link.suspected:  # a neighbour that answers hears this peer
                    self._layer.heard_again(now, link, effects)
                if forward is not None and (forward.confirm or self._stored is not None):
                    self._acked(now, forward, effects)
            elif type(message) is Hello:
                if message is not link.last_hello:  # else nothing has changed
                    self._layer.hello(now, link, message, effects)
            else:
                self._layer.received(now, link, message, effects)
        timers = self._next_timers
        if timers and timers[0][0] != self._asked:
            self._asked = soonest = timers[0][0]
            effects.append(WakeAt(soonest))
        return effects

    def will_be_acknowledged(self, time_ns: Nanos, sender: PeerId, ack: DirectAck) -> bool:
        """For simulations: take an ACK before it comes. False if it may not be taken yet."""
        return sender not in self.links and self._layer.direct.will_be_acknowledged(time_ns, sender, ack)

    def status(self) -> PeerStatus:
        names = {one.kind: one.name for one in self._host.hosted}
        return PeerStatus(
            peer=self.me,
            incarnation=self.config.incarnation,
            strategy=names["routing"],
            interest=names["interest"],
            membership=self.config.membership,
            links=self._layer.status(),
            in_flight=len(self._retransmission.in_flight()),
            waiting=0 if self._stored is None else len(self._stored.queue),
            plugins=self._host.status(),
        )

    def unfinished(self) -> set[EventId]:
        """Events that this peer still answers for: in flight, waiting for a retry, or waiting in the routing."""
        found = {forward.event.id for forward in self._retransmission.in_flight()}
        found.update(self.answers_for)
        found.update(self._host.routing.unfinished())
        return found

    @property
    def answers_for(self) -> tuple[EventId, ...]:
        """Events that it has stored and neither delivered nor handed on to others, in the order of their acceptance."""
        return () if self._stored is None else tuple(self._stored.queue.answered_for())

    @property
    def next_id(self) -> EventId:
        """The id of the next event that the application publishes."""
        return self._local.next_id

    @property
    def is_crowded(self) -> bool:
        """Whether so much waits for a link that publishers should pause."""
        return self._layer.crowded

    @property
    def plugins(self) -> dict[str, Plugin]:
        """The plug-ins that this peer hosts, by name, to look at."""
        return {name: one.plugin for name, one in self._host.by_name.items()}

    @property
    def message_types(self) -> dict[str, Any]:
        """By plug-in: the type of its messages, for decoders."""
        return {name: one.message_type for name, one in self._host.by_name.items()}

    @property
    def header_type(self) -> type:
        """The type of the header that packets carry."""
        return self._header

    @property
    def reassembling(self) -> bool:
        """Whether fragments of an event wait for the others."""
        return self._layer.reassembling

    @property
    def names_everyone(self) -> bool:
        """Whether receipts name all subscribers that this peer knows, anywhere."""
        return self.interest.names_everyone

    @property
    def informants(self) -> tuple[PeerId, ...]:
        """Peers that may know the addresses of others, for drivers that look for one."""
        found: tuple[PeerId, ...] = () if self.view.membership is None else self.view.membership.informants()
        return found

    def check_new_link(self, peer: PeerId) -> None:
        """Raise `ConfigError` if the peer cannot have a given link with this one."""
        self._check_given_links()
        if peer == self.me:
            raise ConfigError(f"peer {self.me} cannot be linked with itself")
        if peer in self.links:
            raise ConfigError(f"peer {self.me} is linked with peer {peer} already")

    @property
    def durable(self) -> dict[int, Backlog]:
        """The durable subscriptions, by number, with the events that their clients have not confirmed."""
        return self._local.durable.backlogs

    @property
    def follows_plan(self) -> bool:
        return self._host.routing.needs.plan

    # ---------------------------------------------------------------- inputs of the driver

    def _started(self, now: Nanos, event: Started, effects: Effects) -> None:
        self._local.begin(now)
        self._layer.begin(now, event.neighbours)
        self._forms = self._forms or event.contacts_follow
        self.view.neighbours = tuple(self.links)
        stored = self._recall(now, event, effects)
        if self._stored is not None:
            self._stored.begin(now, tuple(n.peer for n in event.neighbours))
        for wanted in event.subscriptions:
            self._local.subscribe(wanted, effects)
        for text in event.advertisements:
            self._local.advertise(text, effects)
        self.on_links_changed(now, effects)
        self._subscriptions_changed(now, effects)
        self._layer.monitor(now)
        if event.stored:  # a neighbour may have missed what this peer remembers
            for peer in self.view.neighbours:
                self._layer.resync(now, peer, effects)
        if self._stored is not None and self._pending is not None:
            self._stored.recall(now, self._pending.recall(now, stored, effects), effects)
        self._host.tell_all(now, Begun(self._layer.manager.reachable, event.contacts_follow), effects)
        self._layer.manager.trace(effects)

    def _recall(self, now: Nanos, event: Started, effects: Effects) -> list[PendingRecord]:
        """Take over the records of a former incarnation. Returns the events that it still answered for."""
        pending: dict[EventId, PendingRecord] = {}
        durable: list[Record] = []
        for record in event.stored:
            match record:
                case PendingRecord():
                    pending[record.event.id] = record
                case ReleasedRecord(id_):
                    pending.pop(id_, None)
                case DeliveredRecord(id_):
                    self._local.recall(id_)
                case RetainedRecord():
                    self.retained.recall(record)
                case StateRecord():
                    self._host.recall(now, record, effects)
                case _:
                    durable.append(record)
        self._local.recall_durable(now, durable, effects)
        return list(pending.values())

    def _published(self, now: Nanos, publication: Publication, effects: Effects) -> None:
        event = self._local.number(publication)
        if publication.to is not None:
            self._publish_to(now, event, publication.to, effects)
            return
        if publication.retain:
            self.retained.retain(publication.retain, event, now, effects)
        if self._local.announce(event, effects):
            self._subscriptions_changed(now, effects)
        event = self._local.shared(event, effects)
        subscribers = self.subscriptions.targets(event)
        event = self._local.chained(event)
        others = tuple([peer for peer in subscribers if peer != self.me]) if self.me in subscribers else subscribers
        if self._stored is not None:
            self._stored.publish(now, event, others, effects)
        if self._is_early():
            effects.append(Notice("published-early", self.me))
        if len(others) < len(subscribers):
            self._local.deliver(now, event, now, effects)
        if self.interest.names_everyone:  # backlogs here have stored the event by now
            effects.append(self._receipt(event, subscribers))
            if others:
                self._route(now, Arrived(self.me, event, now, others), effects)
        else:
            self._route(now, Arrived(self.me, event, now, others), effects)
            effects.append(self._receipt(event, subscribers))  # the interest has stored the event by now

    def _is_early(self) -> bool:
        """Whether this peer may not know all subscribers yet."""
        alone = not self.links and self._forms and self.interest.names_everyone
        return alone or not self.subscriptions.knows(self.view.neighbours)

    def _receipt(self, event: Event, subscribers: tuple[PeerId, ...]) -> Receipt:
        return Receipt(event.id, subscribers, self._stored is not None, self._layer.crowded)

    def _publish_to(self, now: Nanos, event: Event, peer: PeerId, effects: Effects) -> None:
        """Publish an event for the subscribers at one peer, such as an answer to its client. Only an interest that
        `names_everyone` can do that."""
        if not self.interest.names_everyone:
            raise ConfigError(NOT_TO_ONE.format(self.config.strategy))
        if peer == self.me:
            self._local.deliver(now, event, now, effects)
        else:
            self._send_alone(now, event, now, peer, effects)
        effects.append(self._receipt(event, (peer,)))

    def _send_alone(self, now: Nanos, event: Event, born: Nanos, peer: PeerId, effects: Effects) -> None:
        """Send an event of this peer to another one that it is for alone."""
        if self._stored is not None:
            self._stored.publish_to(event, born, peer, effects)
        self._route(now, Arrived(self.me, event, born, (peer,)), effects)

    def _unretained(self, now: Nanos, event: Unretained, effects: Effects) -> None:
        self.retained.forget(event.attribute, event.value, effects)

    def _unsent(self, now: Nanos, event: Unsent, effects: Effects) -> None:
        """The driver cannot send a message: no other link would carry it either."""
        message = event.message
        if isinstance(message, Data | Fragment | Control):
            forward = self._retransmission.unsent(now, message.tx, effects)
            if forward is not None:
                self._drop(now, self._router, Drop(forward.event.id, forward.dests, "unsendable"), effects)
        elif isinstance(message, DirectMessage):
            dropped = self._layer.direct.drop(now, message.number)
            if dropped is not None:
                self.on_undelivered(now, *dropped, effects)
        elif isinstance(message, PlainMessage) and event.peer == self.me:  # a multicast
            self._host.tell(now, self._host.by_name[message.plugin], Undelivered(self.me, message.body), effects)

    def _subscribed(self, now: Nanos, event: Subscribed, effects: Effects) -> None:
        if self._local.subscribe(event.subscription, effects):
            self._subscriptions_changed(now, effects)
            if self._pending is not None:
                self._pending.subscribed(now)

    def _unsubscribed(self, now: Nanos, event: Unsubscribed, effects: Effects) -> None:
        if self._local.unsubscribe(event.number, effects):
            self._subscriptions_changed(now, effects)

    def _attached(self, now: Nanos, event: Attached, effects: Effects) -> None:
        if not self._local.durable.attach(now, event, effects):
            effects.append(Refuse(self.me, "no-such-subscription", str(event.number)))

    def _detached(self, now: Nanos, event: Detached, effects: Effects) -> None:
        self._local.durable.detach(event.number)

    def _confirmed(self, now: Nanos, event: Confirmed, effects: Effects) -> None:
        self._local.durable.confirm(now, event.number, event.positions, effects)

    def _advertised(self, now: Nanos, event: Advertised, effects: Effects) -> None:
        if self._local.advertise(event.filter, effects):
            self._subscriptions_changed(now, effects)

    def _planned(self, now: Nanos, event: Planned, effects: Effects) -> None:
        next_hops = () if event.plan is None else event.plan.neighbours(self.me)
        unlinked = [n for n in next_hops if n not in self.links]
        if unlinked:
            raise ConfigError(f"the plan sends from peer {self.me} to {unlinked[0]}, which is not its neighbour")
        self._host.tell(now, self._router, event, effects)

    def _path_found(self, now: Nanos, event: PathFound, effects: Effects) -> None:
        if self._host.membership is not None:
            self._host.tell(now, self._host.membership, event, effects)
        if self.interest.needs.paths:
            self._host.tell(now, self._host.interested, event, effects)
        self._layer.manager.path_found(now, event, effects)

    def _contact_found(self, now: Nanos, event: ContactFound, effects: Effects) -> None:
        if self._host.membership is not None:
            self._host.tell(now, self._host.membership, event, effects)

    def _link_added(self, now: Nanos, event: LinkAdded, effects: Effects) -> None:
        self.check_new_link(event.neighbour.peer)
        self._layer.add(now, event.neighbour, effects)

    def _link_removed(self, now: Nanos, event: LinkRemoved, effects: Effects) -> None:
        self._check_given_links()
        if event.peer not in self.links:
            raise ConfigError(f"peer {self.me} is not linked with peer {event.peer}")
        self._layer.end(now, event.peer, effects)

    def _check_given_links(self) -> None:
        if self.config.membership is not None:
            raise ConfigError(f"the membership {self.config.membership} decides who is linked with peer {self.me}")

    def _stopping(self, now: Nanos, event: Stopping, effects: Effects) -> None:
        away_ns = event.away_ns
        if self._stored is not None and not self.durable:  # its clients have as long to reconnect as after a crash
            away_ns = min(away_ns, self.config.of(DeliverySettings).grace_ns)
        if self._stored is None or not away_ns:
            self._local.withdraw(but_durable=away_ns > 0)
        if away_ns:
            self.subscriptions.will_be_back(away_ns)
            self._layer.leave(now, effects)
        self._subscriptions_changed(now, effects)
        self._host.tell_all(now, event, effects)

    def _paused(self, now: Nanos, event: Paused, effects: Effects) -> None:
        self._layer.paused(now, event.ns)

    def _woken(self, now: Nanos, event: Woken, effects: Effects) -> None:
        self._asked = FOREVER
        self._timers.run(now, effects)
        self._retransmission.clear_answered()

    # ---------------------------------------------------------------- messages of neighbours

    def on_data(self, now: Nanos, link: Link, data: Data, effects: Effects, reassembled: bool = False) -> None:
        sender, tx = link.peer, data.tx
        if tx >> TX_SHIFT != link.incarnation and not self._layer.is_current(now, link, tx >> TX_SHIFT, effects):
            return
        event, dests, ranks, header = data.event, data.dests, data.ranks, data.header
        if (ranks and len(ranks) != len(dests)) or (header is not None and type(header) is not self._header):
            effects.append(Refuse(sender, MISFIT))
            return
        if not link.window.add(tx & TX_MASK):
            self._refuse_or_acknowledge_again(now, link, tx, effects)
            return
        link.note_sent(now)
        age = data.age_ns
        if not 0 <= age <= OLDEST_NS:
            age = min(max(age, 0), OLDEST_NS)
        born = now - age - link.delay_ns
        if event.ttl_ns is not None and event.is_expired(now - born):
            self._expire(now, event, born, dests, effects)
            effects.append(Send(sender, Ack(tx, reassembled)))
            return
        if self._detector is not None:
            self._detector.used(now)
        if self.me in dests:
            self._deliver_named(now, sender, data, born, effects)
            dests, ranks = _others(self.me, dests, ranks)
        if dests:
            arrived = Arrived(sender, event, born, dests, data.path, header, ranks)
            self._forward_named(now, arrived, Ack(tx, reassembled), effects)
            return
        effects.append(Send(sender, Ack(tx, reassembled)))
        if not data.dests:
            self._unnamed(now, sender, data, born, effects)

    def _refuse_or_acknowledge_again(self, now: Nanos, link: Link, tx: int, effects: Effects) -> None:
        """A packet came again, or is too old to say."""
        if link.window.too_old(tx & TX_MASK):
            effects.append(Refuse(link.peer, TOO_OLD))
            return
        link.note_sent(now)
        effects.append(Send(link.peer, Ack(tx)))
        effects.append(Notice("duplicate", link.peer))

    def _expire(self, now: Nanos, event: Event, born: Nanos, dests: tuple[PeerId, ...], effects: Effects) -> None:
        """An event came past its ttl. Others may wait for it here, in their order."""
        if self.me in dests:
            self._local.deliver(now, event, born, effects)
            dests, _ = _others(self.me, dests, ())
        if dests:
            effects.append(Drop(event.id, dests, "expired"))

    def _deliver_named(self, now: Nanos, sender: PeerId, data: Data, born: Nanos, effects: Effects) -> None:
        """A packet names this peer. If the interest does not name everyone, that says only that it may want it."""
        interest, event = self.interest, data.event
        if interest.takes_packets:
            arrived = Arrived(sender, event, born, (self.me,), data.path, data.header)
            self._host.tell(now, self._host.interested, arrived, effects)
        elif interest.names_everyone or self.me in self.subscriptions.targets(event):
            self._local.deliver(now, event, born, effects)

    def _forward_named(self, now: Nanos, arrived: Arrived, ack: Ack, effects: Effects) -> None:
        """Route a packet to the other peers that it names. The event is stored before the ACK."""
        answers = self._next_hops(now, arrived, self.view)
        if self._stored is not None and not self.interest.takes_packets:
            self._stored.accept(arrived.event, arrived.born_ns, answers, effects)
        effects.append(Send(arrived.sender, ack))
        self._carry_out(now, self._router, answers, effects)

    def _unnamed(self, now: Nanos, sender: PeerId, data: Data, born: Nanos, effects: Effects) -> None:
        """A packet without destinations is for all who want it, here and further on."""
        if self.interest.names_everyone or self.interest.takes_packets:
            effects.append(Refuse(sender, "no-destinations"))
            return
        if self.subscriptions.targets(data.event):
            self._local.deliver(now, data.event, born, effects)
        elif self.subscriptions.widened(data.event):
            effects.append(Notice("false-positive", self.me))
        self._route(now, Arrived(sender, data.event, born, (), header=data.header), effects)

    # ---------------------------------------------------------------- effects of plug-ins

    def _carry_out(self, now: Nanos, one: Hosted, answers: list[PluginEffect], effects: Effects) -> None:
        for answer in answers:
            if type(answer) is Forward and one is self._router:
                if answer.peer not in self.links:
                    raise blamed(one, None, f"answered a Forward to {answer.peer!r}, which is not a neighbour")
                if answer.header is not None and type(answer.header) is not self._header:
                    what = type(answer.header).__name__
                    declared = "none" if self._header is type(None) else self._header.__name__
                    raise blamed(one, None, f"answered a Forward whose header is a {what}, but it declares {declared}")
                if answer.event.ttl_ns is not None and answer.event.is_expired(now - answer.born_ns):
                    self._drop(now, one, Drop(answer.event.id, answer.dests, "expired"), effects)
                    continue
                self._retransmission.forward(now, answer, effects)
                if self._detector is not None:
                    self._detector.expect(now, answer.peer)
            elif not self._host.carries_out(now, one, answer, effects):
                action = ACTIONS.get(type(answer))
                if action is None:
                    effects.append(answer)  # type: ignore[arg-type]
                else:
                    action(self, now, one, answer, effects)

    def _give_up(self, now: Nanos, one: Hosted, stuck: GiveUp, effects: Effects) -> None:
        if self._stored is None:
            effects.append(Drop(stuck.event.id, stuck.dests, stuck.code))
        else:
            self._stored.give_up(now, stuck, effects)

    def _drop(self, now: Nanos, one: Hosted, drop: Drop, effects: Effects) -> None:
        effects.append(drop)
        if self._stored is not None:
            self._stored.abandon(drop, effects)

    def _tell(self, now: Nanos, one: Hosted, tell: Tell, effects: Effects) -> None:
        self._layer.tell(now, OutgoingControl(tell.peer, one.name, tell.slot, tell.message), effects)

    def _send_to(self, now: Nanos, one: Hosted, send: SendTo, effects: Effects) -> None:
        self._layer.direct.send(now, send, one.name, effects)

    def _multicast(self, now: Nanos, one: Hosted, cast: Multicast, effects: Effects) -> None:
        effects.append(Multicast(cast.group, PlainMessage(one.name, cast.message)))

    def _leave_to_interest(self, now: Nanos, one: Hosted, left: LeaveToInterest, effects: Effects) -> None:
        self._host.tell(now, self._host.interested, left.arrived, effects)

    def _route_event(self, now: Nanos, one: Hosted, handed: RouteEvent, effects: Effects) -> None:
        self._route(now, handed.arrived, effects)

    def _deliver_here(self, now: Nanos, one: Hosted, arrived: DeliverHere, effects: Effects) -> None:
        self._local.deliver(now, arrived.event, arrived.born_ns, effects)

    def _interest_learned(self, now: Nanos, one: Hosted, learned: InterestLearned, effects: Effects) -> None:
        if self._stored is not None:
            self._stored.interest_learned(now, learned.peer, learned.returned, effects)

    def _make_link(self, now: Nanos, one: Hosted, wanted: MakeLink, effects: Effects) -> None:
        self._layer.make(now, wanted.peer, wanted.path, effects)

    def _reroute(self, now: Nanos, one: Hosted, wanted: Reroute, effects: Effects) -> None:
        self._layer.manager.reroute(now, wanted.peer, wanted.path, effects)

    def _end_link(self, now: Nanos, one: Hosted, wanted: EndLink, effects: Effects) -> None:
        self._layer.end(now, wanted.peer, effects)

    def _route(self, now: Nanos, event: Arrived | Failed | Acked, effects: Effects) -> None:
        self._carry_out(now, self._router, self._next_hops(now, event, self.view), effects)

    def _subscriptions_changed(self, now: Nanos, effects: Effects) -> None:
        self._host.tell_all(now, SubscriptionsChanged(), effects)

    # ---------------------------------------------------------------- what the link layer tells (`LinkUser`)

    def on_message(self, now: Nanos, sender: PeerId, plugin: str, body: Any, effects: Effects) -> None:
        self._host.heard(now, sender, plugin, body, effects)

    def on_undelivered(self, now: Nanos, peer: PeerId, plugin: str, body: Any, effects: Effects) -> None:
        membership = self._host.membership
        if membership is not None:
            self._host.tell(now, membership, Unanswered(peer), effects)
        self._host.tell(now, self._host.by_name[plugin], Undelivered(peer, body), effects)

    def on_failed(self, now: Nanos, forward: Forward, effects: Effects) -> None:
        if forward.event.ttl_ns is not None and forward.event.is_expired(now - forward.born_ns):
            self._drop(now, self._router, Drop(forward.event.id, forward.dests, "expired"), effects)
        else:
            self._route(now, Failed(forward), effects)

    def on_congested(self, now: Nanos, forward: Forward, effects: Effects, full: bool) -> None:
        if forward.event.ttl_ns is not None and forward.event.is_expired(now - forward.born_ns):
            self._drop(now, self._router, Drop(forward.event.id, forward.dests, "expired"), effects)
        elif full:
            given_up = GiveUp(forward.event, forward.born_ns, forward.dests, "send-queue-full", forward.ranks)
            self._give_up(now, self._router, given_up, effects)
        else:
            effects.append(Notice("congested", forward.peer))
            self._route(now, Failed(forward, True), effects)

    def on_loaded(self, loaded: bool) -> None:
        self.view.loaded = loaded

    def on_link_changed(self, now: Nanos, change: LinkChanged, effects: Effects) -> None:
        self._host.tell_all(now, change, effects)

    def on_links_changed(self, now: Nanos, effects: Effects) -> None:
        if len(self.view.neighbours) != len(self.links):
            self.view.neighbours = tuple(sorted(self.links))
        self._host.tell_all(now, LinksChanged(), effects)

    def on_link_returned(self, now: Nanos) -> None:
        if self._stored is not None:
            self._stored.link_returned(now)

    def message_type(self, plugin: str) -> Any:
        hosted = self._host.by_name.get(plugin)
        return None if hosted is None else hosted.plugin.messages

    def _acked(self, now: Nanos, forward: Forward, effects: Effects) -> None:
        if self._stored is not None:
            self._stored.handed_on(forward, effects)
        if forward.confirm:
            self._route(now, Acked(forward), effects)


def _others(me: PeerId, dests: tuple[PeerId, ...], ranks: Ranks) -> tuple[tuple[PeerId, ...], Ranks]:
    """The destinations but this peer, with their ranks."""
    if len(dests) == 1:
        return (), ()
    if ranks:
        ranks = tuple([rank for dest, rank in zip(dests, ranks, strict=False) if dest != me])
    return tuple([dest for dest in dests if dest != me]), ranks


INPUTS: dict[type, Callable[[Peer, Nanos, Any, Effects], None]] = {
    Woken: Peer._woken,
    Paused: Peer._paused,
    Unsent: Peer._unsent,
    Publication: Peer._published,
    Started: Peer._started,
    Subscribed: Peer._subscribed,
    Unsubscribed: Peer._unsubscribed,
    Unretained: Peer._unretained,
    Attached: Peer._attached,
    Detached: Peer._detached,
    Confirmed: Peer._confirmed,
    Advertised: Peer._advertised,
    Planned: Peer._planned,
    PathFound: Peer._path_found,
    ContactFound: Peer._contact_found,
    LinkAdded: Peer._link_added,
    LinkRemoved: Peer._link_removed,
    Stopping: Peer._stopping,
}
"""What the peer does about an input of the driver, but for `Received`."""

ACTIONS: dict[type, Callable[[Peer, Nanos, Hosted, Any, Effects], None]] = {
    GiveUp: Peer._give_up,
    Drop: Peer._drop,
    Tell: Peer._tell,
    SendTo: Peer._send_to,
    Multicast: Peer._multicast,
    LeaveToInterest: Peer._leave_to_interest,
    RouteEvent: Peer._route_event,
    DeliverHere: Peer._deliver_here,
    InterestLearned: Peer._interest_learned,
    MakeLink: Peer._make_link,
    Reroute: Peer._reroute,
    EndLink: Peer._end_link,
}
"""What the peer does about an effect of a plug-in; any other goes to the driver as it is."""
