"""Which plan a live peer follows: that of its file, or one that `wend plan push` handed to it, whichever came last.

A push has two phases. First the peer checks its part of the plan (`prepare`): its strategy follows plans, the part is
for this peer with these links, and the version is newer. From then on it forwards packets by the plan, and waits
`HOLD_S` for the commit. After `commit` it also publishes by the plan. After `revert` it follows the plan before.

The peer stores a pushed plan beside its store (`STORE.plan`) before it answers the commit, so the plan survives a
restart. The peer follows it until the plan in its folder changes, or until `wend plan load` asks for that one. A peer
without a store follows a pushed plan until it stops.
"""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from wend.drivers.live.clock import monotonic
from wend.drivers.live.counters import Counters
from wend.drivers.live.status import PlanStatus
from wend.model.errors import ConfigError, Refused, WireError
from wend.model.extras import needed_by
from wend.model.files import write_atomically
from wend.model.units import SECOND, Nanos
from wend.protocol.peer import Peer
from wend.protocol.ports import Planned

if TYPE_CHECKING:  # a plan is arrays in files, and most peers read none
    from wend.model.forwarding import Forwarding
    from wend.model.plan_slice import PlanSlice

log = logging.getLogger("wend.peer")

HOLD_S = 60
"""How long a peer waits for the commit of a plan that it has checked."""
_FORMAT = 1


class StoredPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the file of a pushed plan."""

    format: int = _FORMAT
    version: int
    part: bytes
    folder: int | None
    """The plan in the peer's folder at the time of the push."""
    former_version: int = 0
    former: bytes | None = None
    """The part of the plan before; None: that one was not pushed."""


class VersionedPlan(msgspec.Struct, frozen=True):
    """A plan that a peer follows or can follow."""

    version: int
    """0 for the plan of the peer's folder."""
    plan: Any
    """The `Forwarding`; None: the peer follows no plan."""
    part: bytes | None = None
    """The part as it was pushed; None: it was not pushed."""

    @property
    def id(self) -> int | None:
        return None if self.plan is None else int(self.plan.id)


NO_PLAN = VersionedPlan(0, None)


