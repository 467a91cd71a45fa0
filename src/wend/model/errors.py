"""The error classes and their codes. The class tells whose mistake it was; the code tells a program what happened.

    WendError            failed             every error that Wend raises on purpose; its text is for the user
    ├── ConfigError      invalid-setting    an invalid parameter, flag or file
    ├── FilterError      filter-syntax      an invalid filter; the text shows the position below the sentence
    ├── MissingExtra     missing-extra      a part of Wend that is not installed; the text says how to install it
    ├── WireError        malformed          bytes from another host that are not a message
    ├── Untrusted        untrusted          a certificate, token or signature that is not accepted
    ├── InternalError    internal           a mistake in Wend itself; the text says where the log is
    ├── TryAgain         try-again          a machine, a process or a connection was lost; another try may succeed
    ├── LabError         lab-failed         an emulated network that cannot be made, found or controlled
    └── ClientError      invalid-call       a client call that failed
        ├── ConnectionLost   connection-lost    the connection to the peer was lost and not restored in time
        ├── NoReply          no-reply           nobody is subscribed to a request, or no reply came in time
        ├── PartlyPublished  partly-published   some of many events were not published; it has the result of each
        └── Refused          refused            the peer refused the call

The second column is the code of the class. A raise gives another one from `ERROR_CODES` if a program would want to tell
the two apart. Codes never change; sentences may. Peers send codes to clients, commands print them with `--json`, and
docs/reference/errors.md lists them.

Wend raises the caller's mistakes. A peer never raises another peer's mistake: it becomes a `Refuse` effect and a
counter.
"""

from typing import Any, Literal, cast

ErrorCode = Literal[
    "failed", "internal", "try-again", "missing-extra", "lab-failed",
    "usage", "invalid-setting", "unreadable", "unwritable", "file-exists", "address-in-use", "id-in-use",
    "store-in-use", "store-unreadable", "log-in-use", "log-unreadable", "unknown-log", "other-log",
    "filter-syntax", "filter-too-large",
    "untrusted", "credentials-expired", "credentials-revoked",
    "malformed", "other-version", "not-greeted",
    "invalid-call", "not-connected", "closed", "taken-over",
    "unreachable", "connection-lost", "timeout", "not-sent", "expired", "unexpected-answer",
    "no-reply", "nobody-subscribed", "partly-published",
    "refused", "not-running", "store-full", "too-many-clients", "not-supported",
    "invalid-event", "too-large",
    "invalid-subscription", "too-many-subscriptions", "unknown-subscription",
    "experiments-off", "invalid-link", "no-such-peer", "no-plan", "invalid-plan", "plan-not-newer", "plan-not-prepared",
    "not-admitted", "rights-changed", "publish-refused", "subscribe-refused", "reply-refused", "admin-refused",
    "rate-refused", "status-refused", "connections-refused", "subscriptions-refused", "kept-refused",
]  # fmt: skip

