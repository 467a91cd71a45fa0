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
    Places,
    Series,
    Size,
    Study,
    make_metric_series,
)

DMM = Series("dmm", {"strategy": "dmm"})
DMM_CACHE = Series("dmm, TreeCache", {"strategy": "dmm", "cache": True}, variant=True)
AR = Series("dmm-ar", {"strategy": "dmm-ar"})
AR_CACHE = Series("dmm-ar, TreeCache", {"strategy": "dmm-ar", "cache": True}, variant=True)
PUBLISHER: Fields = {"cache": True, "cache_place": "publisher"}
DMM_PUBLISHER = Series("dmm, TreeCache at the publisher", {"strategy": "dmm", **PUBLISHER}, variant=True)
AR_PUBLISHER = Series("dmm-ar, TreeCache at the publisher", {"strategy": "dmm-ar", **PUBLISHER}, variant=True)
HERMES = Series("hermes", {"strategy": "hermes"})
RENDEZVOUS = Series("rendezvous", {"strategy": "rendezvous"})
BOUND = Series("bound: direct", {"strategy": "direct"})
OWN = (RENDEZVOUS, BOUND)
MANY_PEERS = (AR, AR_CACHE, *OWN)
"""In figures with 50 000 peers, where a run takes minutes, and if peers crash."""
EVERY = (DMM, DMM_CACHE, AR, AR_CACHE, HERMES, *OWN)
BY_PREDICATES = (DMM, DMM_CACHE, AR, AR_CACHE, *OWN)

SUBSCRIPTIONS = Axis("subscriptions", (1000, 2000, 5000, 10_000), (300,), "subscriptions", coarse=(1000,))
MEDIUM = Axis("subscriptions", (1000, 5000), (300,), "subscriptions", coarse=(1000,))
LARGE = Axis("subscriptions", (1000, 10_000, 100_000, 300_000), (300,), "subscriptions", log=True)
PREDICATES = Axis("predicates", (1, 2, 5, 10), (1, 10), "predicates of a subscription", coarse=(1, 10))

DELIVERY = "delivered, of the matching events (%)"
MESSAGES = "overlay messages"
SECONDS = "seconds"
SCALE: Fields = {"kind": "scale"}
BY_PREDICATES_BASE: Fields = {"kind": "predicates"}
MEDIUM_BASE: Fields = {"kind": "medium", "peers": 10_000}
LARGE_BASE: Fields = {"kind": "large"}
ZIPF: Fields = {"distribution": "zipf"}
WARM_UP = "Publications grouped by the 10 s in which they were made. The caches are empty at first."


def _subscription_figure(
    name: str, title: str, axis: Axis, base: Fields, panels: tuple[Panel, ...], text: str
) -> Figure:
    series = BY_PREDICATES if axis is PREDICATES else MANY_PEERS if base["kind"] in ("medium", "large") else EVERY
    return Figure(name, title, text, base, panels, series, axis)


def _purpose_panel(of: Series) -> Panel:
    """Make a panel of a strategy's messages by purpose, with the bound."""
    own = make_metric_series(
        of.fields,
        ("publications", "publication_messages", "blue"),
        ("subscriptions", "subscription_messages", "orange"),
        ("TreeCache", "cache_messages", "pink"),
        ("matches", "matches", "grey"),
    )
    bound = Series(BOUND.label, BOUND.fields, "publication_messages", "green", variant=True)
    return Panel(of.label, MESSAGES, series=(*own, bound), percent=False)


def _time_panel(metric: str, title: str, label: str) -> Panel:
    length_s = PERIOD_NS / SECOND
    return Panel(
        title,
        label,
        percent=False,
        curve=tuple((length_s * (at + 0.5), f"{metric}_{at}") for at in range(SLICES)),
        curve_label="seconds since the first publication",
    )


def _delay_figure(name: str, title: str, series: tuple[Series, ...], base: Fields) -> Figure:
    panels = (_time_panel("delay", "Mean delay", SECONDS), _time_panel("median", "Median delay", SECONDS))
    return Figure(name, title, WARM_UP, base, panels, (*series, *OWN))


def _state_panel(kind: str, title: str) -> Panel:
    return Panel(
        title,
        "peers that store at least as many (%)",
        curve=tuple((float(size), f"{kind}_{size}") for size in SIZES),
        curve_label="subscriptions stored at a peer",
        curve_log=True,
    )


PURPOSES = (_purpose_panel(AR_CACHE), _purpose_panel(RENDEZVOUS))
STATES = (_state_panel("all", "All"), _state_panel("leaf", "Leaf"), _state_panel("tree", "Tree"))
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


