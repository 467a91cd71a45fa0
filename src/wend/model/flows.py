"""Flows as files: who sends what to whom, how often, how much. Planners and simulations read the same ones.

JSON lines, or Parquet with the same columns; peers by number or by name.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from wend.model.errors import ConfigError
from wend.model.events import PeerId
from wend.model.rates import BITS_PER_BYTE, parse_rate


class Flow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """As a line of a file has it; peers by number or by name."""

    publisher: int | str
    receivers: list[int | str]
    rate: float | str = 1.0
    """`30` or `30msg/s`, or `2Mbit/s`, which needs a size."""
    size_bytes: float = 0.0
    weight: float = 1.0
    """What a message is worth to each receiver, when not all of them fit."""


class Demand(msgspec.Struct, frozen=True, gc=False):
    """A flow that was checked against a topology."""

    publisher: PeerId
    receivers: tuple[PeerId, ...]
    """As the file has them: in any order, perhaps twice, perhaps the publisher too."""
    rate_msgs: float
    size_bytes: float
    weight: float

    @property
    def rate_bps(self) -> float:
        return self.rate_msgs * self.size_bytes * BITS_PER_BYTE


def demands(flows: Iterable[Flow], names: Sequence[str], where: str) -> Iterator[Demand]:
    """Checked one by one; the sentence says which flow is wrong, counted from 1."""
    known = {name: i for i, name in enumerate(names)}
    for number, flow in enumerate(flows, 1):
        what = f"{where}, flow {number}"
        publisher = _peer(flow.publisher, known, f"{what}: publisher")
        receivers = tuple([_peer(r, known, f"{what}: receiver") for r in flow.receivers])
        rate = parse_rate(flow.rate, f"{what}: rate")
        if not rate.value > 0:
            raise ConfigError(f"{what}: the rate must be above 0, got {flow.rate}")
        if not 0 <= flow.size_bytes < float("inf") or not 0 <= flow.weight < float("inf"):
            raise ConfigError(f"{what}: size_bytes and weight must not be negative")
        bits = flow.size_bytes * BITS_PER_BYTE
        if rate.bits and not bits:
            raise ConfigError(f"{what}: a rate in bits needs the messages' size_bytes")
        messages = rate.value / bits if rate.bits else rate.value
        yield Demand(publisher, receivers, messages, flow.size_bytes, flow.weight)


def _peer(who: int | str, known: dict[str, int], what: str) -> PeerId:
    if isinstance(who, int) and 0 <= who < len(known):
        return who
    if isinstance(who, str) and who in known:
        return known[who]
    raise ConfigError(f"{what} {who!r} is not in the topology")


def read_flows(path: Path) -> Iterator[Flow]:
    """A folder is Parquet too: what `wend data flows` leaves."""
    return _parquet(path) if path.suffix == ".parquet" or path.is_dir() else _lines(path)


def _lines(path: Path) -> Iterator[Flow]:
    try:
        text = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    decoder = msgspec.json.Decoder(Flow)
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            try:
                yield decoder.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise ConfigError(f"{path}, line {number} is not a flow: {error}") from None


def _parquet(path: Path) -> Iterator[Flow]:
    from pyarrow import ArrowException, parquet

    try:
        table = parquet.read_table(path)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror or error}") from None
    except ArrowException as error:
        raise ConfigError(f"{path} is not a Parquet file: {error}") from None
    for batch in table.to_batches(max_chunksize=1000):
        try:
            yield from msgspec.convert(batch.to_pylist(), list[Flow])
        except msgspec.ValidationError as error:
            raise ConfigError(f"{path} is not a table of flows: {error}") from None
