"""Figure 26 of the dmm paper: a fifth of the peers crash at once, and deliveries recover."""

from collections.abc import Mapping

import msgspec
import numpy as np

from wend.drivers.sim.dht_workload import PeerChange, Workload, find_due_pairs
from wend.model.randomness import stream
from wend.model.units import SECOND, Nanos
from wend.studies.dmm.range_workload import (
    SPACING_NS,
    draw_publications,
    draw_rounds,
    draw_subscriptions,
    find_matches,
    make_timed_publications,
    make_timed_subscriptions,
)
from wend.studies.dmm.runs import Metrics, RunSetting, StrategyName, choose_roles, place_peers, play_run


class CrashTrial(msgspec.Struct, frozen=True):
    strategy: StrategyName
    cache: bool = False
    peers: int = 5000
    subscriptions: int = 1000
    publishers: int = 100
    crashed: int = 1000
    loss: float = 0.001
    domains: int = 10
    """Transit domains of the network; each has 505 routers."""
    crash_s: float = 120.0
    """The paper's peers crash at 400 s. Here the overlay is settled at the start, and every peer has sent beacons."""

    @property
    def crash_ns(self) -> Nanos:
        return round(self.crash_s * SECOND)


TABLE_NS: Nanos = 40 * SECOND
"""How often peers probe their routing tables: without ACKs nothing else tells them that an entry is dead."""
WINDOW_NS: Nanos = 10 * SECOND
FIRST_WINDOW, LAST_WINDOW = -6, 20
"""Windows of publications before and after the crash."""
WINDOWS = tuple(range(FIRST_WINDOW, LAST_WINDOW))
RECOVERED = 0.97
"""The delivery of a window that counts as recovered."""
MINUTE_NS: Nanos = 60 * SECOND


def window_name(window: int) -> str:
    return f"window_{'before' if window < 0 else 'after'}_{abs(window)}"


CRASH_METRICS = (*map(window_name, WINDOWS), "recovery_s", "crash_delivery", "crash_messages")


def run_crash(trial: CrashTrial, seed: int) -> Metrics:
    """The delivery ratio around the crash, and the seconds until it has recovered."""
    setting = make_crash_setting(trial, seed)
    played = play_run(setting, trial.strategy, trial.cache, pastry_table_ns=TABLE_NS)
    times = np.array([event.time_ns for event in setting.workload.publications], dtype=np.int64)
    windows = (times[setting.due.publication] - trial.crash_ns) // WINDOW_NS
    shares = {each: float(played.made[windows == each].mean()) for each in WINDOWS if (windows == each).any()}
    return {
        **{window_name(each): share for each, share in shares.items()},
        "recovery_s": compute_recovery_s(shares),
        "crash_delivery": float(played.made.mean()),
        "crash_messages": played.message_counts("publication", "subscription", "cache").sent,
    }


def compute_recovery_s(shares: Mapping[int, float]) -> float:
    """Seconds from the crash to the end of the last window before the first that is recovered, with all later ones
    together. A window without publications is neither good nor bad."""
    after = [each for each in sorted(shares) if each >= 0]
    for place, each in enumerate(after):
        later = [shares[other] for other in after[place:]]
        if shares[each] >= RECOVERED and sum(later) / len(later) >= RECOVERED:
            return (after[place - 1] + 1) * WINDOW_NS / SECOND if place else 0.0
    return (LAST_WINDOW + 1) * WINDOW_NS / SECOND


def make_crash_setting(trial: CrashTrial, seed: int) -> RunSetting:
    publishers, subscribers = choose_roles(trial.peers, trial.publishers, seed)
    drawn = draw_subscriptions(seed, trial.subscriptions, subscribers)
    begin = trial.crash_ns + FIRST_WINDOW * WINDOW_NS
    end = trial.crash_ns + LAST_WINDOW * WINDOW_NS
    count = -(-(end - begin) // MINUTE_NS)
    publisher, times = draw_rounds(seed, publishers, begin, MINUTE_NS, count)
    inside = times < end
    events = draw_publications(seed, publisher[inside], times[inside])
    crashed = stream(seed, "dmm", "crash").permutation(trial.peers)[: trial.crashed]
    change = PeerChange(trial.crash_ns, "crash", tuple(sorted(crashed.tolist())))
    workload = Workload(make_timed_subscriptions(drawn, 0, SPACING_NS), (), make_timed_publications(events), (change,))
    return RunSetting(
        trial.peers,
        workload,
        find_due_pairs(workload, find_matches(drawn, events)),
        place_peers(trial.peers, trial.domains, seed),
        end,
        trial.loss,
        seed,
    )
