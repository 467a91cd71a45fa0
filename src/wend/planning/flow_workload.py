"""Workloads: flows from a publisher to its receivers, with a rate, a size, a weight and a deadline.

A flow is everything that one publisher sends to one set of receivers (thesis, definition 3.1). So input flows with the
same publisher and receivers are merged: their rates add up, and the shortest deadline holds. Flows are columns, not
objects: a workload of ten thousand messages has six million receivers.
"""

import json
from collections.abc import Iterable, Sequence
from math import inf
from pathlib import Path
from typing import Any

import numpy as np

from wend.model.errors import ConfigError
from wend.model.events import PeerId
from wend.model.flows import NO_DEADLINE, Deadline, Flow, check_flows, read_flows, unambiguous_names
from wend.model.randomness import stream
from wend.model.rates import BITS_PER_BYTE
from wend.model.units import SECOND
from wend.planning.arrays import Flags, Floats, Ints, Longs, run_numbers, run_offsets

MESSAGES, BITS = 0, 1
"""The units of a demand: the rows of `FlowWorkload.demand`."""


class FlowWorkload:
    """Merged flows. The receivers of flow `f` are `receivers[ptr[f]:ptr[f + 1]]`, ascending, without its publisher."""

    def __init__(
        self,
        publisher: Ints,
        ptr: Longs,
        receivers: Ints,
        demand: Floats,
        weight: Floats,
        deadline: Floats | None = None,
    ) -> None:
        self.publisher = publisher
        self.ptr = ptr
        self.receivers = receivers
        self.demand = demand
        """By unit (messages/s, bit/s) and flow."""
        self.weight = weight
        self.deadline = np.full((2, len(publisher)), inf) if deadline is None else deadline
        """By kind (seconds, multiple of each receiver's shortest delay) and flow; infinite if there is none."""
        self.unwanted = 0
        """The number of input flows whose only receiver is their own publisher. They need no plan."""

    def __len__(self) -> int:
        return len(self.publisher)

    def flow_receivers(self, flow: int) -> Ints:
        """The receivers of a flow."""
        return self.receivers[self.ptr[flow] : self.ptr[flow + 1]]

    def select_flows(self, flows: Longs, kept: Flags | None = None) -> "FlowWorkload":
        """Some flows, with all receivers or with those that are kept."""
        whose = run_numbers(self.ptr)
        mine = np.isin(whose, flows) if kept is None else np.isin(whose, flows) & kept
        ptr = run_offsets(np.bincount(whose[mine], minlength=len(self))[flows])
        return FlowWorkload(
            self.publisher[flows], ptr, self.receivers[mine], self.demand[:, flows], self.weight[flows],
            self.deadline[:, flows],
        )  # fmt: skip

    def with_deadline(self, deadline: Deadline) -> "FlowWorkload":
        """The same flows. Those without a deadline have this one."""
        has_none = np.isinf(self.deadline).all(axis=0)
        deadlines = np.where(has_none, np.array(deadline)[:, None], self.deadline)
        workload = FlowWorkload(self.publisher, self.ptr, self.receivers, self.demand, self.weight, deadlines)
        workload.unwanted = self.unwanted
        return workload

    def without_deadlines(self) -> "FlowWorkload":
        return FlowWorkload(self.publisher, self.ptr, self.receivers, self.demand, self.weight)

    def deliveries(self) -> float:
        """Deliveries per second."""
        return float(np.diff(self.ptr) @ self.demand[MESSAGES])


class WorkloadBuilder:
    """Merges flows as they are added. A merged flow has the position of the first one."""

    def __init__(self) -> None:
        self._place: dict[tuple[int, bytes], int] = {}
        self._publishers: list[int] = []
        self._receivers: list[Ints] = []
        self._totals: list[list[float]] = []
        self._deadlines: list[Deadline] = []
        self._unwanted = 0

    def add(
        self,
        publisher: PeerId,
        receivers: Sequence[int] | Ints,
        rate: float,
        bits: float,
        weight: float,
        deadline: Deadline = NO_DEADLINE,
    ) -> None:
        distinct = np.unique(np.asarray(receivers, dtype=np.int32))
        distinct = distinct[distinct != publisher]
        if not len(distinct):
            self._unwanted += 1
            return
        key = (publisher, distinct.tobytes())
        place = self._place.setdefault(key, len(self._publishers))
        if place == len(self._publishers):
            self._publishers.append(publisher)
            self._receivers.append(distinct)
            self._totals.append([0.0, 0.0, 0.0])
            self._deadlines.append(NO_DEADLINE)
        total = self._totals[place]
        total[0] += rate
        total[1] += bits
        total[2] += rate * weight
        self._deadlines[place] = Deadline(*map(min, self._deadlines[place], deadline))

    def build(self) -> FlowWorkload:
        totals = np.array(self._totals, dtype=float).reshape(-1, 3).T
        ptr = run_offsets([len(receivers) for receivers in self._receivers])
        receivers = np.concatenate(self._receivers) if self._receivers else np.zeros(0, dtype=np.int32)
        deadlines = np.array(self._deadlines, dtype=float).reshape(-1, 2).T.copy()
        workload = FlowWorkload(
            np.array(self._publishers, dtype=np.int32), ptr, receivers, totals[:2].copy(), totals[2] / totals[0],
            deadlines,
        )  # fmt: skip
        workload.unwanted = self._unwanted
        return workload


