"""Chapter 7 of the quist thesis, as data: underlay-aware overlays, and k trees over them.

Every figure shows the thesis's two underlays side by side. Beside the thesis's overlays it shows Wend's own: `chain`,
which traces a third of the paths, and (broken lines) `spt-k` instead of k-MRST. Two maps of real networks follow.
"""

from wend.studies.quist.trials import LEVELS, MOST_TREES, SPREAD_METRICS, TRIALS
from wend.studies.study_model import Axis, Fields, Figure, MetricRow, MetricTable, Panel, Series, Size, Study

TRANSIT_STUB: Fields = {"underlay": "transit-stub"}
BRITE: Fields = {"underlay": "brite"}
GERMANY: Fields = {"underlay": "topohub:sndlib/germany50", "peers": 40}
AMERICA: Fields = {"underlay": "topohub:backbone/north_america", "peers": 120}
PRINTED = (("Transit-stub", TRANSIT_STUB), ("BRITE", BRITE))
MAPS = (("Germany", GERMANY), ("North America", AMERICA))

NONE = Series(label="no TDO", fields={"strategy": "random"})
APPROACHES = (
    Series(label="landmark", fields={"strategy": "tdo-landmark"}),
    Series(label="random", fields={"strategy": "tdo-random"}),
    Series(label="random, nearest", fields={"strategy": "tdo-nearest"}),
    Series(label="random, farthest", fields={"strategy": "tdo-farthest"}),
)
CHAIN = Series(label="chain", fields={"strategy": "chain"})
CHAIN_5 = Series(label="chain, k = 5", fields={"strategy": "chain", "k": 5})
SPT_K = (
    Series(label="landmark, spt-k", fields={"strategy": "tdo-landmark", "builder": "spt-k"}, variant=True),
    Series(label="chain, k = 5, spt-k", fields={"strategy": "chain", "k": 5, "builder": "spt-k"}, variant=True),
)
TRACED = (*APPROACHES, CHAIN)
GAINING = (*APPROACHES, CHAIN_5, *SPT_K)

K = Axis(
    field="k",
    values=(1, 2, 5, 10, 15, 20),
    thin=(2, 5, 15),
    label="k: landmarks, or peers that each peer traces",
)


OUTAGE = Axis(
    field="outage_s",
    values=(0.2, 1.0, 5.0),
    thin=(5.0,),
    label="mean time that a component is down (s)",
)
RUNNING = (
    Series(label="adaptive", fields={"strategy": "adaptive"}),
    Series(label="k-MRST, 5 trees", fields={"strategy": "mrst"}),
    Series(label="spt-k, 5 trees", fields={"strategy": "spt-k"}),
)
STATIC = (
    Series(label="k-MRST, sent once", fields={"strategy": "mrst"}, metric="static", variant=True),
    Series(label="spt-k, sent once", fields={"strategy": "spt-k"}, metric="static", variant=True),
    Series(label="a path is up at publication", fields={"strategy": "adaptive"}, metric="at_once", colour="grey"),
)


def _of_k(name: str, title: str, metric: str, label: str, caption: str, *, percent: bool, none: bool) -> Figure:
    return Figure(
        name=name,
        title=title,
        caption=caption,
        base={"kind": "similarity"},
        axis=K,
        panels=tuple(Panel(title=t, metric=metric, label=label, at=at, percent=percent) for t, at in PRINTED),
        series=(NONE, *TRACED) if none else TRACED,
    )


def _of_trees(metric: str, label: str, title: str, at: Fields, *, percent: bool = True, signed: bool = False) -> Panel:
    return Panel(
        title=title,
        label=label,
        curve=tuple((float(trees), f"{metric}_{trees}") for trees in range(1, MOST_TREES + 1)),
        curve_label="trees",
        at=at,
        percent=percent,
        signed=signed,
    )


def _trees(name: str, title: str, metric: str, label: str, *, percent: bool = True, gain: bool = False) -> Figure:
    return Figure(
        name=name,
        title=title,
        caption="250 peers, k = 15. Broken lines: spt-k instead of k-MRST.",
        base={"kind": "forest"},
        panels=tuple(_of_trees(metric, label, t, at, percent=percent, signed=gain) for t, at in PRINTED),
        series=GAINING if gain else (NONE, *GAINING),
    )


RELIABILITY = "joint path reliability (%)"
EVENTS = "delivered, of the wanted events (%)"

