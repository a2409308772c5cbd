"""`msgledger sessions`: which conversations there are, what was said in them, and a person who ends or begins one."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any, Final

import click
import msgspec

from ..ledger import session
from ..ledger.errors import NotPossible
from ..ledger.events import Event
from ..ledger.fold import HeldStream, fold
from ..ledger.limits import HISTORY_MAX
from ..ledger.session import SessionState
from ..ledger.store.apply import change_sync
from ..ledger.store.calendar import session_id
from ..ledger.store.store import Store
from ..projections.as_of import Cut
from ..projections.conversation import PAGE_STREAMS, Entry, bounds, page
from ..projections.query import ROWS_MAX
from ..projections.sessions import SessionRow
from ..projections.sessions_search import STATUSES, SessionQuery, count, counted, find, named
from . import opening
from .base import Group, setup
from .deciding import decisive, each
from .filters import CANDIDATES_MAX, POSITION, as_of, the_cut
from .intents import as_dict, details
from .output import emit, line, paint, say, table, when

LIMIT: Final = 50


@click.group(cls=Group)
def sessions() -> None:
    """Conversations: list, show, read, suspend, resume, begin anew.

    \b
    Example:
      msgledger sessions list --status resume_pending
    """


@sessions.command("list")
@click.option("--status", multiple=True, type=click.Choice(STATUSES))
@click.option("--channel", multiple=True, metavar="NAME")
@click.option("--session", multiple=True, metavar="KEY", help="The raw session key; kept as a digest.")
@click.option("--limit", type=click.IntRange(1, ROWS_MAX), default=LIMIT, show_default=True)
@click.option("--before", type=POSITION, metavar="POSITION", help="Only those opened before: the next page.")
@click.option("--after", type=POSITION, metavar="POSITION", help="Only those opened after.")
@click.option("-i", "--ids", is_flag=True, help="Ids only, one a line.")
@click.option("-c", "--count", "counted_only", is_flag=True, help="Only how many there are.")
def list_(
    status: tuple[str, ...],
    channel: tuple[str, ...],
    session: tuple[str, ...],
    limit: int,
    before: int | None,
    after: int | None,
    ids: bool,
    counted_only: bool,
) -> None:
    """Sessions, the newest first. Keys are shown with pseudonyms where chats and people stand.

    JSON: a line for each, with the columns of the view `sessions`; times are UTC milliseconds. With -c it is
    {"count": n}. -i prints session ids.

    \b
    Examples:
      msgledger sessions list --channel telegram
      msgledger sessions list --session 'agent:main:telegram:dm:99' -i
    """
    with opening.reading(opening.config()) as store:
        keys = tuple(map(store.pseudonyms.session, session))
        query = SessionQuery(status=status, channel=channel, key=keys, before=before, after=after)
        if counted_only:
            total = store.read_sync(count, query)
            emit({"count": total}) if setup().json else say(str(total))
            return
        found = store.read_sync(find, query, limit + 1)
    rows = found[:limit]
    if ids:
        for row in rows:
            say(row.session_id)
    elif setup().json:
        for row in rows:
            emit(row)
    else:
        table(("session", "status", "key", "began", "why"), (_cells(row) for row in rows))
    if len(found) > limit:
        click.echo(f"more: --before {rows[-1].position}, or raise --limit", err=True)
    if not rows and not (ids or setup().json):
        click.echo("no session matches", err=True)


def _cells(row: SessionRow) -> list[object]:
    return [row.session_id, status_of(row), row.shown, when(row.begun_at), row.reason or ""]


def status_of(row: SessionRow | SessionState) -> str:
    if row.suspended is not None:
        return "suspended"
    return "active" if row.resume is None else "resume_pending"


def the_session(store: Store, name: str) -> str:
    """The one session that is meant: by its key, its session id or its stream's id, the ids by any unique prefix."""
    wanted = name.strip()
    if not wanted.isascii() and any("\ud800" <= char <= "\udfff" for char in wanted):
        raise click.UsageError(f"no session is {wanted[:80]!a}: its bytes are no text")
    found = store.read_sync(named, wanted, store.pseudonyms.session(wanted), CANDIDATES_MAX + 1) if wanted else []
    if not found:
        raise click.UsageError(
            f"no session is {wanted[:80]!r} in {store.path}: give its key, or an id from `sessions list`"
        )
    if len(found) > 1:
        shown = ", ".join(found[:CANDIDATES_MAX]) + (", and more" if len(found) > CANDIDATES_MAX else "")
        raise click.UsageError(f"{wanted[:80]!r} begins several sessions, give more of it: {shown}")
    return found[0]


