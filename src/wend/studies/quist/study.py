"""Chapter 7 of the quist thesis, as data: underlay-aware overlays, and k trees over them.

Every figure shows the thesis's two underlays side by side. Beside the thesis's overlays it shows Wend's own: `chain`,
which traces a third of the paths, and (broken lines) `spt-k` instead of k-MRST. Two maps of real networks follow.
"""

from wend.studies.quist.trials import LEVELS, MAX_TREES, SPREAD_METRICS, TRIALS
from wend.studies.study_model import (
    Axis,
    Fields,
    Figure,
    MetricRow,
    MetricTable,
    Panel,
    Places,
    Series,
    Size,
    Study,
    make_panels,
)

TRANSIT_STUB: Fields = {"underlay": "transit-stub"}
BRITE: Fields = {"underlay": "brite"}
GERMANY: Fields = {"underlay": "topohub:sndlib/germany50", "peers": 40}
AMERICA: Fields = {"underlay": "topohub:backbone/north_america", "peers": 120}
PRINTED: Places = (("Transit-stub", TRANSIT_STUB), ("BRITE", BRITE))
MAPS: Places = (("Germany", GERMANY), ("North America", AMERICA))

NONE = Series("no TDO", {"strategy": "random"})
APPROACHES = (
    Series("landmark", {"strategy": "tdo-landmark"}),
    Series("random", {"strategy": "tdo-random"}),
    Series("random, nearest", {"strategy": "tdo-nearest"}),
    Series("random, farthest", {"strategy": "tdo-farthest"}),
)
CHAIN = Series("chain", {"strategy": "chain"})
CHAIN_5 = Series("chain, k = 5", {"strategy": "chain", "k": 5})
SPT_K = (
    Series("landmark, spt-k", {"strategy": "tdo-landmark", "builder": "spt-k"}, variant=True),
    Series("chain, k = 5, spt-k", {"strategy": "chain", "k": 5, "builder": "spt-k"}, variant=True),
)
TRACED = (*APPROACHES, CHAIN)
GAINING = (*APPROACHES, CHAIN_5, *SPT_K)

K = Axis("k", (1, 2, 5, 10, 15, 20), (2, 5, 15), "k: landmarks, or peers that each peer traces")
K_OF_MAPS = Axis("k", (1, 2, 5, 10, 15), (2, 5), K.label)
OUTAGE = Axis("outage_s", (0.2, 1.0, 5.0), (5.0,), "mean time that a component is down (s)")
RUNNING = (
    Series("adaptive", {"strategy": "adaptive"}),
    Series("k-MRST, 5 trees", {"strategy": "mrst"}),
    Series("spt-k, 5 trees", {"strategy": "spt-k"}),
)
ONCE = (
    Series("k-MRST, sent once", {"strategy": "mrst", "send_once": True}, variant=True),
    Series("spt-k, sent once", {"strategy": "spt-k", "send_once": True}, variant=True),
)
STATIC = (
    Series("k-MRST, sent once, built once", {"strategy": "mrst"}, "static", variant=True),
    Series("spt-k, sent once, built once", {"strategy": "spt-k"}, "static", variant=True),
    Series("a path is up at publication", {"strategy": "adaptive"}, "at_once", "grey"),
)

DISCOVERED = "links discovered (%)"
STRETCH = "overlay delay / underlay delay"
RELIABILITY = "joint path reliability (%)"
EVENTS = "delivered, of the wanted events (%)"


def _k_figure(
    name: str, title: str, metric: str, label: str, caption: str, series: tuple[Series, ...], *, percent: bool
) -> Figure:
    panels = make_panels(PRINTED, "{}", label, metric, percent=percent)
    return Figure(name, title, caption, {"kind": "similarity"}, panels, series, K)


def _tree_panels(
    metric: str, label: str, places: Places, *, percent: bool = True, signed: bool = False
) -> tuple[Panel, ...]:
    curve = tuple((float(trees), f"{metric}_{trees}") for trees in range(1, MAX_TREES + 1))
    return tuple(
        Panel(place, label, at=at, percent=percent, signed=signed, curve=curve, curve_label="trees")
        for place, at in places
    )


def _tree_figure(name: str, title: str, metric: str, label: str, *, percent: bool = True, gain: bool = False) -> Figure:
    return Figure(
        name,
        title,
        "250 peers, k = 15. Broken lines: spt-k instead of k-MRST.",
        {"kind": "forest"},
        _tree_panels(metric, label, PRINTED, percent=percent, signed=gain),
        GAINING if gain else (NONE, *GAINING),
    )


