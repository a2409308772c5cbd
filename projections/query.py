"""What may be asked of the intents: the filters by name, in Python, in SQL and on the command line the same.

A name or value that there is not is refused with the possible ones. Raw ids of chats, sessions and keys are hashed
here, before anything is read; no SQL is made here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final, TypedDict, cast, get_args

import msgspec

from ..ledger.errors import InvalidQuery
from ..ledger.events import Hold
from ..ledger.intent import TERMINAL, IntentState, Status
from ..ledger.message import Target
from ..ledger.outcome import FailureClass
from ..ledger.pseudonym import Pseudonyms

VALUES_MAX: Final = 50
"""The most values of one filter."""
ROWS_MAX: Final = 100_000
"""The most rows of one list; more are iterated over."""
LARGEST: Final = 2**62
"""No position and no time is beyond it, and SQLite can take one more."""
OPEN: Final = tuple(status.value for status in Status if status not in TERMINAL)

Words = str | Iterable[str]
Moment = int | datetime
"""UTC milliseconds, or a `datetime` that knows its zone."""


class Filters(TypedDict, total=False):
    """Values of one filter are alternatives; of several filters each must hold."""

    status: Words
    channel: Words
    account: Words
    target: Target | Iterable[Target]
    """What went to that conversation, its threads included."""
    session: Words
    """The raw session key."""
    failure: Words
    """The class of the last failure, also of one that was overcome."""
    hold: Words
    inbound: Words
    """The inbound message that it answers."""
    of: Words
    """The intent that it edits, deletes or sends again."""
    key: Words
    """The raw idempotency key; of an intent without one its id."""
    platform_id: Words
    since: Moment
    """Recorded then or later."""
    until: Moment
    """Recorded then or before."""
    older_than: float | timedelta
    """Recorded so many seconds ago, or longer."""


NAMES: Final = tuple(sorted(Filters.__annotations__))
CLOSED: Final[dict[str, tuple[str, ...]]] = {
    "status": tuple(status.value for status in Status),
    "failure": tuple(failure.value for failure in FailureClass),
    "hold": get_args(Hold),
}
"""The filters whose values are a closed set."""


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """The same with raw ids hashed and times resolved. An empty tuple asks nothing; times are UTC milliseconds.

    The order is that of `position`, where the ledger recorded the intent: newest first, or with `owed` those not at
    their end, oldest first. `after` and `before` are positions, both left out: where a page ends the next one begins.
    """

    status: tuple[str, ...] = ()
    channel: tuple[str, ...] = ()
    account: tuple[str, ...] = ()
    place: tuple[str, ...] = ()
    session: tuple[str, ...] = ()
    failure: tuple[str, ...] = ()
    hold: tuple[str, ...] = ()
    inbound: tuple[str, ...] = ()
    of: tuple[str, ...] = ()
    key: tuple[str, ...] = ()
    platform_id: tuple[str, ...] = ()
    owed: bool = False
    since: int | None = None
    until: int | None = None
    after: int | None = None
    before: int | None = None

    @property
    def statuses(self) -> tuple[str, ...] | None:
        """Those that can match; None: any. A held one is open."""
        if not (self.owed or self.hold):
            return self.status or None
        return tuple(status for status in OPEN if not self.status or status in self.status)


def asked(
    filters: Mapping[str, Any],
    names: Pseudonyms,
    now: int,
    *,
    owed: bool = False,
    after: int | None = None,
    before: int | None = None,
) -> Query:
    """The query for filters by name. `now`: UTC milliseconds. Raises `InvalidQuery`."""
    unknown = sorted(set(filters) - set(NAMES))
    if unknown:
        raise InvalidQuery(f"no filter {unknown[0]!r}: there are {', '.join(NAMES)}")
    since, until, older = (filters.get(name) for name in ("since", "until", "older_than"))
    ends = None if until is None else moment_ms("until", until)
    if older is not None:
        oldest = now - _span_ms(older)
        ends = oldest if ends is None else min(ends, oldest)
    return Query(
        status=_words("status", filters),
        channel=_words("channel", filters),
        account=_words("account", filters),
        place=tuple(names.place(target) for target in _targets(filters.get("target"))),
        session=tuple(map(names.session, _words("session", filters))),
        failure=_words("failure", filters),
        hold=_words("hold", filters),
        inbound=_words("inbound", filters),
        of=_words("of", filters),
        key=tuple(form for word in _words("key", filters) for form in (names.key(word), word)),
        platform_id=_words("platform_id", filters),
        owed=owed,
        since=None if since is None else moment_ms("since", since),
        until=ends,
        after=None if after is None else position_of("after", after),
        before=None if before is None else position_of("before", before),
    )


def _words(name: str, filters: Mapping[str, Any]) -> tuple[str, ...]:
    """The values of a filter, each once. Given and empty is a mistake: it would ask for nothing, or for everything."""
    given = filters.get(name)
    if given is None:
        return ()
    found = (given,) if isinstance(given, str) else _several(name, given)
    possible = CLOSED.get(name)
    for value in found:
        if not isinstance(value, str):
            raise InvalidQuery(f"{name}: {value!r} is no text")
        if possible is not None and value not in possible:
            raise InvalidQuery(f"{name}: there is no {str(value)!r}, only {', '.join(possible)}")
    return tuple(dict.fromkeys(str(value) for value in cast("tuple[str, ...]", found)))


def _targets(given: Any) -> tuple[Target, ...]:
    if given is None:
        return ()
    found = (given,) if isinstance(given, Target) else _several("target", given)
    for value in found:
        if not isinstance(value, Target):
            raise InvalidQuery(f"target: {value!r} is no Target; give one like Target.group('chat', 'ops')")
    return cast("tuple[Target, ...]", found)


def _several(name: str, given: Any) -> tuple[Any, ...]:
    if isinstance(given, bytes) or not isinstance(given, Iterable):
        raise InvalidQuery(f"{name}: {given!r} is neither one value nor several")
    found = tuple(cast("Iterable[Any]", given))
    if not found:
        raise InvalidQuery(f"{name} has no value: leave it out to ask nothing of it")
    if len(found) > VALUES_MAX:
        raise InvalidQuery(f"{name} has {len(found)} values; the most is {VALUES_MAX}: ask in several parts")
    return found


def moment_ms(name: str, given: Any) -> int:
    """UTC milliseconds. Raises `InvalidQuery`."""
    if isinstance(given, datetime):
        if given.tzinfo is None:
            raise InvalidQuery(f"{name}: {given.isoformat()} has no zone: give one like datetime.now(UTC)")
        return round(given.timestamp() * 1000)
    if isinstance(given, bool) or not isinstance(given, int):
        raise InvalidQuery(f"{name}: {given!r} is no time: give UTC milliseconds or a datetime with a zone")
    if abs(given) > LARGEST:
        raise InvalidQuery(f"{name}: {given} is no time: give UTC milliseconds")
    return given


def _span_ms(given: Any) -> int:
    seconds = given.total_seconds() if isinstance(given, timedelta) else given
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < 1e10:
        raise InvalidQuery(f"older_than: {given!r} is no span: give seconds or a timedelta, not below 0")
    return int(seconds * 1000)


def position_of(name: str, given: Any) -> int:
    """A position. Raises `InvalidQuery`."""
    return number_of(name, given, "position: give the `position` of a row or an event, or 0")


def number_of(name: str, given: Any, what: str) -> int:
    """A number from 0. Raises `InvalidQuery` with `what` it should be."""
    if isinstance(given, bool) or not isinstance(given, int) or not 0 <= given <= LARGEST:
        raise InvalidQuery(f"{name}: {given!r} is no {what}")
    return given


def matches(query: Query, state: IntentState) -> bool:
    """Whether an intent in that state is one of those asked for; its position and times are not looked at."""
    statuses = query.statuses
    if statuses is not None and state.status.value not in statuses:
        return False
    if query.platform_id and not set(query.platform_id) & set(state.visible_ids):
        return False
    asked_of: tuple[tuple[tuple[str, ...], str | None], ...] = (
        (query.channel, state.channel),
        (query.account, state.account),
        (query.place, state.place),
        (query.session, state.session),
        (query.failure, None if state.failure is None else state.failure.value),
        (query.hold, state.hold),
        (query.inbound, state.inbound),
        (query.of, state.of),
        (query.key, state.key),
    )
    return all(not wanted or found in wanted for wanted, found in asked_of)
