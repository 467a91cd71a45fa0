"""The options of `client.subscribe`, checked before anything is sent."""

from contextlib import suppress
from typing import Any

from wend.drivers.live import frames
from wend.model.errors import ClientError
from wend.model.events import MAX_FACTOR, DurableOptions, as_scalar
from wend.model.units import FOREVER, SECOND, Nanos, seconds

PUBLISHER = "publisher"
MAX_NAME_CHARS = 200
MAX_BOUND = 2**40
_DEFAULTS = DurableOptions("")


def make_subscribe_frame(
    handle: int,
    filter: str,
    *,
    deadline: float | str | None,
    reliability: float | None,
    order: str | None,
    expire: bool,
    group: str | None,
    retained: bool,
    name: str | None,
    max_events: int | None,
    max_bytes: int | None,
    max_age: float | None,
    window: int,
) -> frames.Subscribe:
    """Make the request for a subscription with these options. Raises `ClientError` for invalid options."""
    if not isinstance(filter, str):
        raise ClientError(f"a filter is a text, got {filter!r}")
    deadline_ns, factor = _parse_deadline(deadline)
    share = _check_number("reliability", reliability)
    if share is not None and not 0 < share <= 1:
        raise ClientError(f"a reliability must lie above 0 and up to 1, got {share}")
    if order not in (None, PUBLISHER):
        raise ClientError(f'order is "{PUBLISHER}" or None, got {order!r}')
    if expire and deadline is None:
        raise ClientError("expire drops events that are past the deadline: give a deadline, too")
    durable = _durable_options(name, max_events, max_bytes, max_age)
    if isinstance(window, bool) or not isinstance(window, int) or window < 1:
        raise ClientError(f"a window is a number of events, at least 1, got {window!r}")
    ordered = order is not None
    shared = _check_group(group, durable is not None, ordered)
    return frames.Subscribe(
        0,
        handle,
        filter,
        deadline_ns,
        share,
        ordered,
        bool(expire),
        durable,
        window,
        shared,
        retained=bool(retained),
        factor=factor,
    )


def _parse_deadline(deadline: float | str | None) -> tuple[Nanos | None, float | None]:
    """The deadline as a time, or as a multiple of the shortest delay."""
    if isinstance(deadline, str):
        with suppress(ValueError):
            if deadline.endswith("x") and 1 <= float(deadline[:-1]) <= MAX_FACTOR:
                return None, float(deadline[:-1])
        sentence = "a deadline is a number of seconds, or a multiple of the shortest delay such as '3x'"
        raise ClientError(f"{sentence}, got {deadline!r}")
    soon = _check_number("deadline", deadline)
    if soon is None:
        return None, None
    if not 0 < soon < float("inf"):
        raise ClientError(f"a deadline must be above 0 seconds, got {soon}")
    return max(1, seconds(soon)), None


def _check_group(group: Any, durable: bool, ordered: bool) -> str:
    if group is None:
        return ""
    _check_text("the name of a queue group", group)
    if durable or ordered:
        what = "durable" if durable else "ordered"
        raise ClientError(f"a member of a queue group gets some of the events, so it cannot be {what}")
    return str(group)


def _durable_options(
    name: str | None, max_events: int | None, max_bytes: int | None, max_age: float | None
) -> DurableOptions | None:
    bounds = {"max_events": max_events, "max_bytes": max_bytes, "max_age": max_age}
    if name is None:
        names = [bound for bound, value in bounds.items() if value is not None]
        if names:
            raise ClientError(f"{names[0]} is for durable subscriptions: give a name, too")
        return None
    for bound in ("max_events", "max_bytes"):
        if (value := bounds[bound]) is not None and (isinstance(value, bool) or not isinstance(value, int)):
            raise ClientError(f"{bound} is a whole number above 0, got {value!r}")
    age = _check_number("max_age", max_age)
    if age is not None and not 0 < age <= FOREVER / SECOND:
        raise ClientError(f"max_age must be above 0 seconds, got {age}")
    options = DurableOptions(
        name,
        _DEFAULTS.max_events if max_events is None else max_events,
        _DEFAULTS.max_bytes if max_bytes is None else max_bytes,
        _DEFAULTS.max_age_ns if age is None else max(1, seconds(age)),
    )
    check_durable(options)
    return options


def check_durable(options: DurableOptions) -> None:
    """Raise `ClientError` for invalid options of a durable subscription."""
    check_name(options.name)
    for bound, value in (("max_events", options.max_events), ("max_bytes", options.max_bytes)):
        if not 0 < value <= MAX_BOUND:
            raise ClientError(f"{bound} is a whole number above 0 and up to {MAX_BOUND}, got {value}")
    if not 0 < options.max_age_ns <= FOREVER:
        raise ClientError(f"max_age must be above 0 seconds, got {options.max_age_ns / SECOND:g}")


def check_name(name: Any) -> None:
    """Raise `ClientError` for an invalid name of a durable subscription."""
    _check_text("the name of a durable subscription", name)


def _check_text(what: str, text: Any) -> None:
    if not isinstance(text, str):
        raise ClientError(f"{what} is a text, got {text!r}")
    if not text or len(text) > MAX_NAME_CHARS or not text.isprintable():
        raise ClientError(f"{what} has 1 to {MAX_NAME_CHARS} printable characters")


def _check_number(name: str, value: Any) -> float | None:
    value = as_scalar(value)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
        unit = "" if name == "reliability" else ", in seconds"
        raise ClientError(f"a {name} is a number{unit}, got {value!r}")
    number: float | None = value
    return number
