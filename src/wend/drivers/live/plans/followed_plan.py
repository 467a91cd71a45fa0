"""Which plan a live peer follows: that of its file, or one that `wend plan push` handed to it, whichever came last.

A push has two phases. First the peer checks its part of the plan (`prepare`): its strategy follows plans, the part is
for this peer with these links, and the version is newer. From then on it forwards packets by the plan, and holds it for
`HOLD_S`. By `commit` it also publishes by the plan, and by `revert` it goes back to the plan before.

A pushed plan is stored beside the peer's store (`STORE.plan`) before the commit is answered, so it survives a restart.
It holds until the plan in the peer's folder is another than at the push, or `wend plan load` asks for that one. A peer
without a store follows a pushed plan until it stops.
"""

import asyncio
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from wend.drivers.live.clock import Clock, monotonic
from wend.drivers.live.peer import LivePeer
from wend.drivers.live.status import PlanStatus
from wend.model.errors import ConfigError, Refused, WireError
from wend.model.extras import needed_by
from wend.model.files import written
from wend.model.units import SECOND, Nanos
from wend.protocol.ports import Planned

if TYPE_CHECKING:  # a plan is arrays in files, and most peers read none
    from wend.model.forwarding import Forwarding
    from wend.model.plan_slice import PlanSlice

log = logging.getLogger("wend.peer")

HOLD_S = 60
"""A plan that was checked and not committed is forgotten after so long."""
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
    """The part of the plan before; None: it was not pushed."""


class Followed(msgspec.Struct, frozen=True):
    """A plan that a peer follows or can follow."""

    version: int
    """0 for the plan of the peer's folder."""
    plan: Any
    """The `Forwarding`; None: the peer follows no plan."""
    part: bytes | None = None
    """As it was pushed; None: it was not."""

    @property
    def id(self) -> int | None:
        return None if self.plan is None else int(self.plan.id)


NOTHING = Followed(0, None)


