"""Section 3.5 and chapters 4 and 5 of the CAMPR thesis, as data: rankings of paths, the losses of single paths, the
number of paths that a plan needs, the time to find a plan, and simulations of plans.

The figures of chapter 4 cannot come from the model that it describes: at its capacities the receivers alone would lose
nearly everything. They come from defects of the program in its Appendix A. So the study draws these figures twice: for
the model as described, with units (`honest`), and for the program as printed (`printed`), which only explains the
thesis's numbers.
"""

import msgspec

from wend.pipeline.sweeps.trials import Trials
from wend.studies.campr.rankings import RANKING
from wend.studies.campr.simulated import SIMULATED
from wend.studies.campr.trials import CAPACITIES, CELLS
from wend.studies.study_model import Axis, Fields, Figure, Panel, Series, Size, Study, make_metric_series

TRIALS = Trials((CELLS, RANKING, SIMULATED))
HONEST: Fields = {"strategy": "honest"}
PRINTED: Fields = {"strategy": "printed"}
COLOURS = dict(zip(CAPACITIES, ("red", "orange", "green", "blue", "pink"), strict=True))
POPULARITY = Axis(
    "popularity",
    (0.05, 0.25, 0.45, 0.65, 0.85),
    (0.25, 0.85),
    "popularity (share of the receivers that want a message)",
)
SIMULATED_POPULARITY = msgspec.structs.replace(POPULARITY, thin=(0.25,), coarse=(0.45,))
SHARE = "lost deliveries (%)"
SECONDS = "seconds of one core"
PATHS = "paths and delivery graphs (% of the time)"


def _make_panel(title: str, metric: str, strategy: Fields, label: str, *, percent: bool = True) -> Panel:
    """A line for each capacity of the grid. All are metrics of the same trial."""
    lines = ((f"{c} Mbit/s", f"{metric}_{c}", COLOURS[c]) for c in CAPACITIES)
    return Panel(title, label, series=make_metric_series(strategy, *lines), percent=percent)


UNDELIVERED = (
    _make_panel("Single paths", "single", HONEST, SHARE),
    _make_panel("Planned", "planned", HONEST, SHARE),
    _make_panel("Receivers' floor: no routing can avoid it", "floor", HONEST, SHARE),
    _make_panel("Single paths, program as printed", "single", PRINTED, SHARE),
)
REQUIRED_K = (
    _make_panel("Paths needed", "k", HONEST, "k", percent=False),
    _make_panel("Paths needed, program as printed", "k", PRINTED, "k", percent=False),
)
TIMES = (
    _make_panel("Finding paths and delivery graphs", "paths_s", HONEST, SECONDS, percent=False),
    _make_panel("Building and solving the model", "model_s", HONEST, SECONDS, percent=False),
    _make_panel("Share of path finding", "paths_share", HONEST, PATHS),
    _make_panel("Share of path finding, program as printed", "paths_share", PRINTED, PATHS),
)


def _make_figure(name: str, title: str, nodes: int, messages: int, panels: tuple[Panel, ...]) -> Figure:
    return Figure(
        name,
        f"{title}, {nodes} nodes, {messages} messages",
        "Colours: capacity per link. A line ends where no k suffices.",
        {"kind": "cell", "nodes": nodes, "messages": messages},
        panels,
        axis=POPULARITY,
    )


def _make_needs_panel(nodes: int, messages: int) -> Panel:
    lines = (
        ("receivers' floor", "needed_floor", "grey"),
        ("single paths", "needed_1", "red"),
        ("planned", "needed", "blue"),
    )
    title, at = f"{nodes} nodes, {messages} messages", {"nodes": nodes, "messages": messages}
    return Panel(
        title, "needed capacity per link (Mbit/s)", series=make_metric_series(HONEST, *lines), at=at, percent=False
    )


