"""Figures 2 to 8 of the DCRD paper (section IV), as data.

In the paper an acknowledgement takes no time (`ack = "free"`), and so it does here for the five strategies that the
paper compares. The same figures also show real round trips: the same algorithm with them, and Wend's own `adaptive`,
which always uses them.

Figures with words for names are not in the paper.
"""

from wend.studies.study_model import Axis, ComparisonTable, Fields, Figure, Panel, Series, Size, Study

DCRD_FREE = Series("dcrd", {"strategy": "dcrd", "ack": "free"})
DCRD_ROUND_TRIP = Series("dcrd, round trip", {"strategy": "dcrd", "ack": "round-trip"}, variant=True)
ORACLE = Series("oracle", {"strategy": "oracle", "ack": "free"})
PAPER = (
    DCRD_FREE,
    Series("r-tree", {"strategy": "r-tree", "ack": "free"}),
    Series("d-tree", {"strategy": "d-tree", "ack": "free"}),
    Series("multipath", {"strategy": "multipath", "ack": "free"}),
    ORACLE,
)
_ADAPTIVE = {"strategy": "adaptive", "ack": "round-trip"}
MEASURED = Series(
    "dcrd, measured every 30 s",
    {"strategy": "dcrd", "ack": "free", "estimator": "measured", "monitoring": "30s"},
    variant=True,
)
ADAPTIVE = (
    Series("adaptive, tight", {**_ADAPTIVE, "redundancy": "tight"}),
    Series("adaptive, none", {**_ADAPTIVE, "redundancy": "none"}, variant=True),
)
ALL = (*PAPER, DCRD_ROUND_TRIP, *ADAPTIVE)
MOST = (*PAPER, DCRD_ROUND_TRIP, ADAPTIVE[0])
TIGHT = (DCRD_FREE, DCRD_ROUND_TRIP, ADAPTIVE[0])

MESH = {"topology": "full-mesh", "peers": 20}
DEGREE_5 = {"topology": "regular", "peers": 20, "degree": 5}
DEGREE_8 = {"topology": "regular", "peers": 20, "degree": 8}

_PER_SUBSCRIBER = "data packets per subscriber"
DELIVERY = Panel("Delivery", "delivered (%)", "delivery")
ON_TIME = Panel("On time", "delivered on time (%)", "on_time")
SHARED = Panel("Traffic, shared (one copy per link)", _PER_SUBSCRIBER, "packets_shared", percent=False)
UNICAST = Panel("Traffic, unicast (one copy per subscriber)", _PER_SUBSCRIBER, "packets_unicast", percent=False)
FOUR = (DELIVERY, ON_TIME, SHARED, UNICAST)

FAILURES = Axis(
    "pf", (0.0, 0.02, 0.04, 0.06, 0.08, 0.10), (0.0, 0.06, 0.10), "link failure probability Pf (per link and second)"
)
DEGREES = Axis("degree", (3, 4, 5, 6, 7, 8, 9, 10), (3, 5, 8), "node degree (links per peer)")
MEAN_DEGREES = Axis("degree", (3, 4, 5, 6, 8, 10), (3, 8), "mean node degree")
PEERS = Axis("peers", (10, 20, 40, 80, 120, 160), (10, 20, 40), "peers", coarse=(10, 20, 40, 80))
FACTORS = Axis("factor", (1.5, 2.0, 2.5, 3.0, 4.0), (1.5, 3.0), "deadline / shortest delay")
LOSSES = Axis(
    "pl", (1e-5, 1e-4, 1e-3, 1e-2, 1e-1), (1e-4, 1e-2), "packet loss probability Pl (per link and packet)", log=True
)
MEAN_CRASH_S = 10.0


def make_crash_fields(pn: float) -> Fields:
    """The outages of peers that are down with probability `pn` from the first second on."""
    up_s = MEAN_CRASH_S * (1.0 - pn) / pn
    return {
        "up": {"kind": "exponential", "mean_s": up_s},
        "down": {"kind": "exponential", "mean_s": MEAN_CRASH_S},
        "past_s": 100 * MEAN_CRASH_S,
    }


CRASHES = Axis(
    "peer_outages",
    (0.02, 0.04, 0.06, 0.08, 0.10),
    (0.02, 0.10),
    "probability Pn that a peer is down",
    table=make_crash_fields,
)


