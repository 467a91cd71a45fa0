"""`wend plan push`: hand a plan to running peers, watch their deliveries, and roll back if those are worse."""

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wend.console.options import Json
from wend.console.peer_options import Keys, RootFile, TokenFile, key_options
from wend.console.terminal import column_table, count_text, message_console, output_console, percent_text
from wend.model.errors import ConfigError
from wend.model.units import SECOND, parse_duration

if TYPE_CHECKING:
    from wend.drivers.live.plans.push import OnTimeCount, PushReport, PushSettings
    from wend.model.plan import Plan

ROLLED_BACK = 1
"""The exit code of a push that was rolled back."""

Addresses = Annotated[
    list[str] | None,
    typer.Option(
        "--peer", metavar="HOST:PORT", help="The address for clients of a peer; once for each peer of the plan."
    ),
]
AddressFile = Annotated[
    Path | None, typer.Option("--peer-file", metavar="FILE", help="A file with such addresses, one per line.")
]
Watch = Annotated[str, typer.Option(help="How long to watch deliveries after the push; 0s for not at all.")]
Before = Annotated[str, typer.Option(help="How long to count deliveries before the push, for comparison.")]
Tolerance = Annotated[
    float,
    typer.Option(
        min=0.0, max=100.0, help="Roll back if the share of events on time falls by more percentage points than this."
    ),
]


def push(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of a plan.")],
    peer: Addresses = None,
    peers: AddressFile = None,
    watch: Watch = "30s",
    before: Before = "10s",
    tolerance: Tolerance = 2.0,
    version: Annotated[
        int | None,
        typer.Option("--as", min=1, help="The version of the plan. By default, one above the peers' version."),
    ] = None,
    keys: Keys = None,
    root: RootFile = None,
    token: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Push a plan to its running peers. All follow it, or none. Exits with code 1 if it was rolled back."""
    from wend.model.plan import read_plan

    urls = read_peer_urls(peer, peers, secured=any((keys, root, token)))
    settings = parse_push_settings(watch, before, tolerance, version)
    plan = read_plan(folder)
    check_plan_files(plan, folder)
    report = run_push(plan, urls, settings, key_options(keys, root, token), quiet=as_json)
    if as_json:
        print(json.dumps(report_fields(report)))
    else:
        print_report(report)
    if not report.kept:
        raise typer.Exit(ROLLED_BACK)


def read_peer_urls(options: list[str] | None, file: Path | None, *, secured: bool) -> list[str]:
    """The URLs of the peers, from options and from a file."""
    from wend.drivers.live.addressing.addresses import SCHEME, TLS_SCHEME, parse_urls

    texts = list(options or ())
    if file is not None:
        try:
            lines = file.read_text().splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"cannot read {file}: {getattr(error, 'strerror', None) or 'it is not text'}", code="unreadable"
            ) from None
        texts += [line.partition("#")[0].strip() for line in lines]
    urls = [text if "://" in text else f"{TLS_SCHEME if secured else SCHEME}{text}" for text in texts if text]
    if not urls:
        raise ConfigError("name the peers of the plan: --peer HOST:PORT for each of them, or --peer-file FILE")
    for url in urls:
        if len(parse_urls(url)) != 1:
            raise ConfigError(f"{url} names several peers: give --peer for each of them")
    return urls


def parse_push_settings(watch: str, before: str, tolerance: float, version: int | None = None) -> "PushSettings":
    from wend.drivers.live.plans.push import PushSettings

    watch_ns, before_ns = parse_duration(watch), parse_duration(before)
    if watch_ns < 0 or before_ns < 0:
        raise ConfigError("--watch and --before must be 0 or more")
    return PushSettings(version=version, before_s=before_ns / SECOND, watch_s=watch_ns / SECOND, tolerance=tolerance)


def check_plan_files(plan: "Plan", folder: Path) -> None:
    """Refuse a plan whose files are damaged. Peers could not detect that."""
    from wend.planning.plan_check import check_plan

    if plan.content_hash != plan.head.content:
        raise ConfigError(f"{folder} is damaged: its tables are not those that were planned")
    if faults := check_plan(plan):
        raise ConfigError(f"{folder} is not sound: {faults[0]} (wend plan check {folder})")


def run_push(
    plan: "Plan", urls: list[str], settings: "PushSettings", opened: dict[str, Any], *, quiet: bool
) -> "PushReport":
    import uvloop

    import wend
    from wend.drivers.live.plans.push import push_plan

    console = message_console()
    connect = partial(wend.connect, timeout=10.0, patience=5.0, **opened)

    def tell(sentence: str) -> None:
        if not quiet:
            console.print(sentence, style="bright_black", markup=False, soft_wrap=True)

    return uvloop.run(push_plan(plan, urls, settings, connect, tell))


def report_fields(report: "PushReport") -> dict[str, Any]:
    import msgspec

    fields: dict[str, Any] = msgspec.to_builtins(report)
    for name in ("before", "after"):
        count: OnTimeCount | None = getattr(report, name)
        if count is not None:
            fields[name] |= {"share": count.share}
    return fields


def print_report(report: "PushReport") -> None:
    console, heads = output_console(), ("peer", "address", "before", "now")
    table = column_table(*heads, left=heads)
    for each in report.peers:
        former = plan_text(each.former, each.former_version)
        lost = each.peer in report.astray
        now = "does not answer" if lost else plan_text(report.plan, report.version) if report.kept else former
        table.add_row(each.name, each.url, former, now)
    console.print(table)
    after, before = report.after, report.before
    sentences = []
    if report.kept:
        sentences.append(
            f"{count_text(len(report.peers), 'peer')} follow plan {report.plan:08x}, version {report.version}."
        )
    else:
        sentences.append(f"Rolled back: {report.why}. The peers follow the plans that they followed before.")
    if report.kept and not report.why and before is not None and after is not None:
        shares = f"{percent_text(before.share)} of {before.judged_count} before, "
        shares += f"{percent_text(after.share)} of {after.judged_count} since"
        sentences.append(f"On time: {shares}.")
    if report.kept and report.why:
        sentences.append(f"There were {report.why}.")
    for peer in report.astray:
        sentences.append(f"Peer {peer} did not answer, and may still follow the new plan: push the former one again.")
    console.print(" ".join(sentences), markup=False, soft_wrap=True)


def plan_text(plan: int | None, version: int) -> str:
    return "none" if plan is None else f"{plan:08x} of its folder" if not version else f"{plan:08x} version {version}"