FIGURES = (
    _of_k(
        "7.3", "Link discovery ratio", "discovery", "links discovered (%)",
        "The share of the links on paths between peers that lie on a traced path.", percent=True, none=False,
    ),
    _of_k(
        "7.4", "Traceroute efficiency", "efficiency_100", "links per 100 traceroutes (%)",
        "The discovery ratio per hundred traceroutes. A peer makes k traceroutes.", percent=True, none=False,
    ),
    _of_k(
        "7.5", "Stretch, without last miles", "stretch", "overlay delay / underlay delay",
        "Shortest overlay routes over shortest underlay paths; 1 is ideal. Without TDO, k is the degree.",
        percent=False, none=True,
    ),
    _of_k(
        "7.6", "Hop ratio", "hop_ratio", "peers' routers on the path / peers on the route",
        "Does an overlay route have as many peers as lie on the underlay path? 1 is ideal.", percent=False, none=True,
    ),
    _of_k(
        "7.7", "Path match", "path_match", "peers missed + peers off the path",
        "Are these the same peers? 0 is ideal, 2 is the worst.", percent=False, none=True,
    ),
    Figure(
        name="7.8",
        title="Reliability of components",
        caption="The share of components up to each reliability, by the alpha of Table 7.1, as drawn.",
        base={"kind": "spread", "strategy": "underlay"},
        panels=tuple(
            Panel(
                title=t, label="components (%)", curve=tuple(zip(LEVELS, SPREAD_METRICS, strict=True)),
                curve_label="reliability", at=at,
            )
            for t, at in PRINTED
        ),
        series=tuple(
            Series(label=f"alpha = {alpha}", fields={"strategy": "underlay", "alpha": float(alpha)}, colour=colour)
            for alpha, colour in ((50, "red"), (80, "orange"), (100, "green"), (200, "blue"))
        ),
    ),
    _trees("7.10", "Underlay link resilience", "resilience", "links that must fail", percent=False),
    _trees("7.11", "Joint path reliability", "reliability", RELIABILITY),
    _trees("7.12", "Reliability gained over no TDO", "reliability_gain", "gain (%)", percent=False, gain=True),
    _trees("7.13", "Event ratio", "events", EVENTS),
    _trees("7.14", "Event ratio gained over no TDO", "events_gain", "gain (%)", percent=False, gain=True),
    Figure(
        name="time",
        title="Failures as processes in time",
        caption="Simulated: 40 peers, 5 landmarks, the same availabilities. Broken lines: no retransmission.",
        base={"kind": "timed"},
        axis=OUTAGE,
        panels=(
            *(Panel(title=t, metric="delivered", label=EVENTS, at=at, series=(*RUNNING, *STATIC)) for t, at in PRINTED),
            *(
                Panel(title=f"{t}, on time", metric="on_time", label="events on time (%)", at=at, series=RUNNING)
                for t, at in PRINTED
            ),
        ),
        series=(*RUNNING, *STATIC),
    ),
    Figure(
        name="maps",
        title="Two real networks",
        caption="40 peers on germany50, 120 on north_america (topohub), k = 15. Broken lines: spt-k.",
        base={"kind": "forest"},
        panels=(
            *(_of_trees("reliability", RELIABILITY, t, at) for t, at in MAPS),
            *(_of_trees("events", EVENTS, t, at) for t, at in MAPS),
        ),
        series=(NONE, *GAINING),
    ),
    Figure(
        name="maps-similarity",
        title="Two real networks, discovered",
        caption="As Figures 7.3 and 7.5.",
        base={"kind": "similarity"},
        axis=Axis(field="k", values=(1, 2, 5, 10, 15), thin=(2, 5), label=K.label),
        panels=(
            *(Panel(title=t, metric="discovery", label="links discovered (%)", at=at) for t, at in MAPS),
            *(
                Panel(title=t, metric="stretch", label="overlay delay / underlay delay", at=at, percent=False)
                for t, at in MAPS
            ),
        ),
        series=TRACED,
    ),
)  # fmt: skip


def _column(label: str, *fields: Fields) -> tuple[str, Fields]:
    return label, {name: value for each in fields for name, value in each.items()}


_UNDERLAY: Fields = {"kind": "underlay", "strategy": "underlay"}
_LANDMARK: Fields = {"kind": "forest", "strategy": "tdo-landmark"}
_TWO = (_column("transit-stub", _UNDERLAY, TRANSIT_STUB), _column("BRITE", _UNDERLAY, BRITE))