NEEDS = Figure(
    "needs",
    "The capacity that k paths need",
    "The least capacity per link at which nothing is lost. k is raised only until 20 Mbit/s suffice.",
    {"kind": "cell"},
    (
        _make_needs_panel(100, 4000),
        _make_needs_panel(200, 4000),
        _make_needs_panel(200, 10000),
        _make_needs_panel(300, 10000),
    ),
    axis=POPULARITY,
)


def _make_nodes_panel(popularity: float) -> Panel:
    lines = (
        ("single paths", "single_20", "red"),
        ("single paths, the best drops", "least", "orange"),
        ("planned, k = 3", "planned_20", "blue"),
        ("receivers' floor", "floor_20", "grey"),
    )
    return Panel(
        f"Popularity {popularity:g}", SHARE, series=make_metric_series(HONEST, *lines), at={"popularity": popularity}
    )


ACROSS = Figure(
    "4.5-4.7",
    "Undelivered against nodes, 10000 messages, 20 Mbit/s",
    "One message of twenty is drawn and counts as all of them.",
    {"kind": "cell", "messages": 10000, "scale": 20, "most_k": 3, "least_at": 20},
    (_make_nodes_panel(0.25), _make_nodes_panel(0.45), _make_nodes_panel(0.85)),
    axis=Axis("nodes", (100, 200, 300, 400, 500, 1000), (100, 300), "nodes"),
)


def _make_popularity_series(metric: str, *chosen: float) -> tuple[Series, ...]:
    colours = {0.05: "pink", 0.25: "green", 0.45: "blue", 0.85: "red"}
    return tuple(Series(f"popularity {p:g}", {**HONEST, "popularity": p}, metric, colours[p]) for p in chosen)


LITERAL: Fields = {"charged": True, "size_kbit": 1000.0, "most_k": 1}
"""Sections 3.6.3 and 4.2 taken literally: capacity is a number of messages, and publishing uses it, too."""

WHY = Figure(
    "nodes",
    "Why undelivered does not fall with nodes, 10000 messages, 20 Mbit/s",
    "On single paths. Literally: a link carries 20 messages, publishing counts, and the best drops are chosen.",
    ACROSS.base,
    (
        Panel(
            "Load of a peer",
            "messages received, of all (%)",
            series=_make_popularity_series("intake", 0.25, 0.45, 0.85),
        ),
        Panel(
            "Distance", "hops of a delivery", series=_make_popularity_series("hops", 0.25, 0.45, 0.85), percent=False
        ),
        Panel("Undelivered, literally", SHARE, series=_make_popularity_series("least", 0.05, 0.45), at=LITERAL),
    ),
    axis=ACROSS.axis,
)

RANKINGS = Figure(
    "3.5",
    "Rankings of candidate paths, 500 messages, popularity 0.25",
    "Up to 10 paths per receiver. Required k: at a capacity halfway between single shortest paths and the floor.",
    {"kind": "ranking"},
    (
        Panel("Capacity needed, k = 1", "of that for single shortest paths (%)", "needed_at_1", share=False),
        Panel("Capacity needed, k = 3", "of that for single shortest paths (%)", "needed_at_3", share=False),
        Panel("Required k", "k", "required_k", percent=False),
        Panel("Delay of the first path", "of the shortest", "stretch_first", percent=False),
        Panel("Time to find paths", "milliseconds per receiver", "path_ms", percent=False),
    ),
    (
        Series("bottleneck-disjoint", {"strategy": "bottleneck-disjoint"}, colour="blue"),
        Series("by capacity", {"strategy": "capacity"}, colour="green"),
        Series("rejecting", {"strategy": "rejecting"}, colour="red"),
    ),
    Axis("nodes", (30, 60, 100, 200), (30,), "nodes"),
)

