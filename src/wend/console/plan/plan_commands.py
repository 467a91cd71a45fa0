"""`wend plan`: plan routes so that no message is dropped. Subcommands draw workloads, and draw, check, load, push and
watch plans."""

import json
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wend.console.options import TOPOLOGIES, Degree, Json, Peers, Seed, Topology
from wend.console.outputs import Overwrite, check_file, check_output_folder, new_folder, write_text
from wend.console.plan import load_command, push_command, watch_command
from wend.console.plan.measured_input import parse_k, read_measured_links, read_measured_workload
from wend.console.scenario_flags import make_overlay
from wend.console.terminal import (
    announce_compilation,
    count_text,
    facts_table,
    message_console,
    output_console,
    percent_text,
    print_remarks,
    stop_on_signals,
)
from wend.model.errors import ConfigError
from wend.model.rates import Rate, parse_rate

if TYPE_CHECKING:
    from wend.model.plan import Plan
    from wend.planning.flow_network import FlowNetwork
    from wend.planning.flow_workload import FlowWorkload
    from wend.planning.planner import PlanSearch
    from wend.topology.graph import Overlay

SHOWN = 10

group = typer.Typer(help="Plan the routes of flows so that no message is dropped.", invoke_without_command=True)

TopologyName = Annotated[str | None, typer.Option(help=TOPOLOGIES)]
LinkCapacity = Annotated[
    str | None,
    typer.Option(help="The capacity in each direction of links for which the topology states none: 40msg/s, 10Mbit/s."),
]
PeerCapacity = Annotated[
    str | None,
    typer.Option(
        help="The rate at which peers can receive, if the topology states none, or `links` for the sum of their links."
    ),
]
WorkloadFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Flows, as JSON lines or Parquet (see `wend plan workload`).")
]
Tables = Annotated[
    str | None,
    typer.Option(
        "--from", metavar="DIR", help="Plan for measured links and flows: the folder of tables that `wend data` wrote."
    ),
]
GoalName = Annotated[
    str,
    typer.Option(help="balance, min-usage, min-delay, on-time, or blend:B with B the weight of balance."),
]
DefaultDeadline = Annotated[
    str | None,
    typer.Option(help="Deadline of flows that state none: 200ms, or 3x the shortest delay of each receiver."),
]
ModelFile = Annotated[
    Path | None,
    typer.Option("--write-model", metavar="FILE", help="Also write the linear model, for other solvers: .lp or .mps."),
]
Ranking = Annotated[str, typer.Option(help="Ranking of candidate paths: bottleneck-disjoint, capacity or rejecting.")]
PathCount = Annotated[
    str,
    typer.Option("--k", metavar="K|auto", help="The most paths to each receiver."),
]
MaxLoad = Annotated[
    str,
    typer.Option(
        metavar="SHARE|Nx",
        help="The highest load of a link or peer, as a share of its capacity, or as a multiple of that of the balanced "
        "plan without deadlines: 1.1x.",
    ),
]
Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The folder of a plan.")]


def register(app: typer.Typer) -> None:
    group.command("load")(load_command.load)
    group.command("push")(push_command.push)
    group.command("watch")(watch_command.watch)
    app.add_typer(group, name="plan")


