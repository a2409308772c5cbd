"""`msgledger intents`: what is there, and one intent with every event. Reads only; the other verbs live beside this."""

from __future__ import annotations

from typing import Any, Final

import click
import msgspec

from ..ledger import codec, fold
from ..ledger import events as e
from ..ledger.dossier import Dossier, compile_dossier, receipt_of
from ..ledger.store.history import Recorded
from ..projections.as_of import Cut, history
from ..projections.intents import Row
from ..projections.query import ROWS_MAX
from ..projections.search import count, search
from . import opening
from .base import Group, setup
from .filters import POSITION, as_of, filters, query, the_cut, the_intent
from .output import emit, full, line, paint, plural, safe, say, table, when

LIMIT: Final = 50
VERBS: Final = {
    "tail": "tail:tail",
    "replay": "history:replay",
    "timeline": "history:timeline",
    "explain": "explain:explain",
    "cancel": "verdicts:cancel",
    "resolve": "verdicts:resolve",
}
CONTENT: Final = "content"


@click.group(cls=Group, lazy=VERBS)
def intents() -> None:
    """What became of each message: list, show, follow, replay, draw, explain, and decide.

    \b
    Example:
      msgledger intents list --owed
    """


@intents.command("list")
@filters
@click.option("--limit", type=click.IntRange(1, ROWS_MAX), default=LIMIT, show_default=True)
@click.option("--before", type=POSITION, metavar="POSITION", help="Only those recorded before: the next page.")
@click.option(
    "--after", type=POSITION, metavar="POSITION", help="Only those recorded after: with --owed the next page."
)
@click.option("-i", "--ids", is_flag=True, help="Ids only, one a line.")
@click.option("-c", "--count", "counted", is_flag=True, help="Only how many there are.")
def list_(limit: int, ids: bool, counted: bool, **wanted: Any) -> None:
    """Intents, newest first; with --owed the oldest first: by their position, the order in which they were recorded.

    JSON: a line for each, with the columns of the view `intents` (docs: projections/intents.py); times are UTC
    milliseconds. With -c it is {"count": n}. No content is in either. The next page is --before (with --owed --after)
    the position of the last line.

    \b
    Examples:
      msgledger intents list --status unknown_after_send --older-than 1h
      msgledger intents list --channel matrix --target '!room:example.org' --since yesterday -i
      msgledger intents list --platform-id 1007
      msgledger intents list --limit 100 --before 48213
    """
    with opening.reading(opening.config()) as store:
        asked = query(store, **wanted)
        if counted:
            total = store.read_sync(count, asked)
            emit({"count": total}) if setup().json else say(str(total))
            return
        found = store.read_sync(search, asked, limit + 1)
    rows = found[:limit]
    if setup().json and not ids:
        for row in rows:
            emit(row)
        return
    if ids:
        for row in rows:
            say(row.id)
    else:
        table(
            ("id", "status", "channel", "attempts", "recorded", "platform id", "note"),
            ([*_cells(row), note_of(row)] for row in rows),
        )
    if len(found) > limit:
        click.echo(f"more: --{'after' if asked.owed else 'before'} {rows[-1].position}, or raise --limit", err=True)
    if not rows and not ids:
        click.echo("no intent matches", err=True)


def _cells(row: Row) -> list[object]:
    where = f"{row.channel}/{row.account}"
    return [row.id, row.status, where, row.attempts, when(row.recorded_at), row.primary_platform_id or "-"]


def note_of(row: Row) -> str:
    """What a person should notice, in a few words."""
    parts: list[str] = []
    if row.hold is not None:
        parts.append(f"held ({row.hold})")
    if row.status in ("failed", "unknown_after_send") and row.reason:
        parts.append(row.reason)
    if row.failure is not None and row.status != "sent":
        parts.append(row.failure)
    if row.duplicates:
        parts.append(plural(row.duplicates, "marked copy", "marked copies"))
    if row.contradictions:
        parts.append(plural(row.contradictions, "contradiction"))
    return ", ".join(parts)


@intents.command()
@click.argument("intent", metavar="ID")
@click.option("--content", is_flag=True, help="Show text, target and raw answers too.")
@as_of
def show(intent: str, content: bool, as_of: str | None, clock: str) -> None:
    """One intent: where it stands, which of the five claims are proven, and every event.

    JSON: {"intent", "claims", "receipt", "events", "held", and with --content "message" and "key"}. An event has
    version, position, recorded_at, type, data; its content is left out without --content.

    \b
    Examples:
      msgledger intents show 0193a7
      msgledger intents show 0193a7 --content --json
      msgledger intents show 0193a7 --as-of 2026-03-01T09:00
    """
    cut = the_cut(as_of, clock)
    with opening.reading(opening.config()) as store:
        stream = the_intent(store, intent)
        events = store.read_sync(history, stream, cut)
    found = readable(stream, events)
    dossier = found if isinstance(found, Dossier) else None
    why = None if isinstance(found, Dossier) else found
    if setup().json:
        emit(_as_json(dossier, events, why, content))
    else:
        _print(stream, dossier, events, content, cut)
    if why is not None:
        raise fold.HeldStream(why)


