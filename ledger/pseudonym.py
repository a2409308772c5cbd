"""Digests and pseudonyms, all keyed with the installation's secret.

An unkeyed digest of a phone number or of a short text can be guessed, also after the text was erased. So every digest
of content, and every name that stands for a chat or a person among the facts, is an HMAC-SHA-256 under the secret, with
its purpose and the length of each part inside: `("a", "bc")` and `("ab", "c")` never meet.
"""

from __future__ import annotations

import hashlib
from typing import Final, Protocol

from .message import Target

STORED_HEX: Final = 32
"""Digits of a stored pseudonym: 128 bits."""
BLOCK_BYTES: Final = 64
"""The block of SHA-256."""
SHOWN_HEX: Final = 12
"""Digits of a pseudonym that is only shown."""


def join(*parts: str | bytes | None) -> bytes:
    """Injective: each part with its length in front; an absent part differs from an empty one."""
    return b"".join([b"-;" if part is None else _counted(part) for part in parts])


def _counted(part: str | bytes) -> bytes:
    raw = part.encode("utf-8") if isinstance(part, str) else part
    return b"%d:%b" % (len(raw), raw)


class _Hash(Protocol):
    def update(self, piece: bytes, /) -> None: ...
    def digest(self) -> bytes: ...
    def hexdigest(self) -> str: ...


class Streamed:
    """A keyed digest in the making: `update` with each piece, then `hexdigest` once, 64 hex digits."""

    __slots__ = ("_inner", "_outer", "update")

    def __init__(self, inner: _Hash, outer: _Hash) -> None:
        self._inner, self._outer = inner, outer
        self.update = inner.update

    def hexdigest(self) -> str:
        self._outer.update(self._inner.digest())
        return self._outer.hexdigest()


class Pseudonyms:
    """Everything that is derived from the installation's secret.

    `secret`: 32 bytes. Never printed, never part of an event.
    """

    __slots__ = ("_inner", "_outer")

    def __init__(self, secret: bytes) -> None:
        if len(secret) < 32:
            raise ValueError(f"the secret has {len(secret)} bytes; it needs at least 32")
        key = hashlib.sha256(secret).digest() if len(secret) > BLOCK_BYTES else secret
        padded = key.ljust(BLOCK_BYTES, b"\0")
        self._inner = hashlib.sha256(bytes(byte ^ 0x36 for byte in padded))
        self._outer = hashlib.sha256(bytes(byte ^ 0x5C for byte in padded))

    def __repr__(self) -> str:
        return "Pseudonyms(<secret>)"

    def digest(self, purpose: str, *parts: str | bytes | None) -> str:
        """The first 32 hex digits of HMAC-SHA-256 over purpose and parts."""
        return self._hmac(join(purpose, *parts))[:STORED_HEX]

    def mac(self, purpose: str, *parts: str | bytes | None) -> str:
        """The full keyed digest of content, 64 hex digits."""
        return self._hmac(join(purpose, *parts))

    def stream(self, purpose: str) -> Streamed:
        """The full keyed digest of content that comes in pieces. A purpose is used here or in `mac`, never in both."""
        inner, outer = self._inner.copy(), self._outer.copy()
        inner.update(join(purpose))
        return Streamed(inner, outer)

    def _hmac(self, raw: bytes) -> str:
        """RFC 2104, with the key's two blocks hashed once: a third of the time of a new HMAC for each message."""
        inner = self._inner.copy()
        inner.update(raw)
        outer = self._outer.copy()
        outer.update(inner.digest())
        return outer.hexdigest()

    def key(self, text: str) -> str:
        """The stored form of an idempotency key."""
        return self.digest("key", text)

    def place(self, target: Target) -> str:
        """The conversation that a platform id is unique in: without the thread."""
        return self.digest("place", target.channel, target.space, target.id)

    def lane(self, account: str, target: Target, alone: str | None = None) -> str:
        """The order that a message belongs to. `alone` is its own id where it wants no order."""
        return self.digest("lane", target.channel, account, target.space, target.id, target.thread, alone)

    def session(self, key: str) -> str:
        return self.digest("session", key)

    def event(self, channel: str, account: str, key: str) -> str:
        """The stored form of a platform's key of an event."""
        return self.digest("event", channel, account, key)

    def cursor(self, channel: str, account: str, credential: str) -> str:
        """The cursor of an account under one credential, itself given as its fingerprint."""
        return self.digest("cursor", channel, account, credential)

    def check(self) -> str:
        """What `doctor` compares to know that these keys belong to this ledger."""
        return self.digest("check", "msgledger")
