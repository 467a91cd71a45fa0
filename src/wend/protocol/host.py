"""The plug-in host: it makes the plug-ins that it is given, dispatches to them, and checks their answers.

The host asks plug-ins in the order in which it is given them: membership, the link-state graph, interest, other graphs,
routing. So a plug-in that builds on another hears of a change after it.

The peer carries out what plug-ins answer (`carry_out`), but for the effects that concern plug-ins alone: timers,
changes, memory and multicast groups.
"""

import traceback
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, get_args

import msgspec

from wend.model.errors import ConfigError, WendError
from wend.model.events import PeerId
from wend.model.units import Nanos
from wend.protocol.config import DeliverySettings, PeerConfig
from wend.protocol.messages import ControlFragment
from wend.protocol.plugins import (
    ALLOWED,
    LINK_STATE,
    OUTSIDE,
    Changed,
    Due,
    Heard,
    Interest,
    Kind,
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
    View,
)
from wend.protocol.ports import JoinMulticast, LeaveMulticast, Multicast, Persist, Refuse
from wend.protocol.records import StateRecord
from wend.protocol.timers import Effects, Timers

_WITH_MESSAGE = frozenset({Tell, SendTo, Multicast, Remember})
NamedPlugins = tuple[tuple[str, type[Plugin]], ...]
"""The names and classes of the plug-ins that a peer hosts, in the order in which its host asks them."""
CarryOut = Callable[[Nanos, "Hosted", list[PluginEffect], Effects], None]
"""What the peer does about the effects of a plug-in."""


@cache
def _message_types(messages: Any) -> frozenset[type]:
    return frozenset(get_args(messages) or ([messages] if messages else []))


class Hosted:
    """A plug-in at work, with what the host needs at every step."""

    __slots__ = ("_allowed", "_messages", "handle", "header", "kind", "name", "plugin", "types")

    def __init__(self, name: str, made: Plugin) -> None:
        self.name = name
        self.kind: Kind = made.kind
        self.plugin = made
        self.handle = self._checked if OUTSIDE in name else made.handle
        self.header: type = type(None)
        if isinstance(made, Routing) and made.header is not None:
            self.header = made.header
        self._allowed = ALLOWED[made.kind]
        self._messages = made.messages
        self.types = _message_types(made.messages)
        """The types of its messages. Fragments and empty bodies are none."""

    def _checked(self, now: Nanos, event: PluginInput, view: View) -> list[PluginEffect]:
        """A mistake of a plug-in from outside the tree is its author's, and one sentence."""
        handle: Any = self.plugin.handle  # its answer may be anything
        try:
            answers = handle(now, event, view)
        except WendError:
            raise
        except Exception as error:
            raise blamed(self, event, _failure(error)) from error
        if type(answers) is not list:
            raise blamed(self, event, f"answered {answers!r:.80} where a list of effects is due")
        found: list[PluginEffect] = answers
        return found

    @property
    def message_type(self) -> Any:
        """What the body of its control messages may be, for decoders."""
        return ControlFragment if self._messages is None else self._messages | ControlFragment

    def read(self, body: Any) -> Any:
        """A message from its stored form: itself, or plain values."""
        return body if type(body) in self.types else msgspec.convert(body, self._messages)

    def mistake(self, answer: object) -> str | None:
        """What is wrong with an answer, in words that follow "it"; None where all is well."""
        kind = type(answer)
        if kind not in self._allowed:
            return f"answered {answer!r:.80}, which no {self.kind} plug-in may"
        if kind in _WITH_MESSAGE:
            message: object = answer.message  # type: ignore[attr-defined]
            if type(message) not in self.types:
                return f"sent a {type(message).__name__}, which it does not declare among its messages"
        return None


