"""Events travel to the owners of their keys: the interest knows the keys, and the ring the next hops."""

from typing import ClassVar

from wend.protocol.plugins import Needs
from wend.strategies.ring.routing import KeyBased, meeting_by


class RendezvousRouting(KeyBased):
    """Events travel to the owners of their regions."""

    needs: ClassVar[Needs] = meeting_by("rendezvous")
