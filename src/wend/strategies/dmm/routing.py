"""Events travel to the owners of their keys: the interest knows the keys, and the ring the next hops."""

from typing import ClassVar

from wend.protocol.plugins import Needs
from wend.strategies.ring.routing import KeyBased, meeting_by


class DmmRouting(KeyBased):
    """Events travel to the owner of their region in the space of all attributes."""

    needs: ClassVar[Needs] = meeting_by("dmm")


class DmmArRouting(KeyBased):
    """Events travel to the owners of their regions in the spaces of single attributes."""

    needs: ClassVar[Needs] = meeting_by("dmm-ar")
