"""`msgledger.toml`: where the ledger is, and which channels there are.

    ledger = "gateway.db"

    [channels.matrix]
    kind = "matrix"
    url = "https://matrix.example.org"
    user = "@bot:example.org"
    token = { env = "MATRIX_TOKEN" }

A credential is never in this file: it names an environment variable or a file, and what that holds is read when a
channel is made, never kept, printed or shown by `repr`. Unknown keys are refused, so that a typing error is no setting.
"""

from __future__ import annotations

import difflib
import os
import sys
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any, Final, cast

import msgspec

from ..adapters import calls
from ..adapters.surface import Channel
from ..ledger.errors import InvalidConfig, LedgerError

FILE: Final = "msgledger.toml"
LEDGER_VARIABLE: Final = "MSGLEDGER_LEDGER"
CONFIG_VARIABLE: Final = "MSGLEDGER_CONFIG"
CREDENTIALS: Final = frozenset({"token", "access_token", "password", "secret", "api_key", "key", "webhook_secret"})
"""Names under which a text would be a credential written down."""


class Secret(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a credential is, never what it is."""

    env: str | None = None
    file: str | None = None

    def read(self, where: str, folder: Path) -> str:
        """The credential. Raises `InvalidConfig` with the place, not with the value."""
        if (self.env is None) == (self.file is None):
            raise InvalidConfig(f"{where}: give either env or file, one of the two")
        if self.env is not None:
            value = os.environ.get(self.env, "")
            if not value:
                raise InvalidConfig(f"{where}: the environment variable {self.env} is not set: set it, or name another")
            return value
        path = folder / (self.file or "")
        try:
            value = path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is no text"
            raise InvalidConfig(f"{where}: {path} cannot be read ({why}): check the path, owner and mode") from None
        if not value:
            raise InvalidConfig(f"{where}: {path} is empty: put the credential into it")
        return value

    def path(self, folder: Path) -> Path | None:
        return None if self.file is None else folder / self.file


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag_field="kind"):
    """One `[channels.NAME]`."""


class QaSettings(Settings, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="qa", tag_field="kind"):
    url: str
    account: str = "default"
    token: Secret | None = None
    deadline_s: float | None = None


class MatrixSettings(Settings, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="matrix", tag_field="kind"):
    url: str
    user: str
    token: Secret
    device: str | None = None
    account: str | None = None
    window_s: float | None = None
    """How long the homeserver recognises a transaction id, where that is not Synapse's day."""


class TelegramSettings(
    Settings, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="telegram", tag_field="kind"
):
    token: Secret
    url: str | None = None
    """Another server than Telegram's own."""
    account: str | None = None
    username: str | None = None
    webhook_secret: Secret | None = None
    media_max_bytes: int | None = None
    """The largest file that this server takes, where it is not Telegram's own."""


class PythonSettings(Settings, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="python", tag_field="kind"):
    """A channel that a gateway makes itself: `object = "package.module:channel"`."""

    object: str
    account: str | None = None
    path: str | None = None
    """A folder to import from, relative to the file."""


KINDS: Final[dict[str, type[Settings]]] = {
    "qa": QaSettings,
    "matrix": MatrixSettings,
    "telegram": TelegramSettings,
    "python": PythonSettings,
}


class Config(msgspec.Struct, frozen=True):
    """What was found. `source` is None where there is no file."""

    source: Path | None = None
    ledger: Path | None = None
    channels: dict[str, Settings] = {}

    @property
    def folder(self) -> Path:
        return Path() if self.source is None else self.source.parent

    def channel(self, name: str) -> Channel:
        """The channel of that name, made now. Raises `InvalidConfig`."""
        settings = self.channels.get(name)
        if settings is None:
            there = ", ".join(self.channels) or "none"
            raise InvalidConfig(f"no channel {name!r} is configured in {self.source or FILE}: there is {there}")
        try:
            channel = self._make(name, settings)
            calls.check(channel)
        except LedgerError as error:
            if str(error).startswith(str(self.source)):
                raise
            raise InvalidConfig(f"{self.source}: [channels.{name}]: {error}") from error
        return channel

    def all_channels(self) -> list[Channel]:
        """Every channel. Raises `InvalidConfig` for the first that cannot be made."""
        return [self.channel(name) for name in self.channels]

    def _make(self, name: str, settings: Settings) -> Channel:
        where = f"{self.source}: [channels.{name}] token"
        match settings:
            case QaSettings():
                from ..adapters.qa import qa_channel

                token = "" if settings.token is None else settings.token.read(where, self.folder)
                more = {} if settings.deadline_s is None else {"deadline_s": settings.deadline_s}
                return qa_channel(settings.url, token=token, name=name, account=settings.account, **more)
            case MatrixSettings():
                from ..adapters.matrix import WINDOW_S, MatrixChannel

                token = settings.token.read(where, self.folder)
                return MatrixChannel(
                    settings.url,
                    user_id=settings.user,
                    token=token,
                    device_id=settings.device,
                    name=name,
                    account=settings.account,
                    window_s=WINDOW_S if settings.window_s is None else settings.window_s,
                )
            case TelegramSettings():
                from ..adapters.telegram import SERVER, TELEGRAM, TelegramChannel

                told = settings.webhook_secret
                where_secret = where.removesuffix("token") + "webhook_secret"
                return TelegramChannel(
                    settings.token.read(where, self.folder),
                    name=name,
                    account=settings.account,
                    username=settings.username,
                    webhook_secret=None if told is None else told.read(where_secret, self.folder),
                    base_url=settings.url or SERVER,
                    media_max_bytes=settings.media_max_bytes or TELEGRAM.media_max_bytes or 0,
                )
            case PythonSettings():
                return self._import(name, settings)
            case _:
                raise InvalidConfig(f"kind {type(settings).__name__} cannot be made")

    def _import(self, name: str, settings: PythonSettings) -> Channel:
        module, colon, attribute = settings.object.partition(":")
        if not (module and colon and attribute):
            raise InvalidConfig(f"object {settings.object!r} is no place: give package.module:channel")
        if settings.path is not None:
            folder = str((self.folder / settings.path).resolve())
            if folder not in sys.path:
                sys.path.insert(0, folder)
        try:
            found: Any = import_module(module)
            for part in attribute.split("."):
                found = getattr(found, part)
        except Exception as error:
            raise InvalidConfig(f"object {settings.object!r} cannot be imported: check it, and path") from error
        calls.check(found)
        if found.name != name or settings.account not in (None, found.account):
            raise InvalidConfig(
                f"object {settings.object!r} is channel {found.name!r}, account {found.account!r}: name them alike"
            )
        return found


def find(explicit: str | None) -> Config:
    """What `--config` names, else MSGLEDGER_CONFIG, else ./msgledger.toml, else nothing. Raises `InvalidConfig`."""
    named = explicit or os.environ.get(CONFIG_VARIABLE)
    path = Path(named or FILE)
    if not named and not os.path.exists(path):  # unlike Path.exists, no error where the folder may not be read
        return Config()
    return load(path)


def load(path: Path) -> Config:
    """The file, checked whole."""
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidConfig(f"{path} cannot be read ({error.strerror}): check --config and {CONFIG_VARIABLE}") from None
    except ValueError as error:
        raise InvalidConfig(f"{path} is no TOML ({error}): mend it") from None
    _known(f"{path}", raw, ("ledger", "channels"))
    ledger, tables = raw.get("ledger"), raw.get("channels", {})
    if ledger is not None and (not isinstance(ledger, str) or not ledger):
        raise InvalidConfig(f"{path}: ledger must be a path as text")
    if not isinstance(tables, dict):
        raise InvalidConfig(f"{path}: channels must be tables: write [channels.NAME]")
    channels = {name: _settings(path, name, table) for name, table in cast("dict[str, Any]", tables).items()}
    return Config(path, None if ledger is None else path.parent / ledger, channels)


def _settings(path: Path, name: str, table: Any) -> Settings:
    where = f"{path}: [channels.{name}]"
    if not isinstance(table, dict):
        raise InvalidConfig(f"{where} must be a table with a kind")
    fields = cast("dict[str, Any]", table)
    for key, value in fields.items():
        if key in CREDENTIALS and isinstance(value, str):
            raise InvalidConfig(
                f'{where} has a credential written into it as {key}: name where it is instead, {key} = {{ env = "NAME" '
                f'}} or {{ file = "path" }}, and renew it if others could read this file'
            )
    kind = fields.get("kind")
    found = KINDS.get(kind) if isinstance(kind, str) else None
    if found is None:
        raise InvalidConfig(f"{where} has kind {kind!r}: there is {', '.join(KINDS)}")
    _known(where, fields, ("kind", *found.__struct_fields__))
    for key in found.__struct_fields__:
        if isinstance(fields.get(key), dict):
            _known(f"{where} {key}", fields[key], Secret.__struct_fields__)
    try:
        return msgspec.convert(fields, found, strict=True)
    except msgspec.ValidationError as error:
        raise InvalidConfig(f"{where}: {error}") from None


def _known(where: str, fields: dict[str, Any], known: tuple[str, ...]) -> None:
    for key in fields:
        if key not in known:
            near = difflib.get_close_matches(key, known, 1)
            meant = f" (did you mean {near[0]}?)" if near else ""
            raise InvalidConfig(f"{where} has the unknown key {key!r}{meant}: there is {', '.join(known)}")
