"""Chapters 4 and 5 of the CAMPR thesis, as data: the losses of single paths, the number of paths that a plan needs,
the time to find a plan, and simulations of plans.

The figures of chapter 4 cannot come from the model that it describes: at its capacities the receivers alone would lose
nearly everything. They come from defects of the program in its Appendix A. So the study draws these figures twice: for
the model as described, with units (`honest`), and for the program as printed (`printed`), which only explains the
thesis's numbers.
"""

import msgspec

from wend.pipeline.sweeps.trials import Trials
from wend.studies.campr.simulated import SIMULATED
from wend.studies.campr.trials import CAPACITIES, CELLS
from wend.studies.study_model import Axis, Fields, Figure, Panel, Series, Size, Study

TRIALS = Trials((CELLS, SIMULATED))
HONEST, PRINTED = "honest", "printed"
COLOURS = dict(zip(CAPACITIES, ("red", "orange", "green", "blue", "pink"), strict=True))

POPULARITY = Axis(
    field="popularity",
    values=(0.05, 0.25, 0.45, 0.65, 0.85),
    thin=(0.25, 0.85),
    label="popularity (share of the receivers that want a message)",
)
SHARE = "lost deliveries (%)"


def _by_capacity(metric: str, strategy: str) -> tuple[Series, ...]:
    """A line for each capacity of the grid. All are metrics of the same trial."""
    return tuple(
        Series(label=f"{c} Mbit/s", fields={"strategy": strategy}, metric=f"{metric}_{c}", colour=COLOURS[c])
        for c in CAPACITIES
    )


def _panel(title: str, metric: str, strategy: str, label: str, *, percent: bool = True) -> Panel:
    return Panel(title=title, label=label, percent=percent, series=_by_capacity(metric, strategy))


UNDELIVERED = (
    _panel("Single paths", "single", HONEST, SHARE),
    _panel("Planned", "planned", HONEST, SHARE),
    _panel("Receivers' floor: no routing can avoid it", "floor", HONEST, SHARE),
    _panel("Single paths, program as printed", "single", PRINTED, SHARE),
)
REQUIRED_K = (
    _panel("Paths needed", "k", HONEST, "k", percent=False),
    _panel("Paths needed, program as printed", "k", PRINTED, "k", percent=False),
)
TIMES = (
    _panel("Finding paths and delivery graphs", "paths_s", HONEST, "seconds of one core", percent=False),
    _panel("Building and solving the model", "model_s", HONEST, "seconds of one core", percent=False),
)


def _figure(name: str, title: str, nodes: int, messages: int, panels: tuple[Panel, ...]) -> Figure:
    return Figure(
        name=name,
        title=f"{title}, {nodes} nodes, {messages} messages",
        caption="Colours: capacity per link. A line ends where no k suffices.",
        base={"kind": "cell", "nodes": nodes, "messages": messages},
        axis=POPULARITY,
        panels=panels,
        series=(),
    )


def _needs(nodes: int, messages: int) -> Panel:
    lines = (("receivers' floor", "needed_floor", "grey"), ("single paths", "needed_1", "red"))
    return Panel(
        title=f"{nodes} nodes, {messages} messages",
        label="needed capacity per link (Mbit/s)",
        percent=False,
        at={"nodes": nodes, "messages": messages},
        series=tuple(
            Series(label=label, fields={"strategy": HONEST}, metric=metric, colour=colour)
            for label, metric, colour in (*lines, ("planned", "needed", "blue"))
        ),
    )


NEEDS = Figure(
    name="needs",
    title="The capacity that k paths need",
    caption="The least capacity per link at which nothing is lost. k is raised only until 20 Mbit/s suffice.",
    base={"kind": "cell"},
    axis=POPULARITY,
    panels=(_needs(100, 4000), _needs(200, 4000), _needs(200, 10000), _needs(300, 10000)),
    series=(),
)


def _across(popularity: float) -> Panel:
    lines = (
        ("single paths", "single_20", "red"),
        ("single paths, the best drops", "least", "orange"),
        ("planned, k = 3", "planned_20", "blue"),
        ("receivers' floor", "floor_20", "grey"),
    )
    return Panel(
        title=f"Popularity {popularity:g}",
        label=SHARE,
        at={"popularity": popularity},
        series=tuple(
            Series(label=label, fields={"strategy": HONEST}, metric=metric, colour=colour)
            for label, metric, colour in lines
        ),
    )


ACROSS = Figure(
    name="4.5-4.7",
    title="Undelivered against nodes, 10000 messages, 20 Mbit/s",
    caption="One message of twenty is drawn and counts as all of them.",
    base={"kind": "cell", "messages": 10000, "scale": 20, "most_k": 3, "least_at": 20},
    axis=Axis(field="nodes", values=(100, 200, 300, 400, 500, 1000), thin=(100, 300), label="nodes"),
    panels=(_across(0.25), _across(0.45), _across(0.85)),
    series=(),
)


def _by_popularity(metric: str, *chosen: float) -> tuple[Series, ...]:
    colours = {0.05: "pink", 0.25: "green", 0.45: "blue", 0.85: "red"}
    return tuple(
        Series(
            label=f"popularity {p:g}", fields={"strategy": HONEST, "popularity": p}, metric=metric, colour=colours[p]
        )
        for p in chosen
    )


LITERAL: Fields = {"charged": True, "size_kbit": 1000.0, "most_k": 1}
"""Sections 3.6.3 and 4.2 taken literally: capacity is a number of messages, and publishing uses it, too."""