class FollowedPlan:
    """The plan that a peer follows, the one before, and one that waits for its commit."""

    def __init__(self, peer: LivePeer, folder: str | None, store: str | None, clock: Clock = monotonic) -> None:
        self._peer = peer
        self._folder = None if folder is None else Path(folder)
        self._file = None if store is None else Path(f"{store}.plan")
        self._clock = clock
        self._current = NOTHING
        self._former = NOTHING
        self._folder_id: int | None = None
        """The plan that was last read from the folder."""
        self._prepared: Followed | None = None
        self._until_ns: Nanos = 0
        """How long the prepared plan is held."""
        self._turn = asyncio.Lock()

    # ---------------------------------------------------------------- the plan of the peer's file

    async def read(self) -> None:
        """Find the plan to begin with, before the peer starts. Raises `ConfigError` if it cannot be read."""
        folder = NOTHING if self._folder is None else Followed(0, await self._read_folder())
        self._folder_id = folder.id
        self._current = folder
        stored = await asyncio.to_thread(self._read_file)
        if stored is not None and stored.folder == folder.id:
            self._current = _unpacked(stored.version, stored.part)
            self._former = folder if stored.former is None else _unpacked(stored.former_version, stored.former)

    def begin(self) -> None:
        """Follow the plan to begin with; to be called once the peer runs."""
        if self._current.plan is None:
            return
        try:
            self._check_links(self._current)
        except Refused as error:
            if self._current.part is None:
                raise
            log.warning("peer %d does not follow the plan that was pushed: %s", self._peer.id, error)
            self._current = NOTHING
            return
        self._follow(self._current.plan)

    async def load(self) -> int:
        """Follow the plan in the folder; its id. A plan that cannot be read changes nothing."""
        if self._folder is None:
            raise Refused("this peer's configuration names no plan", code="no-plan")
        async with self._turn:
            plan = Followed(0, await self._read_folder())
            await self._change(plan, NOTHING)
            self._folder_id = plan.id
            return int(plan.plan.id)

    async def reload(self) -> int | None:
        """Follow the plan in the folder, unless it is the one that a pushed plan has replaced; its id."""
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
        return await asyncio.to_thread(read_forwarding, self._folder, None, self._peer.id)

    # ---------------------------------------------------------------- plans that are pushed

    async def prepare(self, version: int, data: bytes) -> None:
        """Check this peer's part of a plan, and hold it. Raises `Refused`."""
        if not self._peer.peer.follows_plan:
            strategy = self._peer.peer.config.strategy
            sentence = f'its strategy is {strategy}, which follows no plan: set strategy = "planned" in its file'
            raise Refused(sentence, code="not-supported")
        async with self._turn:
            try:
                candidate = await asyncio.to_thread(_unpacked, version, data)
            except WireError as error:
                raise Refused(str(error), code="invalid-plan") from None
            held = self._held()
            if held is not None and (held.id, held.version) != (candidate.id, version):
                raise Refused(f"version {held.version} of another plan waits for its commit", code="plan-not-newer")
            if version <= self._current.version:
                sentence = f"it follows version {self._current.version} already, and {version} is not newer"
                raise Refused(sentence, code="plan-not-newer")
            self._check_links(candidate)
            self._peer.ask(Planned(candidate.plan, publish=False))
            self._prepared, self._until_ns = candidate, self._clock() + HOLD_S * SECOND

    async def commit(self, plan: int, version: int) -> None:
        """Follow the plan that was prepared. If it cannot be stored, nothing changes. Raises `Refused`."""
        async with self._turn:
            if (self._current.id, self._current.version) == (plan, version):
                return
            held = self._held()
            if held is None or (held.id, held.version) != (plan, version):
                sentence = f"version {version} of plan {plan:08x} was not checked here, or too long ago"
                raise Refused(sentence, code="plan-not-prepared")
            await self._change(held, self._current)

    async def revert(self, plan: int, version: int) -> None:
        """Forget a plan that is only prepared, or go back to the one before it. Any other plan stays."""
        async with self._turn:
            if self._prepared is not None and (self._prepared.id, self._prepared.version) == (plan, version):
                self._prepared = None
            if (self._current.id, self._current.version) == (plan, version):
                await self._change(self._former, NOTHING)

    def status(self) -> PlanStatus | None:
        held = self._held()
        if self._current.plan is None and held is None:
            return None
        return PlanStatus(self._current.id, self._current.version, 0 if held is None else held.version)

    def _held(self) -> Followed | None:
        if self._prepared is not None and self._clock() >= self._until_ns:
            self._prepared = None
        return self._prepared

    async def _change(self, to: Followed, former: Followed) -> None:
        """Follow another plan, and answer only when a restart would find it. If that fails, nothing changes."""
        self._follow(to.plan)
        try:
            await self._store(to, former)
        except ConfigError as error:
            self._follow(self._current.plan)
            raise Refused(str(error), code="unwritable") from None
        self._current, self._former, self._prepared = to, former, None

    def _follow(self, plan: "Forwarding | None") -> None:
        """Publish by this plan, or by none, from now on. Raises `Refused` if the strategy follows none."""
        if not self._peer.peer.follows_plan:
            sentence = f"this peer's strategy is {self._peer.peer.config.strategy}, which follows no plan"
            raise Refused(sentence, code="not-supported")
        self._peer.ask(Planned(plan))

    def _check_links(self, candidate: Followed) -> None:
        if candidate.part is None:
            return
        part, here = _part(candidate.part), sorted(self._peer.peer.links)
        if part.peer != self._peer.id:
            sentence = f"this part of the plan is for peer {part.peer}, and this is peer {self._peer.id}"
            raise Refused(sentence, code="invalid-plan")
        if list(part.neighbours) != here:
            there, have = _listed(part.neighbours), _listed(here)
            sentence = f"the plan is for another topology: there its links are with {there}, and here with {have}"
            raise Refused(sentence, code="invalid-plan")

    # ---------------------------------------------------------------- the file of a pushed plan

    async def _store(self, current: Followed, former: Followed) -> None:
        """Write what a restart has to find. Raises `ConfigError`."""
        if self._file is not None:
            await asyncio.to_thread(self._write, self._file, current, former, self._folder_id)

    @staticmethod
    def _write(path: Path, current: Followed, former: Followed, folder: int | None) -> None:
        if current.part is None:
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                raise ConfigError(f"cannot remove {path}: {error.strerror}") from None
            return
        stored = StoredPlan(
            version=current.version,
            part=current.part,
            folder=folder,
            former_version=former.version,
            former=former.part,
        )
        with written(path, lasting=True) as draft:
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
                    _part(part)
            return stored
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError, ConfigError, WireError) as error:
            self._peer.counters.failed["read-pushed-plan"] += 1
            log.warning("peer %d cannot read the plan that was pushed, %s: %s", self._peer.id, self._file, error)
            return None


def _part(data: bytes) -> "PlanSlice":
    with needed_by("a peer that follows a plan", "plan"):
        from wend.model.plan_slice import unpacked
    return unpacked(data)


def _unpacked(version: int, data: bytes) -> Followed:
    from wend.model.forwarding import Forwarding

    return Followed(version, Forwarding(_part(data)), data)


def _listed(peers: Any) -> str:
    return ", ".join(map(str, peers)) or "nobody"
