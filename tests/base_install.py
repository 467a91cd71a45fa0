"""What works where only the base dependencies are installed: imports of all others fail.

    python -m tests.base_install FOLDER

It imports the whole protocol and the live driver, lets a client publish to another over two peers, and asks for parts
that are not installed. It prints one JSON object with what happened. `test_extras.py` runs it and looks at the answers.
"""

import sys
from importlib.machinery import PathFinder
from typing import Any

ABSENT = {
    "numpy", "scipy", "pyarrow", "numba", "rustworkx", "highspy", "topohub", "pandas", "pyspark", "matplotlib",
    "jinja2", "networkx", "zenoh", "nats", "paho",
}  # fmt: skip


class BaseFinder(PathFinder):
    """Finds modules as if these packages were not installed."""

    @classmethod
    def find_spec(cls, fullname: str, path: Any = None, target: Any = None) -> Any:
        return None if fullname.partition(".")[0] in ABSENT else super().find_spec(fullname, path, target)


sys.meta_path[:] = [BaseFinder if finder is PathFinder else finder for finder in sys.meta_path]

import asyncio  # noqa: E402
import contextlib  # noqa: E402
import io  # noqa: E402
import json  # noqa: E402
from importlib import import_module  # noqa: E402
from pathlib import Path  # noqa: E402
from pkgutil import walk_packages  # noqa: E402

import wend  # noqa: E402
import wend.drivers.live  # noqa: E402
import wend.protocol  # noqa: E402
from tests.ports import free_ports  # noqa: E402
from wend.console.app import main  # noqa: E402
from wend.drivers.live.addressing.addresses import SCHEME, format_address  # noqa: E402
from wend.drivers.live.config import PeerFile  # noqa: E402
from wend.drivers.live.process import PeerProcess  # noqa: E402

FOR_UP = "wend.drivers.live.comparison"
"""It measures whole overlays, for `wend up`."""


def imported() -> int:
    """The number of modules of the protocol and of the live driver, all imported."""
    packages = (wend.protocol, wend.drivers.live)
    names = [each.name for one in packages for each in walk_packages(one.__path__, f"{one.__name__}.")]
    return len([import_module(name) for name in names if not name.startswith(FOR_UP)])


def peer(number: int, ports: list[int], **settings: Any) -> PeerProcess:
    other = 3 - number
    neighbours = [{"id": other, "address": f"127.0.0.1:{ports[other - 1]}", "delay": "1ms"}]
    places = {"listen": f"127.0.0.1:{ports[number - 1]}", "clients": "127.0.0.1:0"}
    return PeerProcess(PeerFile(id=number, neighbours=neighbours, **places, **settings))


async def conversation() -> dict[str, Any]:
    """One client subscribes at a peer with many filters, another publishes at its neighbour."""
    ports = free_ports(2)
    services = [peer(number, ports, strategy="adaptive") for number in (1, 2)]
    for service in services:
        await service.start()
    here, there = (f"{SCHEME}{format_address(service.listener.address)}" for service in services)
    async with wend.connect(here) as publisher, wend.connect(there) as subscriber:
        streams = [await subscriber.subscribe(f"x > {number} and y exists") for number in range(60)]
        while not (await publisher.publish({"x": 7, "y": True}, b"hello")).targets:
            await asyncio.sleep(0.01)  # the subscriptions are still on their way
        arrived = await anext(streams[6])
        found = {"payload": arrived.payload.decode(), "x": arrived.attributes["x"], "buffered": streams[8].dropped}
    for service in services:
        await service.stop()
    return found


async def planned(folder: Path) -> str:
    service = peer(1, free_ports(2), strategy="planned", plan=str(folder / "plan"))
    try:
        await service.start()
    except wend.WendError as error:
        return str(error)
    return "it started"


def recorded(folder: Path) -> str:
    try:
        peer(1, free_ports(2), telemetry=str(folder / "telemetry"))
    except wend.WendError as error:
        return str(error)
    return "it was made"


def sentence_of(*words: str) -> tuple[object, str]:
    """The exit code and stderr of a command."""
    sys.argv = ["wend", *words]
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        try:
            main()
        except SystemExit as ended:
            return ended.code, said.getvalue()
    return 0, said.getvalue()


def simulated() -> str:
    try:
        wend.simulate  # noqa: B018
    except wend.WendError as error:
        return f"{type(error).__name__}: {error}"
    return "it was imported"


def all_of_it(folder: Path) -> dict[str, Any]:
    return {
        "modules": imported(),
        "conversation": asyncio.run(asyncio.wait_for(conversation(), 60)),
        "planned": asyncio.run(planned(folder)),
        "recorded": recorded(folder),
        "simulate": simulated(),
        "commands": {
            " ".join(words): sentence_of(*words)
            for words in (
                ("sim", "--peers", "5", "--degree", "2"),
                ("up", "--duration", "1"),
                ("plan", "show", str(folder)),
                ("topology", "make", "power-law:20"),
                ("data", "generate", "--out", str(folder / "out")),
                ("study", "dcrd", "--smoke", "--out", str(folder / "study")),
                ("lab", "up"),
                ("version",),
            )
        },
        "absent": sorted(ABSENT & {name.partition(".")[0] for name in sys.modules}),
    }


if __name__ == "__main__":
    print(json.dumps(all_of_it(Path(sys.argv[1]))))
