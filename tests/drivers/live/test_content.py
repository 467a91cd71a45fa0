"""Content filters on real sockets: a publisher and subscribers at two peers, all in processes of their own.

A subscriber gets exactly the events that its filter matches, asked one by one.
"""

import asyncio
import json
import random
import subprocess
import sys
from pathlib import Path

import wend
from tests.ports import free_ports
from wend.matching.filters import parse
from wend.model.events import Attributes, Range

WEND = [sys.executable, "-m", "wend.console.app"]
FILTERS = (
    "temperature in [10, 20[ and city prefix 'st'",
    "height > 3 and length < 2 * height",
    "kind in {'car', 'bus'} or not (speed exists)",
)
EVENTS = 150


def drawn(number: int, draw: random.Random) -> Attributes:
    found: Attributes = {"number": number}
    low = draw.randrange(30)
    optional: Attributes = {
        "temperature": draw.choice([low, draw.random() * 30, Range(low, low + draw.randrange(1, 5)), "x"]),
        "city": draw.choice(["stuttgart", "st", "berlin", Range("r", "sz")]),
        "height": draw.randrange(6),
        "length": draw.choice([draw.randrange(12), Range(low, low + 4, False, True)]),
        "kind": draw.choice(["car", "bus", "bike", True]),
        "speed": draw.randrange(100),
    }
    return found | {name: value for name, value in optional.items() if draw.random() < 0.7}


def peer(folder: Path, me: int, ports: list[int]) -> "subprocess.Popen[str]":
    other = 1 - me
    config = folder / f"{me}.toml"
    config.write_text(
        f'id = {me}\nlisten = "127.0.0.1:{ports[me]}"\nclients = "127.0.0.1:0"\nstrategy = "dcrd"\n'
        f'margin = "50ms"\n[[neighbours]]\nid = {other}\naddress = "127.0.0.1:{ports[other]}"\ndelay = "2ms"\n'
    )
    return subprocess.Popen([*WEND, "peer", "--config", str(config)], stdout=subprocess.PIPE, text=True)


def listening(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().split("clients on ")[1].split()[0]


def test_three_processes_deliver_what_brute_force_says(tmp_path: Path) -> None:
    draw = random.Random(4)
    events = [drawn(number, draw) for number in range(EVENTS)]
    lines = "".join(json.dumps(to_json(event)) + "\n" for event in events)
    wanted = {text: [n for n, event in enumerate(events) if parse(text).matches(event)] for text in FILTERS}
    ports = free_ports(2)
    peers = [peer(tmp_path, me, ports) for me in range(2)]
    try:
        here_url, there_url = (listening(process) for process in peers)
        subscribers = {text: subscriber(text, there_url, len(wanted[text]) + 1) for text in FILTERS}
        for text in FILTERS:
            others = {number for other in FILTERS if other != text for number in wanted[other]}
            await_interest(here_url, next(events[number] for number in wanted[text] if number not in others))
        subprocess.run([*WEND, "pub", "--quiet", "--peer", here_url], input=lines, text=True, check=True)
        for text, taking in subscribers.items():
            assert 10 < len(wanted[text]) < EVENTS - 10
            got = [json.loads(line)["attributes"] for line in taking.communicate(timeout=90)[0].splitlines()]
            assert taking.returncode == 0
            assert sorted(a["number"] for a in got if a["number"] >= 0) == wanted[text]
            assert all(a == to_json(events[a["number"]]) for a in got if a["number"] >= 0)
    finally:
        for process in peers:
            process.terminate()
        for process in peers:
            process.wait()


def subscriber(text: str, url: str, count: int) -> "subprocess.Popen[str]":
    words = ("sub", text, "--json", "--count", str(count), "--timeout", "60s", "--peer", url)
    return subprocess.Popen([*WEND, *words], stdout=subprocess.PIPE, text=True)


def to_json(event: Attributes) -> dict[str, object]:
    return {
        name: {
            key: end
            for key, end in (
                ("low", value.low), ("high", value.high), ("low_open", value.low_open), ("high_open", value.high_open),
            )
            if end not in (None, False)
        }
        if isinstance(value, Range)
        else value
        for name, value in event.items()
    }  # fmt: skip


def await_interest(url: str, probe: Attributes) -> None:
    """Until the publisher's peer knows of the one subscription that the probe matches: only the last probe is sent."""

    async def ask() -> None:
        async with asyncio.timeout(30), wend.connect(url) as client:
            while not (await client.publish({**probe, "number": -1})).targets:
                await asyncio.sleep(0.05)

    asyncio.run(ask())
