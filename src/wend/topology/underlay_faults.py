"""The outages of overlay links that share routers and links of an underlay."""

from itertools import pairwise

from wend.topology.faults import Intervals
from wend.topology.graph import Overlay
from wend.topology.placement import Placement


class UnderlayFaults:
    """The outages of overlay links, derived from those of the components that they share. It is a `Faults`."""

    def __init__(
        self,
        placement: Placement,
        overlay: Overlay,
        faults: Intervals,
        *,
        rejected: int = 0,
        reroute_in_domains: bool = False,
    ) -> None:
        """With `reroute_in_domains`, outages within the domains of its two peers do not interrupt an overlay link."""
        self.rejected = rejected
        """Outages that were drawn and do not happen, because they would partition the underlay."""
        starts, components = placement.link_components(overlay)
        by_component: dict[int, list[int]] = {}
        for link, (first, last) in enumerate(pairwise(starts.tolist())):
            ends = overlay.links[link].a, overlay.links[link].b
            for component in components[first:last].tolist():
                if not (reroute_in_domains and placement.in_own_domain(component, *ends)):
                    by_component.setdefault(component, []).append(link)
        down = [
            (link, start, until)
            for component, start, until in faults.outages()
            for link in by_component.get(component, ())
        ]
        links = Intervals(len(overlay.links), down)
        self.is_up, self.outages, self.calendar = links.is_up, links.outages, links.calendar
        self.next_change = links.next_change
        self.is_component_up = faults.is_up
        """Whether a component is up at a time."""