def _large_figures(suffix: str, peers: str, axis: Axis, base: Fields) -> tuple[Figure, ...]:
    """Make the paper's figures with 50 000 peers, or the same figures with fewer peers."""
    zipf = {**base, **ZIPF}
    text = f"{peers}."
    return (
        _subscription_figure(f"9{suffix}", f"Delivery ratio, {peers}", axis, base, (RATIO,), text),
        Figure(f"12{suffix}", f"Message cost by purpose, {peers}", text, base, PURPOSES, axis=axis),
        _delay_figure(f"16{suffix}", f"Delay of dmm-ar, {peers}", (AR, AR_CACHE), base),
        _subscription_figure(f"21{suffix}", f"Delivery ratio, Zipf, {peers}", axis, zipf, (RATIO,), text),
        Figure(f"22{suffix}", f"Message cost by purpose, Zipf, {peers}", text, zipf, PURPOSES, axis=axis),
        _delay_figure(f"23{suffix}", f"Delay of dmm-ar, Zipf, {peers}", (AR, AR_CACHE), zipf),
    )


FIGURES = (
    _subscription_figure("8", "Delivery ratio", SUBSCRIPTIONS, SCALE, (RATIO,), "5000 peers, 0.1 % of messages lost."),
    _subscription_figure(
        "10", "Message cost", SUBSCRIPTIONS, SCALE, (TOTAL,), "Publications, subscriptions, beacons and TreeCache."
    ),
    Figure(
        "11", "Message cost by purpose",
        "Subscriptions include beacons. ACKs and the DHT's own messages are not counted.",
        SCALE, PURPOSES, axis=SUBSCRIPTIONS,
    ),
    _subscription_figure(
        "13", "Publication messages per match", SUBSCRIPTIONS, SCALE, PER_MATCH, "Without ACKs and beacons."
    ),
    _delay_figure("14-15", "Delay of dmm-ar, without and with TreeCache", (AR, AR_CACHE, AR_PUBLISHER), SCALE),
    _delay_figure("17-18", "Delay of dmm, without and with TreeCache", (DMM, DMM_CACHE, DMM_PUBLISHER, HERMES), SCALE),
    Figure(
        "19", "Hops of a delivery", WARM_UP, SCALE,
        (_time_panel("hops", "Overlay hops, matching and delivery", "mean hops"),), (*EVERY, AR_PUBLISHER),
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
    _subscription_figure(
        "24", "Delivery ratio against predicates", PREDICATES, BY_PREDICATES_BASE, (RATIO, *MEAN_DELAYS),
        "Only the first predicate selects, so the matches are the same. Publications have all attributes. By default "
        "1000 peers, with --full 5000.",
    ),
    _subscription_figure(
        "25", "Message cost against predicates", PREDICATES, BY_PREDICATES_BASE, (TOTAL, *PER_MATCH), "As Figure 24."
    ),
    Figure(
        "26", "Delivery ratio when a fifth of the peers crash",
        "Publications grouped by 10 s. Subscribers that crashed before a publication do not count.",
        {"kind": "crash"}, (AROUND_THE_CRASH,), MANY_PEERS,
    ),
    *_large_figures("", "50 000 peers", LARGE, LARGE_BASE),
    *_large_figures("-10k", "10 000 peers", MEDIUM, MEDIUM_BASE),
)  # fmt: skip

CHOICE: Fields = {"kind": "choice", "peers": 1000, "subscriptions": 500}
CHOICES: tuple[tuple[str, Fields], ...] = (
    ("as studied", {}),
    ("routing tables: nearest of 8, not 32", {"candidates": 8}),
    ("0.4 of the pairs of transit domains linked, not 0.7", {"density": 0.4}),
    ("all pairs of transit domains linked", {"density": 1.0}),
)
CACHE_PLACES: tuple[tuple[str, Fields], ...] = (
    ("cache at the publisher's peer", {"cache_place": "publisher"}),
    ("the same, filled by every arrival", {"cache_place": "every-arrival"}),
)
OBSERVED: Fields = {"primary": "observed"}
PRIMARY_CHOICES: tuple[tuple[str, Fields], ...] = (
    ("primary attribute by observed events", OBSERVED),
    ("Zipf", ZIPF),
    ("Zipf, primary attribute by observed events", {**ZIPF, **OBSERVED}),
)
CRASH_CHOICE: Fields = {"kind": "crash-choice", "peers": 1000, "subscriptions": 500, "crashed": 200}
CRASH_CHOICES: tuple[tuple[str, Fields], ...] = (
    ("crash at 120 s, as studied", {"crash_s": 120.0}),
    ("crash at 400 s", {"crash_s": 400.0}),
)


def _make_places(series: tuple[Series, ...], base: Fields, choices: tuple[tuple[str, Fields], ...]) -> Places:
    return tuple((f"{one.label}: {name}", {**base, **one.fields, **at}) for one in series for name, at in choices)


TABLES = (
    MetricTable(
        "Overview",
        "One thousand subscriptions",
        "Warm: published at least 30 s after the first publication.",
        tuple((one.label, {**SCALE, **one.fields}) for one in (*EVERY, DMM_PUBLISHER, AR_PUBLISHER)),
        (
            MetricRow("delivered", "delivery", percent=True),
            MetricRow(
                "mean delay, s", "delay_s", {AR.label: 15, DMM.label: 10, DMM_CACHE.label: 10, DMM_PUBLISHER.label: 10}
            ),
            MetricRow("median delay, s", "delay_median_s"),
            MetricRow("mean delay, warm, s", "delay_warm_s", {AR_CACHE.label: 3, AR_PUBLISHER.label: 3}),
            MetricRow("median delay, warm, s", "delay_warm_median_s"),
            MetricRow("mean hops", "hops", {AR_CACHE.label: 10, AR_PUBLISHER.label: 10}),
            MetricRow("mean hops, warm", "hops_warm"),
            MetricRow("overlay messages per match", "per_match", {"dmm-ar, TreeCache": 7}),
            MetricRow("physical hops per match", "physical_per_match"),
            MetricRow("messages of detours", "detour_messages", digits=0),
            MetricRow("subscriptions stored, mean", "state_mean"),
            MetricRow("subscriptions stored, most", "state_most", digits=0),
            MetricRow("time of a message, microseconds", "message_us", digits=1),
        ),
    ),
    MetricTable(
        "Sensitivity",
        "What the paper leaves open, and what depends on it",
        "1000 peers and 500 subscriptions, three topologies. The paper does not say how near the entries of its "
        "routing tables are, nor how its transit domains are linked, nor which attribute of a subscription is the "
        "primary one: as studied, the one of whose domain it wants the least. Its text has TreeCache at the last hop "
        "before the tree, as studied.",
        (
            *_make_places((AR, DMM), CHOICE, CHOICES),
            *_make_places((AR_CACHE, DMM_CACHE), CHOICE, CHOICES + CACHE_PLACES),
            *_make_places((AR, AR_CACHE), CHOICE, PRIMARY_CHOICES),
        ),
        (
            MetricRow("delivered", "delivery", percent=True),
            MetricRow("mean delay, s", "delay_s"),
            MetricRow("mean delay, warm, s", "delay_warm_s"),
            MetricRow("mean hops", "hops"),
            MetricRow("messages", "messages", digits=0),
            MetricRow("publication messages per match", "per_match"),
        ),
        settings_are_rows=True,
    ),
    MetricTable(
        "Sensitivity-crash",
        "The time of the crash",
        "A fifth of 1000 peers crash, with 500 subscriptions and three topologies. The paper's peers crash at 400 s.",
        _make_places((AR_CACHE, RENDEZVOUS), CRASH_CHOICE, CRASH_CHOICES),
        (
            MetricRow("seconds until 97 % are delivered", "recovery_s", digits=0),
            MetricRow("delivered", "crash_delivery", percent=True),
        ),
        settings_are_rows=True,
    ),
)

_SMOKE: dict[str, Fields] = {
    "scale": {"peers": 150, "publishers": 20, "subscriptions": 300, "domains": 3},
    "predicates": {"peers": 150, "publishers": 20, "subscriptions": 300, "domains": 3},
    "medium": {"peers": 300, "publishers": 20, "subscriptions": 300, "domains": 3},
    "large": {"peers": 400, "publishers": 20, "subscriptions": 300, "domains": 3},
    "crash": {"peers": 150, "publishers": 100, "subscriptions": 150, "crashed": 30, "domains": 3},
    "choice": {
        "peers": 60,
        "publishers": 10,
        "subscriptions": 60,
        "domains": 6,
    },  # 0.4 of the links of fewer connect no network
    "crash-choice": {"peers": 60, "publishers": 40, "subscriptions": 60, "crashed": 12, "domains": 3},
}
_LARGE: Fields = {"peers": 50_000, "table_s": 86_400.0}
DMM_STUDY = Study(
    name="dmm",
    title="Content-based publish/subscribe on a DHT",
    paper="The dmm paper, section VI (5050 routers, 5000 and 50 000 peers)",
    sizes=(
        Size(name="smoke", seeds=1, trials=TRIALS, thin=True, by_kind=_SMOKE),
        Size(
            name="default",
            seeds=4,
            trials=TRIALS,
            coarse=True,
            leaves_out=frozenset({"large"}),
            shows_only=frozenset({"20"}),
            by_kind={"predicates": {"peers": 1000}},
            seeds_by_kind={"medium": 1, "choice": 3, "crash-choice": 3},
        ),
        Size(name="full", seeds=4, trials=TRIALS, by_kind={"large": _LARGE}),
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
        "Figures with 50 000 peers need --full; those with 10 000 stand for them otherwise, and decide no claim. Peers "
        "among 50 000 probe their routing tables once a day, so not at all during a run.",
        "By default, figures run 1000 subscriptions for all strategies, and more for those that a claim names, because "
        "a run with 10 000 subscriptions takes a minute on each of four topologies. --full runs every point.",
        "Filters that require no attribute live in a space without attributes, and `dmm-ar` sends every event there, "
        "too. The paper has no such filters, so these detours are counted apart, and not among its messages.",
        "TreeCache is at the last hop before the tree, as the text says, and only a walk through the tree fills it. At "
        "the publisher's peer it fits the paper's figures better, so claims and figures have this reading, too.",
    ),
)
