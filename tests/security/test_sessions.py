"""Sessions from the first message to the end: handshakes, new keys, restarts, moves, clocks, certificates, floods."""

import pytest

from tests.security.doubles import START_S, YEAR_S, MacVerifier, certificate_of, credentials_of, random_bytes
from tests.security.worlds import World, converse
from wend.model.errors import Untrusted
from wend.model.units import MS, SECOND
from wend.security import packets
from wend.security.cookies import Address, SourceLimits, mac, mac1_key, network_of
from wend.security.handshakes import PROLOGUE, SILENCE_NS
from wend.security.noise import Initiation, KeyPair
from wend.security.peer_session import ALIVE_NS, MOST_WAITING, WAIT_NS
from wend.security.replay import WINDOW, ReplayWindow
from wend.security.session_effects import SessionEnded, SessionMoved, SessionReady, SessionRefused, TransmitPacket
from wend.security.session_layer import SessionLayer
from wend.security.session_table import MOST_UNKNOWN

A, B = 1, 2
ELSEWHERE: Address = ("10.9.9.9", 7000)


def pair(seed: int = 0) -> World:
    """Two peers that have spoken."""
    world = World(seed, 2)
    say(world, A, b"first", B)
    return world


def say(world: World, speaker: int, body: bytes, to: int, within_ns: int = 2 * SECOND) -> bool:
    """Send a message; whether it arrives."""
    world.hosts[speaker].send(to, body)
    world.run(world.now + within_ns)
    return world.delivered[to, body] == 1


def refused(world: World, peer: int) -> dict[str, int]:
    return dict(world.hosts[peer].layer.refused)


# ---------------------------------------------------------------- layout


def test_a_sealed_packet_costs_no_more_than_eight_bytes_beside_an_open_one() -> None:
    assert packets.OVERHEAD_BYTES == 32  # an open datagram has 28, and 4 of a checksum
    world = pair()
    sealed = world.hosts[A].layer.seal(world.now, B, 0, b"x" * 100)
    assert sealed is not None and len(sealed) == 132 and b"x" * 20 not in sealed


def test_no_reply_is_larger_than_its_cause() -> None:
    assert packets.ANSWER_BYTES + packets.MAX_CERTIFICATE_BYTES <= packets.INITIATION_BYTES <= 1200
    assert packets.COOKIE_PACKET_BYTES < packets.INITIATION_BYTES
    assert len(packets.certificate(bytes(8), bytes(packets.MAX_CERTIFICATE_BYTES))) == packets.QUESTION_BYTES


def test_an_introduction_is_read_as_it_was_written() -> None:
    said = packets.Introduction(3, 2**63, 7, b"certificate")
    assert packets.decode_introduction(said.encode(padded=True)) == said
    assert packets.decode_introduction(said.encode(padded=False)) == said


# ---------------------------------------------------------------- the window


def test_the_window_agrees_with_a_set() -> None:
    draw = random_bytes("window")
    window, seen, highest, base = ReplayWindow(), set[int](), -1, 0
    for _ in range(20_000):
        base += draw(1)[0] // 64
        number = max(0, base - int.from_bytes(draw(2), "little") % (WINDOW + 500))
        fresh = number not in seen and number > highest - WINDOW
        assert window.is_new(number) == fresh
        if fresh:
            assert window.add(number) == (number > highest)
            seen.add(number)
            highest = max(highest, number)
    window.add(10**9)
    assert not window.is_new(10**9) and window.is_new(10**9 - WINDOW + 1) and not window.is_new(10**9 - WINDOW)


# ---------------------------------------------------------------- handshakes


def test_the_first_message_waits_for_the_handshake_and_arrives() -> None:
    world = World(1, 2)
    assert say(world, A, b"hello", B)
    assert say(world, B, b"answer", A)
    for peer, other in ((A, B), (B, A)):
        ready = [effect for effect in world.hosts[peer].effects if isinstance(effect, SessionReady)]
        assert ready == [SessionReady(other, world.hosts[other].address, 1)]
        identity = world.hosts[peer].layer.identity(other)
        assert identity is not None and identity.name == f"site-{other}"
    assert refused(world, A) == refused(world, B) == {}


@pytest.mark.parametrize("seed", range(5))
def test_simultaneous_handshakes_both_complete(seed: int) -> None:
    world = World(seed, 2)
    world.hosts[A].send(B, b"from a")
    world.hosts[B].send(A, b"from b")
    world.run(3 * SECOND)
    assert world.delivered == {(B, b"from a"): 1, (A, b"from b"): 1}
    converse(world, 100 * SECOND)
    world.run(101 * SECOND)
    assert len(world.delivered) == len(world.sent)


