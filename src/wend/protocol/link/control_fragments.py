"""Control messages larger than a datagram, over one link (`fragments.py` has the mechanism).

Interest and link states grow with the number of subscriptions and links. Each fragment is a control message of its own:
the sender repeats it until it is acknowledged, or until a newer message replaces it in its slot. So a lost fragment
costs one packet.
"""

from typing import Any

import msgspec

from wend.model.events import Event, PeerId
from wend.model.units import Nanos
from wend.protocol.link.fragments import CONTROL, CONTROL_FRAGMENT_BYTES, Reassembly, cut_fragment, fragment_count
from wend.protocol.link.in_flight import OutgoingControl
from wend.protocol.messages import ControlFragment
from wend.protocol.notices import TOO_LARGE
from wend.protocol.ports import Notice, Refuse
from wend.protocol.timers import Effects

_SLOT_CHARS = 64

_encoder = msgspec.msgpack.Encoder()


class ControlFragments:
    """Splits the control messages of a peer, and reassembles those of its neighbours."""

    __slots__ = ("_body", "_chunks", "_number", "_reassembly")

    def __init__(self) -> None:
        self._number = 0
        self._body: Any = None
        self._chunks: tuple[bytes, ...] = ()
        """The fragments of `_body`, the last message: a peer usually sends the same message to all neighbours."""
        self._reassembly: Reassembly | None = None
        """Created when the first fragment arrives."""

    def split(self, control: OutgoingControl, effects: Effects) -> list[OutgoingControl]:
        """Split a message that is larger than a datagram. Return nothing if it is too large for any neighbour."""
        peer, plugin, slot, body = control.peer, control.plugin, control.slot, control.body
        if slot is None:
            return [control]
        if body is not self._body:
            self._body, self._chunks = body, _chunks(body)
        count = len(self._chunks)
        if count <= 1:
            return [control]
        if count > CONTROL.fragments:
            effects.append(Notice(TOO_LARGE, peer))
            return []
        self._number += 1
        name, origin = slot
        return [
            OutgoingControl(
                peer,
                plugin,
                (f"{name}/{index}", origin) if index else slot,
                ControlFragment(slot, self._number, index, count, piece),
            )
            for index, piece in enumerate(self._chunks)
        ]

    def accept(self, now: Nanos, sender: PeerId, plugin: str, fragment: ControlFragment, effects: Effects) -> bool:
        """Store a fragment. Return False if it is refused, and so must not be acknowledged."""
        if len(fragment.slot[0]) > _SLOT_CHARS:
            effects.append(Refuse(sender, "malformed-fragment"))
            return False
        if self._reassembly is None:
            self._reassembly = Reassembly(CONTROL)
        return self._reassembly.accept(now, sender, (plugin, fragment.slot), fragment.number, fragment, effects)

    def pop_complete(
        self, sender: PeerId, plugin: str, fragment: ControlFragment, message_type: Any, effects: Effects
    ) -> Any:
        """Decode the message that this fragment completes, of the plug-in's type; None if it is still incomplete."""
        assert self._reassembly is not None  # it has accepted the fragment
        message = self._reassembly.pop_complete(sender, (plugin, fragment.slot))
        if message is None:
            return None
        try:
            body = msgspec.msgpack.decode(message.join(), type=message_type)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            effects.append(Refuse(sender, "undecodable-fragments"))
            return None
        if isinstance(getattr(body, "event", None), Event):
            # a driver may inspect events in messages, because it knows whose events a neighbour may forward
            effects.append(Refuse(sender, "undecodable-fragments"))
            return None
        return body

    def forget(self, sender: PeerId) -> None:
        if self._reassembly is not None:
            self._reassembly.forget(sender)


def _chunks(body: Any) -> tuple[bytes, ...]:
    try:
        encoded = _encoder.encode(body)
    except (msgspec.MsgspecError, OverflowError, ValueError):
        return ()  # the driver reports that it cannot encode this
    count = fragment_count(len(encoded), CONTROL_FRAGMENT_BYTES)
    return tuple([cut_fragment(encoded, index, CONTROL_FRAGMENT_BYTES) for index in range(count)])
