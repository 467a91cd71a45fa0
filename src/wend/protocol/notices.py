"""The names under which peers count what happens, with one sentence about each: what an operator reads in the status.

There are three kinds, as the effects that carry them (`ports.py`). A notice is a name: lower case, hyphens between
words. A drop reason and a refusal are phrases that read well after "because" and "it sent". Drop reasons stand in
traces, so another phrase is another trace hash. docs/reference/notices.md shows this file as tables.
"""

from typing import Final, Literal, NewType

NoticeName = Literal[
    "link-down", "link-up", "linked", "unlinked",
    "duplicate", "late-ack", "retransmit", "undelivered", "reroute", "congested", "hedge", "copy-superseded",
    "stored", "queued",
    "reassembly-dropped", "not-accepted", "published-early", "not-advertised", "no-subscriber", "false-positive",
    "group-rerouted", "group-empty", "group-left-out", "retained-dropped",
    "control-lost", "control-too-large", "unstable-pairs",
    "plan-adopted", "unplanned", "unknown-plan", "off-plan",
    "trees-called", "trees-renewed", "trees-complete", "trees-spared", "filters-widened", "early-dropped",
    "order-skipped", "redelivered",
    "took-over", "multicast-works", "multicast-blocked", "cluster-small",
]  # fmt: skip

NOTICES: dict[NoticeName, str] = {
    "link-down": "The failure detector found a link down.",
    "link-up": "A link that was down is up again.",
    "linked": "The membership or the operator made a link.",
    "unlinked": "The membership or the operator ended a link.",
    "duplicate": "A packet or an event arrived again.",
    "late-ack": "An ACK arrived after its sender had stopped waiting for it.",
    "retransmit": "A message to a peer without a link was sent again.",
    "undelivered": "No peer acknowledged a message to a peer without a link.",
    "reroute": "A neighbour did not answer, and the routing looked for another route.",
    "congested": "A packet came back to the routing: behind others that wait for the link it would have been too late.",
    "hedge": "The routing sent a copy ahead on a second route.",
    "copy-superseded": "A copy could not go on and need not: another has arrived or is in transit.",
    "stored": "An event that could not go on waits for a retry.",
    "queued": "An event waits for trees, for the next peer on one, or for subscribers that are not known yet.",
    "reassembly-dropped": "The peer dropped an incomplete message because fragments took too much memory.",
    "not-accepted": "A neighbour acknowledged every fragment of an event, but not the event: it counts as lost.",
    "published-early": "An event was published before every neighbour had told its subscriptions.",
    "not-advertised": "An event was published that no advertisement covers, and there were too many to add one.",
    "no-subscriber": "An event arrived for a subscription that is gone.",
    "false-positive": "An event arrived that the peer's summary of its subscriptions matches, and none of them does.",
    "group-rerouted": "A queue group had no member here any more, so the event went to a peer with another one.",
    "group-empty": "A queue group had no member left for an event.",
    "group-left-out": "More queue groups wanted an event than it can name, and this one did not get it.",
    "retained-dropped": "The peer forgot the oldest event that it retained, because it may retain no more.",
    "control-lost": "A control message did not reach a neighbour: it did not answer, or the message could not be sent.",
    "control-too-large": "A control message was larger than a neighbour accepts, and was not sent.",
    "unstable-pairs": "The expectation for a publisher and a subscriber changed too often, and was not told again.",
    "plan-adopted": "The peer adopted a plan.",
    "unplanned": "An event was published that no flow of the plan fits: it takes the shortest route.",
    "unknown-plan": "A packet arrived whose plan is not known here: it takes the shortest route.",
    "off-plan": "A packet arrived that its plan does not lead on from here: it takes the shortest route.",
    "trees-called": "The peer called for a new generation of trees.",
    "trees-renewed": "It did, because the reliability of a link on the trees has changed.",
    "trees-complete": "A generation of trees is complete at this peer.",
    "trees-spared": "The routing left out a tree, because fewer give an event the reliability that is asked for.",
    "filters-widened": "A neighbour on a tree was told to send everything: the exact filters would have been too long.",
    "early-dropped": "A neighbour's interest on trees that are not complete here was dropped: too many wait.",
    "order-skipped": "An ordered subscription waited too long for an event, and goes on without it.",
    "redelivered": "A client gets an event of a durable subscription again, because it did not confirm it.",
    "took-over": "The peer coordinates a tree between clusters now, and another one did before.",
    "multicast-works": "The peer's multicast reaches all members of its cluster.",
    "multicast-blocked": "The peer's multicast does not reach all members of its cluster: it sends to each of them.",
    "cluster-small": "The cluster has fewer members than coordinators are asked for: some coordinate several trees.",
}