class FollowedPlan:
    """The plan that a peer follows, the one before, and one that waits for its commit."""

    def __init__(
        self,
        peer: Peer,
        ask: Callable[[Planned], object],
        counters: Counters,
        folder: str | None,
        store: str | None,
    ) -> None:
        """`peer`: the state machine; `ask` gives it a plan."""
        self._me = peer.config.peer
        self._peer = peer
        self._ask = ask
        self._counters = counters
        self._folder = None if folder is None else Path(folder)
        self._file = None if store is None else Path(f"{store}.plan")
        self._current = NO_PLAN
        self._former = NO_PLAN
        self._folder_id: int | None = None
        """The plan that was last read from the folder."""
        self._prepared: VersionedPlan | None = None
        self._until_ns: Nanos = 0
        """How long the prepared plan is held."""
        self._turn = asyncio.Lock()

    # ---------------------------------------------------------------- the plan of the peer's file

    async def read(self) -> None:
        """Read the first plan, before the peer starts. Raises `ConfigError` if it cannot be read."""
        folder = NO_PLAN if self._folder is None else VersionedPlan(0, await self._read_folder())
        self._folder_id = folder.id
        self._current = folder
        stored = await asyncio.to_thread(self._read_file)
        if stored is not None and stored.folder == folder.id:
            self._current = _unpack_plan(stored.version, stored.part)
            self._former = folder if stored.former is None else _unpack_plan(stored.former_version, stored.former)

    def begin(self) -> None:
        """Follow the first plan. Call it once the peer runs."""
        if self._current.plan is None:
            return
        try:
            self._check_links(self._current)
        except Refused as error:
            if self._current.part is None:
                raise
            log.warning("peer %d does not follow the plan that was pushed: %s", self._me, error)
            self._current = NO_PLAN
            return
        self._follow(self._current.plan)

    async def load(self) -> int:
        """Follow the plan in the folder. Returns its id. A plan that cannot be read changes nothing."""
        if self._folder is None:
            raise Refused("this peer's configuration names no plan", code="no-plan")
        async with self._turn:
            plan = VersionedPlan(0, await self._read_folder())
            await self._switch_plan(plan, NO_PLAN)
            self._folder_id = plan.id
            return int(plan.plan.id)

    async def reload(self) -> int | None:
        """Follow the plan in the folder, unless a pushed plan has replaced it. Returns its id."""
        if self._folder is None:
            return None
        if self._current.part is not None and (await self._read_folder()).id == self._folder_id:
            return None
        return await self.load()

    async def _read_folder(self) -> "Forwarding":
        """Read the plan of the folder in a thread, so that packets are served meanwhile."""
        assert self._folder is not None
        with needed_by("a peer that follows a plan", "plan"):
            from wend.model.forwarding import read_forwarding
        return await asyncio.to_thread(read_forwarding, self._folder, None, self._me)

    # ---------------------------------------------------------------- plans that are pushed

    async def prepare(self, version: int, data: bytes) -> None:
        """Check this peer's part of a plan, and hold it. Raises `Refused`."""
        if not self._peer.follows_plan:
            strategy = self._peer.config.strategy
            sentence = f'its strategy is {strategy}, which follows no plan: set strategy = "planned" in its file'
            raise Refused(sentence, code="not-supported")
        async with self._turn:
            try:
                candidate = await asyncio.to_thread(_unpack_plan, version, data)
            except WireError as error:
                raise Refused(str(error), code="invalid-plan") from None
            pending = self._unexpired_plan()
            if pending is not None and (pending.id, pending.version) != (candidate.id, version):
                raise Refused(f"version {pending.version} of another plan waits for its commit", code="plan-not-newer")
            if version <= self._current.version:
                sentence = f"it follows version {self._current.version} already, and {version} is not newer"
                raise Refused(sentence, code="plan-not-newer")
            self._check_links(candidate)
            self._ask(Planned(candidate.plan, publish=False))
            self._prepared, self._until_ns = candidate, monotonic() + HOLD_S * SECOND

    async def commit(self, plan: int, version: int) -> None:
        """Follow the plan that was prepared. If it cannot be stored, nothing changes. Raises `Refused`."""
        async with self._turn:
            if (self._current.id, self._current.version) == (plan, version):
                return
            pending = self._unexpired_plan()
            if pending is None or (pending.id, pending.version) != (plan, version):
                sentence = f"version {version} of plan {plan:08x} was not checked here, or too long ago"
                raise Refused(sentence, code="plan-not-prepared")
            await self._switch_plan(pending, self._current)

    async def revert(self, plan: int, version: int) -> None:
        """Forget a plan that is only prepared, or go back to the one before it. Any other plan stays."""
        async with self._turn:
            if self._prepared is not None and (self._prepared.id, self._prepared.version) == (plan, version):
                self._prepared = None
            if (self._current.id, self._current.version) == (plan, version):
                await self._switch_plan(self._former, NO_PLAN)

    def status(self) -> PlanStatus | None:
        pending = self._unexpired_plan()
        if self._current.plan is None and pending is None:
            return None
        return PlanStatus(self._current.id, self._current.version, 0 if pending is None else pending.version)

    def _unexpired_plan(self) -> VersionedPlan | None:
        if self._prepared is not None and monotonic() >= self._until_ns:
            self._prepared = None
        return self._prepared

    async def _switch_plan(self, to: VersionedPlan, former: VersionedPlan) -> None:
        """Follow another plan, and return once it is stored. If it cannot be stored, nothing changes."""
        self._follow(to.plan)
        try:
            await self._store(to, former)
        except ConfigError as error:
            self._follow(self._current.plan)
            raise Refused(str(error), code="unwritable") from None
        self._current, self._former, self._prepared = to, former, None

    def _follow(self, plan: "Forwarding | None") -> None:
        """Publish by this plan, or by none, from now on. Raises `Refused` if the strategy follows none."""
        if not self._peer.follows_plan:
            sentence = f"this peer's strategy is {self._peer.config.strategy}, which follows no plan"
            raise Refused(sentence, code="not-supported")
        self._ask(Planned(plan))

    def _check_links(self, candidate: VersionedPlan) -> None:
        if candidate.part is None:
            return
        part, here = _read_part(candidate.part), sorted(self._peer.links)
        if part.peer != self._me:
            sentence = f"this part of the plan is for peer {part.peer}, and this is peer {self._me}"
            raise Refused(sentence, code="invalid-plan")
        if list(part.neighbours) != here:
            there, have = _peer_list(part.neighbours), _peer_list(here)
            sentence = f"the plan is for another topology: there its links are with {there}, and here with {have}"
            raise Refused(sentence, code="invalid-plan")

    # ---------------------------------------------------------------- the file of a pushed plan

    async def _store(self, current: VersionedPlan, former: VersionedPlan) -> None:
        """Write the current and the former plan to the file that a restart reads. Raises `ConfigError`."""
        if self._file is not None:
            await asyncio.to_thread(self._write_file, self._file, current, former, self._folder_id)

    @staticmethod
    def _write_file(path: Path, current: VersionedPlan, former: VersionedPlan, folder: int | None) -> None:
        if current.part is None:
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                raise ConfigError(f"cannot remove {path}: {error.strerror}", code="unwritable") from None
            return
        stored = StoredPlan(
            version=current.version,
            part=current.part,
            folder=folder,
            former_version=former.version,
            former=former.part,
        )
        with write_atomically(path, lasting=True) as draft:
            draft.write_bytes(msgspec.msgpack.encode(stored))

    def _read_file(self) -> StoredPlan | None:
        if self._file is None or not self._file.exists():
            return None
        try:
            stored = msgspec.msgpack.decode(self._file.read_bytes(), type=StoredPlan)
            if stored.format != _FORMAT:
                raise ConfigError(f"it has format {stored.format}, and this Wend reads format {_FORMAT}")
            for part in (stored.part, stored.former):
                if part is not None:
                    _read_part(part)
            return stored
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError, ConfigError, WireError) as error:
            self._counters.failed["read-pushed-plan"] += 1
            log.warning("peer %d cannot read the plan that was pushed, %s: %s", self._me, self._file, error)
            return None


def _read_part(data: bytes) -> "PlanSlice":
    with needed_by("a peer that follows a plan", "plan"):
        from wend.model.plan_slice import decode_slice
    return decode_slice(data)


def _unpack_plan(version: int, data: bytes) -> VersionedPlan:
    from wend.model.forwarding import Forwarding

    return VersionedPlan(version, Forwarding(_read_part(data)), data)


def _peer_list(peers: Any) -> str:
    return ", ".join(map(str, peers)) or "nobody"
