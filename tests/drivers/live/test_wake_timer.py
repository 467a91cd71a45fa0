"""The timer of a live peer: a late one shows that the host was busy."""

import asyncio

import pytest

from wend.drivers.live.wake_timer import LATE_NS, WakeTimer
from wend.model.units import MS
from wend.protocol.ports import WakeAt


@pytest.mark.parametrize(
    ("late_ns", "left_ns", "told"),
    [
        (0, 0, ["drain", "wake"]),
        (LATE_NS, 0, ["drain", "wake"]),
        (50 * MS, 0, ["drain", 50 * MS, "wake"]),
        (50 * MS, 70 * MS, ["drain", 70 * MS, "wake"]),
        (0, 70 * MS, ["drain", 70 * MS, "wake"]),
        (-1, 0, []),
    ],
)
def test_a_peer_hears_of_the_time_for_which_it_could_hear_nobody(
    late_ns: int, left_ns: int, told: list[str | int]
) -> None:
    async def scene() -> None:
        now, did = 100 * MS, []

        def drain() -> int:
            did.append("drain")
            return left_ns

        timer = WakeTimer(lambda: now, drain, lambda: did.append("wake"), did.append)
        timer.open(asyncio.get_running_loop())
        due = now + 3600_000 * MS
        timer.wake_at(WakeAt(due))
        now = due + late_ns
        timer.fire()
        assert did == told
        did.clear()
        timer.wake_at(WakeAt(1))  # it was long ago, but nobody asked before
        timer.fire()
        assert did == (["drain", left_ns, "wake"] if left_ns else ["drain", "wake"])
        timer.close()

    asyncio.run(scene())
