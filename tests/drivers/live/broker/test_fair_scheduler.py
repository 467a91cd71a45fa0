"""The scheduler serves all workers in turn, whatever one of them does."""

import asyncio

import pytest

from wend.drivers.live.broker.fair_scheduler import FairScheduler


class Work:
    def __init__(self, rounds: int, fails: bool = False) -> None:
        self.left, self.fails = rounds, fails

    def work(self, until: float) -> bool:
        if self.fails:
            raise RuntimeError("a fault of this test")
        self.left -= 1
        return self.left > 0


def test_a_worker_that_fails_does_not_keep_others_waiting() -> None:
    async def scene() -> None:
        scheduler, faults = FairScheduler(), []
        asyncio.get_running_loop().set_exception_handler(lambda _, told: faults.append(told))
        first, broken, last = Work(3), Work(1, fails=True), Work(3)
        for worker in (first, broken, last):
            scheduler.add(worker)
        for _ in range(20):
            await asyncio.sleep(0)
        assert (first.left, last.left, len(faults)) == (0, 0, 1)
        with pytest.raises(RuntimeError):
            scheduler.add(broken)
        again = Work(1)
        scheduler.add(again)
        assert again.left == 0

    asyncio.run(scene())
