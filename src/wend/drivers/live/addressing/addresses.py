"""Addresses of peers and clients: `127.0.0.1:7700`, `wend://host:7700`.

Without keys links are not authenticated: a host that can reach a peer can pretend to be its neighbour. So such a peer
listens on loopback only, unless its owner says that the network is safe.
"""

import errno
import ipaddress
import socket

from wend.model.errors import ConfigError

Address = tuple[str, int]
DEFAULT_PORT = 7700
SCHEME = "wend://"
TLS_SCHEME = "wends://"
TOO_MANY_FILES = "this process may not open more files; ask for fewer peers, or raise the limit (ulimit -n)"


def parse_address(text: str, default_port: int | None = None) -> Address:
    """Read `127.0.0.1:7701` or `[::1]:7701`."""
    host, colon, port = text.strip().rpartition(":")
    if not colon or host.count("[") != host.count("]") or (":" in host and not host.startswith("[")):
        host, port = text.strip(), "" if default_port is None else str(default_port)
    host = host.removeprefix("[").removesuffix("]")
    if not host or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise ConfigError(f"cannot read {text!r} as an address: it looks like 127.0.0.1:{DEFAULT_PORT}")
    return host, int(port)


def parse_urls(text: str) -> tuple[Address, ...]:
    """Read `wend://site-a:7700,site-b:7700`: the peers to which a client can connect, in order. Ports are optional."""
    scheme = url_scheme(text)
    parts = [part.strip().removeprefix(scheme).rstrip("/") for part in text.split(",")]
    if any("://" in part for part in parts):
        raise ConfigError(
            f"cannot read {text!r}: all peers of a client are reached by {SCHEME}, or all by {TLS_SCHEME}"
        )
    return tuple(dict.fromkeys(parse_address(part, DEFAULT_PORT) for part in parts))


def split_urls(text: str) -> tuple[str, ...]:
    """The URL of each peer that a URL names."""
    return tuple(f"{url_scheme(text)}{format_address(address)}" for address in parse_urls(text))


def url_scheme(text: str) -> str:
    """`wend://`, or `wends://` for TLS."""
    for scheme in (SCHEME, TLS_SCHEME):
        if text.startswith(scheme):
            return scheme
    raise ConfigError(f"cannot read {text!r} as a peer: it looks like {SCHEME}127.0.0.1:{DEFAULT_PORT}")


def format_address(address: Address) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_numeric_address(address: Address) -> bool:
    """Whether the address needs no resolution."""
    try:
        ipaddress.ip_address(address[0].partition("%")[0])
    except ValueError:
        return False
    return True


def resolve_address(address: Address, family: int = socket.AF_UNSPEC) -> Address:
    """The numeric address, as a socket of this family reports it for a datagram."""
    return resolve_addresses(address, family)[0]


def resolve_addresses(address: Address, family: int = socket.AF_UNSPEC) -> list[Address]:
    """All numeric addresses that a name has, in the system's order of preference."""
    try:
        entries = socket.getaddrinfo(*address, family=family, type=socket.SOCK_DGRAM)
    except OSError as error:
        if family != socket.AF_UNSPEC and _exists(address):
            kind = "IPv6" if family == socket.AF_INET6 else "IPv4"
            raise ConfigError(
                f"cannot reach {format_address(address)} from a peer that listens on an {kind} address"
            ) from None
        raise ConfigError(f"cannot find the host {address[0]!r}: {error.strerror}", code="unreachable") from None
    except UnicodeError:
        raise ConfigError(f"cannot find the host {address[0]!r}: it is no name of a host") from None
    return list(dict.fromkeys((str(place[0]), int(place[1])) for *_, place in entries))


def _exists(address: Address) -> bool:
    try:
        return bool(socket.getaddrinfo(*address, type=socket.SOCK_DGRAM))
    except OSError:
        return False


def check_listen_address(address: Address, insecure: bool) -> Address:
    """The resolved address to listen on. Raises `ConfigError` if that would not be safe."""
    host, port = resolve_address(address)
    if not insecure and not ipaddress.ip_address(host.partition("%")[0]).is_loopback:
        raise ConfigError(
            f"refusing to listen on {format_address((host, port))} without keys: "
            f"anyone who can reach it could speak for a peer or a client. Give keys (wend key), or say insecure = true"
        )
    return host, port


def bind_socket(address: Address, kind: socket.SocketKind) -> socket.socket:
    """A bound, non-blocking socket. Raises `ConfigError` if it cannot be made, or the port is in use."""
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    try:
        bound = socket.socket(family, kind)
    except OSError as error:
        why = TOO_MANY_FILES if error.errno in (errno.EMFILE, errno.ENFILE) else error.strerror
        raise ConfigError(f"cannot open a socket for {format_address(address)}: {why}") from None
    try:
        if kind == socket.SOCK_STREAM:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError as error:
        bound.close()
        if error.errno == errno.EADDRINUSE:
            raise ConfigError(
                f"cannot listen on {format_address(address)}: the port is in use", code="address-in-use"
            ) from None
        raise ConfigError(f"cannot listen on {format_address(address)}: {error.strerror}") from None
    bound.setblocking(False)
    return bound
