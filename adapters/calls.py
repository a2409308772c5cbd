"""Asking a channel: what it promises, what it would send, what came of sending it. Every answer, and everything that it
may raise, ends here in one of the closed outcomes, so that nothing above needs to know how channels fail.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any, Final
from uuid import UUID

import msgspec

from ..ledger import events as e
from ..ledger.codec import as_json, to_json
from ..ledger.errors import InvalidConfig, SurfaceMismatch
from ..ledger.limits import ERROR_TEXT_MAX_CHARS, RAW_ANSWER_MAX_BYTES
from ..ledger.message import ReceiptPart, RenderedBatch, RenderedUnit
from ..ledger.outcome import (
    Accepted,
    Cause,
    FailureClass,
    NotSent,
    Outcome,
    Rejected,
    Sent,
    Unknown,
    Unresolved,
    Verdict,
)
from ..ledger.pseudonym import Pseudonyms
from ..ledger.steps import Terms
from .deadline import within
from .surface import SURFACE, Channel, SendContext, is_channel, reconciles

_PROVIDER_KEY: Final = re.compile(r"([0-9a-f]{32})[0-9a-f]{4,}(?:c[0-9]+)?")
_ANSWERS: Final = (Accepted, Rejected, Unknown)
_VERDICTS: Final = (Sent, NotSent, Unresolved)
_read_accepted: Final = msgspec.json.Decoder(Accepted).decode


def check(channel: object) -> None:
    """Refuses a channel that cannot be worked with, before anything is opened.

    Raises `SurfaceMismatch` for another major surface version, `InvalidConfig` for a declaration without its function.
    """
    name = getattr(channel, "name", type(channel).__name__)
    surface = getattr(channel, "surface", None)
    if surface != SURFACE:
        raise SurfaceMismatch(
            f"channel {name!r} speaks version {surface} of the channel surface, this msgledger speaks {SURFACE}:"
            " install a version of the channel that fits"
        )
    if not is_channel(channel):
        raise InvalidConfig(f"channel {name!r} is not complete: it needs all that adapters.surface.Channel names")
    declared = channel.capabilities.reconcile is not None
    if declared != reconciles(channel):
        what = "declares a look-up but has no reconcile()" if declared else "has reconcile() but declares no look-up"
        raise InvalidConfig(f"channel {name!r} {what}: an unknown outcome would be judged wrongly")


def terms(channel: Channel, pseudonyms: Pseudonyms, clock_bound_ms: int) -> Terms:
    """What decisions need to know of the channel. A deduplication window without evidence is none."""
    able = channel.capabilities
    key, look = able.idempotency, able.reconcile
    return Terms(
        deadline_ms=int(able.deadline_s * 1000),
        settle_ms=int(able.settle_s * 1000),
        clock_bound_ms=clock_bound_ms,
        window_ms=None if key is None or key.evidence == "unproven" else int(key.window_s * 1000),
        reconciles=look is not None,
        proves_absence=look is not None and look.can_prove_absence,
        credential=pseudonyms.digest("credential", channel.name, channel.account, channel.credential),
        config=pseudonyms.digest("config", channel.name, channel.account, channel.credential, channel.config),
    )


def provider_key(intent: str, plan: int, unit: int, copy: int = 0) -> str:
    """What the platform deduplicates by: one for each unit of each plan, and another for each marked copy."""
    key = f"{intent.replace('-', '')}{plan:02x}{unit:02x}"
    return f"{key}c{copy}" if copy else key


def intent_of(key: str) -> str | None:
    """The intent that such a key was made for; None for what is no key of ours."""
    found = _PROVIDER_KEY.fullmatch(key)
    return None if found is None else str(UUID(found[1]))


def outgoing(batch: RenderedBatch, unit: int, marked: bool) -> RenderedUnit:
    """The unit as it goes out: the marked variant where the attempt is a copy."""
    if marked:
        return next((copy for copy in batch.marked if copy.index == unit), batch.units[unit])
    return batch.units[unit]


def unit_try(channel: Channel, unit: RenderedUnit, context: SendContext, pseudonyms: Pseudonyms) -> e.UnitTry:
    """The key and the keyed digest of the bytes that would go out for this unit."""
    request_bytes: Callable[[RenderedUnit, SendContext], bytes] | None = getattr(channel, "request_bytes", None)
    raw = to_json(unit) if request_bytes is None else request_bytes(unit, context)
    return e.UnitTry(context.unit, context.provider_key, pseudonyms.mac("request", context.provider_key, raw))


async def deliver(channel: Channel, unit: RenderedUnit, context: SendContext) -> Outcome:
    """One request, one outcome. Only cancellation gets through."""
    try:
        with within(context.deadline_s):
            answer = await channel.deliver(unit, context)
    except (Rejected, Unknown) as raised:
        answer = raised
    except TimeoutError:
        return Unknown(Cause.TIMEOUT, f"no answer within {context.deadline_s:.3f} s")
    except Exception as raised:
        return Unknown(Cause.RAISED, f"{type(raised).__name__}: {raised}"[:ERROR_TEXT_MAX_CHARS])
    if not isinstance(answer, _ANSWERS):  # pyright: ignore[reportUnnecessaryIsInstance]
        return Unknown(Cause.MALFORMED, f"the channel answered with {type(answer).__name__}")
    answer = writable(answer)
    if isinstance(answer, Rejected) and _knew_our_key(channel, context, answer):
        answer = Accepted(duplicate=True, status=answer.status, request_id=answer.request_id)
    if isinstance(answer, Accepted):
        return identified(channel, answer)
    return answer


def _knew_our_key(channel: Channel, context: SendContext, answer: Rejected) -> bool:
    """A conflict on the key that we chose says that the message is there: it is never read as a rejection."""
    key = channel.capabilities.idempotency
    conflicts = key is not None and key.on_duplicate != "returns_receipt"
    return conflicts and answer.failure is FailureClass.CONFLICT and context.action == "send"


def identified(channel: Channel, answer: Accepted) -> Accepted | Unknown:
    """Without an id it proves nothing, unless the channel gives none, or knew our key and cannot be asked."""
    if answer.platform_id is not None or any(part.platform_id is not None for part in answer.parts):
        return answer
    if channel.capabilities.receipt == "none":
        return answer
    if answer.duplicate and channel.capabilities.reconcile is None:
        return answer
    return Unknown(Cause.NO_IDENTITY, "the platform gave no message id", status=answer.status)


async def look_up(channel: Channel, unit: RenderedUnit, context: SendContext) -> Verdict:
    """Ask the platform what became of a unit. A look-up that fails is unresolved and may be repeated."""
    if not reconciles(channel):
        return Unresolved("the channel has no look-up", retryable=False)
    try:
        async with asyncio.timeout(max(0.0, context.deadline_s)):
            answer = await channel.reconcile(unit, context)
    except Exception as raised:
        return Unresolved(_text(f"{type(raised).__name__}: {raised}"[:ERROR_TEXT_MAX_CHARS]))
    if not isinstance(answer, _VERDICTS):  # pyright: ignore[reportUnnecessaryIsInstance]
        return Unresolved(f"the look-up answered with {type(answer).__name__}")
    evidence = answer.evidence if _is_json(answer.evidence) else {}
    if isinstance(answer, Sent):
        return Sent(_accepted(answer.receipt), evidence)
    return (
        NotSent(evidence)
        if isinstance(answer, NotSent)
        else Unresolved(_text(answer.detail), answer.retryable, evidence)
    )


def writable(answer: Outcome) -> Outcome:
    """The same in values that can be written down and read again: what the platform did is never lost over a detail of
    how it was told."""
    if isinstance(answer, Accepted):
        return _accepted(answer)
    if isinstance(answer, Rejected):
        answer.code = _text_or_none(answer.code)
        answer.retry_after_s = _seconds(answer.retry_after_s)
    answer.detail = _text(answer.detail)
    answer.request_id = _text_or_none(answer.request_id)
    answer.status = _number(answer.status)
    return answer


def _accepted(answer: Accepted) -> Accepted:
    try:
        body = as_json(answer)
        if len(body) <= RAW_ANSWER_MAX_BYTES:
            return _read_accepted(body)
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
        pass
    return Accepted(
        _text_or_none(answer.platform_id),
        tuple(_part(index, part) for index, part in enumerate(answer.parts)),
        duplicate=bool(answer.duplicate),
        status=_number(answer.status),
        request_id=_text_or_none(answer.request_id),
        sent_at=_number(answer.sent_at),
    )


def _part(index: int, part: Any) -> ReceiptPart:
    if not isinstance(part, ReceiptPart):
        return ReceiptPart(index, _text_or_none(part))
    said = {name: getattr(part, name) for name in ReceiptPart.__struct_fields__ if name not in ("index", "kind")}
    return ReceiptPart(index, kind=part.kind, **{name: _text_or_none(value) for name, value in said.items()})


def _is_json(value: object) -> bool:
    try:
        return len(as_json(value)) <= RAW_ANSWER_MAX_BYTES
    except (TypeError, ValueError, RecursionError):
        return False


def _text(value: object) -> str:
    return str(value).encode("utf-8", "replace").decode()


def _text_or_none(value: object) -> str | None:
    return None if value is None else _text(value)


def _number(value: object) -> int | None:
    return value if isinstance(value, int) else None


def _seconds(value: object) -> float | None:
    return value if isinstance(value, int | float) else None
