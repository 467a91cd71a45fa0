"""`wend peer`, `wend pub`, `wend sub` and `wend status` with a peer in a process of its own.

The clients run in the test process, except where a test is about bytes, signals or exit codes of a process.
"""

import fcntl
import json
import re
import signal
import socket
import subprocess
import sys
import termios
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.console.calls import ROOT, WEND, Said, interruptible, lonely, running_peer, started
from tests.errors import raises
from wend.console.pub_sub_commands import read_attributes
from wend.console.status_command import counters_text, status_text
from wend.drivers.live.status import StatusSnapshot
from wend.model.events import Range
from wend.model.units import MINUTE, MS, SECOND
from wend.protocol.status import LinkStatus


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A peer that several tests share."""
    with running_peer(tmp_path_factory.mktemp("peer")) as (_, found):
        yield found


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("id = ", "is not a TOML file"),
        ("id = 'one'", "id must be a whole number, got 'one'"),
        ("id = 1\nspeed = 3", "there is no setting 'speed'"),
        ("id = 1\nstrateg = 'dcrd'", "there is no setting 'strateg': did you mean strategy?"),
        (
            "id = 1\n[[neighbours]]\nid = 2\naddres = '127.0.0.1:1'",
            "neighbours[0] has no field 'addres': did you mean address?",
        ),
        ("listen = '127.0.0.1:7000'", "it lacks 'id'"),
        ("id = 1\nredundancy = 'much'", "redundancy must be none, tight or free, got 'much'"),
        ("id = 1\ndetection = '160'", "detection 160 needs a unit: 160ms or 160s"),
        ("id = 1\nstrategy = 'magic'", "unknown strategy 'magic'"),
        ("id = 1\nlisten = '192.0.2.1:7000'", "refusing to listen on 192.0.2.1:7000"),
        ("id = 1\nlisten = '127.0.0.1'", "cannot read '127.0.0.1' as an address"),
        ("id = 1\nretry_limits = 5", "there is no setting 'retry_limits': did you mean retry_limit?"),
        ("id = 1\nmembership = 'ring'", "unknown membership 'ring': choose one of tdo-landmark"),
        ("id = 1\nack = 'free'", "is for simulations"),
        ("id = 1\ntrace_paths = true", "trace_paths needs a source of paths"),
        ("id = 1\ndetection = '1ms'", "detection 1ms is too short"),
        ("id = 1\n[[neighbours]]\nid = 1\naddress = '127.0.0.1:1'", "need different ids"),
    ],
)
def test_a_configuration_that_cannot_work_is_one_sentence(
    said: Said, tmp_path: Path, content: str, sentence: str
) -> None:
    (tmp_path / "peer.toml").write_text(content)
    code, _, err = said("peer", "--config", str(tmp_path / "peer.toml"))
    assert code == 2
    assert sentence in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(("port", "kind"), [("listen", socket.SOCK_DGRAM), ("clients", socket.SOCK_STREAM)])
def test_a_port_in_use_is_one_sentence(said: Said, tmp_path: Path, port: str, kind: socket.SocketKind) -> None:
    with socket.socket(socket.AF_INET, kind) as bound:
        bound.bind(("127.0.0.1", 0))
        if kind == socket.SOCK_STREAM:
            bound.listen()
        place = f"127.0.0.1:{bound.getsockname()[1]}"
        ended = said("peer", "--config", str(lonely(tmp_path, **{port: f'"{place}"'})))
    assert ended == (2, "", f"wend: cannot listen on {place}: the port is in use\n")


def test_pub_and_sub_through_a_peer(said: Said, tmp_path: Path) -> None:
    with running_peer(tmp_path) as (process, url):
        wanted = ("topic = 'a'", "--deadline", "30s", "--reliability", "0.9")
        with started("sub", *wanted, "--count", "3", "--json", "--peer", url) as sub:
            assert sub.stderr is not None and sub.stdout is not None
            assert "subscribed at peer 1" in sub.stderr.readline()
            one = said("pub", "topic=a", "temperature=15", "open=true", "name=x", "--payload", "hi", "--peer", url)
            assert re.fullmatch(r"published 1\.\d+\.1 to 1 peer\n", one[1])
            two = said("pub", "topic=a", "--lines", "-q", "--header", "kind=b=c", "--peer", url, given=b"two\n")
            assert two == (0, "", "")
            three = said("pub", "--json", "--peer", url, given=b'{"topic": "a", "n": 3}\n')
            assert json.loads(three[1])["targets"] == 1
            events = [json.loads(line) for line in sub.stdout]
            assert sub.wait() == 0
        assert [e["payload"] for e in events] == ["hi", "two", ""]
        assert [e.get("headers") for e in events] == [None, {"kind": "b=c"}, None]
        assert events[0]["attributes"] == {"topic": "a", "temperature": 15, "open": True, "name": "x"}
        assert events[2]["attributes"] == {"topic": "a", "n": 3} and not events[2]["late"]
        counts = json.loads(said("status", "--json", "--peer", url)[1])
        assert counts["clients"]["connected"] == 5 and counts["clients"]["now"] == 1
        assert (counts["published"], counts["delivered"], counts["late"], counts["strategy"]) == (3, 3, 0, "adaptive")
        assert re.search(r"^clients +connected +6$", said("status", "--peer", url)[1], re.MULTILINE)
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 0
        assert "stopped; counters:" in process.communicate()[0]


def test_links_of_a_running_peer_are_changed_and_listed(said: Said, url: str) -> None:
    assert said("link", "list", "--peer", url) == (0, "", "")
    added = said("link", "add", "5", "127.0.0.1:7705", "--delay", "30ms", "--peer", url)
    assert added == (0, "peer 1 has a link to peer 5 at 127.0.0.1:7705\n", "")
    listed = said("link", "list", "--peer", url)[1].splitlines()
    assert listed[0].split() == ["link", "address", "state", "rtt", "loss", "last", "change"]
    assert listed[1].split()[:5] == ["5", "127.0.0.1:7705", "unknown", "60.0", "ms"]
    assert json.loads(said("link", "list", "--json", "--peer", url)[1])["rtt_ns"] == 60_000_000
    again = said("link", "add", "5", "127.0.0.1:7705", "--peer", url)
    assert again == (2, "", "wend: peer 1 is linked with peer 5 already\n")
    assert said("link", "remove", "5", "--peer", url) == (0, "peer 1 no longer has a link to peer 5\n", "")
    for words, shown in (
        (("add", "6", "[::1]:7"), None),
        (("add", "6", "b:7"), {"address": "b:7"}),
        (("remove", "6"), {}),
    ):
        code, out, _ = said("link", *words, "--json", "--peer", url)
        assert code == 2 if shown is None else json.loads(out) == {"peer": 1, "neighbour": 6, **shown}
    assert said("link", "remove", "5", "--peer", url)[::2] == (2, "wend: peer 1 is not linked with peer 5\n")


def test_a_peer_prints_its_addresses_and_counters_as_json(said: Said, tmp_path: Path) -> None:
    with started("peer", "--config", str(lonely(tmp_path)), "--json") as process:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        assert ready["peer"] == 1 and ready["clients"].startswith("wend://127.0.0.1:")
        assert said("pub", "topic=a", "-q", "--peer", ready["clients"]) == (0, "", "")
        process.send_signal(signal.SIGTERM)
        assert json.loads(process.stdout.read())["counted"] and process.wait() == 0


def test_an_invalid_advertisement_shows_the_position(said: Said, tmp_path: Path) -> None:
    (tmp_path / "peer.toml").write_text("id = 1\nadvertise = ['x >']")
    code, _, error = said("peer", "--config", str(tmp_path / "peer.toml"))
    assert code == 2
    assert "cannot read the filter" in error and error.endswith("^\n")


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["x=5", "y=1.5", "z=true", "w=word"], {"x": 5, "y": 1.5, "z": True, "w": "word"}),
        (["x=[1,5]"], {"x": Range(1, 5)}),
        (["x=]1, 5["], {"x": Range(1, 5, True, True)}),
        (["x=[1.5,["], {"x": Range(1.5)}),
        (["x=[a,b]"], {"x": Range("a", "b")}),
        (["topic=[1,5]"], {"topic": "[1,5]"}),
        (['x="[3,5"', 'y="007"'], {"x": "[3,5", "y": "007"}),
        (["x=2026-11-17", "y=10.0.0.1", "z=3km"], {"x": "2026-11-17", "y": "10.0.0.1", "z": "3km"}),
        (["x=a[1]", "y=a,b"], {"x": "a[1]", "y": "a,b"}),
    ],
)
def test_attributes_are_typed(words: list[str], found: dict[str, object]) -> None:
    assert read_attributes(words) == found


@pytest.mark.parametrize(
    "word",
    [
        *("x=[5,1]", "x=[1,a]", "x=[,]", "x", "=5"),
        *("x=[3,5", "x=3,5]", "x=[1,2,3]", "x=[1]", 'x="a', 'x="a"b"', 'x={"a": 1}'),
        *("x=1,5", "x=007", "x=+5", "x=.5", "x=1e"),
    ],
)
def test_an_invalid_attribute_is_one_sentence(word: str) -> None:
    with raises("invalid-setting", match="cannot read"):
        read_attributes([word])


def test_a_refused_value_is_written_as_a_text() -> None:
    with raises("invalid-setting") as refused:
        read_attributes(["x=[3,5"])
    assert str(refused.value).endswith("""; the text is written '"[3,5"'""")


def test_the_payload_is_a_file_or_stdin(said: Said, url: str, tmp_path: Path) -> None:
    (tmp_path / "picture").write_bytes(b"\x89PNG\x00\xff")
    call = ("pub", "topic=binary", "-q", "--peer", url, "--payload-file")
    with started("sub", "topic = 'binary'", "--count", "3", "--json", "--peer", url) as sub:
        assert sub.stderr is not None and sub.stdout is not None
        sub.stderr.readline()
        assert said(*call, str(tmp_path / "picture")) == (0, "", "")
        assert said(*call, "-", given=b"a\x00\n\xfe") == (0, "", "")
        assert said(*call, "-", given="Grüße".encode()) == (0, "", "")
        events = [json.loads(line) for line in sub.stdout]
    assert [b64decode(e.get("payload_base64", "")) for e in events] == [b"\x89PNG\x00\xff", b"a\x00\n\xfe", b""]
    assert events[2]["payload"] == "Grüße"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("x=1", "--payload-file", "none"), "cannot read none: No such file or directory"),
        (("x=1", "--payload-file", "/dev/zero"), "/dev/zero has more bytes than a payload, which may have 262144"),
        (("x=1", "--payload-file", "-", "--payload", "a"), "choose --payload or --payload-file, not both"),
        (("x=1", "--payload-file", "-", "--lines"), "choose --payload-file or --lines, not both"),
        (("--payload-file", "-"), "stdin holds the payload: give the attributes as arguments, such as topic=stuttgart"),
    ],
)
def test_a_payload_that_cannot_be_read_is_one_sentence(said: Said, words: tuple[str, ...], sentence: str) -> None:
    assert said("pub", *words) == (2, "", f"wend: {sentence}\n")


def test_a_filter_that_is_probably_not_meant_gets_a_warning(said: Said, url: str, tmp_path: Path) -> None:
    call = ("--count", "1", "--timeout", "10ms", "--peer", url)
    assert said("sub", "city = stuttgart", *call)[2].splitlines() == [
        "wend: warning: this filter compares two attributes, city and stuttgart; a text has quotes: city = 'stuttgart'",
        "subscribed at peer 1",
    ]
    assert said("sub", "x > 5 and x < 3", *call)[2].startswith("wend: warning: no event can match this filter: ")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as bound:
        bound.bind(("127.0.0.1", 0))
        busy = f'"127.0.0.1:{bound.getsockname()[1]}"'
        file = lonely(tmp_path, listen=busy, advertise="['x > 1', 'x = 1 and x = 2']")
        _, _, error = said("peer", "--config", str(file))
    assert error.splitlines()[:-1] == [
        "wend: warning: advertise: no event can match this filter: no value of x meets all its conditions"
    ]


def test_sub_fails_without_events_and_with_an_invalid_filter(said: Said, url: str) -> None:
    assert said("sub", "topic = 'a'", "--count", "1", "--timeout", "100ms", "--peer", url)[0] == 1
    code, _, error = said("sub", "a >", "--peer", url)
    assert code == 2 and "cannot read the filter" in error


def test_pub_stops_at_an_invalid_line(said: Said, url: str) -> None:
    code, out, error = said("pub", "--peer", url, given=b'{"x": 1}\n[1]\n{"x": 2}\n')
    assert code == 2 and "line 2 is not a JSON object" in error
    assert error.endswith("; the lines before it were published, the rest was not read\n")
    assert out.count("published") == 1


def test_lines_and_payloads_are_bytes(url: str) -> None:
    words = [*WEND, "pub", "topic=x", "--peer", url]
    for more, given, published in ((["--lines"], b"\xff\nlast", 2), (["--payload", b"\xff"], b"", 1)):
        ended = subprocess.run([*words, *more], input=given, capture_output=True, check=False)
        assert (ended.returncode, ended.stdout.count(b"published")) == (0, published), ended.stderr


def test_unreadable_lines_are_one_sentence(said: Said, url: str) -> None:
    code, _, error = said("pub", "--peer", url, given=b'{"topic": "\xff"}\n')
    assert code == 2 and error.count("\n") == 1, error
    long = json.dumps(dict.fromkeys(map(str, range(200_000)), 1)).encode()
    code, _, error = said("pub", "--peer", url, given=long)
    assert code == 2 and error.count("\n") == 1 and "1048576 bytes" in error
    assert said("pub", "--peer", url) == (0, "", "")


def unread(pipe: int) -> int:
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


def test_ctrl_c_ends_pub_while_it_waits_for_a_line(url: str) -> None:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    command = [*WEND, "pub", "--lines", "topic=x", "--peer", url]
    with subprocess.Popen(command, text=True, preexec_fn=interruptible, **pipes) as process:  # noqa: PLW1509
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        process.stdin.write("one\n")
        process.stdin.flush()
        assert process.stdout.readline().startswith("published")
        process.stdin.write("half a li")
        process.stdin.flush()
        while unread(process.stdin.fileno()):  # after this read, it waits for the rest
            pass
        process.send_signal(signal.SIGINT)
        try:
            assert process.wait(timeout=30) == 130
            assert "Traceback" not in process.stderr.read()
        finally:
            process.kill()


@pytest.mark.parametrize(("count", "code"), [(("--count", "1"), 130), ((), 0)])
def test_ctrl_c_ends_sub_and_is_an_interruption_before_the_count(url: str, count: tuple[str, ...], code: int) -> None:
    with started("sub", "topic = 'a'", *count, "--peer", url) as sub:
        assert sub.stderr is not None
        sub.stderr.readline()
        sub.send_signal(signal.SIGINT)
        assert sub.wait() == code


def test_the_example_runs(url: str) -> None:
    words = [sys.executable, str(ROOT / "examples" / "hello.py"), url]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert ended.stdout.splitlines()[1] == "15 degrees, a mild day, late: False", ended.stderr
    ended = subprocess.run([*words[:2], "wend://127.0.0.1:1"], capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    assert ended.stderr.startswith("hello: cannot reach a peer") and ended.stderr.count("\n") == 1


def test_the_example_configuration_is_sound() -> None:
    from wend.drivers.live.config import load_peer_file

    assert [n.id for n in load_peer_file(ROOT / "examples" / "peer.toml").neighbours] == [2, 3]


def test_a_status_is_aligned_and_names_each_group_once() -> None:
    counts = {"data": 12, "control.acks": 3, "control.link state": 4, "clients.connected": 1, "links.2": 1}
    assert counters_text(counts | {"clients.now": 1}).splitlines() == [
        "data                 12",
        "control  acks         3",
        "         link state   4",
        "clients  connected    1",
        "         now          1",
        "links    2            1",
    ]


def test_a_status_says_who_the_peer_is_and_how_its_links_are() -> None:
    links = (
        LinkStatus(2, "up", True, 20_600_000, 1.0, "127.0.0.1:7702", 192 * SECOND),
        LinkStatus(30, "down", False, 5_000_000, 0.875, "", 160 * MS),
    )
    snapshot = StatusSnapshot(
        peer=1,
        incarnation=1,
        software="0.1",
        address="127.0.0.1:7701",
        uptime_ns=90 * MINUTE,
        strategy="adaptive",
        interest="flooded",
        links=links,
        subscriptions=1,
        published=12,
        drops={"no-route": 2},
        clients={"now": 2},
    )
    assert status_text(snapshot).splitlines() == [
        "peer 1 at 127.0.0.1:7701, wend 0.1, up 1 h 30 min",
        "strategy adaptive, interest flooded, 1 subscription, 2 clients",
        "",
        "link  address         state  rtt      loss    last change",
        "2     127.0.0.1:7702  up     41.2 ms  0.0 %   3 min 12 s ago",
        "30    unknown         down   10.0 ms  12.5 %  160 ms ago",
        "",
        "published               12",
        "delivered                0",
        "late                     0",
        "data                     0",
        "data_unicast             0",
        "drops         no-route   2",
        "in_flight                0",
        "waiting                  0",
    ]
    membership = msgspec.structs.replace(snapshot, links=(), membership="pastry")
    assert status_text(membership).splitlines()[1:4] == [
        "strategy adaptive, interest flooded, membership pastry, 1 subscription, 2 clients",
        "",
        "published               12",
    ]


def test_what_a_plug_in_has_of_several_things_is_a_table_of_its_own() -> None:
    counts = {"data": 12, "meet.regions": 2, "meet.entries/price|": 200, "meet.entries/a/b": 3, "meet.events/a/b": 4}
    assert counters_text(counts | {"ring.leaf/-1": 5, "ring.leaf/1": 30}).splitlines() == [
        "data           12",
        "meet  regions   2",
        "",
        "meet    entries  events",
        "price|      200       0",
        "a/b           3       4",
        "",
        "ring  leaf",
        "-1       5",
        "1       30",
    ]
