"""`intents explain`: why an intent has its status, what happens next and when, what would unblock it.

The answer comes from `ledger.steps.next_step`, the very function that the dispatcher acts on; here it is only worded.
"""

from __future__ import annotations

from typing import Any, Final

import click
import msgspec

from ..adapters import calls
from ..ledger.errors import InvalidConfig
from ..ledger.fold import HeldStream
from ..ledger.intent import OPEN_ENDED, IntentState, Status
from ..ledger.steps import Step, Terms, Wait, next_step
from ..ledger.store.history import Recorded
from ..ledger.store.owner import Owner
from ..ledger.store.store import Store
from ..projections.as_of import Cut, history
from ..projections.intents import Row
from ..projections.log import recorded_at
from ..projections.search import before
from ..projections.workers import not_stopped
from . import opening
from .base import Command, setup
from .config import Config
from .filters import as_of, the_cut, the_intent
from .history import steps
from .output import emit, full, paint, plural, say, when
from .words import RULES, Said, unblock, what_next, why

LANE_SHOWN: Final = 10
WORKERS_LOOKED_AT: Final = 200


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """What the JSON form prints. Times are UTC milliseconds; rules are named with their words."""

    intent: str
    status: Status
    hold: str | None
    why: Said
    events: tuple[dict[str, Any], ...]
    """Those that made the status: version, type, at."""
    next: Said
    step: str
    at: int | None
    """When the next step is due; None where it is due now, or only something outside can move it."""
    unblock: tuple[str, ...]
    before: tuple[dict[str, Any], ...] | None
    """The first that are before it in its lane: id, status, held until (None: until it ends). None: not known of the
    past."""
    before_more: bool
    """Whether more are before it than `before` has."""
    holds_lane_until: int | None
    terms: Terms
    notes: tuple[str, ...]


@click.command(cls=Command)
@click.argument("intent", metavar="ID")
@as_of
def explain(intent: str, as_of: str | None, clock: str) -> None:
    """Why an intent has its status, by which rule and events; what happens next and when; what would unblock it.

    The next step is the one that a worker would take now, with the terms of the configured channel; with --as-of the
    one that it would have taken then.

    JSON: one object with intent, status, hold, why, events, next, step, at, unblock, before, before_more,
    holds_lane_until, terms, notes.

    \b
    Examples:
      msgledger intents explain 0193a7
      msgledger intents explain 0193a7 --as-of 48213
    """
    config = opening.config()
    cut = the_cut(as_of, clock)
    with opening.reading(config) as store:
        stream = the_intent(store, intent)
        state, events = _status_events(stream, store.read_sync(history, stream, cut))
        terms, notes = _terms(store, config, state)
        said = (
            _explain(store, state, terms, notes, events)
            if cut is None
            else _explain_past(store, state, terms, notes, events, cut)
        )
    if setup().json:
        emit({**full(said), "why": _ruled(said.why), "next": _ruled(said.next)})
    else:
        _print(said)


def _status_events(stream: str, history: list[Recorded]) -> tuple[IntentState, list[dict[str, Any]]]:
    """The state, and the events that changed the status last. Raises `HeldStream`."""
    state: IntentState | None = None
    found: list[dict[str, Any]] = []
    try:
        for step in steps(stream, history):
            state = step.after
            moved = step.before is None or state is None or step.before.status is not state.status
            if moved or "hold" in step.changes:
                at = getattr(step.event.event, "at", step.event.recorded_at)
                found.append({"version": step.event.version, "type": step.event.topic, "at": at})
    except HeldStream as error:
        raise HeldStream(f"{error}: the stream is left alone; a later msgledger may read it") from None
    if state is None:
        raise HeldStream(f"stream {stream} is no intent")
    return state, found[-2:]


def _terms(store: Store, config: Config, state: IntentState) -> tuple[Terms, list[str]]:
    """The terms of the intent's channel as configured, or the default ones with a note."""
    notes: list[str] = []
    unknown = Terms(clock_bound_ms=0, config=state.config or "")
    for name in config.channels:
        if name != state.channel:
            continue
        try:
            channel = config.channel(name)
        except InvalidConfig as error:
            notes.append(f"the default terms are used, because the channel cannot be made: {error}")
            return unknown, notes
        if channel.account == state.account:
            return calls.terms(channel, store.pseudonyms, clock_bound_ms=0), notes
    notes.append(
        f"the default terms are used, because channel {state.channel}/{state.account} is not configured here: "
        "a gateway that knows the channel may do otherwise"
    )
    return unknown, notes


