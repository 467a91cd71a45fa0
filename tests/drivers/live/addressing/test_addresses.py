"""Addresses to listen at: what cannot be used is one sentence."""

import errno
import socket
from typing import Any

import pytest

from tests.errors import raises
from wend.drivers.live.addressing.addresses import bind_socket, resolve_address
from wend.drivers.live.peer import LivePeer
from wend.protocol.config import PeerConfig


def test_a_name_is_resolved_in_the_family_of_the_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    known = [
        (socket.AF_INET6, socket.SOCK_DGRAM, 17, "", ("::1", 5, 0, 0)),
        (socket.AF_INET, socket.SOCK_DGRAM, 17, "", ("127.0.0.1", 5)),
    ]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, family=0, **__: [k for k in known if family in (0, k[0])])
    assert resolve_address(("both", 5)) == ("::1", 5)
    assert resolve_address(("both", 5), socket.AF_INET) == ("127.0.0.1", 5)


def test_an_address_of_another_family_is_one_sentence() -> None:
    peer = LivePeer(PeerConfig(peer=0))
    with raises("invalid-setting", match=r"cannot reach \[::1\]:5 from a peer that listens on an IPv4 address"):
        peer.add_peer(1, ("::1", 5))
    peer.close()


def test_no_more_sockets_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(*_: Any) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(socket, "socket", none_left)
    with raises("invalid-setting", match="may not open more files"):
        bind_socket(("127.0.0.1", 0), socket.SOCK_DGRAM)


def test_only_loopback_unless_the_owner_knows() -> None:
    with raises("invalid-setting", match=r"refusing to listen on 0\.0\.0\.0:0 without keys"):
        LivePeer(PeerConfig(peer=0), listen=("0.0.0.0", 0))
    LivePeer(PeerConfig(peer=0), listen=("0.0.0.0", 0), insecure=True).close()
    LivePeer(PeerConfig(peer=0), listen=("localhost", 0)).close()


def test_a_port_in_use_is_one_sentence() -> None:
    first = LivePeer(PeerConfig(peer=0))
    with raises("address-in-use"):
        LivePeer(PeerConfig(peer=1), listen=first.address)
    first.close()
