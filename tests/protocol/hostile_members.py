"""A small overlay with one hostile member, who says anything that its message types allow, to neighbours and others.

It sends random messages of every type that the plug-ins of a strategy declare, and changed copies of what an honest
peer would send in its place. No honest peer may raise, or send what cannot be encoded.

`python -m tests.protocol.hostile_members 20000 [STRATEGY ...]` plays so many hostile messages; `--seed` names the draw.
"""

import argparse
import math
import time
from collections import defaultdict, deque
from heapq import heappop, heappush
from random import Random
from typing import Any

import msgspec
from msgspec import inspect

from wend.drivers.live.transport import wire
from wend.model.errors import ConfigError, WireError
from wend.model.events import PeerId, Qos, Range
from wend.model.publication import Publication
from wend.model.units import MS, SECOND, Nanos
from wend.protocol.config import PeerConfig
from wend.protocol.messages import (
    TX_SHIFT,
    Ack,
    Control,
    Data,
    DirectAck,
    DirectMessage,
    Fragment,
    Hello,
    Message,
    PlainMessage,
)
from wend.protocol.ports import (
    Effect,
    Input,
    JoinMulticast,
    LeaveMulticast,
    LocalSubscription,
    Multicast,
    Neighbour,
    Persist,
    Received,
    Send,
    SendEach,
    Started,
    WakeAt,
    Woken,
)
from wend.strategies.registry import STRATEGIES, make_peer

HONEST, HOSTILE, STRANGER = (0, 1, 2, 3), 9, 50
DELAY_NS: Nanos = 5 * MS
WHOLE = (0, 1, 2, 3, 9, 50, -1, 7, 10**6, 10**9, 2**31, 2**32 - 1, 2**40, 2**62, 2**63 - 1, -(2**63), 2**64 - 1)
REAL = (0.0, 1.0, -1.0, 0.5, 1e300, -1e300, math.inf, -math.inf, math.nan, 5e-324)
TEXTS = ("", "a", "topic", "topic = 'a'", "x > 1", "junk (", "true", "a" * 300, "\0", "x in [1, 2]", "01", "g")
BYTES = (b"", b"x", bytes(200), msgspec.msgpack.encode([1, 2]))
EVENTS: tuple[dict[str, Any], ...] = ({"topic": "a"}, {"topic": "b"}, {"x": 5})


