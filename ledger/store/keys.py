"""`<ledger>.keys`: the installation's secret, apart from the ledger, so that a copy of one is not a copy of both.

The secret is never printed, never part of a message, and never written anywhere else. The file is made once, together
with its ledger, whole or not at all.
"""

from __future__ import annotations

import json
import os
import secrets
import stat
from pathlib import Path
from typing import Any, Final, cast

from ..errors import KeysMissing, KeysWrong
from ..pseudonym import Pseudonyms
from .filesystem import sync_folder

FORMAT: Final = 1
SECRET_BYTES: Final = 32
MODE: Final = 0o600


def keys_path(ledger: Path) -> Path:
    return ledger.with_name(ledger.name + ".keys")


def make(ledger: Path) -> Pseudonyms:
    """A new secret for a new ledger. Keys that stand already are used: their maker died before its ledger was done."""
    path = keys_path(ledger)
    body = json.dumps({"format": FORMAT, "secret": secrets.token_hex(SECRET_BYTES)}).encode()
    draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}.tmp")
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, MODE)
    try:
        try:
            os.write(fd, body)
            os.fsync(fd)
        finally:
            os.close(fd)
        try:
            os.link(draft, path)  # atomic, and refused where the name is taken
        except FileExistsError:
            return read(ledger)
    finally:
        draft.unlink()
        sync_folder(path.parent)
    return read(ledger)


def read(ledger: Path) -> Pseudonyms:
    """The secret of a ledger that stands."""
    path = keys_path(ledger)
    try:
        raw = path.read_bytes()
    except FileNotFoundError as error:
        raise KeysMissing(
            f"{path} is not there: put the keys that belong to {ledger} back from their backup"
        ) from error
    except OSError as error:
        raise KeysMissing(f"{path} cannot be read ({error.strerror}): check its owner and mode") from error
    try:
        return Pseudonyms(_secret(json.loads(raw)))
    except ValueError:
        # The cause is left out on purpose: its text can quote the file.
        raise KeysWrong(f"{path} is no keys file of msgledger, format {FORMAT}: put the right one back") from None


def check(ledger: Path, pseudonyms: Pseudonyms, expected: str | None) -> None:
    """Refuse keys that the ledger was not made with."""
    if pseudonyms.check() != expected:
        raise KeysWrong(f"{keys_path(ledger)} belongs to another ledger than {ledger}: put the right one back")


def problems(ledger: Path) -> list[str]:
    """What `doctor` reports of the keys file, in sentences."""
    path = keys_path(ledger)
    try:
        found = path.stat()
    except OSError as error:
        return [f"{path} cannot be looked at: {error.strerror}"]
    out: list[str] = []
    if found.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        out.append(f"{path} has mode {stat.S_IMODE(found.st_mode):04o}: others may read the secret; chmod 600 it")
    if found.st_uid != os.geteuid():
        out.append(f"{path} belongs to uid {found.st_uid}, this process is uid {os.geteuid()}")
    return out


def _secret(found: Any) -> bytes:
    if not isinstance(found, dict):
        raise ValueError
    fields = cast("dict[str, object]", found)
    text = fields.get("secret")
    if fields.get("format") != FORMAT or not isinstance(text, str):
        raise ValueError
    return bytes.fromhex(text)
