"""The peer: a pure state machine. `handle(now, input)` returns effects, and nothing else happens.

The peer owns three things and branches once, at the input:

    link layer          link/        numbers, ACKs and retransmission, fragments, estimators, failure detector
    delivery            delivery/    local subscribers, duplicate filter, store-and-forward
    plug-in host        host.py      membership, graphs, interest, routing

A driver needs to know `ports.py`, and nothing of this file but `handle` and `status`.
"""

from collections.abc import Callable
from typing import Any

from wend.model.errors import ConfigError
from wend.model.events import EventId, PeerId
from wend.model.units import FOREVER, Nanos
from wend.protocol.config import DeliverySettings, LinkSettings, PeerConfig
from wend.protocol.delivery.late_joiners import LateJoiners
from wend.protocol.delivery.local import LocalDelivery
from wend.protocol.delivery.store_and_forward import StoreAndForward
from wend.protocol.host import Action, Host, Hosted
from wend.protocol.link.control_fragments import ControlFragments
from wend.protocol.link.direct import DirectMessages
from wend.protocol.link.failure_detector import FailureDetector
from wend.protocol.link.fragments import Reassembly
from wend.protocol.link.hellos import HelloSchedule
from wend.protocol.link.link import Link
from wend.protocol.link.manager import LinkManager
from wend.protocol.link.monitor import LinkMonitor
from wend.protocol.link.retransmission import OutgoingControl, Retransmission
from wend.protocol.link.window import SequenceWindow
from wend.protocol.messages import (
    TX_MASK,
    TX_SHIFT,
    Ack,
    Control,
    ControlFragment,
    Data,
    DirectAck,
    DirectMessage,
    Fragment,
    Hello,
    Message,
    PlainMessage,
)
from wend.protocol.notices import MISFIT, TOO_OLD
from wend.protocol.plugins import (
    Acked,
    Arrived,
    Begun,
    EndLink,
    Failed,
    Forward,
    GiveUp,
    InterestLearned,
    LinkChanged,
    LinksChanged,
    MakeLink,
    Reroute,
    SendTo,
    SubscriptionsChanged,
    Tell,
    Undelivered,
)
from wend.protocol.ports import (
    Advertised,
    Drop,
    Input,
    Notice,
    PathFound,
    Planned,
    Published,
    Receipt,
    Received,
    Refuse,
    Send,
    Started,
    Stopping,
    Subscribed,
    Unsent,
    Unsubscribed,
    WakeAt,
    Woken,
)
from wend.protocol.records import DeliveredRecord, DoneRecord, PendingRecord, StateRecord
from wend.protocol.status import LinkStatus, PeerStatus
from wend.protocol.timers import Effects, Timers

OLDEST_NS = FOREVER
"""The greatest age that a packet may have: what is computed from it must fit records and messages."""


