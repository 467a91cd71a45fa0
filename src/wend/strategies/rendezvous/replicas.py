"""The regions that a peer of `rendezvous` owns, and the copies that others hold of them.

Replicas at the owner's neighbours on the ring hold copies. When the ring changes, one of them takes over, or the owner
hands over. An owner that is new to a region may lack entries until subscribers have renewed them.
"""

from typing import Annotated, Any, ClassVar

from wend.model.errors import FilterError
from wend.model.events import PeerId
from wend.model.keys import distance, key_of, node_id
from wend.model.settings import Settings, setting
from wend.model.units import SECOND, Nanos
from wend.protocol.plugins import PeerConfig
from wend.strategies.rendezvous.messages import (
    UNKNOWN_OWNER,
    CopyEntries,
    HalfIsActive,
    PlaceEntries,
    RenewCopy,
    RenewEntries,
    TellCopy,
)
from wend.strategies.rendezvous.regions import (
    EntryTable,
    Name,
    place,
    splits,
)
from wend.strategies.ring.key_based import (
    KeyBasedInterest,
    KeyBasedSettings,
    batches,
)

MOST_COPIES = 65_536
"""Regions of others of which a peer holds a copy."""
UNSURE_NS: Nanos = 2 * SECOND
"""How long entries may still be on their way to a peer whose neighbours on the ring changed, plus two round trips."""


class RendezvousSettings(KeyBasedSettings, frozen=True, kw_only=True):
    """How regions are shared among peers."""

    fan_out: Annotated[
        int, setting("Peers that the owner of a region notifies itself; others pass the event on.", low=1)
    ] = 256
    replicas: Annotated[int, setting("Neighbours on the ring that hold a copy of each region.", low=0, high=8)] = 2
    split_rate_hz: Annotated[float, setting("Events per second above which a region splits.", unit="hz", above=0.0)] = (
        500.0
    )
    split_entries: Annotated[int, setting("Subscriptions above which a region splits.", low=2)] = 50_000


