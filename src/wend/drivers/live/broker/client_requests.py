"""Carries out the requests of one client at the broker, except publications.

A session hands over the requests of a client that has greeted. The answers go to the client's output. Refusals are
counted, and the client gets the reason.
"""

import asyncio
from typing import TYPE_CHECKING

import msgspec

from wend.drivers.live import frames
from wend.drivers.live.access.grants import DENIALS
from wend.drivers.live.broker.admitted_client import AdmittedClient
from wend.drivers.live.broker.broker import Broker, BrokerClient
from wend.drivers.live.broker.durable_attachments import Window
from wend.drivers.live.config import NeighbourEntry
from wend.drivers.live.plans.pieces import PlanPieces
from wend.model.errors import Refused, WendError
from wend.model.events import Qos, Value
from wend.protocol.ports import Unretained

if TYPE_CHECKING:
    from wend.drivers.live.broker.client_output import ClientOutput

PAGE_BYTES = frames.MAX_FRAME_BYTES // 2
"""The size limit for a list of durable subscriptions in one frame."""


class ClientRequests:
    """Serves a client that has greeted."""

    def __init__(self, broker: Broker, client: BrokerClient, output: "ClientOutput", admitted: AdmittedClient) -> None:
        self._broker = broker
        self._client = client
        self._output = output
        self._admitted = admitted
        self._access = admitted.access
        self._plan_pieces = PlanPieces()
        self._tasks: set[asyncio.Task[None]] = set()

    def serve(self, frame: frames.Request) -> None:
        """Carry out a request, and answer it. Raises `WendError` if it is refused."""
        match frame:
            case frames.Subscribe():
                self._subscribe(frame)
            case frames.ReadLog():
                self._read_log(frame)
            case frames.Unsubscribe(ref, handle):
                self._output.queue.forget_subscription(handle)
                self._broker.unsubscribe(self._client, handle)
                if self._access is not None:
                    self._access.release_subscription(handle)
                self._output.answer(frames.Completed(ref))
            case frames.PingFrame(ref):
                self._output.answer(frames.Completed(ref))
            case frames.AskStatus(ref):
                self._admitted.check_status()
                self._output.answer(frames.StatusFrame(ref, self._broker.status()))
            case frames.ListSubscriptions(ref, after):
                durable = self._broker.durable.status()
                visible = durable if self._access is None else self._access.visible_subscriptions(durable)
                self._output.answer(_fill_page(ref, [one for one in visible if one.name > after]))
            case frames.Unretain(ref, attribute, value):
                self._unretain(attribute, value)
                self._output.answer(frames.Completed(ref))
            case frames.RemoveSubscription(ref, name):
                self._remove_durable(name)
                self._output.answer(frames.Completed(ref))
            case frames.SetLink(ref, peer, up):
                self._check_admin()
                self._broker.administration.set_link(peer, up)
                self._output.answer(frames.Completed(ref))
            case frames.AddLink(ref, peer, address, delay, reliability):
                self._check_admin()
                self._broker.administration.add_link(NeighbourEntry(peer, address, delay, reliability))
                self._output.answer(frames.Completed(ref))
            case frames.RemoveLink(ref, peer):
                self._check_admin()
                self._broker.administration.remove_link(peer)
                self._output.answer(frames.Completed(ref))
            case frames.ForgetPeer(ref, peer):
                self._check_admin()
                self._broker.administration.forget_peer(peer)
                self._output.answer(frames.Completed(ref))
            case frames.LoadPlan() | frames.PreparePlan() | frames.CommitPlan() | frames.RevertPlan():
                self._check_admin()
                task = asyncio.get_running_loop().create_task(self._change_plan(frame))
                self._tasks.add(task)  # the loop itself holds tasks only weakly
                task.add_done_callback(self._tasks.discard)

    def serve_unanswered(self, frame: frames.Note) -> None:
        """Carry out what a client says without waiting for an answer."""
        if isinstance(frame, frames.Continue):
            self._broker.readers.take(self._client, frame.handle, frame.position)
        elif isinstance(frame, frames.Confirm):
            self._broker.confirm_deliveries(self._client, frame.handle, frame.positions, frame.ids)
        else:
            self._broker.stand_by(self._client, frame.handle, frame.standby_ns)

    def refuse(self, ref: int, error: WendError) -> None:
        """Answer a request that was not carried out with the reason."""
        self._broker.counts["denied"] += 1
        if error.code in DENIALS:
            self._broker.counts[error.code] += 1
        self._output.answer(frames.RefusedFrame(ref, error.code, str(error)))

    def _check_admin(self) -> None:
        if self._access is not None:
            self._access.check_admin()

    def _subscribe(self, frame: frames.Subscribe) -> None:
        _check_handle(frame.handle)
        qos = Qos(
            deadline_ns=frame.deadline_ns,
            factor=frame.factor,
            reliability=frame.reliability,
            order=frame.order,
            expire=frame.expire,
            group=frame.group,
        )
        text, durable = frame.filter, frame.durable
        if self._access is not None:
            text, durable = self._access.grant_subscription(text, durable, frame.announced)
        window = Window(frame.window, frame.standby_ns, frame.shared)
        self._broker.subscribe(self._client, frame.handle, text, qos, durable, window, frame.announced)
        if self._access is not None:
            self._access.record_subscription(frame.handle, durable)
        self._output.answer(frames.Completed(frame.ref))
        if frame.retained and frame.announced and frame.durable is None and not frame.group:
            self._broker.retained.on_subscribed(self._client, frame.handle, text)

    def _read_log(self, frame: frames.ReadLog) -> None:
        _check_handle(frame.handle)
        text = frame.filter
        if self._access is not None:
            text, _ = self._access.grant_subscription(text, None, announced=True)
        self._broker.readers.open(self._client, self._output, frame, text)
        if self._access is not None:
            self._access.record_subscription(frame.handle, None)
        self._output.answer(frames.Completed(frame.ref))

    def _unretain(self, attribute: str, value: Value) -> None:
        if self._access is not None:
            self._access.check_replacement(attribute, value)
            self._access.release_retained(attribute, value)
        self._broker.peer.ask(Unretained(attribute, value))

    def _remove_durable(self, name: str) -> None:
        if self._access is not None:
            name = self._access.removable_name(name)
            self._access.release_durable(name)
        self._broker.remove_durable(name)

    async def _change_plan(self, frame: frames.PlanRequest) -> None:
        try:
            self._output.answer(await self._plan_pieces.serve(frame, self._broker.administration.followed_plan()))
        except WendError as error:
            self.refuse(frame.ref, error)


def _check_handle(handle: int) -> None:
    if handle < 1:
        raise Refused(f"a subscription's number starts at 1, got {handle}", code="invalid-subscription")


def _fill_page(ref: int, durable: list[frames.DurableStatus]) -> frames.Subscriptions:
    """A frame with as many of these as it can hold, in order."""
    left, page = PAGE_BYTES, list[frames.DurableStatus]()
    for one in durable:
        left -= len(msgspec.msgpack.encode(one))
        if left < 0 and page:
            break
        page.append(one)
    return frames.Subscriptions(ref, tuple(page), more=len(page) < len(durable))
