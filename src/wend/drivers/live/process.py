"""One peer as a process: opened from its file, served until a signal, shut down gracefully."""

import asyncio
import logging
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from wend.drivers.live.access.admission import ClientAdmission
from wend.drivers.live.access.forwarding_grants import ForwardingGrants
from wend.drivers.live.access.grants import GrantTable, read_grants
from wend.drivers.live.addressing.addresses import Address, format_address, is_numeric_address
from wend.drivers.live.addressing.given_links import GivenLinks
from wend.drivers.live.addressing.host_names import HostNames
from wend.drivers.live.broker.broker import Broker
from wend.drivers.live.broker.listener import TcpListener
from wend.drivers.live.config import PeerFile
from wend.drivers.live.counters import Counters
from wend.drivers.live.logs.peer_logs import PeerLogs
from wend.drivers.live.paths.source import NONE, PathSource, open_paths
from wend.drivers.live.peer import LivePeer
from wend.drivers.live.plans.followed_plan import FollowedPlan
from wend.drivers.live.store.store import Store, fresh_incarnation
from wend.drivers.live.threads import call_in_thread
from wend.model.errors import ConfigError, WendError

if TYPE_CHECKING:  # few peers have keys or write telemetry, and the others need none of it
    from wend.drivers.live.access.key_files import KeyFolder
    from wend.drivers.live.telemetry.recorder import TelemetryRecorder

log = logging.getLogger("wend.peer")


