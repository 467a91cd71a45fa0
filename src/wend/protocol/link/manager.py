"""The link manager: it makes links, and requests and stores their underlay paths.

The driver gives the links or, if the peer has a membership, the membership asks for them. The link layer notifies the
other parts of the peer of new and ended links.
"""

from collections import Counter
from collections.abc import Callable

from wend.model.events import PeerId
from wend.model.paths import Path
from wend.model.units import MS, Nanos
from wend.protocol.config import LinkSettings, PeerConfig
from wend.protocol.link.link import Link
from wend.protocol.link.link_sender import CONTROLLERS, LinkSender
from wend.protocol.ports import FindPath, Neighbour, PathFound
from wend.protocol.timers import Effects

UNKNOWN_DELAY_NS: Nanos = 50 * MS
"""The assumed delay of a link that is neither configured nor measured yet."""
TRACES = 3
"""How often the manager requests a path that is incomplete."""


class LinkManager:
    __slots__ = ("_asked", "_config", "_controlled", "_links", "_open", "_paths_changed", "_reachable")

    def __init__(
        self,
        config: PeerConfig,
        links: dict[PeerId, Link],
        paths_changed: Callable[[Nanos, Effects], None] | None,
        controlled: bool = False,
    ) -> None:
        """`controlled`: whether links have congestion control."""
        self._controlled = controlled
        self._config = config
        self._links = links
        self._paths_changed = paths_changed
        """Called when paths become known; None if no plug-in uses them."""
        self._asked: Counter[PeerId] = Counter()
        self._open: dict[PeerId, None] = {}
        """The peers whose paths are requested and not yet found."""
        self._reachable: dict[PeerId, Neighbour] = {}

    @property
    def reachable(self) -> tuple[PeerId, ...]:
        """The peers that the driver named at the start."""
        return tuple(self._reachable)

    def begin(self, now: Nanos, neighbours: tuple[Neighbour, ...]) -> None:
        """Store the reachable peers. Without a membership, make links to all of them."""
        self._reachable = {n.peer: n for n in sorted(neighbours, key=lambda n: n.peer)}
        for peer in self._reachable if self._config.membership is None else ():
            self._add_link(now, peer)

    def store_estimates(self, neighbour: Neighbour) -> None:
        """Store the delay and reliability of a link that is about to be made."""
        self._reachable[neighbour.peer] = neighbour

    def make_link(self, now: Nanos, peer: PeerId, path: Path) -> None:
        self._add_link(now, peer)
        if self._paths_changed is not None and None not in path:
            self._links[peer].set_path(path)

    def reroute(self, now: Nanos, peer: PeerId, path: Path, effects: Effects) -> None:
        """Set a new underlay path of a link."""
        if self._paths_changed is not None and None not in path:
            self._links[peer].set_path(path)
            self._paths_changed(now, effects)

    def request_paths(self, effects: Effects) -> None:
        """Request the underlay paths that are incomplete."""
        for peer, link in self._links.items() if self._paths_changed is not None else ():
            if not _is_complete(link.path) and self._asked[peer] < TRACES:
                self._asked[peer] += 1
                self._open[peer] = None
                effects.append(FindPath(peer))

    def on_path_found(self, now: Nanos, event: PathFound, effects: Effects) -> None:
        link = self._links.get(event.peer)
        if self._paths_changed is None or event.peer not in self._open:
            return
        self._open.pop(event.peer, None)
        if link is not None and event.path is not None and any(hop is not None for hop in event.path):
            link.set_path(event.path)
        if not self._open:  # plug-ins are notified of all paths at once
            self._paths_changed(now, effects)

    def _add_link(self, now: Nanos, peer: PeerId) -> None:
        neighbour = self._reachable.get(peer) or Neighbour(peer, UNKNOWN_DELAY_NS)
        settings = self._config.of(LinkSettings)
        sender: LinkSender | None = None
        if self._controlled and settings.congestion_control != "none":
            sender = LinkSender(CONTROLLERS[settings.congestion_control](settings.margin_ns), settings.send_queue_limit)
        self._links[peer] = Link(
            peer,
            neighbour.delay_ns,
            neighbour.reliability,
            self._config,
            neighbour.wait_ns,
            neighbour.control_waits,
            now,
            sender,
        )


def _is_complete(path: Path) -> bool:
    return bool(path) and path[-1] is not None
