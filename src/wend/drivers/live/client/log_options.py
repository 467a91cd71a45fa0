"""The options of `client.subscribe` that read a log, checked before anything is sent."""

from datetime import datetime, timedelta
from typing import Any, Final

from wend.drivers.live import frames
from wend.drivers.live.log_frames import LogPlace
from wend.model.errors import ClientError, ConfigError
from wend.model.units import FOREVER, SECOND, Nanos, parse_duration

FIRST, NOW = "first", "now"
WINDOW: Final = 1024
"""The most events of a log that the peer sends before the application takes them."""
MAX_LAST: Final = 1_000_000
MAX_POSITION: Final = 2**62
_LOOKS = "a position, a time, a duration such as '2h', 'first' or 'now'"
When = int | str | datetime | timedelta


def log_request(request: frames.Subscribe, since: Any, until: Any, last: Any, log: Any) -> frames.ReadLog:
    """The request to read a log, from one to subscribe. Raises `ClientError` for options that do not go together."""
    excluded = {
        "name": request.durable,
        "group": request.group,
        "expire": request.expire,
        "reliability": request.reliability is not None,
        "a relative deadline": request.factor is not None,
    }
    for name, is_given in excluded.items():
        if is_given:
            raise ClientError(f"{name} is for new events: a log is read in the order of its positions")
    if since is not None and last is not None:
        raise ClientError("since and last both say where to begin: give one of them")
    if log is not None and (not isinstance(log, str) or not log):
        raise ClientError(f"log is the name of a log, got {log!r}")
    if last is not None:
        if isinstance(last, bool) or not isinstance(last, int) or not 0 <= last <= MAX_LAST:
            raise ClientError(f"last is a number of events up to {MAX_LAST}, got {last!r}")
        begin = LogPlace("last", last)
    else:
        begin = _place("since", since, LogPlace("end" if until is None else "first"))
    end = None if until is None else _place("until", until, LogPlace("end"))
    return frames.ReadLog(
        0,
        request.handle,
        request.filter,
        begin,
        end,
        log or "",
        window=WINDOW,
        deadline_ns=request.deadline_ns,
        order=request.order,
    )


def _place(name: str, when: Any, default: LogPlace) -> LogPlace:
    if when is None:
        return default
    if when == FIRST:
        return LogPlace("first")
    if when == NOW:
        return LogPlace("end")
    if isinstance(when, datetime):
        return _time_place(name, when)
    if isinstance(when, timedelta):
        return _age_place(name, round(when / timedelta(microseconds=1)) * 1000)
    if isinstance(when, int) and not isinstance(when, bool) and 0 <= when < MAX_POSITION:
        return LogPlace("position", when)
    if isinstance(when, str):
        return _parse_place(name, when)
    raise ClientError(f"{name} is {_LOOKS}, got {when!r}")


def _parse_place(name: str, text: str) -> LogPlace:
    """A place as people write it. A text of digits is a position."""
    if text.isascii() and text.isdigit():
        return _place(name, int(text), LogPlace("end"))
    try:
        return _age_place(name, parse_duration(text))
    except ConfigError:
        pass
    try:
        return _time_place(name, datetime.fromisoformat(text))
    except ValueError:
        raise ClientError(f"{name} is {_LOOKS}, got {text!r}") from None


def _time_place(name: str, when: datetime) -> LogPlace:
    """A time; one without a zone is local time."""
    time_ns = round(when.timestamp() * 1_000_000) * 1000
    if not 0 <= time_ns < FOREVER:
        raise ClientError(f"{name} is before 1970 or too far ahead: {when.isoformat()}")
    return LogPlace("time", time_ns)


def _age_place(name: str, age_ns: Nanos) -> LogPlace:
    if not 0 <= age_ns < FOREVER:
        raise ClientError(f"{name} must be a time that has passed, got {age_ns / SECOND:g} s ago")
    return LogPlace("age", age_ns)
