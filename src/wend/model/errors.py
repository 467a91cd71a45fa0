"""Who is to blame is in the type.

    WendError                  everything that Wend raises on purpose; its text is one sentence for a person
    ├── ConfigError            a parameter, flag or file that cannot work
    ├── FilterError            a filter that cannot be understood; its text shows the place below the sentence
    ├── WireError              bytes from another host that are not a message
    ├── LabError               an emulated network that cannot be made, found or commanded
    └── ClientError            a client call that cannot be honoured
        ├── ConnectionLost     the peer is gone and did not come back in time
        └── Refused            the peer said no, and why

The caller's mistake is raised. Another peer's mistake is never raised out of a peer: it becomes a
`Refuse` effect and a counter.
"""


class WendError(Exception):
    """Base of all errors that Wend raises on purpose."""


class ConfigError(WendError):
    """A parameter, flag or file that cannot work."""


class FilterError(WendError):
    """A filter that cannot be understood."""


class WireError(WendError):
    """Bytes that are not a message."""


class LabError(WendError):
    """An emulated network that cannot be made, found or commanded."""


class ClientError(WendError):
    """A client call that cannot be honoured."""


class ConnectionLost(ClientError):
    """The peer is gone and did not come back in time."""


class Refused(ClientError):
    """The peer said no."""
