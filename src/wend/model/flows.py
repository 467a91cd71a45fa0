"""Files of flows: publisher, receivers, rate and size of each. Planners and simulations read the same files.

A file is JSON lines, or Parquet with the same columns. It refers to peers by name. If any peer has a number as its
name, numbers are names; otherwise a number is an index in the topology, counted from 0.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import NamedTuple

import msgspec

from wend.model.error_text import describe_field_error, describe_unreadable
from wend.model.errors import ConfigError
from wend.model.events import PeerId
from wend.model.rates import BITS_PER_BYTE, parse_rate
from wend.model.units import SECOND, parse_duration

_TWICE = "two peers are called {0!r}"
_NUMERAL = re.compile(r"-?[0-9]{1,18}")


class Flow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A flow as a line of a file: peers by name, or by number (`peers_by_name`)."""

    publisher: int | str
    receivers: list[int | str]
    rate: float | str = 1.0
    """`30` or `30msg/s`, or `2Mbit/s`, which needs a size."""
    size_bytes: float = 0.0
    weight: float = 1.0
    """The value of a delivered message, for plans in which not all messages fit."""
    deadline: str | None = None
    """`200ms`, or `3x` for three times the shortest delay of each receiver."""
    deadline_ns: int | None = None
    """The shortest deadline of its receivers, if it was measured. If both are given, both hold."""
    events: int | None = None
    """How many events were seen, if the flow was measured."""
    sample: float | None = None
    """The share of all events that were looked at, if the flow was measured."""


class Deadline(NamedTuple):
    """The deadline of a flow's receivers; if both limits are finite, both hold."""

    delay_s: float = inf
    factor: float = inf
    """As a multiple of the shortest delay of each receiver."""


NO_DEADLINE = Deadline()


class Demand(msgspec.Struct, frozen=True, gc=False):
    """A flow, checked against a topology."""

    publisher: PeerId
    receivers: tuple[PeerId, ...]
    """As in the file: in any order, perhaps with duplicates, perhaps with the publisher."""
    rate_msgs: float
    size_bytes: float
    weight: float
    deadline: Deadline

    @property
    def rate_bps(self) -> float:
        return self.rate_msgs * self.size_bytes * BITS_PER_BYTE


def check_flows(flows: Iterable[Flow], names: Sequence[str], where: str) -> Iterator[Demand]:
    """Check flows one by one. An error names the wrong flow, counted from 1."""
    numbers = peers_by_name(names)
    for number, flow in enumerate(flows, 1):
        what = f"{where}, flow {number}"
        publisher = _find_peer(flow.publisher, numbers, names, f"{what}: publisher")
        receivers = tuple([_find_peer(r, numbers, names, f"{what}: receiver") for r in flow.receivers])
        rate = parse_rate(flow.rate, f"{what}: rate")
        if not rate.value > 0:
            raise ConfigError(f"{what}: the rate must be above 0, got {flow.rate}")
        if not 0 <= flow.size_bytes < float("inf") or not 0 <= flow.weight < float("inf"):
            raise ConfigError(f"{what}: size_bytes and weight must not be negative")
        bits = flow.size_bytes * BITS_PER_BYTE
        if rate.bits and not bits:
            raise ConfigError(f"{what}: a rate in bits needs size_bytes, the size of the messages")
        messages = rate.value / bits if rate.bits else rate.value
        deadline = NO_DEADLINE if flow.deadline is None else parse_deadline(flow.deadline, f"{what}: deadline")
        if flow.deadline_ns is not None and flow.deadline_ns > 0:
            deadline = deadline._replace(delay_s=min(deadline.delay_s, flow.deadline_ns / SECOND))
        yield Demand(publisher, receivers, messages, flow.size_bytes, flow.weight, deadline)


def parse_deadline(text: str, what: str) -> Deadline:
    """Parse `200ms` or `3x`."""
    if not text.endswith("x"):
        try:
            delay_ns = parse_duration(text)
        except ConfigError as error:
            raise ConfigError(f"{what}: {error}", code=error.code) from None
        if delay_ns > 0:
            return Deadline(delay_s=delay_ns / SECOND)
        raise ConfigError(f"{what} must be above 0, got {text}")
    with suppress(ValueError):
        if 1 <= float(text[:-1]) < inf:
            return Deadline(factor=float(text[:-1]))
    raise ConfigError(f"{what} must be a duration, or a multiple of the shortest delay from 1x on, got {text!r}")


