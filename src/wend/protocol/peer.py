"""The peer: a pure state machine. `handle(now, input)` returns effects, and nothing else happens.

Inputs branch once, at the door; data takes the shortest way through. This file tells what happens then; who does it:

    carrier.py        asks the plug-ins (graph, interest, routing) and carries out what they answer
    transmissions.py  numbers, ACKs, retransmission
    monitor.py        what links are like, measured anew every period
    watch.py          which links fell silent, for strategies that want to know
    custody.py        what this peer answers for, where persistency is on
    local.py          the application: what it publishes, offers, wants, and is handed
    returning.py      what it cannot be handed yet, after a restart
    parts.py          large events, put together
    neighbourhood.py  which links there are

A driver needs to know `ports.py` and nothing of this file.
"""

from collections.abc import Callable
from typing import Any

from wend.model.errors import ConfigError
from wend.model.events import EventId, PeerId
from wend.model.units import FOREVER, Nanos
from wend.protocol.config import LinkSettings, PeerConfig
from wend.protocol.delivery.local import LocalDelivery
from wend.protocol.delivery.retry_queue import RetryQueue
from wend.protocol.host import Host
from wend.protocol.link.fragments import Reassembly
from wend.protocol.link.link import Link
from wend.protocol.link.manager import LinkManager
from wend.protocol.link.monitor import LinkMonitor
from wend.protocol.messages import (
    TX_MASK,
    TX_SHIFT,
    Ack,
    Control,
    ControlFragment,
    Data,
    DeliveredRecord,
    DoneRecord,
    Fragment,
    Hello,
    LinkState,
    Message,
    PeerInterest,
    PendingRecord,
    PlainMessage,
    StateRecord,
)
from wend.protocol.notices import MISFIT, TOO_OLD
from wend.protocol.plugins import Arrived, Failed, LinkChanged
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
from wend.protocol.timers import Effects, Timers

OLDEST_NS = FOREVER
"""An age above it is taken for it: what is computed from it must fit records and messages."""


