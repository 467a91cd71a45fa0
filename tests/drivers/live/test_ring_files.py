"""Files of peers on a ring: which strategy they imply, and what they may join."""

from pathlib import Path

import pytest

from tests.errors import raises
from wend.drivers.live.config import PeerFile, load_peer_file


@pytest.mark.parametrize(
    ("fields", "strategy"),
    [
        ({}, "adaptive"),
        ({"membership": "pastry"}, "rendezvous"),
        ({"interest": "rendezvous"}, "rendezvous"),
        ({"membership": "pastry", "interest": "rendezvous"}, "rendezvous"),
        ({"membership": "pastry", "interest": "dmm-ar"}, "dmm-ar"),
        ({"interest": "scribe"}, "scribe"),
        ({"membership": "pastry", "strategy": "hermes"}, "hermes"),
        ({"membership": "tdo-landmark"}, "adaptive"),
        ({"interest": "flooded"}, "adaptive"),
    ],
)
def test_a_file_without_a_strategy_has_the_one_that_goes_with_its_plug_ins(
    fields: dict[str, str], strategy: str
) -> None:
    file = PeerFile.read({"id": 1, **fields})
    file.check()
    assert file.strategy == strategy


def test_join_says_where_to_look_and_the_flag_adds_to_it(tmp_path: Path) -> None:
    (tmp_path / "peer.toml").write_text('id = 1\nmembership = "pastry"\njoin = ["127.0.0.1:7801"]\n')
    file = load_peer_file(tmp_path / "peer.toml", join=["127.0.0.1:7802"])
    assert file.join_addresses == (("127.0.0.1", 7801), ("127.0.0.1", 7802))
    assert PeerFile(id=1, strategy="rendezvous").join_addresses == ()


def test_given_neighbours_let_nobody_else_in_where_the_file_says_so() -> None:
    near = [{"id": 2, "address": "127.0.0.1:7802"}]
    assert PeerFile(id=1, neighbours=near, admit=False).join_addresses is None
    assert PeerFile(id=1, neighbours=near).join_addresses == ()
    assert PeerFile(id=1, membership="pastry", neighbours=near).join_addresses is None
    assert PeerFile(id=1, membership="pastry", neighbours=near, join=["127.0.0.1:7803"]).join_addresses is not None


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"join": ["nowhere"]}, "cannot read 'nowhere' as an address"),
        ({"membership": "pastry", "join": ["nowhere"]}, "cannot read 'nowhere' as an address"),
        ({"membership": "pastry", "join": ["127.0.0.1:99999"]}, "as an address"),
        ({"membership": "pastry", "join": "127.0.0.1:7801"}, "join"),
    ],
)
def test_a_file_that_cannot_work_is_one_sentence(fields: dict[str, object], sentence: str) -> None:
    with raises("invalid-setting", match=sentence):
        PeerFile.read({"id": 1, **fields}).check()
