"""`wend key`: who belongs to an overlay.

A root signs certificates. A site makes its own keys and a request; its private keys never leave it.

    wend key root ROOT                        once: the root's key and certificate
    wend key new KEYS --name plant-7          at the site: its keys and a request
    wend key sign REQUEST --root ROOT --peer 7 --groups plant --out CERTIFICATE
    wend key show DIR, wend key revoke DIR WHO, wend key token DIR --name WHO
"""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from wend.console.options import split_names
from wend.console.terminal import align_columns
from wend.drivers.live.access import key_files
from wend.drivers.live.clock import wall_s
from wend.model.errors import ConfigError
from wend.security import certificates

if TYPE_CHECKING:
    from wend.security.identity import Identity

DAY_S = 86_400
CERTIFICATE_DAYS = 90
ROOT_DAYS = 3650
SKEW_S = 300
"""Certificates begin a little earlier, because the clocks of sites differ."""

Root = Annotated[Path, typer.Option("--root", metavar="DIR", help="The root's folder, made by `wend key root`.")]
Groups = Annotated[
    str, typer.Option(metavar="NAMES", help="Groups, separated by commas. Grants say what a group may do.")
]
Days = Annotated[float, typer.Option(help="How many days it is valid.", min=0.0)]
Json = Annotated[bool, typer.Option("--json", help="Print JSON objects.")]


def register(app: typer.Typer) -> None:
    keys = typer.Typer(no_args_is_help=True, help="Make, sign, show and revoke the keys of peers and clients.")
    for command in (root, new, sign, token, revoke, show):
        keys.command()(command)
    app.add_typer(keys, name="key")


def root(
    folder: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="A folder for the root. Guard it: whoever has its key can add members."),
    ],
    name: Annotated[str, typer.Option(help="The name of the overlay.")] = "wend",
    days: Days = ROOT_DAYS,
    as_json: Json = False,
) -> None:
    """Make the root of an overlay: its key and its certificate."""
    key_files.check_absent(folder / key_files.ROOT_KEY, folder / key_files.ROOT)
    secret, serial, now = key_files.new_secret(), key_files.new_serial(), wall_s()
    ends = now + _days_to_seconds(days)
    certificate = certificates.make_root(name, secret, serial=serial, not_before_s=now - SKEW_S, not_after_s=ends)
    key_files.make_folder(folder)
    key_files.write_signing_key(folder / key_files.ROOT_KEY, secret)
    key_files.write_new_file(folder / key_files.ROOT, key_files.encode_certificates([certificate]))
    text = f"{folder}: the root {name}, until {certificates.utc_text(ends)}; {key_files.ROOT_KEY} is secret"
    _print_result(text, as_json, folder=str(folder), name=name, ends=certificates.utc_text(ends))


def new(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder for the keys of a site or a client.")],
    name: Annotated[str, typer.Option(help="The name of the site or client.")],
    as_json: Json = False,
) -> None:
    """Make keys for a site or a client, and a request for the root to sign. Private keys never leave the folder."""
    places = [folder / file for file in (key_files.SIGNING_KEY, key_files.SESSION_KEY, key_files.REQUEST)]
    key_files.check_absent(*places)
    signing, session = key_files.new_secret(), key_files.new_secret()
    request = certificates.make_request(name, signing, session)
    key_files.make_folder(folder)
    key_files.write_signing_key(places[0], signing)
    key_files.write_session_key(places[1], session)
    key_files.write_new_file(places[2], key_files.encode_request(request))
    text = f"{places[2]}: have the root sign it, and put the certificate at {folder / key_files.CERTIFICATE}"
    _print_result(text, as_json, request=str(places[2]), certificate=str(folder / key_files.CERTIFICATE))


