"""Section 4 of the esposito paper, as data: clusters with replicated coordinators, beside Scribe.

The paper compares its clusters with unmodified Scribe, on underlays whose AS have one border link or several. Beside
them stand Wend's Scribe with an ACK per hop, clusters whose trees choose any parents, and the overlay of coordinators
with adaptive routing. A table follows of all strategies under the nine faults of section 2.2.
"""

from wend.studies.esposito.fault_matrix import STRATEGIES as MATRIX_STRATEGIES
from wend.studies.esposito.runs import STRATEGIES
from wend.studies.esposito.trials import MATRIX, TRIALS, matrix_metric
from wend.studies.study_model import Axis, Fields, Figure, MetricRow, MetricTable, Panel, Series, Size, Study

EVERY = {
    "scribe": Series(label="scribe", fields={"strategy": "scribe"}),
    "scribe-acks": Series(label="scribe, ACK per hop", fields={"strategy": "scribe-acks"}, variant=True),
    "clusters": Series(label="clusters", fields={"strategy": "clusters"}),
    "clusters-any": Series(label="clusters, any parents", fields={"strategy": "clusters-any"}, variant=True),
    "clusters-adaptive": Series(label="clusters, adaptive", fields={"strategy": "clusters-adaptive"}),
}
KNOWN = {name: series for name, series in EVERY.items() if name in STRATEGIES}


def _of(*names: str) -> tuple[Series, ...]:
    return tuple(KNOWN[name] for name in names if name in KNOWN)


COMPARED = _of("scribe", "clusters", "clusters-adaptive")
BY_HOMING: tuple[tuple[str, Fields], ...] = (
    ("single-homed", {"homing": "single"}),
    ("multi-homed", {"homing": "multi"}),
)
NODES = Axis(field="nodes", values=(40, 80, 120, 160, 200), thin=(40,), label="nodes")
FEW_NODES = Axis(field="nodes", values=(40, 120, 200), thin=(40,), label="nodes")
BACKUPS = Axis(field="backups", values=(0, 1, 2, 3), thin=(1,), label="k: backups of each coordinator")
LATENCY = "mean latency (ms)"
DEVIATION = "standard deviation (ms)"
SUCCESS = "delivered, of the wanted events (%)"
CRASHES: Fields = {"kind": "crashes"}
TABLE_NODES = 80


def _panels(metric: str, title: str, label: str, *, percent: bool = False) -> tuple[Panel, ...]:
    return tuple(
        Panel(title=f"{title}, {name}", metric=metric, label=label, at=at, percent=percent) for name, at in BY_HOMING
    )


def _with(series: tuple[Series, ...], label: str, colour: str, fields: Fields) -> tuple[Series, ...]:
    return tuple(
        Series(label=f"{one.label}, {label}", fields={**one.fields, **fields}, colour=colour) for one in series
    )


_FAULT_LINES = (
    *_with(_of("clusters"), "links crash", "green", {"crashes": "links"}),
    *_with(_of("clusters"), "nodes crash", "blue", {"crashes": "nodes"}),
    *_with(_of("scribe"), "nodes crash", "pink", {"crashes": "nodes"}),
)
_BY_COORDINATORS = (
    *_with(_of("clusters"), "p = 1", "orange", {"coordinators": 1}),
    *_with(_of("clusters"), "p = 2", "green", {"coordinators": 2}),
)

FIGURES = (
    Figure(
        name="10",
        title="Scalability, timeliness and reliability with link crashes",
        caption="Latency of what arrived, repaired events included.",
        base={**CRASHES, "crashes": "links"},
        axis=NODES,
        panels=(
            *_panels("latency_ms", "Latency", LATENCY),
            *_panels("deviation_ms", "Deviation", DEVIATION),
            *_panels("success", "Success rate", SUCCESS, percent=True),
        ),
        series=COMPARED,
    ),
    Figure(
        name="11",
        title="Link crashes and process crashes",
        caption="Single-homed. Nodes that are down at a publication do not count.",
        base={**CRASHES, "homing": "single"},
        axis=FEW_NODES,
        panels=(
            Panel(title="Latency", metric="latency_ms", label=LATENCY, percent=False),
            Panel(title="Success rate", metric="success", label=SUCCESS),
        ),
        series=_FAULT_LINES,
    ),
    Figure(
        name="11-k",
        title="Process crashes against the degree of replication",
        caption="40 nodes, single-homed: clusters of about 5.",
        base={**CRASHES, "crashes": "nodes", "homing": "single", "nodes": 40},
        axis=BACKUPS,
        panels=(
            Panel(title="Success rate", metric="success", label=SUCCESS),
            Panel(title="99th percentile of latency", metric="latency_p99_ms", label="latency (ms)", percent=False),
        ),
        series=_BY_COORDINATORS,
    ),
    Figure(
        name="calm",
        title="Latency without crashes",
        caption="The nodes are in the same 8 domains everywhere.",
        base={**CRASHES, "crashes": "none"},
        axis=FEW_NODES,
        panels=_panels("latency_ms", "Latency", LATENCY),
        series=COMPARED,
    ),
)