def readable(stream: str, events: list[Recorded]) -> Dossier | str:
    """The intent with its content, or why it is held."""
    try:
        return compile_dossier(stream, ((one.event, one.position, one.recorded_at) for one in events))
    except fold.HeldStream as error:
        return f"{error}: this stream is left alone, everything else goes on; a later msgledger may read it"


def claims(events: list[Recorded]) -> dict[str, dict[str, Any] | None]:
    """The five claims, each with the event that proves it, or None: not proven."""
    proofs: dict[str, dict[str, Any] | None] = dict.fromkeys(("intended", "attempted", "accepted", "delivered", "read"))
    for one in events:
        match one.event:
            case e.IntentRecorded():
                claim = "intended"
            case e.AttemptStarted():
                claim = "attempted"
            case e.UnitAccepted() | e.OutcomeReconciled(verdict="sent"):
                claim = "accepted"
            case e.DeliveryReported(state="delivered" | "read" as state):
                claim = state
            case _:
                continue
        if proofs[claim] is None:
            assert isinstance(one.event, e.Event)
            proofs[claim] = {"version": one.version, "type": one.topic, "at": one.event.at, "by": one.event.by}
    return proofs


def as_dict(one: Recorded, content: bool) -> dict[str, Any]:
    """An event for JSON."""
    if isinstance(one.event, codec.Opaque):
        data: Any = {"unreadable": one.event.error}
    else:
        data = full(one.event)
        if not content:
            data.pop(CONTENT, None)
    return {
        "version": one.version,
        "position": one.position,
        "recorded_at": one.recorded_at,
        "type": one.topic,
        "data": data,
    }


def _as_json(dossier: Dossier | None, events: list[Recorded], why: str | None, content: bool) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "intent": None if dossier is None else dossier.state,
        "claims": claims(events),
        "receipt": None if dossier is None else receipt_of(dossier.state, dossier.details, dossier.sent_at),
        "events": [as_dict(one, content) for one in events],
        "held": why,
    }
    if content and dossier is not None:
        shown |= {"message": dossier.message, "key": dossier.key}
    return shown


def _print(stream: str, dossier: Dossier | None, events: list[Recorded], content: bool, cut: Cut | None) -> None:
    then = "" if cut is None else f"  ({cut})"
    click.echo(f"intent {stream}  {paint('held' if dossier is None else dossier.state.status.value)}{then}")
    if dossier is not None:
        state = dossier.state
        receipt = receipt_of(state, dossier.details, dossier.sent_at)
        line("channel", f"{state.channel}/{state.account}, {state.action}, {state.relation}")
        line("attempts", f"{state.attempts} ({state.charged} of {state.policy.max_attempts} count)")
        line("expires", when(state.policy.expires_at))
        line("hold", state.hold)
        line("reason", state.reason)
        line("failure", state.failure and state.failure.value)
        line("of", state.of)
        if receipt is not None:
            ids = ", ".join(receipt.platform_ids) or "the channel gives no ids"
            line("receipt", f"{ids}, sent at {when(receipt.sent_at)}")
        for unit in state.units:
            if unit.media is not None:
                line("file", f"{unit.size} bytes, {unit.media}{'' if unit.kept else ', no copy is kept'}")
        line("copies", state.copies or None)
        line("contradictions", state.contradictions or None)
        if content and dossier.message is not None:
            line("key", dossier.key)
            line("target", f"{dossier.message.target.kind} {dossier.message.target.id}")
            line("thread", dossier.message.target.thread)
            for unit in dossier.units:
                name = None if unit.media is None else f"{unit.kind} {unit.media.name}"
                line(f"unit {unit.index}", name or (unit.text if unit.text is not None else unit.kind))
    say()
    for claim, proof in claims(events).items():
        line(claim, "not proven" if proof is None else f"{when(proof['at'])}, event {proof['version']} {proof['type']}")
    say()
    table(("event", "at", "type", "by", "says"), (_event_cells(one, content) for one in events))


def _event_cells(one: Recorded, content: bool) -> list[object]:
    event = one.event
    if isinstance(event, codec.Opaque):
        return [one.version, when(one.recorded_at), one.topic, "-", event.error]
    return [one.version, when(event.at), one.topic, event.by, details(event, content)]


HIDDEN: Final = frozenset(
    {"at", "by", "clock", "key", "event_key", "content_mac", "policy", "lane", "place", "session", "sender"}
    | {"boot_ms", "config", "credential", "owner", "units"}
)
"""Fields that are in the columns already, or are digests and settings that say little to a person."""


def details(event: e.Event, content: bool) -> str:
    """The facts of an event in one line, without those that every event has."""
    shown: dict[str, Any] = msgspec.to_builtins(event)
    kept = {name: value for name, value in shown.items() if name not in HIDDEN and (content or name != CONTENT)}
    return safe("  ".join(f"{name}={_short(value)}" for name, value in kept.items()))


def _short(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
