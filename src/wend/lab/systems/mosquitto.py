"""mosquitto: one broker per host, with bridges along the best tree and QoS 1 end to end."""

import asyncio
import time
from functools import partial
from typing import Any

from wend.drivers.workload import Topic
from wend.lab.address_plan import LabNode
from wend.lab.systems.overlay_trees import find_best_tree
from wend.lab.systems.system import (
    START_S,
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
from wend.model.errors import LabError
from wend.model.events import PeerId

PORT = 1883


class Mosquitto:
    routes: Routes = "neighbours"

    def __init__(self, name: str, *, tuned: bool = False) -> None:
        self.name = name
        self.about = "mosquitto bridges along the best tree, QoS 1"
        self.about += ", tuned: TCP for thin streams, no window, short keepalive" if tuned else ", as shipped"
        self._tuned = tuned
        self.processes = Processes()
        self._clients: dict[PeerId, Any] = {}
        self._topics: tuple[Topic, ...] = ()
        self._ticking: asyncio.Task[None] | None = None

    def missing(self) -> str | None:
        return find_missing_program(["mosquitto"], "mosquitto") or find_missing_module(["paho.mqtt"])

    def version(self) -> str:
        return read_first_line(["mosquitto", "-h"])

    async def start(self, context: RunContext) -> None:
        self._topics = context.world.topics
        if self._tuned:
            tune_tcp(context)
        parent = find_best_tree(context.world)
        for host in context.lab.hosts:
            values = {
                "tuning": self._tuning_config("mosquitto-tuning.conf"),
                "bridge": self.bridge_config(host, parent),
            }
            config = write_config(context, "mosquitto.conf", f"mosquitto-{host.number}.conf", **values)
            self.processes.spawn(context, host, ["mosquitto", "-c", str(config)], "mosquitto")
        for host in context.lab.hosts:
            await self.processes.wait_until_listening(context, host, PORT)
            await self._connect(context, host)
        self._ticking = asyncio.create_task(self._drive_clients())

    def bridge_config(self, host: LabNode, parent: dict[PeerId, PeerId]) -> str:
        """The configuration of the bridge to the parent; empty for the root."""
        up = [interface.remote for interface in host.interfaces if interface.neighbour == parent.get(host.number)]
        if not up:
            return ""
        tuning = self._tuning_config("mosquitto-bridge-tuning.conf")
        return render_template("mosquitto-bridge.conf", id=host.number, parent=up[0], tuning=tuning)

    def _tuning_config(self, name: str) -> str:
        return render_template(name) if self._tuned else ""

    async def _connect(self, context: RunContext, host: LabNode) -> None:
        from paho.mqtt import client as mqtt
        from paho.mqtt.enums import CallbackAPIVersion

        loop = asyncio.get_running_loop()
        ready = asyncio.Event()
        client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id=f"bench-{host.number}")
        client.max_inflight_messages_set(0xFFFF)
        topics = [(t.name, 1) for t in context.world.topics if host.number in t.subscribers]

        def opened(_c: Any, _d: Any, sock: Any) -> None:
            loop.add_reader(sock, client.loop_read)

        def closed(_c: Any, _d: Any, sock: Any) -> None:
            loop.remove_reader(sock)
            loop.remove_writer(sock)

        def unneeded(_c: Any, _d: Any, sock: Any) -> None:
            loop.remove_writer(sock)

        def connected(*_: Any) -> None:
            if topics:
                client.subscribe(topics)
            else:
                ready.set()

        def deliver(_c: Any, _d: Any, message: Any) -> None:
            context.arrive(host.number, message.payload, time.monotonic_ns())

        client.on_socket_open = opened
        client.on_socket_close = closed
        client.on_socket_register_write = lambda _c, _d, sock: loop.add_writer(sock, client.loop_write)
        client.on_socket_unregister_write = unneeded
        client.on_connect = connected
        client.on_subscribe = lambda *_: ready.set()
        client.on_message = deliver
        with context.lab.inside(host.number):
            client.connect("127.0.0.1", PORT)
        self._clients[host.number] = client
        try:
            async with asyncio.timeout(START_S):
                await ready.wait()
        except TimeoutError:
            raise LabError(f"the broker of host {host.number} does not answer; see {context.folder}") from None

    async def _drive_clients(self) -> None:
        while True:
            await asyncio.sleep(1.0)
            for client in self._clients.values():
                client.loop_misc()

    async def publish(self, topic: int, payload: bytes) -> None:
        self._clients[self._topics[topic].publisher].publish(self._topics[topic].name, payload, qos=1)

    async def stop(self) -> None:
        if self._ticking is not None:
            self._ticking.cancel()
        for client in self._clients.values():
            client.disconnect()
        self._clients.clear()
        await self.processes.stop()


MOSQUITTO = {
    "mosquitto": partial(Mosquitto, "mosquitto"),
    "mosquitto-tuned": partial(Mosquitto, "mosquitto-tuned", tuned=True),
}
