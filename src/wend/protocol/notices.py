"""The codes under which peers count notices, drops and refusals, with a sentence about each.

There are three kinds, as the effects that carry them (`ports.py`): notices, drops and refusals. A code is lower case,
with hyphens between words: programs, counters, traces and tests use codes, and people read the sentences. Drop codes
appear in traces, so changing a code changes trace hashes. docs/reference/notices.md shows this file as tables.
"""

from typing import Final, Literal

NoticeName = Literal[
    "link-down", "link-up", "linked", "unlinked",
    "duplicate", "repeated-key", "late-ack",
    "retransmit", "undelivered", "reroute", "congested", "hedge", "coded", "copy-superseded",
    "stored", "queued",
    "reassembly-dropped", "not-accepted", "published-early", "not-advertised", "no-subscriber", "false-positive",
    "surplus-block", "group-rerouted", "group-empty", "group-left-out", "retained-dropped",
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
    "repeated-key": "An event arrived whose key another one had.",
    "late-ack": "An ACK arrived after its sender had stopped waiting for it.",
    "retransmit": "A message to a peer without a link was sent again.",
    "undelivered": "No peer acknowledged a message to a peer without a link.",
    "reroute": "A neighbour did not answer, and the routing looked for another route.",
    "congested": "A packet came back to the routing: behind others that wait for the link it would have been too late.",
    "hedge": "The routing sent a copy ahead on a second route.",
    "coded": "The routing sent a large event in blocks.",
    "copy-superseded": "A copy could not go on and need not: another has arrived or is in transit.",
    "stored": "An event that could not go on waits for a retry.",
    "queued": "An event waits for trees, for the next peer on one, or for subscribers that are not known yet.",
    "reassembly-dropped": "The peer dropped an incomplete message because fragments took too much memory.",
    "not-accepted": "A neighbour acknowledged every fragment of an event, but not the event: it counts as lost.",
    "published-early": "An event was published before every neighbour had told its subscriptions.",
    "not-advertised": "An event was published that no advertisement covers, and there were too many to add one.",
    "no-subscriber": "An event arrived for a subscription that is gone.",
    "false-positive": "An event arrived that the peer's summary of its subscriptions matches, and none of them does.",
    "surplus-block": "A block of a coded event arrived that the peer does not need any more.",
    "group-rerouted": "A queue group no longer had a member here, so the event went to a peer that has one.",
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

DropCode = Literal[
    "no-answer", "no-return-route", "no-route-left", "no-next-hop", "routing-loop", "no-route",
    "not-on-tree", "no-tree", "tree-timeout", "tree-queue-full", "trees-unstable",
    "plan-refused", "retry-queue-full", "send-queue-full", "unsendable",
    "before-incarnation", "beyond-duplicate-filter",
    "no-reconnect", "restarted", "not-joined",
    "code-incomplete", "expired", "overtaken", "backlog-full", "max-age", "subscriber-away",
]  # fmt: skip

DROPS: dict[DropCode, str] = {
    "no-answer": "The next peer did not answer, and the strategy knows no other.",
    "no-return-route": "No neighbour was left to try, and the peer that sent the packet does not answer.",
    "no-route-left": "No neighbour was left to try, and there is no peer to return the packet to.",
    "no-next-hop": "The shortest route begins with no link of this peer.",
    "routing-loop": "The packet went from peer to peer for too long.",
    "no-route": "No route to the subscriber is known.",
    "not-on-tree": "The publisher's tree does not lead to the subscriber from here.",
    "no-tree": "None of the trees leads to the subscriber over a link that works.",
    "tree-timeout": "The event waited for trees that lead to the subscriber, and became too old.",
    "tree-queue-full": "The event waited for trees that lead to the subscriber, and had to make room.",
    "trees-unstable": "The event reached all peers on the trees, but the trees kept changing, so others may lack it.",
    "plan-refused": "The plan does not admit the event.",
    "retry-queue-full": "The event waited for a retry, and had to make room.",
    "send-queue-full": "The event waited for a link that others use, and there was no room for more.",
    "unsendable": "The event is too large, or cannot be encoded: no link would carry it.",
    "before-incarnation": "The event seems older than this peer, which may have delivered it; on a busy "
    "host, events of the first moments do, too.",
    "beyond-duplicate-filter": "So many later events came that nobody knows whether this one was delivered.",
    "no-reconnect": "The event came after a restart, and nobody subscribed to it again in time.",
    "restarted": "An earlier incarnation was responsible for the event: it is stored, so this is not counted.",
    "not-joined": "The event was published before its peer had joined the ring.",
    "code-incomplete": "Too few blocks of a coded event arrived to rebuild it, or they were corrupt.",
    "expired": "The event is older than its ttl, or past the deadline of a subscription that expires events.",
    "overtaken": "An ordered subscription had gone on without the event when it came.",
    "backlog-full": "The backlog of a durable subscription was full, and the oldest event had to make room.",
    "max-age": "The event waited in the backlog of a durable subscription for longer than that allows.",
    "subscriber-away": "The subscriber's peer was stopped, and is away for longer than it announced.",
}

BacklogCode = Literal["expired", "backlog-full", "max-age"]
"""Why an event leaves a backlog unread."""
MissedCode = BacklogCode | Literal["skipped"]
"""Why a subscription misses events. `skipped`: it asks for order, and an event did not arrive in time."""

NO_ROOM: Final = "retry-queue-full"
AWAY: Final = "subscriber-away"
REFUSED: Final = "plan-refused"

RefusalCode = Literal[
    "not-neighbour",
    "earlier-incarnation",
    "unknown-plugin",
    "undeclared-message",
    "invalid-message",
    "unexpected-ack",
    "before-window",
    "header-mismatch",
    "no-destinations",
    "invalid-fragment-index",
    "malformed-fragment",
    "fragment-mismatch",
    "fragment-of-dropped",
    "reassembly-full",
    "undecodable-fragments",
    "invalid-block",
    "block-mismatch",
    "corrupt-blocks",
    "invalid-news",
    "invalid-link-state",
    "path-mismatch",
    "filter-syntax",
    "invalid-qos",
    "too-much-interest",
    "no-such-subscription",
    "invalid-subtree-interest",
    "invalid-expectations",
    "invalid-weight",
    "trees-far-ahead",
    "invalid-tree-message",
    "invalid-generation",
    "invalid-region",
    "region-not-owned",
    "too-many-regions",
    "invalid-hops",
    "other-cluster",
    "cluster-settings-differ",
    "answer-other-cluster",
    "slots-of-nonmember",
    "slots-disagree",
    "not-member",
    "not-coordinator",
]

REFUSALS: dict[RefusalCode, str] = {
    "not-neighbour": "It is not a neighbour, and only neighbours may send this.",
    "earlier-incarnation": "The message is from an earlier incarnation of its sender.",
    "unknown-plugin": "The message is for a plug-in that this peer does not host.",
    "undeclared-message": "The plug-in does not declare a message of this type.",
    "invalid-message": "The fields of the message contradict each other or are out of range.",
    "unexpected-ack": "It acknowledged a packet that was not sent to it.",
    "before-window": "The packet is older than the window of the duplicate filter.",
    "header-mismatch": "The ranks or the header do not fit the packet.",
    "no-destinations": "The packet names no destinations, but events of this strategy do.",
    "invalid-fragment-index": "The fragment has an index or a count that is out of range.",
    "malformed-fragment": "The fragment is empty, too large or cannot be decoded.",
    "fragment-mismatch": "The fragment does not fit the other fragments of its message.",
    "fragment-of-dropped": "The fragment belongs to a message that was dropped.",
    "reassembly-full": "There are more incomplete messages than there is room for.",
    "undecodable-fragments": "The fragments are complete, but do not make a message.",
    "invalid-block": "The block of a coded event has an index or a size that is out of range.",
    "block-mismatch": "The block does not fit the other blocks of its event.",
    "corrupt-blocks": "The blocks are enough, but do not make the event.",
    "invalid-news": "The news about links is invalid.",
    "invalid-link-state": "The link state is invalid.",
    "path-mismatch": "The underlay paths do not fit the links.",
    "filter-syntax": "A filter has a syntax error.",
    "invalid-qos": "A deadline or reliability is out of range.",
    "too-much-interest": "The peer announced more interest than a peer may have.",
    "no-such-subscription": "The peer has no durable subscription of this number.",
    "invalid-subtree-interest": "The interest of a subtree is invalid.",
    "invalid-expectations": "The expected delay and reliability are invalid.",
    "invalid-weight": "The weight of a link is invalid.",
    "trees-far-ahead": "Messages about trees are too far ahead of this peer's generation.",
    "invalid-tree-message": "The message does not fit the state of the tree.",
    "invalid-generation": "The generation of trees is invalid.",
    "invalid-region": "The region is invalid.",
    "region-not-owned": "The sender does not own the region.",
    "too-many-regions": "The message names too many regions.",
    "invalid-hops": "The number of hops is out of range.",
    "other-cluster": "The message is from another cluster.",
    "cluster-settings-differ": "The sender's cluster has the same name, but other settings.",
    "answer-other-cluster": "The answer is about another cluster.",
    "slots-of-nonmember": "It told the slots of a cluster that it does not belong to.",
    "slots-disagree": "Its slots disagree with those of the head of the cluster.",
    "not-member": "The sender does not belong to the cluster.",
    "not-coordinator": "This peer does not coordinate the cluster that the message is for.",
}

TOO_OLD: Final = "before-window"
MISFIT: Final = "header-mismatch"