@group.callback()
def make(
    context: typer.Context,
    topology: TopologyName = None,
    workload: WorkloadFile = None,
    tables: Tables = None,
    goal: GoalName = "balance",
    k: PathCount = "5",
    deadline: DefaultDeadline = None,
    max_load: MaxLoad = "1",
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Write the plan to this folder.")] = None,
    overwrite: Overwrite = False,
    link_capacity: LinkCapacity = None,
    peer_capacity: PeerCapacity = None,
    partial: Annotated[
        bool, typer.Option("--partial", help="If not everything fits, plan the most valuable part that does.")
    ] = False,
    survive: Annotated[int, typer.Option(min=0, max=1, help="How many links may fail at a time: 0 or 1.")] = 0,
    model: ModelFile = None,
    ranking: Ranking = "bottleneck-disjoint",
    master: Annotated[
        str | None,
        typer.Option(
            help="Search paths and routes after failures on Spark, for maps of hundreds of peers: local[*], "
            "spark://HOST:PORT or sc://HOST:PORT. The plan is the same."
        ),
    ] = None,
    peers: Peers = None,
    degree: Degree = None,
    seed: Seed = None,
    as_json: Json = False,
) -> None:
    if context.invoked_subcommand is not None:
        return
    _check_sources(topology, workload, tables)
    from wend.model.flows import NO_DEADLINE, parse_deadline
    from wend.planning.model_files import check_model_file
    from wend.planning.models import parse_goal
    from wend.planning.planner import make_plan
    from wend.planning.route_choice import parse_load_limit

    objective, most_k, (share, room) = parse_goal(goal), parse_k(k), parse_load_limit(max_load)
    by_default = NO_DEADLINE if deadline is None else parse_deadline(deadline, "--deadline")
    check_model_file(model)
    if out is not None:
        check_output_folder(out, overwrite, str(workload or tables))
    if topology is None:
        overlay, link_capacity = read_measured_links(str(tables), link_capacity), None
    else:
        overlay = make_overlay(topology, peers, degree, seed)
    network = _make_network(overlay, link_capacity, peer_capacity)
    flows = _read_flows(workload, tables, network.names).with_deadline(by_default)
    begin = time.perf_counter()
    doing = _planning_status(f"planning {count_text(len(flows), 'flow')} on {network.peers} peers", quiet=as_json)
    searching = _open_search(master, flows, ranking, out)
    with stop_on_signals("nothing was written"), doing, announce_compilation(), searching as search:
        plan = make_plan(
            network, flows, objective, most_k, ranking=ranking, partial=partial, survive=survive, max_load=share,
            room=room, model=model, search=search,
        )  # fmt: skip
    print_remarks((*overlay.remarks, *_remark_on_unlimited_links(network)))
    if out is not None:
        with new_folder(out) as (draft, _):
            plan.write(draft)
    wall_s = time.perf_counter() - begin
    if as_json:
        print(json.dumps(_plan_metrics(plan) | {"unwanted": flows.unwanted, "wall_s": wall_s}))
    else:
        _print_plan(plan, wall_s, out)


