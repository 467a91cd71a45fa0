"""`wend telemetry`: copies closed segments of telemetry to a place from which jobs read them."""

import json
import signal
import threading
from pathlib import Path
from typing import Annotated

import typer

from wend.console.options import Json
from wend.model.errors import ConfigError
from wend.model.units import SECOND, parse_duration


def register(app: typer.Typer) -> None:
    group = typer.Typer(help="Copy the telemetry of peers to where jobs read it.", no_args_is_help=True)
    group.command("ship")(ship)
    app.add_typer(group, name="telemetry")


def ship(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="The folder of a peer, or a folder with folders of peers.")
    ],
    to: Annotated[
        str, typer.Option(metavar="DIR|ADDRESS", help="The target: a folder, or an address such as s3a://bucket/x.")
    ],
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on and copy segments as they are closed, until Ctrl-C.")
    ] = False,
    every: Annotated[str, typer.Option(metavar="DURATION", help="How often to look, with --follow.")] = "10s",
    delete: Annotated[bool, typer.Option("--delete", help="Remove segments after they were copied.")] = False,
    as_json: Json = False,
) -> None:
    """Copy closed segments, each once, to TO/raw/TABLE/date=…/hour=… by the hour of their arrival."""
    from wend.drivers.live.telemetry.ship import Shipper

    pause_s = parse_duration(every) / SECOND
    if pause_s <= 0:
        raise ConfigError(f"--every needs a duration above 0, got {every}")
    shipper = Shipper(folder, to, delete=delete)
    stopped = threading.Event()
    if follow:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: stopped.set())
    counts = shipper.ship()
    there = counts["there"]
    while follow and not stopped.wait(pause_s):
        counts += shipper.ship()
    counts["there"] = there
    names = ("copied", "bytes", "there", "gone", "deleted")
    if as_json:
        print(json.dumps({name: counts[name] for name in names}))
        return
    text = f"{counts['copied']} segments copied ({counts['bytes'] / 1e6:.1f} MB), {there} were there already"
    text += f", {counts['deleted']} removed here" if delete else ""
    text += f", {counts['gone']} removed by their peer meanwhile" if counts["gone"] else ""
    print(text)
