"""The plug-in API: what a plug-in is told, what it may answer, what it sees and what it declares.

A peer hosts small state machines of four kinds, all of the same shape:

    membership   who are my peers?        makes and ends links; talks to peers that have no link
    graph        who is linked to whom?   the link-state database, sets of spanning trees
    interest     who wants this event?
    routing      where does it go next?

A plug-in is one class in one file. There it declares its messages, its settings, the header that its packets carry and
what it needs of the others. `handle(now, event, view)` gets inputs and returns effects; a plug-in never sends by
itself. The host (`host.py`) dispatches by these declarations and checks every answer.

    kinds.py   the classes to inherit from, and their declarations
    ports.py   the inputs and effects
    view.py    what a plug-in may look at
"""

from wend.protocol.plugins.kinds import (
    FLOODED,
    LINK_STATE,
    Graph,
    Interest,
    Membership,
    Needs,
    NoSettings,
    Notify,
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
    LeaveToInterest,
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
    unanswered,
)
from wend.protocol.plugins.view import (
    NO_GRAPH,
    GraphView,
    InterestView,
    LinkView,
    NewsView,
    OutageChanceView,
    OutageEstimate,
    View,
)

__all__ = [
    "LINK_STATE",
    "FLOODED",
    "Needs",
    "NoSettings",
    "Plugin",
    "Membership",
    "Graph",
    "Routing",
    "Notify",
    "Interest",
    "Kind",
    "Begun",
    "Recalled",
    "Heard",
    "Undelivered",
    "Unanswered",
    "Due",
    "LinkChanged",
    "LinksChanged",
    "Changed",
    "SubscriptionsChanged",
    "Arrived",
    "Failed",
    "Acked",
    "PluginInput",
    "Slot",
    "Tell",
    "SendTo",
    "Timer",
    "Remember",
    "Forward",
    "GiveUp",
    "unanswered",
    "LeaveToInterest",
    "RouteEvent",
    "DeliverHere",
    "InterestLearned",
    "MakeLink",
    "Reroute",
    "EndLink",
    "PluginEffect",
    "ALLOWED",
    "GraphView",
    "InterestView",
    "LinkView",
    "OutageChanceView",
    "OutageEstimate",
    "NewsView",
    "View",
    "NO_GRAPH",
]
