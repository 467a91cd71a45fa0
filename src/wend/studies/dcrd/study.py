"""Figures 2 to 8 of the DCRD paper (section IV), as data.

In the paper an acknowledgement takes no time (`ack = "free"`), and so it does here for the five strategies that the
paper compares. The same figures also show real round trips: the same algorithm with them, and Wend's own `adaptive`,
which always uses them.
"""

from wend.studies.study_model import Axis, ComparisonTable, Figure, Panel, Series, Size, Study


def _series(label: str, variant: bool = False, **fields: object) -> Series:
    return Series(label=label, fields=fields, variant=variant)


DCRD_FREE = _series("dcrd", strategy="dcrd", ack="free")
DCRD_ROUND_TRIP = _series("dcrd, round trip", True, strategy="dcrd", ack="round-trip")
ORACLE = _series("oracle", strategy="oracle", ack="free")
PAPER = (
    DCRD_FREE,
    _series("r-tree", strategy="r-tree", ack="free"),
    _series("d-tree", strategy="d-tree", ack="free"),
    _series("multipath", strategy="multipath", ack="free"),
    ORACLE,
)
ADAPTIVE = (
    _series("adaptive, tight", strategy="adaptive", ack="round-trip", redundancy="tight"),
    _series("adaptive, none", True, strategy="adaptive", ack="round-trip", redundancy="none"),
)
ALL = (*PAPER, DCRD_ROUND_TRIP, *ADAPTIVE)
MOST = (*PAPER, DCRD_ROUND_TRIP, ADAPTIVE[0])

MESH = {"topology": "full-mesh", "peers": 20}
DEGREE_5 = {"topology": "regular", "peers": 20, "degree": 5}
DEGREE_8 = {"topology": "regular", "peers": 20, "degree": 8}

DELIVERY = Panel(title="Delivery", metric="delivery", label="delivered (%)")
ON_TIME = Panel(title="On time", metric="on_time", label="delivered on time (%)")
SHARED = Panel(
    title="Traffic, shared (one copy per link)",
    metric="packets_shared",
    label="data packets per subscriber",
    percent=False,
)
UNICAST = Panel(
    title="Traffic, unicast (one copy per subscriber)",
    metric="packets_unicast",
    label="data packets per subscriber",
    percent=False,
)
FOUR = (DELIVERY, ON_TIME, SHARED, UNICAST)

FAILURES = Axis(
    field="pf",
    values=(0.0, 0.02, 0.04, 0.06, 0.08, 0.10),
    thin=(0.0, 0.06, 0.10),
    label="link failure probability Pf (per link and second)",
)

LATE = Panel(
    title="",
    label="late packets that arrived (%)",
    curve=((1.0, None), (1.25, "late_within_1_25"), (1.5, "late_within_1_5"), (1.75, "late_within_1_75")),
    curve_label="delay / deadline",
)


def _late(title: str, **at: object) -> Panel:
    series = (DCRD_FREE, DCRD_ROUND_TRIP, ADAPTIVE[0])
    return Panel(title=title, label=LATE.label, curve=LATE.curve, curve_label=LATE.curve_label, at=at, series=series)


def _by_m(*series: Series) -> tuple[Series, ...]:
    """Each series twice: with one transmission per link, and (broken line) with two."""
    return tuple(
        Series(label=f"{one.label}, m = {m}", fields={**one.fields, "transmissions": m}, variant=m > 1)
        for one in series
        for m in (1, 2)
    )