class Host:
    __slots__ = (
        "_carry_out", "_joined", "_links", "_persistence", "_timers", "by_name", "hosted", "interest", "interested",
        "membership", "router", "view",
    )  # fmt: skip

    def __init__(
        self,
        config: PeerConfig,
        plugins: NamedPlugins,
        links: Mapping[PeerId, LinkView],
        timers: Timers,
        carry_out: CarryOut,
    ) -> None:
        self._timers = timers
        self._carry_out = carry_out
        self._links = links
        self._joined: dict[str, set[Hosted]] = {}
        """By multicast group: the plug-ins that joined it."""
        self._persistence = config.of(DeliverySettings).persistence
        self.view = View(config, links, self._persistence)
        self.hosted = self._make(config, plugins)
        # a routing and its interest may share a name: messages are for the one that declares some
        self.by_name = {one.name: one for one in sorted(self.hosted, key=_declares_messages)}
        spoken = [one.name for one in self.hosted if _declares_messages(one)]
        if len(spoken) > len(set(spoken)):
            raise ConfigError(f"plug-ins that send messages need names of their own: {', '.join(sorted(spoken))}")
        self.membership = next((one for one in self.hosted if isinstance(one.plugin, Membership)), None)
        (self.interested,) = (one for one in self.hosted if one.kind == "interest")
        self.interest: Interest = self.interested.plugin  # type: ignore[assignment]
        self.router = self.hosted[-1]
        if self._persistence and not self.interest.durable:
            raise ConfigError(f"{self.interested.name} does not store events: persistence needs another interest")
        self.view.interest = self.interest
        self.view.membership = None if self.membership is None else self.membership.plugin

    def _make(self, config: PeerConfig, plugins: NamedPlugins) -> tuple[Hosted, ...]:
        hosted = tuple(Hosted(name, plugin_class(config)) for name, plugin_class in plugins)
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

    @property
    def routing(self) -> Routing:
        return self.router.plugin  # type: ignore[return-value]

    def status(self) -> dict[str, dict[str, int]]:
        """The sections of all plug-ins that have something to say, by name."""
        return {one.name: section for one in self.hosted if (section := one.plugin.status())}

    # ---------------------------------------------------------------- asking

    def tell(self, now: Nanos, one: Hosted, event: PluginInput, effects: Effects) -> None:
        self._carry_out(now, one, one.handle(now, event, self.view), effects)

    def tell_all(self, now: Nanos, event: PluginInput, effects: Effects, *but: Hosted) -> None:
        for one in self.hosted:
            if one not in but:
                self._carry_out(now, one, one.handle(now, event, self.view), effects)

    def heard(self, now: Nanos, sender: PeerId, name: str, message: Any, effects: Effects) -> None:
        """A message from another peer, for the plug-in that it names."""
        one = self.by_name.get(name)
        if one is None:
            effects.append(Refuse(sender, "unknown-plugin"))
        elif type(message) not in one.types:
            effects.append(Refuse(sender, "undeclared-message"))
        elif sender not in self._links and not one.plugin.hears_anyone:
            effects.append(Refuse(sender, "not-neighbour"))
        else:
            self._carry_out(now, one, one.handle(now, Heard(sender, message), self.view), effects)

    def recall(self, now: Nanos, record: StateRecord, effects: Effects) -> None:
        """A message that a plug-in stored in a former incarnation. One that nobody can read any more is void."""
        one = self.by_name.get(record.plugin)
        if one is None:
            return
        try:
            message = one.read(record.body)
        except msgspec.ValidationError:
            return
        self.tell(now, one, Recalled(message), effects)

    # ---------------------------------------------------------------- effects that concern plug-ins alone

    def carries_out(self, now: Nanos, one: Hosted, answer: PluginEffect, effects: Effects) -> bool:
        """Check an effect, and carry it out where it is the host's to do. False where it is the peer's."""
        mistake = one.mistake(answer)
        if mistake is not None:
            raise blamed(one, None, mistake)
        if type(answer) is SendTo:  # most of all effects
            return False
        if type(answer) is Timer:
            self._timers.at(answer.time_ns, self._due, (one, answer.name))
        elif type(answer) is Changed:
            self.tell_all(now, answer, effects, one)
        elif type(answer) is Remember:
            if self._persistence:
                effects.append(Persist(StateRecord(one.name, answer.key, answer.message)))
        elif type(answer) is JoinMulticast:
            if answer.group not in self._joined:
                effects.append(answer)
            self._joined.setdefault(answer.group, set()).add(one)
        elif type(answer) is LeaveMulticast:
            self._leave(one, answer, effects)
        else:
            return False
        return True

    def _leave(self, one: Hosted, leave: LeaveMulticast, effects: Effects) -> None:
        """The peer stays in a group until the last plug-in that joined it has left."""
        plugins = self._joined.get(leave.group, set())
        if one in plugins:
            plugins.remove(one)
            if not plugins:
                del self._joined[leave.group]
                effects.append(leave)

    def _due(self, now: Nanos, timer: tuple[Hosted, str], effects: Effects) -> None:
        one, name = timer
        self.tell(now, one, Due(name), effects)


def _declares_messages(one: Hosted) -> bool:
    return one.plugin.messages is not None


def blamed(one: Hosted, event: PluginInput | None, mistake: str) -> ConfigError:
    """The sentence about a plug-in's mistake."""
    told = "" if event is None else f", told {type(event).__name__},"
    return ConfigError(f"plug-in {one.name!r}{told} {mistake}")


def _failure(error: Exception) -> str:
    at = traceback.extract_tb(error.__traceback__)[-1]
    why = (str(error).splitlines() or [""])[0]
    return f"failed at line {at.lineno} of {at.filename.rpartition('/')[2]}: {type(error).__name__}: {why}"
