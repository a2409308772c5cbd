"""The channel surface: all that the lifecycle knows of a platform.

A channel renders a message into units, delivers one unit with exactly one visible request, and says what came of it.
It decides nothing, retries nothing and sleeps never; whether, when and how often it is asked is the core's business.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Literal, Protocol, TypeGuard, runtime_checkable

import msgspec

from ..ledger.limits import DEADLINE_MS, ECHO_HORIZON_S, SETTLE_MS
from ..ledger.message import Message, ReceiptPart, RenderedBatch, RenderedUnit, Target, Value
from ..ledger.origin import NO_ORIGIN, Origin
from ..ledger.outcome import FailureClass, Outcome, Verdict

SURFACE = 1
"""The major version of this surface. A channel of another one is refused."""

Evidence = Literal["proved", "documented", "unproven"]
Carried = Literal["reply_to", "quote", "silent", "hooks"]
"""A reply's target, a native quote of it, delivery without a notification, and what hooks made of the message."""


class TextLimit(Value, frozen=True, gc=False):
    max: int
    unit: Literal["utf16", "codepoints", "bytes"] = "codepoints"
    chunking: bool = False
    """Longer text is split into several units; otherwise it is refused before anything is recorded."""


class Idempotency(Value, frozen=True, gc=False):
    """The platform recognises a key that we choose. `unproven` evidence is never a licence to send again."""

    kind: Literal["client_key", "deterministic_id", "reply_slot"]
    field: str
    window_s: float
    scope: str = "account"
    on_duplicate: Literal["returns_receipt", "conflict_with_receipt", "conflict_blind"] = "returns_receipt"
    evidence: Evidence = "unproven"


class Lookup(Value, frozen=True, gc=False):
    """How an unknown outcome can be looked up. `can_prove_absence`: not found means not sent, after the lease end."""

    kind: Literal["by_key", "by_metadata", "history_match", "passive_status"]
    horizon_s: float | None = None
    can_prove_absence: bool = False
    evidence: Evidence = "unproven"


class Change(Value, frozen=True, gc=False):
    """Edits or deletes are possible, within `window_s` where it is not None."""

    window_s: float | None = None


class Ack(Value, frozen=True, gc=False):
    kind: str
    deadline_s: float | None = None


class Capabilities(Value, frozen=True, gc=False):
    """What a channel may promise, as data. The documentation's table of guarantees is made from it."""

    text: TextLimit = TextLimit(max=4096)
    idempotency: Idempotency | None = None
    reconcile: Lookup | None = None
    edit: Change | None = None
    delete: Change | None = None
    threads: bool = False
    carries: tuple[Carried, ...] = ()
    """What else of a message a delivery of this channel brings along, as the platform's own send would."""
    attachments: Literal["none", "remote_url", "upload"] = "none"
    media_max_bytes: int | None = None
    """The largest file that the channel uploads; None: none that it knows of."""
    live: bool = False
    origin: Literal["native", "label", "registry"] = "registry"
    """How what we sent is known when it comes in: its tag is read back, the label that we gave it, or only its id."""
    echo_horizon_s: float = ECHO_HORIZON_S
    """How long after its receipt a message of ours is known again by its id."""
    ack: Ack | None = None
    batch_max: int = 1
    receipt: Literal["required", "none"] = "required"
    """`none`: the platform gives no ids on this channel, and an acceptance without one is a receipt."""
    deadline_s: float = DEADLINE_MS / 1000
    """Hard deadline of one attempt."""
    settle_s: float = SETTLE_MS / 1000
    """The longest that a request may still be applied after its deadline, plus the look-up's lag."""
    per_second: float | None = None
    """Pace of redelivery per account; None: as fast as it goes."""

    def promise(self) -> str:
        """At-least-once or effectively-once, and why, in words for people."""
        key, look = self.idempotency, self.reconcile
        if key is not None and key.evidence != "unproven":
            return f"effectively once within {key.window_s:g} s of the first attempt ({key.field}, {key.evidence})"
        if look is not None and look.can_prove_absence and look.evidence != "unproven":
            return f"effectively once where history can be read ({look.kind}, {look.evidence})"
        if look is not None:
            return "at least once by policy; an unknown outcome is looked up, and held where it is not found"
        return "at least once by policy; an unknown outcome is held for a person otherwise"


class RenderContext(Value, frozen=True, gc=False):
    """What rendering may depend on beside the message."""

    at: int
    """UTC milliseconds."""
    intent: str
    random: bytes = b""
    action: Literal["send", "edit", "delete"] = "send"


