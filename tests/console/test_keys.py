"""`wend key`: a root, sites and clients that enrol, tokens, revocation; and files that others could read."""

import errno
import json
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.console.calls import Said
from tests.errors import raises
from wend.drivers.live.access.key_files import (
    append_line,
    hash_token,
    read_key_folder,
    read_revoked,
    read_token_file,
    write_signing_key,
)
from wend.drivers.live.clock import wall_s


def enrolled(said: Said, folder: Path, name: str = "plant-7", *options: str) -> Path:
    """A site with keys and a certificate."""
    if not (folder / "root").exists():
        said("key", "root", str(folder / "root"))
    site = folder / name
    said("key", "new", str(site), "--name", name)
    request, certificate = str(site / "request.pem"), str(site / "certificate.pem")
    wanted = options or ("--peer", "7", "--groups", "plant, operators")
    code, _, err = said("key", "sign", request, "--root", str(folder / "root"), "--out", certificate, *wanted)
    assert (code, err) == (0, "")
    return site


def rows(said: Said, folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in said("key", "show", str(folder), "--json")[1].splitlines()]


def test_a_site_enrols(said: Said, tmp_path: Path) -> None:
    site = enrolled(said, tmp_path)
    keys = read_key_folder(site)
    identity = keys.credentials.identity
    assert (identity.name, identity.peer, identity.groups) == ("plant-7", 7, ("plant", "operators"))
    assert keys.verifier.verify(keys.credentials.certificate, wall_s()) == identity
    assert identity.not_after_s - identity.not_before_s == 90 * 86_400 + 300
    # Who holds the root has no key of the site, and the other way round.
    secret = (site / "signing.key").read_bytes()
    assert all(secret not in path.read_bytes() for path in (tmp_path / "root").rglob("*.*"))
    assert {path.name for path in site.iterdir()} == {"signing.key", "session.key", "request.pem", "certificate.pem"}


def test_private_files_are_private(said: Said, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        site = enrolled(said, tmp_path)
        said("key", "token", str(site), "--name", "cam", "--out", str(tmp_path / "cam.token"))
    finally:
        os.umask(before)
    for path in (site / "signing.key", site / "session.key", tmp_path / "root" / "root.key", tmp_path / "cam.token"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    for folder in (site, tmp_path / "root"):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.parametrize("name", ["signing.key", "session.key"])
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620])
def test_a_key_that_others_can_read_is_refused(said: Said, tmp_path: Path, name: str, mode: int) -> None:
    site = enrolled(said, tmp_path)
    (site / name).chmod(mode)
    with raises("invalid-setting", match=rf"other users can read or write .*{name}"):
        read_key_folder(site)


def test_a_root_key_that_others_can_read_signs_nothing(said: Said, tmp_path: Path) -> None:
    site = enrolled(said, tmp_path)
    (tmp_path / "root" / "root.key").chmod(0o644)
    words = ("key", "sign", str(site / "request.pem"), "--root", str(tmp_path / "root"), "--out", str(site / "x.pem"))
    code, out, err = said(*words, "--peer", "7")
    assert (code, out) == (2, "") and "other users can read or write" in err


def test_nothing_is_overwritten(said: Said, tmp_path: Path) -> None:
    site = enrolled(said, tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    root, request = str(tmp_path / "root"), str(site / "request.pem")
    for words in (
        ("root", root),
        ("new", str(site), "--name", "other"),
        ("sign", request, "--root", root, "--peer", "7", "--out", str(site / "certificate.pem")),
    ):
        code, _, err = said("key", *words)
        assert code == 2 and "are not overwritten" in err
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}


def test_an_id_has_one_key(said: Said, tmp_path: Path) -> None:
    site = enrolled(said, tmp_path)
    root = str(tmp_path / "root")
    said("key", "new", str(tmp_path / "thief"), "--name", "thief")
    words = ("key", "sign", str(tmp_path / "thief" / "request.pem"), "--root", root, "--peer", "7", "--out")
    code, _, err = said(*words, str(tmp_path / "thief" / "certificate.pem"))
    assert code == 2 and "peer 7 has a certificate with another key" in err
    # The site itself can renew, and another key can follow once the old one is revoked.
    renewed = ("key", "sign", str(site / "request.pem"), "--root", root, "--peer", "7", "--out", str(site / "new.pem"))
    assert said(*renewed)[0] == 0
    assert said("key", "revoke", root, "plant-7")[0] == 0
    assert said(*words, str(tmp_path / "thief" / "certificate.pem"))[0] == 0


