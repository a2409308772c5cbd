"""The same filters everywhere, ids by any unique prefix, and times as people say them. All times are UTC."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar, cast

import click

from ..ledger.message import Target
from ..ledger.store.store import Store
from ..projections.as_of import Cut
from ..projections.query import CLOSED, LARGEST, Filters, Query, asked, position_of
from ..projections.search import accounts_used, starting_with
from . import opening

F = TypeVar("F", bound=Callable[..., Any])

POSITION: Final = click.IntRange(0, LARGEST)
CANDIDATES_MAX: Final = 10
UNITS_S: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_SPAN: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])")
_PREFIX: Final = re.compile(r"[0-9a-f-]{1,36}")
TIMES_HELP: Final = "2h, 3d, today, yesterday, or ISO 8601"


def span_s(text: str) -> float:
    """Seconds of `90s`, `2h`, `3d` or a bare number of seconds. Raises `UsageError`."""
    found = _SPAN.fullmatch(text.strip())
    try:
        seconds = float(text) if found is None else float(found[1]) * UNITS_S[found[2]]
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


def which(command: F) -> F:
    """The options that say which intents; given several times, any of the values. They become keywords of `query`."""
    return _with(
        command,
        click.option("--status", multiple=True, type=click.Choice(CLOSED["status"])),
        click.option("--channel", multiple=True, metavar="NAME"),
        click.option("--account", multiple=True, metavar="NAME"),
        click.option(
            "--target", multiple=True, metavar="ID", help="The platform's own id of the chat; kept as a digest."
        ),
        click.option("--space", metavar="ID", help="The workspace that --target belongs to."),
        click.option("--session", multiple=True, metavar="KEY", help="The raw session key."),
        click.option("--key", multiple=True, metavar="KEY", help="The raw idempotency key."),
        click.option("--of", multiple=True, metavar="ID", help="What edits, deletes or sends that intent again."),
        click.option("--inbound", multiple=True, metavar="ID", help="What answers that inbound message."),
        click.option("--platform-id", multiple=True, metavar="ID", help="A message id that the platform gave."),
        click.option(
            "--failure",
            multiple=True,
            type=click.Choice(CLOSED["failure"]),
            help="The class of the last failure, also of one that was overcome.",
        ),
        click.option("--hold", multiple=True, type=click.Choice(CLOSED["hold"])),
    )


def filters(command: F) -> F:
    """The same, and when they were recorded."""
    return which(
        _with(
            command,
            click.option("--owed", is_flag=True, help="Only what has not ended, oldest first."),
            click.option("--since", metavar="TIME", help=f"Recorded at or after: {TIMES_HELP}."),
            click.option("--until", metavar="TIME", help="Recorded at or before."),
            click.option("--older-than", metavar="DURATION", help="Recorded longer ago than 90s, 2h, 3d."),
        )
    )


def as_of(command: F) -> F:
    """The options that say when in the past. They become the arguments of `the_cut`."""
    return _with(
        command,
        click.option("--as-of", metavar="TIME|POSITION", help=f"As it stood then: {TIMES_HELP}, or a position."),
        click.option(
            "--clock",
            type=click.Choice(["known", "happened"]),
            default="known",
            show_default=True,
            help="What a time of --as-of means: what the ledger knew then, or what had happened by then.",
        ),
    )


def _with(command: F, *options: Callable[[F], F]) -> F:
    for option in reversed(options):
        command = option(command)
    return command


def the_cut(text: str | None, clock: str) -> Cut | None:
    """Until where the history counts. A bare number is a position."""
    if text is None:
        return None
    if text.isdecimal():
        return Cut("position", position_of("--as-of", int(text)))
    return Cut("recorded_at" if clock == "known" else "at", moment_ms(text, opening.now_ms()))


def query(
    store: Store,
    *,
    owed: bool = False,
    before: int | None = None,
    after: int | None = None,
    target: tuple[str, ...] = (),
    space: str | None = None,
    since: str | None = None,
    until: str | None = None,
    older_than: str | None = None,
    **words: tuple[str, ...],
) -> Query:
    """The filters as Python takes them: chats with their channels, times resolved."""
    now = opening.now_ms()
    wanted = cast("Filters", {name: values for name, values in words.items() if values})
    if target:
        wanted["target"] = _targets(store, target, space, words.get("channel", ()))
    elif space is not None:
        raise click.UsageError("--space goes with --target: alone it names no chat")
    if since is not None:
        wanted["since"] = moment_ms(since, now)
    if until is not None:
        wanted["until"] = moment_ms(until, now)
    if older_than is not None:
        wanted["older_than"] = span_s(older_than)
    return asked(wanted, store.pseudonyms, now, owed=owed, before=before, after=after)


def _targets(store: Store, ids: tuple[str, ...], space: str | None, channels: tuple[str, ...]) -> list[Target]:
    """A chat is known by its channel too: each that is named, else each that ever had an intent."""
    if not all(ids):
        raise click.UsageError("--target is empty: give the platform's id of the chat")
    names = channels or tuple(dict.fromkeys(name for name, _ in store.read_sync(accounts_used))) or ("",)
    return [Target("direct", name, id, space=space) for name in names for id in ids]


def the_intent(store: Store, prefix: str) -> str:
    """The one intent whose id begins so. Raises `UsageError` for none, and for several with the candidates."""
    return one_of(store, prefix, starting_with, "intent", "intents list -i")


def one_of(store: Store, prefix: str, starting: Callable[..., list[str]], noun: str, look: str) -> str:
    """The one stream whose id begins so, among those that `starting(cursor, prefix, limit)` finds."""
    wanted = prefix.strip().lower()
    if not _PREFIX.fullmatch(wanted):
        raise click.UsageError(f"{prefix!r} is no {noun} id: give the id, or its first digits, from `{look}`")
    found = store.read_sync(starting, wanted, CANDIDATES_MAX + 1)
    if not found:
        raise click.UsageError(f"no {noun} begins with {wanted!r} in {store.path}: look with `{look}`")
    if len(found) == 1 or found[0] == wanted:
        return found[0]
    shown = ", ".join(found[:CANDIDATES_MAX]) + (", and more" if len(found) > CANDIDATES_MAX else "")
    raise click.UsageError(f"{wanted!r} begins several {noun}s, give more digits: {shown}")
