"""Section VI of the dmm paper, as data: content-based matching on a DHT, at 5000 and 50 000 peers.

Every figure shows Wend's own `rendezvous` and the bound beside the paper's algorithms: a publisher that knows everybody
and sends straight to the subscribers' peers. The paper shows means; delays are bimodal, so medians stand beside them.
"""

from wend.model.units import SECOND
from wend.studies.dmm.crash import WINDOW_NS, WINDOWS, window_name
from wend.studies.dmm.range_workload import PERIOD_NS
from wend.studies.dmm.trials import SIZES, SLICES, TRIALS
from wend.studies.study_model import Axis, Fields, Figure, MetricRow, MetricTable, Panel, Series, Size, Study

DMM = Series(label="dmm", fields={"strategy": "dmm"})
DMM_CACHE = Series(label="dmm, TreeCache", fields={"strategy": "dmm", "cache": True}, variant=True)
AR = Series(label="dmm-ar", fields={"strategy": "dmm-ar"})
AR_CACHE = Series(label="dmm-ar, TreeCache", fields={"strategy": "dmm-ar", "cache": True}, variant=True)
HERMES = Series(label="hermes", fields={"strategy": "hermes"})
RENDEZVOUS = Series(label="rendezvous", fields={"strategy": "rendezvous"})
BOUND = Series(label="bound: direct", fields={"strategy": "direct"})
OWN = (RENDEZVOUS, BOUND)
MANY_PEERS = (AR, AR_CACHE, *OWN)
"""In figures with 50 000 peers, where a run takes minutes."""
EVERY = (DMM, DMM_CACHE, AR, AR_CACHE, HERMES, *OWN)

SUBSCRIPTIONS = Axis(field="subscriptions", values=(1000, 2000, 5000, 10_000), thin=(300,), label="subscriptions")
LARGE = Axis(
    field="subscriptions", values=(1000, 10_000, 100_000, 300_000), thin=(300,), label="subscriptions", log=True
)
PREDICATES = Axis(field="predicates", values=(1, 2, 5, 10), thin=(1, 10), label="predicates of a subscription")

DELIVERY = "delivered, of the matching events (%)"
MESSAGES = "overlay messages"
SECONDS = "seconds"
ZIPF: Fields = {"kind": "large", "distribution": "zipf"}
WARM_UP = "Publications grouped by the 10 s in which they were made. The caches are empty at first."
LARGER = "50 000 peers."


def _of_subscriptions(name: str, title: str, axis: Axis, base: Fields, panels: tuple[Panel, ...], text: str) -> Figure:
    series = MANY_PEERS if base["kind"] == "large" else EVERY
    return Figure(name=name, title=title, caption=text, base=base, axis=axis, panels=panels, series=series)


def _breakdown(*of: Series) -> tuple[Panel, ...]:
    """What messages are for, a panel for each strategy, with the bound."""
    lines = (
        ("publications", "publication_messages", "blue"),
        ("subscriptions", "subscription_messages", "orange"),
        ("TreeCache", "cache_messages", "pink"),
        ("matches", "matches", "grey"),
    )
    bound = Series(label=BOUND.label, fields=BOUND.fields, metric="publication_messages", colour="green", variant=True)

    def panel(one: Series) -> Panel:
        own = [Series(label=label, fields=one.fields, metric=metric, colour=colour) for label, metric, colour in lines]
        return Panel(title=one.label, label=MESSAGES, percent=False, series=(*own, bound))

    return tuple(map(panel, of))


def _over_time(metric: str, title: str, label: str) -> Panel:
    middle = PERIOD_NS / SECOND
    return Panel(
        title=title,
        label=label,
        curve=tuple((middle * (at + 0.5), f"{metric}_{at}") for at in range(SLICES)),
        curve_label="seconds since the first publication",
        percent=False,
    )


def _delays(name: str, title: str, series: tuple[Series, ...], base: Fields, caption: str = WARM_UP) -> Figure:
    return Figure(
        name=name,
        title=title,
        caption=caption,
        base=base,
        panels=(_over_time("delay", "Mean delay", SECONDS), _over_time("median", "Median delay", SECONDS)),
        series=(*series, *OWN),
    )


def _state(kind: str, title: str) -> Panel:
    return Panel(
        title=title,
        label="peers that store at least as many (%)",
        curve=tuple((float(size), f"{kind}_{size}") for size in SIZES),
        curve_label="subscriptions stored at a peer",
        curve_log=True,
    )


STATES = (_state("all", "All"), _state("leaf", "Leaf"), _state("tree", "Tree"))
SCALE: Fields = {"kind": "scale"}
LARGE_BASE: Fields = {"kind": "large"}
TOTAL = Panel(title="All messages", metric="messages", label=MESSAGES, percent=False)
RATIO = Panel(title="Delivery ratio", metric="delivery", label=DELIVERY)
PER_MATCH = (
    Panel(title="Overlay messages", metric="per_match", label="per match", percent=False),
    Panel(title="Physical hops", metric="physical_per_match", label="per match", percent=False),
)
MEAN_DELAYS = (
    Panel(title="Mean delay, warm", metric="delay_warm_s", label=SECONDS, percent=False),
    Panel(title="Median delay, warm", metric="delay_warm_median_s", label=SECONDS, percent=False),
)

