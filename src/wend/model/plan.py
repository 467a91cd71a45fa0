"""A plan: the delivery graphs of each flow of a network, and their shares. Planners write this folder, peers read it.

    plan.json        header: version, fingerprint of the topology, goal, metrics
    peers.parquet    each peer: name, capacity, load before and after, position in drawings
    arcs.parquet     each direction of each link: delay, capacity, load before and after
    flows.parquet    each flow: publisher, receivers, rate, weight, deadline (infinite if there is none)
    graphs.parquet   each delivery graph in use: its flow, and its share of the flow
    hops.parquet     forwarding: peer, graph, next hop; sorted, so that a peer finds its own rows fast
    failures.parquet each link whose failure the plan survives, and the highest load after it
    backups.parquet  the graphs and shares of flows that move after a failure; the other flows keep theirs

"Before" is the load with single shortest paths, "after" the load of the plan. A delivery graph has a number that is
unique in the plan, and a message carries this number. Writing replaces the folder in one step. Every file holds a hash
of the whole plan, so a reader detects files of different plans in one folder. Reading checks the format of the files
and that they belong together; `wend.planning.plan_check` checks whether the plan is sound.
"""

import hashlib
from collections.abc import Iterable
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from wend.model.error_text import describe_schema_error, describe_unreadable
from wend.model.errors import ConfigError
from wend.model.events import PeerId
from wend.model.files import replace_folder

VERSION = 3
_CONTENT = b"wend.plan"
"""The metadata key of a table under which the hash of its plan is."""

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
        ("rate_msgs", "d"), ("rate_bps", "d"), ("weight", "d"), ("deadline_s", "d"), ("deadline_factor", "d"),
    ),
    "graphs": (("graph", "i"), ("flow", "i"), ("share", "d"), ("level", "i")),
    "hops": (("peer", "i"), ("graph", "i"), ("next", "i")),
    "failures": (("failure", "i"), ("a", "i"), ("b", "i"), ("highest_load", "d"), ("moved", "i"), ("cut", "i")),
    "backups": (("failure", "i"), ("flow", "i"), ("graph", "i"), ("share", "d")),
}  # fmt: skip

FILES = (*(f"{name}.parquet" for name in TABLES), "plan.json", "plan.svg")
"""The files of a plan's folder. The drawing is added later."""
OPTIONAL = {"peers": {"x": np.nan, "y": np.nan}, "flows": {"deadline_s": np.inf, "deadline_factor": np.inf}}
"""The columns that a table may lack, and what they hold then."""
Columns = dict[str, Any]
"""Arrays by name. A list column `x` is two arrays, `x` (flat) and `x_ptr`."""