@sessions.command()
@click.argument("session", metavar="SESSION")
@click.option("--content", is_flag=True, help="Show the key and the source in the open.")
def show(session: str, content: bool) -> None:
    """One session: its key, its session ids with the reasons why each began, what it owes, and every event.

    SESSION is a session id, the id of its stream (both by any unique prefix), or the raw key.

    JSON: {"session", "counts", "events"}.

    \b
    Example:
      msgledger sessions show 20260301_1200
    """
    with opening.reading(opening.config()) as store:
        stream = the_session(store, session)
        events = store.events_of(stream)
        state = _of(fold(stream, ((one.event, one.position, one.recorded_at) for one in events)))
        counts = store.read_sync(counted, state.key)
    if setup().json:
        emit({"session": state, "counts": counts, "events": [as_dict(one, content) for one in events]})
        return
    say(f"session {state.session_id}  {paint(status_of(state))}")
    line("key", state.shown)
    line("stream", stream)
    line("channel", f"{state.channel}, {state.kind}")
    line("suspended", state.suspended)
    line("resume", state.resume)
    line("messages", f"{counts.inbound} in, {counts.intents} out, {counts.owed} owed")
    line("last heard", when(counts.last_at))
    for span in state.spans:
        line("session id", f"{span.session_id}  from position {span.since}, {span.reason or 'the first'}")
    say()
    rows = ((one.version, when(one.recorded_at), one.topic, *_told(one.event, content)) for one in events)
    table(("event", "at", "type", "by", "says"), rows)


def _told(event: object, content: bool) -> tuple[str, str]:
    return (event.by, details(event, content)) if isinstance(event, Event) else ("-", "")


@sessions.command()
@click.argument("session", metavar="SESSION")
@click.option("--content", is_flag=True, help="Show the words. Without it: who and when, and how long they are.")
@click.option("--all", "everything", is_flag=True, help="Everything under the key, also before resets.")
@click.option("--limit", type=click.IntRange(1, HISTORY_MAX), default=LIMIT, show_default=True)
@click.option("--before", type=POSITION, metavar="POSITION", help="Only what is older: the page before.")
@as_of
def history(
    session: str, content: bool, everything: bool, limit: int, before: int | None, as_of: str | None, clock: str
) -> None:
    """The conversation: what came in and what was sent, oldest first, as it stands after edits and deletions.

    JSON: a line for each entry: {"position", "at", "role", "inbound", "intent", "edited", "deleted", "erased", ...} and
    with --content "text", "message" and "sender".

    \b
    Examples:
      msgledger sessions history 20260301_1200 --content
      msgledger sessions history 'agent:main:telegram:dm:99' --as-of yesterday
    """
    cut = the_cut(as_of, clock)
    with opening.reading(opening.config()) as store:
        stream = the_session(store, session)
        entries, more = _entries(store, session.strip(), stream, limit, before, cut, everything)
    for entry in entries if setup().json else ():
        shown: dict[str, Any] = {name: getattr(entry, name) for name in entry.__struct_fields__}
        emit(shown if content else {name: shown[name] for name in shown if name not in ("text", "message", "sender")})
    if not setup().json:
        table(("position", "at", "role", "says"), (_says(entry, content) for entry in entries))
    if more is not None:
        click.echo(f"more: --before {more}, or raise --limit", err=True)
    if not entries and not setup().json:
        click.echo("nothing was said in it", err=True)