def make_workload(flows: Iterable[Flow], names: Sequence[str], where: str = "workload") -> FlowWorkload:
    """Check and merge flows. An error names the wrong flow, counted from 1."""
    builder = WorkloadBuilder()
    for flow in check_flows(flows, names, where):
        builder.add(flow.publisher, flow.receivers, flow.rate_msgs, flow.rate_bps, flow.weight, flow.deadline)
    workload = builder.build()
    if not len(workload):
        raise ConfigError(f"{where} has no flow with a receiver other than its publisher")
    return workload


def read_workload(path: Path, names: Sequence[str]) -> FlowWorkload:
    """Read a workload from JSON lines, or from Parquet with the same columns."""
    return make_workload(read_flows(path), names, str(path))


def write_workload(workload: FlowWorkload, path: Path, names: Sequence[str] = ()) -> None:
    """Write the merged flows as JSON lines or, if the path ends in .parquet, as Parquet. Peers are called by `names` if
    their numbers would be ambiguous."""
    import pyarrow as arrow
    from pyarrow import parquet

    publisher, receivers, called = (
        arrow.array(workload.publisher),
        arrow.array(workload.receivers),
        unambiguous_names(names),
    )
    if not isinstance(called, range):
        words = arrow.array(called)
        publisher, receivers = words.take(publisher), words.take(receivers)
    delay_s, factor = workload.deadline
    deadlines: dict[str, Any] = {}
    if np.isfinite(delay_s).any():
        deadlines["deadline_ns"] = [round(each * SECOND) if each < inf else None for each in delay_s.tolist()]
    if np.isfinite(factor).any():
        deadlines["deadline"] = [f"{each!r}x" if each < inf else None for each in factor.tolist()]
    table = arrow.table(
        {
            "publisher": publisher,
            "receivers": arrow.ListArray.from_arrays(workload.ptr.astype(np.int32), receivers),
            "rate": workload.demand[MESSAGES],
            "size_bytes": workload.demand[BITS] / workload.demand[MESSAGES] / BITS_PER_BYTE,
            "weight": workload.weight,
            **deadlines,
        }
    )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".parquet":
            parquet.write_table(table, path)
            return
        with path.open("w", encoding="utf-8") as file:
            for batch in table.to_batches(max_chunksize=1000):
                file.writelines(json.dumps(line) + "\n" for line in batch.to_pylist())
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror or error}", code="unwritable") from None


def draw_workload(
    peers: int,
    messages: int,
    *,
    popularity: float,
    seed: int,
    receivers: float = 0.75,
    publishers: float = 0.10,
    rate: float = 1.0,
    size_bytes: float = 0.0,
) -> FlowWorkload:
    """Draw the thesis's workload (section 4.3). A share of the peers receives, and a share publishes, in turn. The
    number of a message's receivers is uniform around `popularity` of all receivers, with the widest possible range."""
    for name, share in (("popularity", popularity), ("receivers", receivers), ("publishers", publishers)):
        if not 0 < share <= 1:
            raise ConfigError(f"{name} must be above 0 and at most 1, got {share:g}")
    if messages < 1 or not rate > 0 or size_bytes < 0:
        got = f"got {messages}, {rate:g} and {size_bytes:g}"
        raise ConfigError(f"a workload needs at least 1 message, a rate above 0 and a size of 0 or more, {got}")
    rng = stream(seed, "workload", "flows", peers)
    receiving = np.sort(rng.permutation(peers)[: max(round(receivers * peers), 1)])
    publishing = rng.permutation(peers)[: max(round(publishers * peers), 1)].tolist()
    reach = len(receiving)
    around, spread = popularity * reach, min(popularity, 1 - popularity) * reach
    counts = np.clip(np.rint(rng.uniform(around - spread, around + spread, messages)), 1, reach).astype(int)
    builder = WorkloadBuilder()
    bits = rate * size_bytes * BITS_PER_BYTE
    for number, count in enumerate(counts.tolist()):
        chosen = rng.choice(receiving, count, replace=False, shuffle=False)
        builder.add(publishing[number % len(publishing)], chosen, rate, bits, 1.0)
    workload = builder.build()
    if not len(workload):
        raise ConfigError(f"of {peers} peers none receives a message of another")
    return workload
