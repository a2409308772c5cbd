"""The same filters everywhere, ids by any unique prefix, and times as people say them. All times are UTC."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar

import click

from ..ledger.intent import Status
from ..ledger.message import Target
from ..ledger.outcome import FailureClass
from ..ledger.store.store import Store
from ..projections.search import Query, channels_used, starting_with
from . import opening

F = TypeVar("F", bound=Callable[..., Any])

CANDIDATES_MAX: Final = 10
UNITS_S: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_SPAN: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])")
_PREFIX: Final = re.compile(r"[0-9a-f-]{1,36}")
TIMES_HELP: Final = "2h, 3d, today, yesterday, or ISO 8601"


def span_s(text: str) -> float:
    """Seconds of `90s`, `2h`, `3d` or a bare number of seconds. Raises `UsageError`."""
    found = _SPAN.fullmatch(text.strip())
    if found is not None:
        return float(found[1]) * UNITS_S[found[2]]
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < 1e10:
        raise click.UsageError(f"{text!r} is no duration: give one like 90s, 15m, 2h or 3d")
    return seconds


def moment_ms(text: str, now: int) -> int:
    """UTC milliseconds of `2h` (ago), `today`, `yesterday`, `now`, or ISO 8601 (UTC where it names no zone)."""
    word = text.strip().lower()
    if word == "now":
        return now
    if _SPAN.fullmatch(word):
        return now - int(span_s(word) * 1000)
    midnight = datetime.fromtimestamp(now / 1000, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    if word in ("today", "yesterday"):
        return int((midnight - timedelta(days=word == "yesterday")).timestamp() * 1000)
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        raise click.UsageError(f"{text!r} is no time: give {TIMES_HELP}") from None
    return round((found if found.tzinfo is not None else found.replace(tzinfo=UTC)).timestamp() * 1000)


def filters(command: F) -> F:
    """The options that pick intents. They arrive as the keywords of `query`."""
    for option in reversed(
        [
            click.option("--status", multiple=True, type=click.Choice([status.value for status in Status])),
            click.option("--owed", is_flag=True, help="Only what has not ended, oldest first."),
            click.option("--channel", multiple=True, metavar="NAME"),
            click.option("--account", multiple=True, metavar="NAME"),
            click.option("--target", metavar="ID", help="The platform's own id of the chat; kept as a digest."),
            click.option("--space", metavar="ID", help="The workspace that --target belongs to."),
            click.option("--session", metavar="KEY", help="The raw session key."),
            click.option("--platform-id", metavar="ID", help="A message id that the platform gave."),
            click.option("--failure", multiple=True, type=click.Choice([failure.value for failure in FailureClass])),
            click.option("--since", metavar="TIME", help=f"Recorded at or after: {TIMES_HELP}."),
            click.option("--until", metavar="TIME", help="Recorded at or before."),
            click.option("--older-than", metavar="DURATION", help="Recorded longer ago than 90s, 2h, 3d."),
        ]
    ):
        command = option(command)
    return command


def query(
    store: Store,
    *,
    status: tuple[str, ...] = (),
    owed: bool = False,
    channel: tuple[str, ...] = (),
    account: tuple[str, ...] = (),
    target: str | None = None,
    space: str | None = None,
    session: str | None = None,
    platform_id: str | None = None,
    failure: tuple[str, ...] = (),
    since: str | None = None,
    until: str | None = None,
    older_than: str | None = None,
) -> Query:
    """The filters with raw ids hashed and times resolved."""
    now = opening.now_ms()
    ends = None if until is None else moment_ms(until, now)
    if older_than is not None:
        oldest = now - int(span_s(older_than) * 1000)
        ends = oldest if ends is None else min(ends, oldest)
    places: tuple[str, ...] = ()
    if target is not None:
        if not target:
            raise click.UsageError("--target is empty: give the platform's id of the chat")
        names = channel or tuple(store.read_sync(channels_used)) or ("",)
        places = tuple(store.pseudonyms.place(Target("direct", name, target, space=space)) for name in names)
    elif space is not None:
        raise click.UsageError("--space goes with --target: alone it names no chat")
    return Query(
        status=status,
        channel=channel,
        account=account,
        place=places,
        session=() if session is None else (store.pseudonyms.session(session),),
        failure=failure,
        owed=owed,
        since=None if since is None else moment_ms(since, now),
        until=ends,
        platform_id=platform_id,
    )


def the_intent(store: Store, prefix: str) -> str:
    """The one intent whose id begins so. Raises `UsageError` for none, and for several with the candidates."""
    wanted = prefix.strip().lower()
    if not _PREFIX.fullmatch(wanted):
        raise click.UsageError(f"{prefix!r} is no intent id: give the id, or its first digits, from `intents list -i`")
    found = store.read_sync(starting_with, wanted, CANDIDATES_MAX + 1)
    if not found:
        raise click.UsageError(f"no intent begins with {wanted!r} in {store.path}: look with `intents list -i`")
    if len(found) == 1 or found[0] == wanted:
        return found[0]
    shown = ", ".join(found[:CANDIDATES_MAX]) + (", and more" if len(found) > CANDIDATES_MAX else "")
    raise click.UsageError(f"{wanted!r} begins several intents, give more digits: {shown}")
