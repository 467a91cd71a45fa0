"""Section VI of the dmm paper, as data: content-based matching on a DHT, at 5000 and 50 000 peers.

Beside the paper's algorithms every figure shows Wend's own `rendezvous`, and a bound: a publisher that knows all peers
and sends straight to those of the subscribers. The paper shows means. Delays are bimodal, so medians stand beside them.
"""

from wend.model.units import SECOND
from wend.studies.dmm.crash import WINDOW_NS, WINDOWS, window_name
from wend.studies.dmm.range_workload import PERIOD_NS
from wend.studies.dmm.trials import SIZES, SLICES, TRIALS
from wend.studies.study_model import (
    Axis,
    Fields,
    Figure,
    MetricRow,
    MetricTable,
    Panel,
    Series,
    Size,
    Study,
    metric_series,
)

DMM = Series("dmm", {"strategy": "dmm"})
DMM_CACHE = Series("dmm, TreeCache", {"strategy": "dmm", "cache": True}, variant=True)
AR = Series("dmm-ar", {"strategy": "dmm-ar"})
AR_CACHE = Series("dmm-ar, TreeCache", {"strategy": "dmm-ar", "cache": True}, variant=True)
HERMES = Series("hermes", {"strategy": "hermes"})
RENDEZVOUS = Series("rendezvous", {"strategy": "rendezvous"})
BOUND = Series("bound: direct", {"strategy": "direct"})
OWN = (RENDEZVOUS, BOUND)
MANY_PEERS = (AR, AR_CACHE, *OWN)
"""In figures with 50 000 peers, where a run takes minutes."""
EVERY = (DMM, DMM_CACHE, AR, AR_CACHE, HERMES, *OWN)

SUBSCRIPTIONS = Axis("subscriptions", (1000, 2000, 5000, 10_000), (300,), "subscriptions")
LARGE = Axis("subscriptions", (1000, 10_000, 100_000, 300_000), (300,), "subscriptions", log=True)
PREDICATES = Axis("predicates", (1, 2, 5, 10), (1, 10), "predicates of a subscription")

DELIVERY = "delivered, of the matching events (%)"
MESSAGES = "overlay messages"
SECONDS = "seconds"
SCALE: Fields = {"kind": "scale"}
LARGE_BASE: Fields = {"kind": "large"}
ZIPF: Fields = {"kind": "large", "distribution": "zipf"}
WARM_UP = "Publications grouped by the 10 s in which they were made. The caches are empty at first."
LARGER = "50 000 peers."


def _of_subscriptions(name: str, title: str, axis: Axis, base: Fields, panels: tuple[Panel, ...], text: str) -> Figure:
    return Figure(name, title, text, base, panels, MANY_PEERS if base["kind"] == "large" else EVERY, axis)


def _purpose(of: Series) -> Panel:
    """What the messages of a strategy are for, with the bound."""
    own = metric_series(
        of.fields,
        ("publications", "publication_messages", "blue"),
        ("subscriptions", "subscription_messages", "orange"),
        ("TreeCache", "cache_messages", "pink"),
        ("matches", "matches", "grey"),
    )
    bound = Series(BOUND.label, BOUND.fields, "publication_messages", "green", variant=True)
    return Panel(of.label, MESSAGES, series=(*own, bound), percent=False)


def _over_time(metric: str, title: str, label: str) -> Panel:
    length_s = PERIOD_NS / SECOND
    return Panel(
        title,
        label,
        percent=False,
        curve=tuple((length_s * (at + 0.5), f"{metric}_{at}") for at in range(SLICES)),
        curve_label="seconds since the first publication",
    )


def _delays(name: str, title: str, series: tuple[Series, ...], base: Fields) -> Figure:
    panels = (_over_time("delay", "Mean delay", SECONDS), _over_time("median", "Median delay", SECONDS))
    return Figure(name, title, WARM_UP, base, panels, (*series, *OWN))


def _state(kind: str, title: str) -> Panel:
    return Panel(
        title,
        "peers that store at least as many (%)",
        curve=tuple((float(size), f"{kind}_{size}") for size in SIZES),
        curve_label="subscriptions stored at a peer",
        curve_log=True,
    )


PURPOSES = (_purpose(AR_CACHE), _purpose(RENDEZVOUS))
STATES = (_state("all", "All"), _state("leaf", "Leaf"), _state("tree", "Tree"))
TOTAL = Panel("All messages", MESSAGES, "messages", percent=False)
RATIO = Panel("Delivery ratio", DELIVERY, "delivery")
PER_MATCH = (
    Panel("Overlay messages", "per match", "per_match", percent=False),
    Panel("Physical hops", "per match", "physical_per_match", percent=False),
)
MEAN_DELAYS = (
    Panel("Mean delay, warm", SECONDS, "delay_warm_s", percent=False),
    Panel("Median delay, warm", SECONDS, "delay_warm_median_s", percent=False),
)
AROUND_THE_CRASH = Panel(
    "Delivery ratio",
    DELIVERY,
    curve=tuple((each * WINDOW_NS / SECOND, window_name(each)) for each in WINDOWS),
    curve_label="seconds since the crash",
)

