"""`wend log` and `wend sub --since`: the logs of a peer on the command line."""

import asyncio
import json
from pathlib import Path

import pytest

from tests.console.calls import wend
from tests.drivers.live.log_peers import write_peers
from tests.drivers.live.processes import Process
from wend.drivers.live.client.connect import connect

FILTER = "topic = 'order'"


def serve(folder: Path, logs: bool = True) -> dict[str, "tuple[int, str, str]"]:
    """What commands print at a peer whose log has ten orders, by their words."""
    said: dict[str, tuple[int, str, str]] = {}

    async def scene() -> None:
        (file,) = write_peers(folder, count=1) if logs else write_peers(folder, "", count=1)
        process = await Process.start(file)

        async def ask(*words: str) -> None:
            done = await asyncio.to_thread(wend, *words, "--peer", process.url)
            said[" ".join(words)] = (done.returncode, done.stdout, done.stderr)

        async with connect(process.url) as client:
            await client.publish_many([({"topic": "order", "number": n}, b"order %d" % n) for n in range(1, 11)])
            for words in COMMANDS:
                await ask(*words)
        await process.stop()

    asyncio.run(scene())
    return said


COMMANDS = [
    ("log", "list"),
    ("log", "list", "--json"),
    ("log", "show", "orders"),
    ("log", "show", "orders", "--json"),
    ("log", "show", "other"),
    ("sub", FILTER, "--since", "first", "--until", "now"),
    ("sub", FILTER, "--last", "2", "--until", "now", "--json"),
    ("sub", FILTER, "--since", "8", "--count", "1"),
    ("sub", FILTER, "--since", "yesterday"),
    ("sub", FILTER, "--log", "other"),
]


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, str, str]]:
    return serve(tmp_path_factory.mktemp("logs"))


def test_logs_are_listed(said: dict[str, tuple[int, str, str]]) -> None:
    code, out, _ = said["log list"]
    assert (code, out.splitlines()[0].split()) == (0, ["name", "events", "size", "oldest", "newest", "filter"])
    assert out.splitlines()[1].split()[:2] == ["orders", "10"]
    (row,) = said["log list --json"][1].splitlines()
    assert json.loads(row) | {"name": "orders", "events": 10, "first": 1, "next": 11} == json.loads(row)


def test_a_log_is_shown(said: dict[str, tuple[int, str, str]]) -> None:
    code, out, _ = said["log show orders"]
    assert (code, "1 to 10" in out, "appended since the start" in out) == (0, True, True)
    assert json.loads(said["log show orders --json"][1])["appended"] == 10
    code, _, error = said["log show other"]
    assert (code, error) == (2, "wend: this peer has no log 'other': its logs are orders\n")


def test_a_log_is_read_again(said: dict[str, tuple[int, str, str]]) -> None:
    code, out, _ = said[f"sub {FILTER} --since first --until now"]
    assert code == 0
    assert [line.split("  ")[1] for line in out.splitlines()] == [f"order {number}" for number in range(1, 11)]
    assert "(#1 20" in out.splitlines()[0]
    code, out, _ = said[f"sub {FILTER} --last 2 --until now --json"]
    assert [json.loads(line)["position"] for line in out.splitlines()] == [9, 10]
    code, out, _ = said[f"sub {FILTER} --since 8 --count 1"]
    assert (code, "order 8" in out) == (0, True)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [("--since yesterday", "since is a position"), ("--log other", "this peer has no log 'other'")],
)
def test_a_mistake_is_one_sentence(said: dict[str, tuple[int, str, str]], words: str, sentence: str) -> None:
    code, out, error = said[f"sub {FILTER} {words}"]
    assert (code, out, error.count("\n")) == (2, "", 1)
    assert sentence in error
