"""Sessions when a peer restarts, moves, gets another certificate or is revoked, and when clocks jump."""

import pytest

from tests.security.doubles import START_S, YEAR_S, MacVerifier, credentials_of, random_bytes
from tests.security.pairs_of_peers import A, B, pair, refused, say
from tests.security.worlds import World
from wend.model.errors import Untrusted
from wend.model.units import MS, SECOND
from wend.security import packets
from wend.security.cookies import Address
from wend.security.handshakes import SILENCE_NS
from wend.security.peer_session import ALIVE_NS
from wend.security.session_effects import SessionEnded, SessionMoved, SessionReady, SessionRefused, TransmitPacket
from wend.security.session_layer import SessionLayer
from wend.security.transport import REKEY_NS

ELSEWHERE: Address = ("10.9.9.9", 7000)


def has_session(layer: SessionLayer, now: int, peer: int) -> bool:
    session = layer.peers.get(peer)
    return session is not None and session.has_keys(now)


@pytest.mark.parametrize("first", [A, B])
def test_after_a_restart_both_sides_speak_again(first: int) -> None:
    world = pair()
    world.hosts[B].start()
    other = A + B - first
    if first == A:  # it does not know of the restart, and finds out
        assert not say(world, A, b"into the void", B, SILENCE_NS + 1)
        say(world, A, b"still no answer", B, SILENCE_NS)
    assert say(world, first, b"again", other)
    assert say(world, other, b"answer", first)
    ready = [effect for effect in world.hosts[A].effects if isinstance(effect, SessionReady)]
    assert [effect.incarnation for effect in ready] == [1, 2]


def test_packets_of_an_earlier_incarnation_are_not_delivered_after_the_restart() -> None:
    world = pair()
    late = world.hosts[A].layer.seal(world.now, B, 0, b"late")
    assert late is not None
    world.hosts[A].start()
    assert say(world, A, b"new", B)
    assert world.hosts[B].layer.open(world.now, late, world.hosts[A].address) is None
    assert refused(world, B) == {"stale": 1}


def test_a_replayed_initiation_is_refused_and_after_a_restart_harmless() -> None:
    world = World(0, 2, on_path=("pass",))  # he only records
    host = world.hosts[A]
    world.attacks = True
    say(world, A, b"first", B)
    initiation = next(one for _, _, one in world.attacker.recorded if packets.packet_type(one) == packets.INITIATION)
    before = world.hosts[B].layer.notices["handshake-answered"]
    world.hosts[B].receive(initiation, host.address)
    assert refused(world, B) == {"replayed-handshake": 1}
    assert world.hosts[B].layer.notices["handshake-answered"] == before
    world.hosts[B].start()
    world.hosts[B].receive(initiation, ("66.6.6.6", 1))  # it may be answered, but gives the attacker nothing
    assert not has_session(world.hosts[B].layer, world.now, A)
    assert say(world, B, b"again", A) and say(world, A, b"answer", B)


def test_an_address_is_adopted_only_from_the_newest_authentic_packet() -> None:
    world = pair()
    a, b = world.hosts[A], world.hosts[B]
    old = a.layer.seal(world.now, B, 0, b"older")
    assert old is not None
    world.sent[b"older"] = (A, 1, B)
    a.address = ("10.9.9.9", 4444)
    assert say(world, A, b"i have moved", B)
    assert b.effects[-1] == SessionMoved(A, ("10.9.9.9", 4444))
    b.receive(old, ("66.6.6.6", 1))  # delayed, and from elsewhere
    b.receive(bytes(60), ("66.6.6.6", 1))
    assert b.effects[-1] == SessionMoved(A, ("10.9.9.9", 4444))
    assert say(world, B, b"there you are", A)


def second_process(world: World, incarnation: int) -> SessionLayer:
    """Another process with the keys of A, which has begun a handshake with B."""
    random = random_bytes("second process", incarnation)
    layer = SessionLayer(credentials_of(A), MacVerifier(), incarnation=incarnation, version=3, random=random)
    layer.tick(world.now, START_S)
    layer.set_address(world.now, B, world.hosts[B].address)
    assert layer.seal(world.now, B, 0, b"i am A, too") is None
    b = world.hosts[B].layer
    for _ in range(3):  # a certificate, a handshake, and the first message
        for effect in layer.take_effects():
            if isinstance(effect, TransmitPacket):
                b.open(world.now, effect.datagram, ELSEWHERE)
        for answer in b.take_effects():
            if isinstance(answer, TransmitPacket):
                layer.open(world.now, answer.datagram, world.hosts[B].address)
            else:
                world.hosts[B].effects.append(answer)
    return layer