ERROR_CODES: dict[ErrorCode, str] = {
    "failed": "A computation failed, such as a plan for which the solver found no solution.",
    "internal": "Wend made a mistake; the log has the details.",
    "try-again": "A machine, a process or a connection was lost. Another try may succeed.",
    "missing-extra": "A part of Wend is not installed. The sentence says how to install it.",
    "lab-failed": "An emulated network cannot be made, found or controlled.",
    "usage": "The command line cannot be understood: an unknown command or option, or a missing argument.",
    "invalid-setting": "A setting, a flag, an argument or the content of a file is invalid.",
    "unreadable": "A file or folder is missing, cannot be read, or is damaged.",
    "unwritable": "A file or folder cannot be written.",
    "file-exists": "A file exists already or a folder is not empty, and it is not overwritten.",
    "address-in-use": "Another process listens on the address.",
    "id-in-use": "Another process runs a peer with this id.",
    "store-in-use": "Another process has the store open.",
    "store-unreadable": "The file is not a store, or has a format that this version of Wend does not read.",
    "log-in-use": "Another process has the log open.",
    "log-unreadable": "The log has a format that this version of Wend does not read.",
    "unknown-log": "The peer has no such log, or none that holds all events of the subscription.",
    "other-log": "A position belongs to another log than the one that the peer has now.",
    "filter-syntax": "A filter has a syntax error.",
    "filter-too-large": "A filter is too long, or has too many conjunctions in its normal form.",
    "untrusted": "A certificate, a token or a signature is not accepted.",
    "credentials-expired": "A certificate or a token has expired.",
    "credentials-revoked": "A certificate or a token was revoked or withdrawn.",
    "malformed": "Bytes from another host are not a message, or a message cannot be encoded.",
    "other-version": "The client and the peer speak different versions of the protocol.",
    "not-greeted": "The client did not send `greet` first, or not in time.",
    "invalid-call": "An argument of a client call is invalid.",
    "not-connected": "The client is not connected: enter it or await it first.",
    "closed": "The client or the subscription is closed.",
    "taken-over": "Another client attached to the durable subscription.",
    "unreachable": "No connection to a peer can be made.",
    "connection-lost": "The connection to the peer broke before the answer came.",
    "timeout": "Something took too long, such as the answer of a peer.",
    "not-sent": "The event was not sent, because an event before it got no answer.",
    "expired": "The event is older than its ttl, or past the deadline of a subscription that expires events.",
    "unexpected-answer": "The peer gave an answer that does not fit the request.",
    "no-reply": "No reply to a request came in time.",
    "nobody-subscribed": "Nobody is subscribed to a request.",
    "partly-published": "Some of many events were not published.",
    "refused": "The peer refused a request for another reason.",
    "not-running": "The peer has not started, or has stopped.",
    "store-full": "The peer's store cannot be written, and too many events wait for it.",
    "too-many-clients": "The peer has as many clients as it accepts.",
    "not-supported": "The peer's strategy does not support this.",
    "invalid-event": "An event has an invalid attribute, header, payload or ttl.",
    "too-large": "An event or a message exceeds a limit of its size.",
    "invalid-subscription": "An option of a subscription is invalid.",
    "too-many-subscriptions": "A client or a peer has as many subscriptions as it may have.",
    "unknown-subscription": "The peer has no durable subscription of this name.",
    "experiments-off": "The peer's file does not allow experiments.",
    "invalid-link": "The link cannot be made, changed or removed.",
    "no-such-peer": "The peer knows no subscriptions of a peer of this id.",
    "no-plan": "The peer's file names no plan.",
    "invalid-plan": "The plan is invalid, or does not fit the peer.",
    "plan-not-newer": "The peer follows or holds a plan whose version is not lower.",
    "plan-not-prepared": "The peer does not hold the plan that it is told to follow.",
    "not-admitted": "The grants of the client's groups are too large together.",
    "rights-changed": "The rights of the client have changed. It may connect again.",
    "publish-refused": "The client's grants do not allow the publication.",
    "subscribe-refused": "The client's grants do not allow the subscription.",
    "reply-refused": "The client replied to a request that it has not received.",
    "admin-refused": "The client is not an administrator.",
    "rate-refused": "The client or its group publishes more events or bytes a second than it may.",
    "status-refused": "The client asks for the status too often.",
    "connections-refused": "The client or its group has as many connections as it may have.",
    "subscriptions-refused": "The client or its group has as many subscriptions as it may have.",
    "kept-refused": "The client or its group would keep more bytes at the peer than it may.",
}


class WendError(Exception):
    """The base of all errors that Wend raises on purpose."""

    code: ErrorCode = "failed"
    exit_code = 2
    """The exit code of a command that ends with this error."""

    def __init__(self, sentence: str, *, code: ErrorCode | None = None) -> None:
        super().__init__(sentence)
        if code is not None:
            self.code = code


class ConfigError(WendError):
    """An invalid parameter, flag or file."""

    code = "invalid-setting"


class FilterError(WendError):
    """An invalid filter."""

    code = "filter-syntax"


class MissingExtra(WendError):
    """A part of Wend that is not installed."""

    code = "missing-extra"


class WireError(WendError):
    """Bytes that are not a message."""

    code = "malformed"


class Untrusted(WendError):
    """A certificate, token or signature that is not accepted."""

    code = "untrusted"


class InternalError(WendError):
    """A mistake in Wend itself."""

    code = "internal"
    exit_code = 70


class TryAgain(WendError):
    """A failure that has nothing to do with the input."""

    code = "try-again"
    exit_code = 75


class LabError(WendError):
    """An emulated network that cannot be made, found or controlled."""

    code = "lab-failed"


class ClientError(WendError):
    """A client call that failed."""

    code: ErrorCode = "invalid-call"


class ConnectionLost(ClientError):
    """The connection to the peer was lost and not restored in time."""

    code = "connection-lost"


class NoReply(ClientError):
    """Nobody is subscribed to a request, or no reply came in time."""

    code = "no-reply"


class PartlyPublished(ClientError):
    """Some events of `publish_many` were not published."""

    code = "partly-published"

    def __init__(self, results: list[Any]) -> None:
        failed = [result for result in results if isinstance(result, WendError)]
        super().__init__(f"{len(failed)} of {len(results)} events were not published, the first because: {failed[0]}")
        self.results = results
        """For each event, in order: its receipt, or the error."""


class Refused(ClientError):
    """The peer refused the call."""

    code = "refused"


def make_refusal(code: str, sentence: str) -> FilterError | Refused:
    """The error that a client raises for a refusal by its peer. A newer peer may send a code that is not known here."""
    refused = FilterError if code in ("filter-syntax", "filter-too-large") else Refused
    return refused(sentence, code=cast(ErrorCode, code))