LINK_DOWN: Final = "link-down"
LINK_UP: Final = "link-up"
REROUTE: Final = "reroute"
TOO_LARGE: Final = "control-too-large"

DropReason = Literal[
    "link does not answer", "return route down", "no route left", "no next hop", "routing loop", "no route",
    "not on the tree", "no tree reaches it", "no tree in time", "tree queue full", "trees unstable",
    "refused by plan", "retry queue full", "send queue full", "cannot be sent",
    "published before this incarnation", "older than the duplicate filter",
    "no subscriber reconnected", "restarted", "not joined yet",
    "expired", "overtaken", "backlog full", "older than max_age", "the subscriber stayed away",
]  # fmt: skip

DROPS: dict[DropReason, str] = {
    "link does not answer": "The next peer did not answer, and the strategy knows no other.",
    "return route down": "No neighbour was left to try, and the peer that sent the packet does not answer.",
    "no route left": "No neighbour was left to try, and there is no peer to return the packet to.",
    "no next hop": "The shortest route begins with no link of this peer.",
    "routing loop": "The packet went from peer to peer for too long.",
    "no route": "No route to the subscriber is known.",
    "not on the tree": "The publisher's tree does not lead to the subscriber from here.",
    "no tree reaches it": "None of the trees leads to the subscriber over a link that works.",
    "no tree in time": "The event waited for trees that lead to the subscriber, and became too old.",
    "tree queue full": "The event waited for trees that lead to the subscriber, and had to make room.",
    "trees unstable": "The event reached all peers on the trees, but the trees kept changing, so others may lack it.",
    "refused by plan": "The plan does not admit the event.",
    "retry queue full": "The event waited for a retry, and had to make room.",
    "send queue full": "The event waited for a link that others use, and there was no room for more.",
    "cannot be sent": "The event is too large, or cannot be encoded: no link would carry it.",
    "published before this incarnation": "The event seems older than this peer, which may have delivered it; on a busy "
    "host, events of the first moments do, too.",
    "older than the duplicate filter": "So many later events came that nobody knows whether this one was delivered.",
    "no subscriber reconnected": "The event came after a restart, and nobody subscribed to it again in time.",
    "restarted": "A former incarnation answered for the event: it is stored, so this is not counted.",
    "not joined yet": "The event was published before its peer had joined the ring.",
    "expired": "The event is older than its ttl, or past the deadline of a subscription that expires events.",
    "overtaken": "An ordered subscription had gone on without the event when it came.",
    "backlog full": "The backlog of a durable subscription was full, and the oldest event had to make room.",
    "older than max_age": "The event waited in the backlog of a durable subscription for longer than that allows.",
    "the subscriber stayed away": "The subscriber's peer was stopped, and is away for longer than it announced.",
}

BacklogReason = Literal["expired", "backlog full", "older than max_age"]
"""Why an event leaves a backlog unread."""
MissedReason = BacklogReason | Literal["skipped"]
"""Why a subscription does not get events that it wants. `skipped`: it asks for order, and one did not come in time."""

NO_ROOM: Final = "retry queue full"
AWAY: Final = "the subscriber stayed away"
REFUSED: Final = "refused by plan"

RefusalReason = Literal[
    "not a neighbour", "speaks from an earlier incarnation", "a message for a plug-in that this peer does not host",
    "a message that its plug-in does not declare",
    "an ACK for a packet that was not sent to it", "a packet older than the window",
    "ranks or a header that do not fit the packet", "a packet without destinations",
    "a fragment of nothing", "a malformed fragment", "a fragment that does not fit the others",
    "a fragment of a message that was dropped", "more incomplete messages than there is room for",
    "fragments that make no sense together",
    "news that cannot be", "a link state that cannot be", "paths that do not fit the links",
    "a filter that cannot be read", "a deadline or reliability that cannot be", "more interest than a peer may have",
    "subtree interest that cannot be", "expectations that cannot be",
    "a weight that cannot be", "tree messages that are far ahead", "a tree message that makes no sense",
    "trees of a generation that cannot be",
    "a region that cannot be", "a region that its sender does not own", "too many regions",
    "a number of hops that cannot be",
    "a message of another cluster", "the name of this cluster, with other settings", "an answer about another cluster",
    "slots of a cluster, and is no member of it", "slots that disagree with those of the head",
    "a message of a peer that is no member of the cluster", "a message for a cluster that it does not coordinate",
]  # fmt: skip
"""What a neighbour sent or did: the phrase is the sentence."""

ComposedReason = NewType("ComposedReason", str)
"""A refusal that is put together, because it says what was read."""

TOO_OLD: Final = "a packet older than the window"
MISFIT: Final = "ranks or a header that do not fit the packet"
