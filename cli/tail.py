"""`msgledger intents tail`: what happens, as it happens, in whatever process. Reads only, and outlives the writers."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import click

from ..ledger import fold
from ..ledger.codec import Opaque, is_foreign
from ..ledger.fold import HeldStream, State
from ..ledger.intent import IntentState
from ..ledger.store.history import Recorded
from ..ledger.store.store import Store
from ..projections import log
from ..projections.query import matches
from ..projections.timeline import said
from . import opening
from .base import Command, setup
from .filters import POSITION, TIMES_HELP, moment_ms, query, which
from .intents import as_dict
from .output import emit, say, when

LOOK_EVERY_S: Final = 0.1
STATES_KEPT: Final = 10_000
"""So many intents are remembered between their events; another one is folded again."""


class Seen(NamedTuple):
    """One event with the status before and after it; `state` is None where the stream cannot be read."""

    event: Recorded
    before: str | None
    state: IntentState | None


@click.command(cls=Command)
@which
@click.option("--after", type=POSITION, metavar="POSITION", help="Begin behind this position; 0 is the beginning.")
@click.option("--since", metavar="TIME", help=f"Begin with what was recorded then or later: {TIMES_HELP}.")
@click.option("--no-follow", is_flag=True, help="End at what is there, and wait for nothing.")
def tail(after: int | None, since: str | None, no_follow: bool, **wanted: Any) -> None:
    """Follow what happens to intents, in all processes: a line for each event, with the status before and after it.

    It begins with what happens from now on, or where --after or --since says, and ends on Ctrl-C with exit 0. Filters
    are asked about the intent as it is after the event. The first column is the position: to go on later, give the last
    one to --after.

    JSON: a line for each event: {"position", "recorded_at", "intent", "version", "type", "data", "before", "after"};
    before and after are statuses. No content is in it.

    \b
    Examples:
      msgledger intents tail
      msgledger intents tail --status failed --status unknown_after_send --since 1h
      msgledger intents tail --after 48213 --json
    """
    if after is not None and since is not None:
        raise click.UsageError("--after and --since both say where to begin: give one")
    try:
        with opening.reading(opening.config()) as store:
            asked = query(store, **wanted)
            channels: set[str] = set()
            for seen in follow(store, _start(store, after, since), wait=not no_follow):
                if wanted["target"] and seen.state is not None and seen.state.channel not in channels:
                    channels.add(seen.state.channel)  # it may be new since, and a chat is known by its channel too
                    asked = query(store, **wanted)
                if seen.state is None or matches(asked, seen.state):
                    _as_json(seen) if setup().json else _print(seen)
    except KeyboardInterrupt:
        return  # how following ends


def _start(store: Store, after: int | None, since: str | None) -> int:
    """The position that comes before the first event that is shown."""
    if after is not None:
        return after
    if since is not None:
        return store.read_sync(log.position_at, moment_ms(since, opening.now_ms())) - 1
    return store.head_position()


def follow(store: Store, position: int, *, wait: bool) -> Iterator[Seen]:
    """Every event of an intent beyond a position, in order, without end where it may `wait`."""
    states: OrderedDict[str, State] = OrderedDict()
    while True:
        page = store.read_sync(log.page, position, (), None)
        for one in page.events:
            seen = _seen(store, states, one)
            if seen is not None:
                yield seen
        position = page.reached
        if position == page.head:
            if not wait:
                return
            time.sleep(LOOK_EVERY_S)


def _seen(store: Store, states: OrderedDict[str, State], one: Recorded) -> Seen | None:
    """The event with what it changed; None for a stream that is no intent."""
    state = states.pop(one.stream, None)
    if state is None and one.version > 0:
        state = _folded(store, one)
    before = state.status.value if isinstance(state, IntentState) else None
    if isinstance(one.event, Opaque):
        return None if state is None and is_foreign(one.topic) else Seen(one, before, None)
    try:
        state = fold.evolve(state, one.stream, one.event, one.position, one.recorded_at)
    except HeldStream:
        return Seen(one, before, None)
    states[one.stream] = state
    if len(states) > STATES_KEPT:
        states.popitem(last=False)
    return Seen(one, before, state) if isinstance(state, IntentState) else None


def _folded(store: Store, one: Recorded) -> State | None:
    """The state just before an event."""
    earlier = [event for event in store.events_of(one.stream) if event.version < one.version]
    try:
        return fold.fold(one.stream, ((event.event, event.position, event.recorded_at) for event in earlier))
    except HeldStream:
        return None


def _as_json(seen: Seen) -> None:
    shown = as_dict(seen.event, content=False)
    after = None if seen.state is None else seen.state.status
    emit({"intent": seen.event.stream, **shown, "before": seen.before, "after": after})


def _print(seen: Seen) -> None:
    one = seen.event
    at = one.recorded_at if isinstance(one.event, Opaque) else one.event.at
    after = "held" if seen.state is None else seen.state.status.value
    moved = after if seen.before in (None, after) else f"{seen.before} -> {after}"
    say(f"{one.position:>6}  {when(at)}  {one.stream}  {moved:<29}  {said(one.event)[1]}")
