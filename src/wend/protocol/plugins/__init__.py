"""The plug-in API: the inputs, effects, view and declarations of plug-ins.

A peer hosts small state machines of four kinds, all of the same shape:

    membership   who are my peers?        makes and ends links; talks to peers that have no link
    graph        who is linked to whom?   the link-state database, sets of spanning trees
    interest     who wants this event?
    routing      where does it go next?

A plug-in is one class in one file. There it declares its messages, its settings, the header that its packets carry and
its needs of other parts. `handle(now, event, view)` gets inputs and returns effects; a plug-in never sends packets
itself. The host (`host.py`) dispatches by these declarations and checks every effect.

    kinds.py         the classes to inherit from, and their declarations
    ports.py         the inputs and effects
    view.py          the state that a plug-in may read
    subscriptions.py the queries of a peer about subscriptions
    copy_ranks.py    decides which of two copies of an event a peer drops
    group_choice.py  decides which member of a queue group gets an event
    upstream.py      returns a packet whose routes have all failed

A strategy needs no other module of `protocol`: the settings, inputs and effects of the peer that concern plug-ins are
also exported here.
"""

from wend.protocol.config import DeliverySettings, LinkSettings, PeerConfig
from wend.protocol.messages import MAX_CONTROL_BYTES
from wend.protocol.notices import MISFIT, NO_ROOM, REFUSED, DropCode, RefusalCode
from wend.protocol.plugins.coding import Coder
from wend.protocol.plugins.copy_ranks import (
    CopyKey,
    ForwardedCopies,
    Ranks,
    copy_key,
    fork,
    hedge,
    is_hedged,
    subset,
)
from wend.protocol.plugins.group_choice import choose_subscriptions
from wend.protocol.plugins.kinds import (
    FLOODED,
    LINK_STATE,
    OUTSIDE,
    Graph,
    Interest,
    Membership,
    Needs,
    NoSettings,
    Plugin,
    Routing,
)
from wend.protocol.plugins.ports import (
    ALLOWED,
    Acked,
    Arrived,
    Begun,
    Changed,
    DeliverHere,
    Due,
    EndLink,
    Failed,
    Forward,
    GiveUp,
    Heard,
    InterestLearned,
    Kind,
    LinkChanged,
    LinksChanged,
    MakeLink,
    PluginEffect,
    PluginInput,
    Recalled,
    Remember,
    Reroute,
    RouteEvent,
    SendTo,
    Slot,
    SubscriptionsChanged,
    Tell,
    Timer,
    Unanswered,
    Undelivered,
    give_up_failed,
)
from wend.protocol.plugins.subscriptions import Notify, SubscriptionQueries
from wend.protocol.plugins.upstream import UPSTREAM_TRIES, return_upstream
from wend.protocol.plugins.view import (
    NO_GRAPH,
    GraphView,
    LinkView,
    NewsView,
    OutageChanceView,
    OutageEstimate,
    View,
)
from wend.protocol.ports import (
    ContactFound,
    Drop,
    FindPath,
    JoinMulticast,
    LeaveMulticast,
    LocalSubscription,
    Multicast,
    MulticastMembers,
    Notice,
    PathFound,
    PeerForgotten,
    Planned,
    Refuse,
    Stopping,
)

__all__ = [
    "LINK_STATE", "FLOODED", "OUTSIDE", "Needs", "NoSettings", "Plugin", "Membership", "Graph", "Routing", "Notify",
    "SubscriptionQueries", "Interest", "Kind", "Begun", "Recalled", "Heard", "Undelivered", "Unanswered", "Due",
    "LinkChanged", "LinksChanged", "Changed", "SubscriptionsChanged", "Arrived", "Failed", "Acked", "PluginInput",
    "Slot", "Tell", "SendTo", "Timer", "Remember", "Forward", "GiveUp", "give_up_failed", "RouteEvent", "DeliverHere",
    "InterestLearned", "MakeLink", "Reroute", "EndLink", "PluginEffect", "ALLOWED", "GraphView", "LinkView",
    "OutageChanceView", "OutageEstimate", "NewsView", "View", "NO_GRAPH", "DeliverySettings", "LinkSettings",
    "PeerConfig", "MAX_CONTROL_BYTES", "MISFIT", "NO_ROOM", "REFUSED", "DropCode", "RefusalCode", "ForwardedCopies",
    "Ranks", "Coder", "CopyKey", "copy_key", "fork", "hedge", "is_hedged", "subset", "choose_subscriptions",
    "ContactFound", "Drop", "FindPath", "JoinMulticast", "LeaveMulticast", "LocalSubscription", "Multicast",
    "MulticastMembers", "Notice", "PathFound", "PeerForgotten", "Planned", "Refuse", "Stopping", "UPSTREAM_TRIES",
    "return_upstream",
]  # fmt: skip