def sign(
    request: Annotated[Path, typer.Argument(metavar="REQUEST", help="The request.pem of a site or client.")],
    root: Root,
    out: Annotated[Path, typer.Option(metavar="FILE", help="The file to write.")],
    peer: Annotated[
        int | None,
        typer.Option(metavar="ID", help="The peer's id. Without it, the certificate is for a client.", min=0),
    ] = None,
    groups: Groups = "",
    name: Annotated[str | None, typer.Option(help="A name to use instead of the one in the request.")] = None,
    days: Days = CERTIFICATE_DAYS,
    as_json: Json = False,
) -> None:
    """Sign a request at the root: the certificate of a peer or, without --peer, of a client."""
    key_files.check_absent(out)
    secret = key_files.read_signing_key(root / key_files.ROOT_KEY)
    roots = key_files.read_certificates(root / key_files.ROOT)
    content, now, serial = key_files.read_request_file(request), wall_s(), key_files.new_serial()
    certificate = certificates.sign_certificate(
        content,
        roots[0],
        secret,
        serial=serial,
        peer=peer,
        groups=split_names(groups),
        not_before_s=now - SKEW_S,
        not_after_s=now + _days_to_seconds(days),
        name=name,
    )
    _check_id_is_free(root, peer, certificates.read_request(content).signing_key)
    key_files.make_folder(root / key_files.ISSUED)
    issued = root / key_files.ISSUED / f"{serial}.pem"
    key_files.write_new_file(issued, key_files.encode_certificates([certificate]))
    try:
        key_files.write_new_file(out, key_files.encode_certificates([certificate, *roots]))
    except ConfigError:
        issued.unlink(missing_ok=True)  # nobody has it
        raise
    identity = certificates.RootVerifier(roots).verify(certificate, now)
    text = f"{out}: {_identity_text(identity)}, until {certificates.utc_text(identity.not_after_s)}, serial {serial}"
    _print_result(text, as_json, **_make_row("issued", identity, frozenset(), now))


def _check_id_is_free(root: Path, peer: int | None, signing_key: bytes) -> None:
    """Refuse an id that another key has: two sites with one id would displace each other. A key may renew its own."""
    if peer is None:
        return
    revoked, now = key_files.read_revoked(root / key_files.REVOKED), wall_s()
    for identity in _issued_identities(root):
        is_valid = identity.not_after_s > now and identity.serial not in revoked
        if identity.peer == peer and identity.signing_key != signing_key and is_valid:
            raise ConfigError(
                f"peer {peer} has a certificate with another key, serial {identity.serial}: revoke it first "
                f"(wend key revoke {root} {identity.serial}), or give another id"
            )