class Peer:
    def __init__(self, config: PeerConfig) -> None:
        self.config = config
        self.me = config.peer
        self.links: dict[PeerId, Link] = {}
        self._timers = Timers()
        self._next_timers = self._timers.heap
        self._asked: Nanos = FOREVER
        self._carrier = carrier = Host(config, self.links, self._timers)
        self._carry_out = carrier.carry_out
        self.view, self.graph = carrier.view, carrier.graph
        self.interest, self.routing = carrier.interest, carrier.routing
        self.transmissions = carrier.transmissions
        self._watch, self._custody = carrier.watch, carrier.custody
        self._local = LocalDelivery(config, self.interest, self.graph, self._timers, self.keep)
        self._returning = self._local.returning
        self._assembly = Reassembly()
        traced = carrier.flood_links if config.of(LinkSettings).trace_paths and self.routing.traits.traces else None
        self._neighbourhood = LinkManager(config, self.links, self._timers, self._linked, self._unlinked, traced)
        self._monitor = LinkMonitor(config, self.links, self._timers, carrier, self._neighbourhood)
        self._doors: dict[type, Callable[[Nanos, Any, Effects], None]] = {
            Woken: self._woken,
            Unsent: self._unsent,
            Published: self._published,
            Started: self._started,
            Subscribed: self._subscribed,
            Unsubscribed: self._unsubscribed,
            Advertised: self._advertised,
            Planned: self._planned,
            PathFound: self._neighbourhood.path_found,
            Stopping: self._stopping,
        }

    @property
    def keep(self) -> RetryQueue | None:
        """What this peer answers for, where persistency is on."""
        return None if self._custody is None else self._custody.keep

    def handle(self, now: Nanos, event: Input) -> Effects:
        effects: Effects = []
        if type(event) is not Received:
            self._doors[type(event)](now, event, effects)
        elif (link := self.links.get(event.sender)) is None:
            self._stranger(now, event.sender, event.message, effects)
        else:  # most of all inputs, so this door stands wide open
            link.heard_ns = now
            if link.suspected:
                self._back_again(now, link, effects)
            message = event.message
            if type(message) is Data:
                self._data(now, link, message, effects)
            elif type(message) is Ack:
                forward = self.transmissions.answered(now, link, message, effects)
                if link.suspected:  # what it answered, it heard
                    self._back_again(now, link, effects)
                if forward is not None and (forward.watch or self._custody is not None):
                    self._carrier.acked(now, forward, effects)
            elif type(message) is Hello:
                self._hello(now, link, message, effects)
            elif type(message) is Control:
                self._reliable(now, link, message, effects)
            elif type(message) is Fragment:
                self._part(now, link, message, effects)
            elif type(message) is PlainMessage:
                self._neighbourhood.letter(now, event.sender, message, effects)
        timers = self._next_timers
        if timers and timers[0][0] != self._asked:
            self._asked = soonest = timers[0][0]
            effects.append(WakeAt(soonest))
        return effects

    # ---------------------------------------------------------------- what the driver says

    def _started(self, now: Nanos, event: Started, effects: Effects) -> None:
        self._local.begin(now)
        self._neighbourhood.begin(now, event.neighbours)
        self.view.neighbours = tuple(self.links)
        if self._watch is not None:
            self._watch.begin(now)
        kept = self._recall(event)
        if self._custody is not None:
            self._custody.begin(now, tuple(n.peer for n in event.neighbours))
        for wanted in event.subscriptions:
            self._local.subscribe(wanted, effects)
        for offer in event.advertisements:
            self._local.advertise(offer, effects)
        self._carrier.flood_links(now, effects)
        self._carrier.flood_interest(now, effects)
        self._monitor.begin(now)
        if event.stored:  # a neighbour may have missed what this peer remembers
            for peer in self.view.neighbours:
                self._carrier.resync(now, peer, effects)
        if self._custody is not None and self._returning is not None:
            self._custody.recall(now, self._returning.recall(now, kept, effects), effects)
        self._neighbourhood.join(now, effects)
        self._neighbourhood.trace(effects)

    def _recall(self, event: Started) -> list[PendingRecord]:
        """What a former life left: duties without an end, events already notified, flooded state."""
        kept: dict[EventId, PendingRecord] = {}
        for record in event.stored:
            match record:
                case PendingRecord():
                    kept[record.event.id] = record
                case DoneRecord(id_):
                    kept.pop(id_, None)
                case DeliveredRecord(id_):
                    self._local.recall(id_)
                case StateRecord(LinkState() as state):
                    self.graph.recall(state)
                case StateRecord(PeerInterest() as state):
                    self.interest.recall(state)
        return list(kept.values())

    def _published(self, now: Nanos, event: Published, effects: Effects) -> None:
        made = self._local.number(event)
        if self._local.announce(made, effects):
            self._carrier.flood_interest(now, effects)
        wanted = self.interest.targets(made)
        targets = tuple([t for t in wanted if t != self.me]) if self.me in wanted else wanted
        if self._custody is not None:
            self._custody.publish(now, made, targets, effects)
        effects.append(Receipt(made.id, wanted, self._custody is not None))
        if not self.interest.heard(self.view.neighbours) or (not self.links and self.config.membership):
            effects.append(Notice("published-unheard", self.me))  # a neighbour has not told yet what it wants
        if len(targets) < len(wanted):
            self._local.notify(now, made, now, effects)
        if targets or not self.interest.names_everyone:
            self._carrier.route(now, Arrived(self.me, made, now, targets), effects)

    def _unsent(self, now: Nanos, event: Unsent, effects: Effects) -> None:
        """No other link would carry it either."""
        if isinstance(event.message, Data | Fragment | Control):
            forward = self.transmissions.unsent(event.message.tx, effects)
            if forward is not None:
                self._carrier.carry_out(now, [Drop(forward.event.id, forward.dests, "cannot be sent")], effects)

    def _subscribed(self, now: Nanos, event: Subscribed, effects: Effects) -> None:
        if self._local.subscribe(event.subscription, effects):
            self._carrier.flood_interest(now, effects)
            if self._returning is not None:
                self._returning.subscribed(now)

    def _unsubscribed(self, now: Nanos, event: Unsubscribed, effects: Effects) -> None:
        self.interest.unsubscribe(event.number)
        self._carrier.flood_interest(now, effects)

    def _advertised(self, now: Nanos, event: Advertised, effects: Effects) -> None:
        if self._local.advertise(event.filter, effects):
            self._carrier.flood_interest(now, effects)

    def _planned(self, now: Nanos, event: Planned, effects: Effects) -> None:
        strangers = [n for n in event.plan.neighbours(self.me) if n not in self.links]
        if strangers:
            raise ConfigError(f"the plan sends from peer {self.me} to {strangers[0]}, which is not its neighbour")
        self._carrier.route(now, event, effects)

    def _stopping(self, now: Nanos, event: Stopping, effects: Effects) -> None:
        self.interest.withdraw()
        self._carrier.flood_interest(now, effects)
        self._neighbourhood.leave(now, effects)

    # ---------------------------------------------------------------- neighbours that come and go

    def _stranger(self, now: Nanos, sender: PeerId, message: Message, effects: Effects) -> None:
        if type(message) is PlainMessage:
            self._neighbourhood.letter(now, sender, message, effects)
        else:
            effects.append(Refuse(sender, "not a neighbour"))

    def _linked(self, now: Nanos, peer: PeerId, effects: Effects) -> None:
        self.view.neighbours = tuple(sorted(self.links))
        effects.append(Notice("linked", peer))
        self._carrier.flood_links(now, effects)
        self._carrier.resync(now, peer, effects)
        if self._watch is not None:
            self._watch.probe_soon(now)

    def _unlinked(self, now: Nanos, peer: PeerId, effects: Effects) -> None:
        waiting = self.transmissions.end(peer)
        del self.links[peer]
        self.view.neighbours = tuple(sorted(self.links))
        self._assembly.forget(peer)
        self._carrier.sheets.forget(peer)
        effects.append(Notice("unlinked", peer))
        if self._watch is not None:
            self._watch.unlinked(now, peer)
        self._carrier.flood_links(now, effects)
        for forward in waiting:
            self._carrier.route(now, Failed(forward), effects)
        self._carrier.route(now, LinkChanged(peer, False), effects)

    # ---------------------------------------------------------------- what neighbours say

    def _data(self, now: Nanos, link: Link, data: Data, effects: Effects, whole: bool = False) -> None:
        sender, tx = link.peer, data.tx
        if tx >> TX_SHIFT != link.incarnation and not self._same_life(now, link, tx >> TX_SHIFT, effects):
            return
        dests, routes, ranks, me = data.dests, data.routes, data.ranks, self.me
        if (routes and len(routes) != len(dests)) or (ranks and len(ranks) != len(dests)):
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
        if self._watch is not None:
            self._watch.used(now)
        if me in dests:
            # where not everyone is known, names are those who may want it
            if self.interest.names_everyone or me in self.interest.targets(event):
                self._local.notify(now, event, born, effects)
            if len(dests) == 1:
                dests = ()
            else:
                if routes:
                    routes = tuple([r for d, r in zip(dests, routes, strict=False) if d != me])
                if ranks:
                    ranks = tuple([m for d, m in zip(dests, ranks, strict=False) if d != me])
                dests = tuple([d for d in dests if d != me])
        link.sent_ns = now
        if not dests:
            effects.append(Send(sender, Ack(tx, whole)))
            if not data.dests:
                self._to_whoever(now, sender, data, born, effects)
            return
        arrived = Arrived(sender, event, born, dests, data.path, routes, ranks, data.lane)
        answers = self.routing.handle(now, arrived, self.view)
        if self._custody is not None:
            self._custody.accept(event, born, answers, effects)
        effects.append(Send(sender, Ack(tx, whole)))
        self._carry_out(now, answers, effects)

    def _to_whoever(self, now: Nanos, sender: PeerId, data: Data, born: Nanos, effects: Effects) -> None:
        """It names nobody: it is for those who want it, here and further on."""
        if self.interest.names_everyone:
            effects.append(Refuse(sender, "sends to nobody by name, where events go by name"))
            return
        if self.interest.targets(data.event):
            self._local.notify(now, data.event, born, effects)
        self._carrier.route(now, Arrived(sender, data.event, born, (), lane=data.lane), effects)

    def _part(self, now: Nanos, link: Link, part: Fragment, effects: Effects) -> None:
        life = part.tx >> TX_SHIFT
        if life != link.incarnation and not self._same_life(now, link, life, effects):
            return
        data = self._assembly.take(now, link, part, effects)
        if data is not None:
            self._data(now, link, data, effects, whole=True)

    def _reliable(self, now: Nanos, link: Link, message: Control, effects: Effects) -> None:
        life = message.tx >> TX_SHIFT
        if life != link.incarnation and not self._same_life(now, link, life, effects):
            return
        if type(message.body) is ControlFragment:
            reason = self._carrier.sheets.refuses(now, link.peer, message.body)
            if reason is not None:
                effects.append(Refuse(link.peer, reason))
                return
        link.sent_ns = now
        effects.append(Send(link.peer, Ack(message.tx)))
        # versioned, so a repetition changes nothing: it needs no window
        self._carrier.heard(now, link.peer, message.body, effects)

    def _hello(self, now: Nanos, link: Link, hello: Hello, effects: Effects) -> None:
        if hello.incarnation != link.incarnation and not self._same_life(now, link, hello.incarnation, effects):
            return
        if link.hello(hello.hearing, hello.within_ns):
            # it does not hear us: dead towards it, though not from it; or that is over
            if not link.up and hello.hearing:
                self._back_again(now, link, effects)
                return
            self._carrier.route(now, LinkChanged(link.peer, hello.hearing), effects)

    def _same_life(self, now: Nanos, link: Link, incarnation: int, effects: Effects) -> bool:
        """False for a message from a life that is over. A new life is told everything."""
        if incarnation < link.incarnation:
            effects.append(Refuse(link.peer, "speaks from an earlier life"))
            return False
        restarted = link.new_incarnation(incarnation)
        self._assembly.forget(link.peer)
        self._carrier.sheets.forget(link.peer)
        if restarted:
            self._carrier.resync(now, link.peer, effects, restarted=True)
            self.transmissions.begin_again(now, link.peer, effects)
        return True

    # ---------------------------------------------------------------- links: back again

    def _back_again(self, now: Nanos, link: Link, effects: Effects) -> None:
        """A sign of life after silence or unanswered packets."""
        if self._watch is not None:
            self._watch.heard_again(now, link, effects)
        if not link.up:
            return
        if link.cleared():
            self._carrier.resync(now, link.peer, effects)
        if self._custody is not None:
            self._custody.link_returned(now)

    # ---------------------------------------------------------------- timers

    def _woken(self, now: Nanos, event: Woken, effects: Effects) -> None:
        self._asked = FOREVER
        self._timers.run(now, effects)
        self.transmissions.clear_answered()
