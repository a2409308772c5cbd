"""Every event of the ledger: facts in the open, content in one field.

An event's name is its topic in the store, its fields are the JSON body. Facts are times, states, codes, pseudonyms and
platform message ids; whatever a person wrote or is called stands in `content`, apart, so that it can be sealed and
erased while every fact and digest stays. Reading ignores unknown fields; a field is added, never given a new meaning,
and `version` rises when an old reader could be misled.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import msgspec

from .message import (
    Atomicity,
    Attachment,
    Message,
    ReceiptPart,
    RenderedBatch,
    RenderedUnit,
    UnitKind,
)
from .origin import NO_ORIGIN, Origin
from .outcome import Cause, FailureClass, Proof, Scope

Action = Literal["send", "edit", "delete"]
Durability = Literal["required", "best_effort"]
OnUnknown = Literal["hold", "at_least_once"]
Why = Literal["first", "retry", "recovery", "operator"]
Licence = Literal["none", "window", "at_least_once", "operator"]
Hold = Literal["config", "unresolved", "channel"]
FailReason = Literal["rejected", "attempts_exhausted", "expired", "discarded", "incomplete"]


class Event(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """What all events carry: when it happened, on whose clock, and who says so."""

    version: ClassVar[int] = 1
    at: int
    """UTC milliseconds."""
    clock: Literal["local", "platform"] = "local"
    by: str
    """`worker:<id>`, `gateway:<id>` or `operator:<name>@<host>`."""


class PlannedUnit(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The facts of one rendered unit; its index is its place in the list."""

    kind: UnitKind = "text"
    required: bool = True
    media: str | None = None
    """Keyed digest of the file that goes out with it."""
    size: int | None = None
    """Bytes of that file."""
    kept: bool = True
    """Whether a copy of the file is kept until the intent has ended."""


