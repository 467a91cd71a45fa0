"""The page of notices, drops, refusals and the drivers' own counters."""

from wend.drivers.live.counters import FAILURES
from wend.protocol.notices import DROPS, NOTICES, REFUSALS

PAGE = """\
# Notices and counters

<!-- Written by scripts/reference.py. -->

A peer counts everything that it drops, refuses or repeats, under a fixed code. [Status](status.md) says where you see
the counters; [guarantees](../guarantees.md) says which losses are possible.

| in `wend status` and `client.status()` | in `wend sim` | meaning |
| --- | --- | --- |
| `notices.link-down` | `noticed`; with `--json`, `notices` | a [notice](#notices): an operator may want to know |
| `drops.no-route` | `given up`; with `--json`, `drops` | an event goes no further from here; one for each destination |
| `refused.not-neighbour` | `noticed`, as `refused-not-neighbour` | a mistake of another peer; the link stays up |
| `failed.send` | | a failure of this peer or of its machine |

In `wend sim` there may be more drops than missing deliveries: drops for subscribers that were down are counted, too.
"""

COUNTED_BY = {
    "link-down": "each end of the link",
    "link-up": "each end of the link",
    "linked": "each end of the link",
    "unlinked": "each end of the link",
    "late-ack": "the peer that the ACK arrived at",
    "hedge": "the peer where the routes part",
    "published-early": "the publisher",
    "not-advertised": "the publisher",
    "unplanned": "the publisher",
    "trees-spared": "the publisher, once for each tree",
    "no-subscriber": "the peer of the subscriber",
    "control-lost": "the sender of the message",
    "control-too-large": "the sender of the message",
    "filters-widened": "the sender of the message",
    "not-accepted": "the sender of the fragments",
    "unstable-pairs": "every peer that computes the expectation",
    "trees-complete": "every peer on the trees",
}
"""The peer that counts a notice, if it is not simply the one at which it happens."""

NOTICES_ABOUT = """
## Notices

The peer at which it happens counts a notice, unless the row names another. Peers count `link-down` and `link-up` if the
strategy asks for the failure detector, as `adaptive` does.

| notice | meaning |
| --- | --- |
"""

DROPS_ABOUT = """
## Drops

With `persistence` a peer stores an event that cannot go on (the notice `stored`). It drops the event only if there is
no room, or on purpose. The codes stand in the table `drops` of a trace.

| code | meaning |
| --- | --- |
"""

REFUSALS_ABOUT = """
## Refusals

A peer counts a refusal when another peer, or its own application, made a mistake. It takes no link down for it.

| code | meaning |
| --- | --- |
"""

