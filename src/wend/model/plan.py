"""A plan: which ways the flows of a network take, and in which shares. A directory that planners write and peers read.

    plan.json        version, topology's fingerprint, goal, what the plan comes to; for people and programs
    peers.parquet    each peer: its name, what it may receive, what it receives before and after, where to draw it
    arcs.parquet     each direction of each link: delay, capacity, load before and after
    flows.parquet    who publishes what for whom: receivers, rate, weight
    graphs.parquet   the delivery graphs that are used: of which flow, for which share of it
    hops.parquet     forwarding: peer, graph, next hop; sorted, so a peer finds its own rows at once

"Before" is everything along single shortest paths, "after" the plan. A delivery graph has one number in the whole
plan: a message that carries it needs no other label. A directory is replaced in one step; and every file names the
content of the whole plan, so that files of two plans, copied over each other, are told apart. Reading checks that the
files are what they say they are and belong together; whether the plan is sound is for `wend.planning.check`.
"""

import hashlib
from collections.abc import Iterable
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from wend.model.error_text import misfit, unreadable
from wend.model.errors import ConfigError
from wend.model.events import PeerId
from wend.model.folders import put

VERSION = 2
_CONTENT = b"wend.plan"
"""Under this key a table says which plan's it is."""

# name -> columns; "i" is int32, "q" int64, "d" double, "s" string, "l" a list of int32
TABLES: dict[str, tuple[tuple[str, str], ...]] = {
    "peers": (
        ("peer", "i"), ("name", "s"), ("capacity_msgs", "d"), ("capacity_bps", "d"),
        ("before_msgs", "d"), ("before_bps", "d"), ("after_msgs", "d"), ("after_bps", "d"), ("x", "d"), ("y", "d"),
    ),
    "arcs": (
        ("a", "i"), ("b", "i"), ("delay_ns", "q"), ("capacity_msgs", "d"), ("capacity_bps", "d"),
        ("before_msgs", "d"), ("before_bps", "d"), ("after_msgs", "d"), ("after_bps", "d"),
    ),
    "flows": (
        ("flow", "i"), ("publisher", "i"), ("receivers", "l"),
        ("rate_msgs", "d"), ("rate_bps", "d"), ("weight", "d"),
    ),
    "graphs": (("graph", "i"), ("flow", "i"), ("share", "d"), ("level", "i")),
    "hops": (("peer", "i"), ("graph", "i"), ("next", "i")),
}  # fmt: skip

FILES = (*(f"{name}.parquet" for name in TABLES), "plan.json", "plan.svg")
"""All that a plan's directory holds; the picture is drawn of it later."""
DRAWN = {"x", "y"}
"""Columns of peers that a plan may lack."""
Columns = dict[str, Any]
"""Arrays by name; a list column `x` is `x` flat and `x_ptr`."""