class SendContext(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One attempt at one unit. `action` is `send`, `edit` or `delete`; the latter two name their object."""

    intent: str
    attempt: int
    unit: int
    provider_key: str
    """The same for every attempt at this unit: the platform's deduplication key."""
    deadline_s: float
    """Seconds that are left for this request."""
    target: Target
    action: Literal["send", "edit", "delete"] = "send"
    of_platform_id: str | None = None
    of_token: str | None = None
    reply_to: str | None = None
    origin: Origin = NO_ORIGIN
    """Who produced the message: the same for each of its units and their marked copies."""
    receipts: tuple[ReceiptPart, ...] = ()
    """What the platform holds of the units before this one."""
    first_attempt_at: int | None = None
    marked: bool = False
    media: Path | None = None
    """The file that goes out with this unit, checked right before; it is only read. None for a link or without one."""
    last_look: Callable[[], Awaitable[None]] | None = None
    """To be awaited once more after connecting, right before the bytes leave; it raises where the attempt is over."""


@runtime_checkable
class Channel(Protocol):
    """All that the lifecycle knows. Optional methods are looked for by name: see `Reconciles` and the others below."""

    @property
    def name(self) -> str: ...
    @property
    def account(self) -> str: ...
    @property
    def surface(self) -> int: ...
    @property
    def version(self) -> str: ...
    @property
    def capabilities(self) -> Capabilities: ...
    @property
    def ready(self) -> bool:
        """False: its intents are not due, and cost no attempt."""
        ...

    @property
    def credential(self) -> str:
        """What identifies the credential and device that deduplication is scoped to. Kept as a keyed digest only."""
        ...

    @property
    def config(self) -> str:
        """All settings whose change could mend `auth` or `permission`, as one text. Kept as a keyed digest only."""
        ...

    def render(self, message: Message, context: RenderContext) -> RenderedBatch: ...

    async def deliver(self, unit: RenderedUnit, context: SendContext) -> Outcome:
        """Exactly one visible request. Raising `Rejected` or `Unknown` is as good as returning it."""
        ...


@runtime_checkable
class Reconciles(Protocol):
    async def reconcile(self, unit: RenderedUnit, context: SendContext) -> Verdict: ...


@runtime_checkable
class Requests(Protocol):
    def request_bytes(self, unit: RenderedUnit, context: SendContext) -> bytes:
        """What would be sent, without credentials: its digest decides whether a resend is the same request."""
        ...


@runtime_checkable
class FallsBack(Protocol):
    def fallback(
        self,
        message: Message,
        refused: RenderedBatch,
        failure: FailureClass,
        context: RenderContext,
        code: str | None = None,
    ) -> RenderedBatch | None:
        """Another plan for a refused batch of which nothing is visible, or None. Asked once an intent.

        `code` is the platform's own code of the refusal (`Rejected.code`), where it gave one.
        """
        ...


@runtime_checkable
class Tags(Protocol):
    """What a channel has whose platform carries an origin. Both functions translate; nothing is decided in them."""

    def encode_origin(self, origin: Origin) -> object:
        """The platform's metadata for that origin (see `Origin.tag`); None where there is nothing to write."""
        ...

    def decode_origin(self, event: Mapping[str, Any]) -> Origin | None:
        """What the event's metadata says (see `ledger.origin.decode`); None without any."""
        ...


@runtime_checkable
class Opens(Protocol):
    async def open(self) -> None: ...
    async def close(self) -> None: ...


NEEDED = ("name", "account", "surface", "version", "capabilities", "ready", "credential", "config", "render", "deliver")
"""What `Channel` names. Looked for as attributes, so that a wrapper that passes everything on is a channel too."""


def is_channel(channel: object) -> TypeGuard[Channel]:
    return all(hasattr(channel, name) for name in NEEDED)


def reconciles(channel: object) -> TypeGuard[Reconciles]:
    return callable(getattr(channel, "reconcile", None))


def falls_back(channel: object) -> TypeGuard[FallsBack]:
    return callable(getattr(channel, "fallback", None))


def is_external(channel: object) -> bool:
    """Whether its gateway sends by itself and tells us, so that nothing may be started here."""
    return getattr(channel, "external", False) is True


def starts(channel: Channel) -> bool:
    """Whether an attempt may be started through it now."""
    return channel.ready and not is_external(channel)


def opens(channel: object) -> TypeGuard[Opens]:
    return callable(getattr(channel, "open", None)) and callable(getattr(channel, "close", None))
