"""Who wants this: plug-ins that turn an event into targets, by name."""

from wend.protocol.interest.flooded import FloodedInterest
from wend.protocol.interest.trees import TreeInterest

INTEREST: dict[str, type[FloodedInterest]] = {"flooded": FloodedInterest, "trees": TreeInterest}