class PeerProcess:
    """A live peer with its store, its broker and the listener for its clients, as its file describes them."""

    def __init__(self, file: PeerFile) -> None:
        self._file = file
        self.keys = read_keys(file)
        self.admission = ClientAdmission(self.keys, read_grant_table(file), tls=file.uses_tls)
        counters = Counters()
        paths = open_path_source(file, counters)
        store = None if file.store is None else Store(Path(file.store), sync=file.sync)
        incarnation = fresh_incarnation() if store is None else store.incarnation
        join = file.join_addresses
        try:
            self.peer = LivePeer(
                file.peer_config(incarnation),
                listen=file.listen_address,
                insecure=file.insecure,
                store=store,
                counters=counters,
                paths=paths,
                join=None if join is None else tuple(address for address in join if is_numeric_address(address)),
                admit=file.admit,
                multicast=file.multicast_options,
                keys=None if self.keys is None else (self.keys.credentials, self.keys.verifier),
            )
        except BaseException:
            if store is not None:
                store.close()
            raise
        if store is not None and store.damaged:
            self.peer.counters.failed["damaged-record"] += len(store.damaged)
        self._stored = () if store is None else store.records
        self._lost_records = store is not None and store.lost_records
        self._names = HostNames(file.id, self.peer.family)
        self.links = GivenLinks(
            self.peer.peer,
            self._names,
            self.peer.addresses,
            self.peer.pipes,
            self.peer.joining,
            link=self.peer.link,
            unlink=self.peer.unlink,
            tell=self.peer.tell,
            is_silent=self.peer.is_silent,
        )
        self.logs = self._open_logs()
        self.plan = FollowedPlan(self.peer.peer, self.peer.ask, counters, file.plan, file.store)
        self.broker = Broker(
            self.peer,
            experiments=file.experiments,
            plan=self.plan,
            links=self.links,
            keys=self.keys,
            signs=file.sign,
            logs=self.logs,
        )
        self.listener = TcpListener(self.broker, admission=self.admission)
        self._apply_forwarding_grants()
        self.recorder = None if file.telemetry is None else _make_recorder(self.peer, file, Path(file.telemetry))

    def _open_logs(self) -> PeerLogs | None:
        """Open the logs of the peer. Closes the peer if that fails."""
        file, peer = self._file, self.peer
        try:
            if any(each.is_ordered for each in file.logs) and not peer.peer.knows_all_subscribers:
                raise ConfigError('this strategy cannot keep publishers\' order: leave out order = "publisher" of logs')
            peer.driver.logs = PeerLogs(file.logs, file.logs_path, peer.counters) if file.logs else None
        except WendError:
            peer.close()
            raise
        return peer.driver.logs

    async def start(self) -> None:
        try:
            await self.plan.read()
            self.listener.bind(self._file.clients_address, insecure=self._file.insecure)
            self.links.begin(self._file.neighbours)
            for address in self._file.join_addresses or ():
                self._add_contact(address)
            await self._names.wait_for_first_tries()
            follow = self.peer.joining is not None and self.peer.joining.has_contacts
            self.peer.start(
                msgspec.structs.replace(
                    self._file.make_started(),
                    stored=self._stored,
                    contacts_follow=follow,
                    lost_records=self._lost_records,
                    subscriptions=() if self.logs is None else self.logs.subscriptions(),
                )
            )
            if self.logs is not None:
                self.logs.begin(self.peer.tell, tuple(self.peer.peer.durable))
            if self.recorder is not None:
                self.recorder.begin()
            self.broker.restore_durable()
            self._stored = ()
            self.plan.begin()
            await self.listener.start()  # a client that comes back finds its durable subscriptions
        except BaseException:
            await self.abort()
            raise

    def warnings(self) -> list[str]:
        """The warnings for the operator about connections that are not authenticated."""
        file, warnings = self._file, []
        if file.insecure and self.keys is None:
            warnings.append(
                "INSECURE: other peers are not authenticated; anyone who can send a packet to this peer can read "
                "events and pretend to be any peer"
            )
        elif file.insecure and self.admission.context is None:
            warnings.append(
                "INSECURE: clients are not authenticated; anyone who can reach this peer can pretend to be any client"
            )
        return warnings

    async def abort(self) -> None:
        """Stop without telling other peers, because another process may run with the same id."""
        self._names.close()
        await self.listener.stop()
        self.peer.close()
        self._close_logs()
        await self._close_telemetry()

    async def stop(self) -> None:
        self._names.close()
        self.broker.stopping = True
        await self.listener.stop()
        await self.peer.stop(self._file.away_ns)
        self._close_logs()
        await self._close_telemetry()

    def _close_logs(self) -> None:
        if self.logs is not None:
            self.logs.close()

    async def _close_telemetry(self) -> None:
        """Close the last segments. A thread waits for the disk, for a limited time."""
        if self.recorder is not None:
            self.recorder.end()
            if not await asyncio.to_thread(self.recorder.writer.join):
                log.warning("peer %d stops before it has written its last telemetry", self.peer.id)

    async def reload(self, read: Callable[[], PeerFile] | None = None) -> None:
        """Read the peer's file again, and use its neighbours, keys, grants and plan. Errors are counted and logged."""
        if read is not None:
            try:
                self._apply_file(await call_in_thread(read))
            except WendError as error:
                self.peer.counters.failed["read-file"] += 1
                log.warning("peer %d goes on as before: %s", self.peer.id, error)
                return
            except Exception:
                self.peer.counters.failed["read-file"] += 1
                log.exception("peer %d cannot read its file again, and goes on", self.peer.id)
                return
        await self._reload_plan()

    def _apply_file(self, file: PeerFile) -> None:
        """Use the neighbours, keys and grants of another file. Everything else needs a restart."""
        former, self._file = self._file, msgspec.structs.replace(self._file, neighbours=file.neighbours)
        self.links.update(former.neighbours, file.neighbours)
        self._renew_keys(file)
        log.info("peer %d has read its file again", self.peer.id)
        if changed := former.settings_needing_restart(file):
            log.warning("peer %d must be restarted to use these changes: %s", self.peer.id, ", ".join(changed))

    def _renew_keys(self, file: PeerFile) -> None:
        """Use new certificates, revoked serials, tokens and grants. If one cannot be read, nothing changes."""
        try:
            keys = None if self.keys is None else read_keys(self._file)
            grants = read_grant_table(msgspec.structs.replace(self._file, grants=file.grants))
            if keys is not None and (named := keys.credentials.identity.peer) != self.peer.id:
                raise ConfigError(f"the certificate is for peer {named}, and this is peer {self.peer.id}")
            self.admission.replace_keys(keys, grants)
            if keys is not None and self.peer.sealed is not None:
                self.peer.sealed.renew(keys.credentials, keys.verifier)
        except WendError as error:
            self.peer.counters.failed["read-keys"] += 1
            log.warning("peer %d keeps its keys and grants: %s", self.peer.id, error)
            return
        self.keys = keys
        self.broker.signatures.replace_keys(keys)
        self._apply_forwarding_grants()
        self.listener.recheck()

    def _apply_forwarding_grants(self) -> None:
        sealed, grants = self.peer.sealed, self.admission.grants
        limits = sealed is not None and grants.has_publisher_limits
        self.peer.driver.forwarding = ForwardingGrants(grants, sealed.identity) if limits and sealed else None

    async def _reload_plan(self) -> None:
        try:
            plan = await self.plan.reload()
        except WendError as error:
            self.peer.counters.failed["load-plan"] += 1
            log.warning("peer %d goes on as before: %s", self.peer.id, error)
        else:
            if plan is not None:
                log.info("peer %d follows plan %08x", self.peer.id, plan)

    def _add_contact(self, address: Address) -> None:
        """Join through an address with a host name, once the name is resolved."""
        joining = self.peer.joining
        if joining is not None and not is_numeric_address(address):
            joining.unresolved.add(address)
            self._names.keep_resolving(
                address, address, partial(joining.on_resolved, address), partial(joining.is_unanswered, address)
            )


