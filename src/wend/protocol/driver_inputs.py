"""The inputs of the driver other than events and messages: start and stop, subscriptions, links, paths, plans."""

from wend.model.errors import ConfigError
from wend.model.events import EventId, PeerId
from wend.model.units import Nanos
from wend.protocol.config import DeliverySettings
from wend.protocol.delivery.local import LocalDelivery
from wend.protocol.delivery.retained import RetainedEvents
from wend.protocol.delivery.store_and_forward import StoreAndForward
from wend.protocol.host import PluginHost
from wend.protocol.link.layer import LinkLayer
from wend.protocol.messages import Control, Data, DirectMessage, Fragment, PlainMessage
from wend.protocol.packet_outcomes import PacketOutcomes
from wend.protocol.plugins import Begun, SubscriptionsChanged, Undelivered
from wend.protocol.ports import (
    Advertised,
    Attached,
    Confirmed,
    ContactFound,
    Delayed,
    Detached,
    Input,
    LinkAdded,
    LinkRemoved,
    PathFound,
    Paused,
    PeerForgotten,
    Planned,
    Refuse,
    StandbyChanged,
    Started,
    Stopping,
    Subscribed,
    Unretained,
    Unsent,
    Unsubscribed,
)
from wend.protocol.records import (
    DeliveredRecord,
    KeyRecord,
    PendingRecord,
    Record,
    ReleasedRecord,
    RetainedRecord,
    StateRecord,
)
from wend.protocol.timers import Effects