class Peer:
    def __init__(self, config: PeerConfig) -> None:
        self.config = config
        self.me = config.peer
        self.links: dict[PeerId, Link] = {}
        self._timers = Timers()
        self._next_timers = self._timers.heap
        self._asked: Nanos = FOREVER
        settings = config.of(LinkSettings)
        self._host = host = Host(config, self.links, self._timers, self._actions())
        self._router = host.router
        self._header = host.router.header
        self._carry_out = host.carry_out
        self.view = host.view
        self.interest = host.interest
        self._retransmission = Retransmission(config, self.links, self._timers, self._failed)
        self._fragments = ControlFragments()
        self._reassembly = Reassembly()
        self._direct = DirectMessages(config, self._timers, self._undelivered)
        self._detector: FailureDetector | None = None
        if any(needs.failure_detector for needs in host.needs):
            hellos = HelloSchedule(config, self.links)
            self.view.outages = hellos
            self._detector = FailureDetector(hellos, self.links, self._timers, self._retransmission, self._tell_plugins)
        self._stored: StoreAndForward | None = None
        if config.of(DeliverySettings).persistency:
            forming = host.interest.learns_late or config.membership is not None
            late = LateJoiners(config.of(DeliverySettings).retry_limit) if forming else None
            self._stored = StoreAndForward(config, self._timers, host.interest, self.view, late, self._route)
        queue = None if self._stored is None else self._stored.queue
        self._local = LocalDelivery(config, host.interest, self.view, self._timers, queue)
        self._pending = self._local.pending
        uses_paths = settings.trace_paths and any(needs.paths for needs in host.needs)
        self._manager = LinkManager(config, self.links, self._links_changed if uses_paths else None)
        self._monitor = LinkMonitor(
            config, self.links, self._timers, self._retransmission, self._manager, self._resync, self._links_changed
        )
        self._inputs: dict[type, Callable[[Nanos, Any, Effects], None]] = {
            Woken: self._woken,
            Unsent: self._unsent,
            Published: self._published,
            Started: self._started,
            Subscribed: self._subscribed,
            Unsubscribed: self._unsubscribed,
            Advertised: self._advertised,
            Planned: self._planned,
            PathFound: self._path_found,
            Stopping: self._stopping,
        }

    def _actions(self) -> dict[type, Action]:
        """What the peer does about the effects of plug-ins."""
        return {
            Forward: self._forward,
            GiveUp: self._give_up,
            Drop: self._drop,
            Tell: self._tell,
            SendTo: self._send_to,
            InterestLearned: self._interest_learned,
            MakeLink: self._make_link,
            Reroute: self._reroute,
            EndLink: self._end_link,
        }

    # ---------------------------------------------------------------- what a driver may ask

    def handle(self, now: Nanos, event: Input) -> Effects:
        effects: Effects = []
        if type(event) is not Received:
            self._inputs[type(event)](now, event, effects)
        elif (link := self.links.get(event.sender)) is None:
            self._from_elsewhere(now, event.sender, event.message, effects)
        else:  # most of all inputs, so they take the shortest path
            link.heard_ns = now
            if link.troubled:
                self._back_again(now, link, effects)
            message = event.message
            if type(message) is Data:
                self._data(now, link, message, effects)
            elif type(message) is Ack:
                forward = self._retransmission.answered(now, link, message, effects)
                if link.troubled:  # a neighbour that answers hears this peer
                    self._back_again(now, link, effects)
                if forward is not None and (forward.confirm or self._stored is not None):
                    self._acked(now, forward, effects)
            elif type(message) is Hello:
                self._hello(now, link, message, effects)
            elif type(message) is Control:
                self._control(now, link, message, effects)
            elif type(message) is Fragment:
                self._fragment(now, link, message, effects)
            else:
                self._from_elsewhere(now, event.sender, message, effects)
        timers = self._next_timers
        if timers and timers[0][0] != self._asked:
            self._asked = soonest = timers[0][0]
            effects.append(WakeAt(soonest))
        return effects

    def status(self) -> PeerStatus:
        names = {one.kind: one.name for one in self._host.hosted}
        return PeerStatus(
            peer=self.me,
            incarnation=self.config.incarnation,
            strategy=names["routing"],
            interest=names["interest"],
            membership=self.config.membership,
            links=tuple(self._link_status(link) for _, link in sorted(self.links.items())),
            in_flight=len(self._retransmission.under_way()),
            waiting=0 if self._stored is None else len(self._stored.queue),
            plugins=self._host.status(),
        )

    def unfinished(self) -> set[EventId]:
        """Events that this peer still answers for: in flight, waiting for a retry, or waiting in the routing."""
        found = {forward.event.id for forward in self._retransmission.under_way()}
        if self._stored is not None:
            found.update(self._stored.queue.answered_for())
        found.update(self._host.routing.unfinished())
        return found

    @property
    def message_types(self) -> dict[str, Any]:
        """By plug-in: the type of its messages, for decoders."""
        return {one.name: one.message_type for one in self._host.hosted}

    @property
    def header_type(self) -> type:
        """The type of the header that packets carry."""
        return self._header

    @property
    def reassembling(self) -> bool:
        """Whether fragments of an event wait for the others."""
        return bool(self._reassembly)

    @property
    def names_everyone(self) -> bool:
        """Whether receipts name all subscribers that this peer knows, anywhere."""
        return self.interest.names_everyone

    @property
    def follows_plan(self) -> bool:
        return self._host.routing.needs.plan

    def _link_status(self, link: Link) -> LinkStatus:
        heard = link.incarnation > 0  # a neighbour that was heard has said its incarnation
        works = heard and link.up and link.hearing and (self._detector is not None or not link.fails)
        state = "unknown" if not heard else "up" if works else "one-way" if not link.hearing else "down"
        return LinkStatus(link.peer, state, works, link.delay_ns, link.reliability)

    # ---------------------------------------------------------------- inputs of the driver

    def _started(self, now: Nanos, event: Started, effects: Effects) -> None:
        self._local.begin(now)
        self._manager.begin(now, event.neighbours)
        self.view.neighbours = tuple(self.links)
        if self._detector is not None:
            self._detector.begin(now)
        stored = self._recall(now, event, effects)
        if self._stored is not None:
            self._stored.begin(now, tuple(n.peer for n in event.neighbours))
        for wanted in event.subscriptions:
            self._local.subscribe(wanted, effects)
        for text in event.advertisements:
            self._local.advertise(text, effects)
        self._links_changed(now, effects)
        self._subscriptions_changed(now, effects)
        self._monitor.begin(now)
        if event.stored:  # a neighbour may have missed what this peer remembers
            for peer in self.view.neighbours:
                self._resync(now, peer, effects)
        if self._stored is not None and self._pending is not None:
            self._stored.recall(now, self._pending.recall(now, stored, effects), effects)
        self._host.tell_all(now, Begun(self._manager.reachable), effects)
        self._manager.trace(effects)

    def _recall(self, now: Nanos, event: Started, effects: Effects) -> list[PendingRecord]:
        """Take over the records of a former incarnation. Returns the events that it still answered for."""
        pending: dict[EventId, PendingRecord] = {}
        for record in event.stored:
            match record:
                case PendingRecord():
                    pending[record.event.id] = record
                case DoneRecord(id_):
                    pending.pop(id_, None)
                case DeliveredRecord(id_):
                    self._local.recall(id_)
                case StateRecord():
                    self._host.recall(now, record, effects)
        return list(pending.values())

    def _published(self, now: Nanos, event: Published, effects: Effects) -> None:
        made = self._local.number(event)
        if self._local.announce(made, effects):
            self._subscriptions_changed(now, effects)
        interest = self.interest
        wanted = interest.targets(made)
        targets = tuple([t for t in wanted if t != self.me]) if self.me in wanted else wanted
        if self._stored is not None:
            self._stored.publish(now, made, targets, effects)
        effects.append(Receipt(made.id, wanted, self._stored is not None))
        if not interest.knows(self.view.neighbours) or (not self.links and self.config.membership):
            effects.append(Notice("published-early", self.me))
        if len(targets) < len(wanted):
            self._local.deliver(now, made, now, effects)
        if targets or not interest.names_everyone:
            self._route(now, Arrived(self.me, made, now, targets), effects)

    def _unsent(self, now: Nanos, event: Unsent, effects: Effects) -> None:
        """The driver cannot send a message: no other link would carry it either."""
        message = event.message
        if isinstance(message, Data | Fragment | Control):
            forward = self._retransmission.unsent(message.tx, effects)
            if forward is not None:
                self._drop(now, self._router, Drop(forward.event.id, forward.dests, "cannot be sent"), effects)
        elif isinstance(message, DirectMessage):
            dropped = self._direct.drop(message.number)
            if dropped is not None:
                self._undelivered(now, *dropped, effects)

    def _subscribed(self, now: Nanos, event: Subscribed, effects: Effects) -> None:
        if self._local.subscribe(event.subscription, effects):
            self._subscriptions_changed(now, effects)
            if self._pending is not None:
                self._pending.subscribed(now)

    def _unsubscribed(self, now: Nanos, event: Unsubscribed, effects: Effects) -> None:
        self.interest.unsubscribe(event.number)
        self._subscriptions_changed(now, effects)

    def _advertised(self, now: Nanos, event: Advertised, effects: Effects) -> None:
        if self._local.advertise(event.filter, effects):
            self._subscriptions_changed(now, effects)

    def _planned(self, now: Nanos, event: Planned, effects: Effects) -> None:
        unlinked = [n for n in event.plan.neighbours(self.me) if n not in self.links]
        if unlinked:
            raise ConfigError(f"the plan sends from peer {self.me} to {unlinked[0]}, which is not its neighbour")
        self._host.tell(now, self._router, event, effects)

    def _path_found(self, now: Nanos, event: PathFound, effects: Effects) -> None:
        if self._host.membership is not None:
            self._host.tell(now, self._host.membership, event, effects)
        self._manager.path_found(now, event, effects)

    def _stopping(self, now: Nanos, event: Stopping, effects: Effects) -> None:
        self.interest.withdraw()
        self._subscriptions_changed(now, effects)
        self._host.tell_all(now, event, effects)

    def _woken(self, now: Nanos, event: Woken, effects: Effects) -> None:
        self._asked = FOREVER
        self._timers.run(now, effects)
        self._retransmission.clear_answered()

    # ---------------------------------------------------------------- messages of neighbours

    def _data(self, now: Nanos, link: Link, data: Data, effects: Effects, whole: bool = False) -> None:
        sender, tx = link.peer, data.tx
        if tx >> TX_SHIFT != link.incarnation and not self._current(now, link, tx >> TX_SHIFT, effects):
            return
        dests, ranks, me = data.dests, data.ranks, self.me
        header = data.header
        if (ranks and len(ranks) != len(dests)) or (header is not None and type(header) is not self._header):
            effects.append(Refuse(sender, MISFIT))
            return
        if not link.window.add(tx & TX_MASK):
            if link.window.too_old(tx & TX_MASK):
                effects.append(Refuse(sender, TOO_OLD))
                return
            link.sent_ns = now
            effects.append(Send(sender, Ack(tx)))
            effects.append(Notice("duplicate", sender))
            return
        event, age = data.event, data.age_ns
        if not 0 <= age <= OLDEST_NS:
            age = 0 if age < 0 else OLDEST_NS
        born = now - age - link.delay_ns
        if self._detector is not None:
            self._detector.used(now)
        if me in dests:
            # where the interest does not name everyone, destinations are peers that may want it
            if self.interest.names_everyone or me in self.interest.targets(event):
                self._local.deliver(now, event, born, effects)
            if len(dests) == 1:
                dests = ()
            else:
                if ranks:
                    ranks = tuple([r for d, r in zip(dests, ranks, strict=False) if d != me])
                dests = tuple([d for d in dests if d != me])
        link.sent_ns = now
        if not dests:
            effects.append(Send(sender, Ack(tx, whole)))
            if not data.dests:
                self._unnamed(now, sender, data, born, effects)
            return
        arrived = Arrived(sender, event, born, dests, data.path, header, ranks)
        answers = self._host.ask(now, self._router, arrived)
        if self._stored is not None:
            self._stored.accept(event, born, answers, effects)
        effects.append(Send(sender, Ack(tx, whole)))
        self._carry_out(now, self._router, answers, effects)

    def _unnamed(self, now: Nanos, sender: PeerId, data: Data, born: Nanos, effects: Effects) -> None:
        """A packet without destinations is for all who want it, here and further on."""
        if self.interest.names_everyone:
            effects.append(Refuse(sender, "sends to nobody by name, where events go by name"))
            return
        if self.interest.targets(data.event):
            self._local.deliver(now, data.event, born, effects)
        self._route(now, Arrived(sender, data.event, born, (), header=data.header), effects)

    def _fragment(self, now: Nanos, link: Link, fragment: Fragment, effects: Effects) -> None:
        incarnation = fragment.tx >> TX_SHIFT
        if incarnation != link.incarnation and not self._current(now, link, incarnation, effects):
            return
        data = self._reassembly.take(now, link, fragment, effects)
        if data is not None:
            self._data(now, link, data, effects, whole=True)

    def _control(self, now: Nanos, link: Link, message: Control, effects: Effects) -> None:
        incarnation = message.tx >> TX_SHIFT
        if incarnation != link.incarnation and not self._current(now, link, incarnation, effects):
            return
        body, name, sender = message.body, message.plugin, link.peer
        if type(body) is ControlFragment:
            reason = self._fragments.refuses(now, sender, name, body)
            if reason is not None:
                effects.append(Refuse(sender, reason))
                return
        link.sent_ns = now
        effects.append(Send(sender, Ack(message.tx)))
        # plug-ins version their messages, so a repetition changes nothing: it needs no window
        if type(body) is ControlFragment:
            hosted = self._host.by_name.get(name)
            kind = None if hosted is None else hosted.plugin.messages
            body = None if kind is None else self._fragments.take(now, sender, name, body, kind, effects)
            if body is None:
                return
        if body is not None:  # an empty one only asks for an answer
            self._host.heard(now, sender, name, body, effects)

    def _hello(self, now: Nanos, link: Link, hello: Hello, effects: Effects) -> None:
        if hello.incarnation != link.incarnation and not self._current(now, link, hello.incarnation, effects):
            return
        if hello.within_ns and hello.within_ns != link.promised_ns:
            link.promised(hello.within_ns)
        if hello.hearing != link.hearing:
            # the neighbour does not hear this peer, or hears it again
            link.hearing = hello.hearing
            if not link.up and hello.hearing:
                self._back_again(now, link, effects)
                return
            self._tell_plugins(now, LinkChanged(link.peer, hello.hearing), effects)

    def _from_elsewhere(self, now: Nanos, sender: PeerId, message: Message, effects: Effects) -> None:
        """A message that needs no link."""
        if type(message) is PlainMessage:
            self._host.heard(now, sender, message.plugin, message.body, effects)
        elif type(message) is DirectMessage:
            if self._direct.accept(sender, message, effects):
                self._host.heard(now, sender, message.plugin, message.body, effects)
        elif type(message) is DirectAck:
            self._direct.acknowledged(sender, message)
        else:
            effects.append(Refuse(sender, "not a neighbour"))

    def _current(self, now: Nanos, link: Link, incarnation: int, effects: Effects) -> bool:
        """False for a message of an incarnation that is over. A new incarnation is told everything."""
        if incarnation < link.incarnation:
            effects.append(Refuse(link.peer, "speaks from an earlier incarnation"))
            return False
        first = link.incarnation == 0
        link.incarnation = incarnation
        link.window = SequenceWindow()
        self._reassembly.forget(link.peer)
        self._fragments.forget(link.peer)
        if not first:
            self._resync(now, link.peer, effects, restarted=True)
            self._retransmission.begin_again(now, link.peer, effects)
        return True

    def _back_again(self, now: Nanos, link: Link, effects: Effects) -> None:
        """The neighbour was heard, after silence or unanswered packets."""
        if self._detector is not None and not self._detector.heard_again(now, link, effects):
            return
        link.troubled = False
        if link.missed:
            link.missed = False
            self._resync(now, link.peer, effects)
        link.fails = 0
        if self._stored is not None:
            self._stored.link_returned(now)

    # ---------------------------------------------------------------- effects of plug-ins

    def _forward(self, now: Nanos, one: Hosted, forward: Forward, effects: Effects) -> None:
        self._retransmission.forward(now, forward, effects)
        if self._detector is not None:
            self._detector.expect(now, forward.peer)

    def _give_up(self, now: Nanos, one: Hosted, stuck: GiveUp, effects: Effects) -> None:
        if self._stored is None:
            effects.append(Drop(stuck.event.id, stuck.dests, stuck.reason))
        else:
            self._stored.give_up(now, stuck, effects)

    def _drop(self, now: Nanos, one: Hosted, drop: Drop, effects: Effects) -> None:
        effects.append(drop)
        if self._stored is not None:
            self._stored.abandon(drop, effects)

    def _tell(self, now: Nanos, one: Hosted, tell: Tell, effects: Effects) -> None:
        if tell.peer in self.links:
            control = OutgoingControl(tell.peer, one.name, tell.slot, tell.message)
            for part in self._fragments.cut(control, effects):
                self._retransmission.tell(now, part, effects)

    def _send_to(self, now: Nanos, one: Hosted, send: SendTo, effects: Effects) -> None:
        self._direct.send(now, send.peer, one.name, send.message, send.acknowledged, effects)

    def _undelivered(self, now: Nanos, peer: PeerId, name: str, body: Any, effects: Effects) -> None:
        self._host.tell(now, self._host.by_name[name], Undelivered(peer, body), effects)

    def _interest_learned(self, now: Nanos, one: Hosted, learned: InterestLearned, effects: Effects) -> None:
        if self._stored is not None:
            self._stored.interest_learned(now, learned.peer, effects)

    def _make_link(self, now: Nanos, one: Hosted, wanted: MakeLink, effects: Effects) -> None:
        self._manager.make(now, wanted.peer, wanted.path)
        self.view.neighbours = tuple(sorted(self.links))
        effects.append(Notice("linked", wanted.peer))
        self._links_changed(now, effects)
        self._resync(now, wanted.peer, effects)
        if self._detector is not None:
            self._detector.probe_soon(now)
        self._manager.trace(effects)

    def _reroute(self, now: Nanos, one: Hosted, wanted: Reroute, effects: Effects) -> None:
        self._manager.reroute(now, wanted.peer, wanted.path, effects)

    def _end_link(self, now: Nanos, one: Hosted, wanted: EndLink, effects: Effects) -> None:
        peer = wanted.peer
        in_flight = self._retransmission.end(peer)
        del self.links[peer]
        self.view.neighbours = tuple(sorted(self.links))
        self._reassembly.forget(peer)
        self._fragments.forget(peer)
        effects.append(Notice("unlinked", peer))
        if self._detector is not None:
            self._detector.unlinked(now, peer)
        self._links_changed(now, effects)
        for forward in in_flight:
            self._route(now, Failed(forward), effects)
        self._tell_plugins(now, LinkChanged(peer, False), effects)

    # ---------------------------------------------------------------- news for plug-ins

    def _route(self, now: Nanos, event: Arrived | Failed | Acked, effects: Effects) -> None:
        self._host.tell(now, self._router, event, effects)

    def _tell_plugins(self, now: Nanos, event: LinkChanged | Failed, effects: Effects) -> None:
        if type(event) is Failed:
            self._route(now, event, effects)
        else:
            self._host.tell_all(now, event, effects)

    def _links_changed(self, now: Nanos, effects: Effects) -> None:
        self._host.tell_all(now, LinksChanged(), effects)

    def _subscriptions_changed(self, now: Nanos, effects: Effects) -> None:
        self._host.tell_all(now, SubscriptionsChanged(), effects)

    def _resync(self, now: Nanos, peer: PeerId, effects: Effects, restarted: bool = False) -> None:
        """A neighbour may know nothing: plug-ins tell it everything."""
        self._host.tell_all(now, LinkChanged(peer, True, fresh=True, restarted=restarted), effects)

    def _failed(self, now: Nanos, forward: Forward, effects: Effects) -> None:
        if self._detector is not None:
            self._detector.unanswered(now, self.links[forward.peer], effects)
        self._route(now, Failed(forward), effects)

    def _acked(self, now: Nanos, forward: Forward, effects: Effects) -> None:
        if self._stored is not None:
            self._stored.handed_on(forward, effects)
        if forward.confirm:
            self._route(now, Acked(forward), effects)