def test_what_waits_for_a_handshake_is_bounded_and_counted() -> None:
    layer = SessionLayer(credentials_of(A), MacVerifier(), incarnation=1, version=3, random=random_bytes("a"))
    layer.tick(SECOND, START_S)
    layer.locate(SECOND, B, ("10.0.0.2", 7000))
    for number in range(MOST_WAITING + 10):
        assert layer.seal(SECOND, B, 0, b"%d" % number) is None
    assert layer.notices["no-session"] == 10
    layer.tick(SECOND + WAIT_NS, START_S)
    assert layer.notices["no-session"] == MOST_WAITING + 10
    assert layer.seal(SECOND, 77, 0, b"nobody knows where that is") is None
    assert layer.notices["no-session"] == MOST_WAITING + 11
    for number in range(MOST_UNKNOWN + 5):
        layer.send_to(SECOND, (f"10.1.{number // 250}.{number % 250}", 1), 2, b"?")
    assert layer.notices["no-session"] == MOST_WAITING + 16


def test_a_message_to_an_address_finds_out_who_is_there() -> None:
    world = World(3, 2)
    host = world.hosts[A]
    host.layer.forget(B)
    world.sent[b"who?"] = (A, 1, B)
    host.layer.send_to(world.now, world.hosts[B].address, 2, b"who?")
    host.perform()
    world.run(2 * SECOND)
    assert world.delivered == {(B, b"who?"): 1}


def test_a_peer_of_another_version_is_refused() -> None:
    world = World(0, 2)
    world.hosts[B].layer = SessionLayer(
        credentials_of(B), MacVerifier(), incarnation=1, version=4, random=random_bytes("b")
    )
    world.hosts[B].layer.tick(world.now, START_S)
    assert not say(world, A, b"hello", B)
    assert refused(world, B)["another version"] > 0


def test_a_certificate_of_a_client_or_of_another_key_is_refused() -> None:
    with pytest.raises(Untrusted, match="client"):
        SessionLayer(credentials_of(None), MacVerifier(), incarnation=1, version=3, random=random_bytes("c"))
    world = World(0, 2)
    stolen, own = credentials_of(A), credentials_of(A, key="another")
    thief = type(own)(stolen.certificate, own.session_secret, own.signing_secret, stolen.identity)
    world.hosts[A].layer = SessionLayer(thief, MacVerifier(), incarnation=9, version=3, random=random_bytes("t"))
    world.hosts[A].layer.tick(world.now, START_S)
    world.hosts[A].layer.locate(world.now, B, world.hosts[B].address)
    assert not say(world, A, b"hello", B)
    assert refused(world, B)["a certificate of somebody else"] > 0


# ---------------------------------------------------------------- new keys


def test_a_thousand_rekeys_under_load_lose_nothing_and_pause_nothing() -> None:
    world = World(5, 2, tick_ns=2 * SECOND)
    say(world, A, b"first", B)
    number, waits = 0, 0
    while min(host.layer.notices["session"] for host in world.hosts.values()) < 1000:
        for speaker, to in ((A, B), (B, A)):
            for _ in range(3):  # so that packets under old and new keys overtake each other
                number += 1
                world.hosts[speaker].send(to, b"%d" % number)
                waits += world.hosts[speaker].layer.waiting(to)
        world.run(world.now + 5 * SECOND)
    assert world.now > 1000 * 100 * SECOND and waits == 0
    world.run(world.now + SECOND)
    assert len(world.delivered) == len(world.sent) == number + 1
    assert refused(world, A) == refused(world, B) == {}
    for host in world.hosts.values():
        assert host.layer.size < 20
        assert not host.layer.notices["no-session"]


def test_keys_end_after_three_minutes() -> None:
    world = pair()
    old = world.hosts[A].layer.seal(world.now, B, 0, b"late")
    assert old is not None
    world.run(world.now + 179 * SECOND)
    world.run(world.now + 3 * SECOND)
    assert world.hosts[B].layer.open(world.now, old, world.hosts[A].address) is None
    assert sum(refused(world, B).values()) == 1
    assert say(world, B, b"again", A)


def test_a_peer_that_only_listens_shows_now_and_then_that_it_has_the_keys() -> None:
    world = pair()
    for number in range(110):
        assert say(world, A, b"%d" % number, B, SECOND)
    assert world.hosts[A].layer.notices["handshake-begun"] == 1
    assert world.hosts[A].layer.notices["session"] == 1
    quiet = len(world.counters)
    world.run(world.now + 50 * SECOND)
    assert len(world.counters) - quiet <= 2  # empty packets are not answered