class PlanHeader(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What plan.json says."""

    version: int = VERSION
    content: str = ""
    """Names all that the tables hold; set where the plan is written."""
    topology: str
    """The fingerprint of the topology that the plan is for."""
    goal: str
    k: int
    """How many paths to each receiver were looked at."""
    ranking: str
    partial: bool
    """Whether the plan carries only the most valuable part of the workload."""
    peers: int
    links: int
    flows: int
    graphs: int
    highest_load: float
    """The highest load of a link or peer, as a share of its capacity."""
    highest_load_single: float
    """The same if everything took its single shortest path."""
    usage: float
    """Load summed over links, in `usage_unit`."""
    usage_single: float
    usage_unit: str
    delivered: float
    """Deliveries per second, of `wanted`."""
    wanted: float
    value: float
    """The same, weighted."""
    whole_value: float


class _Versioned(msgspec.Struct):
    """Of any version."""

    version: int


class OwnFlow(msgspec.Struct, frozen=True, gc=False):
    """A flow that starts here: for whom, and which share of it takes which delivery graph."""

    flow: int
    receivers: tuple[PeerId, ...]
    shares: tuple[tuple[int, float], ...]


class Plan:
    """All tables of one plan, as columns."""

    def __init__(self, head: PlanHeader, tables: dict[str, Columns]) -> None:
        self.head = head
        self.tables = tables
        self.peers, self.arcs, self.flows = tables["peers"], tables["arcs"], tables["flows"]
        self.graphs, self.hops = tables["graphs"], tables["hops"]

    @cached_property
    def id(self) -> int:
        """Names the plan by what it makes peers do; it travels with every message that follows the plan."""
        digest = hashlib.sha256(self.head.topology.encode())
        for name in ("flows", "graphs", "hops"):
            for column, kind in TABLES[name]:
                values = self.tables[name][column]
                digest.update(np.ascontiguousarray(values, dtype={"l": "i"}.get(kind, kind)).tobytes())
        return int.from_bytes(digest.digest()[:4], "big")

    @cached_property
    def content(self) -> str:
        """Names all that the tables hold, loads and capacities too."""
        digest = hashlib.sha256(self.head.topology.encode())
        for name, columns in TABLES.items():
            for column, kind in columns:
                values = self.tables[name][column]
                if kind == "s":
                    digest.update(msgspec.json.encode(values))
                    continue
                digest.update(np.ascontiguousarray(values, dtype={"l": "i"}.get(kind, kind)).tobytes())
                if kind == "l":
                    digest.update(np.ascontiguousarray(self.tables[name][f"{column}_ptr"], dtype="q").tobytes())
        return digest.hexdigest()

    def write(self, folder: Path) -> None:
        """A whole folder beside its place first, so that there is the former plan or this one, whatever happens.

        Only a plan is written over, with the picture of it, which would be wrong: what else is there is not ours.
        """
        from pyarrow import parquet

        place = folder.resolve()
        draft, former = (place.parent / f".{place.name}.{what}" for what in ("draft", "former"))
        try:
            if place.exists() and (others := sorted({path.name for path in place.iterdir()}.difference(FILES))):
                raise ConfigError(f"cannot write the plan to {folder}: it also holds {others[0]}")
            draft.mkdir(parents=True, exist_ok=True)  # one that a crash left is written over
            for name in TABLES:
                small = {"row_group_size": 1 << 18, "compression": "zstd"}
                table = _arrow(name, self.tables[name]).replace_schema_metadata({_CONTENT: self.content})
                parquet.write_table(table, draft / f"{name}.parquet", **small)
            head = msgspec.structs.replace(self.head, content=self.content)
            (draft / "plan.json").write_bytes(msgspec.json.format(msgspec.json.encode(head), indent=2) + b"\n")
            put(draft, place, former)
        except OSError as error:
            raise ConfigError(f"cannot write the plan to {folder}: {error.strerror or error}") from None
        finally:
            for rest in (draft, former) if place.exists() else (draft,):
                with suppress(OSError):
                    for name in FILES:
                        (rest / name).unlink(missing_ok=True)
                    rest.rmdir()

    def publishes(self, peer: PeerId) -> tuple[OwnFlow, ...]:
        """The flows that start at a peer."""
        flows, graphs, ptr = self.flows, self.graphs, self.flows["receivers_ptr"]
        found = []
        for row in np.flatnonzero(flows["publisher"] == peer).tolist():
            mine = np.flatnonzero(graphs["flow"] == flows["flow"][row])
            shares = tuple(zip(graphs["graph"][mine].tolist(), graphs["share"][mine].tolist(), strict=True))
            receivers = tuple(flows["receivers"][ptr[row] : ptr[row + 1]].tolist())
            found.append(OwnFlow(int(flows["flow"][row]), receivers, shares))
        return tuple(found)


def read_plan(folder: Path) -> Plan:
    """Every table, whole; one sentence if a file is missing or is not what it should be."""
    head = _head(folder)
    while True:
        try:
            return Plan(head, {name: _read(folder, name, head.content) for name in TABLES})
        except ConfigError:
            again = _head(folder)
            if again.content == head.content:
                raise
            head = again  # it was replaced meanwhile


def fingerprint(peers: int, links: Iterable[tuple[PeerId, PeerId]]) -> str:
    """Names a topology by who is linked to whom. Delays and capacities drift; a plan outlives that."""
    text = f"{peers};" + ";".join(f"{a}-{b}" for a, b in sorted((min(e), max(e)) for e in links))
    return hashlib.sha256(text.encode()).hexdigest()


def _head(folder: Path) -> PlanHeader:
    path = folder / "plan.json"
    try:
        text = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{folder} is not a plan: cannot read plan.json: {error.strerror}") from None
    try:
        version = msgspec.json.decode(text, type=_Versioned).version
        if version != VERSION:
            raise ConfigError(f"{path} has version {version}; this Wend reads version {VERSION}")
        return msgspec.json.decode(text, type=PlanHeader)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not the head of a plan: {unreadable(error, PlanHeader)}") from None


def _schema(name: str) -> Any:
    import pyarrow as arrow

    kinds = {
        "i": arrow.int32(), "q": arrow.int64(), "d": arrow.float64(), "s": arrow.string(),
        "l": arrow.list_(arrow.int32()),
    }  # fmt: skip
    return arrow.schema([arrow.field(column, kinds[kind]) for column, kind in TABLES[name]])


def _check_schema(folder: Path, name: str, schema: Any, content: str) -> None:
    """Before a row is read: what has other columns is of no plan."""
    path = folder / f"{name}.parquet"
    if (schema.metadata or {}).get(_CONTENT, b"").decode("utf-8", "replace") != content:
        raise ConfigError(f"{folder} is not one plan: plan.json and {path.name} belong to different plans")
    if why := misfit(schema, _schema(name), may_lack=DRAWN if name == "peers" else ()):
        raise ConfigError(f"{path}: {why}")


def _arrow(name: str, columns: Columns) -> Any:
    import pyarrow as arrow

    made = []
    for column, kind in TABLES[name]:
        if kind == "l":
            made.append(
                arrow.ListArray.from_arrays(arrow.array(columns[f"{column}_ptr"], arrow.int32()), columns[column])
            )
        else:
            made.append(arrow.array(columns[column]))
    return arrow.table(made, schema=_schema(name))


def _read(folder: Path, name: str, content: str) -> Columns:
    import pyarrow as arrow
    from pyarrow import parquet

    path = folder / f"{name}.parquet"
    try:
        with parquet.ParquetFile(path) as file:  # opened once: another may stand there a moment later
            _check_schema(folder, name, file.schema_arrow, content)
            table = file.read()
    except OSError as error:
        why = error.strerror or "it is not Parquet, or not whole"
        raise ConfigError(f"{folder} is not a whole plan: cannot read {path.name}: {why}") from None
    except arrow.ArrowException:
        raise ConfigError(f"{path} is not a Parquet file, or not a whole one") from None
    if name == "peers":
        for axis in sorted(DRAWN.difference(table.column_names)):  # nobody but a picture needs them
            table = table.append_column(axis, arrow.array(np.full(len(table), np.nan)))
    found: Columns = {}
    for column, kind in TABLES[name]:
        values = table.column(column).combine_chunks()
        if values.null_count or (kind == "l" and values.flatten().null_count):
            raise ConfigError(f"{path}: column {column!r} has gaps")
        match kind:
            case "l":
                found[column] = values.flatten().to_numpy(zero_copy_only=False)
                found[f"{column}_ptr"] = np.concatenate(
                    ([0], np.cumsum(values.value_lengths().to_numpy(zero_copy_only=False)))
                ).astype(np.int64)
            case "s":
                found[column] = values.to_pylist()
            case _:
                found[column] = values.to_numpy(zero_copy_only=False)
    return found