def test_a_second_process_with_one_certificate_and_incarnation_is_refused_while_the_first_lives() -> None:
    world = pair()
    second = second_process(world, incarnation=1)
    assert not has_session(second, world.now, B)
    assert refused(world, B) == {"id-in-use": 1}
    assert world.hosts[B].effects[-1] == SessionRefused(ELSEWHERE, "another process has the certificate of peer 1")
    assert say(world, A, b"undisturbed", B)


def test_a_second_process_that_began_later_takes_over_and_the_first_is_told_apart() -> None:
    world = pair()
    assert has_session(second_process(world, incarnation=2), world.now, B)
    assert not say(world, A, b"at once", B)  # as after a restart, something may be under way
    assert refused(world, B) == {"stale": 1}
    world.run(world.now + ALIVE_NS)
    assert not say(world, A, b"still here", B)
    assert refused(world, B)["id-in-use"] >= 1
    where = world.hosts[A].address
    assert SessionRefused(where, "another process has the certificate of peer 1") in world.hosts[B].effects


def test_certificates_that_come_late_are_not_taken_for_those_of_strangers() -> None:
    world = World(0, 2)
    a, b = world.hosts[A].layer, world.hosts[B].layer
    assert a.seal(world.now, B, 0, b"hello") is None
    world.sent[b"hello"] = (A, 1, B)
    questions = [effect.datagram for effect in a.take_effects() if isinstance(effect, TransmitPacket)]
    world.run(world.now + 600 * MS)  # it has asked again, and was answered
    for question in questions:
        b.open(world.now, question, world.hosts[A].address)
    world.hosts[B].perform()
    world.run(world.now + SECOND)
    assert world.delivered[B, b"hello"] == 1
    assert refused(world, A) == {} and a.notices["certificate-late"] == 1


def test_peers_that_an_attacker_has_misled_about_their_addresses_find_each_other_again() -> None:
    world, false = pair(), ("66.6.6.6", 1)
    for one, other in ((A, B), (B, A)):
        packet = world.hosts[one].layer.seal(world.now, other, 0, b"on the way %d" % one)
        assert packet is not None
        world.sent[b"on the way %d" % one] = (one, 1, other)
        world.hosts[other].receive(packet, false)  # he passes it on, and leaves
    assert world.hosts[A].layer.address(B) == world.hosts[B].layer.address(A) == false
    assert not say(world, A, b"into the void", B, within_ns=SILENCE_NS + 2 * SECOND)
    assert say(world, A, b"found", B) and say(world, B, b"again", A)
    assert world.hosts[A].layer.address(B) == world.hosts[B].address


def test_a_clock_that_jumps_by_a_year_ends_sessions_only_where_it_makes_certificates_invalid() -> None:
    world = pair()
    world.hosts[A].clock_s += YEAR_S  # its certificates are valid for ten years
    world.run(world.now + 70 * SECOND)
    assert say(world, A, b"as before", B) and say(world, B, b"as before, too", A)
    world.hosts[A].clock_s += 10 * YEAR_S
    world.run(world.now + 70 * SECOND)
    assert [effect.peer for effect in world.hosts[A].effects if isinstance(effect, SessionEnded)] == [B]
    assert not say(world, A, b"refused", B, 10 * SECOND)
    assert refused(world, A)["untrusted"] > 0
    world.hosts[A].clock_s = START_S  # right again
    world.run(world.now + 6 * SECOND)
    assert say(world, A, b"welcome back", B) and say(world, B, b"thank you", A)


