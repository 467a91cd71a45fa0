"""What a client can ask of its peer, besides publishing and subscribing."""

from wend.drivers.live import frames
from wend.drivers.live.client.request_channel import RequestChannel
from wend.drivers.live.client.subscribe_options import check_name
from wend.drivers.live.status import StatusSnapshot
from wend.model.events import PeerId, Value
from wend.model.publication import check_types

_PIECE_BYTES = 256 * 1024


class PeerRequests:
    """The requests of a client that are about the peer itself."""

    _channel: RequestChannel

    async def status(self) -> StatusSnapshot:
        """The peer's counters, and the state of its links."""
        return (await self._channel.call(frames.AskStatus(self._channel.number()), frames.StatusFrame)).status

    async def cut(self, neighbour: PeerId) -> None:
        """Have the peer lose everything that it sends to this neighbour; for experiments."""
        await self._channel.call(frames.SetLink(self._channel.number(), neighbour, False), frames.Completed)

    async def heal(self, neighbour: PeerId) -> None:
        """Undo `cut`."""
        await self._channel.call(frames.SetLink(self._channel.number(), neighbour, True), frames.Completed)

    async def add_link(self, neighbour: PeerId, address: str, *, delay: str = "20ms", reliability: float = 1.0) -> None:
        """Have the peer make a link with one more neighbour, until it restarts. The neighbour makes it, too, unless its
        file says `admit = false`."""
        request = frames.AddLink(self._channel.number(), neighbour, address, delay, reliability)
        await self._channel.call(request, frames.Completed)

    async def remove_link(self, neighbour: PeerId) -> None:
        """Have the peer end the link with a neighbour. What is in flight over it takes other routes."""
        await self._channel.call(frames.RemoveLink(self._channel.number(), neighbour), frames.Completed)

    async def load_plan(self) -> int:
        """Have the peer read its plan again and follow it, without losing or doubling an event; the plan's id."""
        return (await self._channel.call(frames.LoadPlan(self._channel.number()), frames.Following)).plan

    async def prepare_plan(self, version: int, part: bytes) -> None:
        """Have the peer check its part of a plan (`wend.model.plan_slice`), and hold it for a minute."""
        pieces = [part[place : place + _PIECE_BYTES] for place in range(0, len(part), _PIECE_BYTES)]
        for number, piece in enumerate(pieces, 1):
            request = frames.PreparePlan(self._channel.number(), version, piece, last=number == len(pieces))
            await self._channel.call(request, frames.Completed)

    async def commit_plan(self, plan: int, version: int) -> None:
        """Have the peer follow the plan that it holds."""
        await self._channel.call(frames.CommitPlan(self._channel.number(), plan, version), frames.Following)

    async def revert_plan(self, plan: int, version: int) -> None:
        """Have the peer forget a plan that it holds, or follow the one before it again."""
        await self._channel.call(frames.RevertPlan(self._channel.number(), plan, version), frames.Completed)

    async def subscriptions(self) -> tuple[frames.DurableStatus, ...]:
        """The durable subscriptions at the peer, by name."""
        found: list[frames.DurableStatus] = []
        more = True
        while more:
            after = found[-1].name if found else ""
            asked = frames.ListSubscriptions(self._channel.number(), after)
            answer = await self._channel.call(asked, frames.Subscriptions)
            found += answer.durable
            more = answer.more and bool(answer.durable)
        return tuple(found)

    async def remove_subscription(self, name: str) -> None:
        """Remove a durable subscription from the peer, with the events that wait for it."""
        check_name(name)
        await self._channel.call(frames.RemoveSubscription(self._channel.number(), name), frames.Completed)

    async def unretain(self, value: Value, attribute: str = "topic") -> None:
        """Have the peer forget the event that it retains for this topic, or this value of another attribute."""
        check_types({attribute: value}, b"", {})
        await self._channel.call(frames.Unretain(self._channel.number(), attribute, value), frames.Completed)
