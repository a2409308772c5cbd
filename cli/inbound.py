"""`msgledger inbound`: what came in, which turns are owed, and a person's decision to run one again or to drop it."""

from __future__ import annotations

from typing import Any, Final

import click
import msgspec

from ..ledger import codec, inbound
from ..ledger import inbound_events as i
from ..ledger.errors import NotPossible
from ..ledger.fold import HeldStream, fold
from ..ledger.inbound import InboundState, InboundStatus
from ..ledger.inbound_events import InboundRecorded
from ..ledger.message import Target
from ..ledger.store.apply import change_sync
from ..ledger.store.history import Recorded
from ..ledger.store.store import Store
from ..projections.as_of import Cut, history
from ..projections.inbound import InboundRow
from ..projections.inbound_search import CLOSED, InboundQuery, channels_heard, count, find, starting_with
from ..projections.query import ROWS_MAX
from . import opening
from .base import Group, setup
from .deciding import decisive, each
from .filters import POSITION, TIMES_HELP, as_of, moment_ms, one_of, span_s, the_cut
from .intents import as_dict, details
from .output import emit, line, paint, say, table, when

LIMIT: Final = 50


@click.group("inbound", cls=Group)
def inbound_() -> None:
    """What came in: list, show, run a turn again, drop one.

    \b
    Example:
      msgledger inbound list --owed
    """


@inbound_.command("list")
@click.option("--status", multiple=True, type=click.Choice(CLOSED["status"]))
@click.option("--hold", multiple=True, type=click.Choice(CLOSED["hold"]))
@click.option("--dropped", multiple=True, type=click.Choice(CLOSED["dropped"]), help="Why no turn began.")
@click.option("--channel", multiple=True, metavar="NAME")
@click.option("--account", multiple=True, metavar="NAME")
@click.option("--session", multiple=True, metavar="KEY", help="The raw session key; kept as a digest.")
@click.option("--target", multiple=True, metavar="ID", help="The platform's own id of the chat; kept as a digest.")
@click.option("--space", metavar="ID", help="The workspace that --target belongs to.")
@click.option("--owed", is_flag=True, help="Only what is to be done or runs, oldest first.")
@click.option("--since", metavar="TIME", help=f"Recorded at or after: {TIMES_HELP}.")
@click.option("--until", metavar="TIME", help="Recorded at or before.")
@click.option("--older-than", metavar="DURATION", help="Recorded longer ago than 90s, 2h, 3d.")
@click.option("--limit", type=click.IntRange(1, ROWS_MAX), default=LIMIT, show_default=True)
@click.option("--before", type=POSITION, metavar="POSITION", help="Only those recorded before: the next page.")
@click.option(
    "--after", type=POSITION, metavar="POSITION", help="Only those recorded after: with --owed the next page."
)
@click.option("-i", "--ids", is_flag=True, help="Ids only, one a line.")
@click.option("-c", "--count", "counted", is_flag=True, help="Only how many there are.")
def list_(limit: int, ids: bool, counted: bool, **wanted: Any) -> None:
    """Inbound messages, newest first; with --owed the oldest first, the order in which they are worked off.

    JSON: a line for each, with the columns of the view `inbound`; times are UTC milliseconds. With -c it is
    {"count": n}. No content is in either.

    \b
    Examples:
      msgledger inbound list --owed
      msgledger inbound list --hold attempts -i
      msgledger inbound list --dropped echo --since yesterday
    """
    with opening.reading(opening.config()) as store:
        query = _query(store, **wanted)
        if counted:
            total = store.read_sync(count, query)
            emit({"count": total}) if setup().json else say(str(total))
            return
        found = store.read_sync(find, query, limit + 1)
    rows = found[:limit]
    if ids:
        for row in rows:
            say(row.id)
    elif setup().json:
        for row in rows:
            emit(row)
    else:
        table(("id", "status", "channel", "runs", "recorded", "message", "note"), (_cells(row) for row in rows))
    if len(found) > limit:
        click.echo(f"more: --{'after' if query.owed else 'before'} {rows[-1].position}, or raise --limit", err=True)
    if not rows and not (ids or setup().json):
        click.echo("no inbound message matches", err=True)


