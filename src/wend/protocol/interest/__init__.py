"""Who wants this: plug-ins that turn an event into targets, by name."""

from wend.protocol.interest.flooded import FloodedInterest

INTEREST = {"flooded": FloodedInterest}
