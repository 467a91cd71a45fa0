"""Sessions under a flood: a bounded number of key operations, bounded memory, and peers that get in all the same."""

from tests.security.doubles import certificate_of, credentials_of, random_bytes
from tests.security.pairs_of_peers import A, B, pair, say
from tests.security.worlds import World
from wend.model.units import MS, SECOND
from wend.security import packets
from wend.security.cookies import Address, mac, mac1_key, open_cookie
from wend.security.handshakes import PROLOGUE
from wend.security.noise import InitiatorHandshake, KeyPair
from wend.security.session_effects import TransmitPacket


def initiation_to(victim: int, number: int) -> bytes:
    """An initiation by somebody whose certificate another root signed."""
    said = packets.Introduction(3, 1, number, certificate_of(credentials_of(A).identity, b"another root"))
    draw, key = random_bytes("flood", number), KeyPair(credentials_of(victim).session_secret).public
    made = InitiatorHandshake(KeyPair(draw(32)), key, draw(32), PROLOGUE).write(said.encode(padded=True))
    packet = packets.encode_initiation(number + 1, made)
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
    assert b.layer.refused["too-many-handshakes"] > 19_000
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


def proved(world: World, address: Address) -> bytes:
    """An initiation to B with the cookie that B sent to this address."""
    layer, packet = world.hosts[B].layer, initiation_to(B, 1)
    layer.take_effects()
    layer.open(world.now, packet, address)
    (reply,) = [effect.datagram for effect in layer.take_effects() if isinstance(effect, TransmitPacket)]
    _, salt, sealed = packets.decode_cookie(reply)
    signed, mac1 = packet[:-32], packet[-32:-16]
    cookie = open_cookie(KeyPair(credentials_of(B).session_secret).public, salt, sealed, mac1)
    return signed + mac1 + mac(cookie, signed, mac1)


def test_one_host_with_a_cookie_does_not_use_up_what_others_may_do() -> None:
    """On a socket for IPv6 and IPv4, too, where the addresses of IPv4 hosts stand in those of IPv6."""
    world = pair()
    layer = world.hosts[B].layer
    for _ in range(60):  # those without a cookie are used up
        layer.open(world.now, initiation_to(B, 1), ("10.3.0.1", 9))
    one, other = ("::ffff:10.3.0.1", 9), ("::ffff:10.3.0.2", 9)
    greedy, modest = proved(world, one), proved(world, other)
    for _ in range(100):
        layer.open(world.now, greedy, one)
    read = layer.refused["untrusted"]
    layer.open(world.now, greedy, one)
    assert layer.refused["untrusted"] == read
    layer.open(world.now, modest, other)
    assert layer.refused["untrusted"] == read + 1


def test_handshakes_in_a_session_cost_a_bounded_number_of_key_operations() -> None:
    """Strangers do not get that far, but a peer of the overlay may be hostile."""
    world = pair()
    a, b, flood = world.hosts[A].layer, world.hosts[B].layer, initiation_to(B, 1)
    keys = a.peers[B].current
    assert keys is not None
    for number in range(200):
        b.open(world.now + number * MS, keys.seal(packets.REKEYING, flood), world.hosts[A].address)
    assert b.refused["untrusted"] == 2 and b.refused["too-many-handshakes"] == 198
