"""Control that is larger than a datagram: cut into sheets by the sender of each hop, put together by its receiver.

What is wanted and offered at a peer, and on trees what is wanted on a whole side of a link, grows with what clients ask
for. Each sheet is told like any other control, repeated until it is acknowledged and replaced by a newer one in its
slot; so a sheet that is lost costs one packet. All sheets of one telling have its number, and a newer number in the
same slot begins anew.

What a neighbour leaves unfinished is bounded, for each neighbour by itself. Where there is no room a sheet is not
acknowledged, so its sender tries again; what has not grown for long was given up by its sender, and makes room.
"""

from collections import Counter
from typing import Any

import msgspec

from wend.model.events import PeerId
from wend.model.units import SECOND, Nanos
from wend.protocol.link.retransmission import OutgoingControl
from wend.protocol.messages import MAX_CONTROL_BYTES, ControlFragment, Slot
from wend.protocol.notices import TOO_LARGE, RefusalReason
from wend.protocol.ports import Notice, Refuse
from wend.protocol.timers import Effects

SHEET_BYTES = 16_000
MAX_SHEETS = MAX_CONTROL_BYTES // SHEET_BYTES
ROOM_BYTES = 8 * MAX_CONTROL_BYTES
"""What is held of one neighbour's unfinished control."""
STALE_NS = 120 * SECOND
"""Longer than any sender repeats itself."""
_BOOKKEEPING_BYTES = 512
_SLOT_CHARS = 64
_FINISHED = 4096

Key = tuple[str, Slot]
"""A plug-in, and what its message is about."""

_encoder = msgspec.msgpack.Encoder()


def _chunks(body: Any) -> list[bytes]:
    try:
        whole = _encoder.encode(body)
    except (msgspec.MsgspecError, OverflowError, ValueError):
        return []  # what no driver can encode is for the driver to say
    return [whole[i : i + SHEET_BYTES] for i in range(0, len(whole), SHEET_BYTES)]


class _Draft:
    __slots__ = ("chunks", "count", "grown_ns", "number", "size")

    def __init__(self, number: int, count: int) -> None:
        self.number = number
        self.count = count
        self.chunks: dict[int, bytes] = {}
        self.size = _BOOKKEEPING_BYTES
        self.grown_ns: Nanos = 0


class ControlFragments:
    """What a peer cuts, and what it has of what others cut."""

    def __init__(self) -> None:
        self._number = 0
        self._body: Any = None
        self._chunks: list[bytes] = []
        self._drafts: dict[PeerId, dict[Key, _Draft]] = {}
        self._held: Counter[PeerId] = Counter()
        """Bytes of each one's drafts, with what the bookkeeping costs."""
        self._finished: dict[PeerId, dict[Key, int]] = {}

    # ---------------------------------------------------------------- cutting

    def cut(self, control: OutgoingControl, effects: Effects) -> list[OutgoingControl]:
        """What to send in its stead: itself if it is small, nothing if nobody could put it together."""
        peer, plugin, slot, body = control.peer, control.plugin, control.slot, control.body
        if slot is None:
            return [control]
        if body is not self._body:  # all neighbours are told the same
            self._body, self._chunks = body, _chunks(body)
        count = len(self._chunks)
        if count <= 1:
            return [control]
        if count > MAX_SHEETS:
            effects.append(Notice(TOO_LARGE, peer))
            return []
        self._number += 1
        name, origin = slot
        return [
            OutgoingControl(
                peer,
                plugin,
                (f"{name}/{i}", origin) if i else slot,
                ControlFragment(slot, self._number, i, count, chunk),
            )
            for i, chunk in enumerate(self._chunks)
        ]

    # ---------------------------------------------------------------- putting together

    def refuses(self, now: Nanos, sender: PeerId, plugin: str, sheet: ControlFragment) -> RefusalReason | None:
        """Why a sheet cannot be taken, in a sentence; then it is not acknowledged."""
        if not 1 < sheet.count <= MAX_SHEETS or not 0 <= sheet.index < sheet.count:
            return "a fragment of nothing"
        if not 0 < len(sheet.chunk) <= SHEET_BYTES or len(sheet.slot[0]) > _SLOT_CHARS:
            return "a malformed fragment"
        drafts = self._drafts.get(sender, {})
        draft = drafts.get((plugin, sheet.slot))
        if draft is not None and draft.number == sheet.number and draft.count != sheet.count:
            return "a fragment that does not fit the others"
        room = ROOM_BYTES - len(sheet.chunk) - _BOOKKEEPING_BYTES
        if self._held[sender] > room:
            for slot in [slot for slot, d in drafts.items() if now - d.grown_ns > STALE_NS]:
                self._drop(sender, slot)
            if self._held[sender] > room:
                return "more incomplete control than there is room for"
        return None

    def take(
        self, now: Nanos, sender: PeerId, plugin: str, sheet: ControlFragment, message_type: Any, effects: Effects
    ) -> Any:
        """The message that this fragment completes, of the type that its plug-in declares; None if there is none."""
        slot, number = (plugin, sheet.slot), sheet.number
        drafts, finished = self._drafts.setdefault(sender, {}), self._finished.setdefault(sender, {})
        draft = drafts.get(slot)
        if number <= finished.get(slot, 0) or (draft is not None and number < draft.number):
            return None
        if draft is not None and number > draft.number:
            self._drop(sender, slot)
            draft = None
        if draft is None:
            draft = drafts[slot] = _Draft(number, sheet.count)
            self._held[sender] += draft.size
        if sheet.index not in draft.chunks:
            draft.chunks[sheet.index] = sheet.chunk
            draft.size += len(sheet.chunk)
            self._held[sender] += len(sheet.chunk)
            draft.grown_ns = now
        if len(draft.chunks) < draft.count:
            return None
        self._drop(sender, slot)
        finished.pop(slot, None)
        finished[slot] = number
        if len(finished) > _FINISHED:
            del finished[next(iter(finished))]
        try:
            return msgspec.msgpack.decode(b"".join([draft.chunks[i] for i in range(draft.count)]), type=message_type)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            effects.append(Refuse(sender, "fragments that make no sense together"))
            return None

    def forget(self, sender: PeerId) -> None:
        """A new life of a neighbour numbers anew and does not go on with what the former began."""
        self._drafts.pop(sender, None)
        self._held.pop(sender, None)
        self._finished.pop(sender, None)

    def _drop(self, sender: PeerId, slot: Key) -> None:
        self._held[sender] -= self._drafts[sender].pop(slot).size