LIVE = {
    "published": "Events that the peer's clients published.",
    "delivered": "Deliveries to the peer's subscriptions.",
    "late": "Deliveries after the deadline of their subscription.",
    "subscriptions": "Subscriptions that the peer has for its clients; equal ones count once.",
    "in_flight": "Events that wait for an acknowledgement of the next hop.",
    "waiting": "Events that wait for a retry.",
    "data": "Data packets sent to neighbours, retransmissions included.",
    "data_unicast": "The same, with one packet for each destination that a packet is for.",
    "control.acks": "Acknowledgements sent.",
    "control.hellos": "Hellos sent over quiet links, by the failure detector.",
    "control.flooded": "Messages of the plug-in `flooded` sent; likewise for every other plug-in that sends messages, "
    "under its name.",
    "clients.now": "Clients that are connected at this moment.",
    "clients.connected": "Clients that connected since the peer started.",
    "clients.refused": "Clients that were turned away because there were too many.",
    "clients.denied": "Requests that were answered with an error.",
    "clients.dropped": "Events that a client did not read soon enough.",
    "clients.expired": "Events that outlived their ttl while a client did not read.",
    "notices.missed": "Events that a subscription did not get, as its client was told; in `wend sim`.",
    "clients.garbage": "Clients that sent bytes that cannot be read.",
    "clients.retained-unsent": "Questions and answers about retained events that could not be sent.",
    "clients.silent": "Clients that did not greet in time.",
    "clients.stalled": "Clients that read nothing for too long.",
    "clients.unaccepted": "Connections that could not be accepted, such as for lack of files.",
    "clients.flood-refused": "Connections that were closed at once: too many strangers, from one source or in all.",
    "clients.tls-failed": "Connections whose TLS handshake failed: no TLS, or a certificate of another root.",
    "clients.not-admitted": "Clients whose certificate or token was missing, unknown, ended or revoked.",
    "clients.rights-changed": "Clients that had to connect again, because grants have changed.",
    "clients.publish-refused": "Publications that the client's grants do not allow.",
    "clients.subscribe-refused": "Subscriptions that the client's grants do not allow.",
    "clients.reply-refused": "Replies to requests that the client had not received.",
    "clients.admin-refused": "Requests for administrators, from clients that are none.",
    "clients.rate-refused": "Publications beyond the events or bytes a second of a client or group.",
    "clients.connections-refused": "Connections beyond those of a client or group.",
    "clients.subscriptions-refused": "Subscriptions beyond those of a client or group.",
    "clients.kept-refused": "Durable subscriptions and retained events beyond the kept bytes of a client or group.",
    "clients.status-refused": "Status calls of a client that asked too often.",
    "clients.signature-refused": "Signatures of events that did not verify: the event is delivered as one that is not "
    "signed.",
    "clients.withheld": "Events of a backlog that the client may no longer receive.",
    "clients.undeliverable": "Events that a client could not be told, because no frame holds them.",
    "clients.failed": "Clients whose session failed inside the peer.",
    "shaper.lost": "Datagrams lost on purpose: by `shape` in the peer's file, or by `client.cut`.",
    "shaper.corrupted": "Datagrams corrupted on purpose, by `shape` in the peer's file.",
    "notices.multicast": "The peer sent a multicast packet; `wend sim` counts them, too.",
    "notices.multicast-without-key": "The peer did not send a multicast packet: it has keys, and not yet the group's.",
    "notices.group-key": "The peer has another key of a multicast group: it made it, or its keeper told it.",
    "notices.multicast-off": "The peer did not send a multicast packet, because multicast is off or cannot be had.",
    "notices.session": "Keys of a session with another peer came into use: the first, and new ones every two minutes.",
    "notices.session-ended": "A session ended, because the certificate of the other peer has ended or was revoked.",
    "notices.handshake-begun": "The peer began a handshake for a session, or began it again.",
    "notices.handshake-answered": "The peer answered a handshake of another one.",
    "notices.handshake-given-up": "A handshake was not answered, and there was no longer anything to send.",
    "notices.cookie-sent": "There were many handshakes, and the peer asked a sender to show that it has its address.",
    "notices.certificate-late": "A certificate came that the peer had asked for, and no longer needed.",
    "notices.certificate-sent": "The peer told somebody its certificate.",
    "notices.no-session": "A message was not sent, because a handshake took too long or too many messages waited for "
    "it.",
    "paths.traces": "Underlay paths measured.",
    "paths.remembered": "Underlay paths answered from the cache.",
    "paths.failed": "Underlay paths that could not be measured.",
    "paths.probes": "Probes sent.",
    "paths.answers": "Answers to probes.",
    "paths.named": "Hops whose router is known.",
    "paths.silent": "Hops that did not answer.",
    "paths.private": "Hops with a private address, which names no router.",
    "paths.cut-short": "Paths that did not reach the other peer.",
    "paths.inferred": "Paths with silent hops that `inferred_topology` filled, all of them.",
    "paths.incomplete": "Paths with silent hops of which it did not fill all.",
    "paths.unreadable": "Attempts to read a changed output of `wend data topology` that failed.",
    "paths.probes-answered": "Probes of other peers that this peer answered.",
    "refused.stranger": "A datagram came from an address that belongs to no known peer, and on a ring does not answer "
    "as its sender.",
    "refused.misdirected": "A datagram from a known address names another sender or receiver.",
    "refused.stale": "A datagram came from an earlier incarnation of its sender.",
    "refused.garbage": "A datagram could not be decoded.",
    "refused.corrupted": "Bits of a datagram changed on the way: it does not have its checksum.",
    "refused.other-version": "A datagram of a peer that speaks another version of the wire format.",
    "refused.not-sealed": "A datagram came to a peer with keys, and is no packet of a session.",
    "refused.malformed": "A packet of a session does not have the size or type that it must have.",
    "refused.unknown-keys": "A sealed packet names keys that the peer does not have, perhaps since a restart.",
    "refused.old-keys": "A sealed packet came under keys that had ended.",
    "refused.replayed": "A sealed packet came again, or is too old to say.",
    "refused.forged": "A sealed packet is not authentic, or was corrupted on the way.",
    "refused.wrong-mac": "A handshake is not for this peer: its sender does not know its public key.",
    "refused.wrong-handshake": "A handshake is not authentic, or was corrupted on the way.",
    "refused.replayed-handshake": "A handshake came again, or is of an earlier incarnation of its sender.",
    "refused.untrusted": "A certificate is not accepted: of another root, ended or revoked; the log says which.",
    "refused.other-certificate": "A certificate does not belong to the key or to the peer that was meant.",
    "refused.too-many-handshakes": "There were more handshakes than the limits allow, in all or from one host.",
    "refused.too-many-questions": "More strangers asked for the certificate than the limits allow.",
    "refused.too-many-peers": "There are sessions with as many peers as there is room for.",
    "refused.unexpected-answer": "An answer to a handshake came too late, or was forged.",
    "refused.unexpected-cookie": "A cookie came too late, or was forged.",
    "refused.multicast-of-nonmember": "A sealed multicast packet claims a sender that is no member.",
    "refused.former-group-key": "A multicast packet, or the key of a group itself, is older than the present key.",
    "refused.unknown-group-key": "So many multicast packets wait for the key of their group that there is no room.",
    "refused.group-key-of-nonmember": "A message about the key of a group came from a peer that is no member of it.",
    "refused.group-key-of-nonkeeper": "The key of a multicast group came from a member that does not keep it.",
    "refused.id-in-use": "Two processes have one certificate, and both live.",
    "refused.unexpected-certificate": "A certificate came too late, from elsewhere, or was forged.",
    "refused.forwarding-not-granted": "A grant names other publishers for the neighbour's groups.",
    "refused.foreign-multicast": "A packet came to the address of a multicast group, and is not Wend's.",
    "refused.other-multicast-group": "A group that the peer did not join has the same multicast address.",
    "refused.no-address": "A message was for a peer whose address is not known. On a ring: and was not found in time.",
    "refused.id-of-other-peer": "On a ring: a datagram named a sender that answers at another address.",
    "refused.unexpected-addresses": "It came too late, or from elsewhere than the question went to.",
    "refused.short-address-question": "Such a question is not answered.",
    "refused.oversize": "A message was too large to be sent, or could not be encoded.",
    "refused.store-full": "An event came while the store could not be written and too many events waited for it.",
    **{f"failed.{code}": sentence for code, sentence in FAILURES.items()},
}
"""What the live driver counts by itself."""