FIGURES = (
    _of_subscriptions("8", "Delivery ratio", SUBSCRIPTIONS, SCALE, (RATIO,), "5000 peers, 0.1 % of messages lost."),
    _of_subscriptions("9", "Delivery ratio, 50 000 peers", LARGE, LARGE_BASE, (RATIO,), LARGER),
    _of_subscriptions(
        "10", "Message cost", SUBSCRIPTIONS, SCALE, (TOTAL,), "Publications, subscriptions, beacons and TreeCache."
    ),
    Figure(
        "11", "Message cost by purpose",
        "Subscriptions include beacons. ACKs and the DHT's own messages are not counted.",
        SCALE, PURPOSES, axis=SUBSCRIPTIONS,
    ),
    Figure("12", "Message cost by purpose, 50 000 peers", LARGER, LARGE_BASE, PURPOSES, axis=LARGE),
    _of_subscriptions(
        "13", "Publication messages per match", SUBSCRIPTIONS, SCALE, PER_MATCH, "Without ACKs and beacons."
    ),
    _delays("14-15", "Delay of dmm-ar, without and with TreeCache", (AR, AR_CACHE), SCALE),
    _delays("16", "Delay of dmm-ar, 50 000 peers", (AR, AR_CACHE), LARGE_BASE),
    _delays("17-18", "Delay of dmm, without and with TreeCache", (DMM, DMM_CACHE, HERMES), SCALE),
    Figure(
        "19", "Hops of a delivery", WARM_UP, SCALE,
        (_over_time("hops", "Overlay hops, matching and delivery", "mean hops"),), EVERY,
    ),
    Figure(
        "20", "Subscription state, 10 000 subscriptions",
        "Leaf: stored to match. Tree: stored on paths of deliveries. The bound stores nothing elsewhere.",
        {**SCALE, "subscriptions": 10_000}, STATES, EVERY[:-1],
    ),
    Figure(
        "20-large", "Subscription state, 300 000 subscriptions, 50 000 peers", "As Figure 20.",
        {**LARGE_BASE, "subscriptions": 300_000}, STATES, MANY_PEERS[:-1],
    ),
    _of_subscriptions("21", "Delivery ratio, Zipf, 50 000 peers", LARGE, ZIPF, (RATIO,), LARGER),
    Figure("22", "Message cost by purpose, Zipf, 50 000 peers", LARGER, ZIPF, PURPOSES, axis=LARGE),
    _delays("23", "Delay of dmm-ar, Zipf, 50 000 peers", (AR, AR_CACHE), ZIPF),
    _of_subscriptions(
        "24", "Delivery ratio against predicates", PREDICATES, SCALE, (RATIO, *MEAN_DELAYS),
        "Only the first predicate selects, so the matches are the same. Publications have all attributes.",
    ),
    _of_subscriptions(
        "25", "Message cost against predicates", PREDICATES, SCALE, (TOTAL, *PER_MATCH), "As Figure 24."
    ),
    Figure(
        "26", "Delivery ratio when a fifth of the peers crash",
        "Publications grouped by 10 s. Subscribers that crashed before a publication do not count.",
        {"kind": "crash"}, (AROUND_THE_CRASH,), EVERY,
    ),
)  # fmt: skip

TABLES = (
    MetricTable(
        "Overview",
        "One thousand subscriptions",
        "Warm: published at least 30 s after the first publication.",
        tuple((one.label, {**SCALE, **one.fields}) for one in EVERY),
        (
            MetricRow("delivered", "delivery", percent=True),
            MetricRow("mean delay, s", "delay_s", {"dmm-ar": 15, "dmm": 10, "dmm, TreeCache": 10}),
            MetricRow("median delay, s", "delay_median_s"),
            MetricRow("mean delay, warm, s", "delay_warm_s", {"dmm-ar, TreeCache": 3}),
            MetricRow("median delay, warm, s", "delay_warm_median_s"),
            MetricRow("mean hops, warm", "hops_warm", {"dmm-ar, TreeCache": 10}),
            MetricRow("overlay messages per match", "per_match", {"dmm-ar, TreeCache": 7}),
            MetricRow("physical hops per match", "physical_per_match"),
            MetricRow("subscriptions stored, mean", "state_mean"),
            MetricRow("subscriptions stored, most", "state_most", digits=0),
            MetricRow("time of a message, microseconds", "message_us", digits=1),
        ),
    ),
)

_SMOKE: dict[str, Fields] = {
    "scale": {"peers": 150, "publishers": 20, "subscriptions": 300, "domains": 3},
    "large": {"peers": 400, "publishers": 20, "subscriptions": 300, "domains": 3},
    "crash": {"peers": 150, "publishers": 100, "subscriptions": 150, "crashed": 30, "domains": 3},
}
_LARGE: Fields = {"peers": 50_000, "spacing_ms": 1.0, "table_s": 86_400.0}
DMM_STUDY = Study(
    name="dmm",
    title="Content-based publish/subscribe on a DHT",
    paper="The dmm paper, section VI (5050 routers, 5000 and 50 000 peers)",
    sizes=(
        Size(name="smoke", seeds=1, trials=TRIALS, thin=True, by_kind=_SMOKE),
        Size(name="default", seeds=1, trials=TRIALS, leaves_out=frozenset({"large"})),
        Size(name="full", seeds=3, trials=TRIALS, by_kind={"large": _LARGE}),
    ),
    figures=FIGURES,
    tables=TABLES,
    remarks=(
        "The paper's algorithms send every message once, without ACKs, as the paper does. `rendezvous` uses ACKs per "
        "hop; these are counted apart.",
        "A message gets lost with a probability of 0.1 %, whatever its physical path. The DHT notices a dead peer "
        "after 30 s. The overlay is settled at the start. It probes its routing tables every hour; if peers crash, "
        "every 40 s.",
        "The paper counts 7 physical messages per match, which fits overlay messages: both are shown. It says that dmm "
        "costs more than dmm-ar; the algorithms as described show the opposite at these sizes.",
        "The bound needs no matching and no lookup: the delay between the two hosts, one message to each peer with a "
        "matching subscription, no losses.",
        "Figures with 50 000 peers need --full. There a subscription follows another after 1 ms, else after 10 ms: the "
        "paper states how many there are, not when they come. These peers probe their routing tables once a day, so "
        "not at all during a run.",
    ),
)
