"""Chapter 4 of the CAMPR thesis, as data: what single paths lose, how many paths a plan needs, what it costs.

The thesis's figures cannot come from the model that it describes: at its capacities the receivers alone would lose
nearly everything. They come from defects of the program in its Appendix A. So every figure stands here twice: for
the model as described, with units (`honest`), and for the program as printed (`printed`), which is there only to
explain the thesis's numbers.
"""

from wend.studies.campr_trials import CAPACITIES, TRIALS
from wend.studies.study import Axis, Figure, Panel, Series, Size, Study

HONEST, PRINTED = "honest", "printed"
COLOURS = dict(zip(CAPACITIES, ("#D55E00", "#E69F00", "#009E73", "#0072B2", "#CC79A7"), strict=True))

POPULARITY = Axis(
    field="popularity",
    values=(0.05, 0.25, 0.45, 0.65, 0.85),
    thin=(0.25, 0.85),
    label="popularity (share of the receivers that want a message)",
)
SHARE = "deliveries that are lost (%)"


def _by_capacity(metric: str, strategy: str) -> tuple[Series, ...]:
    """A line for each capacity of the grid: they are figures of one and the same trial."""
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
        base={"nodes": nodes, "messages": messages},
        axis=POPULARITY,
        panels=panels,
        series=(),
    )


def _needs(nodes: int, messages: int) -> Panel:
    lines = (("receivers' floor", "needed_floor", "#7F7F7F"), ("single paths", "needed_1", "#D55E00"))
    return Panel(
        title=f"{nodes} nodes, {messages} messages",
        label="capacity per link that is needed (Mbit/s)",
        percent=False,
        at={"nodes": nodes, "messages": messages},
        series=tuple(
            Series(label=label, fields={"strategy": HONEST}, metric=metric, colour=colour)
            for label, metric, colour in (*lines, ("planned", "needed", "#0072B2"))
        ),
    )


NEEDS = Figure(
    name="needs",
    title="What k can move, and what it cannot",
    caption="The least capacity per link at which nothing is lost. k is raised only until 20 Mbit/s suffice.",
    base={},
    axis=POPULARITY,
    panels=(_needs(100, 4000), _needs(200, 4000), _needs(200, 10000), _needs(300, 10000)),
    series=(),
)

CAMPR = Study(
    name="campr",
    title="Congestion avoidance by multipath planning",
    paper="The CAMPR thesis, chapter 4 (Table 4.1, up to 300 nodes)",
    sizes=(
        Size(name="smoke", seeds=1, trials=TRIALS, thin=True, fixed={"most_k": 3, "scale": 20}),
        Size(name="default", seeds=3, trials=TRIALS),
        Size(name="full", seeds=10, trials=TRIALS, fixed={"most_k": 10}),
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
    ),
    remarks=(
        "Honest: a message is a flow of one message of 2 kB a second, a link carries 20 to 60 Mbit/s, and a peer takes "
        "in what its links together bring. Every delivery graph reaches all its receivers. Single paths lose what full "
        "peers drop, evenly, and so does the balanced plan where none fits; the receivers' floor is lost under any "
        "routing.",
        "Program as printed: Appendix A of the thesis to the letter. A known path replaces the delivery graph, graphs "
        "without a path are free ways to nowhere, the last publisher is silent, and receivers outside the graph are "
        "not counted. It is shown to explain the thesis's numbers, not as a way to plan.",
    ),
)
