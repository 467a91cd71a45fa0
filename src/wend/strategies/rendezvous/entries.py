"""The entries of `rendezvous`: how subscriptions come to the owners of regions, and stay there.

- A subscriber's peer places its entries, remembers the owners that answer, and renews the entries with a digest.
- An owner adds entries, splits a region that is too hot, and passes on what still comes for it.
- Replicas at the owner's neighbours on the ring hold copies (`region_replicas.py`).
"""

from typing import Any

from wend.matching.filters import Filter
from wend.matching.order_cells import Interval
from wend.model.errors import FilterError
from wend.model.events import Event, PeerId
from wend.model.keys import key_of
from wend.model.units import FOREVER, SECOND, Nanos
from wend.protocol.plugins import Notice, PeerConfig, Timer
from wend.strategies.rendezvous.messages import (
    UNKNOWN_OWNER,
    CopyEntries,
    HalfIsActive,
    PlaceEntries,
    RegionsAre,
    RemoveEntries,
    RenewCopy,
    RenewEntries,
    TellCopy,
    TellEntries,
)
from wend.strategies.rendezvous.regions import (
    EntryTable,
    Load,
    Name,
    RegionCache,
    can_be,
    cells_in,
    digest,
    home_of,
    place,
    splits,
)
from wend.strategies.rendezvous.replicas import RegionReplicas
from wend.strategies.ring.key_based import (
    LAST_TRIES,
    MOST_HOPS,
    Entry,
    EntryId,
    batches,
)

MOST_NAMES = 4096
"""How many names of others' regions a peer remembers, besides those of its own entries."""
LOOK_NS: Nanos = 5 * SECOND
"""How often the owner of regions looks at their load."""
_LOOK = "look"