def test_a_certificate_that_ends_ends_the_session_and_a_new_one_begins_the_next() -> None:
    world = World(0, 2)
    short = credentials_of(B, life_s=100)
    world.hosts[B].layer.renew(short)
    assert say(world, A, b"valid", B) and say(world, B, b"still", A)
    world.run(102 * SECOND)
    assert world.hosts[A].effects[-1] == SessionEnded(B, "the certificate has ended")
    assert not say(world, B, b"no more", A, 10 * SECOND)
    with pytest.raises(Untrusted, match="peer 1"):
        world.hosts[B].layer.renew(credentials_of(A))
    world.hosts[B].layer.renew(credentials_of(B, serial=77))
    world.run(world.now + 6 * SECOND)
    assert say(world, B, b"renewed", A) and say(world, A, b"fine", B)
    identity = world.hosts[A].layer.identity(B)
    assert identity is not None and identity.serial == 77


def test_a_certificate_with_another_key_is_found_by_asking_again() -> None:
    world = pair()
    world.hosts[B].layer.renew(credentials_of(B, serial=78, key="rolled"))
    world.run(world.now + 125 * SECOND)
    for number in range(8):
        say(world, A, b"while the keys change %d" % number, B)
    world.run(world.now + 60 * SECOND)
    assert say(world, A, b"on", B)
    identity = world.hosts[A].layer.identity(B)
    assert identity is not None and identity.serial == 78


def test_a_revoked_peer_is_out_at_once() -> None:
    world = pair()
    a = world.hosts[A]
    a.verifier.revoked.add(1000 + B)
    a.layer.recheck(world.now, a.verifier)
    a.perform()
    assert a.effects[-1] == SessionEnded(B, "it is revoked")
    assert not say(world, B, b"let me in", A, 20 * SECOND)
    assert not say(world, A, b"not to you", B, 10 * SECOND)
    assert refused(world, A)["untrusted"] > 0


def rekeyed(world: World, certificate_s: int) -> bytes:
    """B gets a certificate with serial 77, and new keys rest on it. Returns a packet of B under the former keys, which
    rest on a certificate of so many seconds."""
    world.hosts[B].layer.renew(credentials_of(B, life_s=certificate_s))
    assert say(world, A, b"first", B) and say(world, B, b"second", A)
    packet = world.hosts[B].layer.seal(world.now, A, 0, b"under way")
    assert packet is not None
    world.hosts[B].layer.renew(credentials_of(B, serial=77))
    world.run(REKEY_NS + 2 * SECOND)
    assert say(world, A, b"new keys", B) and say(world, B, b"answer", A)
    identity = world.hosts[A].layer.identity(B)
    assert identity is not None and identity.serial == 77
    return packet


@pytest.mark.parametrize(("revoked", "life_s", "opens"), [(False, 999, True), (True, 999, False), (False, 130, False)])
def test_former_keys_open_nothing_once_their_certificate_is_revoked_or_ends(
    revoked: bool, life_s: int, opens: bool
) -> None:
    world = World(0, 2)
    packet, a = rekeyed(world, life_s), world.hosts[A]
    world.run(134 * SECOND)
    if revoked:
        a.verifier.revoked.add(1000 + B)
        a.layer.recheck(world.now, a.verifier)
    opened = a.layer.open(world.now, packet, world.hosts[B].address)
    assert opened == ((B, 1, 0, b"under way") if opens else None)
    assert refused(world, A) == ({} if opens else {"unknown-keys": 1})
    assert say(world, B, b"undisturbed", A) and not any(isinstance(effect, SessionEnded) for effect in a.effects)


def test_a_peer_that_is_revoked_while_it_has_no_keys_is_told_of_too() -> None:
    world = pair()
    a = world.hosts[A]
    world.run(world.now + 200 * SECOND)
    assert not has_session(a.layer, world.now, B)
    a.verifier.revoked.add(1000 + B)
    for _ in range(2):  # once, and not again
        a.layer.recheck(world.now, a.verifier)
        a.perform()
    assert [effect for effect in a.effects if isinstance(effect, SessionEnded)] == [SessionEnded(B, "it is revoked")]