def _cells(row: InboundRow) -> list[object]:
    parts = [
        f"held ({row.hold})" if row.hold is not None else None,
        row.dropped,
        row.error if row.hold is not None or row.status == InboundStatus.PENDING else None,
        "bot" if row.bot else None,
    ]
    note = ", ".join(part for part in parts if part)
    where = f"{row.channel}/{row.account}"
    return [row.id, row.status, where, row.runs, when(row.recorded_at), row.message_id or "-", note]


def _query(
    store: Store,
    *,
    owed: bool,
    before: int | None,
    after: int | None,
    session: tuple[str, ...],
    target: tuple[str, ...],
    space: str | None,
    since: str | None,
    until: str | None,
    older_than: str | None,
    **words: tuple[str, ...],
) -> InboundQuery:
    """The options as they are asked: raw ids hashed, times resolved."""
    now = opening.now_ms()
    ends = None if until is None else moment_ms(until, now)
    if older_than is not None:
        oldest = now - int(span_s(older_than) * 1000)
        ends = oldest if ends is None else min(ends, oldest)
    if space is not None and not target:
        raise click.UsageError("--space goes with --target: alone it names no chat")
    channels = words["channel"] or tuple(store.read_sync(channels_heard)) or ("",)
    chats = [Target("direct", name, id, space=space) for name in channels for id in target]
    return InboundQuery(
        **words,
        session=tuple(map(store.pseudonyms.session, session)),
        place=tuple(map(store.pseudonyms.place, chats)),
        owed=owed,
        since=None if since is None else moment_ms(since, now),
        until=ends,
        before=before,
        after=after,
    )


def the_inbound(store: Store, prefix: str) -> str:
    """The one inbound message whose id begins so. Raises `UsageError`."""
    return one_of(store, prefix, starting_with, "inbound message", "inbound list -i")


@inbound_.command()
@click.argument("inbound", metavar="ID")
@click.option("--content", is_flag=True, help="Show the text, who wrote it and where.")
@as_of
def show(inbound: str, content: bool, as_of: str | None, clock: str) -> None:
    """One inbound message: where its turn stands, what was acknowledged, what it led to, and every event.

    JSON: {"inbound", "events", "held", and with --content "message" and "source"}.

    \b
    Examples:
      msgledger inbound show 0193a7
      msgledger inbound show 0193a7 --content --json
    """
    cut = the_cut(as_of, clock)
    with opening.reading(opening.config()) as store:
        stream = the_inbound(store, inbound)
        events = store.read_sync(history, stream, cut)
    state, why = _readable(stream, events)
    first = events[0].event if events else None
    told = first.content if isinstance(first, InboundRecorded) else None
    if setup().json:
        shown: dict[str, Any] = {"inbound": state, "events": [as_dict(one, content) for one in events], "held": why}
        emit(shown | ({"message": told and told.message, "source": told and told.source} if content else {}))
    else:
        _print(stream, state, events, told if content else None, content, cut)
    if why is not None:
        raise HeldStream(why)


def _readable(stream: str, events: list[Recorded]) -> tuple[InboundState | None, str | None]:
    """The state, or why it is held."""
    try:
        state = fold(stream, ((one.event, one.position, one.recorded_at) for one in events))
    except HeldStream as error:
        return None, f"{error}: this stream is left alone, everything else goes on; a later msgledger may read it"
    assert isinstance(state, InboundState)
    return state, None


