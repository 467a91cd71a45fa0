"""The peer: a pure state machine. `handle(now, input)` returns effects, and nothing else happens.

The peer branches once, at the input. It owns these parts:

    link layer          link/               numbers, ACKs and retransmission, fragments, estimators, failure detector
    delivery            delivery/           local subscribers, duplicate filter, store-and-forward, the delivery mode
    plug-in host        host.py             membership, graphs, interest, routing
    plug-in effects     plugin_effects.py   carries out what plug-ins return
    driver inputs       driver_inputs.py    start and stop, subscriptions, links, paths, plans
    packet outcomes     packet_outcomes.py  handles packets that are acknowledged, failed or dropped

This file shows the path of an event: published, arrived, delivered, forwarded, acknowledged. A driver needs `ports.py`
and, from this file, `handle` and the queries that follow it.
"""

from typing import Any, Final

from wend.model.blocks import is_valid_block
from wend.model.errors import ConfigError
from wend.model.events import Event, EventId, PeerId
from wend.model.publication import Publication
from wend.model.units import FOREVER, Nanos
from wend.protocol.config import DeliverySettings, LinkSettings, PeerConfig
from wend.protocol.delivery.by_destination import ByDestination
from wend.protocol.delivery.durable import Backlog
from wend.protocol.delivery.in_network import DeliveryMode, InNetwork
from wend.protocol.delivery.late_joiners import LateJoiners
from wend.protocol.delivery.local import LocalDelivery, Route
from wend.protocol.delivery.retained import RetainedEvents
from wend.protocol.delivery.store_and_forward import StoreAndForward
from wend.protocol.driver_inputs import DriverInputs
from wend.protocol.host import HostedPlugin, NamedPlugins, PluginHost, mistake_error
from wend.protocol.link.layer import LinkLayer
from wend.protocol.link.link import Link
from wend.protocol.link.waiting import HEADER_BYTES
from wend.protocol.messages import (
    TX_MASK,
    TX_SHIFT,
    Ack,
    Data,
    DirectAck,
    Hello,
)
from wend.protocol.notices import MISFIT, TOO_OLD
from wend.protocol.packet_outcomes import PacketOutcomes
from wend.protocol.plugin_effects import PluginEffects
from wend.protocol.plugins import (
    Acked,
    Arrived,
    Failed,
    Forward,
    LinkChanged,
    Plugin,
    PluginEffect,
    SubscriptionsChanged,
)
from wend.protocol.plugins.copy_ranks import Ranks
from wend.protocol.ports import (
    Drop,
    Input,
    Notice,
    Receipt,
    Received,
    Refuse,
    Send,
    WakeAt,
    Woken,
)
from wend.protocol.status import PeerStatus
from wend.protocol.timers import Effects, Timers

OLDEST_NS: Final = FOREVER
"""The greatest age that a packet may have: times computed from it must fit records and messages."""