class RegionEntries(RegionReplicas):
    """Places, owns and copies entries."""

    def __init__(self, config: PeerConfig) -> None:
        super().__init__(config)
        self._loads: dict[Name, Load] = {}
        self.caches: dict[str, RegionCache] = {}
        """What it knows of others' regions, by name."""
        self._homes: dict[EntryId, tuple[Entry, str, list[Interval]]] = {}
        """This peer's own entries, each with the name of its regions and its cells there."""
        self._placed: dict[Name, dict[EntryId, Entry]] = {}
        """This peer's own entries, by the region where they were placed."""
        self._splits = 0

    def status(self) -> dict[str, int]:
        full = {f"entries/{place(*name)}": len(table) for name, table in sorted(self.regions.items()) if len(table)}
        busy = {f"events/{place(*name)}": load.events for name, load in sorted(self._loads.items()) if load.events}
        return {
            "regions": len(self.regions),
            "entries": sum(map(len, self.regions.values())),
            "copies": len(self._copies),
            "cached": sum(len(cache.owners) for cache in self.caches.values()),
            "splits": self._splits,
            "taken over": self._taken_over,
            **full,
            **busy,
        }

    def on_due(self, now: Nanos, name: str) -> None:
        if name == _LOOK:
            self._look(now)

    # ---------------------------------------------------------------- the subscriber's side

    def on_subscribed(self, now: Nanos, entry: Entry, wanted: Filter) -> None:
        self._homes[entry.id] = (entry, *home_of(wanted))
        self._place(now, entry)

    def on_unsubscribed(self, now: Nanos, entry: Entry, wanted: Filter) -> None:
        _, name, _ = self._homes.pop(entry.id)
        for (of, code), placed in list(self._placed.items()):
            if of == name and placed.pop(entry.id, None) is not None:
                self._to_region(now, RemoveEntries(name, code, (entry.id,)))
                if not placed:
                    del self._placed[of, code]

    def _place(self, now: Nanos, entry: Entry) -> None:
        """Place an entry in every region that its values meet, as far as this peer knows the regions."""
        _, name, cells = self._homes[entry.id]
        for code in self._codes(name, cells):
            placed = self._placed.setdefault((name, code), {})
            if placed.get(entry.id) != entry:
                placed[entry.id] = entry
                self._to_region(now, PlaceEntries(name, code, (entry,), self.me))

    def _codes(self, name: str, cells: list[Interval]) -> list[str]:
        cache = self.caches.get(name)
        return [""] if cache is None else [code for code, _ in cache.meeting(cells)]

    def _regions_are(self, now: Nanos, sender: PeerId, told: RegionsAre) -> None:
        name = told.name
        for code, owner in told.regions:
            if not can_be(name, code) or not code.startswith(told.code) or owner not in (sender, UNKNOWN_OWNER):
                self.refuse(sender, "a region that cannot be")
                return
            if owner == sender and not self._may_own(sender, place(name, code)):
                self.refuse(sender, "a region that its sender does not own")
                return
        self._learn(now, name, told.regions)

    def _learn(self, now: Nanos, name: str, regions: tuple[tuple[str, PeerId], ...]) -> None:
        cache = self.caches.get(name)
        if cache is None:
            cache = self.caches[name] = RegionCache()
            mine = {of for of, _ in self._placed}
            if len(self.caches) > MOST_NAMES + len(mine):  # topics may be new for ever
                del self.caches[next(known for known in self.caches if known not in mine)]
        if cache.learn(now, regions):
            self._place_anew(now, name)

    def _place_anew(self, now: Nanos, name: str) -> None:
        """The regions of this name are others. Their owners have passed on this peer's entries; renew them there at
        once, since the others may be split in turn."""
        before = {key: placed for key, placed in self._placed.items() if key[0] == name}
        for key in before:
            del self._placed[key]
        for entry, of, cells in self._homes.values():
            if of == name:
                for code in self._codes(name, cells):
                    self._placed.setdefault((name, code), {})[entry.id] = entry
        for key in [key for key in self._placed if key[0] == name and key not in before]:
            placed = self._placed.get(key)  # gone if an answer came at once
            if placed is not None:
                self._to_region(now, RenewEntries(*key, self.me, digest(placed.values())))

    def _renew_entries(self, now: Nanos) -> None:
        for (name, code), placed in list(self._placed.items()):
            self._to_region(now, RenewEntries(name, code, self.me, digest(placed.values())))

    def _tell_entries(self, now: Nanos, told: TellEntries) -> None:
        placed = self._placed.get((told.name, told.code), {})
        for entries in batches(list(placed.values())):
            self._to_region(now, PlaceEntries(told.name, told.code, entries, self.me))

    # ---------------------------------------------------------------- on the way to the owner of a region

    def _to_region(self, now: Nanos, message: Any, avoid: tuple[PeerId, ...] = ()) -> None:
        """Send a message to the owner of a region: the one that is known, or hop by hop."""
        name, code = message.name, message.code
        if message.hops == 0 and not avoid:
            cache = self.caches.get(name)
            owner = UNKNOWN_OWNER if cache is None else cache.owners.get(code, UNKNOWN_OWNER)
            if owner not in (UNKNOWN_OWNER, self.me) and cache is not None and self._fresh(cache.age_ns(code, now)):
                self.send(owner, _hopped(message))
                return
        hop = self.next_hop_to(place(name, code), avoid)
        if hop is None:
            self._at_region(now, self.me, message)
        elif message.hops >= MOST_HOPS:
            self.out.append(Notice("undelivered", hop))
        else:
            self.send(hop, _hopped(message))

    def _fresh(self, age_ns: Nanos) -> bool:
        """Whether an owner that was named this long ago may be asked without asking for the owner again."""
        return age_ns < self._settings.beacon_ns * 3 // 2

    def _at_region(self, now: Nanos, sender: PeerId, message: Any) -> None:
        """A message has reached the owner of its region."""
        match message:
            case PlaceEntries():
                self._add(now, sender, message)
            case RemoveEntries(name, code, ids):
                self._remove(now, (name, code), ids)
            case RenewEntries(name, code, peer, away_ns=away_ns) if away_ns > 0:
                self._is_away(now, (name, code), peer, away_ns)
            case RenewEntries(name, code, peer, told):
                self._renewed(now, (name, code), peer, told)
            case HalfIsActive(name, code):
                table = self._table(now, name, code)
                if not table.split:
                    self._split(now, (name, code), table)

    def _add(self, now: Nanos, sender: PeerId, told: PlaceEntries) -> None:
        key = (told.name, told.code)
        table = self._table(now, *key)
        if table.split:
            self._pass_down(now, sender, key, told.entries)
        else:
            added = []
            for entry in told.entries:
                try:
                    if table.add(entry, now + self._settings.expiry_ns):
                        added.append(entry)
                except FilterError:
                    self.refuse(sender, "a filter that cannot be read")
            if added:
                self._copy(CopyEntries(*key, tuple(added)))
            self._is_back(now, table, told.asker)
        if told.hops != 1 or table.split:  # it did not come straight here, so its sender knows no better
            self._correct(now, told.asker, key, table)

    def _pass_down(self, now: Nanos, sender: PeerId, key: Name, entries: tuple[Entry, ...]) -> None:
        name, code = key
        table = EntryTable()
        for entry in entries:
            try:
                table.add(entry, now)
            except FilterError:
                self.refuse(sender, "a filter that cannot be read")
        for half in (f"{code}0", f"{code}1"):
            for batch in batches(table.in_half(half)):
                self._to_region(now, PlaceEntries(name, half, batch, self.me))

    def _correct(self, now: Nanos, peer: PeerId, key: Name, table: EntryTable) -> None:
        """Tell a peer which regions there are at a place of this one."""
        name, code = key
        known = tuple((half, UNKNOWN_OWNER) for half in (f"{code}0", f"{code}1")) if table.split else ((code, self.me),)
        if peer == self.me:
            self._learn(now, name, known)
        elif peer != UNKNOWN_OWNER:
            self.send(peer, RegionsAre(name, code, known))

    def _remove(self, now: Nanos, key: Name, ids: tuple[EntryId, ...]) -> None:
        table = self.regions.get(key)
        if table is None:
            return
        if table.split:
            for half in (f"{key[1]}0", f"{key[1]}1"):
                self._to_region(now, RemoveEntries(key[0], half, ids))
            return
        gone = tuple([id_ for id_ in ids if table.remove(id_)])
        if gone:
            self._copy(CopyEntries(*key, (), gone))

    def _renewed(self, now: Nanos, key: Name, peer: PeerId, told: int) -> None:
        table = self._table(now, *key)
        self._correct(now, peer, key, table)
        if table.split:
            return
        self._is_back(now, table, peer)
        if table.digest_of(peer) == told:
            table.expires[peer] = now + self._settings.expiry_ns
        elif peer == self.me:
            self._tell_entries(now, TellEntries(*key))
        else:
            self.send(peer, TellEntries(*key), LAST_TRIES)

    # ---------------------------------------------------------------- peers that stop and will be back

    def _will_be_back(self, now: Nanos, away_ns: Nanos) -> None:
        """Let the entries of this peer, which stops, live for this time."""
        for (name, code), placed in list(self._placed.items()):
            self._to_region(now, RenewEntries(name, code, self.me, digest(placed.values()), 0, away_ns))

    def _is_away(self, now: Nanos, key: Name, peer: PeerId, away_ns: Nanos) -> None:
        table = self._table(now, *key)
        if table.split:
            for half in (f"{key[1]}0", f"{key[1]}1"):
                self._to_region(now, RenewEntries(key[0], half, peer, 0, 1, away_ns))
            return
        table.away[peer] = min(now + away_ns, FOREVER)
        self._renew_copies_of(now, key)

    def _is_back(self, now: Nanos, table: EntryTable, peer: PeerId) -> None:
        """A peer has sent entries or renewed them: it is not away any more."""
        if table.away.pop(peer, None) is not None:
            self._returned(now, peer)

    def _returned(self, now: Nanos, peer: PeerId) -> None:
        """A peer is back."""

    # ---------------------------------------------------------------- splitting

    def _loaded(self, now: Nanos, key: Name, event: Event) -> None:
        load = self._loads.get(key)
        if load is None:
            if not self._loads:
                self.out.append(Timer(now + LOOK_NS, _LOOK))
            load = self._loads[key] = Load(now)
        cells = cells_in(key[0], event)
        if cells is not None:
            load.count(cells, event.id.publisher)

    def _look(self, now: Nanos) -> None:
        for key, load in list(self._loads.items()):
            table = self.regions.get(key)
            if table is None:
                del self._loads[key]
                continue
            rate = load.events * SECOND / max(1, now - load.since_ns)
            hot = rate > self._settings.split_rate_hz and load.divisible
            full = len(table) > self._settings.split_entries and table.divisible
            if splits(*key) and not table.split and (hot or full):
                self._split(now, key, table)
                for publisher in load.asked:
                    self._correct(now, publisher, key, table)
            if load.events and not table.split:
                self._loads[key] = Load(now)
            else:
                del self._loads[key]
        if self._loads:
            self.out.append(Timer(now + LOOK_NS, _LOOK))

    def _split(self, now: Nanos, key: Name, table: EntryTable) -> None:
        if not splits(*key):
            return
        self._splits += 1
        table.split = True
        entries = tuple(table.entries.values())
        for entry in entries:
            table.remove(entry.id)
        self._copy(CopyEntries(*key, (), tuple(entry.id for entry in entries), True))
        name, code = key
        for half in (f"{code}0", f"{code}1"):
            self._to_region(now, PlaceEntries(name, half, (), self.me))
        for batch in batches(list(entries)):
            self._pass_down(now, self.me, key, batch)

    # ---------------------------------------------------------------- beacons

    def on_beacon(self, now: Nanos) -> None:
        self._renew_entries(now)
        for key, table in list(self.regions.items()):
            gone = tuple(table.expire(now))
            if gone:
                self._copy(CopyEntries(*key, (), gone))
            name, code = key
            if code:
                self._to_region(now, HalfIsActive(name, code[:-1]))
            elif not table.entries and not table.split:
                del self.regions[key]
        self._expire_copies(now)
        self._renew_copies(now)

    # ---------------------------------------------------------------- messages

    def on_heard(self, now: Nanos, sender: PeerId, message: Any) -> None:
        match message:
            case _ if not can_be(message.name, message.code):
                self.refuse(sender, "a region that cannot be")
            case PlaceEntries() | RemoveEntries() | RenewEntries() | HalfIsActive():
                if self.ring.owns(key_of(place(message.name, message.code))):
                    self._at_region(now, sender, message)
                else:
                    self._to_region(now, message)
            case RegionsAre():
                self._regions_are(now, sender, message)
            case TellEntries():
                self._tell_entries(now, message)
            case CopyEntries():
                self._copied(now, sender, message)
            case RenewCopy():
                self._copy_renewed(now, sender, message)
            case TellCopy(name, code):
                self._send_copy(sender, (name, code))

    def on_undelivered(self, now: Nanos, peer: PeerId, message: Any) -> None:
        for cache in self.caches.values():
            cache.forget(peer)
        match message:
            case PlaceEntries() | RemoveEntries() | RenewEntries() | HalfIsActive():
                self.note_reroute(peer)
                self._to_region(now, message, (peer,))


def _hopped(message: Any) -> Any:
    """The same message one hop further."""
    match message:
        case PlaceEntries(name, code, entries, asker, hops):
            return PlaceEntries(name, code, entries, asker, hops + 1)
        case RemoveEntries(name, code, ids, hops):
            return RemoveEntries(name, code, ids, hops + 1)
        case RenewEntries(name, code, peer, told, hops, away_ns):
            return RenewEntries(name, code, peer, told, hops + 1, away_ns)
    return HalfIsActive(message.name, message.code, message.hops + 1)
