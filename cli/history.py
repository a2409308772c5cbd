"""`intents replay` and `intents timeline`: one history again, event by event or as a picture. Nothing is sent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import click
import msgspec

from ..ledger import codec, fold
from ..ledger.fold import HeldStream, State
from ..ledger.intent import IntentState
from ..ledger.store.history import Recorded
from ..projections import timeline as picture
from ..projections.as_of import history
from . import opening
from .base import Command, setup
from .filters import as_of, moment_ms, the_cut, the_intent
from .intents import as_dict, details
from .output import emit, full, paint, safe, say, unicode, when, width
from .render import draw

NOISE: Final = ("head", "updated_at", "status")
"""Fields that every event changes, and the one that is said apart."""


class Step(msgspec.Struct, frozen=True):
    """One event and what it changed: field to (before, after)."""

    event: Recorded
    before: IntentState | None
    after: IntentState | None
    changes: dict[str, tuple[Any, Any]]


@click.command(cls=Command)
@click.argument("intent", metavar="ID")
@click.option("--to", metavar="N|TIME", help="Up to an event's number, or a time: 2h, yesterday, ISO 8601.")
@click.option("--content", is_flag=True, help="Show text, target and raw answers too.")
def replay(intent: str, to: str | None, content: bool) -> None:
    """Go through an intent's history again: what came, what it changed, status before and after. Nothing is sent.

    JSON: a line for each event: {"version", "position", "recorded_at", "type", "data", "before", "after", "changes"};
    changes maps a field of the state to [before, after].

    \b
    Examples:
      msgledger intents replay 0193a7
      msgledger intents replay 0193a7 --to 3
      msgledger intents replay 0193a7 --to 2026-03-01T09:00
    """
    with opening.reading(opening.config()) as store:
        stream = the_intent(store, intent)
        events = store.events_of(stream)
    kept = _until(events, to)
    try:
        for step in steps(stream, kept):
            _as_json(step, content) if setup().json else _print(step, content)
    except HeldStream as error:
        raise HeldStream(f"{error}: the replay ends before this event; a later msgledger may read it") from None
    if len(kept) < len(events) and not setup().json:
        say(f"({len(events) - len(kept)} later events are left out)")


def steps(stream: str, events: list[Recorded]) -> Iterator[Step]:
    """Each event with the state around it. Raises `HeldStream` at the first that cannot be read."""
    state: State | None = None
    for one in events:
        before = state if isinstance(state, IntentState) else None
        state = fold.evolve(state, stream, one.event, one.position, one.recorded_at)
        after = state if isinstance(state, IntentState) else None
        yield Step(one, before, after, changes(before, after))


def changes(before: IntentState | None, after: IntentState | None) -> dict[str, tuple[Any, Any]]:
    """The fields that differ, without those that every event changes. The first event changes nothing: it begins."""
    if before is None or after is None:
        return {}
    pairs = {name: (getattr(before, name), getattr(after, name)) for name in after.__struct_fields__}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1] and name not in NOISE}


def _until(events: list[Recorded], to: str | None) -> list[Recorded]:
    if to is None:
        return events
    if to.isdecimal():
        return [one for one in events if one.version <= int(to)]
    limit = moment_ms(to, opening.now_ms())
    return [one for one in events if one.recorded_at <= limit]


def _status(state: IntentState | None) -> str:
    if state is None:
        return "-"
    return state.status.value + (f" (held: {state.hold})" if state.hold is not None else "")


def _as_json(step: Step, content: bool) -> None:
    emit(
        {
            **as_dict(step.event, content),
            "before": None if step.before is None else step.before.status,
            "after": None if step.after is None else step.after.status,
            "changes": {name: list(pair) for name, pair in step.changes.items()},
        }
    )


def _print(step: Step, content: bool) -> None:
    one = step.event
    assert not isinstance(one.event, codec.Opaque)
    before, after = _status(step.before), _status(step.after)
    moved = before if before == after else f"{before} -> {after}"
    click.echo(
        f"{one.version:>3}  {when(one.event.at)}  {safe(one.topic)}  {paint(moved) if before == after else moved}"
    )
    said = details(one.event, content)
    say(f"     by {one.event.by}")
    if said:
        say(f"     {said}")
    for name, (old, new) in step.changes.items():
        say(f"     {name}: {_short(name, old)} -> {_short(name, new)}")


def _short(name: str, value: Any) -> str:
    """A field of the state for a person."""
    if value is None or value in ((), {}):
        return "none"
    if name == "current":
        return f"attempt {value.number}"
    if name == "doubt":
        return ", ".join(f"attempt {attempt.number} (unit {attempt.unit})" for attempt in value)
    if name == "receipts":
        return ", ".join(f"unit {unit}: {'/'.join(p.id or 'no id' for p in got.parts)}" for unit, got in value.items())
    if name in ("due_at", "accepted_at"):
        return when(value)
    if name == "ended_mask":
        return bin(value)
    plain = full(value)
    return plain if isinstance(plain, str) else msgspec.json.encode(plain).decode()


@click.command(cls=Command)
@click.argument("intent", metavar="ID")
@click.option("--ascii", "plain", is_flag=True, help="Draw with ASCII signs only.")
@as_of
def timeline(intent: str, plain: bool, as_of: str | None, clock: str) -> None:
    """Draw an intent's life: the intent, each attempt and the receipts against time, long gaps cut short.

    `=` a request in flight, `.` its lease still running while it is in doubt, `~` a gap that is cut short.

    JSON: {"intent", "status", "begins_at", "ends_at", "rows": [{"name", "begins_at", "ends_at", "lease_ends_at",
    "owner", "marks": [{"number", "at", "kind", "text"}]}]}; times are UTC milliseconds.

    \b
    Examples:
      msgledger intents timeline 0193a7
      msgledger intents timeline 0193a7 --as-of yesterday --clock happened
    """
    cut = the_cut(as_of, clock)
    with opening.reading(opening.config()) as store:
        stream = the_intent(store, intent)
        events = store.read_sync(history, stream, cut)
    line = picture.timeline(stream, ((one.event, one.position, one.recorded_at) for one in events))
    try:
        state = fold.fold(stream, ((one.event, one.position, one.recorded_at) for one in events))
        status = state.status.value if isinstance(state, IntentState) else "held"
    except HeldStream:
        status = "held"
    if setup().json:
        emit({"status": status, **full(line)})
        return
    if cut is not None:
        status = f"{status} ({cut})"
    for text in draw(line, status=status, width=width(), fancy=unicode() and not plain):
        say(text)
