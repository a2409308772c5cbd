"""What a channel may say of one request: accepted, rejected, or unknown. There is no fourth answer.

`Rejected` and `Unknown` are exceptions, so that an async function that a gateway already has may raise them; a channel
may just as well return them. Only the channel can say that nothing was sent: the core never infers it from a text.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal

from .message import ReceiptPart, Value

Scope = Literal["lane", "account"]


class FailureClass(StrEnum):
    """The closed set into which every channel maps its platform's errors. What does not map is `unknown`."""

    TRANSIENT = "transient"
    RATE_LIMIT = "rate_limit"
    INVALID_PAYLOAD = "invalid_payload"
    AUTH = "auth"
    PERMISSION = "permission"
    NOT_FOUND = "not_found"
    CONFLICT = "conflict"
    CANCELLED = "cancelled"
    UNKNOWN = "unknown"


class Cause(StrEnum):
    """Why an outcome is unknown."""

    TIMEOUT = "timeout"
    RESET = "reset"
    SERVER_ERROR = "server_error"
    MALFORMED = "malformed_answer"
    NO_IDENTITY = "no_identity"
    OWNER_LOST = "owner_lost"
    RAISED = "raised"
    CLOSING = "closing"


class Proof(StrEnum):
    """How it is known that a failed attempt sent nothing."""

    REJECTED = "rejected"
    """A well-formed rejection by the platform."""
    NEVER_DISPATCHED = "never_dispatched"
    """The request did not leave: refused, unresolved, or stopped by the last look."""
    DECLARED = "declared"
    """The gateway's own function said so by raising `Rejected` or `NotDispatched`."""


class Accepted(Value, frozen=True, gc=False):
    """The platform took the unit. Without `platform_id` it is a receipt only on a channel that gives no ids."""

    platform_id: str | None = None
    parts: tuple[ReceiptPart, ...] = ()
    """Where one unit became several messages: all of them. Otherwise left empty."""
    duplicate: bool = False
    """The platform recognised our key: an earlier attempt had landed."""
    status: int | None = None
    request_id: str | None = None
    sent_at: int | None = None
    raw: dict[str, Any] | None = None


class Rejected(Exception):
    """The platform refused, well-formed: proof that this request made nothing visible."""

    def __init__(
        self,
        failure: FailureClass | str = FailureClass.UNKNOWN,
        detail: str = "",
        *,
        code: str | None = None,
        status: int | None = None,
        request_id: str | None = None,
        retry_after_s: float | None = None,
        scope: Scope = "lane",
        bytes_left: bool = True,
        proof: Proof = Proof.REJECTED,
    ) -> None:
        super().__init__(detail)
        self.failure = FailureClass(failure)
        self.detail = detail
        self.code = code
        self.status = status
        self.request_id = request_id
        self.retry_after_s = retry_after_s
        self.scope: Scope = scope
        self.bytes_left = bytes_left
        self.proof = proof


class NotDispatched(Rejected):
    """The request never left: it costs no attempt and is tried again until the intent is too old."""

    def __init__(self, detail: str = "", *, retry_after_s: float | None = None) -> None:
        super().__init__(
            FailureClass.TRANSIENT,
            detail,
            retry_after_s=retry_after_s,
            bytes_left=False,
            proof=Proof.NEVER_DISPATCHED,
        )


class Unknown(Exception):
    """It cannot be said whether the platform took the unit. It is never sent again on this word alone."""

    def __init__(
        self,
        cause: Cause | str = Cause.RAISED,
        detail: str = "",
        *,
        status: int | None = None,
        request_id: str | None = None,
    ) -> None:
        super().__init__(detail)
        self.cause = Cause(cause)
        self.detail = detail
        self.status = status
        self.request_id = request_id


Outcome = Accepted | Rejected | Unknown


class Sent(Value, frozen=True, gc=False):
    """A look-up found the unit at the platform."""

    receipt: Accepted
    evidence: dict[str, Any] = {}


class NotSent(Value, frozen=True, gc=False):
    """A look-up proved that the unit is not there. It counts only after the lease end of every attempt in doubt."""

    evidence: dict[str, Any] = {}


class Unresolved(Value, frozen=True, gc=False):
    """A look-up could not tell. Where `retryable` is false, asking again is of no use."""

    detail: str = ""
    retryable: bool = True
    evidence: dict[str, Any] = {}


Verdict = Sent | NotSent | Unresolved