class Policy(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """How far the gateway goes for one intent. Fixed when it is recorded."""

    max_attempts: int
    expires_at: int
    """UTC milliseconds: the last moment at which an attempt may start."""
    ordered: bool = True
    on_unknown: OnUnknown = "hold"


class RecordedContent(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """`message` is without its body where the batch's only unit holds the same text: the text is stored once."""

    key: str
    message: Message
    batch: RenderedBatch
    body_in_batch: bool = False
    of_platform_id: str | None = None
    """The platform's id of the message that an edit or delete is about."""
    of_token: str | None = None


class IntentRecorded(Event, frozen=True, gc=False, kw_only=True):
    """The gateway decided that something should become visible, changed or deleted. From here on it is owed."""

    key: str
    """Keyed digest of the idempotency key; the stream's own id where nobody gave one."""
    content_mac: str
    action: Action = "send"
    of: str | None = None
    channel: str
    account: str
    lane: str
    place: str
    relation: str
    origin: Origin = NO_ORIGIN
    session: str | None = None
    inbound: str | None = None
    durability: Durability = "required"
    policy: Policy
    units: tuple[PlannedUnit, ...]
    atomicity: Atomicity = "all_or_retry_remaining"
    producer: str | None = None
    run: str | None = None
    traceparent: str | None = None
    hooks: tuple[str, ...] = ()
    not_before: int | None = None
    """UTC milliseconds before which nobody sends it but the one who recorded it."""
    late: bool = False
    """Written after the fact by a best-effort send that had found no store."""
    callback: str | None = None
    """The worker in whose memory the only function is that may send it: it dies with that process, and is used once."""
    content: RecordedContent | None = None


class PlanContent(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    batch: RenderedBatch


class BatchPlanned(Event, frozen=True, gc=False, kw_only=True):
    """A fallback plan replaces one that the platform refused before anything of it was visible."""

    plan: int
    units: tuple[PlannedUnit, ...]
    atomicity: Atomicity = "all_or_retry_remaining"
    content_mac: str
    why: FailureClass
    content: PlanContent | None = None


class UnitTry(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A unit that an attempt may send: the key the platform sees, and the keyed digest of the request's bytes."""

    unit: int
    key: str
    request_sha256: str


class AttemptStarted(Event, frozen=True, gc=False, kw_only=True):
    """A worker claims the intent and is about to send. There is no other claim.

    `owner` is a worker's stream, new with every start of a process, so it serves as the epoch too.
    """

    attempt: int
    owner: str
    units: tuple[UnitTry, ...]
    deadline_ms: int
    """Duration from `at` after which no I/O of this attempt starts or is waited for."""
    margin_ms: int
    """Duration after the deadline in which a request may still be applied: `deadline + margin` is the lease."""
    boot_ms: int
    """The claim on the host's clock that counts suspended time and no correction (CLOCK_BOOTTIME)."""
    credential: str
    """Keyed fingerprint of the credential: another one voids the platform's deduplication."""
    why: Why = "first"
    licence: Licence = "none"
    marked: bool = False


class AcceptedPart(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The facts of one part of a receipt."""

    id: str | None = None
    kind: UnitKind = "text"


class AcceptedContent(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """What a receipt says beyond its ids: links, tokens, threads, the raw answer."""

    parts: tuple[ReceiptPart, ...] = ()
    raw: dict[str, Any] | None = None


class UnitAccepted(Event, frozen=True, gc=False, kw_only=True):
    """A fact: the platform took the unit."""

    attempt: int
    unit: int
    parts: tuple[AcceptedPart, ...]
    sent_at: int | None = None
    duplicate: bool = False
    status: int | None = None
    request_id: str | None = None
    took_ms: int | None = None
    content: AcceptedContent | None = None


class IntentCommitted(Event, frozen=True, gc=False, kw_only=True):
    """Every required unit has its receipt. Terminal: sent."""

    platform_ids: tuple[str, ...] = ()
    missing: tuple[int, ...] = ()
    """Units of the batch that stay without a receipt: optional ones, or parts of a best-effort batch."""


class ErrorContent(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    detail: str = ""
    raw: dict[str, Any] | None = None


class AttemptFailed(Event, frozen=True, gc=False, kw_only=True):
    """A fact: this attempt did not send the unit, with the proof of it."""

    attempt: int
    unit: int
    failure: FailureClass
    proof: Proof
    bytes_left: bool = True
    plan: int = 0
    status: int | None = None
    code: str | None = None
    request_id: str | None = None
    took_ms: int | None = None
    retry_after_ms: int | None = None
    scope: Scope = "lane"
    next_attempt_at: int | None = None
    """Where the failure allows another attempt; absent, the intent ends or the next unit follows."""
    hold: Hold | None = None
    config: str | None = None
    """Fingerprint of the configuration that a `config` hold waits to see changed."""
    content: ErrorContent | None = None


class OutcomeUnknown(Event, frozen=True, gc=False, kw_only=True):
    """The current attempt ended without an answer that proves anything."""

    attempt: int
    unit: int
    cause: Cause
    status: int | None = None
    request_id: str | None = None
    took_ms: int | None = None
    next_check_at: int | None = None
    hold: Hold | None = None
    content: ErrorContent | None = None


class OutcomeReconciled(Event, frozen=True, gc=False, kw_only=True):
    """A look-up or a person says what became of the unit in doubt."""

    unit: int
    attempts: tuple[int, ...]
    verdict: Literal["sent", "not_sent", "unresolved"]
    evidence: dict[str, Any] = {}
    parts: tuple[AcceptedPart, ...] = ()
    sent_at: int | None = None
    counted: bool = True
    """False for a check made before the lease end, which costs none of the budget."""
    next_check_at: int | None = None
    hold: Hold | None = None
    reason: str | None = None
    content: AcceptedContent | None = None


class IntentFailed(Event, frozen=True, gc=False, kw_only=True):
    """Terminal: nothing more will be sent, and why."""

    reason: FailReason
    failure: FailureClass | None = None
    code: str | None = None
    note: str | None = None
    """A person's reason."""


class IntentCancelled(Event, frozen=True, gc=False, kw_only=True):
    """Terminal: taken back before anything was sent."""

    reason: str


class IntentHeld(Event, frozen=True, gc=False, kw_only=True):
    """The intent waits for what only a change outside can bring; `hold` absent, the wait is over."""

    hold: Hold | None = None
    config: str | None = None
    reason: str | None = None


class DeliveryReported(Event, frozen=True, gc=False, kw_only=True):
    """A later word of the platform about a message that it took."""

    platform_id: str
    state: Literal["delivered", "read", "undelivered"]
    code: str | None = None


class Dismissed(Event, frozen=True, gc=False, kw_only=True):
    """A person hides a failed intent from the list of dead letters."""

    reason: str


class WorkerStarted(Event, frozen=True, gc=False, kw_only=True):
    """A process opened the ledger to work on it."""

    host: str
    boot: str
    pid: int
    msgledger: str
    channels: dict[str, str] = {}
    """Channel name to its version."""
    config: str = ""
    interrupted: int = 0
    """Turns that it found running, whose workers are dead."""


class ChannelReady(Event, frozen=True, gc=False, kw_only=True):
    channel: str
    account: str


class ChannelDown(Event, frozen=True, gc=False, kw_only=True):
    channel: str
    account: str
    failure: FailureClass | None = None


class DurabilityLost(Event, frozen=True, gc=False, kw_only=True):
    """Best-effort sends went out while the ledger could not be written."""

    sends: int
    error: str


class WorkerStopped(Event, frozen=True, gc=False, kw_only=True):
    reason: str = "closed"


def planned(units: tuple[RenderedUnit, ...]) -> tuple[PlannedUnit, ...]:
    """The facts of rendered units."""
    return tuple(
        PlannedUnit(unit.kind, unit.required) if unit.media is None else _with_media(unit, unit.media) for unit in units
    )


def _with_media(unit: RenderedUnit, media: Attachment) -> PlannedUnit:
    """A link has no digest of ours, whatever its sender says of it."""
    digest, size = (media.digest, media.size) if media.is_file else (None, None)
    return PlannedUnit(unit.kind, unit.required, digest, size, media.may_copy)
