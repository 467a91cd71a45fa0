"""The plug-ins at work: they are asked, and what they answer is carried out.

Three plug-ins decide: the flooded graph (who is linked to whom), the interest (who wants this), the routing (where it
goes next). Their `Forward` and `Tell` become transmissions, an `Alarm` a timer, `Changed` a question to the routing;
what they give up is kept where persistency is on. In turn the routing hears what became of its data, and which links
fell silent or are back.
"""

from wend.model.events import PeerId
from wend.model.units import Nanos
from wend.protocol.config import DeliverySettings, PeerConfig
from wend.protocol.delivery.late_joiners import LateJoiners
from wend.protocol.delivery.store_and_forward import StoreAndForward
from wend.protocol.graph.link_state import LinkStateGraph
from wend.protocol.interest import interest
from wend.protocol.link.control_fragments import ControlFragments
from wend.protocol.link.failure_detector import FailureDetector
from wend.protocol.link.hellos import HelloSchedule
from wend.protocol.link.link import Link
from wend.protocol.link.retransmission import Retransmission
from wend.protocol.messages import Body, ControlFragment, LinkState, PeerInterest, StateRecord
from wend.protocol.plugins import (
    CHANGED,
    DUE,
    Acked,
    Alarm,
    Changed,
    Failed,
    Forward,
    GiveUp,
    Heard,
    LinkChanged,
    PluginEffect,
    PluginInput,
    Tell,
    View,
)
from wend.protocol.ports import Drop, Notice, Persist, Refuse
from wend.protocol.routing import strategy
from wend.protocol.timers import Effects, Timers


class Host:
    def __init__(self, config: PeerConfig, links: dict[PeerId, Link], timers: Timers) -> None:
        self._links = links
        self._timers = timers
        self.graph = LinkStateGraph()
        self.routing = strategy(config.strategy)()
        traits = self.routing.traits
        self.interest = interest(traits.hop_by_hop, config.of(DeliverySettings).persistency)()
        liveness = HelloSchedule(config, links) if traits.probes else None
        self.view = View(config, links, self.graph, self.interest, liveness)
        self.sheets = ControlFragments()
        self.transmissions = Retransmission(config, links, timers, self._failed)
        self.watch = (
            None if liveness is None else FailureDetector(liveness, links, timers, self.transmissions, self.route)
        )
        self.custody: StoreAndForward | None = None
        if config.of(DeliverySettings).persistency:
            forming = (
                traits.hop_by_hop or config.membership is not None
            )  # events may be published before anybody is known
            newcomers = LateJoiners(config.of(DeliverySettings).retry_limit) if forming else None
            self.custody = StoreAndForward(config, timers, self.interest, self.graph, newcomers, self.route)

    # ---------------------------------------------------------------- asking

    def route(self, now: Nanos, event: PluginInput, effects: Effects) -> None:
        self.carry_out(now, self.routing.handle(now, event, self.view), effects)

    def acked(self, now: Nanos, forward: Forward, effects: Effects) -> None:
        if self.custody is not None:
            self.custody.handed_on(forward, effects)
        if forward.watch:
            self.route(now, Acked(forward), effects)

    def heard(self, now: Nanos, sender: PeerId, body: Body, effects: Effects) -> None:
        """Control from a neighbour, for the plug-in that it concerns."""
        if type(body) is ControlFragment:
            whole = self.sheets.take(now, sender, body, effects)
            if whole is None:
                return
            body = whole
        heard = Heard(sender, body)
        if type(body) is LinkState:
            news = self.graph.handle(now, heard, self.view)
        elif type(body) is PeerInterest:
            news = self.interest.handle(now, heard, self.view)
        else:
            news = self.routing.handle(now, heard, self.view)
        learned = self.custody is not None and CHANGED in news
        if learned and isinstance(body, LinkState | PeerInterest):
            effects.append(Persist(StateRecord(body)))
        self.carry_out(now, news, effects)
        if self.custody is not None and learned and type(body) is PeerInterest:
            self.custody.heard_of(now, body.origin, effects)

    def flood_links(self, now: Nanos, effects: Effects) -> None:
        """This peer's links are not what they were."""
        self.carry_out(now, self.graph.handle(now, CHANGED, self.view), effects)

    def flood_interest(self, now: Nanos, effects: Effects) -> None:
        self.carry_out(now, self.interest.handle(now, CHANGED, self.view), effects)

    def resync(self, now: Nanos, peer: PeerId, effects: Effects, restarted: bool = False) -> None:
        """A neighbour may know nothing: it is told everything."""
        fresh = LinkChanged(peer, True, fresh=True, restarted=restarted)
        for plugin in (self.graph, self.interest, self.routing):
            self.carry_out(now, plugin.handle(now, fresh, self.view), effects)

    # ---------------------------------------------------------------- carrying out

    def carry_out(self, now: Nanos, answers: list[PluginEffect], effects: Effects) -> None:
        for answer in answers:
            if type(answer) is Forward:
                self.transmissions.forward(now, answer, effects)
                if self.watch is not None:
                    self.watch.expect(now, answer.peer)
            else:
                self._carry_out(now, answer, effects)

    def _carry_out(self, now: Nanos, answer: PluginEffect, effects: Effects) -> None:
        match answer:
            case Tell():
                self.tell(now, answer, effects)
            case Alarm(time):
                self._timers.at(time, self._due, None)
            case Changed():
                self.route(now, CHANGED, effects)
            case GiveUp():
                self._give_up(now, answer, effects)
            case Drop():
                effects.append(answer)
                if self.custody is not None:
                    self.custody.abandon(answer, effects)
            case Notice() | Refuse():
                effects.append(answer)

    def tell(self, now: Nanos, tell: Tell, effects: Effects) -> None:
        for one in self.sheets.cut(tell, effects):
            self.transmissions.tell(now, one, effects)

    def _give_up(self, now: Nanos, stuck: GiveUp, effects: Effects) -> None:
        if self.custody is None:
            effects.append(Drop(stuck.event.id, stuck.dests, stuck.reason))
        else:
            self.custody.give_up(now, stuck, effects)

    def _due(self, now: Nanos, _: None, effects: Effects) -> None:
        self.route(now, DUE, effects)

    def _failed(self, now: Nanos, forward: Forward, effects: Effects) -> None:
        if self.watch is not None:
            self.watch.unanswered(now, self._links[forward.peer], effects)
        self.route(now, Failed(forward), effects)