SIMULATED = {
    "notices.publisher-down": "`wend sim`: a publisher was down when it was to publish.",
    "notices.refused-corrupted": "`wend sim`: a peer refused a packet that its link had corrupted.",
    "notices.paths": "`wend sim`: a peer asked for the underlay path to another.",
    "notices.paths-inferred": "`wend sim`: `inferred_topology` filled all silent hops of such a path.",
    "notices.paths-incomplete": "`wend sim`: it did not.",
    "notices.multicast-lost": "`wend sim`: a multicast packet did not reach a peer that joined its group.",
    "drops.queue-full": "`wend sim`: the queue of a link with a capacity was full.",
    "drops.peer-queue-full": "`wend sim`: the queue of a peer with a capacity was full.",
    "drops.queue-delay": "`wend sim`: CoDel dropped a packet, because packets waited too long in its queue.",
    "notices.background-packets": "`wend sim`: packets of background flows that arrived.",
    "notices.queue-full": "`wend sim`: the same for a control message; `peer-queue-full` likewise.",
    "notices.queue-full-again": "`wend sim`: the same for a destination that was counted as dropped before.",
    "notices.after-settling": "`wend up`: an event arrived after it had been counted as missing.",
    "notices.delivered-twice": "`wend up`: a subscriber got an event twice.",
}
"""What the simulator and the experiment on one machine count by themselves."""

LIVE_ABOUT = """
## Counters of the live driver

| counter | meaning |
| --- | --- |
"""

SIMULATED_ABOUT = """
## Counters of the simulator and of `wend up`

| counter | meaning |
| --- | --- |
"""


def page() -> str:
    notices = {name: f"{about} {_counted_by(name)}".strip() for name, about in NOTICES.items()}
    return "".join(
        [PAGE, NOTICES_ABOUT, _rows(notices), DROPS_ABOUT, _rows(DROPS), REFUSALS_ABOUT, _rows(REFUSALS),
         LIVE_ABOUT, _rows(LIVE), SIMULATED_ABOUT, _rows(SIMULATED)]
    )  # fmt: skip


def _counted_by(name: str) -> str:
    return f"Counted by {COUNTED_BY[name]}." if name in COUNTED_BY else ""


def _rows(sentences: dict[str, str]) -> str:  # type: ignore[type-arg]
    return "".join(f"| `{name}` | {about} |\n" for name, about in sentences.items())