@group.command("workload")
def draw(
    messages: Annotated[int, typer.Option(help="Number of messages, before equal ones are merged into flows.")],
    popularity: Annotated[float, typer.Option(help="Share of the receivers that want a message, on average.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="The file to write: JSON lines, or Parquet (.parquet).")],
    topology: Topology = None,
    receivers: Annotated[float, typer.Option(help="Share of the peers that receive.")] = 0.75,
    publishers: Annotated[float, typer.Option(help="Share of the peers that publish.")] = 0.10,
    rate: Annotated[float, typer.Option(help="How often each message is published per second.")] = 1.0,
    size_bytes: Annotated[float, typer.Option(help="Bytes of each message.")] = 0.0,
    peers: Peers = None,
    degree: Degree = None,
    seed: Seed = None,
    as_json: Json = False,
) -> None:
    """Draw a workload with the parameters of the CAMPR thesis."""
    from wend.planning.flow_workload import draw_workload, write_workload

    check_file(out)
    overlay = make_overlay(topology or "regular", peers, degree, seed)
    flows = draw_workload(
        overlay.peers, messages, popularity=popularity, seed=1 if seed is None else seed, receivers=receivers,
        publishers=publishers, rate=rate, size_bytes=size_bytes,
    )  # fmt: skip
    write_workload(flows, out, overlay.names)
    if as_json:
        print(json.dumps({"flows": len(flows), "deliveries": flows.deliveries(), "out": str(out)}))
    else:
        print(f"{count_text(len(flows), 'flow')}, {flows.deliveries():g} deliveries per second, in {out}")


@group.command("show")
def show(
    folder: Folder,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The file to draw. By default, plan.svg in DIR.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Draw the utilisation of links before and after a plan, and name the fullest links."""
    from wend.model.plan import read_plan
    from wend.planning.plan_drawing import draw_plan as picture

    path = folder / "plan.svg" if out is None else out
    if out is not None:
        check_file(out, ".svg")
    elif folder.is_dir():  # else reading the plan raises the error
        try:
            check_file(path)
        except ConfigError as error:
            raise ConfigError(f"{error}; choose another file with --out", code=error.code) from None
    plan = read_plan(folder)
    write_text(path, picture(plan))
    if as_json:
        print(json.dumps(_plan_metrics(plan) | {"picture": str(path)}))
    else:
        _print_plan(plan, None, path)


@group.command("check")
def verify(
    folder: Folder,
    topology: TopologyName = None,
    link_capacity: LinkCapacity = None,
    peer_capacity: PeerCapacity = None,
    peers: Peers = None,
    degree: Degree = None,
    seed: Seed = None,
    as_json: Json = False,
) -> None:
    """Check the files of a plan; with --topology, also check the plan against that topology."""
    from wend.model.plan import read_plan
    from wend.planning.plan_check import check_plan

    plan = read_plan(folder)
    network = None
    if topology is not None:
        network = _make_network(make_overlay(topology, peers, degree, seed), link_capacity, peer_capacity)
    with announce_compilation():
        faults = check_plan(plan, network)
    if as_json:
        print(json.dumps({"sound": not faults, "faults": faults}))
    elif faults:
        for fault in faults:
            message_console().print(f"wend: {folder}: {fault}", markup=False, soft_wrap=True)
    else:
        head = plan.head
        sizes = (head.flows, "flow"), (head.graphs, "delivery graph"), (len(plan.hops["peer"]), "hop")
        output_console().print(f"sound: {', '.join(count_text(*size) for size in sizes)}", markup=False)
    if faults:
        raise typer.Exit(2)


def _check_sources(topology: str | None, workload: Path | None, tables: str | None) -> None:
    if tables is not None and (topology is not None or workload is not None):
        raise ConfigError("--from already names links and flows: leave out --topology and --workload")
    if tables is None and (topology is None or workload is None):
        raise ConfigError("a plan needs --topology and --workload, or --from (wend plan --help)")


def _open_search(
    master: str | None, flows: "FlowWorkload", ranking: str, out: Path | None
) -> "AbstractContextManager[PlanSearch]":
    """The search of a plan: in this process, or on Spark with its files beside the output."""
    from wend.planning.planner import IN_THIS_PROCESS

    if master is None:
        return nullcontext(IN_THIS_PROCESS)
    from wend.pipeline.plan_on_spark import open_plan_search
    from wend.pipeline.spark.session import check_master

    check_master(master)
    return open_plan_search(master, flows, ranking, Path() if out is None else out.absolute().parent)


def _read_flows(workload: Path | None, tables: str | None, names: tuple[str, ...]) -> "FlowWorkload":
    from wend.planning.flow_workload import read_workload

    return read_measured_workload(str(tables), names) if workload is None else read_workload(workload, names)


def _make_network(overlay: "Overlay", link: str | None, peer: str | None) -> "FlowNetwork":
    from wend.planning.flow_network import AGGREGATE, FlowNetwork

    each = None if link is None else _parse_rate(link, "--link-capacity")
    unused = "changes nothing here: the topology states the capacity of every"
    if each is not None and all(min(e.capacity_msgs, e.capacity_bps) < inf for e in overlay.links):
        print_remarks([f"--link-capacity {unused} link"])
    if peer in (None, AGGREGATE):
        return FlowNetwork(overlay, link=each, peer=peer)
    if all(min(stated) < inf for stated in overlay.capacities):
        print_remarks([f"--peer-capacity {unused} peer"])
    return FlowNetwork(overlay, link=each, peer=_parse_rate(str(peer), "--peer-capacity"))


def _remark_on_unlimited_links(network: "FlowNetwork") -> Iterator[str]:
    """A remark if some links have no capacity limit."""
    import numpy as np

    free, links = int(np.isinf(network.arc_capacity).all(axis=0).sum()) // 2, len(network.overlay.links)
    if free:
        yield f"{free} of {links} links {'states' if free == 1 else 'state'} no capacity: unlimited"


def _parse_rate(text: str, what: str) -> Rate:
    """Parse a rate above 0. It is checked even if the topology overrides it."""
    rate = parse_rate(text, what)
    if not rate.value > 0:
        raise ConfigError(f"{what} must be above 0, got {text}")
    return rate


def _planning_status(what: str, *, quiet: bool) -> Any:
    console = message_console()
    return nullcontext() if quiet or not console.is_terminal else console.status(what)


def _failure_rows(plan: "Plan") -> list[tuple[str, str, str]]:
    """Rows about the plan after the failure of a link: the highest load, its price, and what moves."""
    head, failures = plan.head, plan.failures
    if not head.survive:
        return []
    worst = int(failures["highest_load"].argmax())
    names = plan.peers["name"]
    where = f"{names[failures['a'][worst]]}-{names[failures['b'][worst]]}"
    price = head.highest_load_failed / head.highest_load if head.highest_load else 1.0
    rows = [
        (
            "after a failure",
            percent_text(head.highest_load_failed),
            f"at most, of {where}; {price:.2f} x the load without one",
        ),
        ("", "", f"{failures['moved'].mean():.1f} of {count_text(head.flows, 'flow')} move, on average"),
    ]
    if cut := int((failures["cut"] > 0).sum()):
        rows.append(("cut off", f"{cut}", f"of {count_text(head.links, 'link')} leave receivers without any route"))
    return rows


def _plan_metrics(plan: "Plan") -> dict[str, Any]:
    import msgspec

    from wend.planning.plan_check import find_losses
    from wend.planning.plan_drawing import Utilisation

    metrics = msgspec.to_builtins(plan.head)
    for state in ("before", "after"):
        metrics[f"fullest_{state}"] = [
            {"where": name, "load": share} for share, name, _ in Utilisation(plan, state).ranked[:SHOWN]
        ]
    if plan.head.survive:
        names, columns = plan.peers["name"], plan.failures
        metrics["failures"] = [
            {"link": [names[a], names[b]], "highest_load": load, "moved": moved, "cut": cut}
            for _, a, b, load, moved, cut in zip(*(values.tolist() for values in columns.values()), strict=True)
        ]
    if plan.head.partial:
        names = plan.peers["name"]
        metrics["lost"] = [{"flow": f, "receiver": names[r], "share": share} for f, r, share in find_losses(plan)]
    return dict(metrics)


def _print_plan(plan: "Plan", wall_s: float | None, where: Path | None) -> None:
    from wend.planning.plan_check import find_losses
    from wend.planning.plan_drawing import Utilisation

    head = plan.head
    full = Utilisation(plan, "after").ranked
    rows = [
        ("delivered", percent_text(head.delivered / head.wanted), f"{head.delivered:g} of {head.wanted:g} a second"),
        (
            "fullest",
            percent_text(head.highest_load),
            f"{percent_text(head.highest_load_single)} with single shortest paths",
        ),
        ("", "", ", ".join(f"{name} {percent_text(share)}" for share, name, _ in full[:3])),
        *_failure_rows(plan),
        ("usage", f"{head.usage:g}", f"{head.usage_unit} on links; {head.usage_single:g} with single shortest paths"),
        (
            "delay",
            f"{head.delay_ms:.1f} ms",
            f"on idle links, on average; {head.delay_ms_single:.1f} ms on single paths",
        ),
        *([("late", f"{head.late}", "receivers of flows miss their deadline even on idle links")] if head.late else []),
        ("delivery graphs", f"{head.graphs}", f"for {count_text(head.flows, 'flow')}"),
    ]
    if head.partial:
        missing = find_losses(plan)
        rows.append(
            ("value", percent_text(head.value / head.whole_value), f"{len(missing)} receivers of a flow lose messages")
        )
        for flow, receiver, share in missing[:SHOWN]:
            rows.append(("loses", percent_text(share), f"of flow {flow}: {plan.peers['name'][receiver]}"))
    if where is not None:
        rows.append(("written", "", str(where)))
    if wall_s is not None:
        rows.append(("took", f"{wall_s:.2f} s", ""))
    output_console().print(facts_table(f"{head.goal}, k = {head.k}, {head.peers} peers, {head.links} links", rows))