MIN_USAGE = Series("plan: minimum usage", {"strategy": "min-usage"}, colour="orange")
BALANCE = Series("plan: balanced", {"strategy": "balance"}, colour="green")
TREE = Series("d-tree", {"strategy": "d-tree"})
ADAPTIVE = Series("adaptive", {"strategy": "adaptive"})
EXECUTED = (
    MIN_USAGE,
    BALANCE,
    TREE,
    Series("multipath", {"strategy": "multipath"}),
    Series("dcrd", {"strategy": "dcrd"}),
    ADAPTIVE,
)
OUTSIDE_PLAN = Series("not in the plan", {"strategy": "balance"}, "promised", "grey", variant=True)
JUST_FULL = "Links carry just what the balanced plan needs: the fullest is full."

EXECUTION = (
    Figure(
        "5.1", "Simulated plans, 100 nodes", JUST_FULL, {"kind": "simulated"},
        (
            Panel("Undelivered", SHARE, "undelivered"),
            Panel("Traffic", "packets per wanted delivery", "packets", percent=False),
            Panel("Drops (some packets are sent again)", "drops per wanted delivery (%)", "dropped", share=False),
            Panel("Delay, 99th percentile", "seconds", "delay_s", percent=False),
        ),
        EXECUTED, SIMULATED_POPULARITY,
    ),
    Figure(
        "5.2", "Simulated plans on larger networks, popularity 0.45", JUST_FULL, {"kind": "simulated"},
        (
            Panel("Undelivered", SHARE, "undelivered"),
            Panel("Load of the fullest link on single paths", "% of its capacity", "single_load", share=False),
        ),
        (MIN_USAGE, BALANCE, TREE, ADAPTIVE), Axis("nodes", (100, 200, 300), (100,), "nodes", coarse=(100, 200)),
    ),
    Figure(
        "5.3", "Load, 100 nodes, popularity 0.25",
        "At load 1 everything just fits. Above it, a plan carries the most valuable messages.",
        {"kind": "simulated", "popularity": 0.25},
        (
            Panel("Undelivered", SHARE, "undelivered", (*EXECUTED, OUTSIDE_PLAN)),
            Panel("Delivery graphs per message", "graphs", "graphs", (MIN_USAGE, BALANCE), percent=False),
        ),
        axis=Axis(
            "load", (0.5, 0.75, 1.0, 1.25, 1.5), (0.5,), "offered load / load that fits", coarse=(0.5, 1.5)
        ),
    ),
    Figure(
        "at once", "All messages at once, 100 nodes, popularity 0.45",
        "Links carry just what the balanced plan needs. At 1, a queue holds all messages that its link carries.",
        {"kind": "simulated", "at_once": True},
        (
            Panel("Undelivered", SHARE, "undelivered"),
            Panel("Drops (some packets are sent again)", "drops per wanted delivery (%)", "dropped", share=False),
            Panel("Delay, 99th percentile", "seconds", "delay_s", percent=False),
        ),
        (MIN_USAGE, BALANCE, TREE, ADAPTIVE),
        Axis(
            "queue_share", (0.05, 0.1, 0.25, 0.5, 1.0), (0.25,), "length of queues / messages of a link",
            coarse=(0.25,),
        ),
    ),
)  # fmt: skip

SMOKE: dict[str, Fields] = {"cell": {"most_k": 3, "scale": 20}, "simulated": {"scale": 200, "duration_s": 5.0}}

