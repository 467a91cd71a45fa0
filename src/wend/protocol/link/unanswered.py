"""The packets over one link that nobody acknowledged, by what explains them."""


class UnansweredPackets:
    __slots__ = ("_doubtful", "fails", "timed_out")

    def __init__(self) -> None:
        self.timed_out = 0
        """Transmissions of data without an ACK that no outage explains."""
        self._doubtful = 0
        """The last transmissions of packets given up since the neighbour was last heard: an outage may still explain
        them."""
        self.fails = 0
        """Packets that Retransmission gave up since the neighbour was last heard."""

    def time_out(self) -> None:
        """No ACK came for a transmission of data, and it is repeated."""
        self.timed_out += 1

    def give_up(self, *, is_data: bool, is_up: bool) -> None:
        """No ACK came for the last transmission of data, or for one of control. Over a link that is down, that says
        nothing about loss."""
        if is_data and is_up:
            self.timed_out += 1
            self._doubtful += 1
        self.fails += 1

    def clear(self) -> None:
        """The neighbour was heard, so no outage explains what timed out earlier."""
        self.fails = self._doubtful = 0

    def excuse(self) -> None:
        """An outage explains the packets that were given up since the neighbour was last heard."""
        self.timed_out -= self._doubtful
        self._doubtful = 0
