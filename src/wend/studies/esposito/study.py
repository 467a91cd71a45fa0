"""Section 4 of the esposito paper, as data: clusters with replicated coordinators, beside Scribe.

The paper compares its clusters with unmodified Scribe, on underlays whose AS have one border link or several. Beside
them stand Wend's Scribe with an ACK per hop, clusters whose trees choose any parents, and the overlay of coordinators
with adaptive routing. A table follows of all strategies under the nine faults of section 2.2.
"""

from wend.studies.esposito.fault_matrix import STRATEGIES as MATRIX_STRATEGIES
from wend.studies.esposito.runs import STRATEGIES
from wend.studies.esposito.trials import MATRIX, TRIALS, matrix_metric
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

SERIES = {
    "scribe": Series("scribe", {"strategy": "scribe"}),
    "scribe-acks": Series("scribe, ACK per hop", {"strategy": "scribe-acks"}, variant=True),
    "esposito": Series("esposito, as printed", {"strategy": "esposito"}),
    "clusters": Series("clusters", {"strategy": "clusters"}),
    "clusters-any": Series("clusters, any parents", {"strategy": "clusters-any"}, variant=True),
    "clusters-adaptive": Series("clusters, adaptive", {"strategy": "clusters-adaptive"}),
}


def _find_series(*names: str) -> tuple[Series, ...]:
    """The series of these strategies, without those that Wend lacks."""
    return tuple(SERIES[name] for name in names if name in STRATEGIES)


COMPARED = _find_series("scribe", "esposito", "clusters")
BY_HOMING: Places = (("single-homed", {"homing": "single"}), ("multi-homed", {"homing": "multi"}))
NODES = Axis("nodes", (40, 80, 120, 160, 200), (40,), "nodes", coarse=(40, 120, 200))
FEW_NODES = Axis("nodes", (40, 120, 200), (40,), "nodes")
GROUPS = Axis("groups", (4, 8, 16), (8,), "groups (AS of the underlay)")
ADAPTIVE_NODES = Axis("nodes", (40, 120), (40,), "nodes")
REPLICATION = (0, 1, 2, 3)
BACKUPS = Axis("backups", REPLICATION, (1,), "k: backups of each coordinator")
LATENCY = "mean latency (ms)"
SUCCESS = "delivered, of the wanted events (%)"
CRASHES: Fields = {"kind": "crashes"}
_BY_BACKUPS: Fields = {**CRASHES, "crashes": "nodes", "homing": "single", "nodes": 40}
CALM: Fields = {**CRASHES, "crashes": "none", "duration_s": 60.0}
TABLE_NODES = 80


def _make_variants(name: str, label: str, colour: str, **fields: object) -> tuple[Series, ...]:
    return tuple(Series(f"{one.label}, {label}", {**one.fields, **fields}, colour=colour) for one in _find_series(name))


_FAULT_LINES = (
    *_make_variants("esposito", "links crash", "orange", crashes="links"),
    *_make_variants("esposito", "nodes crash", "red", crashes="nodes"),
    *_make_variants("clusters", "links crash", "green", crashes="links"),
    *_make_variants("clusters", "nodes crash", "blue", crashes="nodes"),
    *_make_variants("scribe", "nodes crash", "pink", crashes="nodes"),
)
_BY_COORDINATORS = (
    *_make_variants("esposito", "p = 1", "orange", coordinators=1),
    *_make_variants("esposito", "p = 2", "red", coordinators=2),
    *_make_variants("clusters", "p = 1", "green", coordinators=1),
    *_make_variants("clusters", "p = 2", "blue", coordinators=2),
)

