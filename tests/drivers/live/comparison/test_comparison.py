"""`wend up`: nothing is published, and nothing fails, before trees stand; what was published is measured at a stop."""

import asyncio

import pytest

from wend.console import up_command
from wend.drivers.live.access.throwaway_keys import ThrowawayRoot
from wend.drivers.live.comparison import comparison
from wend.drivers.live.comparison.comparison import Comparison
from wend.drivers.scenarios import make_scenario
from wend.drivers.world import build_world
from wend.model.units import MS, SECOND


def run(
    strategies: tuple[str, ...] = ("mrst", "dcrd"), root: ThrowawayRoot | None = None, **fields: object
) -> Comparison:
    world = build_world(make_scenario({"peers": 6, "degree": 3, "pl": 0.0, "warmup": "0.3s", "rate": 10.0, **fields}))

    async def play() -> Comparison:
        made = Comparison(world, strategies, root=root)
        await made.run()
        return made

    return asyncio.run(play())


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "GRACE_NS", 200 * MS)


def test_publishing_begins_when_the_trees_stand() -> None:
    """The warm-up is too short for them."""
    done = run(duration="0.5s", pf=0.0)
    assert done.waits_for == ()
    assert [overlay.meter.notices["queued"] for overlay in done.overlays] == [0, 0]
    assert "were not ready" not in up_command.closing_text(done)


def test_publishing_begins_when_all_peers_have_joined_the_ring() -> None:
    done = run(("rendezvous",), duration="0.5s", pf=0.0)
    assert done.waits_for == ()
    overlay = done.overlays[0]
    assert all(peer.status().plugins["pastry"]["joined"] for peer in overlay.peers)
    assert overlay.meter.totals.delivered == overlay.meter.totals.expected > 0


def test_throw_away_keys_seal_the_links_of_all_strategies() -> None:
    done = run(("dcrd", "mrst", "rendezvous"), ThrowawayRoot(), duration="0.5s", pf=0.0)
    for overlay in done.overlays:
        assert overlay.is_sealed and overlay.meter.totals.delivered == overlay.meter.totals.expected > 0
        assert all(peer.sealed is not None for peer in overlay.peers)


def test_clusters_have_sealed_links_and_multicast_too() -> None:
    done = run(("clusters",), ThrowawayRoot(), duration="0.5s", pf=0.0, degree=4, clusters=2)
    (overlay,) = done.overlays
    assert overlay.is_sealed and overlay.meter.totals.delivered == overlay.meter.totals.expected > 0
    assert overlay.meter.notices["multicast"] > 0 and not overlay.meter.notices["multicast-without-key"]


def test_trees_are_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "TREES_NS", 1)
    done = run(duration="0.1s", pf=0.0)
    assert done.waits_for == ("mrst",)
    assert done.overlays[0].meter.notices["queued"] > 0
    late = "The trees or the ring of mrst were not ready in time, and the first events waited for them."
    assert late in up_command.closing_text(done)


def test_no_link_fails_while_trees_are_waited_for() -> None:
    """All links fail from the first publication on, so trees that stand were built before."""
    at_once = {"up": {"kind": "fixed", "mean_s": 1e-9}, "down": {"kind": "fixed", "mean_s": 100.0}}
    done = run(duration="0.3s", outages=at_once)
    assert done.waits_for == ()
    assert [overlay.meter.totals.delivered for overlay in done.overlays] == [0, 0]


def stopped(*times_ms: int) -> Comparison:
    """Stopped so long after the first publication, each time."""
    fields = {"peers": 6, "degree": 3, "pl": 0.0, "pf": 0.0, "warmup": "0.3s", "rate": 20.0}

    async def play() -> Comparison:
        made = Comparison(build_world(make_scenario(fields)), ("dcrd", "d-tree"))
        running = asyncio.create_task(made.run())
        for after in times_ms:
            while not made.origin_ns or made.elapsed_ns() < made.world.begin_ns + after * MS:
                await asyncio.sleep(0.01)
            made.stop()
        await running
        return made

    return asyncio.run(play())


def test_a_stop_measures_what_was_published_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "GRACE_NS", 10_000 * MS)
    done = stopped(300)
    assert done.elapsed_ns() < done.world.begin_ns + 10_000 * MS, "all events arrived, so nothing is left to wait for"
    rows = done.summaries()
    assert {row.expected for row in rows.values()} == {rows["oracle"].expected} != {0}
    assert [row.delivery for row in rows.values()] == [1.0, 1.0, 1.0]
    assert "deliveries expected of each strategy" in up_command.closing_text(done)


def test_a_stop_before_the_first_publication_says_so() -> None:
    done = stopped(-200)
    assert {row.expected for row in done.summaries().values()} == {0}
    nothing = "Nothing was measured: publishing starts after 0.3 s, when peers have found their routes."
    assert up_command.closing_text(done) == nothing


def test_a_killed_coordinator_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Events that come by its backup may take a detection time."""
    monkeypatch.setattr(comparison, "GRACE_NS", 2 * SECOND)
    fields = {"peers": 8, "degree": 4, "clusters": 2, "topics": 2, "warmup": "3s", "duration": "3s", "rate": 5.0}
    world = build_world(make_scenario({**fields, "cluster_detection": "0.5s", "pf": 0.0, "pl": 0.0}))

    async def play() -> Comparison:
        made = Comparison(world, ("clusters", "adaptive"), SECOND // 2)
        await made.run()
        return made

    done = asyncio.run(play())
    clusters, adaptive = done.overlays
    assert adaptive.coordinators() == {} and done.killed is not None
    now = [peer for trees in clusters.coordinators().values() for peer in trees.values()]
    assert len(now) == 4 and done.killed not in now
    assert done.killed in [incident.about for incident in done.incidents if incident.what == "took-over"]
    totals = clusters.meter.totals
    assert totals.delivered == totals.expected > 0
    shown = "\n".join(up_command.coordination_lines(done))
    assert " coordinators   cluster-0: " in shown and f"peer {done.killed} was killed" in shown