def _explain(
    store: Store, state: IntentState, terms: Terms, notes: list[str], events: list[dict[str, Any]]
) -> Explanation:
    now = opening.now_ms()
    owner = Owner(store.path)
    current = state.current
    step = next_step(
        state,
        terms,
        now,
        lease_over=now >= (state.lease_ends_at or 0),
        owner_dead=current is not None and owner.is_dead(current.owner),
        callback_gone=state.callback is not None and owner.is_dead(state.callback),
    )
    ahead = [] if state.terminal else store.read_sync(before, state.lane, state.position, now, LANE_SHOWN + 1)
    alive = [one for one in store.read_sync(not_stopped, WORKERS_LOOKED_AT) if owner.is_alive(one.id)]
    if not state.terminal and not alive:
        notes.append(
            "no worker of this host is alive: nothing happens until a gateway or `msgledger worker run` starts"
        )
    return _explanation(state, terms, notes, events, now, step, ahead, tuple(unblock(state, step)))


def _explain_past(
    store: Store, state: IntentState, terms: Terms, notes: list[str], events: list[dict[str, Any]], cut: Cut
) -> Explanation:
    """As of then. What only the present knows, the lane and who lives, is left out."""
    then = store.read_sync(recorded_at, cut.value) if cut.by == "position" else cut.value
    step = next_step(state, terms, then, lease_over=then >= (state.lease_ends_at or 0), owner_dead=False)
    notes = [f"{cut}: who was before it in its lane and which workers lived is not said", *notes]
    return _explanation(state, terms, notes, events, then, step, None, ())


def _explanation(
    state: IntentState,
    terms: Terms,
    notes: list[str],
    events: list[dict[str, Any]],
    now: int,
    step: Step,
    ahead: list[Row] | None,
    ways: tuple[str, ...],
) -> Explanation:
    until = state.holds_lane()
    return Explanation(
        intent=state.id,
        status=state.status,
        hold=state.hold,
        why=why(state),
        events=tuple(events),
        next=_next(state, step, terms, now, ahead or []),
        step=type(step).__name__,
        at=step.until if isinstance(step, Wait) else None,
        unblock=ways,
        before=None
        if ahead is None
        else tuple(
            {"id": row.id, "status": row.status, "until": None if row.holds_lane == OPEN_ENDED else row.holds_lane}
            for row in ahead[:LANE_SHOWN]
        ),
        before_more=ahead is not None and len(ahead) > LANE_SHOWN,
        holds_lane_until=None if until == OPEN_ENDED else until,
        terms=terms,
        notes=tuple(notes),
    )


def _next(state: IntentState, step: Step, terms: Terms, now: int, ahead: list[Row]) -> Said:
    said = what_next(state, step, terms, now)
    if ahead and state.status is Status.PENDING:
        many = len(ahead) > LANE_SHOWN
        who = f"more than {LANE_SHOWN} messages, the first is {ahead[0].id}" if many else ahead[-1].id
        return Said(f"it waits for its turn behind {who}; then: {said.text}", ("R7", *said.rules))
    return said


def _ruled(said: Said) -> dict[str, Any]:
    return {"text": said.text, "rules": {rule: RULES[rule] for rule in said.rules}}


def _print(said: Explanation) -> None:
    click.echo(f"intent {said.intent}  {paint(said.status.value)}" + (f"  held ({said.hold})" if said.hold else ""))
    _part("why", said.why)
    for event in said.events:
        say(f"      event {event['version']} {event['type']} at {when(event['at'])}")
    _part("next", said.next)
    if said.before:
        count = f"more than {LANE_SHOWN} messages" if said.before_more else plural(len(said.before), "message")
        say(f"  lane   {count} before it{', the first' if said.before_more else ''}:")
        for row in said.before:
            until = "until it ends" if row["until"] is None else f"until {when(row['until'])}"
            say(f"      {row['id']}  {row['status']}, in the way {until}")
    elif said.before is not None and said.status not in (Status.SENT, Status.FAILED, Status.CANCELLED):
        say("  lane   nobody is before it")
    for way in said.unblock:
        say(f"  do     {way}")
    for note in said.notes:
        say(f"  note   {note}")


def _part(name: str, said: Said) -> None:
    say(f"  {name:<6} {said.text}")
    for rule in dict.fromkeys(said.rules):
        say(f"      rule {rule}: {RULES[rule]}")