def peers_by_name(names: Sequence[str]) -> dict[int | str, PeerId]:
    """The peer of each name and number. If any peer has a number as its name, all numbers are names, because an index
    could be another peer. A name of two peers refers to neither."""
    often = Counter(names)
    numbers: dict[int | str, PeerId] = {name: i for i, name in enumerate(names) if often[name] == 1}
    numerals = [name for name in names if _NUMERAL.fullmatch(name)]
    if not numerals:
        return numbers | {i: i for i in range(len(names))}
    return numbers | {int(name): numbers[name] for name in numerals if name in numbers and str(int(name)) == name}


def unambiguous_names(names: Sequence[str]) -> Sequence[int | str]:
    """How a file refers to each peer, so that `peers_by_name` finds it: by number if that is unambiguous, else by
    name."""
    numbers = peers_by_name(names)
    if all(numbers.get(i) == i for i in range(len(names))):
        return range(len(names))
    if twice := [name for i, name in enumerate(names) if numbers.get(name) != i]:
        raise ConfigError(f"flows cannot name the peers of this topology: {_TWICE.format(twice[0])}")
    return names


def _find_peer(who: int | str, numbers: dict[int | str, PeerId], names: Sequence[str], what: str) -> PeerId:
    peer = numbers.get(who)
    if peer is not None:
        return peer
    if str(who) in names:
        raise ConfigError(f"{what}: {_TWICE.format(who)}")
    if isinstance(who, int) and 0 <= who < len(names):
        raise ConfigError(f"{what} {who} is not in the topology: its peers have numbers as names, and none is {who}")
    raise ConfigError(f"{what} {who!r} is not in the topology")


def read_flows(path: Path) -> Iterator[Flow]:
    """Read flows from a file, or from a folder: Parquet files, which `wend data flows` writes, or the tables of `wend
    data workload`."""
    return _read_parquet(path) if path.suffix == ".parquet" or path.is_dir() else _read_lines(path)


class _Listed(msgspec.Struct):
    path: str


class _Table(msgspec.Struct):
    files: list[_Listed] = []


class _Version(msgspec.Struct):
    layout: int
    tables: dict[str, _Table] = {}


def _table_files(folder: Path) -> list[Path]:
    """The files of the table `flows` in the newest version of a folder of tables."""
    versions = sorted((folder / "versions").glob("[0-9]*.json"))
    if not versions:
        raise ConfigError(f"{folder} has no version of its tables")
    try:
        newest = msgspec.json.decode(versions[-1].read_bytes(), type=_Version)
    except (OSError, msgspec.DecodeError):
        raise ConfigError(f"cannot read {versions[-1]}: it is damaged", code="unreadable") from None
    if newest.layout > 1:
        raise ConfigError(f"{folder} was written by a newer Wend (layout {newest.layout}, and this one knows 1)")
    if "flows" not in newest.tables:
        raise ConfigError(f"{folder} has no table flows, which `wend data workload` writes")
    return [folder / file.path for file in newest.tables["flows"].files]


def _read_lines(path: Path) -> Iterator[Flow]:
    try:
        text = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}", code="unreadable") from None
    decoder = msgspec.json.Decoder(Flow)
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            try:
                yield decoder.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise ConfigError(f"{path}, line {number} is not a flow: {describe_unreadable(error, Flow)}") from None


def _read_parquet(path: Path) -> Iterator[Flow]:
    from pyarrow import ArrowException, parquet

    is_tables = (path / "versions").is_dir()
    if not is_tables and path.is_dir() and not any(path.rglob("*.parquet")):
        raise ConfigError(
            f"{path} is a folder without Parquet files: flows are JSON lines or Parquet", code="unreadable"
        )
    try:
        table = parquet.read_table(_table_files(path) if is_tables else path)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror or 'it is not Parquet'}", code="unreadable") from None
    except ArrowException:
        raise ConfigError(f"{path} is not a Parquet file of flows, or it is truncated", code="unreadable") from None
    if missing := [name for name in ("publisher", "receivers") if name not in table.column_names]:
        raise ConfigError(f"{path} is not a table of flows: it has no column {missing[0]!r}")
    number = 0
    for batch in table.to_batches(max_chunksize=1000):
        for row in batch.to_pylist():
            number += 1
            try:
                yield msgspec.convert(row, Flow)
            except msgspec.ValidationError as error:
                raise ConfigError(f"{path}, row {number} is not a flow: {describe_field_error(error, Flow)}") from None