# ---------------------------------------------------------------- restarts, moves, clocks


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
    initiation = next(one for _, _, one in world.attacker.recorded if packets.type_of(one) == packets.INITIATION)
    before = world.hosts[B].layer.notices["handshake-answered"]
    world.hosts[B].receive(initiation, host.address)
    assert refused(world, B) == {"replayed handshake": 1}
    assert world.hosts[B].layer.notices["handshake-answered"] == before
    world.hosts[B].start()
    world.hosts[B].receive(initiation, ("66.6.6.6", 1))  # it may be answered, but gives the attacker nothing
    assert not world.hosts[B].layer.has_session(world.now, A)
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
    layer.locate(world.now, B, world.hosts[B].address)
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
    assert not second.has_session(world.now, B)
    assert refused(world, B) == {"an id that another process has": 1}
    assert world.hosts[B].effects[-1] == SessionRefused(ELSEWHERE, "another process has the certificate of peer 1")
    assert say(world, A, b"undisturbed", B)


def test_a_second_process_that_began_later_takes_over_and_the_first_is_told_apart() -> None:
    world = pair()
    assert second_process(world, incarnation=2).has_session(world.now, B)
    assert not say(world, A, b"at once", B)  # as after a restart, something may be under way
    assert refused(world, B) == {"stale": 1}
    world.run(world.now + ALIVE_NS)
    assert not say(world, A, b"still here", B)
    assert refused(world, B)["an id that another process has"] >= 1
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


# ---------------------------------------------------------------- floods


def initiation_to(victim: int, number: int) -> bytes:
    """An initiation by somebody whose certificate another root signed."""
    said = packets.Introduction(3, 1, number, certificate_of(credentials_of(A).identity, b"another root"))
    draw, key = random_bytes("flood", number), KeyPair(credentials_of(victim).session_secret).public
    made = Initiation(KeyPair(draw(32)), key, draw(32), PROLOGUE).write(said.encode(padded=True))
    packet = packets.initiation(number + 1, made)
    return packet + mac(mac1_key(key), packet) + bytes(16)


def test_a_flood_of_initiations_costs_a_bounded_number_of_key_operations_and_no_memory() -> None:
    world = pair()
    b = world.hosts[B]
    flood = [initiation_to(B, number) for number in range(50)]
    size, untrusted = b.layer.size, b.layer.refused["untrusted"]
    replies = 0
    for number in range(20_000):
        source: Address = (f"10.{number % 7}.{number // 256 % 256}.{number % 256}", 1 + number % 60_000)
        assert b.layer.open(world.now + number * MS // 10, flood[number % 50], source) is None
        for effect in b.layer.take_effects():
            if isinstance(effect, TransmitPacket):
                assert len(effect.datagram) < len(flood[0])
                replies += 1
    assert b.layer.size == size
    assert b.layer.refused["untrusted"] - untrusted <= 50 + 2 * 50
    assert b.layer.refused["too many handshakes"] > 19_000
    assert 0 < replies <= 3_000
    world.run(world.now + 2 * SECOND)
    assert say(world, A, b"the link is up", B)  # and its keys are as before
    assert b.layer.notices["session"] == 1


def test_under_a_flood_a_peer_with_a_cookie_gets_in() -> None:
    world = World(0, 2)
    b, flood = world.hosts[B], initiation_to(B, 1)

    def pour() -> None:
        for number in range(200):
            b.layer.open(world.now, flood, (f"10.3.0.{number}", 9))
        b.layer.take_effects()
        world.at(world.now + 50 * MS, pour)

    pour()
    assert say(world, A, b"through", B, 3 * SECOND)
    assert b.layer.notices["cookie-sent"] > 0


def test_a_long_flood_does_not_keep_peers_from_renewing_their_keys() -> None:
    world = pair()
    b, flood = world.hosts[B], initiation_to(B, 1)

    def pour() -> None:
        for number in range(300):
            b.layer.open(world.now, flood, (f"10.3.{number}.1", 9))
        b.layer.take_effects()
        world.at(world.now + SECOND, pour)

    pour()
    for number in range(200):
        world.hosts[A].send(B, b"a %d" % number)
        world.hosts[B].send(A, b"b %d" % number)
        world.run(world.now + 2 * SECOND)
    assert len(world.delivered) == len(world.sent) == 401
    assert b.layer.notices["session"] >= 4


def test_limits_are_kept_for_a_bounded_number_of_hosts() -> None:
    limits = SourceLimits(1, 2, most=10)
    assert [limits.take(0, ("10.0.0.1", port)) for port in range(4)] == [True, True, False, False]
    assert limits.take(SECOND, ("10.0.0.1", 1))
    for number in range(100):
        limits.take(0, (f"10.0.1.{number}", 1))
    assert len(limits) == 10
    assert network_of("2001:db8:1:2:3:4:5:6") == network_of("2001:db8:1:2::9") != network_of("2001:db8:1:3::9")
