"""Administration of a peer by its clients: changes of its links and its plan."""

from collections.abc import Iterator
from contextlib import contextmanager

from wend.drivers.live.addressing.given_links import GivenLinks
from wend.drivers.live.config import NeighbourEntry
from wend.drivers.live.peer import LivePeer
from wend.drivers.live.plans.followed_plan import FollowedPlan
from wend.drivers.live.status import PlanStatus
from wend.model.errors import ConfigError, Refused
from wend.model.events import PeerId
from wend.protocol.ports import PeerForgotten


class Administration:
    """The requests of administrators. Each raises `Refused` if it cannot be met."""

    def __init__(
        self, peer: LivePeer, plan: FollowedPlan | None, links: GivenLinks | None, *, experiments: bool
    ) -> None:
        self._peer = peer
        self._plan = plan
        self._links = links
        self._experiments = experiments

    def set_link(self, neighbour: PeerId, up: bool) -> None:
        """Cut or heal the link to a neighbour, for experiments."""
        if not self._experiments:
            raise Refused(
                "this peer allows no experiments: set experiments = true in its configuration", code="experiments-off"
            )
        with _refuse_link_errors():
            (self._peer.pipes.heal if up else self._peer.pipes.cut)(neighbour)

    def add_link(self, entry: NeighbourEntry) -> None:
        with _refuse_link_errors():
            self._changeable_links().add(entry)

    def remove_link(self, neighbour: PeerId) -> None:
        with _refuse_link_errors():
            self._changeable_links().remove(neighbour)

    def forget_peer(self, peer: PeerId) -> None:
        try:
            self._peer.ask(PeerForgotten(peer))
        except ConfigError as error:
            raise Refused(str(error), code="no-such-peer") from None

    def _changeable_links(self) -> GivenLinks:
        if self._links is None:
            raise Refused("this peer's links cannot be changed: no file describes them", code="invalid-link")
        return self._links

    def followed_plan(self) -> FollowedPlan:
        """The part that decides which plan the peer follows."""
        if self._plan is None:
            raise Refused("this peer has no configuration to name a plan", code="no-plan")
        return self._plan

    def plan_status(self) -> PlanStatus | None:
        return None if self._plan is None else self._plan.status()


@contextmanager
def _refuse_link_errors() -> Iterator[None]:
    try:
        yield
    except ConfigError as error:
        raise Refused(str(error), code="invalid-link") from None
