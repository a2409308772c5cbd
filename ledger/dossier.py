"""One intent with its content: what is needed to send it again exactly as it was recorded, or to show it."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from . import events as e
from .codec import Opaque
from .fold import HeldStream, evolve
from .intent import IntentState
from .message import Body, Message, Receipt, ReceiptPart, RenderedBatch, RenderedUnit


class Dossier(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """`message` and `batch` are None where the content was erased."""

    state: IntentState
    key: str | None
    message: Message | None
    batch: RenderedBatch | None
    of_platform_id: str | None = None
    of_token: str | None = None
    details: dict[int, tuple[ReceiptPart, ...]] = {}
    """Per unit: what its receipt says beyond the ids."""
    sent_at: int | None = None

    @property
    def units(self) -> tuple[RenderedUnit, ...]:
        return () if self.batch is None else self.batch.units


def compile_dossier(stream: str, history: Iterable[tuple[e.Event | Opaque, int, int]]) -> Dossier:
    """From (event, position, recorded_at) in the order of versions.

    Raises `HeldStream` where an event cannot be read, or the stream is no intent.
    """
    dossier: Dossier | None = None
    for event, position, recorded_at in history:
        state = evolve(None if dossier is None else dossier.state, stream, event, position, recorded_at)
        if not isinstance(state, IntentState):
            raise HeldStream(f"stream {stream} is no intent")
        dossier = _begin(state, event) if dossier is None else _go_on(replace(dossier, state=state), event)
    if dossier is None:
        raise HeldStream(f"stream {stream} has no events")
    return dossier


def _begin(state: IntentState, event: e.Event | Opaque) -> Dossier:
    content = event.content if isinstance(event, e.IntentRecorded) else None
    if content is None:
        return Dossier(state=state, key=None, message=None, batch=None)
    return Dossier(
        state=state,
        key=content.key,
        message=restore(content),
        batch=content.batch,
        of_platform_id=content.of_platform_id,
        of_token=content.of_token,
    )


def _go_on(dossier: Dossier, event: e.Event | Opaque) -> Dossier:
    match event:
        case e.BatchPlanned(content=content) if content is not None:
            return replace(dossier, batch=content.batch)
        case e.UnitAccepted() | e.OutcomeReconciled(verdict="sent"):
            parts = event.content.parts if event.content is not None else ()
            details = {**dossier.details, event.unit: parts} if parts else dossier.details
            return replace(dossier, details=details, sent_at=dossier.sent_at or event.sent_at or event.at)
        case _:
            return dossier


def contents(key: str, message: Message, batch: RenderedBatch) -> e.RecordedContent:
    """What is recorded of a message: its text once."""
    body = message.body
    if body is not None and len(batch.units) == 1:
        unit = batch.units[0]
        if unit.text == body.text and unit.format == body.format:
            return e.RecordedContent(key=key, message=replace(message, body=None), batch=batch, body_in_batch=True)
    return e.RecordedContent(key=key, message=message, batch=batch)


def restore(content: e.RecordedContent) -> Message:
    """The message as it was handed over."""
    if not content.body_in_batch:
        return content.message
    unit = content.batch.units[0]
    return replace(content.message, body=Body(unit.text or "", unit.format))


def receipt_of(
    state: IntentState, details: dict[int, tuple[ReceiptPart, ...]], sent_at: int | None = None
) -> Receipt | None:
    """The merged receipt: every part of every unit in order, one primary; None where nothing was accepted."""
    if not state.receipts:
        return None
    parts: list[ReceiptPart] = []
    for unit, got in sorted(state.receipts.items()):
        known = details.get(unit, ())
        for index, fact in enumerate(got.parts):
            if index < len(known):
                parts.append(replace(known[index], index=len(parts), platform_id=fact.id, kind=fact.kind))
            else:
                parts.append(ReceiptPart(len(parts), fact.id, fact.kind))
    primary = next((part for part in parts if part.platform_id is not None), None)
    return Receipt(
        parts=tuple(parts),
        primary_platform_id=None if primary is None else primary.platform_id,
        sent_at=sent_at if sent_at is not None else state.accepted_at,
        thread=None if primary is None else primary.thread,
        reply_to=None if primary is None else primary.reply_to,
        duplicates=state.copies,
    )