_TABLE: Fields = {**CRASHES, "crashes": "links", "homing": "single", "nodes": TABLE_NODES}
_TREES = _of("scribe", "clusters-any", "clusters")


def _matrix_table(name: str, title: str, text: str, *metrics: tuple[str, str, bool]) -> MetricTable:
    """Strategies are columns; each fault has a row for each metric."""
    rows = [
        MetricRow(label=f"{fault}: {label}", metric=matrix_metric(fault, metric), percent=percent, digits=1)
        for fault in MATRIX
        for metric, label, percent in metrics
    ]
    columns = tuple((strategy, {"kind": "matrix", "strategy": strategy}) for strategy in MATRIX_STRATEGIES)
    return MetricTable(name=name, title=title, text=text, columns=columns, rows=tuple(rows))


TABLES = (
    MetricTable(
        name="Costs",
        title=f"Link crashes, {TABLE_NODES} nodes, single-homed",
        text="Messages: all of a run, those of memberships included. A rejected failure would partition the underlay.",
        columns=tuple((series.label, {**_TABLE, **series.fields}) for series in KNOWN.values()),
        rows=(
            MetricRow(label="delivered", metric="success", percent=True),
            MetricRow(label="mean latency, ms", metric="latency_ms", digits=1),
            MetricRow(label="median latency, ms", metric="latency_median_ms", digits=1),
            MetricRow(label="99th percentile of latency, ms", metric="latency_p99_ms", digits=1),
            MetricRow(label="messages per delivery", metric="per_delivery", digits=1),
            MetricRow(label="deliveries that were doubled", metric="doubled", digits=0),
            MetricRow(label="links that are down", metric="links_down", percent=True),
            MetricRow(label="rejected failures in an hour", metric="rejected", digits=0),
            MetricRow(label="clusters", metric="clusters", digits=0),
        ),
    ),
    MetricTable(
        name="Overlap",
        title="Routers that two trees share",
        text=(
            "Local: a pair is two edges of one node in different trees. Global: a pair is the two routes of an event, "
            f"for all sources and destinations. {TABLE_NODES} nodes; Scribe's two trees are those of two topics."
        ),
        columns=tuple(
            (f"{series.label}, {name}", {"kind": "overlap", "nodes": TABLE_NODES, **at, **series.fields})
            for name, at in BY_HOMING
            for series in _TREES
        ),
        rows=(
            MetricRow(label="local: shared routers of a pair", metric="local_shared"),
            MetricRow(label="local: pairs that overlap", metric="local_overlapping", percent=True),
            MetricRow(label="global: shared routers of a pair", metric="route_shared"),
            MetricRow(label="global: pairs that overlap", metric="route_overlapping", percent=True),
        ),
    ),
    _matrix_table(
        "Faults",
        "Faults and strategies: delivered, on time",
        "Random worlds of 10 to 16 peers. A world is the same for all strategies.",
        ("delivered", "delivered", True),
        ("on_time", "on time", True),
    ),
    _matrix_table(
        "Doubled and lost",
        "Faults and strategies: doubled, lost, broken promises",
        "In each world. A promise is what the strategy guarantees, checked from the trace.",
        ("doubled", "doubled", False),
        ("lost", "lost", False),
        ("broken", "broken promises", False),
    ),
)

ESPOSITO = Study(
    name="esposito",
    title="Clusters with replicated coordinators, and trees that share few routers",
    paper="The esposito paper, section 4 (300 routers, 8 AS, up to 200 nodes)",
    sizes=(
        Size(
            name="smoke", seeds=1, trials=TRIALS, thin=True,
            by_kind={"crashes": {"duration_s": 45.0}, "matrix": {"worlds": 1}},
        ),
        Size(name="default", seeds=5, trials=TRIALS),
        Size(
            name="full", seeds=10, trials=TRIALS,
            by_kind={"crashes": {"duration_s": 7200.0}, "matrix": {"worlds": 10}},
        ),
    ),
    figures=FIGURES,
    tables=TABLES,
    remarks=(
        "Links crash for 10 to 1200 s (uniform); the time to the next crash of a link is exponential with a mean of "
        "5000 s. A crash that would partition the underlay is rejected, so the only border link of an AS never fails. "
        "Nodes crash by the same distributions, which the paper does not state.",
        "Routes of the underlay do not change during an outage: a path is down while a link of it is down that is "
        "between domains or in a domain of others. In their own domain peers always reach each other and its border: "
        "section 3.2 takes delivery inside a domain as reliable, and looks for failures in transit.",
        "The paper simulates 2 hours. Here a run is 2 minutes (--full: 2 hours), and failures have been going on for 3 "
        "hours when it begins: peers join, then what is down goes down, and after 30 s events count. So a run sees as "
        "many failures at a time as the paper's. More topologies stand for more time.",
        "One node publishes a message every second, and all others subscribe. Ten nodes publish in turn, each on a "
        "topic of its own, so that no result depends on the place of one root.",
        "`scribe` sends every message once and its Pastry probes neighbours once a minute, as in the simulator that "
        "the paper used. With ACKs per hop it is Wend's own Scribe with its defaults.",
        "Latency is measured over all deliveries, also over those that were repaired late.",
    ),
)  # fmt: skip
