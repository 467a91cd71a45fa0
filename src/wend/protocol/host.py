"""The plug-in host: it creates the plug-ins of a peer, dispatches inputs to them, and checks their effects.

The host calls plug-ins in the given order: membership, the link-state graph, interest, other graphs, routing. So a
plug-in is notified of a change after the plug-ins that it depends on.

The host carries out the effects that concern plug-ins alone: timers, changes, memory and multicast groups. It passes
the others on (`plugin_effects.py`).
"""

import traceback
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, get_args

import msgspec

from wend.model.errors import ConfigError, WendError
from wend.model.events import EventId, PeerId
from wend.model.units import Nanos
from wend.protocol.config import DeliverySettings, PeerConfig
from wend.protocol.messages import ControlFragment
from wend.protocol.plugins import (
    ALLOWED,
    LINK_STATE,
    MISFIT,
    OUTSIDE,
    Acked,
    Arrived,
    Changed,
    Due,
    Failed,
    Forward,
    GiveUp,
    Heard,
    Interest,
    Kind,
    LinksChanged,
    LinkView,
    Membership,
    Needs,
    Plugin,
    PluginEffect,
    PluginInput,
    Recalled,
    Remember,
    Routing,
    SendTo,
    Tell,
    Timer,
    Unanswered,
    Undelivered,
    View,
)
from wend.protocol.ports import JoinMulticast, LeaveMulticast, Multicast, Persist, Refuse
from wend.protocol.records import StateRecord
from wend.protocol.timers import Effects, Timers

_WITH_MESSAGE = frozenset({Tell, SendTo, Multicast, Remember})
NamedPlugins = tuple[tuple[str, type[Plugin]], ...]
"""The names and classes of the plug-ins that a peer hosts, in the order in which the host calls them."""
CarryOut = Callable[[Nanos, "HostedPlugin", list[PluginEffect], Effects], None]
"""Carries out the effects of a plug-in."""
Handle = Callable[[Nanos, PluginInput, View], list[PluginEffect]]


@cache
def _message_types(messages: Any) -> frozenset[type]:
    return frozenset(get_args(messages) or ([messages] if messages else []))


class HostedPlugin:
    """A running plug-in, with the data that the host needs at every step."""

    __slots__ = ("_allowed", "handle", "header", "kind", "name", "plugin", "types")

    def __init__(self, name: str, made: Plugin) -> None:
        self.name = name
        self.kind: Kind = made.kind
        self.plugin = made
        self.handle: Handle = self._handle_checked if OUTSIDE in name else made.handle
        self.header: type = type(None)
        if isinstance(made, Routing) and made.header is not None:
            self.header = made.header
        self._allowed = ALLOWED[made.kind]
        self.types = _message_types(made.messages)
        """The types of the plug-in's messages, without fragments and empty bodies."""

    def carry_header(self, header: type) -> None:
        """Make this routing forward packets with a header of the interest, which the routing does not handle."""
        self.header = header
        self.handle = _WithHeader(self.handle).handle

    def _handle_checked(self, now: Nanos, event: PluginInput, view: View) -> list[PluginEffect]:
        """Handle an input. Raise a ConfigError of one sentence if a plug-in from outside the tree makes a mistake."""
        handle: Any = self.plugin.handle  # it may return anything
        try:
            effects: list[PluginEffect] = handle(now, event, view)
        except WendError:
            raise
        except Exception as error:
            raise mistake_error(self, event, _describe_failure(error)) from error
        if type(effects) is not list:
            raise mistake_error(self, event, f"answered {effects!r:.80} where a list of effects is due")
        return effects

    @property
    def message_type(self) -> Any:
        """The type of the body of control messages, for decoders."""
        return ControlFragment if self.plugin.messages is None else self.plugin.messages | ControlFragment

    def read(self, body: Any) -> Any:
        """Convert a stored message, which may be plain values, to its type."""
        return body if type(body) in self.types else msgspec.convert(body, self.plugin.messages)

    def find_mistake(self, answer: object) -> str | None:
        """Find the mistake in an effect, in words that follow "it"; None if the effect is allowed."""
        kind = type(answer)
        if kind not in self._allowed:
            return f"answered {answer!r:.80}, which no {self.kind} plug-in may"
        if kind in _WITH_MESSAGE:
            message: object = answer.message  # type: ignore[attr-defined]
            if type(message) not in self.types:
                return f"sent a {type(message).__name__}, which it does not declare among its messages"
        return None