class Peer:
    def __init__(self, config: PeerConfig, plugins: NamedPlugins) -> None:
        self.config = config
        self.me = config.peer
        self.links: dict[PeerId, Link] = {}
        self._timers = Timers()
        self._next_timers = self._timers.heap
        self._asked: Nanos = FOREVER
        self._host = host = PluginHost(config, plugins, self.links, self._timers, self._carry_out)
        self._router = host.router
        self._header = host.router.header
        self._next_hops = host.router.handle
        self.view = host.view
        self.interest = host.interest
        self.subscriptions = host.interest.table
        # load spreading needs the header of packets for the routing
        controlled = host.interest.header is None and any(needs.congestion_control for needs in host.needs)
        self._layer = layer = LinkLayer(
            config,
            self.links,
            self._timers,
            self,
            header=host.router.header,
            detects_failures=any(needs.failure_detector for needs in host.needs),
            shares_news=any(needs.news for needs in host.needs),
            controls_congestion=controlled,
            uses_paths=config.of(LinkSettings).trace_paths and any(needs.paths for needs in host.needs),
        )
        self._detector = layer.detector
        self._retransmission = layer.retransmission
        self.view.news = layer.news
        self.view.outages = None if layer.detector is None else layer.detector.outages
        route = self._route
        self._store = store = self._make_store(route) if config.of(DeliverySettings).persistence else None
        waiting = config.of(LinkSettings).send_queue_limit // HEADER_BYTES if controlled else 0
        self._local = local = LocalDelivery(config, self.subscriptions, self.view, self._timers, store, route, waiting)
        self._mode: DeliveryMode = (
            ByDestination(host, local, store, route)
            if host.interest.knows_all_subscribers
            else InNetwork(host, local, store)
        )
        self._transit_store = store if self._mode.stores_transit else None
        """The store of packets for other peers; None if they are not stored."""
        self._outcomes = outcomes = PacketOutcomes(layer, self._mode, store, route)
        self._plugin_effects = PluginEffects(host, layer, local, self._mode, store, outcomes)
        self.retained = RetainedEvents(self.me, stores=store is not None)
        """The newest events that publishers asked to retain; read-only for drivers."""
        self._inputs = DriverInputs(host, layer, local, store, self.retained, outcomes)

    def _make_store(self, route: Route) -> StoreAndForward:
        interest, limits = self.interest, self.config.of(DeliverySettings)
        forming = interest.knows_all_subscribers and (interest.learns_late or self._host.forms_links)
        late = LateJoiners(limits.retry_limit, limits.store_limit) if forming else None
        return StoreAndForward(self.config, self._timers, self.subscriptions, self.view, late, route)

    # ---------------------------------------------------------------- what a driver may ask

    def handle(self, now: Nanos, event: Input) -> Effects:
        effects: Effects = []
        if type(event) is not Received:
            self._handle_input(now, event, effects)
        elif (link := self.links.get(event.sender)) is None:
            self._layer.receive_direct(now, event.sender, event.message, effects)
        else:  # the most frequent inputs take the shortest path
            link.heard_ns = now
            message = event.message
            if link.suspected:
                self._layer.on_heard_again(now, link, effects, message)
            if type(message) is Data:
                self.on_data(now, link, message, effects)
            elif type(message) is Ack:
                forward = self._retransmission.on_ack(now, link, message, effects)
                if link.suspected:  # a neighbour that sends an ACK hears this peer
                    self._layer.on_heard_again(now, link, effects)
                if forward is not None and (forward.confirm or self._store is not None):
                    self._outcomes.on_ack(now, forward, effects)
            elif type(message) is Hello:
                if message is not link.last_hello:  # else nothing has changed
                    self._layer.on_hello(now, link, message, effects)
            else:
                self._layer.receive(now, link, message, effects)
        timers = self._next_timers
        if timers and timers[0][0] != self._asked:
            self._asked = soonest = timers[0][0]
            effects.append(WakeAt(soonest))
        return effects

    def _handle_input(self, now: Nanos, event: Input, effects: Effects) -> None:
        """Handle an input that is not a message of another peer."""
        if type(event) is Woken:
            self._asked = FOREVER
            self._timers.run(now, effects)
            self._retransmission.clear_timers()
        elif type(event) is Publication:
            self._publish(now, event, effects)
        else:
            self._inputs.handle(now, event, effects)

    def acknowledge_early(self, time_ns: Nanos, sender: PeerId, ack: DirectAck) -> bool:
        """Process an ACK before it arrives, for simulations. Return False if it must wait."""
        return sender not in self.links and self._layer.direct.acknowledge_early(time_ns, sender, ack)

    def status(self) -> PeerStatus:
        return PeerStatus(
            peer=self.me,
            incarnation=self.config.incarnation,
            strategy=self.config.strategy,
            interest=self._host.interested.name,
            membership=self.config.membership,
            links=self._layer.status(),
            in_flight=len(self._retransmission.packets_in_flight()),
            waiting=0 if self._store is None else len(self._store.queue),
            plugins=self._host.status(),
        )

    def unfinished(self) -> set[EventId]:
        """Events that this peer is still responsible for: in flight, waiting for a retry, or waiting in the routing."""
        found = {forward.event.id for forward in self._retransmission.packets_in_flight()}
        found.update(self.responsible_ids)
        found.update(self._local.incomplete_ids)
        found.update(self._host.unfinished())
        return found

    @property
    def responsible_ids(self) -> tuple[EventId, ...]:
        """Events that this peer has stored and neither delivered nor handed over to others, oldest first."""
        return () if self._store is None else tuple(self._store.queue.responsible_ids())

    @property
    def next_id(self) -> EventId:
        """The id of the next event that the application publishes."""
        return self._local.next_id

    @property
    def is_crowded(self) -> bool:
        """Whether the send queue of a link is so long that publishers should pause."""
        return self._layer.is_crowded

    @property
    def plugins(self) -> dict[str, Plugin]:
        """The plug-ins that this peer hosts, by name; read-only for drivers."""
        return {name: one.plugin for name, one in self._host.by_name.items()}

    @property
    def message_types(self) -> dict[str, Any]:
        """The type of each plug-in's messages, for decoders."""
        return {name: one.message_type for name, one in self._host.by_name.items()}

    @property
    def header_type(self) -> type:
        """The type of the header that packets carry."""
        return self._header

    @property
    def is_reassembling(self) -> bool:
        """Whether an event is incomplete because fragments are missing."""
        return self._layer.is_reassembling

    @property
    def knows_all_subscribers(self) -> bool:
        """Whether receipts name all known subscribers at any peer."""
        return self._mode.knows_all_subscribers

    @property
    def informants(self) -> tuple[PeerId, ...]:
        """Peers that may know the addresses of other peers, for drivers that look for an address."""
        found: tuple[PeerId, ...] = () if self.view.membership is None else self.view.membership.informants()
        return found

    def check_new_link(self, peer: PeerId) -> None:
        """Raise `ConfigError` if the peer cannot have a given link with this one."""
        self._inputs.check_new_link(peer)

    @property
    def durable(self) -> dict[int, Backlog]:
        """The durable subscriptions, by number, with the events that their clients have not confirmed."""
        return self._local.durable.backlogs

    @property
    def follows_plan(self) -> bool:
        return self._router.plugin.needs.plan

    # ---------------------------------------------------------------- events that are published here

    def _publish(self, now: Nanos, publication: Publication, effects: Effects) -> None:
        earlier = self._local.keys.find(now, publication.headers) if publication.headers else None
        if earlier is not None:
            effects.append(Receipt(earlier, (), self._store is not None, self._layer.is_crowded, is_repeated=True))
            return
        event = self._local.number_event(publication)
        if publication.to is not None:
            self._mode.publish_to(now, event, publication.to, effects)
            effects.append(self._receipt(event, (publication.to,)))
            return
        if event.headers:
            self._local.keys.add(now, event, now, effects)
        if publication.retain:
            self.retained.retain(publication.retain, event, now, effects)
        if self._local.announce(event, effects):
            self._host.dispatch_to_all(now, SubscriptionsChanged(), effects)
        event = self._local.choose_group_peers(event, effects)
        subscribers = self.subscriptions.targets(event)
        event = self._local.add_predecessors(event)
        if self._mode.may_miss_subscribers():
            effects.append(Notice("published-early", self.me))
        self._mode.publish(now, event, self._receipt(event, subscribers), effects)

    def _receipt(self, event: Event, subscribers: tuple[PeerId, ...]) -> Receipt:
        return Receipt(event.id, subscribers, self._store is not None, self._layer.is_crowded)

    # ---------------------------------------------------------------- events that arrive

    def on_data(self, now: Nanos, link: Link, data: Data, effects: Effects, reassembled: bool = False) -> None:
        sender, tx = link.peer, data.tx
        if tx >> TX_SHIFT != link.incarnation and not self._layer.accept_incarnation(
            now, link, tx >> TX_SHIFT, effects
        ):
            return
        event, dests, ranks, header = data.event, data.dests, data.ranks, data.header
        if (ranks or header is not None or event.block is not None) and self._refuse_misfit(sender, data, effects):
            return
        if not link.window.add(tx & TX_MASK):
            self._refuse_or_acknowledge_again(now, link, tx, effects)
            return
        link.sent_ns = now
        age = data.age_ns
        if not 0 <= age <= OLDEST_NS:
            age = min(max(age, 0), OLDEST_NS)
        born = now - age - link.delay_ns
        if event.ttl_ns is not None and event.is_expired(now - born):
            self._expire(now, event, born, dests, effects)
            effects.append(Send(sender, Ack(tx, reassembled)))
            return
        if self._detector is not None:
            self._detector.on_event(now)
        if self.me in dests:
            self._mode.receive(now, sender, data, born, effects)
            dests, ranks = _remove_own(self.me, dests, ranks)
        if dests:
            arrived = Arrived(sender, event, born, dests, data.path, header, ranks)
            self._forward_transit(now, arrived, Ack(tx, reassembled), effects)
            return
        effects.append(Send(sender, Ack(tx, reassembled)))
        if not data.dests:
            self._mode.receive_without_destinations(now, sender, data, born, effects)

    def _refuse_misfit(self, sender: PeerId, data: Data, effects: Effects) -> bool:
        """Refuse a packet with a wrong number of ranks, a header that the routing does not declare, or an impossible
        block."""
        if (data.ranks and len(data.ranks) != len(data.dests)) or (
            data.header is not None and type(data.header) is not self._header
        ):
            effects.append(Refuse(sender, MISFIT))
        elif data.event.block is not None and not is_valid_block(data.event):
            effects.append(Refuse(sender, "invalid-block"))
        else:
            return False
        return True

    def _refuse_or_acknowledge_again(self, now: Nanos, link: Link, tx: int, effects: Effects) -> None:
        """Acknowledge a duplicate again; refuse a packet that is too old to be recognised."""
        if link.window.is_too_old(tx & TX_MASK):
            effects.append(Refuse(link.peer, TOO_OLD))
            return
        link.record_sent(now)
        effects.append(Send(link.peer, Ack(tx)))
        effects.append(Notice("duplicate", link.peer))

    def _expire(self, now: Nanos, event: Event, born: Nanos, dests: tuple[PeerId, ...], effects: Effects) -> None:
        """Drop an event that arrived after its ttl. Release ordered deliveries that wait for it."""
        if self.me in dests:
            self._local.deliver(now, event, born, effects)
            dests, _ = _remove_own(self.me, dests, ())
        if dests:
            effects.append(Drop(event.id, dests, "expired"))

    def _forward_transit(self, now: Nanos, arrived: Arrived, ack: Ack, effects: Effects) -> None:
        """Forward a packet to the other peers that it names."""
        hops = self._next_hops(now, arrived, self.view)
        if self._transit_store is not None and arrived.event.block is None:
            self._transit_store.accept(arrived.event, arrived.born_ns, hops, effects)
        effects.append(Send(arrived.sender, ack))
        self._carry_out(now, self._router, hops, effects)

    # ---------------------------------------------------------------- effects of plug-ins

    def _route(self, now: Nanos, event: Arrived | Failed | Acked, effects: Effects) -> None:
        self._carry_out(now, self._router, self._next_hops(now, event, self.view), effects)

    def _carry_out(self, now: Nanos, one: HostedPlugin, answers: list[PluginEffect], effects: Effects) -> None:
        for answer in answers:
            if type(answer) is Forward and one.kind == "routing":
                if answer.peer not in self.links or not (answer.header is None or type(answer.header) is self._header):
                    raise self._forward_error(answer)
                if answer.event.ttl_ns is not None and answer.event.is_expired(now - answer.born_ns):
                    self._outcomes.drop(Drop(answer.event.id, answer.dests, "expired"), effects)
                    continue
                self._retransmission.forward(now, answer, effects)
                if self._detector is not None:
                    self._detector.schedule_check(now, answer.peer)
            elif not self._host.carry_out(now, one, answer, effects):
                self._plugin_effects.carry_out(now, one, answer, effects)

    def _forward_error(self, forward: Forward) -> ConfigError:
        """The error for a packet to a peer that is no neighbour, or with a header that the routing does not declare."""
        if forward.peer not in self.links:
            mistake = f"answered a Forward to {forward.peer!r}, which is not a neighbour"
        else:
            what, declared = type(forward.header).__name__, _header_name(self._header)
            mistake = f"answered a Forward whose header is a {what}, but it declares {declared}"
        return mistake_error(self._router, None, mistake)

    # ---------------------------------------------------------------- what the link layer tells (`LinkUser`)

    def on_message(self, now: Nanos, sender: PeerId, plugin: str, body: Any, effects: Effects) -> None:
        self._host.on_message(now, sender, plugin, body, effects)

    def on_undelivered(self, now: Nanos, peer: PeerId, plugin: str, body: Any, effects: Effects) -> None:
        self._host.on_undelivered(now, peer, plugin, body, effects)

    def on_failed(self, now: Nanos, forward: Forward, effects: Effects) -> None:
        self._outcomes.on_failed(now, forward, effects)

    def on_congested(self, now: Nanos, forward: Forward, effects: Effects, full: bool) -> None:
        if full:
            self._outcomes.on_queue_full(now, forward, effects)
        else:
            self._outcomes.on_failed(now, forward, effects, congested=True)

    def on_loaded(self, loaded: bool) -> None:
        self.view.loaded = loaded

    def on_link_changed(self, now: Nanos, change: LinkChanged, effects: Effects) -> None:
        self._host.dispatch_to_all(now, change, effects)

    def on_links_changed(self, now: Nanos, effects: Effects) -> None:
        self._host.on_links_changed(now, effects)

    def on_link_returned(self, now: Nanos, neighbour: PeerId) -> None:
        if self._store is not None:
            self._store.on_link_returned(now, neighbour)

    def message_type(self, plugin: str) -> Any:
        hosted = self._host.by_name.get(plugin)
        return None if hosted is None else hosted.plugin.messages


def _remove_own(me: PeerId, dests: tuple[PeerId, ...], ranks: Ranks) -> tuple[tuple[PeerId, ...], Ranks]:
    """The destinations without this peer, which is one of them, with their ranks."""
    if len(dests) == 1:
        return (), ()
    if ranks:
        ranks = tuple([rank for dest, rank in zip(dests, ranks, strict=False) if dest != me])
    return tuple([dest for dest in dests if dest != me]), ranks


def _header_name(header: type) -> str:
    return "none" if header is type(None) else header.__name__
