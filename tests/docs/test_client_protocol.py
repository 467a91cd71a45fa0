"""The client in JavaScript talks to a peer; the page of the client protocol says what it does."""

import asyncio
import json
import re
import shutil
from pathlib import Path

import pytest

import wend
from tests.drivers.live.net import overlay, run
from wend.drivers.live import frames
from wend.drivers.live.transport import wire

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "client-protocol.md").read_text()
NO = "cannot read the filter: expected a value or an attribute (a number, a quoted text, true or false), got the end"
NODE = shutil.which("node")
TALK = """
import {{ Client }} from "{client}";
const client = await Client.connect("127.0.0.1", {port});
const got = [];
const done = new Promise((resolve) => client.subscribe("topic = 'to-node'", (event, {{ late }}) => {{
  got.push([event.id[2], event.attributes, event.payload.toString(), event.headers, late]);
  if (got.length === 2) resolve();
}}));
const {{ targets }} = await client.publish(
  {{ topic: "from-node", int: -5, big: 2n ** 63n, float: 1.5, yes: true,
    text: "ü".repeat(200), range: {{ low: 1, high: 2 }} }},
  Buffer.alloc(70000, "x"), {{ a: "b" }});
await done;
const no = await client.subscribe("topic = ", () => {{}}).catch((error) => [error.code, error.message.split("\\n")[0]]);
console.log(JSON.stringify({{ targets, got, no }}));
client.close();
"""


async def node(*arguments: str) -> tuple[int, str, str]:
    assert NODE is not None
    child = await asyncio.create_subprocess_exec(
        NODE, *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, cwd=ROOT
    )
    out, errors = await child.communicate()
    assert child.returncode is not None
    return child.returncode, out.decode(), errors.decode()


@pytest.mark.skipif(NODE is None, reason="node is not installed")
def test_a_client_in_javascript_publishes_and_subscribes() -> None:
    async def scene() -> None:
        async with (
            overlay([]) as (a,),
            wend.connect(a.url) as client,
            client.subscribe("topic = 'from-node'") as events,
        ):
            script = TALK.format(client=(ROOT / "examples" / "client.mjs").as_uri(), port=a.listener.address[1])
            talk = asyncio.create_task(node("--input-type=module", "--eval", script))
            event = await anext(events)
            many = {"topic": "to-node", **{f"a{n}": n * 10**9 for n in range(-10, 10)}, "x": 0.5, "y": False}
            await client.publish(many, b"first", {"unit": "celsius"})
            await client.publish({"topic": "to-node"})
            code, out, errors = await talk
            assert (code, errors) == (0, "")
            assert event.attributes == {
                "topic": "from-node",
                "int": -5,
                "big": 2**63,
                "float": 1.5,
                "yes": True,
                "text": "ü" * 200,
                "range": wend.Range(1, 2),
            }
            assert (event.payload, event.headers) == (b"x" * 70000, {"a": "b"})
            assert json.loads(out) == {
                "targets": 1,
                "got": [[2, many, "first", {"unit": "celsius"}, False], [3, {"topic": "to-node"}, "", {}, False]],
                "no": ["filter-syntax", NO],
            }

    run(scene())


@pytest.mark.skipif(NODE is None, reason="node is not installed")
def test_the_example_prints_an_event_or_one_sentence() -> None:
    async def scene() -> None:
        async with overlay([]) as (a,):
            address = f"127.0.0.1:{a.listener.address[1]}"
            code, out, errors = await node("examples/client.mjs", address)
        assert (code, errors) == (0, "")
        assert re.fullmatch(r"published 0\.\d+\.1 to 1 peer\(s\)\n15 degrees, a mild day\n", out)
        assert await node("examples/client.mjs", address) == (2, "", f"client: the connection to {address} is gone\n")

    run(scene())


def test_every_frame_is_on_the_page() -> None:
    for frame in (*frames.ToPeer.__args__, *frames.ToClient.__args__):
        assert f"| `{frame.__name__}` | `{frame.__struct_config__.tag}` |" in PAGE


def test_the_bytes_on_the_page_are_frames() -> None:
    shown = [bytes.fromhex(line) for line in re.findall(r"^ {4}([0-9a-f ]+)$", PAGE, re.MULTILINE)]
    splitter = wire.FrameSplitter()
    read = [body for line in shown for body in splitter.feed(line)]
    assert wire.decode_to_peer(read[0]) == frames.Greet()
    assert len(read) == len(shown)
