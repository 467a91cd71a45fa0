"""Keys of multicast groups: members hear each other through every change of the membership, and nobody else does."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.security.doubles import random_bytes
from wend.model.random_stream import peer_stream
from wend.model.units import MS, SECOND, Nanos
from wend.security import group_keys, packets
from wend.security.group_keys import (
    HOLD_NS,
    LOOK_NS,
    MAX_HELD,
    OVERLAP_NS,
    ROLL_NS,
    GroupKey,
    GroupKeys,
    GroupMessage,
)

GROUP = 77


class Net:
    """Peers with one group, sessions between them, and a network that loses and reorders."""

    def __init__(self, seed: int, loss: float = 0.0) -> None:
        self.draw = peer_stream(seed, "group keys")
        self.seed, self.loss = seed, loss
        self.now: Nanos = SECOND
        self.peers: dict[int, GroupKeys] = {}
        self.refused: dict[int, Counter[str]] = {}
        self.notices: dict[int, Counter[str]] = {}
        self.roster: dict[int, int] = {}
        self.keeper = 0
        self.heard: dict[int, list[tuple[int, bytes]]] = {}
        self.sealed: dict[bytes, int] = {}
        """By content: who sealed it."""
        self.datagrams: list[bytes] = []
        self.transit: list[tuple[int, tuple[int, int] | None, bytes]] = []
        """To whom; from which incarnation of whom, in a session, or None for a multicast; and what."""
        self._incarnations: Counter[int] = Counter()

    def start(self, peer: int) -> None:
        """A peer starts, or starts again: it knows nothing."""
        self._incarnations[peer] += 1
        self.refused[peer], self.notices[peer] = Counter(), Counter()
        random = random_bytes(self.seed, peer, self._incarnations[peer])
        self.peers[peer] = GroupKeys(peer, random, self.refused[peer], self.notices[peer])
        self.heard.setdefault(peer, [])
        self.roster[peer] = self._incarnations[peer]

    def publish_roster(self, *to: int) -> None:
        """Tell these peers, or all, who the members are. A former member still believes in the old ones."""
        for peer in to or sorted(self.roster):
            self.peers[peer].set_members(self.now, GROUP, self.keeper, sorted(self.roster.items()))
            self.perform(peer)

    def perform(self, peer: int) -> None:
        for effect in self.peers[peer].take_effects():
            if isinstance(effect, GroupMessage):
                if self.draw.random() >= self.loss:
                    self.transit.append((effect.peer, (peer, self._incarnations[peer]), effect.body))
            else:
                self.heard[peer].append(effect)

    def cast(self, peer: int, body: bytes) -> bytes | None:
        datagram = self.peers[peer].seal(GROUP, body)
        if datagram is not None:
            self.sealed[body] = peer
            self.datagrams.append(datagram)
            for other in self.peers:  # also to itself, and to those that are no members
                if self.draw.random() >= self.loss:
                    self.transit.append((other, None, datagram))
        return datagram

    def hear(self, peer: int, datagram: bytes) -> None:
        opened = self.peers[peer].open(self.now, datagram)
        if opened is not None:
            self.heard[peer].append(opened)
        self.perform(peer)

    def step(self) -> None:
        """Let something arrive, whatever it is."""
        if self.transit:
            at = self.draw.randrange(len(self.transit))
            to, sender, what = self.transit.pop(at)
            if sender is None:
                self.hear(to, what)
            elif to in self.peers:
                self.peers[to].receive(self.now, *sender, what)
                self.perform(to)

    def settle(self) -> None:
        """Let everything arrive, for three seconds."""
        for _ in range(30):
            while self.transit:
                self.step()
            self.now += 100 * MS
            for peer in sorted(self.peers):
                self.peers[peer].tick(self.now)
                self.perform(peer)
        while self.transit:
            self.step()


def net_of(*peers: int, keeper: int = 1) -> Net:
    net = Net(0)
    for peer in peers:
        net.start(peer)
    net.keeper = keeper
    net.publish_roster()
    net.settle()
    return net


def key_of(net: Net, peer: int) -> GroupKey:
    return net.peers[peer].keys(GROUP)[0]


# ---------------------------------------------------------------- one after the other


def test_members_hear_each_other_and_nobody_hears_itself() -> None:
    net = net_of(1, 2, 3)
    for peer in (1, 2, 3):
        datagram = net.cast(peer, b"of %d" % peer)
        assert datagram is not None and b"of" not in datagram
        assert len(datagram) == len(b"of 1") + packets.GROUP_HEADER_BYTES + 16
    net.settle()
    assert sorted(net.heard[2]) == [(1, b"of 1"), (3, b"of 3")]
    assert sum(map(len, net.heard.values())) == 6 and not any(net.refused.values())
    assert {key_of(net, peer).epoch for peer in (1, 2, 3)} == {key_of(net, 1).epoch}


def test_a_peer_without_the_key_cannot_multicast_and_says_so() -> None:
    net = Net(0)
    net.start(1)
    assert net.cast(1, b"early") is None
    net.start(2)
    net.keeper = 1
    net.publish_roster(2)  # the keeper does not know yet that it is the keeper
    assert net.cast(2, b"early") is None
    assert net.notices[1] == net.notices[2] == {"multicast-without-key": 1}


def test_what_came_before_its_key_waits_for_it_and_only_for_a_moment() -> None:
    net = net_of(1, 2, 3)
    net.start(4)
    net.publish_roster(1)  # the others hear of it later
    datagram = net.cast(1, b"under the new key")
    assert datagram is not None
    net.transit = [one for one in net.transit if one[1] is not None]  # the multicast arrives first, by hand
    net.hear(2, datagram)
    assert net.heard[2] == []
    net.settle()
    assert net.heard[2] == [(1, b"under the new key")]
    net.start(5)
    net.publish_roster(1)
    late = net.cast(1, b"too early")
    assert late is not None
    keys, net.transit = [one for one in net.transit if one[1] is not None], []
    for _ in range(MAX_HELD + 5):
        net.hear(3, late)
    assert net.refused[3] == {"unknown-group-key": 5}
    net.now += HOLD_NS
    net.transit = keys
    net.settle()
    assert (1, b"too early") not in net.heard[3]


def test_the_former_key_opens_for_a_moment_after_a_join_and_not_after_a_departure() -> None:
    net = net_of(1, 2, 3)
    under_way = net.peers[2].seal(GROUP, b"under way")
    net.sealed[b"under way"] = 2
    later = net.peers[2].seal(GROUP, b"much later")
    assert under_way is not None and later is not None
    net.start(4)
    net.publish_roster()
    while net.transit:
        net.step()
    net.hear(1, under_way)
    assert net.heard[1] == [(2, b"under way")]
    net.now += OVERLAP_NS
    net.hear(1, later)
    assert net.refused[1] == {"former-group-key": 1}
    last = net.peers[2].seal(GROUP, b"before it left")
    assert last is not None
    del net.roster[4]
    net.publish_roster()
    while net.transit:
        net.step()
    net.hear(1, last)
    assert net.refused[1] == {"former-group-key": 2}


def test_a_former_member_reads_and_forges_nothing_after_the_roll() -> None:
    net = net_of(1, 2, 3)
    before = key_of(net, 3)
    del net.roster[3]
    net.publish_roster()
    net.settle()
    datagram = net.cast(1, b"a secret")
    assert datagram is not None
    net.settle()
    assert net.heard[2] == [(1, b"a secret")] and net.heard[3] == []
    assert isinstance(before.open(1, datagram[28:36], 0, datagram), str)
    for claimed in (1, 2, 3):  # with the key that it has, as anybody
        forged = GroupKey(net.now, before.epoch, before.secret, claimed, b"12345678", 1).seal(GROUP, claimed, b"lies")
        net.hear(2, forged)
        renumbered = GroupKey(net.now, key_of(net, 1).epoch, before.secret, claimed, b"1" * 8, 1)
        net.hear(2, renumbered.seal(GROUP, claimed, b"lies"))
    assert net.heard[2] == [(1, b"a secret")]
    asks = group_keys.SHORT_FORM.pack(group_keys.ASKED, GROUP, 0)
    net.peers[1].receive(net.now, 3, 1, asks)
    assert net.peers[1].take_effects() == []
    assert net.refused[1]["group-key-of-nonmember"] == 1


def test_a_revoked_member_is_out_at_once_and_back_with_a_new_session() -> None:
    net = net_of(1, 2, 3)
    before = key_of(net, 1).epoch
    for peer in (1, 2):
        net.peers[peer].exclude(net.now, 3)
        net.perform(peer)
    net.settle()
    assert key_of(net, 1).epoch == key_of(net, 2).epoch > before == key_of(net, 3).epoch
    net.cast(1, b"not for it")
    net.cast(3, b"not from it")
    net.settle()
    assert net.heard == {1: [], 2: [(1, b"not for it")], 3: []}
    for peer in (1, 2):
        net.peers[peer].include(net.now, 3)
        net.perform(peer)
    net.settle()
    net.cast(3, b"from it again")
    net.settle()
    assert net.heard[1] == [(3, b"from it again")] and (3, b"from it again") in net.heard[2]


def test_an_excluded_member_that_multicasts_is_looked_for_now_and_then() -> None:
    """Its former certificate ended while there was no session: it may have had another one for long."""
    net = net_of(1, 2, 3)
    net.peers[2].exclude(net.now, 3)  # who is not the keeper, so 3 has the present key
    for number in range(10):
        datagram = net.peers[3].seal(GROUP, b"%d" % number)
        assert datagram is not None and net.peers[2].open(net.now, datagram) is None
        asked = [effect.peer for effect in net.peers[2].take_effects() if isinstance(effect, GroupMessage)]
        assert asked == ([3] if number in (0, 5) else [])
        net.now += LOOK_NS // 5
    net.peers[2].include(net.now, 3)  # there is a session
    datagram = net.peers[3].seal(GROUP, b"heard")
    assert datagram is not None and net.peers[2].open(net.now, datagram) == (3, b"heard")


@pytest.mark.parametrize("liar", [2, 9])
def test_a_key_is_accepted_from_the_keeper_alone(liar: int) -> None:
    net = net_of(1, 2, 3)
    told = group_keys.TOLD_FORM.pack(group_keys.TOLD, GROUP, 1 << 60, 0, bytes(32))
    before = key_of(net, 3)
    net.peers[3].receive(net.now, liar, 1, told)
    assert key_of(net, 3) is before
    assert net.refused[3] == {"group-key-of-nonkeeper" if liar == 2 else "group-key-of-nonmember": 1}


def test_another_keeper_makes_another_key_and_a_restarted_one_too() -> None:
    net = net_of(1, 2, 3)
    first = key_of(net, 3).epoch
    del net.roster[1]
    net.keeper = 2
    net.publish_roster()
    net.settle()
    second = key_of(net, 3).epoch
    assert second == key_of(net, 2).epoch > first
    net.start(2)  # it has forgotten everything, and keeps the key again
    net.publish_roster()
    net.settle()
    assert key_of(net, 3).epoch == key_of(net, 2).epoch != second
    net.cast(2, b"again")
    net.settle()
    assert (2, b"again") in net.heard[3]


def test_a_key_is_replaced_after_an_hour_without_loss() -> None:
    net = net_of(1, 2)
    first = key_of(net, 1).epoch
    net.now += ROLL_NS
    net.peers[1].tick(net.now)
    net.perform(1)
    net.cast(2, b"before it has the new key")
    net.settle()
    assert key_of(net, 2).epoch > first and net.heard[1] == [(2, b"before it has the new key")]


def test_packets_of_others_are_refused_by_name() -> None:
    net = net_of(1, 2)
    good = net.peers[2].seal(GROUP, b"good")
    assert good is not None
    net.hear(1, b"something else")
    net.hear(1, good[:4] + bytes(8) + good[12:])
    net.hear(1, good[:20] + bytes([9]) + bytes(7) + good[28:])
    net.hear(1, good[:-1] + bytes([good[-1] ^ 1]))
    net.sealed[b"good"] = 2
    net.hear(1, good)
    net.hear(1, good)
    assert net.heard[1] == [(2, b"good")]
    assert net.refused[1] == {
        "foreign-multicast": 1,
        "other-multicast-group": 1,
        "multicast-of-nonmember": 1,
        "forged": 1,
        "replayed": 1,
    }
    for wrong in (b"", b"\1", bytes(40), b"\2" * 17, b"\7" * 17):
        net.peers[1].receive(net.now, 2, 1, wrong)
    assert key_of(net, 1).maker == 1


# ---------------------------------------------------------------- any changes


class Spy:
    """A former member, which kept every key that it had, and has heard everything."""

    def __init__(self, peer: int, keys: list[GroupKey]) -> None:
        self.peer = peer
        self.secrets = {key.epoch: key.secret for key in keys}

    def forgeries(self, now: Nanos, newest: int, claimed: int) -> list[bytes]:
        return [
            GroupKey(now, epoch, secret, claimed, b"forgery!", 1).seal(GROUP, claimed, b"a forgery")
            for known, secret in self.secrets.items()
            for epoch in (known, newest)
        ]

    def reads(self, datagram: bytes) -> bool:
        _, _, epoch, sender, salt, counter = packets.GROUP_HEADER.unpack_from(datagram)
        return any(
            isinstance(GroupKey(0, epoch, secret, 0, bytes(8), 1).open(sender, salt, counter, datagram), bytes)
            for secret in self.secrets.values()
        )


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**9))
def test_whatever_changes_members_hear_each_other_once_and_former_ones_hear_nothing(seed: int) -> None:
    net = Net(seed, loss=(seed % 3) * 0.2)
    draw, spies, number = net.draw, [], 0
    had: dict[int, dict[int, GroupKey]] = {}
    for peer in range(1, 4):
        net.start(peer)
    net.keeper = 1
    net.publish_roster()
    for _ in range(draw.randint(20, 60)):
        deed = draw.random()
        members = sorted(net.roster)
        if deed < 0.08 and len(members) < 6:
            net.start(next(peer for peer in range(1, 9) if peer not in net.roster))
            net.publish_roster(*draw.sample(sorted(net.roster), draw.randint(1, len(net.roster))))
        elif deed < 0.16 and len(members) > 2:
            gone = draw.choice(members)
            del net.roster[gone]
            spies.append(Spy(gone, [*had.get(gone, {}).values()]))
            if gone == net.keeper:
                net.keeper = draw.choice(sorted(net.roster))
            net.publish_roster(*draw.sample(sorted(net.roster), draw.randint(1, len(net.roster))))
        elif deed < 0.2:
            net.start(draw.choice(members))
            net.publish_roster()
        elif deed < 0.24:
            net.keeper = draw.choice(members)
            net.publish_roster()
        elif deed < 0.5:
            number += 1
            net.cast(draw.choice(members), b"number %d" % number)
        else:
            for _ in range(draw.randint(1, 10)):
                net.step()
            net.now += draw.randrange(100) * MS
            for peer in members:
                net.peers[peer].tick(net.now)
                net.perform(peer)
        for peer in net.roster:
            for key in net.peers[peer].keys(GROUP):
                had.setdefault(peer, {})[key.epoch] = key
    net.publish_roster()
    net.loss = 0.0
    net.settle()
    assert len({key_of(net, peer).epoch for peer in net.roster}) == 1
    before, secret = len(net.datagrams), {}
    for peer in sorted(net.roster):
        secret[peer] = b"at last %d" % peer
        assert net.cast(peer, secret[peer]) is not None
    net.settle()
    for peer in net.roster:
        for other in net.roster:
            assert net.heard[peer].count((other, secret[other])) == (peer != other)
    for peer, heard in net.heard.items():
        assert len(heard) == len(set(heard)), "nobody heard a packet twice"
        assert all(net.sealed[body] == sender != peer for sender, body in heard)
    for spy in spies:
        assert not any(spy.reads(datagram) for datagram in net.datagrams[before:])
        for peer in net.roster:
            for claimed in (*net.roster, spy.peer):
                for forged in spy.forgeries(net.now, key_of(net, peer).epoch, claimed):
                    assert net.peers[peer].open(net.now, forged) is None
    epochs = Counter((datagram[12:20], datagram[20:28], datagram[28:36], datagram[36:44]) for datagram in net.datagrams)
    assert max(epochs.values(), default=1) == 1, "no nonce was used twice"


def test_a_keeper_that_lies_about_epochs_leaves_the_next_one_numbers() -> None:
    net = net_of(1, 2, 3)
    lie = group_keys.TOLD_FORM.pack(group_keys.TOLD, GROUP, 2**64 - 1, 0, bytes(32))
    for peer in (2, 3):
        net.peers[peer].receive(net.now, 1, 1, lie)
        net.perform(peer)
    del net.roster[1]
    net.keeper = 2
    net.publish_roster()
    net.settle()
    for _ in range(3):  # and again
        net.start(3)
        net.publish_roster()
        net.settle()
    net.cast(2, b"from the keeper")
    net.cast(3, b"from a member")
    net.settle()
    assert (2, b"from the keeper") in net.heard[3] and (3, b"from a member") in net.heard[2]


def test_forged_packets_of_unknown_epochs_make_no_new_keys() -> None:
    net = net_of(1, 2, 3)
    before = net.notices[1]["group-key"]
    for number in range(10):
        head = packets.GROUP_HEADER.pack(packets.packet_head(packets.MULTICAST), GROUP, 2**40 + number, 3, bytes(8), 0)
        net.now += SECOND
        net.hear(2, head + bytes(32))
        assert net.transit  # it asks
        net.settle()
    assert net.notices[1]["group-key"] == before