class PlanHeader(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of plan.json."""

    version: int = VERSION
    content: str = ""
    """The hash of all tables; set when the plan is written."""
    topology: str
    """The fingerprint of the plan's topology."""
    goal: str
    k: int
    """The number of candidate paths to each receiver."""
    ranking: str
    partial: bool
    """Whether the plan carries only the most valuable part of the workload."""
    peers: int
    links: int
    flows: int
    graphs: int
    highest_load: float
    """The highest utilisation of a link or peer."""
    highest_load_single: float
    """The same with single shortest paths."""
    survive: int = 0
    """How many links may fail at once without an overload."""
    highest_load_failed: float = 0.0
    """The highest utilisation of a link or peer after any such failure."""
    usage: float
    """The sum of the loads of all links, in `usage_unit`."""
    usage_single: float
    usage_unit: str
    delivered: float
    """Deliveries per second, out of `wanted`."""
    wanted: float
    value: float
    """Deliveries per second times their weights, out of `whole_value`."""
    whole_value: float
    delay_ms: float = 0.0
    """The mean delay of deliveries on idle links."""
    delay_ms_single: float = 0.0
    late: int = 0
    """The number of receivers of flows that miss their deadline even on idle links."""
    max_load: float = 1.0
    """The highest utilisation that the plan was allowed."""


class _Versioned(msgspec.Struct):
    """The header of any version of plans."""

    version: int


class OwnFlow(msgspec.Struct, frozen=True, gc=False):
    """A flow of a publisher: its receivers, and the share of each delivery graph."""

    flow: int
    receivers: tuple[PeerId, ...]
    shares: tuple[tuple[int, float], ...]
    backups: tuple[tuple[PeerId, PeerId, tuple[tuple[int, float], ...]], ...] = ()
    """By failed link (its ends): the share of each delivery graph. Failures that are not listed change no share."""


class Plan:
    """All tables of one plan, as columns."""

    def __init__(self, head: PlanHeader, tables: dict[str, Columns]) -> None:
        self.head = head
        self.tables = tables
        self.peers, self.arcs, self.flows = tables["peers"], tables["arcs"], tables["flows"]
        self.graphs, self.hops = tables["graphs"], tables["hops"]
        self.failures, self.backups = tables["failures"], tables["backups"]

    @cached_property
    def id(self) -> int:
        """A hash of flows, graphs and hops. Every message that follows the plan carries it."""
        digest = hashlib.sha256(self.head.topology.encode())
        for name in ("flows", "graphs", "hops", "failures", "backups"):
            for column, kind in TABLES[name]:
                if column in OPTIONAL.get(name, ()):
                    continue  # the routes are the same
                values = self.tables[name][column]
                digest.update(np.ascontiguousarray(values, dtype={"l": "i"}.get(kind, kind)).tobytes())
        return int.from_bytes(digest.digest()[:4], "big")

    @cached_property
    def content_hash(self) -> str:
        """A hash of all tables, with loads and capacities."""
        digest = hashlib.sha256(self.head.topology.encode())
        for name, columns in TABLES.items():
            for column, kind in columns:
                values = self.tables[name][column]
                if name == "flows" and column in OPTIONAL[name] and np.isinf(values).all():
                    continue  # the hash of a plan without deadlines, which may lack the column
                if kind == "s":
                    digest.update(msgspec.json.encode(values))
                    continue
                digest.update(np.ascontiguousarray(values, dtype={"l": "i"}.get(kind, kind)).tobytes())
                if kind == "l":
                    digest.update(np.ascontiguousarray(self.tables[name][f"{column}_ptr"], dtype="q").tobytes())
        return digest.hexdigest()

    def write(self, folder: Path) -> None:
        """Write the plan to a temporary folder, then move it: after a crash there is either the old plan or this one.

        It overwrites an old plan and its drawing, but no folder with other files.
        """
        from pyarrow import parquet

        place = folder.resolve()
        draft, former = (place.parent / f".{place.name}.{what}" for what in ("draft", "former"))
        try:
            if place.exists() and (others := sorted({path.name for path in place.iterdir()}.difference(FILES))):
                raise ConfigError(f"cannot write the plan to {folder}: it also holds {others[0]}", code="file-exists")
            draft.mkdir(parents=True, exist_ok=True)  # it may exist after a crash
            for name in TABLES:
                small = {"row_group_size": 1 << 18, "compression": "zstd"}
                table = _to_arrow(name, self.tables[name]).replace_schema_metadata({_CONTENT: self.content_hash})
                parquet.write_table(table, draft / f"{name}.parquet", **small)
            head = msgspec.structs.replace(self.head, content=self.content_hash)
            (draft / "plan.json").write_bytes(msgspec.json.format(msgspec.json.encode(head), indent=2) + b"\n")
            replace_folder(draft, place, former)
        except OSError as error:
            raise ConfigError(
                f"cannot write the plan to {folder}: {error.strerror or error}", code="unwritable"
            ) from None
        finally:
            for rest in (draft, former) if place.exists() else (draft,):
                with suppress(OSError):
                    for name in FILES:
                        (rest / name).unlink(missing_ok=True)
                    rest.rmdir()

    def published_flows(self, peer: PeerId) -> tuple[OwnFlow, ...]:
        """The flows of a publisher."""
        flows, graphs, ptr = self.flows, self.graphs, self.flows["receivers_ptr"]
        own_flows = []
        for row in np.flatnonzero(flows["publisher"] == peer).tolist():
            mine = np.flatnonzero((graphs["flow"] == flows["flow"][row]) & (graphs["share"] > 0))
            shares = tuple(zip(graphs["graph"][mine].tolist(), graphs["share"][mine].tolist(), strict=True))
            receivers = tuple(flows["receivers"][ptr[row] : ptr[row + 1]].tolist())
            number = int(flows["flow"][row])
            own_flows.append(OwnFlow(number, receivers, shares, self._backups_by_link(number)))
        return tuple(own_flows)

    def _backups_by_link(self, flow: int) -> tuple[tuple[PeerId, PeerId, tuple[tuple[int, float], ...]], ...]:
        by_failure: dict[int, list[tuple[int, float]]] = {}
        for row in np.flatnonzero(self.backups["flow"] == flow).tolist():
            share = (int(self.backups["graph"][row]), float(self.backups["share"][row]))
            by_failure.setdefault(int(self.backups["failure"][row]), []).append(share)
        ends = self.failures["a"], self.failures["b"]
        return tuple((int(ends[0][f]), int(ends[1][f]), tuple(shares)) for f, shares in sorted(by_failure.items()))


def read_plan(folder: Path) -> Plan:
    """Read all tables. The error names the first file that is missing or invalid."""
    head = _read_header(folder)
    while True:
        try:
            return Plan(head, {name: _read_table(folder, name, head.content) for name in TABLES})
        except ConfigError:
            again = _read_header(folder)
            if again.content == head.content:
                raise
            head = again  # another plan replaced it meanwhile


def fingerprint(peers: int, links: Iterable[tuple[PeerId, PeerId]]) -> str:
    """A hash of the links of a topology. Delays and capacities do not count: a plan stays valid when they change."""
    text = f"{peers};" + ";".join(f"{a}-{b}" for a, b in sorted((min(e), max(e)) for e in links))
    return hashlib.sha256(text.encode()).hexdigest()


def _read_header(folder: Path) -> PlanHeader:
    path = folder / "plan.json"
    try:
        text = path.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"{folder} is not a plan: cannot read plan.json: {error.strerror}", code="unreadable"
        ) from None
    try:
        version = msgspec.json.decode(text, type=_Versioned).version
        if version != VERSION:
            raise ConfigError(f"{path} has version {version}; this Wend reads version {VERSION}")
        return msgspec.json.decode(text, type=PlanHeader)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not the header of a plan: {describe_unreadable(error, PlanHeader)}") from None


