"""The words under which peers count what happens, and one sentence about each: what an operator reads in `status`.

Three kinds, as the effects that carry them (`ports.py`). A notice is a name: lower case, hyphens between words. Why an
event is dropped, and what a neighbour did wrong, are phrases that read well after "because" and "it sent"; the former
stand in traces, so that another phrase is another hash. docs/notices.md is this file as tables.
"""

from typing import Final, Literal, NewType

NoticeName = Literal[
    "link-down", "link-up", "linked", "unlinked",
    "duplicate", "late-ack", "reroute", "hedge", "covered", "kept", "held", "unfinished", "not-taken",
    "published-unheard", "not-advertised", "wanted-no-more",
    "untold", "too-large-to-tell", "unsettled-pairs",
    "plan", "unplanned", "unknown-plan", "off-the-plan",
    "trees-called", "trees-renewed", "trees-stand", "trees-spared", "widened", "too-early",
]  # fmt: skip

NOTICES: dict[NoticeName, str] = {
    "link-down": "A link fell silent.",
    "link-up": "A link that was down is heard again.",
    "linked": "The overlay made a link.",
    "unlinked": "The overlay gave a link up.",
    "duplicate": "What came had come before: the same packet, or the same event by another way.",
    "late-ack": "An ACK came for what nobody waited for any more.",
    "reroute": "A neighbour did not answer, and another way was looked for.",
    "hedge": "A copy was sent ahead on a second way.",
    "covered": "A copy could not go on and need not: another has arrived or is on its way.",
    "kept": "What could not go on was kept, to be tried again.",
    "held": "An event waits for trees, for the next peer on one, or for subscribers not known or not back yet.",
    "unfinished": "An event of which parts were missing was thrown away for want of room.",
    "not-taken": "Every part of an event was acknowledged, the event itself was not: it counts as unanswered.",
    "published-unheard": "An event was published before every neighbour had told what it wants.",
    "not-advertised": "An event was published that no advertisement describes, and there were too many to add one.",
    "wanted-no-more": "An event came for a subscription that is gone.",
    "untold": "Control did not reach a neighbour: it did not answer, or it could not be sent.",
    "too-large-to-tell": "Control was larger than a neighbour would take, and was not sent.",
    "unsettled-pairs": "What to expect for a publisher and a subscriber changed too often, and was not told again.",
    "plan": "A plan was taken on.",
    "unplanned": "An event was published that no flow of the plan fits: it goes the shortest way.",
    "unknown-plan": "A packet came whose plan is not known here: it goes the shortest way.",
    "off-the-plan": "A packet came that its plan does not lead on from here: it goes the shortest way.",
    "trees-called": "Other trees were called for.",
    "trees-renewed": "They were, because a link of the trees is not as reliable as when they were built.",
    "trees-stand": "Trees that were called for stand, as far as this peer is on them.",
    "trees-spared": "A tree was not used, since fewer give an event the reliability that is asked for.",
    "widened": "A neighbour on a tree was told that more is wanted than is: the whole would have been too long.",
    "too-early": "What a neighbour wants on trees that do not stand here yet found no room.",
}

LINK_DOWN: Final = "link-down"
LINK_UP: Final = "link-up"
REROUTE: Final = "reroute"
TOO_LARGE: Final = "too-large-to-tell"

DropReason = Literal[
    "link does not answer", "way back is down", "no way left", "no way", "in circles", "no route", "not on the tree",
    "no tree leads there", "not on a tree in time", "too many wait for a tree", "trees not at rest in time",
    "refused by plan", "no room to keep it",
    "cannot be sent", "published before this life", "too old to know whether it was delivered",
    "no subscriber came back", "restarted",
]  # fmt: skip

DROPS: dict[DropReason, str] = {
    "link does not answer": "The next peer did not answer, and the strategy knows no other.",
    "way back is down": "No neighbour led on, and the peer that it came from does not answer.",
    "no way left": "No neighbour led on, and there is none to hand it back to.",
    "no way": "The shortest way begins with no link of this peer.",
    "in circles": "It went from peer to peer for too long.",
    "no route": "No route to the subscriber is known.",
    "not on the tree": "The publisher's tree does not lead to the subscriber from here.",
    "no tree leads there": "None of the trees leads to the subscriber over a link that works.",
    "not on a tree in time": "It waited for trees that lead to the subscriber, and got too old.",
    "too many wait for a tree": "It waited for trees that lead to the subscriber, and had to make room.",
    "trees not at rest in time": "It reached who was on the trees, but these changed too long to say that all were.",
    "refused by plan": "The plan does not admit it.",
    "no room to keep it": "It was kept, and had to make room.",
    "cannot be sent": "It is too large, or cannot be encoded: no link would carry it.",
    "published before this life": "It is older than this peer, which may have handed it over before it restarted.",
    "too old to know whether it was delivered": "So many later ones came that nobody knows whether this one had.",
    "no subscriber came back": "It came after a restart, and nobody subscribed to it again within the grace time.",
    "restarted": "A former life had to see to it: it is kept, so this is not counted.",
}

NO_ROOM: Final = "no room to keep it"
REFUSED: Final = "refused by plan"

RefusalReason = Literal[
    "not a neighbour", "speaks from an earlier life", "speaks of overlays to one whose links are given",
    "acknowledges what it was not sent", "a packet too old to know whether it came before",
    "routes or marks that do not fit the destinations", "sends to nobody by name, where events go by name",
    "a part of nothing", "a part that is no part", "a part that does not fit the others",
    "a part of what was dropped for want of room",
    "a sheet of nothing", "a sheet that is no sheet", "a sheet that does not fit the others",
    "more unfinished control than there is room for", "sheets that make no sense together",
    "a link state that cannot be", "paths that do not fit the links",
    "a filter that cannot be read", "a deadline or reliability that cannot be",
    "floods what it wants, where events are not kept", "wants that cannot be", "expectations that cannot be",
    "a weight that cannot be", "words of a tree that are far ahead", "a word of a tree that makes no sense",
    "trees of a generation that cannot be",
]  # fmt: skip
"""What a neighbour did: the phrase is the sentence."""

ComposedReason = NewType("ComposedReason", str)
"""A reason to refuse that is put together, because it says what was read."""

TOO_OLD: Final = "a packet too old to know whether it came before"
MISFIT: Final = "routes or marks that do not fit the destinations"