def _make_recorder(peer: LivePeer, file: PeerFile, folder: Path) -> "TelemetryRecorder":
    """Make a recorder that observes a peer. Closes the peer if that fails."""
    from wend.drivers.live.telemetry.recorder import TelemetryOptions, TelemetryRecorder

    options = TelemetryOptions(
        folder=folder,
        sample=file.telemetry_sample,
        period_ns=file.telemetry_period_ns,
        most_bytes=file.telemetry_bytes,
        segment_age_ns=file.telemetry_segment_age_ns,
    )
    try:
        recorder = TelemetryRecorder(peer.peer, peer.counters, options, about={"settings": file.flat_settings()})
    except WendError:
        peer.close()
        raise
    peer.observe(recorder)
    return recorder


def open_path_source(file: PeerFile, counters: Counters) -> PathSource:
    """The source of underlay paths that a peer's file describes. Raises `ConfigError`."""
    if file.inferred_topology is None:
        return open_paths(file.paths or NONE, file.listen_address, counters.paths)
    # Imported late: few peers have an inferred topology.
    from wend.drivers.live.paths.inferred_paths import InferredPaths, TopologyFolder

    folder = TopologyFolder(Path(file.inferred_topology))
    return InferredPaths(open_paths(file.paths or NONE, file.listen_address, counters.paths), folder, counters.paths)


def read_keys(file: PeerFile) -> "KeyFolder | None":
    """The keys that a peer's file names. Raises `ConfigError`."""
    if file.keys is None:
        return None
    from wend.drivers.live.access.key_files import read_key_folder

    keys = read_key_folder(Path(file.keys))
    identity = keys.credentials.identity
    if identity.peer != file.id:
        whose = "a client" if identity.peer is None else f"peer {identity.peer}"
        raise ConfigError(f"the certificate in {file.keys} is for {whose}, and this is peer {file.id}")
    return keys


def read_grant_table(file: PeerFile) -> GrantTable:
    """The grants of a peer's file and of the folder that it names. Raises `ConfigError`."""
    return GrantTable(read_grants(file.grants, None if file.grants_folder is None else Path(file.grants_folder)))


async def serve(
    file: PeerFile, on_ready: Callable[[PeerProcess], None], read: Callable[[], PeerFile] | None = None
) -> dict[str, int]:
    """Run a peer until SIGTERM or Ctrl-C. Returns its counters. On SIGHUP it calls `read` for its file, and reads its
    plan again."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    loop.add_signal_handler(signal.SIGHUP, lambda: None)  # the file is read anyway
    service = PeerProcess(file)
    refused: list[Address] = []
    if service.peer.joining is not None:

        def refuse(address: Address) -> None:
            refused.append(address)
            stop.set()

        service.peer.joining.same_id = refuse
    await service.start()
    reloads: set[asyncio.Task[None]] = set()

    def reload() -> None:
        task = loop.create_task(service.reload(read))
        reloads.add(task)  # the loop itself holds tasks only weakly
        task.add_done_callback(reloads.discard)

    loop.add_signal_handler(signal.SIGHUP, reload)
    on_ready(service)
    await stop.wait()
    if refused:
        await service.abort()
        raise ConfigError(
            f"peer {file.id} runs already, at {format_address(refused[0])}: give this one another id", code="id-in-use"
        )
    counted = service.broker.status().counters()
    await service.stop()
    return counted