def test_revoked_serials_are_not_trusted(said: Said, tmp_path: Path) -> None:
    site, client = enrolled(said, tmp_path), enrolled(said, tmp_path, "alice", "--groups", "plant")
    serial = read_key_folder(site).credentials.identity.serial
    code, out, _ = said("key", "revoke", str(tmp_path / "root"), "plant-7")
    assert code == 0 and "1 more, 1 in all" in out
    assert "0 more, 1 in all" in said("key", "revoke", str(tmp_path / "root"), str(serial))[1]
    (client / "revoked.txt").write_text((tmp_path / "root" / "revoked.txt").read_text())
    other = read_key_folder(client)
    assert other.credentials.identity.peer is None
    with raises("credentials-revoked"):
        other.verifier.verify(read_key_folder(site).credentials.certificate, wall_s())
    (site / "revoked.txt").write_text((tmp_path / "root" / "revoked.txt").read_text())
    with raises("invalid-setting", match="is revoked"):
        read_key_folder(site)
    assert [row["state"] for row in rows(said, tmp_path / "root")] == ["valid", "revoked", "valid"]


def test_tokens(said: Said, tmp_path: Path) -> None:
    site = enrolled(said, tmp_path)
    code, printed, _ = said("key", "token", str(site), "--name", "cam", "--groups", "cameras", "--days", "1")
    assert code == 0
    out = tmp_path / "eve.token"
    assert said("key", "token", str(site), "--name", "eve", "--out", str(out))[0] == 0
    tokens = read_key_folder(site).tokens
    first, second = tokens[hash_token(printed.strip())], tokens[hash_token(read_token_file(out))]
    assert (first.name, first.groups, second.name, second.groups) == ("cam", ("cameras",), "eve", ())
    assert 86_000 < first.ends_s - wall_s() <= 86_400
    stored = (site / "tokens.jsonl").read_text()
    assert printed.strip() not in stored and read_token_file(out) not in stored
    said("key", "revoke", str(site), "eve")
    assert {row["name"]: row["state"] for row in rows(said, site)}["eve"] == "revoked"
    out.chmod(0o644)
    with raises("invalid-setting", match="other users"):
        read_token_file(out)


def test_every_command_can_print_an_object(said: Said, tmp_path: Path) -> None:
    def printed(*words: str) -> dict[str, object]:
        found: dict[str, object] = json.loads(said("key", *words, "--json")[1])
        return found

    root, site = str(tmp_path / "root"), str(tmp_path / "site")
    assert printed("root", root)["name"] == "wend"
    asked = printed("new", site, "--name", "a")
    request, certificate = str(asked["request"]), str(asked["certificate"])
    made = printed("sign", request, "--root", root, "--peer", "3", "--groups", "g", "--out", certificate)
    assert (made["name"], made["peer"], made["groups"], made["state"]) == ("a", 3, ["g"], "valid")
    assert str(printed("token", site, "--name", "b")["token"]).startswith("wend-token-")
    assert printed("revoke", root, "a")["revoked"] == [made["serial"]]
    assert isinstance(made["serial"], str), "readers of JSON round numbers beyond 2**53"


def test_a_name_of_digits_is_revoked_by_its_name(said: Said, tmp_path: Path) -> None:
    enrolled(said, tmp_path, "12345")
    root = tmp_path / "root"
    assert said("key", "revoke", str(root), "12345")[0] == 0
    (issued,) = [row for row in rows(said, root) if row["kind"] == "issued"]
    assert (issued["name"], issued["state"]) == ("12345", "revoked")
    assert said("key", "revoke", str(root), "777")[0] == 0
    assert "777" in (root / "revoked.txt").read_text(), "no certificate has that name, so it is a serial number"


