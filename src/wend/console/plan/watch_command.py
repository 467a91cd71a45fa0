"""`wend plan watch`: plan again when the measured links or the workload have changed noticeably, and say why."""

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wend.console.options import Json
from wend.console.peer_options import Keys, RootFile, TokenFile, key_options
from wend.console.plan.measured_input import parse_k, read_measured_links, read_measured_workload
from wend.console.plan.push_command import Addresses, AddressFile, Before, Tolerance
from wend.model.errors import ConfigError, WendError
from wend.model.units import SECOND, parse_duration

if TYPE_CHECKING:
    from wend.drivers.live.plans.push import PushSettings
    from wend.model.plan import Plan
    from wend.planning.flow_network import FlowNetwork
    from wend.planning.flow_workload import FlowWorkload
    from wend.planning.models import Goal


def watch(
    measured: Annotated[
        str,
        typer.Option("--from", metavar="DIR", help="The folder of tables with links and flows that `wend data` wrote."),
    ],
    out: Annotated[Path, typer.Option(metavar="DIR", help="The folder of the plan. New plans replace it.")],
    every: Annotated[str, typer.Option(help="How often to look.")] = "60s",
    last: Annotated[
        str | None, typer.Option(help="Use only measurements of links that are younger than this: 1h.")
    ] = None,
    change: Annotated[
        float,
        typer.Option(
            min=0.0, help="Plan again if this many percent of the workload or of a link's capacity have changed."
        ),
    ] = 20.0,
    goal: Annotated[str, typer.Option(help="As in `wend plan`.")] = "balance",
    k: Annotated[str, typer.Option("--k", metavar="K|auto", help="The most paths to each receiver.")] = "5",
    survive: Annotated[int, typer.Option(min=0, max=1, help="As in `wend plan`.")] = 0,
    link_capacity: Annotated[
        str | None, typer.Option(help="Capacity of links for which nothing was measured: 40msg/s, 10Mbit/s.")
    ] = None,
    push: Annotated[bool, typer.Option("--push", help="Push new plans to the peers.")] = False,
    peer: Addresses = None,
    peers: AddressFile = None,
    judge: Annotated[str, typer.Option(help="How long to watch deliveries after a push.")] = "30s",
    before: Before = "10s",
    tolerance: Tolerance = 2.0,
    keys: Keys = None,
    root: RootFile = None,
    token: TokenFile = None,
    once: Annotated[bool, typer.Option("--once", help="Look once and stop.")] = False,
    as_json: Json = False,
) -> None:
    """Plan again whenever the workload or the links have changed enough, and push the plan with --push."""
    from wend.console.plan.push_command import parse_push_settings, read_peer_urls
    from wend.planning.models import parse_goal

    urls = read_peer_urls(peer, peers, secured=any((keys, root, token))) if push else []
    settings = parse_push_settings(judge, before, tolerance)
    period_s = parse_duration(every) / SECOND
    last_ns = None if last is None else parse_duration(last)
    if period_s <= 0 or (last_ns is not None and last_ns <= 0):
        raise ConfigError("--every and --last must be above 0")
    watcher = PlanMonitor(
        out, parse_goal(goal), parse_k(k), survive, change / 100, urls, settings, key_options(keys, root, token)
    )
    while True:
        since_ns = 0 if last_ns is None else time.time_ns() - last_ns
        try:
            outcome = watcher.check_plan(measured, link_capacity, since_ns)
        except WendError as error:
            if once:
                raise
            outcome = {"replanned": False, "pushed": False, "why": [], "sentence": f"nothing was changed: {error}"}
        stamp = time.strftime("%H:%M:%S")
        print(json.dumps(outcome | {"time": stamp}) if as_json else f"{stamp}  {outcome['sentence']}", flush=True)
        if once:
            return
        time.sleep(period_s)


class PlanMonitor:
    """Compares a plan with the measured links and flows, and makes another plan if they differ."""

    def __init__(
        self,
        out: Path,
        goal: "Goal",
        k: int | None,
        survive: int,
        noticeable: float,
        urls: list[str],
        settings: "PushSettings",
        opened: dict[str, Any],
    ) -> None:
        self._out, self._goal, self._k, self._survive, self._noticeable = out, goal, k, survive, noticeable
        self._urls, self._settings, self._opened = urls, settings, opened
        self._worse: set[int] = set()
        """Plans that were rolled back: they are not pushed again."""

    def check_plan(self, measured: str, capacity: str | None, since_ns: int) -> dict[str, Any]:
        """Compare the plan with the measurements once. Returns the result as fields, with a sentence for people."""
        from wend.planning.flow_network import FlowNetwork
        from wend.planning.plan_changes import compare_plan

        network = FlowNetwork(read_measured_links(measured, capacity, since_ns))
        flows = read_measured_workload(measured, network.names)
        plan = self._read_plan()
        if plan is None:
            return self._plan_again(network, flows, ["there is no plan yet"], {}, None)
        changed = compare_plan(plan, network, flows)
        about = changed._asdict()
        if why := changed.reasons(self._noticeable):
            return self._plan_again(network, flows, why, about, plan)
        sentence = f"the plan stays: {changed}; above {100 * self._noticeable:g} % it would be made again"
        return {"replanned": False, "pushed": False, "why": [], "changes": about, "sentence": sentence}

    def _read_plan(self) -> "Plan | None":
        from wend.model.plan import read_plan

        return read_plan(self._out) if (self._out / "plan.json").exists() else None

    def _plan_again(
        self,
        network: "FlowNetwork",
        flows: "FlowWorkload",
        why: list[str],
        about: dict[str, Any],
        running: "Plan | None",
    ) -> dict[str, Any]:
        from wend.console.plan.push_command import run_push
        from wend.planning.plan_changes import count_moves
        from wend.planning.planner import make_plan

        plan = make_plan(
            network, flows, self._goal, self._k, survive=self._survive, partial=not self._survive, running=running
        )
        outcome = {"replanned": True, "pushed": False, "why": why, "changes": about, "plan": plan.id}
        because = f"planned again, because {' and '.join(why)}; fullest {100 * plan.head.highest_load:.0f} %"
        if running is not None:
            moves = count_moves(running, plan)
            outcome["moved"] = moves._asdict()
            because += f"; {moves.flows} of {moves.common} flows move"
        if plan.head.partial:
            outcome["partial"] = plan.head.value / plan.head.whole_value
            because += f"; not everything fits: {100 * plan.head.value / plan.head.whole_value:.1f} % of the value does"
        if self._urls and plan.id in self._worse:
            return outcome | {"sentence": f"{because}; it was rolled back before, and is not pushed again"}
        if self._urls:
            report = run_push(plan, self._urls, self._settings, self._opened, quiet=True)
            if not report.kept:
                self._worse.add(plan.id)
                return outcome | {"sentence": f"{because}; rolled back: {report.why}"}
            because += f"; {len(report.peers)} peers follow it, version {report.version}"
        plan.write(self._out)
        return outcome | {"pushed": bool(self._urls), "sentence": f"{because}; written to {self._out}"}
