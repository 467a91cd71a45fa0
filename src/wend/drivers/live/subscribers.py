"""The port of a live peer towards its application: who takes the events for local subscriptions."""

from typing import Protocol

from wend.protocol.ports import Deliver, Missed


class LocalSubscribers(Protocol):
    """Those for whom a live peer subscribes: a broker with its clients, or an application in this process."""

    def deliver(self, delivery: Deliver) -> None:
        """Take an event for a subscription. It must not block."""
        ...

    def report_missed(self, missed: Missed) -> None:
        """A subscription will not get some events."""
        ...