def _print(
    stream: str,
    state: InboundState | None,
    events: list[Recorded],
    told: i.InboundContent | None,
    content: bool,
    cut: Cut | None,
) -> None:
    then = "" if cut is None else f"  ({cut})"
    say(f"inbound {stream}  {paint('held' if state is None else state.status.value)}{then}")
    if state is not None:
        line("channel", f"{state.channel}/{state.account}")
        line("message", state.message_id)
        line("runs", state.runs)
        line("hold", state.hold)
        line("dropped", state.drop)
        line("error", state.error)
        line("next run", None if state.due_at is None else when(state.due_at))
        line("policy", state.ack)
        line("acknowledged", "not yet" if state.acknowledged_at is None else when(state.acknowledged_at))
        for intent in state.intents:
            line("intent", intent)
    if told is not None:
        line("event", told.key)
        line("from", told.message.sender)
        line("chat", f"{told.message.target.kind} {told.message.target.id}")
        line("text", told.message.body and told.message.body.text)
    say()
    table(("event", "at", "type", "by", "says"), (_event(one, content) for one in events))


def _event(one: Recorded, content: bool) -> list[object]:
    if isinstance(one.event, codec.Opaque):
        return [one.version, when(one.recorded_at), one.topic, "-", one.event.error]
    return [one.version, when(one.event.at), one.topic, one.event.by, details(one.event, content)]


class Done(msgspec.Struct, frozen=True):
    """What a decision led to. `did`: released, dropped, already_..., or not_possible."""

    inbound: str
    did: str
    status: str
    why: str | None = None


@inbound_.command()
@decisive("inbounds")
def retry(inbounds: tuple[str, ...], reason: str, yes: bool) -> None:
    """Let turns run again that are held or wait: at once, with all their attempts.

    JSON: a line for each: {"inbound", "did", "status", "why"}; did is released, already_due or not_possible.

    \b
    Example:
      msgledger inbound retry 0193a7 --reason "the model is back"
    """

    def one(store: Store, stream: str) -> Done:
        now, by = opening.now_ms(), opening.actor()
        state = _state(store, stream)
        if state.status is InboundStatus.PENDING and state.hold is None and (state.due_at or 0) <= now:
            return Done(stream, "already_due", state.status.value)
        change_sync(store, stream, lambda state: inbound.released(_of(state), reason, at=now, by=by))
        return Done(stream, "released", InboundStatus.PENDING.value)

    _each(inbounds, one, "will run again", yes)


@inbound_.command()
@decisive("inbounds")
def drop(inbounds: tuple[str, ...], reason: str, yes: bool) -> None:
    """Decide that there will be no turn: the message stays in the ledger, and nobody answers it.

    JSON: a line for each: {"inbound", "did", "status", "why"}; did is dropped, already_dropped or not_possible.

    \b
    Example:
      msgledger inbound drop 0193a7 --reason "a test message"
    """

    def one(store: Store, stream: str) -> Done:
        now, by = opening.now_ms(), opening.actor()
        if _state(store, stream).status is InboundStatus.DROPPED:
            return Done(stream, "already_dropped", InboundStatus.DROPPED.value)
        change_sync(store, stream, lambda state: inbound.dropped(_of(state), reason, at=now, by=by))
        return Done(stream, "dropped", InboundStatus.DROPPED.value)

    _each(inbounds, one, "will be dropped", yes)


def _state(store: Store, stream: str) -> InboundState:
    return _of(store.state_of(stream))


def _of(state: object) -> InboundState:
    if not isinstance(state, InboundState):
        raise HeldStream("the stream is no inbound message")
    return state


def _each(inbounds: tuple[str, ...], one: Any, will: str, yes: bool) -> None:
    def refused(stream: str, error: NotPossible) -> Done:
        return Done(stream, "not_possible", "unchanged", str(error))

    each(inbounds, the_inbound, one, refused, _tell, noun="inbound message", will=will, yes=yes)


def _tell(done: Done) -> None:
    if setup().json:
        emit(done)
        return
    why = f": {done.why}" if done.why else "" if done.did == done.status else f", now {done.status}"
    say(f"{done.inbound}  {done.did}{why}")
