"""The peer: a pure state machine. `handle(now, input)` returns effects, and nothing else happens.

It owns the links, what is under way over them (`transmissions.py`), the timers, and three plug-ins: the flooded
graph, the interest, the routing. Inputs branch once, at the door; data takes the shortest way through. A
driver needs to know `ports.py` and nothing of this file.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from wend.matching.filters import topic_filter
from wend.model.errors import ConfigError, FilterError
from wend.model.events import Event, EventId, PeerId
from wend.model.units import Nanos
from wend.protocol.config import PeerConfig
from wend.protocol.custody import Custody
from wend.protocol.interest import INTEREST
from wend.protocol.keep import FOREVER, Keep
from wend.protocol.link_state import FloodedGraph
from wend.protocol.links import Link
from wend.protocol.liveness import Liveness
from wend.protocol.messages import (
    TX_MASK,
    TX_SHIFT,
    Ack,
    Data,
    Done,
    Hello,
    Interest,
    Kept,
    Learned,
    Letter,
    LinkState,
    Notified,
    Part,
    Reliable,
)
from wend.protocol.neighbourhood import Neighbourhood
from wend.protocol.newcomers import Newcomers
from wend.protocol.parts import Assembly
from wend.protocol.plugins import (
    CHANGED,
    DUE,
    Acked,
    Alarm,
    Arrived,
    Changed,
    Failed,
    Forward,
    GiveUp,
    Heard,
    LinkChanged,
    PluginEffect,
    Tell,
    View,
)
from wend.protocol.ports import (
    Advertised,
    Deliver,
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
    Standing,
    Started,
    Stopping,
    Store,
    Subscribed,
    Unsubscribed,
    WakeAt,
    Woken,
)
from wend.protocol.routing import routing
from wend.protocol.timers import Effects, Timers
from wend.protocol.transmissions import Transmissions
from wend.protocol.window import Seen, Window

ANYTHING = "true"
"""What a peer offers that publishes events without a topic and has not said which."""
AUTO_OFFERS = 256
"""Topics that are advertised just because they were published: all offers travel in one message."""


class Peer:
    def __init__(self, config: PeerConfig) -> None:
        self.config = config
        self.me = config.peer
        self.links: dict[PeerId, Link] = {}
        self.graph = FloodedGraph()
        self.routing = routing(config.strategy)
        along = self.routing.hop_by_hop and not config.persistency  # a duty names who is to get the event
        self.interest = INTEREST["trees" if along else "flooded"]()
        self._liveness = Liveness(config, self.links) if self.routing.probes else None
        self.view = View(config, self.links, self.graph, self.interest, self._liveness)
        self._sequence = 0
        self._life = config.incarnation
        self._began: Nanos = 0
        self._seen = Seen(4 * config.keep_msgs if config.persistency else 0)
        self._timers = Timers()
        self._next_timers = self._timers.heap
        self._assembly = Assembly()
        self._custody = Custody(config, self._timers, self._deadline_ns, self._route) if config.persistency else None
        self._newcomers = Newcomers(config.keep_msgs) if config.persistency and self.routing.hop_by_hop else None
        self.transmissions = Transmissions(config, self.links, self._timers, self._failed)
        self._asked: Nanos = FOREVER
        self._probe_ns: Nanos = FOREVER
        traced = self._traced if config.traces and self.routing.traces else None
        self._neighbourhood = Neighbourhood(config, self.links, self._timers, self._linked, self._unlinked, traced)
        self._doors: dict[type, Callable[[Nanos, Any, Effects], None]] = {
            Woken: self._woken,
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
    def keep(self) -> Keep | None:
        """What this peer answers for, where persistency is on."""
        return None if self._custody is None else self._custody.keep

    def handle(self, now: Nanos, event: Input) -> Effects:
        effects: Effects = []
        if type(event) is Received:  # most of all inputs, so the door stands wide open for them
            link = self.links.get(event.sender)
            if link is None:
                return self._stranger(now, event, effects)
            link.heard_ns = now
            if link.troubled:
                self._back_again(now, link, effects)
            message = event.message
            if type(message) is Data:
                self._data(now, link, message, effects)
            elif type(message) is Ack:
                forward = self.transmissions.answered(now, link, message.tx, effects)
                if forward is not None and (forward.watch or self._custody is not None):
                    self._acked(now, forward, effects)
            elif type(message) is Hello:
                self._hello(now, link, message, effects)
            elif type(message) is Reliable:
                self._reliable(now, link, message, effects)
            elif type(message) is Part:
                self._part(now, link, message, effects)
            elif type(message) is Letter:
                self._neighbourhood.letter(now, event.sender, message, effects)
        else:
            self._doors[type(event)](now, event, effects)
        timers = self._next_timers
        if timers and timers[0][0] != self._asked:
            self._asked = soonest = timers[0][0]
            effects.append(WakeAt(soonest))
        return effects

    # ---------------------------------------------------------------- what the driver says

    def _started(self, now: Nanos, event: Started, effects: Effects) -> None:
        self._began = now
        self._neighbourhood.begin(now, event.neighbours)
        self.view.neighbours = tuple(self.links)
        if self._liveness is not None:
            self._liveness.begin(now)
            self._probe_soon(now)
        kept = self._recall(event)
        if self._newcomers is not None:
            self._newcomers.begin(now, self.interest.origins)
        for wanted in event.subscriptions:
            self._subscribe(wanted, effects)
        for offer in event.advertisements:
            try:
                self.interest.advertise(offer)
            except FilterError as error:
                effects.append(Refuse(self.me, str(error)))
        self._carry_on(now, self.graph.handle(now, CHANGED, self.view), effects)
        self._carry_on(now, self.interest.handle(now, CHANGED, self.view), effects)
        # peers that start together should not all measure, and flood, together
        apart = self.me * 0x9E3779B1 % 1024 * self.config.monitor_ns // 1024
        self._timers.at(now + self.config.monitor_ns + apart, self._first_monitor, None)
        if event.stored:  # a neighbour may have missed what this peer remembers
            for peer in self.view.neighbours:
                self._resync(now, peer, effects)
        if self._custody is not None:
            self._custody.recall(now, kept, effects)
        self._neighbourhood.join(now, effects)
        self._neighbourhood.trace(effects)
        if self.routing.hop_by_hop:
            self._carry_on(now, self.routing.handle(now, DUE, self.view), effects)

    def _recall(self, event: Started) -> list[Kept]:
        """What a former life left: duties without an end, events already notified, flooded state."""
        kept: dict[EventId, Kept] = {}
        for record in event.stored:
            match record:
                case Kept():
                    kept[record.event.id] = record
                case Done(id_):
                    kept.pop(id_, None)
                case Notified(id_):
                    self._seen.add(id_)
                case Learned(LinkState() as state):
                    self.graph.recall(state)
                case Learned(Interest() as state):
                    self.interest.recall(state)
        return list(kept.values())

    def _published(self, now: Nanos, event: Published, effects: Effects) -> None:
        self._sequence += 1
        number = EventId(self.me, self.config.incarnation, self._sequence)
        made = Event(number, event.attributes, event.payload, event.headers)
        if not self.interest.offers(made, self.me):
            topic = made.attributes.get("topic")
            if self.interest.offered < AUTO_OFFERS:
                self._advertise(now, topic_filter(topic) if isinstance(topic, str) else ANYTHING, effects)
            else:
                effects.append(Notice("not advertised", self.me))
        wanted = self.interest.targets(made)
        targets = tuple([t for t in wanted if t != self.me]) if self.me in wanted else wanted
        if targets and self._custody is not None:
            self._custody.publish(now, made, targets, effects)
        effects.append(Receipt(made.id, wanted, self._custody is not None))
        if self._newcomers is not None and self._newcomers.published(now, made):
            effects.append(Notice("held", self.me))
        if len(targets) < len(wanted):
            self._notify(now, made, now, effects)
        if targets or (self.routing.hop_by_hop and self._custody is None):
            self._route(now, Arrived(self.me, made, now, targets), effects)

    def _subscribed(self, now: Nanos, event: Subscribed, effects: Effects) -> None:
        if self._subscribe(event.subscription, effects):
            self._carry_on(now, self.interest.handle(now, CHANGED, self.view), effects)

    def _subscribe(self, wanted: Standing, effects: Effects) -> bool:
        if wanted.qos.reliability is None and self.config.reliability is not None:
            qos = msgspec.structs.replace(wanted.qos, reliability=self.config.reliability)
            wanted = Standing(wanted.number, wanted.filter, qos)
        try:
            self.interest.subscribe(wanted, self.me)
        except FilterError as error:
            effects.append(Refuse(self.me, str(error)))
            return False
        return True

    def _unsubscribed(self, now: Nanos, event: Unsubscribed, effects: Effects) -> None:
        self.interest.unsubscribe(event.number)
        self._carry_on(now, self.interest.handle(now, CHANGED, self.view), effects)

    def _advertised(self, now: Nanos, event: Advertised, effects: Effects) -> None:
        self._advertise(now, event.filter, effects)

    def _advertise(self, now: Nanos, offer: str, effects: Effects) -> None:
        try:
            self.interest.advertise(offer)
        except FilterError as error:
            effects.append(Refuse(self.me, str(error)))
            return
        self._carry_on(now, self.interest.handle(now, CHANGED, self.view), effects)

    def _planned(self, now: Nanos, event: Planned, effects: Effects) -> None:
        strangers = [n for n in event.plan.neighbours(self.me) if n not in self.links]
        if strangers:
            raise ConfigError(f"the plan sends from peer {self.me} to {strangers[0]}, which is not its neighbour")
        self._carry_on(now, self.routing.handle(now, event, self.view), effects)

    def _stopping(self, now: Nanos, event: Stopping, effects: Effects) -> None:
        self.interest.withdraw()
        self._carry_on(now, self.interest.handle(now, CHANGED, self.view), effects)
        self._neighbourhood.leave(now, effects)

    # ---------------------------------------------------------------- neighbours that come and go

    def _stranger(self, now: Nanos, event: Received, effects: Effects) -> Effects:
        if type(event.message) is Letter:
            self._neighbourhood.letter(now, event.sender, event.message, effects)
            if self._next_timers and self._next_timers[0][0] != self._asked:
                self._asked = self._next_timers[0][0]
                effects.append(WakeAt(self._asked))
        else:
            effects.append(Refuse(event.sender, "not a neighbour"))
        return effects

    def _linked(self, now: Nanos, peer: PeerId, effects: Effects) -> None:
        self.view.neighbours = tuple(sorted(self.links))
        effects.append(Notice("linked", peer))
        self._carry_on(now, self.graph.handle(now, CHANGED, self.view), effects)
        self._resync(now, peer, effects)
        if self._liveness is not None:
            self._probe_soon(now)

    def _unlinked(self, now: Nanos, peer: PeerId, effects: Effects) -> None:
        waiting = self.transmissions.end(peer)
        del self.links[peer]
        self.view.neighbours = tuple(sorted(self.links))
        self._assembly.forget(peer)
        effects.append(Notice("unlinked", peer))
        if self._liveness is not None:
            self._liveness.rose(now, peer)
        self._carry_on(now, self.graph.handle(now, CHANGED, self.view), effects)
        for forward in waiting:
            self._route(now, Failed(forward), effects)
        self._carry_on(now, self.routing.handle(now, LinkChanged(peer, False), self.view), effects)

    def _traced(self, now: Nanos, effects: Effects) -> None:
        self._carry_on(now, self.graph.handle(now, CHANGED, self.view), effects)

    # ---------------------------------------------------------------- what neighbours say

    def _data(self, now: Nanos, link: Link, data: Data, effects: Effects) -> None:
        sender, tx = link.peer, data.tx
        if tx >> TX_SHIFT != link.incarnation and not self._same_life(now, link, tx >> TX_SHIFT, effects):
            return
        dests, routes, marks, me = data.dests, data.routes, data.marks, self.me
        if (routes and len(routes) != len(dests)) or (marks and len(marks) != len(dests)):
            effects.append(Refuse(sender, "routes or marks that do not fit the destinations"))
            return
        if not link.window.add(tx & TX_MASK):
            if link.window.too_old(tx & TX_MASK):
                effects.append(Refuse(sender, "a packet too old to know whether it came before"))
                return
            link.sent_ns = now
            effects.append(Send(sender, Ack(tx)))
            effects.append(Notice("duplicate", sender))
            return
        event = data.event
        born = now - data.age_ns - link.delay_ns
        if self._liveness is not None and self._liveness.used(now):
            self._probe_soon(now)
        if me in dests:
            # without persistency, names on a tree are those who may want it
            if data.lane is None or self._custody is not None or me in self.interest.targets(event):
                self._notify(now, event, born, effects)
            if len(dests) == 1:
                dests = ()
            else:
                if routes:
                    routes = tuple([r for d, r in zip(dests, routes, strict=False) if d != me])
                if marks:
                    marks = tuple([m for d, m in zip(dests, marks, strict=False) if d != me])
                dests = tuple([d for d in dests if d != me])
        link.sent_ns = now
        if not dests:
            effects.append(Send(sender, Ack(tx)))
            if data.lane is not None and not data.dests:
                self._on_tree(now, sender, data, born, effects)
            return
        arrived = Arrived(sender, event, born, dests, data.path, routes, marks, data.lane)
        answers = self.routing.handle(now, arrived, self.view)
        if self._custody is not None:
            self._custody.accept(event, born, answers, effects)
        effects.append(Send(sender, Ack(tx)))
        self._carry_on(now, answers, effects)

    def _on_tree(self, now: Nanos, sender: PeerId, data: Data, born: Nanos, effects: Effects) -> None:
        if not self.routing.hop_by_hop:
            effects.append(Refuse(sender, "sends on a tree to one that has none"))
            return
        if self._custody is not None:
            effects.append(
                Refuse(sender, "sends on a tree to nobody by name, where events are kept for those who want them")
            )
            return
        if self.interest.targets(data.event):
            self._notify(now, data.event, born, effects)
        self._route(now, Arrived(sender, data.event, born, (), lane=data.lane), effects)

    def _part(self, now: Nanos, link: Link, part: Part, effects: Effects) -> None:
        life = part.tx >> TX_SHIFT
        if life != link.incarnation and not self._same_life(now, link, life, effects):
            return
        sender, number = link.peer, part.tx & TX_MASK
        if number not in link.window:
            reason = self._assembly.refuses(sender, part)
            if reason is not None:
                effects.append(Refuse(sender, reason))
                return
            if self._assembly.completes(sender, part):
                self._data(now, link, self._assembly.finish(now, sender, part), effects)
                return
            link.window.add(number)
            dropped = self._assembly.add(now, sender, part)
            if dropped:
                effects.append(Notice("unfinished", sender, dropped))
        elif link.window.too_old(number):
            effects.append(Refuse(sender, "a packet too old to know whether it came before"))
            return
        else:
            effects.append(Notice("duplicate", sender))
        link.sent_ns = now
        effects.append(Send(sender, Ack(part.tx)))

    def _acked(self, now: Nanos, forward: Forward, effects: Effects) -> None:
        if self._custody is not None:
            self._custody.handed_on(forward, effects)
        if forward.watch:
            self._route(now, Acked(forward), effects)

    def _reliable(self, now: Nanos, link: Link, message: Reliable, effects: Effects) -> None:
        life = message.tx >> TX_SHIFT
        if life != link.incarnation and not self._same_life(now, link, life, effects):
            return
        link.sent_ns = now
        effects.append(Send(link.peer, Ack(message.tx)))
        body = message.body  # versioned, so a repetition changes nothing: it needs no window
        heard = Heard(link.peer, body)
        if type(body) is LinkState:
            news = self.graph.handle(now, heard, self.view)
        elif type(body) is Interest:
            news = self.interest.handle(now, heard, self.view)
        else:
            news = self.routing.handle(now, heard, self.view)
        if self._custody is not None and CHANGED in news and isinstance(body, LinkState | Interest):
            effects.append(Store(Learned(body)))
        self._carry_on(now, news, effects)
        if self._newcomers is not None and type(body) is Interest and CHANGED in news:
            self._welcome(now, body.origin, effects)

    def _welcome(self, now: Nanos, peer: PeerId, effects: Effects) -> None:
        """One who was not known wants what was published just before."""
        assert self._newcomers is not None and self._custody is not None
        for event, born in self._newcomers.heard(now, peer):
            if peer in self.interest.targets(event):
                self._custody.publish(born, event, (peer,), effects)
                self._route(now, Arrived(self.me, event, born, (peer,)), effects)

    def _hello(self, now: Nanos, link: Link, hello: Hello, effects: Effects) -> None:
        if hello.incarnation != link.incarnation and not self._same_life(now, link, hello.incarnation, effects):
            return
        if hello.within_ns and hello.within_ns != link.promised_ns:
            link.promised(hello.within_ns)
        if hello.hearing != link.hearing:
            # it does not hear us: dead towards it, though not from it; or that is over
            link.hearing = hello.hearing
            self._carry_on(now, self.routing.handle(now, LinkChanged(link.peer, hello.hearing), self.view), effects)

    def _same_life(self, now: Nanos, link: Link, incarnation: int, effects: Effects) -> bool:
        """False for a message from a life that is over. A new life is told everything."""
        if incarnation < link.incarnation:
            effects.append(Refuse(link.peer, "speaks from an earlier life"))
            return False
        first = link.incarnation == 0
        link.incarnation = incarnation
        link.window = Window()
        self._assembly.forget(link.peer)
        if not first:
            self._resync(now, link.peer, effects, reborn=True)
        return True

    # ---------------------------------------------------------------- links: back, down, probed

    def _back_again(self, now: Nanos, link: Link, effects: Effects) -> None:
        """A sign of life after silence or unanswered packets."""
        link.troubled = False
        if not link.up:
            link.up = True
            effects.append(Notice("link-up", link.peer))
            if self._liveness is not None:
                self._liveness.rose(now, link.peer)
            self._carry_on(now, self.routing.handle(now, LinkChanged(link.peer, True), self.view), effects)
        if link.told_deaf:  # it must not go on believing so, however busy the link is
            link.told_deaf = False
            link.sent_ns = now
            effects.append(Send(link.peer, Hello(self.transmissions.life, True)))
        if link.missed:
            link.missed = False
            self._resync(now, link.peer, effects)
        link.fails = 0
        if self._custody is not None:
            self._custody.link_returned(now)

    def _resync(self, now: Nanos, peer: PeerId, effects: Effects, reborn: bool = False) -> None:
        fresh = LinkChanged(peer, True, fresh=True, reborn=reborn)
        for plugin in (self.graph, self.interest, self.routing):
            self._carry_on(now, plugin.handle(now, fresh, self.view), effects)

    def _probe_soon(self, time: Nanos) -> None:
        self._probe_ns = time
        self._timers.at(time, self._probe, time)

    def _probe(self, now: Nanos, due: Nanos, effects: Effects) -> None:
        if due != self._probe_ns:
            return  # it was asked to come sooner, and did
        assert self._liveness is not None
        silent, again = self._liveness.probe(now, self.transmissions.life, effects)
        self._probe_soon(again)
        for peer in silent:
            self._down(now, self.links[peer], effects)

    def _check(self, now: Nanos, peer: PeerId, effects: Effects) -> None:
        """Data is under way over a link whose time is up if it was not heard since."""
        link = self.links.get(peer)
        if link is not None and now - link.heard_ns >= link.silence_ns:
            self._down(now, link, effects)

    def _down(self, now: Nanos, link: Link, effects: Effects) -> None:
        if link.up:
            waiting = self.transmissions.withdraw(link.peer)  # it will not be answered: no need to wait
            link.fell()
            effects.append(Notice("link-down", link.peer))
            if self._liveness is not None:
                self._liveness.fell(now, link.peer)
            for forward in waiting:
                self._route(now, Failed(forward), effects)
            self._carry_on(now, self.routing.handle(now, LinkChanged(link.peer, False), self.view), effects)

    def _first_monitor(self, now: Nanos, _: None, effects: Effects) -> None:
        for link in self.links.values():
            link.began()
        self._monitor(now, None, effects)

    def _monitor(self, now: Nanos, _: None, effects: Effects) -> None:
        self._timers.at(now + self.config.monitor_ns, self._monitor, None)
        for peer, link in self.links.items():
            slot = ("l", self.me)
            if link.missed and not self.transmissions.telling(peer, slot):
                # silent since it missed something: knock, and its answer brings it the rest
                self.transmissions.tell(now, Tell(peer, slot, self.graph.of(self.me)), effects)
        if self.transmissions.life != self._life:  # numbers ran over: neighbours take it for a new life
            self._life = self.transmissions.life
            for peer in self.view.neighbours:
                self._resync(now, peer, effects)
        self._neighbourhood.trace(effects)
        changed = [link.adopt() for link in self.links.values()]
        if any(changed):
            self._carry_on(now, self.graph.handle(now, CHANGED, self.view), effects)

    # ---------------------------------------------------------------- local subscribers

    def _notify(self, now: Nanos, event: Event, born: Nanos, effects: Effects) -> None:
        id_ = event.id
        if not self._seen.add(id_):
            if self._seen.too_old(id_):
                effects.append(Drop(id_, (self.me,), "too old to know whether it was delivered"))
            else:
                effects.append(Notice("duplicate", self.me))
            return
        if self._custody is not None:
            effects.append(Store(Notified(event.id)))
        elif born < self._began:
            # a former life may have notified it, and nothing remembers: at most once, so not again
            effects.append(Drop(event.id, (self.me,), "published before this life"))
            return
        wanted = self.interest.local(event, self.me, self.graph)
        if not wanted:
            effects.append(Notice("wanted no more", self.me))
        for subscription, deadline in wanted:
            effects.append(Deliver(subscription, event, now - born, deadline))

    # ---------------------------------------------------------------- plug-ins' answers

    def _route(self, now: Nanos, event: Arrived | Failed | Acked, effects: Effects) -> None:
        self._carry_on(now, self.routing.handle(now, event, self.view), effects)

    def _carry_on(self, now: Nanos, answers: list[PluginEffect], effects: Effects) -> None:
        for answer in answers:
            if type(answer) is Forward:
                self.transmissions.forward(now, answer, effects)
                if self._liveness is not None:
                    self._expect_life(now, answer.peer)
            else:
                self._plug(now, answer, effects)

    def _expect_life(self, now: Nanos, peer: PeerId) -> None:
        """Data was sent: if the link's time is up before the ACK is due, look at that moment."""
        assert self._liveness is not None
        if self._liveness.used(now):
            self._probe_soon(now)
        time_up = self._liveness.time_up(now, self.links[peer])
        if time_up is not None:
            self._timers.at(max(now, time_up), self._check, peer)

    def _failed(self, now: Nanos, forward: Forward, effects: Effects) -> None:
        link = self.links[forward.peer]
        if self._liveness is not None and self._liveness.doubted(now, link):
            self._down(now, link, effects)
        self._route(now, Failed(forward), effects)

    def _plug(self, now: Nanos, answer: PluginEffect, effects: Effects) -> None:
        match answer:
            case Tell():
                self.transmissions.tell(now, answer, effects)
            case Alarm(time):
                self._timers.at(time, self._due, None)
            case Changed():
                self._carry_on(now, self.routing.handle(now, CHANGED, self.view), effects)
            case GiveUp():
                self._give_up(now, answer, effects)
            case Drop():
                effects.append(answer)
                if self._custody is not None:
                    self._custody.abandon(answer, effects)
            case Notice() | Refuse():
                effects.append(answer)

    def _due(self, now: Nanos, _: None, effects: Effects) -> None:
        self._carry_on(now, self.routing.handle(now, DUE, self.view), effects)

    def _give_up(self, now: Nanos, stuck: GiveUp, effects: Effects) -> None:
        if self._custody is None:
            effects.append(Drop(stuck.event.id, stuck.dests, stuck.reason))
        else:
            self._custody.give_up(now, stuck, effects)

    def _deadline_ns(self, event: Event, subscriber: PeerId) -> Nanos | None:
        return self.interest.deadline_ns(event, subscriber, self.graph)

    # ---------------------------------------------------------------- timers

    def _woken(self, now: Nanos, event: Woken, effects: Effects) -> None:
        self._asked = FOREVER
        self._timers.run(now, effects)
        self.transmissions.clear_answered()