FIGURES = (
    _k_figure(
        "7.3", "Link discovery ratio", "discovery", DISCOVERED,
        "The share of the links on paths between peers that lie on a traced path.", TRACED, percent=True,
    ),
    _k_figure(
        "7.4", "Traceroute efficiency", "efficiency_100", "links per 100 traceroutes (%)",
        "The discovery ratio per hundred traceroutes. A peer makes k traceroutes.", TRACED, percent=True,
    ),
    _k_figure(
        "7.5", "Stretch, without last miles", "stretch", STRETCH,
        "Shortest overlay routes over shortest underlay paths; 1 is ideal. Without TDO, k is the degree.",
        (NONE, *TRACED), percent=False,
    ),
    _k_figure(
        "7.6", "Hop ratio", "hop_ratio", "peers' routers on the path / peers on the route",
        "Does an overlay route have as many peers as lie on the underlay path? 1 is ideal.",
        (NONE, *TRACED), percent=False,
    ),
    _k_figure(
        "7.7", "Path match", "path_match", "peers missed + peers off the path",
        "Are these the same peers? 0 is ideal, 2 is the worst.", (NONE, *TRACED), percent=False,
    ),
    Figure(
        "7.8", "Reliability of components",
        "The share of components up to each reliability, by the alpha of Table 7.1, as drawn.",
        {"kind": "spread", "strategy": "underlay"},
        tuple(
            Panel(
                place, "components (%)", at=at, curve=tuple(zip(LEVELS, SPREAD_METRICS, strict=True)),
                curve_label="reliability",
            )
            for place, at in PRINTED
        ),
        tuple(
            Series(f"alpha = {alpha}", {"strategy": "underlay", "alpha": float(alpha)}, colour=colour)
            for alpha, colour in ((50, "red"), (80, "orange"), (100, "green"), (200, "blue"))
        ),
    ),
    _tree_figure("7.10", "Underlay link resilience", "resilience", "links that must fail", percent=False),
    _tree_figure("7.11", "Joint path reliability", "reliability", RELIABILITY),
    _tree_figure("7.12", "Reliability gained over no TDO", "reliability_gain", "gain (%)", percent=False, gain=True),
    _tree_figure("7.13", "Event ratio", "events", EVENTS),
    _tree_figure("7.14", "Event ratio gained over no TDO", "events_gain", "gain (%)", percent=False, gain=True),
    Figure(
        "load", "The busiest peer",
        "Of all peers the most links, the most traceroutes, and the most of the shortest routes between others that "
        "pass one. The thesis says that landmarks bear much, and does not measure it.",
        {"kind": "similarity"},
        (
            *make_panels(PRINTED, "{}: degree", "links", "busiest_degree", percent=False, series=(NONE, *TRACED)),
            *make_panels(PRINTED, "{}: traceroutes", "traceroutes", "busiest_traceroutes", percent=False),
            *make_panels(PRINTED, "{}: routes", "routes that pass it (%)", "busiest_passing", series=(NONE, *TRACED)),
        ),
        TRACED, K,
    ),
    Figure(
        "time", "Failures as processes in time",
        "Simulated: 40 peers, 5 landmarks, the same availabilities. Broken lines: no retransmission.",
        {"kind": "timed"},
        (
            *make_panels(PRINTED, "{}", EVENTS, "delivered", series=(*RUNNING, *ONCE, *STATIC)),
            *make_panels(PRINTED, "{}, on time", "events on time (%)", "on_time", series=(*RUNNING, *ONCE)),
        ),
        axis=OUTAGE,
    ),
    Figure(
        "maps", "Two real networks",
        "40 peers on germany50, 120 on north_america (topohub), k = 15. Broken lines: spt-k.",
        {"kind": "forest"},
        (*_tree_panels("reliability", RELIABILITY, MAPS), *_tree_panels("events", EVENTS, MAPS)), (NONE, *GAINING),
    ),
    Figure(
        "maps-similarity", "Two real networks, discovered", "As Figures 7.3 and 7.5.", {"kind": "similarity"},
        (
            *make_panels(MAPS, "{}", DISCOVERED, "discovery"),
            *make_panels(MAPS, "{}", STRETCH, "stretch", percent=False),
        ),
        TRACED, K_OF_MAPS,
    ),
)  # fmt: skip

_TABLES: Fields = {"kind": "tables", "strategy": "tdo-landmark"}
_UNDERLAY: Fields = {"kind": "underlay", "strategy": "underlay"}
_LANDMARK: Fields = {"kind": "forest", "strategy": "tdo-landmark"}
_SPT: Fields = {**_LANDMARK, "builder": "spt-k"}
_TWO: Places = (("transit-stub", {**_UNDERLAY, **TRANSIT_STUB}), ("BRITE", {**_UNDERLAY, **BRITE}))
_MAPS: Places = tuple((name, {**_UNDERLAY, **at}) for name, at in MAPS)