def token(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="The folder with the keys of the peer to which the client connects.")
    ],
    name: Annotated[str, typer.Option(help="The name of the client.")],
    groups: Groups = "",
    days: Days = CERTIFICATE_DAYS,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A private file for the token. By default it is printed.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Make a token with which a client can connect without a certificate. The peer stores only its hash."""
    certificates.check_name(name)
    certificates.check_groups(split_names(groups))
    if not os.path.isdir(folder):
        raise ConfigError(f"there is no folder {folder}: name the one with the peer's keys", code="unreadable")
    secret, ends, serial = key_files.new_token(), wall_s() + _days_to_seconds(days), key_files.new_serial()
    key_files.read_tokens(folder / key_files.TOKENS)
    if out is not None:
        key_files.write_new_file(out, f"{secret}\n".encode(), mode=0o600)
    record = key_files.ClientToken(name, key_files.hash_token(secret), serial, ends, tuple(split_names(groups)))
    key_files.append_line(folder / key_files.TOKENS, msgspec.json.encode(record).decode())
    text = secret if out is None else f"{out}: a token of {name}, until {certificates.utc_text(ends)}, serial {serial}"
    place = {"token": secret} if out is None else {"file": str(out)}
    _print_result(text, as_json, **place, **_make_row("token", key_files.make_token_identity(record), frozenset(), 0))


def revoke(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The root's folder, or a peer's.")],
    who: Annotated[str, typer.Argument(metavar="WHO", help="A serial number, or the name of a site, client or token.")],
    as_json: Json = False,
) -> None:
    """Revoke all valid certificates and tokens of a name, or the one with a serial number.

    The serial numbers go to revoked.txt. Peers read their own copy of it when they start and on SIGHUP.
    """
    place = folder / key_files.REVOKED
    revoked, now = key_files.read_revoked(place), wall_s()
    is_number = who.isascii() and who.isdigit()
    try:
        identities = [*_issued_identities(folder), *_token_identities(folder)]
    except ConfigError:
        if not is_number:
            raise
        identities = []  # in an emergency, a serial number is revoked whatever else is broken
    serials = [(each.serial, each.name) for each in identities if each.name == who and each.not_after_s > now]
    if not serials:  # a name may consist of digits
        if not is_number:
            raise ConfigError(f"{folder} knows no valid certificate or token of {who!r}; give the serial number")
        serial = key_files.parse_serial(who)
        if serial is None:
            raise ConfigError(f"a serial number is in 1..{certificates.MAX_SERIAL}, got {who[:100]}")
        serials = [(serial, "by serial number")]
    fresh = [(serial, name) for serial, name in serials if serial not in revoked]
    for serial, name in fresh:
        key_files.append_line(place, f"{serial}  # {name}")
    text = f"{place}: {len(fresh)} more, {len(revoked) + len(fresh)} in all; copy it to the peers and send them SIGHUP"
    _print_result(text, as_json, file=str(place), revoked=[str(serial) for serial, _ in fresh])


def show(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder of keys, or a root's.")],
    as_json: Json = False,
) -> None:
    """List the certificates and tokens in a folder: when they end, and whether they are revoked."""
    if not os.path.isdir(folder):
        raise ConfigError(f"there is no folder {folder}", code="unreadable")
    revoked, now = key_files.read_revoked(folder / key_files.REVOKED), wall_s()
    rows = _root_rows(folder)
    for kind, identities in (
        ("own", _own_identities(folder)),
        ("issued", _issued_identities(folder)),
        ("token", _token_identities(folder)),
    ):
        rows += [_make_row(kind, identity, revoked, now) for identity in identities]
    if as_json:
        for row in rows:
            print(json.dumps(row))
    elif rows:
        print(_format_names(rows))
    else:
        print(f"{folder} holds no certificates and no tokens")


# ---------------------------------------------------------------- helpers


def _print_result(text: str, as_json: bool, **fields: Any) -> None:
    print(json.dumps(fields) if as_json else text)


def _days_to_seconds(days: float) -> int:
    if not 0 < days <= 36_500:
        raise ConfigError(f"--days is above 0 and up to 36500, got {days:g}")
    return max(1, round(days * DAY_S))


def _identity_text(identity: "Identity") -> str:
    what = "client" if identity.peer is None else f"peer {identity.peer}"
    groups = f" in {', '.join(identity.groups)}" if identity.groups else ""
    return f"{identity.name}, {what}{groups}"


def _own_identities(folder: Path) -> "list[Identity]":
    place = folder / key_files.CERTIFICATE
    return [certificates.read_identity(key_files.read_certificates(place)[0])] if os.path.lexists(place) else []


def _issued_identities(folder: Path) -> "list[Identity]":
    places = sorted((folder / key_files.ISSUED).glob("*.pem"))
    identities = [certificates.read_identity(key_files.read_certificates(place)[0]) for place in places]
    return sorted(identities, key=lambda each: (each.peer is None, each.peer or 0, each.name, each.not_after_s))


def _token_identities(folder: Path) -> "list[Identity]":
    return [key_files.make_token_identity(each) for each in key_files.read_tokens(folder / key_files.TOKENS)]


def _root_rows(folder: Path) -> list[dict[str, Any]]:
    own = folder / key_files.CERTIFICATE
    ders = key_files.read_certificates(own)[1:] if os.path.lexists(own) else []
    ders += key_files.read_certificates(folder / key_files.ROOT) if os.path.lexists(folder / key_files.ROOT) else []
    now = wall_s()
    roots = map(certificates.read_root, dict.fromkeys(ders))
    return [_common_fields("root", each.name, each.not_after_s, now) for each in roots]


def _make_row(kind: str, identity: "Identity", revoked: frozenset[int], now: int) -> dict[str, Any]:
    fields = _common_fields(kind, identity.name, identity.not_after_s, now)
    fields |= {"peer": identity.peer, "groups": list(identity.groups)}
    fields["serial"] = str(identity.serial)  # many readers of JSON round numbers beyond 2**53
    return fields | ({"state": "revoked"} if identity.serial in revoked else {})


def _common_fields(kind: str, name: str, ends_s: int, now: int) -> dict[str, Any]:
    """The fields that a root, a certificate and a token have in common."""
    fields: dict[str, Any] = {"kind": kind, "name": name, "peer": None, "groups": [], "serial": None}
    return fields | {"ends": certificates.utc_text(ends_s), "state": "ended" if now > ends_s else "valid"}


def _format_names(rows: list[dict[str, Any]]) -> str:
    columns = ("kind", "name", "peer", "groups", "ends", "state", "serial")
    cells = [{**row, "groups": ",".join(row["groups"])} for row in rows]
    shown = [["" if row[name] is None else str(row[name]) for name in columns] for row in cells]
    return "\n".join(align_columns([columns, *shown]))