class DriverInputs:
    __slots__ = ("_host", "_layer", "_local", "_outcomes", "_retained", "_store")

    def __init__(
        self,
        host: PluginHost,
        layer: LinkLayer,
        local: LocalDelivery,
        store: StoreAndForward | None,
        retained: RetainedEvents,
        outcomes: PacketOutcomes,
    ) -> None:
        self._host = host
        self._layer = layer
        self._local = local
        self._store = store
        self._retained = retained
        self._outcomes = outcomes

    def handle(self, now: Nanos, event: Input, effects: Effects) -> None:
        match event:
            case Paused():
                self._layer.on_pause(now, event.ns)
            case Unsent():
                self._on_unsent(now, event, effects)
            case Confirmed():
                self._local.durable.confirm(now, event.number, event.positions, event.ids, effects)
            case Delayed():
                self._local.deliver_after_wait(now, event.delivery.delayed_by(event.waited_ns), effects)
            case Attached():
                if not self._local.durable.attach(now, event, effects):
                    effects.append(Refuse(self._host.view.me, "no-such-subscription", str(event.number)))
            case StandbyChanged():
                self._local.durable.change_standby(now, event.number, event.standby_ns, effects)
            case Detached():
                self._local.durable.detach(event.number)
            case Subscribed():
                self._subscribe(now, event, effects)
            case Unsubscribed():
                if self._local.unsubscribe(event.number, effects):
                    self._host.dispatch_to_all(now, SubscriptionsChanged(), effects)
            case Advertised():
                if self._local.advertise(event.filter, effects):
                    self._host.dispatch_to_all(now, SubscriptionsChanged(), effects)
            case Unretained():
                self._retained.forget(event.attribute, event.value, effects)
            case Planned():
                self._replace_plan(now, event, effects)
            case PathFound():
                self._on_path_found(now, event, effects)
            case ContactFound():
                if self._host.membership is not None:
                    self._host.dispatch(now, self._host.membership, event, effects)
            case LinkAdded():
                self.check_new_link(event.neighbour.peer)
                self._layer.add_link(now, event.neighbour, effects)
            case LinkRemoved():
                self._remove_link(now, event.peer, effects)
            case PeerForgotten(peer):
                if peer not in self._host.interest.table.origins or peer == self._host.view.me:
                    raise ConfigError(f"peer {self._host.view.me} knows no subscriptions of peer {peer}")
                self._host.dispatch_to_all(now, event, effects)
            case Started():
                self._start(now, event, effects)
            case Stopping():
                self._stop(now, event, effects)
            case _:
                raise TypeError(f"{event!r:.80} is not an input of a driver")

    def _start(self, now: Nanos, event: Started, effects: Effects) -> None:
        self._local.begin(now, restarted=bool(event.stored), lost_records=event.lost_records)
        self._layer.begin(now, event.neighbours)
        self._host.forms_links = self._host.forms_links or event.contacts_follow
        self._host.view.neighbours = tuple(self._host.view.links)
        stored = self._restore_records(now, event, effects)
        if self._store is not None:
            self._store.begin(now, tuple(n.peer for n in event.neighbours))
        for wanted in event.subscriptions:
            self._local.subscribe(wanted, effects)
        for text in event.advertisements:
            self._local.advertise(text, effects)
        self._host.on_links_changed(now, effects)
        self._host.dispatch_to_all(now, SubscriptionsChanged(), effects)
        self._layer.monitor(now)
        if event.stored:  # a neighbour may lack the state that this peer restored
            for peer in self._host.view.neighbours:
                self._layer.resync(now, peer, effects)
        if self._store is not None and self._local.pending is not None:
            self._store.restore(now, self._local.pending.restore(now, stored, effects), effects)
        self._host.dispatch_to_all(now, Begun(self._layer.manager.reachable, event.contacts_follow), effects)
        self._layer.manager.request_paths(effects)

    def _restore_records(self, now: Nanos, event: Started, effects: Effects) -> list[PendingRecord]:
        """Restore the records of an earlier incarnation. Return the events that it was still responsible for."""
        pending: dict[EventId, PendingRecord] = {}
        durable: list[Record] = []
        for record in event.stored:
            match record:
                case PendingRecord():
                    pending[record.event.id] = record
                case ReleasedRecord(id_):
                    pending.pop(id_, None)
                case DeliveredRecord(id_):
                    self._local.restore(id_)
                case RetainedRecord():
                    self._retained.restore(record)
                case KeyRecord():
                    self._local.keys.restore(record)
                case StateRecord():
                    self._host.restore(now, record, effects)
                case _:
                    durable.append(record)
        self._local.restore_durable(now, durable, effects)
        return list(pending.values())

    def _on_unsent(self, now: Nanos, event: Unsent, effects: Effects) -> None:
        """Handle a message that the driver cannot send over any link."""
        message = event.message
        if isinstance(message, Data | Fragment | Control):
            self._outcomes.on_unsent(now, message, effects)
        elif isinstance(message, DirectMessage):
            dropped = self._layer.direct.drop(now, message.number)
            if dropped is not None:
                self._host.on_undelivered(now, *dropped, effects)
        elif isinstance(message, PlainMessage) and event.peer == self._host.view.me:  # a multicast
            self._host.dispatch(
                now, self._host.by_name[message.plugin], Undelivered(self._host.view.me, message.body), effects
            )

    def _subscribe(self, now: Nanos, event: Subscribed, effects: Effects) -> None:
        if self._local.subscribe(event.subscription, effects):
            self._host.dispatch_to_all(now, SubscriptionsChanged(), effects)
            if self._local.pending is not None:
                self._local.pending.on_subscribed(now)

    def _replace_plan(self, now: Nanos, event: Planned, effects: Effects) -> None:
        me, links = self._host.view.me, self._host.view.links
        next_hops = () if event.plan is None else event.plan.neighbours(me)
        unlinked = [n for n in next_hops if n not in links]
        if unlinked:
            raise ConfigError(f"the plan sends from peer {me} to {unlinked[0]}, which is not its neighbour")
        self._host.dispatch(now, self._host.router, event, effects)

    def _on_path_found(self, now: Nanos, event: PathFound, effects: Effects) -> None:
        if self._host.membership is not None:
            self._host.dispatch(now, self._host.membership, event, effects)
        if self._host.interest.needs.paths:
            self._host.dispatch(now, self._host.interested, event, effects)
        self._layer.manager.on_path_found(now, event, effects)

    def check_new_link(self, peer: PeerId) -> None:
        """Raise `ConfigError` if the peer cannot have a given link with this one."""
        self._check_given_links()
        if peer == self._host.view.me:
            raise ConfigError(f"peer {self._host.view.me} cannot be linked with itself")
        if peer in self._host.view.links:
            raise ConfigError(f"peer {self._host.view.me} is linked with peer {peer} already")

    def _remove_link(self, now: Nanos, peer: PeerId, effects: Effects) -> None:
        self._check_given_links()
        if peer not in self._host.view.links:
            raise ConfigError(f"peer {self._host.view.me} is not linked with peer {peer}")
        self._layer.end_link(now, peer, effects)

    def _check_given_links(self) -> None:
        membership = self._host.view.config.membership
        if membership is not None:
            raise ConfigError(f"the membership {membership} decides who is linked with peer {self._host.view.me}")

    def _stop(self, now: Nanos, event: Stopping, effects: Effects) -> None:
        away_ns = event.away_ns
        if self._store is not None and not self._local.durable.backlogs and not self._local.logs:
            # its clients have as long to reconnect as after a crash
            away_ns = min(away_ns, self._host.view.config.of(DeliverySettings).grace_ns)
        if self._store is None or not away_ns:
            self._local.withdraw(but_durable=away_ns > 0)
        if away_ns:
            self._host.interest.table.will_be_back(away_ns)
            self._layer.leave(now, effects)
        self._host.dispatch_to_all(now, SubscriptionsChanged(), effects)
        self._host.dispatch_to_all(now, event, effects)
