"""The `wend` command: what it prints, how it ends, and what it says when it cannot go on."""

import fcntl
import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
import typer
from rich.console import Console

from wend.console import up
from wend.console.app import main
from wend.console.clients import read_attributes
from wend.console.show import counted, stoppable
from wend.model.errors import ConfigError
from wend.model.events import Range
from wend.model.scenario import Scenario

ROOT = Path(__file__).parents[2]
WEND = [sys.executable, "-m", "wend.console.app"]


def wend(*words: str, given: str | None = None) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([*WEND, *words], capture_output=True, text=True, timeout=120, input=given, check=False)


Said = Callable[..., tuple[object, str, str]]


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Said:
    """The command in this process, which is quicker: its exit code and what it printed."""

    def call(*words: str) -> tuple[object, str, str]:
        monkeypatch.setattr(sys, "argv", ["wend", *words])
        try:
            main()
            code: object = 0
        except SystemExit as ended:
            code = ended.code or 0
        out, err = capsys.readouterr()
        return code, out, err

    return call


def interruptible() -> None:
    """In the child: a test run in the background may have been told to ignore Ctrl-C, and that is inherited."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def started(*words: str) -> "Iterator[subprocess.Popen[str]]":
    process = subprocess.Popen(
        [*WEND, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=interruptible,  # noqa: PLW1509
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def lonely(tmp_path: Path, **fields: str) -> Path:
    """A peer without neighbours."""
    all_fields = {"id": "1", "listen": '"127.0.0.1:0"', "clients": '"127.0.0.1:0"'} | fields
    path = tmp_path / "peer.toml"
    path.write_text("\n".join(f"{name} = {value}" for name, value in all_fields.items()))
    return path


@contextmanager
def running_peer(tmp_path: Path) -> "Iterator[tuple[subprocess.Popen[str], str]]":
    with started("peer", "--config", str(lonely(tmp_path))) as process:
        assert process.stdout is not None
        found = re.search(r"clients on (wend://\S+)", process.stdout.readline())
        assert found is not None
        yield process, found[1]


# ---------------------------------------------------------------- help and mistakes


def test_one_is_no_plural() -> None:
    assert [counted(n, "run") for n in (0, 1, 2)] == ["0 runs", "1 run", "2 runs"]
    assert [counted(n, "topology", "topologies") for n in (1, 3)] == ["1 topology", "3 topologies"]


def test_help_names_every_command_and_imports_nothing_heavy() -> None:
    shown = wend("--help")
    assert shown.returncode == 0
    for command in ("up", "peer", "pub", "sub", "sim"):
        assert re.search(rf"\b{command}\b", shown.stdout)
    code = (
        "import sys, wend.console.app; print([m for m in ('numpy', 'scipy', 'pyarrow', 'pyspark') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_the_version() -> None:
    assert wend("--version").stdout.startswith("wend ")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("sim", "--strategy", "magic", "--trees", "3"), "unknown strategy 'magic'"),
        (("sim", "--degree", "20", "--peers", "20"), "degree 20 needs at least 21 peers, got 20"),
        (("sim", "--rate", "-1"), "--rate must lie in"),
        (("sim", "--duration", "soon"), "cannot read 'soon' as a duration"),
        (("sim", "--duration", "1e999"), "1e999 is too long"),
        (("sim", "--trace-level", "off"), "--trace-level must be deliveries or hops, got 'off'"),
        (("sim", "--topology", "nowhere.graphml"), "nowhere.graphml"),
        (("sim", "--scenario", "missing.toml"), "cannot read missing.toml: No such file"),
        (("sim", "--capacity", "fast"), "capacity is 'stated' or a rate: cannot read 'fast' as a rate"),
        (("sim", "--underlay", "sand"), "there is no network 'sand'"),
        (("sim", "--ack", "foo"), "ack must be free or round-trip, got 'foo'"),
        (("sim", "--topology", "brite"), "brite lies beneath an overlay: name it as the underlay (--underlay brite)"),
        (("sim", "--strategy", "planned"), "planned follows a plan: name one with --plan DIR"),
        (("sim", "--detect", "160"), "--detect 160 needs a unit: 160ms or 160s"),
        (("sim", "--trace", "/proc/foo"), "cannot write /proc/foo: "),
        (("sim", "--trace", "."), ". is the folder that this runs in"),
        (("sim", "--queue", "-1"), "--queue must be at least 0, got -1"),
        (("sim", "--flows", "missing.jsonl"), "cannot read missing.jsonl: No such file"),
        (("sim", "--strategy", "planned", "--plan", "missing"), "missing is not a plan: cannot read plan.json"),
        (("plan", "load", "--peer", "wend://127.0.0.1:1"), "cannot reach a peer at wend://127.0.0.1:1"),
        (("up", "--strategies", "dcrd,magic"), "unknown strategy 'magic'"),
        (("up", "--strategies", "oracle"), "the oracle stands in every table"),
        (("up", "--strategies", "planned"), "planned follows a plan, and an overlay of `wend up` has none"),
        (("up", "--degree", "30"), "degree 30 needs at least 31 peers, got 20"),
        (("up", "--pf", "2"), "pf must lie in 0..1, got 2"),
        (("peer", "--config", "missing.toml"), "cannot read missing.toml: No such file"),
        (("pub", "topic=x", "--peer", "wend://127.0.0.1:1"), "cannot reach a peer at wend://127.0.0.1:1"),
        (("pub", "nonsense"), "cannot read 'nonsense' as an attribute"),
        (("pub", "topic=x", "--header", "=b"), "cannot read '=b' as a header"),
        (("sub", "topic = 'x'", "--peer", "ftp://x"), "cannot read 'ftp://x' as a peer"),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, tuple) else "",
)
def test_a_mistake_is_one_sentence(said: Said, words: tuple[str, ...], sentence: str) -> None:
    code, out, err = said(*words)
    assert (code, out) == (2, "")
    assert sentence in err
    assert err.startswith("wend: ") and err.count("\n") == 1


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("id = ", "is not a TOML file"),
        ("id = 'one'", "id must be a whole number, not a text"),
        ("id = 1\nspeed = 3", "there is no field 'speed'"),
        ("id = 1\nstrateg = 'dcrd'", "there is no field 'strateg': did you mean strategy?"),
        (
            "id = 1\n[[neighbours]]\nid = 2\naddres = '127.0.0.1:1'",
            "neighbours[0] has no field 'addres': did you mean address?",
        ),
        ("listen = '127.0.0.1:7000'", "it lacks 'id'"),
        ("id = 1\nredundancy = 'much'", "redundancy must be free, none or tight, got 'much'"),
        ("id = 1\ndetection = '160'", "detection 160 needs a unit: 160ms or 160s"),
        ("id = 1\nstrategy = 'magic'", "unknown strategy 'magic'"),
        ("id = 1\nlisten = '192.0.2.1:7000'", "refusing to listen on 192.0.2.1:7000"),
        ("id = 1\nlisten = '127.0.0.1'", "cannot read '127.0.0.1' as an address"),
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


@pytest.mark.parametrize(("door", "kind"), [("listen", socket.SOCK_DGRAM), ("clients", socket.SOCK_STREAM)])
def test_a_port_in_use_is_one_sentence(tmp_path: Path, door: str, kind: socket.SocketKind) -> None:
    with socket.socket(socket.AF_INET, kind) as taken:
        taken.bind(("127.0.0.1", 0))
        if kind == socket.SOCK_STREAM:
            taken.listen()
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        ended = wend("peer", "--config", str(lonely(tmp_path, **{door: f'"{place}"'})))
    assert ended.returncode == 2
    assert ended.stderr == f"wend: cannot listen on {place}: the port is in use\n"


# ---------------------------------------------------------------- sim


def test_sim_prints_one_object() -> None:
    shown = json.loads(wend("sim", "--duration", "10", "--json").stdout)
    assert msgspec.convert(shown["scenario"], Scenario) == Scenario(duration_s=10)
    assert (shown["scenario"]["strategy"], shown["scenario"]["duration_s"]) == ("dcrd", 10)
    assert shown["expected"] > 0 and 0.9 < shown["delivery"] <= 1
    assert set(shown["packets_per_subscriber"]) == {"shared", "unicast"}
    assert set(shown["late_within"]) == {"1.25", "1.5", "1.75"}
    assert set(shown["delay_ms"]) == {"p50", "p99", "mean"}
    assert shown["outage_known_ms"] == {}  # dcrd does not look


def test_sim_takes_a_file_and_flags_win_over_it(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text("peers = 10\ndegree = 4\nduration_s = 5\nstrategy = 'd-tree'")
    shown = wend("sim", "--scenario", str(tmp_path / "s.toml"), "--strategy", "dcrd").stdout
    assert "dcrd on regular, 10 peers, 20 links" in shown
    assert "\x1b" not in shown


def test_sim_writes_its_trace_and_replaces_none_unasked(said: Said, tmp_path: Path) -> None:
    words = ("sim", "--duration", "1", "--trace", str(tmp_path / "t"), "--trace-level", "hops")
    assert said(*words)[0] == 0
    assert (tmp_path / "t" / "hops.parquet").exists()
    code, _, err = said(*words)
    assert (code, err) == (2, f"wend: {tmp_path / 't'} is not empty; --overwrite replaces it\n")
    (tmp_path / "t" / "old").touch()
    assert said(*words, "--overwrite")[0] == 0
    assert "old" not in [path.name for path in (tmp_path / "t").iterdir()]


@pytest.mark.parametrize(
    ("words", "note"),
    [
        (("--trees", "3"), "wend: --trees changes nothing here: it is for mrst and spt-k, not for dcrd\n"),
        (("--detect", "90ms"), "wend: --detect changes nothing here: dcrd does not probe its links\n"),
        (("--strategy", "adaptive", "--detect", "90ms", "--redundancy", "none"), ""),
        (("--topology", "full-mesh", "--degree", "3"), "wend: --degree changes nothing here: it is for regular, not "),
        (("--queue", "3"), "wend: --queue changes nothing here: nothing has a capacity\n"),
        (("--queue", "3", "--capacity", "40"), ""),
    ],
)
def test_sim_says_which_options_change_nothing(said: Said, words: tuple[str, ...], note: str) -> None:
    code, out, err = said("sim", "--duration", "1", "--peers", "8", "--topics", "8", *words)
    assert code == 0
    assert err.startswith(note) and err.count("\n") == bool(note)
    assert ("detection" in out) == ("adaptive" in words)
    assert "90 ms" in out or "adaptive" not in words


SQUARE = """<graphml xmlns="http://graphml.graphdrawing.org/xmlns"><graph edgedefault="undirected">
<node id="0"/><node id="1"/><node id="2"/><node id="3"/><edge source="0" target="1"/><edge source="1" target="2"/>
<edge source="2" target="3"/><edge source="3" target="0"/></graph></graphml>"""


def test_a_small_overlay_has_a_topic_for_each_peer_and_says_so(said: Said, tmp_path: Path) -> None:
    note = "wend: {} topics, one for each peer; --topics says otherwise\n"
    (tmp_path / "square.graphml").write_text(SQUARE)
    on_map = ("sim", "--topology", str(tmp_path / "square.graphml"), "--duration", "1", "--json")
    code, out, err = said(*on_map)
    assert (code, err, json.loads(out)["scenario"]["topics"]) == (0, note.format(4), 4)
    code, out, err = said(*on_map, "--topics", "3")
    assert (code, err, json.loads(out)["scenario"]["topics"]) == (0, "", 3)
    assert said(*on_map, "--topics", "5")[2] == "wend: 5 topics need 5 publishers, but there are 4 peers\n"
    (tmp_path / "s.toml").write_text("peers = 6\ntopics = 2")
    code, out, err = said("sim", "--scenario", str(tmp_path / "s.toml"), "--duration", "1", "--json")
    assert (code, err, json.loads(out)["scenario"]["topics"]) == (0, "", 2)
    assert said("sim", "--peers", "6", "--duration", "1")[2] == note.format(6)


def test_help_shows_the_defaults_of_a_scenario(said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    shown = said("sim", "--help")[1]
    wanted = {"--duration": "600s", "--pf": "0.06", "--detect": "160ms", "--aware": "aware", "--strategy": "dcrd"}
    for option, default in wanted.items():
        line = next(line for line in shown.splitlines() if f" {option} " in line)
        after = shown[shown.index(line) :]
        assert re.search(r"\[default: (.*?)\]", after)[1] == default, option  # type: ignore[index]


@pytest.mark.parametrize("width", [200, 80, 60, 40, 20])
def test_the_table_of_up_cuts_no_figure(width: int) -> None:
    line = ("[green]adaptive[/]", "100.00 %", "99.99 %", "12.34", "12345/s", "123 ms", "1234 ms", "12345")
    table, left_out = up._table([line], width)
    console = Console(width=width, file=io.StringIO())
    with console.capture() as shown:
        console.print(table)
    kept = [figure for name, figure in zip(up._HEADS[1:], line[1:], strict=True) if name not in left_out]
    assert re.split(r"  +", shown.get().splitlines()[3].strip()) == ["adaptive", *kept]
    assert ("on time" in left_out, left_out == []) == (False, width >= 80)


# ---------------------------------------------------------------- peer, pub, sub


def test_pub_and_sub_through_a_peer(tmp_path: Path) -> None:
    with running_peer(tmp_path) as (process, url):
        wanted = ("topic = 'a'", "--deadline", "30s", "--reliability", "0.9")
        with started("sub", *wanted, "--count", "3", "--json", "--peer", url) as sub:
            assert sub.stderr is not None and sub.stdout is not None
            assert "subscribed at peer 1" in sub.stderr.readline()
            one = wend("pub", "topic=a", "temperature=15", "open=true", "name=x", "--payload", "hi", "--peer", url)
            assert re.fullmatch(r"published 1\.\d+\.1 to 1 peer\n", one.stdout)
            assert (
                wend("pub", "topic=a", "--lines", "-q", "--header", "kind=b=c", "--peer", url, given="two\n").stdout
                == ""
            )
            three = wend("pub", "--json", "--peer", url, given='{"topic": "a", "n": 3}\n')
            assert json.loads(three.stdout)["targets"] == 1
            events = [json.loads(line) for line in sub.stdout]
            assert sub.wait() == 0
        assert [e["payload"] for e in events] == ["hi", "two", ""]
        assert [e.get("headers") for e in events] == [None, {"kind": "b=c"}, None]
        assert events[0]["attributes"] == {"topic": "a", "temperature": 15, "open": True, "name": "x"}
        assert events[2]["attributes"] == {"topic": "a", "n": 3} and not events[2]["late"]
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 0
        assert "stopped; counted:" in process.communicate()[0]


def test_an_advertisement_that_cannot_be_read_shows_the_place(tmp_path: Path) -> None:
    (tmp_path / "peer.toml").write_text("id = 1\nadvertise = ['x >']")
    ended = wend("peer", "--config", str(tmp_path / "peer.toml"))
    assert ended.returncode == 2
    assert "cannot read the filter" in ended.stderr and ended.stderr.endswith("^\n")


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["x=5", "y=1.5", "z=true", "w=word"], {"x": 5, "y": 1.5, "z": True, "w": "word"}),
        (["x=[1,5]"], {"x": Range(1, 5)}),
        (["x=]1, 5["], {"x": Range(1, 5, True, True)}),
        (["x=[1.5,["], {"x": Range(1.5)}),
        (["x=[a,b]"], {"x": Range("a", "b")}),
        (["topic=[1,5]"], {"topic": "[1,5]"}),
    ],
)
def test_attributes_are_typed(words: list[str], found: dict[str, object]) -> None:
    assert read_attributes(words) == found


@pytest.mark.parametrize("word", ["x=[5,1]", "x=[1,a]", "x=[,]", "x", "=5"])
def test_an_attribute_that_cannot_be_is_a_sentence(word: str) -> None:
    with pytest.raises(ConfigError, match="cannot read"):
        read_attributes([word])


def test_sub_says_when_nothing_came_and_when_the_filter_is_wrong(tmp_path: Path) -> None:
    with running_peer(tmp_path) as (_, url):
        assert wend("sub", "topic = 'a'", "--count", "1", "--timeout", "100ms", "--peer", url).returncode == 1
        wrong = wend("sub", "a >", "--peer", url)
        assert wrong.returncode == 2 and "cannot read the filter" in wrong.stderr
        bad = wend("pub", "--peer", url, given="[1]\n")
        assert bad.returncode == 2 and "line 1 is not a JSON object" in bad.stderr


def test_lines_of_stdin_are_bytes(tmp_path: Path) -> None:
    with running_peer(tmp_path) as (_, url):
        words = [*WEND, "pub", "--peer", url]
        ended = subprocess.run([*words, "--lines", "topic=x"], input=b"\xff\nlast", capture_output=True, check=False)
        assert (ended.returncode, ended.stdout.count(b"published")) == (0, 2), ended.stderr
        ended = subprocess.run(words, input=b'{"topic": "\xff"}\n', capture_output=True, check=False)
        assert ended.returncode == 2 and ended.stderr.count(b"\n") == 1, ended.stderr
        ended = subprocess.run([*words, "topic=x", "--payload", b"\xff"], capture_output=True, check=False)
        assert ended.returncode == 0, ended.stderr
        monster = json.dumps(dict.fromkeys(map(str, range(1_000_000)), 1)).encode()
        ended = subprocess.run(words, input=monster, capture_output=True, check=False)
        assert ended.returncode == 2 and ended.stderr.count(b"\n") == 1 and b"1048576 bytes" in ended.stderr
        ended = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, check=False)
        assert (ended.returncode, ended.stdout) == (0, b"")


def unread(pipe: int) -> int:
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


def test_ctrl_c_ends_pub_while_it_waits_for_a_line(tmp_path: Path) -> None:
    with running_peer(tmp_path) as (_, url):
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        command = [*WEND, "pub", "--lines", "topic=x", "--peer", url]
        with subprocess.Popen(command, text=True, preexec_fn=interruptible, **pipes) as process:  # noqa: PLW1509
            assert process.stdin is not None and process.stdout is not None and process.stderr is not None
            process.stdin.write("one\n")
            process.stdin.flush()
            assert process.stdout.readline().startswith("published")
            process.stdin.write("half a li")
            process.stdin.flush()
            while unread(process.stdin.fileno()):  # when it has taken this, it waits for the rest
                pass
            process.send_signal(signal.SIGINT)
            try:
                assert process.wait(timeout=30) == 130
                assert "Traceback" not in process.stderr.read()
            finally:
                process.kill()


def test_ctrl_c_before_the_count_is_reached_is_an_interruption(tmp_path: Path) -> None:
    words = ("sub", "topic = 'a'", "--count", "1", "--peer")
    with running_peer(tmp_path) as (_, url), started(*words, url) as sub:
        assert sub.stderr is not None
        sub.stderr.readline()
        sub.send_signal(signal.SIGINT)
        assert sub.wait() == 130


def test_sub_ends_cleanly_with_ctrl_c(tmp_path: Path) -> None:
    with running_peer(tmp_path) as (_, url), started("sub", "topic = 'a'", "--peer", url) as sub:
        assert sub.stderr is not None
        sub.stderr.readline()
        sub.send_signal(signal.SIGINT)
        assert sub.wait() == 0


def test_the_example_runs(tmp_path: Path) -> None:
    with running_peer(tmp_path) as (_, url):
        words = [sys.executable, str(ROOT / "examples" / "hello.py"), url]
        ended = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
        assert ended.stdout.splitlines()[1] == "15 degrees, a mild day, late: False", ended.stderr
    ended = subprocess.run([*words[:2], "wend://127.0.0.1:1"], capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    assert ended.stderr.startswith("hello: cannot reach a peer") and ended.stderr.count("\n") == 1


def test_the_example_configuration_is_sound() -> None:
    from wend.drivers.live.config import load

    assert [n.id for n in load(ROOT / "examples" / "peer.toml").neighbours] == [2, 3]


# ---------------------------------------------------------------- up

SMALL = ("--peers", "6", "--degree", "3", "--topics", "3", "--rate", "5", "--strategies", "dcrd,d-tree")


def test_up_ends_with_the_table() -> None:
    ended = wend("up", "--duration", "2", *SMALL)
    assert ended.returncode == 0, ended.stderr
    assert "\x1b" not in ended.stdout
    lines = ended.stdout.splitlines()
    assert lines[0].startswith("6 peers, 9 links")
    for strategy in ("dcrd", "d-tree", "oracle"):
        assert any(line.strip().startswith(strategy) for line in lines)


def test_up_with_more_peers_than_files_is_one_sentence() -> None:
    words = ["bash", "-c", 'ulimit -n 40 && exec "$@"', "-", *WEND, "up", "--duration", "1", "--peers", "30"]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 2
    assert "may not open more files" in ended.stderr and ended.stderr.count("\n") == 1


def test_up_prints_one_object() -> None:
    shown = json.loads(wend("up", "--duration", "2", "--json", "--pf", "0", "--pl", "0", *SMALL).stdout)
    assert set(shown["strategies"]) == {"dcrd", "d-tree", "oracle"}
    for row in shown["strategies"].values():
        assert row["delivery"] == 1.0 and row["expected"] > 0
        assert "delivered-twice" not in row["notices"]
    assert shown["loop_lag_ms"]["max"] >= 0
    assert shown["failed"] == {"dcrd": {}, "d-tree": {}}


def test_ctrl_c_gives_the_summary() -> None:
    with started("up", *SMALL) as process:
        assert process.stderr is not None
        process.stderr.readline()
        process.send_signal(signal.SIGINT)
        shown, _ = process.communicate(timeout=60)
        assert process.returncode == 0
        assert "oracle" in shown


def test_up_on_a_terminal_redraws_and_ends_with_the_table() -> None:
    pty = pytest.importorskip("pty")
    main, side = pty.openpty()
    process = subprocess.Popen([*WEND, "up", "--duration", "1", *SMALL], stdout=side, stderr=side, close_fds=True)
    os.close(side)
    shown = b""
    try:
        while chunk := os.read(main, 65536):
            shown += chunk
    except OSError:
        pass  # the terminal is gone: the process has ended
    assert process.wait() == 0
    assert b"finding routes" in shown and b"oracle" in shown


def test_ctrl_c_ends_in_a_sentence_about_what_is_left(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as ended, stoppable("nothing was written"):
        raise KeyboardInterrupt
    assert (ended.value.exit_code, capsys.readouterr().err) == (130, "wend: stopped; nothing was written\n")
