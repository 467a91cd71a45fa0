"""Sessions under a flood: a bounded number of key operations, bounded memory, and peers that get in all the same."""

from tests.security.doubles import certificate_of, credentials_of, random_bytes
from tests.security.pairs_of_peers import A, B, pair, say
from tests.security.worlds import World
from wend.model.units import MS, SECOND
from wend.security import packets
from wend.security.cookies import Address, SourceLimits, mac, mac1_key, network_of
from wend.security.handshakes import PROLOGUE
from wend.security.noise import Initiation, KeyPair
from wend.security.session_effects import TransmitPacket


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
