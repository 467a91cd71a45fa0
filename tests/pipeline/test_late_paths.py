"""Where late events lost their time, against each route walked by hand."""

from collections import defaultdict
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from wend.pipeline.telemetry.event_rows import DELIVERY, EVENT_SCHEMA, HOP
from wend.pipeline.telemetry.late_paths import find_lost_time

DEADLINE = 100


def hop(event: int, sender: int, peer: int, age: int, link: int, waited: int = 0) -> dict[str, Any]:
    return {"what": HOP, "sequence": event, "sender": sender, "peer": peer, "age_ns": age, "link_ns": link} | {
        "waited_ns": waited
    }


def delivery(event: int, peer: int, age: int, bucket: int = 0) -> dict[str, Any]:
    row = {"what": DELIVERY, "sequence": event, "peer": peer, "age_ns": age, "deadline_ns": DEADLINE}
    return {**row, "bucket": bucket}


def found(rows: list[dict[str, Any]], publisher: int = 0) -> dict[tuple[Any, ...], tuple[int, int]]:
    own = {"publisher": publisher, "publisher_incarnation": 1, "incarnation": 1, "bucket": 0}
    table = pa.Table.from_pylist([{**own, **row} for row in rows], schema=EVENT_SCHEMA)
    table = table.append_column("wanted", pa.array(np.ones(len(rows), bool)))
    return {
        (row["cause"], row["peer"], row["neighbour"]): (row["deliveries"], row["time_ns"])
        for row in find_lost_time(table).to_pylist()
    }


def test_a_route_adds_up_to_the_age() -> None:
    """0 → 3 → 5: 20 waiting at 0, 30 on the link, 40 waiting at 3, 15 on the link, of which 5 in the host, 2 in 5."""
    rows = [hop(7, 0, 3, 50, 30), hop(7, 3, 5, 105, 15, 5), delivery(7, 5, 107), delivery(7, 3, 50)]
    assert found(rows) == {
        ("waiting", 0, 3): (1, 20), ("link", 0, 3): (1, 30), ("receiving", 3, 0): (1, 0),
        ("waiting", 3, 5): (1, 40), ("link", 3, 5): (1, 10), ("receiving", 5, 3): (1, 5),
        ("local", 5, None): (1, 2),
    }  # fmt: skip


def test_the_first_arrival_counts() -> None:
    rows = [hop(7, 0, 5, 300, 10), hop(7, 0, 5, 150, 40), delivery(7, 5, 150)]
    assert found(rows)["waiting", 0, 5] == (1, 110)


def test_a_route_with_a_hole_is_incomplete() -> None:
    rows = [hop(7, 3, 5, 150, 10), delivery(7, 5, 150)]
    assert found(rows)["incomplete", 3, 5] == (1, 140)
    assert found([delivery(7, 5, 150)]) == {("incomplete", 5, None): (1, 150)}


def test_events_in_time_do_not_count() -> None:
    assert found([hop(7, 0, 5, 100, 10), delivery(7, 5, 100)]) == {}


def test_a_publisher_may_be_its_own_late_subscriber() -> None:
    assert found([delivery(7, 0, 150)]) == {("local", 0, None): (1, 150)}


def test_arrivals_in_a_circle_end() -> None:
    rows = [hop(7, 3, 5, 150, 10), hop(7, 5, 3, 140, 10), delivery(7, 5, 150)]
    assert sum(many for (cause, *_), (many, _) in found(rows).items() if cause == "incomplete") == 1


@given(st.integers(0, 10**6))
def test_all_time_of_complete_routes_is_found(seed: int) -> None:
    """On random trees, what is found for all events together is the sum of their ages."""
    rng = np.random.default_rng(seed)
    rows, total, expected = [], 0, defaultdict[int, int](int)
    for event in range(int(rng.integers(1, 6))):
        ages = {0: 0}
        for peer in range(1, int(rng.integers(2, 8))):
            sender = int(rng.integers(0, peer))
            wait, link = (int(value) for value in rng.integers(0, 90, 2))
            ages[peer] = ages[sender] + wait + link
            rows.append(hop(event, sender, peer, ages[peer], link))
            local = int(rng.integers(0, 20))
            rows.append(delivery(event, peer, ages[peer] + local))
            if ages[peer] + local > DEADLINE:
                total += ages[peer] + local
                expected[peer] += local
    order = rng.permutation(len(rows))
    causes = found([rows[at] for at in order])
    assert sum(time for _, time in causes.values()) == total
    for peer, local in expected.items():
        assert causes["local", peer, None][1] == local