def _table_schema(name: str) -> Any:
    import pyarrow as arrow

    kinds = {
        "i": arrow.int32(), "q": arrow.int64(), "d": arrow.float64(), "s": arrow.string(),
        "l": arrow.list_(arrow.int32()),
    }  # fmt: skip
    return arrow.schema([arrow.field(column, kinds[kind]) for column, kind in TABLES[name]])


def _check_schema(folder: Path, name: str, schema: Any, content: str) -> None:
    """Check that a file belongs to the plan and has the right columns, before reading its rows."""
    path = folder / f"{name}.parquet"
    if (schema.metadata or {}).get(_CONTENT, b"").decode("utf-8", "replace") != content:
        raise ConfigError(f"{folder} is not one plan: plan.json and {path.name} belong to different plans")
    if why := describe_schema_error(schema, _table_schema(name), may_lack=set(OPTIONAL.get(name, ()))):
        raise ConfigError(f"{path}: {why}")


def _to_arrow(name: str, columns: Columns) -> Any:
    import pyarrow as arrow

    arrays = []
    for column, kind in TABLES[name]:
        if kind == "l":
            arrays.append(
                arrow.ListArray.from_arrays(arrow.array(columns[f"{column}_ptr"], arrow.int32()), columns[column])
            )
        else:
            arrays.append(arrow.array(columns[column]))
    return arrow.table(arrays, schema=_table_schema(name))


def _read_table(folder: Path, name: str, content: str) -> Columns:
    import pyarrow as arrow
    from pyarrow import parquet

    path = folder / f"{name}.parquet"
    try:
        with parquet.ParquetFile(path) as file:  # open it once: another plan may replace it at any time
            _check_schema(folder, name, file.schema_arrow, content)
            table = file.read()
    except OSError as error:
        why = error.strerror or "it is not Parquet, or it is truncated"
        raise ConfigError(
            f"{folder} is not a complete plan: cannot read {path.name}: {why}", code="unreadable"
        ) from None
    except arrow.ArrowException:
        raise ConfigError(f"{path} is not a Parquet file, or it is truncated", code="unreadable") from None
    for column, value in OPTIONAL.get(name, {}).items():
        if column not in table.column_names:
            table = table.append_column(column, arrow.array(np.full(len(table), value)))
    columns: Columns = {}
    for column, kind in TABLES[name]:
        values = table.column(column).combine_chunks()
        if values.null_count or (kind == "l" and values.flatten().null_count):
            raise ConfigError(f"{path}: column {column!r} has missing values")
        match kind:
            case "l":
                columns[column] = values.flatten().to_numpy(zero_copy_only=False)
                columns[f"{column}_ptr"] = np.concatenate(
                    ([0], np.cumsum(values.value_lengths().to_numpy(zero_copy_only=False)))
                ).astype(np.int64)
            case "s":
                columns[column] = values.to_pylist()
            case _:
                columns[column] = values.to_numpy(zero_copy_only=False)
    return columns
