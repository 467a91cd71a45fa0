"""Handing a plan to all of its peers, while events flow: checked by all, then followed by all, or by none.

`push_plan` connects to every peer as a client. Each checks its own part of the plan; together they check the plan's
topology. If all accept it, all commit. If one cannot, the others return to the plan that they followed before. Then
`push_plan` watches which share of the events arrives on time, and rolls all peers back if it falls. An error or Ctrl-C
before the end rolls back, too.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, TypeVar

import msgspec

from wend.drivers.live.client.client import Client
from wend.drivers.live.status import StatusSnapshot
from wend.model.errors import ClientError, ConfigError, ConnectionLost, Refused, TryAgain, WendError
from wend.model.events import PeerId

if TYPE_CHECKING:  # a plan is arrays, which clients need not have
    from wend.model.plan import Plan

POLL_S = 1.0
MIN_EVENTS = 50
"""With fewer events, nobody can judge a plan."""
EARLY = 200
"""With so many events, the watch may end early."""

Clients = Mapping[PeerId, Client]
Answer = TypeVar("Answer")


class PushSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a plan is pushed."""

    version: int | None = None
    """None: one more than the highest that a peer follows."""
    before_s: float = 10.0
    """How long it measures the share on time before the push."""
    watch_s: float = 30.0
    """How long it measures it afterwards; 0: not at all."""
    tolerance: float = 2.0
    """By how many points the share on time may fall."""


class OnTimeCount(msgspec.Struct, frozen=True):
    """The numbers of events published, delivered, late and dropped in a period, summed over all peers."""

    published: int = 0
    delivered: int = 0
    late: int = 0
    dropped: int = 0

    @property
    def judged_count(self) -> int:
        """The destinations that an event reached, or for which it was dropped."""
        return self.delivered + self.dropped

    @property
    def share(self) -> float | None:
        """The share on time; None if there was no event."""
        return (self.delivered - self.late) / self.judged_count if self.judged_count else None


class PushedPeer(msgspec.Struct, frozen=True):
    """A peer that a plan was pushed to."""

    peer: PeerId
    name: str
    url: str
    former: int | None
    """The plan that it followed before."""
    former_version: int


class PushReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a push."""

    plan: int
    version: int
    peers: tuple[PushedPeer, ...]
    before: OnTimeCount | None = None
    after: OnTimeCount | None = None
    kept: bool
    """Whether the peers follow the plan now; otherwise they were rolled back."""
    why: str = ""
    """Why they were rolled back, or why the plan cannot be judged."""
    astray: tuple[PeerId, ...] = ()
    """Peers that were not rolled back, because they did not answer."""


async def push_plan(
    plan: "Plan",
    urls: Sequence[str],
    settings: PushSettings,
    connect: Callable[[str], Client],
    report: Callable[[str], None] = lambda _: None,
) -> PushReport:
    """Push a plan to the peers at these addresses. Raises `TryAgain`, `Refused` or `ConfigError` if nothing has
    changed."""
    async with AsyncExitStack() as stack:
        clients = await _connect_all(plan, urls, connect, stack)
        return await _Push(plan, clients, settings, report).run()


async def _connect_all(
    plan: "Plan", urls: Sequence[str], connect: Callable[[str], Client], stack: AsyncExitStack
) -> dict[PeerId, Client]:
    """A client of every peer of the plan."""
    opened = [connect(url) for url in urls]
    for each in opened:
        stack.push_async_callback(each.close)
    for failure in await asyncio.gather(*(each.__aenter__() for each in opened), return_exceptions=True):
        if isinstance(failure, BaseException):
            raise _note_unchanged(failure)
    clients: dict[PeerId, Client] = {}
    for each in opened:
        if each.peer in clients:
            raise ConfigError(f"nothing was changed: {clients[each.peer].url} and {each.url} are both peer {each.peer}")
        if each.peer >= plan.head.peers:
            raise ConfigError(
                f"nothing was changed: {each.url} is peer {each.peer}, and the plan is for peers 0 to "
                f"{plan.head.peers - 1}"
            )
        clients[each.peer] = each
    for peer in range(plan.head.peers):
        if peer not in clients:
            raise ConfigError(
                f"nothing was changed: a plan is pushed to all of its peers, and no address leads to "
                f"{_peer_name(plan, peer)}"
            )
    return dict(sorted(clients.items()))


class _Push:
    """One push."""

    def __init__(self, plan: "Plan", clients: Clients, settings: PushSettings, report: Callable[[str], None]) -> None:
        self._plan, self._clients, self._settings, self._report = plan, clients, settings, report
        self._version = 0
        self._committed = False

    async def run(self) -> PushReport:
        begin = await self._first_statuses()
        peers = tuple(self._pushed_peer(peer, status) for peer, status in begin.items())
        version = self._settings.version
        self._version = 1 + max(p.former_version for p in peers) if version is None else version
        before = await self._measure_on_time(begin) if self._settings.watch_s else None
        try:
            await self._prepare()
            await self._commit()
            after, unclear = await self._judge_deliveries(before)
        except BaseException as error:
            await self._undo(error)
            raise
        report = PushReport(
            plan=self._plan.id, version=self._version, peers=peers, before=before, after=after, kept=True, why=unclear
        )
        why = None if before is None or after is None else explain_decline(before, after, self._settings.tolerance)
        if why is None:
            return report
        self._report(f"rolling back: {why}")
        astray = await self._roll_back()
        return msgspec.structs.replace(report, kept=False, why=why, astray=astray)

    async def _first_statuses(self) -> dict[PeerId, StatusSnapshot]:
        """The status of every peer. Raises if one does not answer."""
        statuses: dict[PeerId, StatusSnapshot] = {}
        for peer, answer in (await self._ask_statuses()).items():
            if isinstance(answer, WendError):
                raise _note_unchanged(answer, _peer_name(self._plan, peer))
            statuses[peer] = answer
        return statuses

    async def _undo(self, error: BaseException) -> None:
        """Roll back after an error. Raises it with the peers that did not answer then, if they may follow the plan."""
        astray = await asyncio.shield(self._roll_back())
        if self._committed and astray and isinstance(error, WendError):
            names = ", ".join(_peer_name(self._plan, peer) for peer in astray)
            raise type(error)(f"{error}; {names} did not answer then and may follow the new plan") from None

    def _pushed_peer(self, peer: PeerId, status: StatusSnapshot) -> PushedPeer:
        plan, name = status.plan, self._plan.peers["name"][peer]
        return PushedPeer(
            peer, name, self._clients[peer].url, None if plan is None else plan.id, 0 if plan is None else plan.version
        )

    # ---------------------------------------------------------------- the two phases

    async def _prepare(self) -> None:
        """Have every peer check its part."""
        self._report(f"{len(self._clients)} peers check plan {self._plan.id:08x}, version {self._version}")

        from wend.model.plan_slice import encode_slice, make_slice

        async def check(peer: PeerId, client: Client) -> None:
            part = await asyncio.to_thread(lambda: encode_slice(make_slice(self._plan, peer)))
            await client.prepare_plan(self._version, part)

        for peer, failure in (await self._ask_each_peer(check)).items():
            if failure is not None:
                raise _note_unchanged(failure, _peer_name(self._plan, peer))

    async def _commit(self) -> None:
        async def commit(_: PeerId, client: Client) -> None:
            await client.commit_plan(self._plan.id, self._version)

        self._committed = True
        for peer, failure in (await self._ask_each_peer(commit)).items():
            if failure is not None:
                kind = TryAgain if isinstance(failure, ConnectionLost) else Refused
                back = "the peers follow their former plans again"
                raise kind(f"{_peer_name(self._plan, peer)} could not follow the plan: {failure}; {back}")

    async def _roll_back(self) -> tuple[PeerId, ...]:
        """Have every peer follow its former plan again. Returns the peers that did not answer."""

        async def revert(_: PeerId, client: Client) -> None:
            await client.revert_plan(self._plan.id, self._version)

        return tuple(peer for peer, failure in (await self._ask_each_peer(revert)).items() if failure is not None)

    async def _ask_each_peer(
        self, do: Callable[[PeerId, Client], Awaitable[Answer]]
    ) -> dict[PeerId, Answer | WendError]:
        """Do something at every peer. Returns its answer or failure; other errors are mistakes, and are raised."""
        answers = await asyncio.gather(
            *(do(peer, client) for peer, client in self._clients.items()), return_exceptions=True
        )
        results: dict[PeerId, Answer | WendError] = {}
        for peer, answer in zip(self._clients, answers, strict=True):
            if isinstance(answer, BaseException) and not isinstance(answer, WendError):
                raise answer
            results[peer] = answer
        return results

    # ---------------------------------------------------------------- on time, before and after

    async def _measure_on_time(self, begin: Mapping[PeerId, StatusSnapshot]) -> OnTimeCount:
        self._report(f"counting deliveries for {self._settings.before_s:g} s")
        await asyncio.sleep(self._settings.before_s)
        return count_events_between(begin, await self._ask_statuses())

    async def _judge_deliveries(self, before: OnTimeCount | None) -> tuple[OnTimeCount | None, str]:
        """Count the deliveries under the new plan. Also returns why they are too few to judge, or an empty text."""
        if before is None:
            return None, ""
        loop = asyncio.get_running_loop()
        begin = await self._ask_statuses()
        until = loop.time() + self._settings.watch_s
        self._report(f"all follow it; watching deliveries for {self._settings.watch_s:g} s")
        while True:
            await asyncio.sleep(min(POLL_S, max(0.0, until - loop.time())))
            after = count_events_between(begin, await self._ask_statuses())
            if loop.time() >= until:
                break
            if after.judged_count >= EARLY and explain_decline(before, after, self._settings.tolerance) is not None:
                break
        if after.judged_count < MIN_EVENTS or before.judged_count < MIN_EVENTS:
            return after, f"too few events to judge the plan: {before.judged_count} before, {after.judged_count} after"
        return after, ""

    async def _ask_statuses(self) -> dict[PeerId, StatusSnapshot | WendError]:
        async def status(_: PeerId, client: Client) -> StatusSnapshot:
            return await client.status()

        return await self._ask_each_peer(status)


def count_events_between(begin: Mapping[PeerId, object], end: Mapping[PeerId, object]) -> OnTimeCount:
    """Count the events between two statuses of each peer that answered both times. A restarted peer counts from 0."""
    total = [0, 0, 0, 0]
    for peer, last in end.items():
        first = begin.get(peer)
        if not isinstance(first, StatusSnapshot) or not isinstance(last, StatusSnapshot):
            continue
        former = _delivery_counts(first) if first.incarnation == last.incarnation else (0, 0, 0, 0)
        for place, (now, then) in enumerate(zip(_delivery_counts(last), former, strict=True)):
            total[place] += now - then
    return OnTimeCount(*total)


def _delivery_counts(status: StatusSnapshot) -> tuple[int, int, int, int]:
    return status.published, status.delivered, status.late, sum(status.drops.values())


def explain_decline(before: OnTimeCount, after: OnTimeCount, tolerance: float) -> str | None:
    """Explain why a plan delivers less on time than the previous one. None if it does not, or if events are too few."""
    if before.share is None or before.judged_count < MIN_EVENTS:
        return None
    if after.published >= MIN_EVENTS and not after.delivered:
        return f"nothing arrived of {after.published} events that were published"
    if after.share is None or after.judged_count < MIN_EVENTS:
        return None
    fall = round(100 * (before.share - after.share), 6)
    if fall <= tolerance:
        return None
    return (
        f"{100 * after.share:.1f} % of the events arrived on time, {100 * before.share:.1f} % before: {fall:.1f} "
        f"points less, and {tolerance:g} are tolerated"
    )


def _peer_name(plan: "Plan", peer: PeerId) -> str:
    name = plan.peers["name"][peer]
    return f"peer {peer}" if name == str(peer) else f"peer {peer} ({name})"


def _note_unchanged(failure: BaseException, who: str = "") -> BaseException:
    if isinstance(failure, ClientError):
        kind = TryAgain if isinstance(failure, ConnectionLost) else Refused
        return kind(f"nothing was changed: {who}{': ' if who else ''}{failure}")
    return failure
