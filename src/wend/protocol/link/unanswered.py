"""The unacknowledged packets of one link, by whether loss or an outage explains them."""


class UnansweredPackets:
    __slots__ = ("_doubtful", "fails", "timed_out")

    def __init__(self) -> None:
        self.timed_out = 0
        """Transmissions of data without an ACK that no outage explains."""
        self._doubtful = 0
        """How many packets were given up since the neighbour was last heard: an outage may still explain them."""
        self.fails = 0
        """How many packets were given up since the neighbour was last heard."""

    def count_timeout(self) -> None:
        """Count a transmission of data without an ACK, which is repeated."""
        self.timed_out += 1

    def count_given_up(self, *, is_data: bool, is_up: bool) -> None:
        """Count data that is given up, or control without an ACK. Neither is evidence of loss if the link is down."""
        if is_data and is_up:
            self.timed_out += 1
            self._doubtful += 1
        self.fails += 1

    def count_as_loss(self) -> None:
        """Count earlier timeouts as loss, since the neighbour was heard and no outage explains them."""
        self.fails = self._doubtful = 0

    def blame_outage(self) -> None:
        """Attribute the packets given up since the neighbour was last heard to an outage."""
        self.timed_out -= self._doubtful
        self._doubtful = 0