WHY = Figure(
    name="nodes",
    title="Why undelivered does not fall with nodes, 10000 messages, 20 Mbit/s",
    caption="On single paths. Literally: a link carries 20 messages, publishing counts, and the best drops are chosen.",
    base=ACROSS.base,
    axis=ACROSS.axis,
    panels=(
        Panel(
            title="Load of a peer",
            label="messages received, of all (%)",
            series=_by_popularity("intake", 0.25, 0.45, 0.85),
        ),
        Panel(
            title="Distance",
            label="hops of a delivery",
            percent=False,
            series=_by_popularity("hops", 0.25, 0.45, 0.85),
        ),
        Panel(
            title="Undelivered, literally",
            label=SHARE,
            at=LITERAL,
            series=_by_popularity("least", 0.05, 0.45),
        ),
    ),
    series=(),
)

MIN_USAGE = Series(label="plan: minimum usage", fields={"strategy": "min-usage"}, colour="orange")
BALANCE = Series(label="plan: balanced", fields={"strategy": "balance"}, colour="green")
TREE = Series(label="d-tree", fields={"strategy": "d-tree"})
MULTIPATH = Series(label="multipath", fields={"strategy": "multipath"})
DCRD = Series(label="dcrd", fields={"strategy": "dcrd"})
EXECUTED = (MIN_USAGE, BALANCE, TREE, MULTIPATH, DCRD)
PACKETS = "packets per wanted delivery"
DROPPED = "drops per wanted delivery (%)"

EXECUTION = (
    Figure(
        name="5.1",
        title="Simulated plans, 100 nodes",
        caption="Links carry just what the balanced plan needs: the fullest is full.",
        base={"kind": "simulated"},
        axis=msgspec.structs.replace(POPULARITY, thin=(0.25,)),
        panels=(
            Panel(title="Undelivered", label=SHARE, metric="undelivered"),
            Panel(title="Traffic", label=PACKETS, metric="packets", percent=False),
            Panel(title="Drops (some packets are sent again)", label=DROPPED, metric="dropped", share=False),
            Panel(title="Delay, 99th percentile", label="seconds", metric="delay_s", percent=False),
        ),
        series=EXECUTED,
    ),
    Figure(
        name="5.2",
        title="Simulated plans on larger networks, popularity 0.45",
        caption="Links carry just what the balanced plan needs: the fullest is full.",
        base={"kind": "simulated"},
        axis=Axis(field="nodes", values=(100, 200, 300), thin=(100,), label="nodes"),
        panels=(
            Panel(title="Undelivered", label=SHARE, metric="undelivered"),
            Panel(
                title="Load of the fullest link on single paths",
                label="% of its capacity",
                metric="single_load",
                share=False,
            ),
        ),
        series=(MIN_USAGE, BALANCE, TREE),
    ),
    Figure(
        name="5.3",
        title="Load, 100 nodes, popularity 0.25",
        caption="At load 1 everything just fits. Above it, a plan carries the most valuable messages.",
        base={"kind": "simulated", "popularity": 0.25},
        axis=Axis(field="load", values=(0.5, 0.75, 1.0, 1.25, 1.5), thin=(0.5,), label="offered load / load that fits"),
        panels=(
            Panel(
                title="Undelivered",
                label=SHARE,
                metric="undelivered",
                series=(
                    *EXECUTED,
                    Series(
                        label="not in the plan",
                        fields={"strategy": "balance"},
                        metric="promised",
                        colour="grey",
                        variant=True,
                    ),
                ),
            ),
            Panel(
                title="Delivery graphs per message",
                label="graphs",
                metric="graphs",
                percent=False,
                series=(MIN_USAGE, BALANCE),
            ),
        ),
        series=EXECUTED,
    ),
)

SMOKE: dict[str, Fields] = {"cell": {"most_k": 3, "scale": 20}, "simulated": {"scale": 200, "duration_s": 5.0}}

CAMPR = Study(
    name="campr",
    title="Congestion avoidance by multipath planning",
    paper="The CAMPR thesis, chapters 4 and 5 (Tables 4.1 and 5.1, up to 300 nodes)",
    sizes=(
        Size(name="smoke", seeds=1, trials=TRIALS, thin=True, by_kind=SMOKE),
        Size(name="default", seeds=3, trials=TRIALS),
        Size(name="full", seeds=10, trials=TRIALS, by_kind={"cell": {"most_k": 10}}),
    ),
    figures=(
        _figure("4.1", "Undelivered", 100, 5000, UNDELIVERED),
        _figure("4.2", "Undelivered", 100, 10000, UNDELIVERED),
        _figure("4.3", "Undelivered", 200, 10000, UNDELIVERED),
        _figure("4.4", "Undelivered", 300, 10000, UNDELIVERED),
        _figure("4.8", "Required k", 100, 1000, REQUIRED_K),
        _figure("4.9", "Required k", 100, 4000, REQUIRED_K),
        _figure("4.10", "Required k", 200, 4000, REQUIRED_K),
        _figure("4.11", "Required k", 200, 10000, REQUIRED_K),
        _figure("4.12", "Required k", 300, 10000, REQUIRED_K),
        _figure("4.17", "Solution time", 100, 4000, TIMES),
        _figure("4.18", "Solution time", 200, 4000, TIMES),
        _figure("4.20", "Solution time", 300, 10000, TIMES),
        NEEDS,
        ACROSS,
        WHY,
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
        "Chapter 5 runs the plans in the simulator. One flow of one message a second stands for a hundred messages, "
        "evenly spaced over ten seconds. Links serialise, with queues of 32. ACKs use no capacity, nothing fails, "
        "and deadlines never bind. Strategies without a plan get the same links and the same events. If "
        "capacities are per node, peers serialise what they receive, and links carry any load.",
    ),
)