FIGURES = (
    _of_subscriptions("8", "Delivery ratio", SUBSCRIPTIONS, SCALE, (RATIO,), "5000 peers, 0.1 % of messages lost."),
    _of_subscriptions("9", "Delivery ratio, 50 000 peers", LARGE, LARGE_BASE, (RATIO,), LARGER),
    _of_subscriptions(
        "10", "Message cost", SUBSCRIPTIONS, SCALE, (TOTAL,), "Publications, subscriptions, beacons and TreeCache."
    ),
    Figure(
        name="11",
        title="Message cost by purpose",
        caption="Subscriptions include beacons. ACKs and the DHT's own messages are not counted.",
        base=SCALE,
        axis=SUBSCRIPTIONS,
        panels=_breakdown(AR_CACHE, RENDEZVOUS),
        series=(),
    ),
    Figure(
        name="12",
        title="Message cost by purpose, 50 000 peers",
        caption=LARGER,
        base=LARGE_BASE,
        axis=LARGE,
        panels=_breakdown(AR_CACHE, RENDEZVOUS),
        series=(),
    ),
    _of_subscriptions(
        "13", "Publication messages per match", SUBSCRIPTIONS, SCALE, PER_MATCH, "Without ACKs and beacons."
    ),
    _delays("14-15", "Delay of dmm-ar, without and with TreeCache", (AR, AR_CACHE), SCALE),
    _delays("16", "Delay of dmm-ar, 50 000 peers", (AR, AR_CACHE), LARGE_BASE),
    _delays("17-18", "Delay of dmm, without and with TreeCache", (DMM, DMM_CACHE, HERMES), SCALE),
    Figure(
        name="19",
        title="Hops of a delivery",
        caption=WARM_UP,
        base=SCALE,
        panels=(_over_time("hops", "Overlay hops, matching and delivery", "mean hops"),),
        series=EVERY,
    ),
    Figure(
        name="20",
        title="Subscription state, 10 000 subscriptions",
        caption="Leaf: stored to match. Tree: stored on paths of deliveries. The bound stores nothing elsewhere.",
        base={**SCALE, "subscriptions": 10_000},
        panels=STATES,
        series=EVERY[:-1],
    ),
    Figure(
        name="20-large",
        title="Subscription state, 300 000 subscriptions, 50 000 peers",
        caption="As Figure 20.",
        base={**LARGE_BASE, "subscriptions": 300_000},
        panels=STATES,
        series=MANY_PEERS[:-1],
    ),
    _of_subscriptions("21", "Delivery ratio, Zipf, 50 000 peers", LARGE, ZIPF, (RATIO,), LARGER),
    Figure(
        name="22",
        title="Message cost by purpose, Zipf, 50 000 peers",
        caption=LARGER,
        base=ZIPF,
        axis=LARGE,
        panels=_breakdown(AR_CACHE, RENDEZVOUS),
        series=(),
    ),
    _delays("23", "Delay of dmm-ar, Zipf, 50 000 peers", (AR, AR_CACHE), ZIPF),
    _of_subscriptions(
        "24", "Delivery ratio against predicates", PREDICATES, SCALE, (RATIO, *MEAN_DELAYS),
        "Only the first predicate selects, so the matches are the same. Publications have all attributes.",
    ),
    _of_subscriptions(
        "25", "Message cost against predicates", PREDICATES, SCALE, (TOTAL, *PER_MATCH), "As Figure 24."
    ),
    Figure(
        name="26",
        title="Delivery ratio when a fifth of the peers crash",
        caption="Publications grouped by 10 s. Subscribers that crashed before a publication do not count.",
        base={"kind": "crash"},
        panels=(
            Panel(
                title="Delivery ratio",
                label=DELIVERY,
                curve=tuple((each * WINDOW_NS / SECOND, window_name(each)) for each in WINDOWS),
                curve_label="seconds since the crash",
            ),
        ),
        series=EVERY,
    ),
)  # fmt: skip

_COLUMNS = tuple((one.label, {**SCALE, **one.fields}) for one in EVERY)
TABLES = (
    MetricTable(
        name="Overview",
        title="One thousand subscriptions",
        text="Warm: published at least 30 s after the first publication.",
        columns=_COLUMNS,
        rows=(
            MetricRow(label="delivered", metric="delivery", percent=True),
            MetricRow(label="mean delay, s", metric="delay_s", paper={"dmm-ar": 15, "dmm": 10, "dmm, TreeCache": 10}),
            MetricRow(label="median delay, s", metric="delay_median_s"),
            MetricRow(label="mean delay, warm, s", metric="delay_warm_s", paper={"dmm-ar, TreeCache": 3}),
            MetricRow(label="median delay, warm, s", metric="delay_warm_median_s"),
            MetricRow(label="mean hops, warm", metric="hops_warm", paper={"dmm-ar, TreeCache": 10}),
            MetricRow(label="overlay messages per match", metric="per_match", paper={"dmm-ar, TreeCache": 7}),
            MetricRow(label="physical hops per match", metric="physical_per_match"),
            MetricRow(label="subscriptions stored, mean", metric="state_mean"),
            MetricRow(label="subscriptions stored, most", metric="state_most", digits=0),
            MetricRow(label="time of a message, microseconds", metric="message_us", digits=1),
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
