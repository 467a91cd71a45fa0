"""The error classes. The type tells whose mistake it was.

    WendError                  all errors that Wend raises on purpose; the text is one sentence for the user
    ├── ConfigError            an invalid parameter, flag or file
    ├── FilterError            a filter with a syntax error; the text shows the position below the sentence
    ├── MissingExtra           a part of Wend that is not installed; the text says how to install it
    ├── WireError              bytes from another host that are not a message
    ├── Untrusted              a certificate that is not accepted
    ├── InternalError          a mistake of Wend's own; the text says where the log is
    ├── TryAgain               a machine, a process or a connection was lost, and another try may succeed
    ├── LabError               an emulated network that cannot be made, found or controlled
    └── ClientError            a client call that failed
        ├── ConnectionLost     the connection to the peer was lost and not restored in time
        ├── NoReply            nobody is subscribed to a request, or no reply came in time
        ├── PartlyPublished    some events of many were not published; it has the result of each
        ├── Refused            the peer refused the call, with a reason
        └── NotGranted         a client may not do this (drivers/live/access/grants.py)

Wend raises the caller's mistakes. A peer never raises another peer's mistake: it becomes a `Refuse` effect and a
counter.
"""

from typing import Any


class WendError(Exception):
    """The base of all errors that Wend raises on purpose."""

    exit_code = 2
    """With which a command ends."""


class ConfigError(WendError):
    """An invalid parameter, flag or file."""


class FilterError(WendError):
    """A filter with a syntax error."""


class MissingExtra(WendError):
    """A part of Wend that is not installed."""


class WireError(WendError):
    """Bytes that are not a message."""


class Untrusted(WendError):
    """A certificate that is not accepted."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class InternalError(WendError):
    """A mistake of Wend's own."""

    exit_code = 70


class TryAgain(WendError):
    """A failure that has nothing to do with the input."""

    exit_code = 75


class LabError(WendError):
    """An emulated network that cannot be made, found or controlled."""


class ClientError(WendError):
    """A client call that failed."""


class ConnectionLost(ClientError):
    """The connection to the peer was lost and not restored in time."""


class NoReply(ClientError):
    """Nobody is subscribed to a request, or no reply came in time."""


class PartlyPublished(ClientError):
    """Some events of `publish_many` were not published."""

    def __init__(self, results: list[Any]) -> None:
        failed = [result for result in results if isinstance(result, ClientError)]
        super().__init__(f"{len(failed)} of {len(results)} events were not published, the first because: {failed[0]}")
        self.results = results
        """For each event, in order: its receipt, or the error."""


class Refused(ClientError):
    """The peer refused the call."""
