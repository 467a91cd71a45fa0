"""Sessions from the first message on: layout, handshakes, and new keys."""

import pytest

from tests.security.doubles import START_S, MacVerifier, credentials_of, random_bytes
from tests.security.pairs_of_peers import A, B, pair, refused, say
from tests.security.worlds import World, converse
from wend.model.errors import Untrusted
from wend.model.units import SECOND
from wend.security import packets
from wend.security.peer_session import MAX_WAITING, WAIT_NS
from wend.security.replay import WINDOW, ReplayWindow
from wend.security.session_effects import SessionReady
from wend.security.session_layer import SessionLayer
from wend.security.session_table import MAX_UNKNOWN

# ---------------------------------------------------------------- layout


def test_a_sealed_packet_costs_no_more_than_eight_bytes_beside_an_open_one() -> None:
    assert packets.OVERHEAD_BYTES == 32  # an open datagram has 28, and 4 of a checksum
    world = pair()
    sealed = world.hosts[A].layer.seal(world.now, B, 0, b"x" * 100)
    assert sealed is not None and len(sealed) == 132 and b"x" * 20 not in sealed


def test_no_reply_is_larger_than_its_cause() -> None:
    assert packets.ANSWER_BYTES + packets.MAX_CERTIFICATE_BYTES <= packets.INITIATION_BYTES <= 1200
    assert packets.COOKIE_PACKET_BYTES < packets.INITIATION_BYTES
    assert len(packets.encode_certificate(bytes(8), bytes(packets.MAX_CERTIFICATE_BYTES))) == packets.QUESTION_BYTES


def test_an_introduction_is_read_as_it_was_written() -> None:
    said = packets.Introduction(3, 2**63, 7, b"certificate")
    assert packets.decode_introduction(said.encode(padded=True)) == said
    assert packets.decode_introduction(said.encode(padded=False)) == said


# ---------------------------------------------------------------- the window


def test_the_window_agrees_with_a_set() -> None:
    draw = random_bytes("window")
    window, seen, highest, base = ReplayWindow(), set[int](), -1, 0
    run = 0
    for _ in range(40_000):
        if run:  # in order, as most are
            run, number = run - 1, highest + 1
        else:
            run = int.from_bytes(draw(2), "little") % (WINDOW + 50) if draw(1)[0] < 2 else draw(1)[0] // 128
            base = max(base, highest) + draw(1)[0] // 64
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
    layer.set_address(SECOND, B, ("10.0.0.2", 7000))
    for number in range(MAX_WAITING + 10):
        assert layer.seal(SECOND, B, 0, b"%d" % number) is None
    assert layer.notices["no-session"] == 10
    layer.tick(SECOND + WAIT_NS, START_S)
    assert layer.notices["no-session"] == MAX_WAITING + 10
    assert layer.seal(SECOND, 77, 0, b"nobody knows where that is") is None
    assert layer.notices["no-session"] == MAX_WAITING + 11
    for number in range(MAX_UNKNOWN + 5):
        layer.send_to(SECOND, (f"10.1.{number // 250}.{number % 250}", 1), 2, b"?")
    assert layer.notices["no-session"] == MAX_WAITING + 16


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
    assert refused(world, B)["other-version"] > 0


def test_a_certificate_of_a_client_or_of_another_key_is_refused() -> None:
    with pytest.raises(Untrusted, match="client"):
        SessionLayer(credentials_of(None), MacVerifier(), incarnation=1, version=3, random=random_bytes("c"))
    world = World(0, 2)
    stolen, own = credentials_of(A), credentials_of(A, key="another")
    thief = type(own)(stolen.certificate, own.session_secret, own.signing_secret, stolen.identity)
    world.hosts[A].layer = SessionLayer(thief, MacVerifier(), incarnation=9, version=3, random=random_bytes("t"))
    world.hosts[A].layer.tick(world.now, START_S)
    world.hosts[A].layer.set_address(world.now, B, world.hosts[B].address)
    assert not say(world, A, b"hello", B)
    assert refused(world, B)["other-certificate"] > 0


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
                waits += world.hosts[speaker].layer.waiting_count(to)
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