def _make_row(
    label: str, metric: str, stub: float, brite: float, *, percent: bool = False, digits: int = 2
) -> MetricRow:
    """A row with the thesis's values for both underlays."""
    return MetricRow(label, metric, {"transit-stub": stub, "BRITE": brite}, percent, digits)


TABLES = (
    MetricTable(
        "Table 7.1",
        "The alpha of each type of component",
        "Computed from the reliabilities that were drawn: the inverse of the mean of -ln r.",
        _TWO,
        (
            _make_row("router", "alpha_router", 50, 50, digits=1),
            _make_row("router of a transit domain", "alpha_transit_router", 100, 100, digits=1),
            _make_row("link within a stub domain or AS", "alpha_link", 50, 50, digits=1),
            _make_row("border link", "alpha_border_link", 80, 80, digits=1),
            _make_row("transit link", "alpha_transit_link", 100, 100, digits=1),
            _make_row("last mile", "alpha_last_mile", 200, 200, digits=1),
            _make_row("peer", "alpha_peer", 100, 100, digits=1),
        ),
    ),
    MetricTable(
        "Table 7.2",
        "The underlays",
        "Paths are those between the routers of the peers.",
        (*_TWO, *_MAPS),
        (
            _make_row("routers", "routers", 1640, 1640, digits=0),
            MetricRow("edges", "edges", {"BRITE": 3320}, digits=0),
            _make_row("mean path length, hops", "hops", 6.97, 13.49),
            _make_row("diameter, hops", "diameter", 10, 32),
            _make_row("mean path reliability", "path_reliability", 0.8863, 0.5388, percent=True),
            _make_row("least path reliability", "worst_path", 0.6812, 0.0418, percent=True),
        ),
    ),
    MetricTable(
        "Trees by messages",
        "Reliability and cost of k-MRST and spt-k",
        "Five trees over the overlay of 15 landmarks, built message by message with random delays.",
        (
            ("BRITE, k-MRST", {**_LANDMARK, **BRITE}),
            ("BRITE, spt-k", {**_SPT, **BRITE}),
            ("transit-stub, k-MRST", {**_LANDMARK, **TRANSIT_STUB}),
            ("transit-stub, spt-k", {**_SPT, **TRANSIT_STUB}),
        ),
        (
            MetricRow("joint reliability, 1 tree", "reliability_1", percent=True),
            MetricRow("joint reliability, 2 trees", "reliability_2", percent=True),
            MetricRow("joint reliability, 5 trees", "reliability_5", percent=True),
            MetricRow("messages to build 5 trees", "messages", digits=0),
            MetricRow("copies per event, 5 trees", "copies_5"),
            MetricRow("links of the overlay", "links", digits=0),
            MetricRow("peers with two links or fewer", "slimmest", digits=0),
        ),
    ),
    MetricTable(
        "Events by tables",
        "Events through the peers' own interest tables",
        "500 events over the overlay of 15 landmarks. Each of the 250 peers has the tables of the running protocol and "
        "sends a copy once. Counted on the trees, as in Figure 7.13: every peer knows who leads to a subscriber.",
        (
            ("BRITE, k-MRST", {**_TABLES, **BRITE}),
            ("BRITE, spt-k", {**_TABLES, **BRITE, "builder": "spt-k"}),
            ("transit-stub, k-MRST", {**_TABLES, **TRANSIT_STUB}),
            ("transit-stub, spt-k", {**_TABLES, **TRANSIT_STUB, "builder": "spt-k"}),
        ),
        (
            MetricRow("event ratio by tables, 1 tree", "by_tables_1", percent=True),
            MetricRow("event ratio by tables, 2 trees", "by_tables_2", percent=True),
            MetricRow("event ratio by tables, 5 trees", "by_tables_5", percent=True),
            MetricRow("largest difference to the count", "difference", percent=True),
            MetricRow("copies per event, 5 trees", "copies_by_tables"),
            MetricRow("copies per event, counted", "copies_counted"),
            MetricRow("messages for the interest, 5 trees", "interest_messages", digits=0),
        ),
    ),
)

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
        "is within three times the shortest delay. The thesis's trees send once (broken lines): as a setting of the "
        "running peers, which still build new trees, and counted on trees that are built once.",
        "No single distribution gives both of the thesis's path reliabilities (Table 7.2). The study uses the one "
        "that the thesis describes on both underlays, and tunes it to neither.",
    ),
)
