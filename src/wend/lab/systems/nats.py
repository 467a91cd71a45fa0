"""NATS: a full cluster over static routes, a full cluster over OSPF with BFD, and a tree of leaf nodes.

Every server of a cluster has a TCP connection to every other, so the network must route IP packets between all hosts:
by static shortest paths or by a routing protocol. Leaf nodes use only the links of one tree.
"""

import time
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, Literal

from wend.drivers.workload import Topic
from wend.lab.address_plan import LabNode
from wend.lab.systems.frr import TUNED_BFD_MS, Frr
from wend.lab.systems.overlay_trees import find_best_tree
from wend.lab.systems.system import (
    Processes,
    Routes,
    RunContext,
    find_missing_module,
    find_missing_program,
    read_first_line,
    render_template,
    tune_tcp,
    write_config,
)
from wend.model.events import PeerId

CLIENTS_PORT = 4222
Shape = Literal["cluster", "leaf"]


class Nats:
    def __init__(self, name: str, shape: Shape = "cluster", *, tuned: bool = False, ospf: bool = False) -> None:
        self.name = name
        routing = "OSPF with BFD (FRR)" if ospf else "static shortest paths"
        self.about = f"NATS cluster over {routing}" if shape == "cluster" else "NATS leaf nodes along the best tree"
        self.about += ", tuned: TCP for thin streams, shorter pings" if tuned else ", as shipped"
        self.about += f", BFD at 3 x {TUNED_BFD_MS} ms" if tuned and ospf else ""
        self.routes: Routes = "shortest" if shape == "cluster" and not ospf else "neighbours"
        self._shape = shape
        self._tuned = tuned
        self.processes = Processes()
        self._frr = Frr(self.processes, tuned=tuned) if ospf else None
        self._clients: dict[PeerId, Any] = {}
        self._topics: tuple[Topic, ...] = ()
        self._open = AsyncExitStack()

    def missing(self) -> str | None:
        absent = find_missing_program(["nats-server"], "nats-server") or find_missing_module(["nats"])
        return absent or (None if self._frr is None else self._frr.missing())

    def version(self) -> str:
        own = read_first_line(["nats-server", "--version"])
        return own if self._frr is None else f"{own}, FRR {self._frr.version()}"

    async def start(self, context: RunContext) -> None:
        self._topics = context.world.topics
        if self._tuned:
            tune_tcp(context)
        if self._frr is not None:
            await self._frr.start(context)
        parent = find_best_tree(context.world) if self._shape == "leaf" else {}
        for host in context.lab.hosts:
            values = self.leaf_values(host, parent) if self._shape == "leaf" else cluster_values(context, host)
            tuning = render_template("nats-tuning.conf") if self._tuned else ""
            config = write_config(
                context, f"nats-{self._shape}.conf", f"nats-{host.number}.conf", id=host.number, tuning=tuning, **values
            )
            self.processes.spawn(context, host, ["nats-server", "-c", str(config)], "nats")
        for host in context.lab.hosts:
            await self.processes.wait_until_listening(context, host, CLIENTS_PORT)
            await self._connect(context, host)

    def leaf_values(self, host: LabNode, parent: dict[PeerId, PeerId]) -> dict[str, object]:
        """The values for the template of a leaf node."""
        remotes = [
            f'{{url: "nats-leaf://{w.remote}:7422"}}' for w in host.interfaces if w.neighbour == parent.get(host.number)
        ]
        return {"remotes": ", ".join(remotes), "reconnect": "reconnect: 1" if self._tuned else ""}

    async def _connect(self, context: RunContext, host: LabNode) -> None:
        import nats

        async def take(message: Any, number: PeerId = host.number) -> None:
            context.arrive(number, message.data, time.monotonic_ns())

        with context.lab.inside(host.number):
            client = await nats.connect(f"nats://127.0.0.1:{CLIENTS_PORT}", name=f"h{host.number}")
        self._clients[host.number] = client
        self._open.push_async_callback(client.close)
        for topic in context.world.topics:
            if host.number in topic.subscribers:
                await client.subscribe(topic.name, cb=take)
        await client.flush()

    async def publish(self, topic: int, payload: bytes) -> None:
        await self._clients[self._topics[topic].publisher].publish(self._topics[topic].name, payload)

    async def stop(self) -> None:
        await self._open.aclose()
        await self.processes.stop()


def cluster_values(context: RunContext, host: LabNode) -> dict[str, object]:
    """The values for the template of a server in the cluster.

    The end with the higher number opens a connection, so no two ends connect to each other at once.
    """
    others = [f'"nats-route://{h.address}:6222"' for h in context.lab.hosts if h.number < host.number]
    return {"address": host.address, "routes": ", ".join(others)}


NATS = {
    "nats": partial(Nats, "nats"),
    "nats-tuned": partial(Nats, "nats-tuned", tuned=True),
    "nats-ospf": partial(Nats, "nats-ospf", ospf=True),
    "nats-ospf-tuned": partial(Nats, "nats-ospf-tuned", ospf=True, tuned=True),
    "nats-leaf": partial(Nats, "nats-leaf", "leaf"),
    "nats-leaf-tuned": partial(Nats, "nats-leaf-tuned", "leaf", tuned=True),
}
