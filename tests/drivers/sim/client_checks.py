"""Checks of a run with clients: what durable subscriptions promise, from what each client saw.

    lost      an event whose receipt said kept reaches every durable subscription that was stored when it was published
              and whose peer the receipt names, unless it expired, fell out of the backlog, or order went on without it
    doubled   a client gets nothing that it had confirmed, and nothing twice on one connection; repetitions say so
    order     on one connection, events of one incarnation of a publisher's peer come in the order of publication, and
              none comes after a later one was confirmed, once the publisher's peer knows the subscription
    expired   nothing is delivered past its ttl, or past the deadline of a subscription that lets events expire
    bounds    backlogs and windows stay within their bounds, and what falls out is reported
    ended     nothing comes after an unsubscribe

On a DHT receipts name nobody. There an event reaches every durable subscription that was stored `KNOWN_NS` before.
"""

from tests.drivers.sim.client_engine import ClientEngine
from tests.drivers.sim.clients import SimulatedClient
from wend.matching.filters import parse
from wend.model.events import EventId, PeerId
from wend.model.units import FOREVER, SECOND, Nanos

KNOWN_NS: Nanos = 2 * SECOND
"""After so long a subscription is known where it has to be, if receipts do not tell."""
FELL_OUT = ("backlog-full", "max-age")


def broken_promises(engine: ClientEngine) -> list[str]:
    """What is wrong, one sentence each; the run is over, and its faults ended long enough before."""
    found = list(engine.late)
    for client in engine.clients.values():
        who = f"client {client.number} of peer {client.plan.peer}"
        found += [f"{who}: {what}" for what in (*client.wrong, *lacking(engine, client), *_out_of_order(client))]
    return [*found, *_unreported(engine)]


def due(engine: ClientEngine, client: SimulatedClient) -> list[EventId]:
    """The events that the client has to get."""
    peer, wanted = client.plan.peer, parse(client.plan.subscription.filter)
    if client.since_ns is None or client.plan.end_ns < FOREVER:
        return []
    since_ns = client.since_ns if engine.knows_all_subscribers else client.since_ns + KNOWN_NS
    return [
        id_
        for id_, sent in engine.sent.items()
        if sent.receipt is not None
        and sent.receipt.kept
        and sent.time_ns > since_ns
        and (peer in sent.receipt.targets or not engine.knows_all_subscribers)
        and wanted.matches(sent.attributes)
    ]


def lacking(engine: ClientEngine, client: SimulatedClient) -> list[str]:
    """The events that the client has to get and did not."""
    qos, peer = client.plan.subscription.qos, client.plan.peer
    got = {sight.id for sight in client.seen}
    found = []
    for id_ in due(engine, client):
        excused = {*FELL_OUT}
        if engine.sent[id_].ttl_ns is not None or qos.expire:
            excused.add("expired")
        if qos.order:
            excused.add("overtaken")
        if id_ not in got and not excused & engine.dropped.get((id_, peer), set()):
            when = engine.sent[id_].time_ns / SECOND
            found.append(f"event {id_}, kept at {when:.3f} s, is lost {sorted(engine.dropped.get((id_, peer), ()))}")
    return found


def _out_of_order(client: SimulatedClient) -> list[str]:
    if not client.plan.subscription.qos.order:
        return []
    found = []
    last: dict[tuple[int, PeerId, int], int] = {}
    final: dict[tuple[PeerId, int], int] = {}
    confirmed = sorted(client.confirmed.items(), key=lambda one: one[1])
    done = 0
    for sight in client.seen:
        if not sight.ordered:
            continue
        while done < len(confirmed) and confirmed[done][1] < sight.time_ns:
            id_ = confirmed[done][0]
            final[id_[:2]] = max(final.get(id_[:2], 0), id_.sequence)
            done += 1
        publisher, sequence = sight.id[:2], sight.id.sequence
        before = last.get((sight.connection, *publisher), 0)
        last[sight.connection, *publisher] = sequence
        if sequence <= before:
            found.append(f"at {sight.time_ns / SECOND:.3f} s: event {sight.id} comes after {before}")
        elif not sight.again and sequence < final.get(publisher, 0):
            late = f"comes after {final[publisher]} was confirmed"
            found.append(f"at {sight.time_ns / SECOND:.3f} s: event {sight.id} {late}")
    return found


def _unreported(engine: ClientEngine) -> list[str]:
    """Peers that crashed between two effects may have lost count; so may subscriptions that ended."""
    unsure = {restart.peer for restart in engine.restarts if restart.kind == "kill"}
    unsure |= {client.plan.peer for client in engine.clients.values() if client.plan.end_ns < FOREVER}
    told: dict[PeerId, int] = {}
    for client in engine.clients.values():
        backlog = engine.backlog(client)
        left = {} if backlog is None else backlog.unreported
        count = sum(client.missed[reason] + left.get(reason, 0) for reason in FELL_OUT)  # type: ignore[call-overload]
        told[client.plan.peer] = told.get(client.plan.peer, 0) + count
    return [
        f"peer {peer} dropped {engine.room[peer]} from its backlogs and reported {count}"
        for peer, count in told.items()
        if peer not in unsure and count != engine.room[peer]
    ]
