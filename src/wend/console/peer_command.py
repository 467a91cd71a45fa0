"""`wend peer`: runs one peer of a real overlay until it is told to stop."""

import json
import logging
import signal
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

log = logging.getLogger("wend.clients")

if TYPE_CHECKING:
    from wend.drivers.live.process import PeerProcess


def register(app: typer.Typer) -> None:
    app.command("peer")(peer)


def peer(
    config: Annotated[Path, typer.Option(metavar="FILE", help="The peer's TOML file; see examples/peer.toml.")],
    paths: Annotated[
        str | None,
        typer.Option(metavar="trace|traceroute|none|FILE", help="How the peer finds underlay paths."),
    ] = None,
    join: Annotated[
        list[str] | None,
        typer.Option(metavar="HOST:PORT", help="The address of a peer of the overlay to join; may be repeated."),
    ] = None,
    insecure: Annotated[
        bool,
        typer.Option(
            "--insecure", help="Allow addresses other than loopback without keys. Only for networks that you trust."
        ),
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log more details.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Log only warnings, not changes of links.")] = False,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print a JSON object when the peer listens, and one with its counters at the end."),
    ] = False,
) -> None:
    """Run one peer from its configuration file."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until it can read its file again
    import msgspec
    import uvloop

    from wend.console.terminal import warn_about_filters
    from wend.drivers.live.config import PeerFile, load_peer_file
    from wend.drivers.live.process import serve

    level = logging.DEBUG if verbose else logging.WARNING if quiet else logging.INFO
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(message)s")

    def read() -> PeerFile:
        file = load_peer_file(config, insecure=insecure, join=join or ())
        return file if paths is None else msgspec.structs.replace(file, paths=paths)

    file = read()
    warn_about_filters(file.advertise, "advertise: ")
    counted = uvloop.run(serve(file, partial(_print_ready, as_json=as_json), read))
    if as_json:
        print(json.dumps({"counted": dict(counted)}), flush=True)
        return
    shown = ", ".join(f"{what} {count}" for what, count in counted.items() if count)
    print(f"stopped; counters: {shown or 'nothing'}", flush=True)


def _print_ready(service: "PeerProcess", *, as_json: bool) -> None:
    from wend.drivers.live.addressing.addresses import SCHEME, format_address

    place, clients = (
        format_address(service.peer.address),
        f"{service.listener.scheme}{format_address(service.listener.address)}",
    )
    if as_json:
        print(json.dumps({"peer": service.peer.id, "listens": place, "clients": clients}), flush=True)
    else:
        print(f"peer {service.peer.id} listens on {place}, clients on {clients}", flush=True)
    if service.keys is not None and service.listener.scheme == SCHEME:
        log.info("clients connect without TLS, and show no keys")
    for warning in service.warnings():
        print(f"wend: {warning}", file=sys.stderr, flush=True)
