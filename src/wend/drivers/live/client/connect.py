"""Connect a client to a peer."""

from functools import partial
from pathlib import Path

from wend.drivers.live.addressing.addresses import TLS_SCHEME, parse_urls, url_scheme
from wend.drivers.live.client.client import Client
from wend.model.errors import ConfigError


def connect(
    url: str,
    *,
    timeout: float = 10.0,
    patience: float = 60.0,
    keys: str | Path | None = None,
    root: str | Path | None = None,
    certificate: str | Path | None = None,
    key: str | Path | None = None,
    token: str | Path | None = None,
) -> Client:
    """A client of the peer at `url`: enter it with `async with`, or await it.

    With several peers in the URL, such as `wend://site-a:7700,site-b:7700`, the client goes to another peer if its own
    fails. `timeout` limits each attempt to connect and each answer. `patience` is how long the client tries to restore
    a broken connection; requests made meanwhile wait. Both are in seconds.

    `wends://` connects by TLS. The client shows a certificate: `keys` is a folder made by `wend key new`, or `root`,
    `certificate` and `key` are single files. Or it shows a `token`, a text or the `Path` of a private file.
    """
    options = {"keys": keys, "root": root, "certificate": certificate, "key": key, "token": token}
    names = [name for name, value in options.items() if value is not None]
    parse_urls(url)
    if url_scheme(url) != TLS_SCHEME:
        if names:
            raise ConfigError(f"{names[0]} is for {TLS_SCHEME}, not for {url}")
        return Client(url, timeout=timeout, patience=patience)
    from wend.drivers.live.access.tls import make_client_tls

    read = partial(make_client_tls, **options)
    read()  # to report a mistake now
    return Client(url, timeout=timeout, patience=patience, tls=read)