def _entries(
    store: Store, name: str, stream: str, limit: int, before: int | None, cut: Cut | None, everything: bool
) -> tuple[list[Entry], int | None]:
    """The newest entries, and where the page before them ends."""
    ids = [span.session_id for span in _of(store.state_of(stream)).spans]
    meant = [name] if name in ids else [id for id in ids if id.startswith(name)]
    if len(meant) > 1 and not everything:
        raise click.UsageError(
            f"{name[:80]!r} begins several session ids, give more of it or --all: {', '.join(meant[:CANDIDATES_MAX])}"
            + (", and more" if len(meant) > CANDIDATES_MAX else "")
        )
    key, low, high = store.read_sync(bounds, meant[0] if meant else stream, "", before, cut, everything)
    found: list[Entry] = []
    while len(found) < limit:
        part = store.read_sync(page, key, low, high, min(PAGE_STREAMS, limit - len(found)), cut)
        found = [*part.entries, *found]
        if part.before is None:
            return found, None
        high = part.before
    return found, high


def _says(entry: Entry, content: bool) -> list[object]:
    marks = [name for name in ("edited", "deleted", "erased") if getattr(entry, name)]
    words = entry.text if content else f"({len(entry.text)} characters)"
    return [entry.position, when(entry.at), entry.role, " ".join([words, *(f"[{mark}]" for mark in marks)])]


class Done(msgspec.Struct, frozen=True):
    """What a decision led to. `did`: suspended, resumed, reset, already_..., or not_possible."""

    session: str
    did: str
    session_id: str
    why: str | None = None


@sessions.command()
@decisive("names")
def suspend(names: tuple[str, ...], reason: str, yes: bool) -> None:
    """No automatic resume: the next message begins anew, unless you resume the session before.

    JSON: a line for each: {"session", "did", "session_id", "why"}; did is suspended or already_suspended.

    \b
    Example:
      msgledger sessions suspend 20260301_1200 --reason "it loops"
    """

    def already(state: SessionState) -> bool:
        return state.suspended is not None

    _each(names, "suspended", lambda state, at, by: session.suspended(state, reason, at=at, by=by), already, yes)


@sessions.command()
@decisive("names")
def resume(names: tuple[str, ...], reason: str, yes: bool) -> None:
    """Lift the suspension: the next message continues the conversation. Held turns: `inbound retry`.

    JSON: a line for each: {"session", "did", "session_id", "why"}; did is resumed or already_active.

    \b
    Example:
      msgledger sessions resume 20260301_1200 --reason "the model is mended"
    """

    def already(state: SessionState) -> bool:
        return state.suspended is None

    _each(names, "resumed", lambda state, at, by: session.resumed(state, reason, at=at, by=by), already, yes)


@sessions.command()
@decisive("names")
def reset(names: tuple[str, ...], reason: str, yes: bool) -> None:
    """Begin anew now, with a new session id: what was said stays in the ledger, under the old one.

    JSON: a line for each: {"session", "did", "session_id", "why"}; did is reset.

    \b
    Example:
      msgledger sessions reset 20260301_1200 --reason "the user asked for it"
    """

    def decide(state: SessionState, at: int, by: str) -> Event:
        return session.reset(state, session_id(at, secrets.token_hex(4)), reason, at=at, by=by)

    _each(names, "reset", decide, lambda state: False, yes)


Decide = Callable[[SessionState, int, str], Event]


def _each(names: tuple[str, ...], did: str, decide: Decide, already: Callable[[SessionState], bool], yes: bool) -> None:
    def one(store: Store, stream: str) -> Done:
        state = _of(store.state_of(stream))
        if already(state):
            return Done(stream, f"already_{status_of(state)}", state.session_id)
        now, by = opening.now_ms(), opening.actor()
        after = _of(change_sync(store, stream, lambda state: decide(_of(state), now, by)))
        return Done(stream, did, after.session_id)

    def refused(stream: str, error: NotPossible) -> Done:
        return Done(stream, "not_possible", "", str(error))

    each(names, the_session, one, refused, _tell, noun="session", will=f"will be {did}", yes=yes)


def _of(state: object) -> SessionState:
    if not isinstance(state, SessionState):
        raise HeldStream("the stream is no session")
    return state


def _tell(done: Done) -> None:
    if setup().json:
        emit(done)
        return
    say(f"{done.session}  {done.did}" + (f": {done.why}" if done.why else f", session id {done.session_id}"))
