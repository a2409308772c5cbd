"""Where a message came from, and the key that its conversation is known by. Pure, and without any platform's rules.

The first five positions of a key are read by position elsewhere: `agent:<profile>:<platform>:<kind>:<chat>`. What
follows is tagged, and every component is escaped, so that two different sources never share a key.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Callable
from typing import Final, Literal

from .errors import UnroutableSource
from .message import Value
from .pseudonym import SHOWN_HEX, Pseudonyms
from .safe import check_session_key

ChatKind = Literal["dm", "group", "channel", "thread"]
MAIN: Final = "main"
"""The profile where none is set. No profile may be called so."""
_ESCAPED: Final = "%:="


class SessionSource(Value, frozen=True, gc=False):
    """Who spoke, and where. `chat`, `sender` and `sender_alt` are canonical: the channel's `normalize` makes them so.

    Names are for people and never part of an identity.
    """

    platform: str
    kind: ChatKind
    chat: str | None = None
    thread: str | None = None
    scope: str | None = None
    """Workspace, guild or tenant."""
    sender: str | None = None
    sender_alt: str | None = None
    """A stable alternative id of the sender, which wins over `sender`."""
    chat_name: str | None = None
    sender_name: str | None = None
    is_bot: bool = False
    message_id: str | None = None
    profile: str | None = None

    @property
    def participant(self) -> str | None:
        """Who it is, by the id that stays."""
        return self.sender_alt or self.sender or None


class KeyParts(Value, frozen=True, gc=False):
    """What a key consists of, before anything is escaped or hidden."""

    profile: str
    platform: str
    kind: str
    chat: str
    scope: str | None = None
    thread: str | None = None
    user: str | None = None


def key_parts(source: SessionSource, *, per_user: bool = True, per_user_in_threads: bool = False) -> KeyParts:
    """What tells this conversation from every other. Raises `UnroutableSource`.

    A direct chat is known by its chat, and by its participant only where it has none. A room has a session for each
    participant if `per_user`; a thread is shared unless `per_user_in_threads`.
    """
    if source.profile == MAIN:
        raise UnroutableSource(f"profile {MAIN!r} is what a source without a profile has: give it another name")
    who = source.participant
    if source.kind == "dm":
        if not source.chat and who is None:
            raise UnroutableSource("a direct chat with neither chat nor sender: strangers would share one session")
        user = None if source.chat else who
    elif not source.chat:
        raise UnroutableSource(f"a message of kind {source.kind!r} names no chat")
    else:
        user = who if (per_user_in_threads if source.thread else per_user) else None
    if not source.platform:
        raise UnroutableSource("the source names no platform")
    return KeyParts(
        source.profile or MAIN,
        source.platform,
        source.kind,
        source.chat or "",
        source.scope or None,
        source.thread or None,
        user,
    )


def session_key(source: SessionSource, *, per_user: bool = True, per_user_in_threads: bool = False) -> str:
    """The key in the open: content, never a fact. Raises `UnroutableSource`."""
    parts = key_parts(source, per_user=per_user, per_user_in_threads=per_user_in_threads)
    try:
        key = _joined(
            parts.profile, parts.platform, parts.kind, parts.chat, parts.scope, parts.thread, parts.user, escape
        )
        check_session_key(key)
    except ValueError as error:
        raise UnroutableSource(f"a source on {source.platform[:80]!r} gives no key: {error}") from error
    return key


def shown_key(source: SessionSource, names: Pseudonyms, *, per_user: bool = True, threads: bool = False) -> str:
    """The key with pseudonyms of 12 digits where chat, thread, workspace and participant stand: for people and logs."""
    parts = key_parts(source, per_user=per_user, per_user_in_threads=threads)
    user = None if parts.user is None else f"user_{hash_id(parts.user, names)}"
    scope, thread = (None if one is None else hash_id(one, names) for one in (parts.scope, parts.thread))
    chat = hash_chat(parts.chat, names) if parts.chat else ""
    return _joined(escape(parts.profile), escape(parts.platform), parts.kind, chat, scope, thread, user, str)


def hash_id(value: str, names: Pseudonyms | None = None) -> str:
    """12 hex digits that stand for an id: keyed with the installation's secret, or plain SHA-256 without `names`."""
    if names is None:
        return hashlib.sha256(value.encode()).hexdigest()[:SHOWN_HEX]
    return names.digest("id", value)[:SHOWN_HEX]


def hash_chat(value: str, names: Pseudonyms | None = None) -> str:
    """The same for a chat: what stands before its first colon stays, where it is a word and can be no part of an id."""
    prefix, colon, rest = value.partition(":")
    is_word = prefix.isascii() and prefix.isalpha() and prefix.islower()
    return f"{prefix}:{hash_id(rest, names)}" if colon and is_word else hash_id(value, names)


def escape(component: str) -> str:
    """Percent-escaped where the key's own signs stand, and where it would be no safe key. Injective."""
    escaped: list[str] = []
    for index, char in enumerate(component):
        steps_up = char == "." and component[index - 1 : index] == "."
        at_an_end = char == " " and index in (0, len(component) - 1)
        reads_as_dot = not char.isascii() and "." in unicodedata.normalize("NFKC", char)
        if char in _ESCAPED or not char.isprintable() or steps_up or at_an_end or reads_as_dot:
            escaped.append("".join(f"%{byte:02X}" for byte in char.encode()))
        else:
            escaped.append(char)
    return "".join(escaped)


def _joined(
    profile: str,
    platform: str,
    kind: str,
    chat: str,
    scope: str | None,
    thread: str | None,
    user: str | None,
    write: Callable[[str], str],
) -> str:
    """`write` is how each component is written."""
    head = ":".join(("agent", *map(write, (profile, platform, kind, chat))))
    tagged = (("scope", scope), ("thread", thread), ("user", user))
    return head + "".join(f":{name}={write(value)}" for name, value in tagged if value is not None)
