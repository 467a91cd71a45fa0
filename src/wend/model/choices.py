"""What a peer can be told in a word, in a scenario or in its own file."""

from typing import Literal

Ack = Literal["free", "round-trip"]
Estimator = Literal["nominal", "measured"]
Redundancy = Literal["none", "tight", "free"]
Covering = Literal["identity", "covering", "merging"]