def _alpha(label: str, part: str, alpha: float) -> MetricRow:
    return MetricRow(label=label, metric=f"alpha_{part}", digits=1, paper={"transit-stub": alpha, "BRITE": alpha})


TABLES = (
    MetricTable(
        name="Table 7.1",
        title="The alpha of each type of component",
        text="Computed from the reliabilities that were drawn: the inverse of the mean of -ln r.",
        columns=_TWO,
        rows=(
            _alpha("router", "router", 50),
            _alpha("router of a transit domain", "transit_router", 100),
            _alpha("link within a stub domain or AS", "link", 50),
            _alpha("border link", "border_link", 80),
            _alpha("transit link", "transit_link", 100),
            _alpha("last mile", "last_mile", 200),
            _alpha("peer", "peer", 100),
        ),
    ),
    MetricTable(
        name="Table 7.2",
        title="The underlays",
        text="Paths are those between the routers of the peers.",
        columns=(*_TWO, _column("Germany", _UNDERLAY, GERMANY), _column("North America", _UNDERLAY, AMERICA)),
        rows=(
            MetricRow(label="routers", metric="routers", digits=0, paper={"transit-stub": 1640, "BRITE": 1640}),
            MetricRow(label="edges", metric="edges", digits=0, paper={"BRITE": 3320}),
            MetricRow(label="mean path length, hops", metric="hops", paper={"transit-stub": 6.97, "BRITE": 13.49}),
            MetricRow(label="diameter, hops", metric="diameter", paper={"transit-stub": 10, "BRITE": 32}),
            MetricRow(
                label="mean path reliability", metric="path_reliability", percent=True,
                paper={"transit-stub": 0.8863, "BRITE": 0.5388},
            ),
            MetricRow(
                label="least path reliability", metric="worst_path", percent=True,
                paper={"transit-stub": 0.6812, "BRITE": 0.0418},
            ),
        ),
    ),
    MetricTable(
        name="Trees by messages",
        title="Reliability and cost of k-MRST and spt-k",
        text="Five trees over the overlay of 15 landmarks, built message by message with random delays.",
        columns=(
            _column("BRITE, k-MRST", _LANDMARK, BRITE),
            _column("BRITE, spt-k", _LANDMARK, BRITE, {"builder": "spt-k"}),
            _column("transit-stub, k-MRST", _LANDMARK, TRANSIT_STUB),
            _column("transit-stub, spt-k", _LANDMARK, TRANSIT_STUB, {"builder": "spt-k"}),
        ),
        rows=(
            MetricRow(label="joint reliability, 1 tree", metric="reliability_1", percent=True),
            MetricRow(label="joint reliability, 2 trees", metric="reliability_2", percent=True),
            MetricRow(label="joint reliability, 5 trees", metric="reliability_5", percent=True),
            MetricRow(label="messages to build 5 trees", metric="messages", digits=0),
            MetricRow(label="copies per event, 5 trees", metric="copies_5"),
            MetricRow(label="links of the overlay", metric="links", digits=0),
            MetricRow(label="peers with two links or fewer", metric="slimmest", digits=0),
        ),
    ),
)  # fmt: skip

QUIST = Study(
    name="quist",
    title="Underlay-aware overlays and k maximum-reliability trees",
    paper="The quist thesis, chapter 7 (1640 routers, 250 peers)",
    sizes=(
        Size(name="smoke", seeds=1, trials=TRIALS, thin=True, fixed={"peers": 40}),
        Size(name="default", seeds=5, trials=TRIALS),
        Size(name="full", seeds=15, trials=TRIALS),
    ),
    figures=FIGURES,
    tables=TABLES,
    remarks=(
        "Built by messages: the overlays that trace random, nearest or farthest peers, and all trees. Computed: "
        "landmark overlays with exactly k landmarks, and chain; the protocol builds the same links. No TDO is a "
        "regular random graph of degree 15.",
        "Links are links between routers, as the thesis defines its underlay. Last miles do not count as "
        "discovered. The event ratio is counted, not computed: each event has its own state of all routers, links, "
        "peers and last miles, and the trees forward it to the subscribers.",
        "If failures are processes in time, peers run in the simulator, detect failures and retransmit. On time "
        "is within three times the shortest delay. The thesis's trees send once (broken lines).",
        "No single distribution gives both of the thesis's path reliabilities (Table 7.2). The study uses the one "
        "that the thesis describes on both underlays, and tunes it to neither.",
    ),
)