class _WithHeader:
    """Preserves the header of a packet through a routing that does not handle it."""

    __slots__ = ("_handle",)

    def __init__(self, handle: Handle) -> None:
        self._handle = handle

    def handle(self, now: Nanos, event: PluginInput, view: View) -> list[PluginEffect]:
        if type(event) is Arrived:
            if event.header is None:
                return [Refuse(event.sender, MISFIT)]
            header = event.header
        elif type(event) is Failed or type(event) is Acked:
            header = event.forward.header
        else:
            return self._handle(now, event, view)
        return [_with_header(effect, header) for effect in self._handle(now, event, view)]


def _with_header(effect: PluginEffect, header: Any) -> PluginEffect:
    if type(effect) is Forward:
        of = effect
        route = (of.peer, of.event, of.born_ns, of.dests, of.path)
        return Forward(*route, header, of.ranks, of.tried, of.tries, of.confirm, of.due, of.retries)
    if type(effect) is GiveUp:
        return GiveUp(effect.event, effect.born_ns, effect.dests, effect.code, effect.ranks, header)
    return effect


class PluginHost:
    __slots__ = (
        "_carry_out", "_joined", "_links", "_persistence", "_timers", "by_name", "forms_links", "hosted", "interest",
        "interested", "membership", "router", "view",
    )  # fmt: skip

    def __init__(
        self,
        config: PeerConfig,
        plugins: NamedPlugins,
        links: Mapping[PeerId, LinkView],
        timers: Timers,
        carry_out: CarryOut,
    ) -> None:
        self._carry_out = carry_out
        self._timers = timers
        self._links = links
        self._joined: dict[str, set[HostedPlugin]] = {}
        """The plug-ins that joined each multicast group."""
        self._persistence = config.of(DeliverySettings).persistence
        self.view = View(config, links, self._persistence)
        self.hosted = self._make_plugins(config, plugins)
        self.by_name = {one.name: one for one in self.hosted}
        if len(self.by_name) < len(self.hosted):
            names = sorted(one.name for one in self.hosted)
            raise ConfigError(f"the plug-ins of a peer need names of their own: {', '.join(names)}")
        self.forms_links = config.membership is not None
        """Whether the peer makes its first links after its start."""
        self.membership = next((one for one in self.hosted if isinstance(one.plugin, Membership)), None)
        (self.interested,) = (one for one in self.hosted if one.kind == "interest")
        self.interest: Interest = self.interested.plugin  # type: ignore[assignment]
        self.router = next((one for one in self.hosted if one.kind == "routing"), self.interested)
        """The routing; the interest if the strategy has no routing."""
        if self.interest.header is not None and self.router is not self.interested:
            self.router.carry_header(self.interest.header)
        if self._persistence and not self.interest.durable:
            raise ConfigError(f"{self.interested.name} does not store events: persistence needs another interest")
        self.view.interest = self.interest
        self.view.membership = None if self.membership is None else self.membership.plugin

    def _make_plugins(self, config: PeerConfig, plugins: NamedPlugins) -> tuple[HostedPlugin, ...]:
        hosted = tuple(HostedPlugin(name, plugin_class(config)) for name, plugin_class in plugins)
        for one in hosted:
            if one.kind == "graph":
                self.view.graphs[one.name] = one.plugin
                if one.name == LINK_STATE:
                    self.view.graph = one.plugin  # type: ignore[assignment]
        return hosted

    # ---------------------------------------------------------------- what plug-ins declare

    @property
    def needs(self) -> tuple[Needs, ...]:
        return tuple(one.plugin.needs for one in self.hosted)

    def unfinished(self) -> Iterable[EventId]:
        """Events that wait in the routing and nowhere else."""
        routing = self.router.plugin
        return routing.unfinished() if isinstance(routing, Routing) else ()

    def status(self) -> dict[str, dict[str, int]]:
        """The sections of the status snapshot, by plug-in."""
        return {one.name: section for one in self.hosted if (section := one.plugin.status())}

    # ---------------------------------------------------------------- asking

    def dispatch(self, now: Nanos, one: HostedPlugin, event: PluginInput, effects: Effects) -> None:
        self._carry_out(now, one, one.handle(now, event, self.view), effects)

    def dispatch_to_all(self, now: Nanos, event: PluginInput, effects: Effects, *but: HostedPlugin) -> None:
        for one in self.hosted:
            if one not in but:
                self._carry_out(now, one, one.handle(now, event, self.view), effects)

    def on_links_changed(self, now: Nanos, effects: Effects) -> None:
        if len(self.view.neighbours) != len(self._links):
            self.view.neighbours = tuple(sorted(self._links))
        self.dispatch_to_all(now, LinksChanged(), effects)

    def on_undelivered(self, now: Nanos, peer: PeerId, plugin: str, body: Any, effects: Effects) -> None:
        """Notify a plug-in that its direct message was not acknowledged."""
        if self.membership is not None:
            self.dispatch(now, self.membership, Unanswered(peer), effects)
        self.dispatch(now, self.by_name[plugin], Undelivered(peer, body), effects)

    def on_message(self, now: Nanos, sender: PeerId, name: str, message: Any, effects: Effects) -> None:
        """Pass a message from another peer to the plug-in that it names."""
        one = self.by_name.get(name)
        if one is None:
            effects.append(Refuse(sender, "unknown-plugin"))
        elif type(message) not in one.types:
            effects.append(Refuse(sender, "undeclared-message"))
        elif sender not in self._links and not one.plugin.hears_anyone:
            effects.append(Refuse(sender, "not-neighbour"))
        else:
            self._carry_out(now, one, one.handle(now, Heard(sender, message), self.view), effects)

    def restore(self, now: Nanos, record: StateRecord, effects: Effects) -> None:
        """Pass a plug-in a message that it stored in an earlier incarnation. Ignore messages that it cannot read."""
        one = self.by_name.get(record.plugin)
        if one is None:
            return
        try:
            message = one.read(record.body)
        except msgspec.ValidationError:
            return
        self.dispatch(now, one, Recalled(message), effects)

    # ---------------------------------------------------------------- effects that concern plug-ins alone

    def carry_out(self, now: Nanos, one: HostedPlugin, answer: PluginEffect, effects: Effects) -> bool:
        """Check an effect, and carry it out if it concerns plug-ins alone. Return whether it does."""
        mistake = one.find_mistake(answer)
        if mistake is not None:
            raise mistake_error(one, None, mistake)
        if type(answer) is SendTo:  # the most frequent effect
            return False
        if type(answer) is Timer:
            self._timers.set_timer(answer.time_ns, self._on_timer, (one, answer.name))
        elif type(answer) is Changed:
            self.dispatch_to_all(now, answer, effects, one)
        elif type(answer) is Remember:
            if self._persistence:
                effects.append(Persist(StateRecord(one.name, answer.key, answer.message)))
        elif type(answer) is JoinMulticast:
            if answer.group not in self._joined:
                effects.append(answer)
            self._joined.setdefault(answer.group, set()).add(one)
        elif type(answer) is LeaveMulticast:
            self._leave_group(one, answer, effects)
        else:
            return False
        return True

    def _leave_group(self, one: HostedPlugin, leave: LeaveMulticast, effects: Effects) -> None:
        """Leave a group for one plug-in. The peer leaves it after the last plug-in that joined it."""
        plugins = self._joined.get(leave.group, set())
        if one in plugins:
            plugins.remove(one)
            if not plugins:
                del self._joined[leave.group]
                effects.append(leave)

    def _on_timer(self, now: Nanos, timer: tuple[HostedPlugin, str], effects: Effects) -> None:
        one, name = timer
        self.dispatch(now, one, Due(name), effects)


def mistake_error(one: HostedPlugin, event: PluginInput | None, mistake: str) -> ConfigError:
    """Make the error that reports a plug-in's mistake."""
    told = "" if event is None else f", told {type(event).__name__},"
    return ConfigError(f"plug-in {one.name!r}{told} {mistake}")


def _describe_failure(error: Exception) -> str:
    at = traceback.extract_tb(error.__traceback__)[-1]
    why = (str(error).splitlines() or [""])[0]
    return f"failed at line {at.lineno} of {at.filename.rpartition('/')[2]}: {type(error).__name__}: {why}"