class Nonsense:
    """Values of declared types, and changed values, from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)

    def of(self, kind: inspect.Type, depth: int = 0) -> Any:
        """A value of a type."""
        draw = self.random
        match kind:
            case inspect.BoolType():
                return draw.random() < 0.5
            case inspect.IntType():
                return draw.choice(WHOLE) if draw.random() < 0.7 else draw.randrange(-5, 300)
            case inspect.FloatType():
                return draw.choice(REAL)
            case inspect.StrType():
                return draw.choice(TEXTS)
            case inspect.BytesType():
                return draw.choice(BYTES)
            case inspect.LiteralType(values=values):
                return draw.choice(list(values))
            case inspect.Metadata(type=inner):
                return self.of(inner, depth)
            case inspect.UnionType(types=types):
                return self.of(draw.choice(types), depth)
            case inspect.TupleType(item_types=types):
                return tuple(self.of(one, depth + 1) for one in types)
            case inspect.VarTupleType(item_type=inner):
                return tuple(self.of(inner, depth + 1) for _ in range(self._size(depth)))
            case inspect.DictType(key_type=key, value_type=value):
                return {self.of(key, depth + 1): self.of(value, depth + 1) for _ in range(self._size(depth))}
            case inspect.NamedTupleType(cls=cls, fields=fields):
                return cls(*(self.of(field.type, depth + 1) for field in fields))
            case inspect.StructType(cls=cls, fields=fields):
                wanted = [field for field in fields if field.required or draw.random() < 0.6]
                try:
                    return cls(**{field.name: self.of(field.type, depth + 1) for field in wanted})
                except ValueError:  # a range whose ends do not fit
                    return Range(1, 3)
        return None

    def _size(self, depth: int) -> int:
        return self.random.choice((0, 1, 1, 2, 3, 8)) if depth < 4 else self.random.choice((0, 1))

    def changed(self, value: Any, share: float) -> Any:
        """A value in which about this share of the parts is another one."""
        draw = self.random
        if draw.random() < share:
            match value:
                case bool():
                    return not value
                case int():
                    return draw.choice((draw.choice(WHOLE), value + 1, -value, 2 * value))
                case float():
                    return draw.choice(REAL)
                case str():
                    return draw.choice(TEXTS)
                case bytes():
                    return draw.choice((b"", value[:-1], value + b"x"))
                case tuple() if type(value) is tuple:
                    return draw.choice(((), value + value, value[:-1], value * 30))
        if isinstance(value, msgspec.Struct):
            parts = {name: self.changed(getattr(value, name), share) for name in value.__struct_fields__}
            try:
                return type(value)(**parts)
            except ValueError:
                return value
        if isinstance(value, tuple):
            items = [self.changed(one, share) for one in value]
            return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
        if isinstance(value, dict):
            return {name: self.changed(one, share) for name, one in value.items()}
        return value


class HostileOverlay:
    """Honest peers, and one whose messages are changed."""

    def __init__(self, strategy: str, seed: int, persistence: bool) -> None:
        self._nonsense = Nonsense(seed)
        self._random = self._nonsense.random
        self.now: Nanos = 0
        self.told = 0
        """Hostile messages that a peer got."""
        self._agenda: list[tuple[Nanos, int, PeerId, Input]] = []
        self._steps = self._tx = 0
        self._wake: dict[PeerId, Nanos] = {}
        self._groups: dict[int, set[PeerId]] = defaultdict(set)
        self._overheard: deque[Message] = deque(maxlen=400)
        everyone = (*HONEST, HOSTILE)
        self.peers = {
            peer: make_peer(PeerConfig(peer=peer, strategy=strategy, persistence=persistence, seed=peer))
            for peer in everyone
        }
        one = self.peers[0]
        self._types = wire.MessageTypes(one.message_types, one.header_type)
        self._bodies = {name: inspect.type_info(kind) for name, kind in one.message_types.items()}
        self._header = None if one.header_type is type(None) else inspect.type_info(one.header_type)
        wanted = [LocalSubscription(1, "topic = 'a'"), LocalSubscription(2, "x > 1")]
        if one.knows_all_subscribers:
            wanted += [
                LocalSubscription(3, "topic = 'b'", Qos(order=True)),
                LocalSubscription(4, "x > 2", Qos(group="g")),
            ]
        for peer in everyone:
            near = tuple(Neighbour(other, 10 * MS) for other in everyone if other != peer)
            self._tell(peer, Started(near, tuple(wanted)))

    def play(self, messages: int) -> None:
        """Let honest peers get so many hostile messages. Raises what they raise."""
        while self.told < messages:
            self._step()
            if self.now > 3 * SECOND:
                self._lie()
            if self._random.random() < 0.03:
                event = self._random.choice(EVENTS)
                self._tell(self._random.choice(HONEST), Publication(event, bytes(self._random.choice((1, 3000)))))

    def _step(self) -> None:
        due = [self._agenda[0][0]] if self._agenda else []
        self.now = max(self.now + 1, min([*due, *self._wake.values(), self.now + 20 * MS]))
        while self._agenda and self._agenda[0][0] <= self.now:
            _, _, peer, event = heappop(self._agenda)
            self._tell(peer, event)
        for peer in [peer for peer, time_ns in self._wake.items() if time_ns <= self.now]:
            del self._wake[peer]
            self._tell(peer, Woken())

    def _tell(self, peer: PeerId, event: Input) -> None:
        try:
            effects = self.peers[peer].handle(self.now, event)
        except Exception as error:
            if peer == HOSTILE:
                return  # it hears its own lies
            raise AssertionError(f"peer {peer} raised {error!r} at {event!r}") from error
        for effect in effects:
            self._carry_out(peer, effect)

    def _carry_out(self, peer: PeerId, effect: Effect) -> None:
        match effect:
            case Send(peer=to, message=message):
                self._send(peer, to, message)
            case SendEach(peers=others, message=message):
                for to in others:
                    self._send(peer, to, message)
            case Multicast(group=group, message=message):
                for to in sorted(self._groups[group] - {peer}):
                    self._send(peer, to, message)
            case JoinMulticast(group=group):
                self._groups[group].add(peer)
            case LeaveMulticast(group=group):
                self._groups[group].discard(peer)
            case WakeAt(time_ns=time_ns):
                self._wake[peer] = time_ns
            case Persist(record=record):
                msgspec.msgpack.encode(record)

    def _send(self, sender: PeerId, to: PeerId, message: Message) -> None:
        try:
            wire.encode_message(message)
        except WireError as error:
            if sender != HOSTILE:
                raise AssertionError(f"peer {sender} cannot send {message!r}: {error}") from error
            return
        if sender == HOSTILE:
            self._overheard.append(message)
            if self._random.random() < 0.5:
                self._inject(to, HOSTILE, self._nonsense.changed(message, self._random.choice((0.02, 0.1, 0.3))))
                return
        if to in self.peers:
            self._push(to, Received(sender, message))

    def _lie(self) -> None:
        if self._overheard and self._random.random() < 0.5:
            message = self._nonsense.changed(
                self._random.choice(self._overheard), self._random.choice((0.02, 0.1, 0.3))
            )
        else:
            message = self._invented()
        self._inject(self._random.choice(HONEST), self._random.choice((HOSTILE, HOSTILE, STRANGER)), message)

    def _invented(self) -> Message:
        draw, of = self._random, self._nonsense.of
        name = draw.choice(sorted(self._bodies))
        body = of(self._bodies[name])
        match draw.randrange(9):
            case 0 | 1:
                return Control(self._number(), name, body)
            case 2:
                return PlainMessage(name, body)
            case 3 | 4:
                return DirectMessage(self._number(), name, body)
            case 5:
                return of(inspect.type_info(Hello))  # type: ignore[no-any-return]
            case 6:
                return of(inspect.type_info(Fragment))  # type: ignore[no-any-return]
            case 7:
                return draw.choice((Ack(self._number(), True, draw.choice(WHOLE)), DirectAck(self._number())))
        header = of(self._header) if self._header is not None and draw.random() < 0.7 else None
        dests = tuple(draw.choice((*HONEST, HOSTILE, 7)) for _ in range(draw.randrange(4)))
        data = of(inspect.type_info(Data))
        assert isinstance(data, Data)
        return msgspec.structs.replace(data, tx=self._number(), header=header, dests=dests)

    def _number(self) -> int:
        self._tx += 1
        usual = (1 << TX_SHIFT) + self._tx
        return self._random.choice((usual,) * 6 + ((2 << TX_SHIFT) + 1, self._random.choice(WHOLE)))

    def _inject(self, to: PeerId, sender: PeerId, message: Message) -> None:
        """Let a hostile message arrive, if it is one that a decoder would take."""
        try:
            (decoded,) = wire.decode_body(wire.MESSAGE, wire.encode_message(message), self._types)
        except WireError:
            return
        if to in HONEST:
            self.told += 1
            self._push(to, Received(sender, decoded))

    def _push(self, to: PeerId, event: Input) -> None:
        self._steps += 1
        heappush(self._agenda, (self.now + DELAY_NS, self._steps, to, event))


def can_store(strategy: str) -> bool:
    """Whether there may be persistence."""
    try:
        make_peer(PeerConfig(peer=0, strategy=strategy, persistence=True))
    except ConfigError:
        return False
    return True


def main() -> None:
    about, *_ = (__doc__ or "").partition("\n")
    asked = argparse.ArgumentParser(prog="python -m tests.protocol.hostile_members", description=about)
    asked.add_argument("count", type=int, help="hostile messages for each strategy")
    asked.add_argument("strategies", nargs="*", metavar="STRATEGY", help=f"default: {', '.join(STRATEGIES)}")
    asked.add_argument("--seed", type=int, default=0)
    given = asked.parse_args()
    for strategy in given.strategies or STRATEGIES:
        for persistence in (False, True) if can_store(strategy) else (False,):
            began = time.monotonic()
            HostileOverlay(strategy, given.seed, persistence).play(given.count)
            stores = " with persistence" if persistence else ""
            print(
                f"{strategy}{stores}: {given.count} messages in {time.monotonic() - began:.0f} s, none raised",
                flush=True,
            )


if __name__ == "__main__":
    main()