class RegionReplicas(KeyBasedInterest):
    """Owns and copies regions. A subclass says how a message reaches an owner."""

    settings: ClassVar[type[Settings]] = RendezvousSettings

    def __init__(self, config: PeerConfig) -> None:
        super().__init__(config)
        self._settings = config.of(RendezvousSettings)
        self.regions: dict[Name, EntryTable] = {}
        """Those that this peer owns."""
        self._copies: dict[Name, EntryTable] = {}
        """Those of which it is a replica."""
        self._copied_from: dict[Name, PeerId] = {}
        """The owner that each copy came from."""
        self._copied_ns: dict[Name, Nanos] = {}
        """When it was told of each copy last."""
        self._replicas: tuple[PeerId, ...] = ()
        self._near: tuple[PeerId, ...] = ()
        """The neighbours on the ring, between which the keys of this peer lie."""
        self._unsure_ns: Nanos = 0
        """Until when entries may be on their way from the former owners of its regions."""
        self._complete_ns: Nanos = 0
        """When every subscriber's peer will have renewed its entries here: until then some may be missing, because the
        former owner and its replicas may have crashed together."""
        self._taken_over = 0

    def begin(self, now: Nanos) -> None:
        self._expect_entries(now)  # others may know this peer again before it knows them

    def _to_region(self, now: Nanos, message: Any, avoid: tuple[PeerId, ...] = ()) -> None:
        """Send a message to the owner of a region."""
        raise NotImplementedError

    # ---------------------------------------------------------------- the owner

    def _table(self, now: Nanos, name: str, code: str) -> EntryTable:
        table = self.regions.get((name, code))
        if table is None:
            table = self.regions[name, code] = EntryTable()
            if code:
                table.complete_ns = now + UNSURE_NS + self._settings.beacon_ns
                self._to_region(now, HalfIsActive(name, code[:-1]))  # its owner may be new, too
        return table

    def _expect_entries(self, now: Nanos) -> None:
        """This peer may own other regions than before."""
        self._unsure_ns = now + UNSURE_NS + 2 * self.ring.round_trip_ns(self.me)
        self._complete_ns = self._unsure_ns + self._settings.beacon_ns

    def _is_complete(self, now: Nanos, table: EntryTable | None) -> bool:
        """Whether a region of this peer has the entries of all subscribers' peers that live."""
        return now >= self._complete_ns and (table is None or now >= table.complete_ns)

    # ---------------------------------------------------------------- replicas and owners that change

    def _copy(self, message: CopyEntries) -> None:
        for peer in self._replicas:
            if message.added:
                for batch in batches(list(message.added)):
                    self.send(peer, CopyEntries(message.name, message.code, batch, (), message.split))
            if message.removed or message.split:
                for gone in batches(message.removed) or [()]:
                    self.send(peer, CopyEntries(message.name, message.code, (), gone, message.split))

    def _copied(self, now: Nanos, sender: PeerId, told: CopyEntries) -> None:
        key = (told.name, told.code)
        table = self.regions.get(key)
        if table is None:
            table = self._copy_of(now, sender, key)
            if table is None:
                return
            table.split = table.split or (told.split and splits(*key))
        for entry in told.added:
            try:
                table.add(entry, now + 2 * self._settings.expiry_ns)
            except FilterError:
                self.refuse(sender, "a filter that cannot be read")
        if key not in self.regions:  # an owner knows better than one that was
            self._copied_from[key] = sender
            for id_ in told.removed:
                table.remove(id_)

    def _copy_of(self, now: Nanos, sender: PeerId, key: Name) -> EntryTable | None:
        """The copy of a region that its sender may own. None: the sender is refused."""
        if not self._may_own(sender, place(*key)):
            self.refuse(sender, "a region that its sender does not own")
            return None
        copy = self._copies.get(key)
        if copy is None:
            if len(self._copies) >= MOST_COPIES:
                self.refuse(sender, "too many regions")
                return None
            copy = self._copies[key] = EntryTable()
        self._copied_ns[key] = now
        return copy

    def _may_own(self, peer: PeerId, where: str) -> bool:
        """Whether no peer that this one knows is closer to the key."""
        key = key_of(where)
        hop = self.ring.next_hop(key)
        return hop == peer or distance(node_id(peer), key) <= distance(node_id(hop), key)

    def _expire_copies(self, now: Nanos) -> None:
        """Forget copies that are empty, or whose owner has not spoken of them for long."""
        for key, copy in list(self._copies.items()):
            copy.expire(now)
            told_ns = self._copied_ns.get(key, now)
            if not copy.entries and (not copy.split or now - told_ns > 2 * self._settings.expiry_ns):
                self._forget_copy(key)

    def _forget_copy(self, key: Name) -> None:
        del self._copies[key]
        self._copied_from.pop(key, None)
        self._copied_ns.pop(key, None)

    def _renew_copies(self, now: Nanos) -> None:
        for key in self.regions:
            self._renew_copies_of(now, key)

    def _renew_copies_of(self, now: Nanos, key: Name) -> None:
        table = self.regions[key]
        for peer in self._replicas:
            self.send(peer, RenewCopy(*key, table.digest, table.split, table.still_away(now)))

    def _copy_renewed(self, now: Nanos, sender: PeerId, told: RenewCopy) -> None:
        key = (told.name, told.code)
        if key in self.regions:
            return
        table = self._copy_of(now, sender, key)
        if table is None:
            return
        self._copied_from[key] = sender
        table.split = told.split and splits(*key)
        table.away = {peer: now + left_ns for peer, left_ns in told.away}
        if table.digest != told.digest:
            for id_ in list(table.entries):
                table.remove(id_)
            self.send(sender, TellCopy(*key))
        for peer in table.expires:
            table.expires[peer] = now + 2 * self._settings.expiry_ns

    def _send_copy(self, peer: PeerId, key: Name) -> None:
        table = self.regions.get(key)
        if table is not None:
            for batch in batches(list(table.entries.values())) or [()]:
                self.send(peer, CopyEntries(*key, batch, (), table.split))

    def on_ownership_changed(self, now: Nanos) -> None:
        ring, me = self.ring, self.me
        near = ring.replicas(2)
        if near != self._near:
            self._near = near
            self._expect_entries(now)
        for key in [key for key in self._copies if ring.owns(key_of(place(*key)))]:
            self._take_over(now, key)
        for key in [key for key in self.regions if not ring.owns(key_of(place(*key)))]:
            self._hand_over(now, key)
        for key in [key for key, owner in self._copied_from.items() if ring.is_dead(owner)]:
            del self._copied_from[key]
            if key in self._copies:  # the next owner may be no replica, if others crashed with the former one
                self._pass_on(now, key, self._copies[key])
        replicas = tuple(peer for peer in ring.replicas(self._settings.replicas) if peer != me)
        fresh = [peer for peer in replicas if peer not in self._replicas]
        self._replicas = replicas
        for peer in fresh:
            for key in self.regions:
                self._send_copy(peer, key)

    def _take_over(self, now: Nanos, key: Name) -> None:
        """This peer owns a region of which it was a replica."""
        self._taken_over += 1
        copy = self._copies.pop(key)
        self._copied_ns.pop(key, None)
        table = self.regions.get(key)
        if table is None:
            table = self.regions[key] = copy
        else:
            table.split = table.split or copy.split
            for entry in copy.entries.values():
                table.add(entry, now)
            table.away.update({peer: until for peer, until in copy.away.items() if peer not in table.away})
        for peer in table.expires:
            table.expires[peer] = now + self._settings.expiry_ns
        for peer in self._replicas:
            self._send_copy(peer, key)

    def _hand_over(self, now: Nanos, key: Name) -> None:
        """Another peer owns the region now. This one stays a replica until that one says otherwise."""
        table = self.regions.pop(key)
        self._copies[key] = table
        self._copied_ns[key] = now
        self._pass_on(now, key, table)

    def _pass_on(self, now: Nanos, key: Name, table: EntryTable) -> None:
        """Tell the owner of a region what is in it."""
        name, code = key
        if table.split:
            self._to_region(now, HalfIsActive(name, code))
        for batch in batches(list(table.entries.values())):
            self._to_region(now, PlaceEntries(name, code, batch, UNKNOWN_OWNER, 1))
        for peer, left_ns in table.still_away(now):
            self._to_region(now, RenewEntries(name, code, peer, table.digest_of(peer), 1, left_ns))
