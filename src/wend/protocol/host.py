"""The plug-in host: it makes the plug-ins that a configuration asks for, dispatches to them, and checks their answers.

The configuration names the routing; this says which interest and graphs it needs, these say what they need, and nothing
else runs. The host asks plug-ins in one order: membership, the link-state graph, interest, other graphs, routing. So a
plug-in that builds on another hears of a change after it.

The host carries out what concerns plug-ins alone (timers, changes, memory). The peer carries out the rest: `actions`
maps a type of effect to what the peer does about it.
"""

import traceback
from collections.abc import Callable, Mapping
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
    Changed,
    Due,
    Forward,
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
from wend.protocol.ports import Persist, Refuse
from wend.protocol.records import StateRecord
from wend.protocol.tables import hosted_plugins, plugin
from wend.protocol.timers import Effects, Timers

OUTSIDE = ":"
"""It stands in the name of a plug-in from outside the tree."""
Action = Callable[[Nanos, "Hosted", Any, Effects], None]


class Hosted:
    """A plug-in at work, with what the host needs at every step."""

    __slots__ = ("_allowed", "_messages", "_types", "handle", "header", "kind", "name", "plugin")

    def __init__(self, name: str, made: Plugin) -> None:
        self.name = name
        self.kind: Kind = made.kind
        self.plugin = made
        self.handle = made.handle
        self.header: type = type(None)
        if isinstance(made, Routing) and made.header is not None:
            self.header = made.header
        self._allowed = ALLOWED[made.kind]
        self._messages = made.messages
        self._types: frozenset[type] = frozenset(get_args(made.messages) or ([made.messages] if made.messages else []))

    @property
    def message_type(self) -> Any:
        """What the body of its control messages may be, for decoders."""
        return ControlFragment if self._messages is None else self._messages | ControlFragment

    def read(self, body: Any) -> Any:
        """A message from its stored form: itself, or plain values."""
        return body if type(body) in self._types else msgspec.convert(body, self._messages)

    def mistake(self, answer: object) -> str | None:
        """What is wrong with an answer, in words that follow "it"; None where all is well."""
        if type(answer) not in self._allowed:
            return f"answered {answer!r:.80}, which a {self.kind} plug-in may not"
        if isinstance(answer, Tell | SendTo | Remember) and type(answer.message) not in self._types:
            return f"sent a {type(answer.message).__name__}, which it does not declare among its messages"
        return None


class Host:
    def __init__(
        self,
        config: PeerConfig,
        links: Mapping[PeerId, LinkView],
        timers: Timers,
        actions: Mapping[type, Action],
    ) -> None:
        self._timers = timers
        self._actions: dict[type, Action] = {
            **actions,
            Timer: self._set_timer,
            Changed: self._changed,
            Remember: self._remember,
        }
        self._forward = actions[Forward]
        self._links = links
        self._persistency = config.of(DeliverySettings).persistency
        self.view = View(config, links, self._persistency)
        self.hosted = self._make(config)
        self.by_name = {one.name: one for one in self.hosted}
        self.membership = next((one for one in self.hosted if isinstance(one.plugin, Membership)), None)
        (self.interest,) = (one.plugin for one in self.hosted if isinstance(one.plugin, Interest))
        self.router = self.hosted[-1]
        self.view.interest = self.interest

    def _make(self, config: PeerConfig) -> tuple[Hosted, ...]:
        wanted = hosted_plugins(config.strategy, config.interest, config.membership, self._persistency)
        made = tuple(Hosted(name, plugin(kind, name)(config)) for kind, name in wanted)
        for one in made:
            if one.kind == "graph":
                self.view.graphs[one.name] = one.plugin
                if one.name == LINK_STATE:
                    self.view.graph = one.plugin  # type: ignore[assignment]
        return made

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
        self.carry_out(now, one, self.ask(now, one, event), effects)

    def tell_all(self, now: Nanos, event: PluginInput, effects: Effects, *but: Hosted) -> None:
        for one in self.hosted:
            if one not in but:
                self.carry_out(now, one, self.ask(now, one, event), effects)

    def ask(self, now: Nanos, one: Hosted, event: PluginInput) -> list[PluginEffect]:
        """The answers of a plug-in, still to be carried out."""
        try:
            answers = one.handle(now, event, self.view)
        except WendError:
            raise
        except Exception as error:
            if OUTSIDE not in one.name:
                raise
            raise _blamed(one, event, _failure(error)) from error
        if type(answers) is not list:
            raise _blamed(one, event, f"answered {answers!r:.80} where a list of effects is due")
        return answers

    def heard(self, now: Nanos, sender: PeerId, name: str, message: Any, effects: Effects) -> None:
        """A message from another peer, for the plug-in that it names."""
        one = self.by_name.get(name)
        if one is None:
            effects.append(Refuse(sender, "a message for a plug-in that this peer does not host"))
        else:
            self.tell(now, one, Heard(sender, message), effects)

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

    # ---------------------------------------------------------------- carrying out

    def carry_out(self, now: Nanos, one: Hosted, answers: list[PluginEffect], effects: Effects) -> None:
        for answer in answers:
            if type(answer) is Forward and one is self.router:
                if answer.peer not in self._links:
                    raise _blamed(one, None, f"answered a Forward to {answer.peer!r}, which is not a neighbour")
                if answer.header is not None and type(answer.header) is not one.header:
                    raise _blamed(one, None, f"answered a Forward with a header that is not a {one.header.__name__}")
                self._forward(now, one, answer, effects)
                continue
            mistake = one.mistake(answer)
            if mistake is not None:
                raise _blamed(one, None, mistake)
            action = self._actions.get(type(answer))
            if action is None:
                effects.append(answer)  # type: ignore[arg-type]
            else:
                action(now, one, answer, effects)

    def _set_timer(self, now: Nanos, one: Hosted, timer: Timer, effects: Effects) -> None:
        self._timers.at(timer.time_ns, self._due, (one, timer.name))

    def _due(self, now: Nanos, timer: tuple[Hosted, str], effects: Effects) -> None:
        one, name = timer
        self.tell(now, one, Due(name), effects)

    def _changed(self, now: Nanos, one: Hosted, changed: Changed, effects: Effects) -> None:
        self.tell_all(now, changed, effects, one)

    def _remember(self, now: Nanos, one: Hosted, remember: Remember, effects: Effects) -> None:
        if self._persistency:
            effects.append(Persist(StateRecord(one.name, remember.key, remember.message)))


def _blamed(one: Hosted, event: PluginInput | None, mistake: str) -> ConfigError:
    told = "" if event is None else f", told {type(event).__name__},"
    return ConfigError(f"plug-in {one.name!r}{told} {mistake}")


def _failure(error: Exception) -> str:
    at = traceback.extract_tb(error.__traceback__)[-1]
    why = (str(error).splitlines() or [""])[0]
    return f"failed at line {at.lineno} of {at.filename.rpartition('/')[2]}: {type(error).__name__}: {why}"