FIGURES = (
    Figure(
        "10", "Scalability, timeliness and reliability with link crashes",
        "Latency of what arrived, repaired events included.",
        {**CRASHES, "crashes": "links"},
        (
            *make_panels(BY_HOMING, "Latency, {}", LATENCY, "latency_ms", percent=False),
            *make_panels(BY_HOMING, "Deviation, {}", "standard deviation (ms)", "deviation_ms", percent=False),
            *make_panels(BY_HOMING, "Success rate, {}", SUCCESS, "success"),
        ),
        COMPARED, NODES,
    ),
    Figure(
        "10-borders", "Reliability when border links crash, too",
        "The only border link of an AS may be down: then nobody reaches its peers.",
        {**CRASHES, "crashes": "borders"},
        make_panels(BY_HOMING, "Success rate, {}", SUCCESS, "success"),
        COMPARED, FEW_NODES,
    ),
    Figure(
        "10-adaptive", "Adaptive routing between coordinators when border links crash, too",
        "Clusters have routes between coordinators in the place of trees.",
        {**CRASHES, "crashes": "borders"},
        (
            *make_panels(BY_HOMING, "Success rate, {}", SUCCESS, "success"),
            *make_panels(BY_HOMING, "Latency, {}", LATENCY, "latency_ms", percent=False),
        ),
        _find_series("clusters", "clusters-adaptive"), ADAPTIVE_NODES,
    ),
    Figure(
        "11", "Link crashes and process crashes",
        "Single-homed. Nodes that are down at a publication do not count.",
        {**CRASHES, "homing": "single"},
        (Panel("Latency", LATENCY, "latency_ms", percent=False), Panel("Success rate", SUCCESS, "success")),
        _FAULT_LINES, FEW_NODES,
    ),
    Figure(
        "11-k", "Process crashes against the degree of replication",
        "40 nodes, single-homed: clusters of about 5.",
        _BY_BACKUPS,
        (
            Panel("Success rate", SUCCESS, "success"),
            Panel("99th percentile of latency", "latency (ms)", "latency_p99_ms", percent=False),
        ),
        _BY_COORDINATORS, BACKUPS,
    ),
    Figure(
        "calm", "Latency without crashes",
        "The nodes are in the same 8 domains everywhere.",
        CALM,
        make_panels(BY_HOMING, "Latency, {}", LATENCY, "latency_ms", percent=False),
        COMPARED, FEW_NODES,
    ),
    Figure(
        "groups", "Latency against the number of groups", "120 nodes, multi-homed, no crashes. A group is an AS.",
        {**CALM, "homing": "multi", "nodes": 120},
        (Panel("Latency", LATENCY, "latency_ms", percent=False),),
        COMPARED, GROUPS,
    ),
)  # fmt: skip


def _make_matrix_table(name: str, title: str, text: str, *metrics: tuple[str, str, bool]) -> MetricTable:
    """Strategies are columns; each fault has a row for each metric."""
    rows = tuple(
        MetricRow(f"{fault}: {label}", matrix_metric(fault, metric), percent=percent, digits=1)
        for fault in MATRIX
        for metric, label, percent in metrics
    )
    columns = tuple((strategy, {"kind": "matrix", "strategy": strategy}) for strategy in MATRIX_STRATEGIES)
    return MetricTable(name, title, text, columns, rows)