def test_a_certificate_that_somebody_shows_does_not_change_whom_a_session_is_with() -> None:
    world = pair()
    a, where, other = world.hosts[A].layer, world.hosts[B].address, credentials_of(B, serial=55)
    numbers: list[bytes] = []
    while not numbers:  # B is silent, so A asks for its certificate
        world.now += 250 * MS
        a.seal(world.now, B, 0, b"is anybody there?")
        a.tick(world.now, START_S)
        sent = [effect.datagram for effect in a.take_effects() if isinstance(effect, TransmitPacket)]
        numbers = [packet[4:12] for packet in sent if packets.packet_type(packet) == packets.QUESTION]
    a.open(world.now, packets.encode_certificate(numbers[0], other.certificate), where)
    (begun,) = (effect for effect in a.take_effects() if isinstance(effect, TransmitPacket))
    assert packets.packet_type(begun.datagram) == packets.INITIATION  # to the key of the certificate
    identity = a.identity(B)
    assert has_session(a, world.now, B) and identity is not None and identity.serial == 1000 + B


# ---------------------------------------------------------------- addresses and incarnations that others had


def crossed(seed: int) -> World:
    """Two peers whose first handshakes crossed."""
    world = World(seed, 2)
    world.hosts[A].send(B, b"a")
    world.hosts[B].send(A, b"b")
    world.run(world.now + 3 * SECOND)
    return world


def test_a_move_is_noticed_after_handshakes_that_crossed() -> None:
    for seed in range(12):
        world = crossed(seed)
        world.hosts[A].address = ELSEWHERE
        for number in range(3):
            world.hosts[A].send(B, b"moved %d" % number)
            world.run(world.now + 100 * MS)
        assert world.hosts[B].layer.address(A) == ELSEWHERE
        assert say(world, B, b"there", A)


def test_after_handshakes_that_crossed_both_soon_seal_with_the_same_keys() -> None:
    for seed in range(12):
        world = crossed(seed)
        for number in range(3):
            assert say(world, A, b"a %d" % number, B, 200 * MS)
            assert say(world, B, b"b %d" % number, A, 200 * MS)
        ours, theirs = world.hosts[A].layer.peers[B].current, world.hosts[B].layer.peers[A].current
        assert ours is not None and theirs is not None and ours.index == theirs.receiver
        world.run(world.now + REKEY_NS)
        assert say(world, A, b"another key", B) and say(world, B, b"and back", A)
        assert len(world.delivered) == len(world.sent)


def test_one_late_packet_under_former_keys_moves_nobody() -> None:
    world = pair()
    late = world.hosts[A].layer.seal(world.now, B, 0, b"late")
    assert late is not None
    world.sent[b"late"] = (A, 1, B)
    world.run(world.now + REKEY_NS)
    assert say(world, A, b"another key", B) and say(world, A, b"under it", B)
    world.hosts[B].receive(late, ELSEWHERE)
    assert world.delivered[B, b"late"] == 1
    assert world.hosts[B].layer.address(A) == world.hosts[A].address


def test_who_has_the_former_address_of_another_peer_is_reached_there() -> None:
    """By messages to an address, such as those of a peer that joins."""
    world = World(3, 3)
    joining, other, contact = (world.hosts[peer] for peer in (1, 2, 3))
    joining.layer.forget(3)
    contact.layer.forget(1)
    assert say(world, 2, b"hello", 1)
    spot, home = contact.address, other.address
    contact.address, other.address = ("0.0.0.0", 1), spot
    assert say(world, 2, b"from there", 1)
    contact.address, other.address = spot, home
    assert say(world, 2, b"at home", 1)
    world.sent[b"who is there?"] = (1, 1, 3)
    joining.layer.send_to(world.now, spot, 0, b"who is there?")
    joining.perform()
    world.run(world.now + 2 * SECOND)
    assert world.delivered[3, b"who is there?"] == 1


def test_a_wrong_source_does_not_take_the_address_of_a_peer_that_lives() -> None:
    world = World(3, 3)
    assert say(world, 2, b"hello", 1) and say(world, 3, b"hello, too", 1)
    a, b, c = (world.hosts[peer] for peer in (1, 2, 3))
    home, b.address = b.address, c.address
    c.address = ("0.0.0.0", 1)
    assert say(world, 2, b"with another source", 1, SECOND)
    b.address, c.address = home, ("10.0.0.3", 7000)
    world.sent[b"to an address"] = (1, 1, 3)
    a.layer.send_to(world.now, c.address, 0, b"to an address")
    a.perform()
    world.run(world.now + SECOND)
    assert world.delivered[3, b"to an address"] == 1
