"""The options of `format("wend")`, checked before anything is read."""

from collections.abc import Mapping
from datetime import datetime
from difflib import get_close_matches
from pathlib import Path
from typing import Final

import msgspec

from wend.drivers.live.addressing.addresses import split_urls
from wend.drivers.live.client.connect import make_tls_reader
from wend.drivers.live.log_frames import LogPlace
from wend.matching.filters import parse
from wend.model.errors import ConfigError
from wend.model.units import SECOND, Nanos, parse_duration

ACCESS: Final = ("peers", "token", "tokenFile", "keys", "root", "certificate", "key", "timeout", "patience")
READING: Final = (
    *ACCESS,
    "log",
    "filter",
    "deadline",
    "startingOffsets",
    "startingTime",
    "endingOffsets",
    "endingTime",
    "maxEventsPerTrigger",
    "maxEventsPerPartition",
    "failOnDataLoss",
)
ONLY_BATCH: Final = ("endingOffsets", "endingTime")
ONLY_STREAM: Final = ("maxEventsPerTrigger",)
SPARKS_OWN: Final = ("checkpointlocation", "queryname", "outputmode")
"""Spark passes these on to the source or sink, in lower case."""
EVENTS_PER_PARTITION: Final = 100_000
_PLACES: Final = {"earliest": LogPlace("first"), "latest": LogPlace("end")}


class PeerAccess(msgspec.Struct, frozen=True):
    """Which peers to ask, and how a client shows who it is."""

    urls: tuple[str, ...]
    credentials: dict[str, str | Path | None]
    timeout_s: float
    patience_s: float

    def __repr__(self) -> str:
        """Without credentials: Spark may print it."""
        return f"PeerAccess({', '.join(self.urls)})"


class ReadOptions(msgspec.Struct, frozen=True):
    """What to read."""

    access: PeerAccess
    log: str
    filter: str
    deadline_ns: Nanos | None
    begin: LogPlace
    end: LogPlace
    per_trigger: int | None
    per_partition: int
    must_be_whole: bool
    """Whether a query fails if events of its range are lost."""


def read_options(options: Mapping[str, str], *, is_stream: bool) -> ReadOptions:
    """The options of a reader. Raises `ConfigError` or `FilterError`."""
    excluded = ONLY_BATCH if is_stream else ONLY_STREAM
    _check_names(options, READING)
    for name in excluded:
        if name in options:
            kind = "a stream has no end" if is_stream else "only a stream has triggers"
            raise ConfigError(f"option {name}: {kind}")
    text = options.get("filter", "true")
    parse(text)
    return ReadOptions(
        peer_access(options),
        _required(options, "log", "the name of a log"),
        text,
        parse_duration(options["deadline"]) if "deadline" in options else None,
        _place(options, "starting", "latest" if is_stream else "earliest"),
        _place(options, "ending", "latest"),
        _count(options, "maxEventsPerTrigger", None),
        _count(options, "maxEventsPerPartition", EVENTS_PER_PARTITION) or EVENTS_PER_PARTITION,
        _truth(options, "failOnDataLoss", True),
    )


def peer_access(options: Mapping[str, str]) -> PeerAccess:
    """Raises `ConfigError`."""
    urls = split_urls(_required(options, "peers", "the URL of a peer, such as wend://127.0.0.1:7700"))
    token: str | Path | None = options.get("token")
    if "tokenFile" in options:
        if token is not None:
            raise ConfigError("options token and tokenFile both name a token: give one of them")
        token = Path(options["tokenFile"])
    credentials: dict[str, str | Path | None] = {
        "token": token,
        **{name: options.get(name) for name in ("keys", "root", "certificate", "key")},
    }
    make_tls_reader(urls[0], credentials)  # to report a mistake now
    timeout, patience = (parse_duration(options.get(*each)) for each in (("timeout", "10s"), ("patience", "60s")))
    return PeerAccess(urls, credentials, timeout / SECOND, patience / SECOND)


def write_options(options: Mapping[str, str]) -> PeerAccess:
    """The options of a writer. Raises `ConfigError`."""
    _check_names(options, ACCESS)
    return peer_access(options)


def _check_names(options: Mapping[str, str], known: tuple[str, ...]) -> None:
    by_lower = {name.lower(): name for name in known}
    for name in options:
        lower = name.lower()
        if lower not in by_lower and lower not in SPARKS_OWN:
            close = get_close_matches(lower, by_lower, 1)
            advice = f"did you mean {by_lower[close[0]]}?" if close else f"there are {', '.join(known)}"
            raise ConfigError(f'format("wend") has no option {name}: {advice}')


def _required(options: Mapping[str, str], name: str, what: str) -> str:
    if not options.get(name):
        raise ConfigError(f'format("wend") needs the option {name}: {what}')
    return options[name]


def _place(options: Mapping[str, str], which: str, default: str) -> LogPlace:
    offsets, time = f"{which}Offsets", f"{which}Time"
    if offsets in options and time in options:
        raise ConfigError(f"options {offsets} and {time} both say where: give one of them")
    if time in options:
        return _time(time, options[time])
    text = options.get(offsets, default)
    if text.isascii() and text.isdigit() and int(text) < 2**62:
        return LogPlace("position", int(text))
    if text not in _PLACES:
        raise ConfigError(f"option {offsets} is earliest, latest or a position, got {text!r}")
    return _PLACES[text]


def _time(name: str, text: str) -> LogPlace:
    """A time, or how long ago it was. A time without a zone is local time."""
    try:
        return LogPlace("age", parse_duration(text))
    except ConfigError:
        pass
    try:
        time_ns = round(datetime.fromisoformat(text).timestamp() * 1_000_000) * 1000
        if time_ns < 0:
            raise ValueError
        return LogPlace("time", time_ns)
    except (ValueError, OverflowError):
        sentence = f"option {name} is a time such as 2026-03-01T12:00:00Z, or a duration such as 2h, got {text!r}"
        raise ConfigError(sentence) from None


def _count(options: Mapping[str, str], name: str, default: int | None) -> int | None:
    text = options.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and 0 < int(text) < 2**31):
        raise ConfigError(f"option {name} is a number of events from 1, got {text!r}")
    return int(text)


def _truth(options: Mapping[str, str], name: str, default: bool) -> bool:
    text = options.get(name, str(default)).lower()
    if text not in ("true", "false"):
        raise ConfigError(f"option {name} is true or false, got {text!r}")
    return text == "true"
