"""Who produced a text: the origins that are known, and how one is written into a platform's metadata and read back.

Pure. A tag that this version does not know is kept as it came, and nothing is ever concluded from it.
"""

from __future__ import annotations

from typing import Any, Final, Literal, cast, get_args

import msgspec

GATEWAY: Final = "gateway"
SPELLINGS: Final = (GATEWAY, "openclaw")
"""How the source of a gateway's own output is spelled: by us, and by another implementation of the same tag."""
SYSTEM: Final = "system"
SOURCES: Final = (GATEWAY, SYSTEM, "user", "external_bot", "platform", "unknown")
FAILURE: Final = "gateway_failure"
DROP_BOT_ROOM_ECHO: Final = "drop_bot_room_echo"
VERSION: Final = 1
"""The schema of the tag that is known here."""
FailureCode = Literal["agent_failed_before_reply", "missing_api_key", "model_login_expired"]


class Origin(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Who produced the text, apart from what it relates to. A tag of another version or source is kept in `opaque`."""

    source: str = "unknown"
    """`gateway`, `system`, `user`, `external_bot`, `platform` or `unknown`."""
    kind: str | None = None
    code: str | None = None
    echo_policy: str | None = None
    version: int = VERSION
    opaque: dict[str, Any] | None = None
    """The whole tag as it came, where it is none that is known. Content: it never stands among the facts."""

    @classmethod
    def gateway_failure(cls, code: FailureCode) -> Origin:
        """Of a text that tells people why there is no answer: they see it, other bots of a room leave it alone.

        Raises `ValueError`.
        """
        if code not in get_args(FailureCode):
            raise ValueError(f"failure code {code!r}: there is {', '.join(get_args(FailureCode))}")
        return cls(GATEWAY, FAILURE, code, DROP_BOT_ROOM_ECHO)

    @classmethod
    def system(cls) -> Origin:
        """Of operational output, which is never input to a bot."""
        return cls(SYSTEM)

    @classmethod
    def user(cls) -> Origin:
        return cls("user")

    @classmethod
    def external_bot(cls) -> Origin:
        return cls("external_bot")

    @classmethod
    def platform(cls) -> Origin:
        return cls("platform")

    @property
    def known(self) -> bool:
        """Whether it may be concluded from."""
        return self.opaque is None and self.version == VERSION and self.source in (*SOURCES, *SPELLINGS)

    def tag(self) -> dict[str, Any] | None:
        """What goes into a platform's metadata; None where there is nothing to say. `decode` reads it back."""
        if self.opaque is not None:
            return self.opaque
        return None if self == NO_ORIGIN else {**msgspec.to_builtins(self), "version": self.version}

    def fact(self) -> Origin:
        """What of a message that came in may stand among the facts: nothing that somebody else worded."""
        if not self.known or self == NO_ORIGIN:
            return NO_ORIGIN
        code = self.code if self.code in get_args(FailureCode) else None
        policy = self.echo_policy if self.echo_policy == DROP_BOT_ROOM_ECHO else None
        return Origin(self.source, FAILURE if self.kind == FAILURE else None, code, policy)


NO_ORIGIN: Final = Origin()
"""The default, as one object: what is that very object is left out of the JSON."""


def decode(tag: object) -> Origin | None:
    """The origin that a tag in a platform's metadata says; None for what is no tag at all.

    What is not wholly understood is kept opaque: another version, another source, a code or a policy of tomorrow.
    """
    if not isinstance(tag, dict):
        return None
    said = cast("dict[str, Any]", tag)
    named = {_OTHERWISE.get(name, name): value for name, value in said.items()}
    try:
        found = msgspec.convert(named, _Tag)
    except msgspec.ValidationError:
        return Origin(opaque=said)
    source = GATEWAY if found.source in SPELLINGS else found.source
    told = (found.kind, found.code, found.echo_policy)
    failure = source == GATEWAY and found.kind == FAILURE and found.code in get_args(FailureCode)
    if source in SOURCES and (not any(told) or (failure and found.echo_policy in (None, DROP_BOT_ROOM_ECHO))):
        return Origin(source, *told)
    return Origin(opaque=said)


class _Tag(msgspec.Struct, forbid_unknown_fields=True):
    """The tag of the version that is known."""

    source: str
    version: Literal[1]
    kind: str | None = None
    code: str | None = None
    echo_policy: str | None = None


_OTHERWISE: Final = {"schemaVersion": "version", "schema_version": "version", "echoPolicy": "echo_policy"}
"""How other implementations spell the names."""