FIGURE_2 = Figure(
    name="2",
    title="Full mesh",
    caption="20 peers, every pair linked.",
    base=MESH,
    axis=FAILURES,
    panels=FOUR,
    series=ALL,
)
FIGURE_3 = Figure(
    name="3",
    title="Degree 5",
    caption="20 peers, random regular graphs of degree 5.",
    base=DEGREE_5,
    axis=FAILURES,
    panels=FOUR,
    series=ALL,
)
FIGURE_4 = Figure(
    name="4",
    title="Connectivity",
    caption="20 peers, random regular graphs, Pf = 0.06.",
    base={"topology": "regular", "peers": 20, "pf": 0.06},
    axis=Axis(field="degree", values=(3, 4, 5, 6, 7, 8, 9, 10), thin=(3, 5, 8), label="node degree (links per peer)"),
    panels=FOUR,
    series=MOST,
)
FIGURE_5 = Figure(
    name="5",
    title="Network size",
    caption="Random regular graphs of degree 8, Pf = 0.06.",
    base={"topology": "regular", "degree": 8, "pf": 0.06},
    axis=Axis(field="peers", values=(10, 20, 40, 80, 120, 160), thin=(10, 20, 40), label="peers"),
    panels=FOUR,
    series=MOST,
)
FIGURE_6 = Figure(
    name="6",
    title="Deadlines",
    caption="20 peers, degree 8, Pf = 0.06. The deadline is a multiple of the shortest delay.",
    base={**DEGREE_8, "pf": 0.06},
    axis=Axis(
        field="factor",
        values=(1.5, 2.0, 2.5, 3.0, 4.0),
        thin=(1.5, 3.0),
        label="deadline / shortest delay",
    ),
    panels=(ON_TIME, SHARED),
    series=ALL,
)
FIGURE_7 = Figure(
    name="7",
    title="How late the late packets are",
    caption="The share of late packets that arrived within a multiple of the deadline. Pf = 0.06.",
    base={"peers": 20, "pf": 0.06},
    panels=(
        _late("Full mesh", topology="full-mesh"),
        _late("Degree 8", topology="regular", degree=8),
    ),
    series=(DCRD_FREE, DCRD_ROUND_TRIP, ADAPTIVE[0]),
)
FIGURE_8 = Figure(
    name="8",
    title="Packet loss and retransmissions",
    caption="20 peers, degree 8, Pf = 0.01 (the caption of the paper; its text says 0.1). Solid: m = 1, broken: m = 2.",
    base={**DEGREE_8, "pf": 0.01},
    axis=Axis(
        field="pl",
        values=(1e-5, 1e-4, 1e-3, 1e-2, 1e-1),
        thin=(1e-4, 1e-2),
        label="packet loss probability Pl (per link and packet)",
        log=True,
    ),
    panels=(
        Panel(
            title="ACK free",
            metric="on_time",
            label=ON_TIME.label,
            series=_by_m(*PAPER[:4]),
        ),
        Panel(
            title="ACK takes a round trip",
            metric="on_time",
            label=ON_TIME.label,
            series=_by_m(
                Series(label=DCRD_ROUND_TRIP.label, fields=DCRD_ROUND_TRIP.fields),
                ADAPTIVE[0],
            ),
        ),
    ),
    series=(),
)

ACKNOWLEDGEMENTS = ComparisonTable(
    title="The effect of the free acknowledgement",
    text=(
        "On time, in percent; in brackets the data packets (shared) relative to the oracle's. In the paper the sender "
        "knows after the one-way delay whether a packet arrived. With real round trips it knows later, and adaptive "
        "has to make up for the difference."
    ),
    rows=(
        ("degree 5, Pf 0.06, factor 3", {**DEGREE_5, "pf": 0.06}),
        ("degree 5, Pf 0.10, factor 3", {**DEGREE_5, "pf": 0.10}),
        ("degree 8, Pf 0.06, factor 1.5", {**DEGREE_8, "pf": 0.06, "factor": 1.5}),
        ("degree 8, Pf 0.06, factor 2", {**DEGREE_8, "pf": 0.06, "factor": 2.0}),
        ("degree 8, Pf 0.06, factor 3", {**DEGREE_8, "pf": 0.06, "factor": 3.0}),
        ("degree 8, Pf 0.06, factor 4", {**DEGREE_8, "pf": 0.06, "factor": 4.0}),
        ("full mesh, Pf 0.10, factor 3", {**MESH, "pf": 0.10}),
    ),
    series=(ORACLE, DCRD_FREE, DCRD_ROUND_TRIP, *ADAPTIVE, PAPER[3]),
    metric="on_time",
    price="packets_shared",
    reference=ORACLE.label,
)

DCRD = Study(
    name="dcrd",
    title="Delay-Cognizant Reliable Delivery",
    paper="Delay-Cognizant Reliable Delivery for Publish/Subscribe Overlay Networks, section IV",
    sizes=(
        Size(name="smoke", duration_s=20.0, seeds=2, thin=True),
        Size(name="default", duration_s=600.0, seeds=5),
        Size(name="full", duration_s=7200.0, seeds=10),
    ),
    figures=(FIGURE_2, FIGURE_3, FIGURE_4, FIGURE_5, FIGURE_6, FIGURE_7, FIGURE_8),
    comparison=ACKNOWLEDGEMENTS,
)
