"""`clusters`: events go to all members of their cluster, and by trees to the others. The interest does it."""

from typing import ClassVar

from wend.protocol.plugins import Needs
from wend.strategies.ring.routing import KeyBased

CLUSTER_TREES = "cluster-trees"


class ClustersRouting(KeyBased):
    """Events travel by multicast inside a cluster, and by several trees between clusters."""

    needs: ClassVar[Needs] = Needs(interest=CLUSTER_TREES, durable_interest=CLUSTER_TREES, membership="clusters")