FAILURE_RATES: Places = (
    ("each link", {"kind": "crashes", "failures_per": "link"}),
    ("the network", {"kind": "rare-crashes", "failures_per": "network"}),
)
_BY_RATE: Fields = {"crashes": "borders", "nodes": 40}
_TABLE: Fields = {**CRASHES, "crashes": "links", "homing": "single", "nodes": TABLE_NODES}
TABLES = (
    MetricTable(
        "Costs",
        f"Link crashes, {TABLE_NODES} nodes, single-homed",
        "Messages: all of a run, those of memberships included. A rejected failure would partition the underlay.",
        tuple((series.label, {**_TABLE, **series.fields}) for series in _find_series(*SERIES)),
        (
            MetricRow("delivered", "success", percent=True),
            MetricRow("mean latency, ms", "latency_ms", digits=1),
            MetricRow("median latency, ms", "latency_median_ms", digits=1),
            MetricRow("99th percentile of latency, ms", "latency_p99_ms", digits=1),
            MetricRow("messages per delivery", "per_delivery", digits=1),
            MetricRow("deliveries that were doubled", "doubled", digits=0),
            MetricRow("links that are down", "links_down", percent=True),
            MetricRow("rejected failures in an hour", "rejected", digits=0),
            MetricRow("clusters", "clusters", digits=0),
        ),
    ),
    MetricTable(
        "Replication",
        "Process crashes, by the backups k of each coordinator",
        "40 nodes, single-homed, p = 2. A backup takes over when the coordinator is found dead.",
        tuple(
            (f"{series.label}, k = {k}", {**_BY_BACKUPS, "backups": k, **series.fields})
            for series in _find_series("esposito", "clusters")
            for k in REPLICATION
        ),
        (
            MetricRow("delivered", "success", percent=True, digits=3),
            MetricRow("mean latency, ms", "latency_ms", digits=1),
            MetricRow("99th percentile of latency, ms", "latency_p99_ms", digits=1),
            MetricRow("nodes that are down", "nodes_down", percent=True),
            MetricRow("messages per delivery", "per_delivery", digits=1),
        ),
        settings_are_rows=True,
    ),
    MetricTable(
        "Sensitivity",
        "What 5000 s between failures means",
        "40 nodes; border links crash, too. The paper does not say whether each link fails every 5000 s, as studied, "
        "or one link in the whole network. In the first reading some 7 % of all links are down at any time, in the "
        "second hardly ever more than one link.",
        tuple(
            (f"{series.label}, {homing}: {name}", {**_BY_RATE, **rate, **at, **series.fields})
            for series in _find_series("scribe", "esposito", "clusters")
            for homing, at in BY_HOMING
            for name, rate in FAILURE_RATES
        ),
        (
            MetricRow("delivered", "success", percent=True, digits=2),
            MetricRow("links that are down", "links_down", percent=True, digits=2),
            MetricRow("mean latency, ms", "latency_ms", digits=1),
        ),
        settings_are_rows=True,
    ),
    MetricTable(
        "Overlap",
        "Routers that two trees share",
        "Local: a pair is two edges of one node in different trees. Global: a pair is the two routes of an event, "
        f"for all sources and destinations. {TABLE_NODES} nodes; Scribe's two trees are those of two topics.",
        tuple(
            (f"{series.label}, {name}", {"kind": "overlap", "nodes": TABLE_NODES, **at, **series.fields})
            for name, at in BY_HOMING
            for series in _find_series("scribe", "clusters-any", "clusters")
        ),
        (
            MetricRow("local: shared routers of a pair", "local_shared"),
            MetricRow("local: pairs that overlap", "local_overlapping", percent=True),
            MetricRow("global: shared routers of a pair", "route_shared"),
            MetricRow("global: pairs that overlap", "route_overlapping", percent=True),
        ),
    ),
    _make_matrix_table(
        "Faults",
        "Faults and strategies: delivered, on time",
        "Random worlds of 10 to 16 peers. A world is the same for all strategies.",
        ("delivered", "delivered", True),
        ("on_time", "on time", True),
    ),
    _make_matrix_table(
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
            by_kind={
                "crashes": {"duration_s": 45.0}, "rare-crashes": {"duration_s": 45.0, "nodes": 24},
                "matrix": {"worlds": 1},
            },
        ),
        Size(
            name="default", seeds=8, trials=TRIALS, coarse=True,
            seeds_by_kind={"rare-crashes": 20, "matrix": 5, "overlap": 5},
        ),
        Size(
            name="full", seeds=10, trials=TRIALS,
            by_kind={
                "crashes": {"duration_s": 7200.0}, "rare-crashes": {"duration_s": 7200.0}, "matrix": {"worlds": 10},
            },
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
        "many failures at a time as the paper's. More topologies stand for more time: by default 8, and 20 if failures "
        "are rare. Runs without crashes are 1 minute long. Figure 10 has 40, 120 and 200 nodes (--full: five sizes).",
        "One node publishes a message every second, and all others subscribe. Ten nodes publish in turn, each on a "
        "topic of its own, so that no result depends on the place of one root.",
        "`scribe` sends every message once and its Pastry probes neighbours once a minute, as in the simulator that "
        "the paper used. With ACKs per hop it is Wend's own Scribe with its defaults.",
        "`esposito` is the scheme as printed, without ACKs. `clusters` is what Wend made of it.",
        "Latency is measured over all deliveries, also over those that were repaired late.",
    ),
)  # fmt: skip