def test_show_as_a_table(said: Said, tmp_path: Path) -> None:
    enrolled(said, tmp_path)
    enrolled(said, tmp_path, "alice", "--groups", "plant", "--days", "0.5")
    code, out, _ = said("key", "show", str(tmp_path / "root"))
    head, root, site, client = out.splitlines()
    assert code == 0 and head.split() == ["kind", "name", "peer", "groups", "ends", "state", "serial"]
    assert root.split()[:2] == ["root", "wend"]
    assert site.split()[:4] == ["issued", "plant-7", "7", "plant,operators"]
    assert client.split()[:3] == ["issued", "alice", "plant"]
    (tmp_path / "none").mkdir()
    assert "holds no certificates" in said("key", "show", str(tmp_path / "none"))[1]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("new", "a", "--name", ""), "a name has 1 to 64 bytes"),
        (("root", "a", "--days", "0"), "--days is above 0"),
        (("show", "missing"), "there is no folder missing"),
        (("token", "missing", "--name", "a"), "there is no folder missing"),
        (("revoke", ".", "0"), "a serial number is in 1.."),
        (("revoke", ".", "9" * 5000), "a serial number is in 1.."),
        (("new", "a", "--name", "\udcff"), "a name has 1 to 64 bytes, all printable"),
        (("token", ".", "--name", "a", "--groups", "\udcff"), "a group has 1 to 64 bytes, all printable"),
        (("show", "x" * 300), "there is no folder"),
        (("revoke", ".", "nobody"), "knows no valid certificate or token of 'nobody'"),
        (("sign", "missing", "--root", "r", "--out", "o"), "cannot read r/root.key: No such file"),
    ],
)
def test_mistakes_get_a_sentence(
    said: Said, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = said("key", *words)
    assert (code, out) == (2, "") and sentence in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("certificate.pem", b"nonsense", "has no certificate in PEM format"),
        ("signing.key", b"nonsense", "is not a private key in PEM format"),
        ("revoked.txt", b"12\nx\n", "line 2: 'x' is no serial number"),
        ("revoked.txt", b"\xff", "is not a text"),
        ("revoked.txt", b"9" * 5000, "is no serial number"),
        ("tokens.jsonl", b"{}\n", "line 1: Object missing required field"),
        ("root.pem", b"", "has no certificate in PEM format"),
    ],
)
def test_damaged_files_get_a_sentence(said: Said, tmp_path: Path, name: str, content: bytes, sentence: str) -> None:
    site = enrolled(said, tmp_path)
    (site / name).write_bytes(content)
    (site / name).chmod(0o600)
    with raises("unreadable" if content == b"\xff" else "invalid-setting", match=sentence):
        read_key_folder(site)


@pytest.mark.parametrize("name", ["certificate.pem", "revoked.txt", "tokens.jsonl"])
def test_a_file_that_everybody_can_change_is_refused(said: Said, tmp_path: Path, name: str) -> None:
    site = enrolled(said, tmp_path)
    (site / name).touch()
    (site / name).chmod(0o646)
    with raises("invalid-setting", match=f"all users can change .*{name}"):
        read_key_folder(site)


def test_keys_of_two_sites_do_not_mix(said: Said, tmp_path: Path) -> None:
    one, other = enrolled(said, tmp_path), enrolled(said, tmp_path, "plant-8", "--peer", "8")
    (one / "session.key").write_bytes((other / "session.key").read_bytes())
    with raises("invalid-setting", match="the session key does not belong to the certificate of plant-7"):
        read_key_folder(one)


def test_revocations_of_several_commands_at_once_all_stay(tmp_path: Path) -> None:
    place = tmp_path / "revoked.txt"
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda number: append_line(place, str(number)), range(1, 41)))
    assert read_revoked(place) == frozenset(range(1, 41))


def test_a_list_behind_a_link_is_read_and_changed_there_and_a_link_to_nothing_is_a_mistake(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    link, target = tmp_path / "revoked.txt", tmp_path / "shared" / "revoked.txt"
    link.symlink_to(target)
    with raises("unreadable"):
        read_revoked(link)
    target.write_text("1\n")
    append_line(link, "2")
    assert link.is_symlink() and target.read_text() == "1\n2\n" and read_revoked(link) == {1, 2}


@pytest.mark.parametrize("name", ["revoked.txt", "tokens.jsonl", "signing.key", "certificate.pem"])
def test_a_pipe_in_the_place_of_a_file_holds_up_nobody(said: Said, tmp_path: Path, name: str) -> None:
    site = enrolled(said, tmp_path)
    (site / name).unlink(missing_ok=True)
    os.mkfifo(site / name)
    with raises("unreadable", match=rf"cannot read .*{name}: it is not a file"):
        read_key_folder(site)


def test_a_certificate_that_could_not_be_written_was_not_issued(said: Said, tmp_path: Path) -> None:
    site = enrolled(said, tmp_path)
    root, out = tmp_path / "root", tmp_path / "missing" / "certificate.pem"
    before = sorted((root / "issued").iterdir())
    code, _, err = said("key", "sign", str(site / "request.pem"), "--root", str(root), "--peer", "7", "--out", str(out))
    assert code == 2 and "cannot write" in err
    assert sorted((root / "issued").iterdir()) == before


def test_a_key_that_could_not_be_written_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(number: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with raises("unwritable"):
        write_signing_key(tmp_path / "signing.key", bytes(32))
    assert list(tmp_path.iterdir()) == []


def test_a_serial_number_is_revoked_whatever_else_is_broken(said: Said, tmp_path: Path) -> None:
    enrolled(said, tmp_path)
    root = tmp_path / "root"
    (root / "issued" / "5.pem").write_text("half a file")
    assert said("key", "revoke", str(root), "123456")[0] == 0
    assert read_revoked(root / "revoked.txt") == {123456}
    assert said("key", "revoke", str(root), "plant-7")[0] == 2