def _late_panel(title: str, **at: object) -> Panel:
    within = ((1.0, None), (1.25, "late_within_1_25"), (1.5, "late_within_1_5"), (1.75, "late_within_1_75"))
    return Panel(title, "late packets that arrived (%)", curve=within, curve_label="delay / deadline", at=at)


def _m_series(*series: Series) -> tuple[Series, ...]:
    """Each series twice: with one transmission per link, and (broken line) with two."""
    return tuple(
        Series(f"{one.label}, m = {m}", {**one.fields, "transmissions": m}, variant=m > 1)
        for one in series
        for m in (1, 2)
    )


FIGURE_3 = Figure("3", "Degree 5", "20 peers, random regular graphs of degree 5.", DEGREE_5, FOUR, ALL, FAILURES)
FIGURES = (
    Figure("2", "Full mesh", "20 peers, every pair linked.", MESH, FOUR, ALL, FAILURES),
    FIGURE_3,
    Figure(
        "4", "Connectivity", "20 peers, random regular graphs, Pf = 0.06.",
        {"topology": "regular", "peers": 20, "pf": 0.06}, FOUR, MOST, DEGREES,
    ),
    Figure(
        "5", "Network size", "Random regular graphs of degree 8, Pf = 0.06.",
        {"topology": "regular", "degree": 8, "pf": 0.06}, FOUR, MOST, PEERS,
    ),
    Figure(
        "6", "Deadlines", "20 peers, degree 8, Pf = 0.06. The deadline is a multiple of the shortest delay.",
        {**DEGREE_8, "pf": 0.06}, (ON_TIME, SHARED), ALL, FACTORS,
    ),
    Figure(
        "7", "How late the late packets are",
        "The share of late packets that arrived within a multiple of the deadline. Pf = 0.06.",
        {"peers": 20, "pf": 0.06},
        (_late_panel("Full mesh", topology="full-mesh"), _late_panel("Degree 8", topology="regular", degree=8)), TIGHT,
    ),
    Figure(
        "8", "Packet loss and retransmissions",
        "20 peers, degree 8. Pf = 0.01 in the caption of the paper, and 0.1 in its text. Solid: m = 1, broken: m = 2.",
        {**DEGREE_8, "pf": 0.01},
        (
            Panel("ACK free, Pf = 0.01", ON_TIME.label, "on_time", series=_m_series(*PAPER[:4])),
            Panel("ACK takes a round trip", ON_TIME.label, "on_time", series=_m_series(DCRD_ROUND_TRIP, ADAPTIVE[0])),
            Panel("ACK free, Pf = 0.1", ON_TIME.label, "on_time", series=_m_series(*PAPER[:4]), at={"pf": 0.1}),
        ),
        axis=LOSSES,
    ),
    Figure(
        "mean degree", "Connectivity, with a mean degree",
        "Figure 4 with another reading of its overlays: connected graphs with links chosen among all pairs of peers. "
        "Degrees differ from peer to peer. Pf = 0.06.",
        {"topology": "random", "peers": 20, "pf": 0.06}, FOUR, PAPER, MEAN_DEGREES,
    ),
    Figure(
        "measured", "Measured links",
        "Elsewhere, as in the paper, peers know the delay and reliability of their links. Here they also measure them. "
        "20 peers, degree 5.",
        DEGREE_5, FOUR, (DCRD_FREE, MEASURED), FAILURES,
    ),
    Figure(
        "crashes", "Peers that crash",
        "The paper names node failures as ongoing work and has no figure of them. 20 peers, degree 5, Pf = 0. A peer "
        f"that crashes is down for {MEAN_CRASH_S:g} s on average, loses the packets that it held, and restarts without "
        "its routes. No event is expected at a subscriber that is down when it is published.",
        {**DEGREE_5, "pf": 0.0}, FOUR, (ORACLE, *TIGHT), CRASHES,
    ),
)  # fmt: skip

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
        Size(name="default", duration_s=120.0, seeds=5, coarse=True),
        Size(name="full", duration_s=7200.0, seeds=10),
    ),
    figures=FIGURES,
    comparison=ACKNOWLEDGEMENTS,
)
