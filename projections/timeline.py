"""One intent's history as a picture's content: what happened in which row, and when. A fold of one stream, no table.

Rows are the intent, each attempt, and the receipts; marks are events. How it is drawn is not decided here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec
from msgspec.structs import replace

from ..ledger import events as e
from ..ledger.codec import Opaque

Kind = Literal["begin", "accepted", "failed", "unknown", "look", "committed", "ended", "note"]


class Mark(msgspec.Struct, frozen=True):
    """One event. `number` is its version in the stream, `at` UTC milliseconds."""

    number: int
    at: int
    kind: Kind
    text: str


class Row(msgspec.Struct, frozen=True):
    """`ends_at` is None while it goes on. `lease_ends_at`: until then a request of the attempt may still be applied."""

    name: str
    begins_at: int
    ends_at: int | None = None
    lease_ends_at: int | None = None
    owner: str | None = None
    marks: tuple[Mark, ...] = ()


class Timeline(msgspec.Struct, frozen=True):
    """`rows[0]` is the intent, then the attempts in order, then the receipts where there are any."""

    intent: str
    begins_at: int
    ends_at: int
    rows: tuple[Row, ...]

    @property
    def marks(self) -> list[Mark]:
        return sorted((mark for row in self.rows for mark in row.marks), key=lambda mark: mark.number)


def timeline(stream: str, history: Iterable[tuple[e.Event | Opaque, int, int]]) -> Timeline:
    """From (event, position, recorded_at) in the order of versions; at least one."""
    intent: Row | None = None
    attempts: dict[int, Row] = {}
    left: dict[int, set[int]] = {}
    """The units that each attempt has not settled yet: an acceptance ends it only where none is left."""
    receipts: Row | None = None
    times: list[int] = []
    for number, (event, _, recorded_at) in enumerate(history):
        at = recorded_at if isinstance(event, Opaque) else event.at
        times.append(at)
        mark = Mark(number, at, *said(event))
        if intent is None:
            intent = Row("intent", at)
        match event:
            case e.AttemptStarted():
                ends = at + event.deadline_ms + event.margin_ms
                row = Row(f"attempt {event.attempt}", at, None, ends, event.owner, (mark,))
                attempts[event.attempt] = row
                left[event.attempt] = {one.unit for one in event.units}
            case e.UnitAccepted() | e.AttemptFailed() | e.OutcomeUnknown():
                row = attempts.get(event.attempt)
                if row is None:
                    intent = _with(intent, mark)
                else:
                    left[event.attempt].discard(event.unit)
                    goes_on = isinstance(event, e.UnitAccepted) and left[event.attempt]
                    attempts[event.attempt] = replace(_with(row, mark), ends_at=row.ends_at if goes_on else at)
                if isinstance(event, e.UnitAccepted):
                    receipts = _receipt(receipts, event, mark)
            case e.OutcomeReconciled() if event.attempts and event.attempts[-1] in attempts:
                last = event.attempts[-1]
                attempts[last] = _with(attempts[last], mark)
                if event.verdict == "sent":
                    receipts = _receipt(receipts, event, mark)
            case e.IntentCommitted() | e.IntentFailed() | e.IntentCancelled():
                intent = replace(_with(intent, mark), ends_at=at)
                attempts |= {n: replace(row, ends_at=at) for n, row in attempts.items() if row.ends_at is None}
            case _:
                intent = _with(intent, mark)
    assert intent is not None, "a stream has an event"
    rows = (intent, *(attempts[number] for number in sorted(attempts)))
    return Timeline(stream, min(times), max(times), rows if receipts is None else (*rows, receipts))


def _with(row: Row, mark: Mark) -> Row:
    return replace(row, marks=(*row.marks, mark))


def _receipt(row: Row | None, event: e.UnitAccepted | e.OutcomeReconciled, mark: Mark) -> Row:
    """The ids stand beside the mark of the event that brought them; the number is the event's own."""
    ids = ", ".join(part.id or "no id" for part in event.parts) or "no id"
    told = replace(mark, text=f"unit {event.unit}: {ids}")
    return _with(Row("receipts", mark.at) if row is None else row, told)


def said(event: e.Event | Opaque) -> tuple[Kind, str]:
    """What the event says, in a few words."""
    match event:
        case Opaque():
            return "note", f"{event.topic}, which this version cannot read"
        case e.IntentRecorded():
            return "begin", "recorded"
        case e.AttemptStarted():
            licence = "" if event.licence == "none" else f", licence {event.licence}"
            return (
                "begin",
                f"attempt {event.attempt} started ({event.why}{licence}{', marked' if event.marked else ''})",
            )
        case e.UnitAccepted():
            known = ", known already" if event.duplicate else ""
            return "accepted", f"attempt {event.attempt}: unit {event.unit} accepted{known}"
        case e.AttemptFailed():
            return "failed", f"attempt {event.attempt}: not sent, {event.failure.value} ({event.proof.value})"
        case e.OutcomeUnknown():
            return "unknown", f"attempt {event.attempt}: outcome unknown ({event.cause.value})"
        case e.OutcomeReconciled():
            who = "a person says" if event.by.startswith("operator:") else "look-up:"
            return "look", f"{who} {event.verdict}{', held' if event.hold else ''}"
        case e.IntentCommitted():
            return "committed", "committed: sent"
        case e.IntentFailed():
            return "ended", f"failed: {event.reason}"
        case e.IntentCancelled():
            return "ended", f"cancelled: {event.reason}"
        case e.IntentHeld():
            return "note", "released" if event.hold is None else f"held: {event.hold}"
        case e.BatchPlanned():
            return "note", f"plan {event.plan} replaces a refused one"
        case e.DeliveryReported():
            return "note", f"the platform reports {event.state}"
        case _:
            return "note", type(event).__name__