CAMPR = Study(
    name="campr",
    title="Congestion avoidance by multipath planning",
    paper="The CAMPR thesis, section 3.5, chapters 4 and 5 (Table 4.1 up to 1000 nodes, Table 5.1 up to 300)",
    sizes=(
        Size(name="smoke", seeds=1, trials=TRIALS, thin=True, by_kind=SMOKE),
        Size(name="default", seeds=4, trials=TRIALS, coarse=True),
        Size(name="full", seeds=10, trials=TRIALS, by_kind={"cell": {"most_k": 10}}),
    ),
    figures=(
        _make_figure("4.1", "Undelivered", 100, 5000, UNDELIVERED),
        _make_figure("4.2", "Undelivered", 100, 10000, UNDELIVERED),
        _make_figure("4.3", "Undelivered", 200, 10000, UNDELIVERED),
        _make_figure("4.4", "Undelivered", 300, 10000, UNDELIVERED),
        _make_figure("4.8", "Required k", 100, 1000, REQUIRED_K),
        _make_figure("4.9", "Required k", 100, 4000, REQUIRED_K),
        _make_figure("4.10", "Required k", 200, 4000, REQUIRED_K),
        _make_figure("4.11", "Required k", 200, 10000, REQUIRED_K),
        _make_figure("4.12", "Required k", 300, 10000, REQUIRED_K),
        _make_figure("4.13", "Required k", 400, 10000, REQUIRED_K[:1]),
        _make_figure("4.14", "Required k", 500, 10000, REQUIRED_K[:1]),
        _make_figure("4.15", "Required k", 1000, 10000, REQUIRED_K[:1]),
        _make_figure("4.16", "Solution time", 100, 1000, TIMES),
        _make_figure("4.17", "Solution time", 100, 4000, TIMES),
        _make_figure("4.18", "Solution time", 200, 4000, TIMES),
        _make_figure("4.19", "Solution time", 200, 10000, TIMES),
        _make_figure("4.20", "Solution time", 300, 10000, TIMES),
        _make_figure("4.21", "Solution time", 400, 10000, TIMES[:3]),
        _make_figure("4.22", "Solution time", 500, 10000, TIMES[:3]),
        _make_figure("4.23", "Solution time", 1000, 10000, TIMES[:3]),
        NEEDS,
        ACROSS,
        WHY,
        RANKINGS,
        *EXECUTION,
    ),
    remarks=(
        "Honest: each message is a flow of one message of 2 kB a second. A link carries 20 to 60 Mbit/s, and a peer "
        "receives as much as its links together carry. Every delivery graph reaches all its receivers. On single "
        "paths, full peers drop messages evenly; so they do under the balanced plan if no plan fits. Every routing "
        "loses the receivers' floor.",
        "Program as printed: Appendix A of the thesis, taken literally. A known path replaces the delivery graph. A "
        "graph without a path costs nothing and reaches nobody. The last publisher never publishes. Receivers "
        "outside the graph are not counted. The study shows it to explain the thesis's numbers; it is no method of "
        "planning.",
        "Undelivered does not fall with nodes. Section 4.4 says that it does, because there are more paths to "
        "choose from; but a single path leaves no choice. Figure nodes shows the reason. A peer receives the same "
        "share of all messages in a network of any size, over about four links, so the receivers' floor does not "
        "fall. A delivery takes more hops, and each hop may drop it. For the program as printed it falls: there a "
        "message loads one path and not a tree, while the nodes that share the load, and the number of deliveries, "
        "grow with the network. Taken literally (a link carries 20 messages, and publishing counts like receiving), "
        "nearly everything is lost at any size. Unpopular messages lose less if more publishers share them.",
        "Section 3.5 gives no numbers for its rankings. Paths by capacity are slow, as it says; but already the first "
        "one spreads the load about as well as several bottleneck-disjoint ones do. A path that is rejected unless it "
        "is wider leaves little to choose from.",
        "Chapter 5 runs the plans in the simulator. One flow of one message a second stands for a hundred messages, "
        "evenly spaced over ten seconds. Links serialise, with queues of 32. ACKs use no capacity, nothing fails, "
        "and deadlines never bind. Strategies without a plan get the same links and the same events. If "
        "capacities are per node, peers serialise what they receive, and links carry any load. The thesis publishes "
        "all messages at once. Figure at once does so, too. A queue that holds all messages that its link carries "
        "loses none of a plan. Messages that follow each other over a full link reach the next one spread, so single "
        "paths lose fewer messages than the loads of links suggest.",
    ),
)
