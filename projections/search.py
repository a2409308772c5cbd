"""How intents are found: a step reads one page by an index, or over one bounded stretch of the log.

No step scans or sorts what grows with history, because the same reader answers the dispatcher's last looks: a filter
that picks few intents sorts those, one with an index of its own follows it, and for anything else the log of events is
gone through, one stretch a step. Reads only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from msgspec import json
from msgspec.structs import replace

from ..ledger.intent import Status
from ..ledger.store.history import head_position
from ..ledger.store.sql import Cursor
from .intents import ALL_COLUMNS, COLUMNS, Row
from .log import position_at
from .query import OPEN, Query

FEW: Final = 2_000
"""So many candidates may be fetched and sorted in one step."""
ENTRIES_MAX: Final = 5_000
"""So many entries of an index may be looked at in one step where another filter may refuse them all."""
STRETCH_EVENTS: Final = 10_000
"""So many events of the log may be looked at in one step."""

ACCOUNTS_MAX: Final = 100
"""So many accounts of channels are merged in one step; where more match, the log is gone through."""

COLUMNS_ASKED: Final = ("channel", "account", "place", "session", "failure", "hold", "inbound", "of")
"""Filters that are columns of the view. `status` is one too, written out because partial indexes ask for it."""
INDEXED: Final = ("inbound", "of", "failure", "session", "place")
"""Columns with an index of their own in the order of positions, the one that most likely picks fewest first."""
SELDOM: Final = (Status.FAILED.value, Status.CANCELLED.value, Status.UNKNOWN.value)
"""Statuses that an ordinary message never has: their index costs it nothing."""
_OPEN_NOW: Final = (
    "INDEXED BY intents_lane WHERE holds_lane IS NOT NULL",
    "INDEXED BY intents_held WHERE hold IS NOT NULL",
)
"""What is open holds its lane, or is held; some that has ended holds its lane still."""
_ALL_OF_I: Final = ", ".join(f"i.{name}" for name, _ in COLUMNS)
_ACCOUNTS: Final = "SELECT channel, account FROM intents INDEXED BY intents_account"
_NEXT_ACCOUNT: Final = f"{_ACCOUNTS} WHERE channel = ? AND account > ? ORDER BY account LIMIT 1"
_NEXT_CHANNEL: Final = f"{_ACCOUNTS} WHERE channel > ? ORDER BY channel, account LIMIT 1"
_BY_ID: Final = "intents i INDEXED BY sqlite_autoindex_intents_1"
"""By the primary key and nothing else: an index that the planner likes better may list a hundred times as many."""
_LOG: Final = (
    "stored_events e CROSS JOIN intents i ON i.id = e.originator_id AND i.position = e.notification_id"
    " WHERE e.originator_version = 0"
)
"""The intents in the order of the log: the primary key of the events, read in place of an index of our own."""
_HAS_RECEIPT: Final = (
    "EXISTS (SELECT 1 FROM receipts r WHERE r.platform_id IN ({}) AND r.channel = i.channel AND r.account = i.account"
    " AND r.place = i.place AND r.intent = i.id)"
)


class Step(NamedTuple):
    """Rows in their order. `go_on`: the position where the next step begins; None where nothing is left."""

    rows: list[Row]
    go_on: int | None


class _Condition(NamedTuple):
    text: str
    values: tuple[Any, ...] = ()


class _Source(NamedTuple):
    """Where the intents that a filter picks are listed: a term for each of its values."""

    answers: tuple[str, ...]
    terms: tuple[_Condition, ...]
    table: str = "intents"
    id: str = "id"
    ordered: bool = True
    """Whether each term is in the order of positions, and no intent in two of them."""

    def select(self, columns: str, *others: _Condition) -> _Condition:
        """All terms in one list, as far as the other conditions allow."""
        parts = [_both([term, *others]) for term in self.terms]
        text = " UNION ALL ".join(f"SELECT {columns} FROM {self.table} i {part.text}" for part in parts)
        return _Condition(text, tuple(value for part in parts for value in part.values))


def step(cursor: Cursor, query: Query, limit: int) -> Step:
    """The next rows, at most `limit`; fewer do not mean the end, `go_on` does."""
    if query.statuses == ():
        return Step([], None)
    low, high = _range(cursor, query)
    sources = _sources(cursor, query)
    if any(source.terms == () for source in sources):
        return Step([], None)
    ordered = next((source for source in sources if source.ordered), None)
    others = _conditions(query, ordered)
    if ordered is None or len(sources) > 1 or others:
        few = next((source for source in sources if _is_few(cursor, source)), None)
        if few is not None:
            return _from_few(cursor, query, few, low, high, limit)
    if query.statuses is not None and set(query.statuses) <= set(OPEN) and not _ordered_by_status(sources):
        return _from_backlog(cursor, query, low, high, limit)
    if ordered is not None:
        return _from_index(cursor, query, ordered, others, low, high, limit)
    return _from_log(cursor, query, low, high, limit)


def further(query: Query, go_on: int) -> Query:
    """What is asked where a step ended."""
    return replace(query, after=go_on) if query.owed else replace(query, before=go_on)


def search(cursor: Cursor, query: Query, limit: int) -> list[Row]:
    """The same, step by step to the end or the limit: for a reader that nobody else waits for."""
    found: list[Row] = []
    while len(found) < limit:
        rows, go_on = step(cursor, query, limit - len(found))
        found += rows
        if go_on is None:
            break
        query = further(query, go_on)
    return found


def count(cursor: Cursor, query: Query) -> int:
    """How many there are. What no index answers is counted through: a second or more for each million intents."""
    if query.statuses == ():
        return 0
    low, high = _range(cursor, query)
    sources = _sources(cursor, query)
    if any(source.terms == () for source in sources):
        return 0
    few = next((source for source in sources if _is_few(cursor, source)), None)
    ordered = next((source for source in sources if source.ordered), None)
    bounded = any(bound is not None for bound in (query.since, query.until, query.after, query.before))
    within = [_between("i.position", low, high)] if bounded else []
    if few is None and ordered is not None:
        text, values = ordered.select("1", *within, *_conditions(query, ordered))
        return _number(cursor, f"SELECT count(*) FROM ({text})", values)
    source = few or next(iter(sources), None)
    if source is not None:
        among = source.select(f"i.{source.id}")
        text, values = _both([_Condition(f"i.id IN ({among.text})", among.values), *within, *_conditions(query, None)])
        return _number(cursor, f"SELECT count(*) FROM {_BY_ID} WHERE {text}", values)
    if bounded:
        text, values = _both([_between("e.notification_id", low, high), *_conditions(query, None)])
        return _number(cursor, f"SELECT count(*) FROM {_LOG} AND {text}", values)
    text, values = _both(_conditions(query, None) or [_Condition("1")])
    return _number(cursor, f"SELECT count(*) FROM intents i WHERE {text}", values)


# ---- where to look


def _range(cursor: Cursor, query: Query) -> tuple[int, int]:
    """The positions between which the answer lies, both left out."""
    low = query.after or 0
    high = head_position(cursor) + 1
    if query.since is not None:
        low = max(low, position_at(cursor, query.since) - 1)
    if query.before is not None:
        high = min(high, query.before)
    if query.until is not None:
        high = min(high, position_at(cursor, query.until + 1))
    return low, high


def _sources(cursor: Cursor, query: Query) -> list[_Source]:
    """The lists that hold every intent that can match, the one that most likely is shortest first."""
    found: list[_Source] = []
    if query.key:
        terms = _terms("WHERE i.key = ?", query.key) + _terms("WHERE i.id = ? AND i.key IS NULL", query.key)
        found.append(_Source(("key",), terms, ordered=False))
    if query.platform_id:
        terms = _terms("WHERE i.platform_id = ?", query.platform_id)
        found.append(_Source(("platform_id",), terms, table="receipts", id="intent", ordered=False))
    if query.hold:
        found.append(_Source(("hold",), (_Condition(_OPEN_NOW[1]),), ordered=False))
    statuses = query.statuses
    if statuses is not None and Status.SENT.value not in statuses:
        seldom = [status for status in statuses if status in SELDOM]
        terms = tuple(_Condition(f"INDEXED BY intents_seldom WHERE i.status = '{status}'") for status in seldom)
        common = len(seldom) < len(statuses)
        if common:
            terms += tuple(map(_Condition, _OPEN_NOW))
        found.append(_Source(("status",), terms, ordered=not common))
    for name in INDEXED:
        values: tuple[str, ...] = getattr(query, name)
        if values:
            found.append(_Source((name,), _terms(f"INDEXED BY intents_{name} WHERE i.{name} = ?", values)))
    if query.channel or query.account:
        pairs = [
            pair
            for pair in accounts_used(cursor)
            if (not query.channel or pair[0] in query.channel) and (not query.account or pair[1] in query.account)
        ]
        if len(pairs) <= ACCOUNTS_MAX:
            text = "INDEXED BY intents_account WHERE i.channel = ? AND i.account = ?"
            found.append(_Source(("channel", "account"), tuple(_Condition(text, pair) for pair in pairs)))
    return found


def accounts_used(cursor: Cursor) -> list[tuple[str, str]]:
    """(channel, account) of all that ever had an intent, hopping from one to the next."""
    found: list[tuple[str, str]] = []
    pair: tuple[str, str] | None = ("", "")
    while pair is not None:
        following = cursor.execute(_NEXT_ACCOUNT, pair).fetchone() or cursor.execute(_NEXT_CHANNEL, pair[:1]).fetchone()
        pair = None if following is None else (following[0], following[1])
        if pair is not None:
            found.append(pair)
    return found


def _terms(text: str, values: Sequence[str]) -> tuple[_Condition, ...]:
    return tuple(_Condition(text, (value,)) for value in values)


def _conditions(query: Query, answered: _Source | None) -> list[_Condition]:
    """What a row `i` must be, beyond what its source says."""
    found: list[_Condition] = []
    for name in COLUMNS_ASKED:
        values: tuple[str, ...] = getattr(query, name)
        if values and (answered is None or name not in answered.answers):
            found.append(_Condition(f"i.{name} IN ({_marks(values)})", values))
    if query.key:
        found.append(_Condition(f"coalesce(i.key, i.id) IN ({_marks(query.key)})", query.key))
    if query.platform_id:
        found.append(_Condition(_HAS_RECEIPT.format(_marks(query.platform_id)), query.platform_id))
    statuses = query.statuses
    if statuses is not None and (answered is None or "status" not in answered.answers):
        any_of = " OR ".join(f"i.status = '{status}'" for status in statuses)
        found.append(_Condition(f"({any_of})"))
    return found


def _marks(values: Sequence[str]) -> str:
    return ", ".join("?" * len(values))


def _both(parts: Sequence[_Condition]) -> _Condition:
    values = tuple(value for part in parts for value in part.values)
    return _Condition(" AND ".join(part.text for part in parts), values)


def _between(column: str, low: int, high: int) -> _Condition:
    return _Condition(f"{column} > ? AND {column} < ?", (low, high))


def _number(cursor: Cursor, text: str, values: Sequence[Any]) -> int:
    return cursor.execute(text, values).get


# ---- how to look


def _is_few(cursor: Cursor, source: _Source) -> bool:
    text, values = source.select("1")
    return _number(cursor, f"SELECT count(*) FROM ({text} LIMIT {FEW + 1})", values) <= FEW


def _from_few(cursor: Cursor, query: Query, source: _Source, low: int, high: int, limit: int) -> Step:
    among = source.select(f"i.{source.id}")
    text, values = _both([_between("i.position", low, high), *_conditions(query, None)])
    found = cursor.execute(
        f"SELECT {ALL_COLUMNS} FROM {_BY_ID} WHERE i.id IN ({among.text} LIMIT {FEW}) AND {text}"
        f" ORDER BY i.position {_way(query)} LIMIT ?",
        (*among.values, *values, limit),
    )
    rows = [Row(*row) for row in found]
    return Step(rows, rows[-1].position if len(rows) == limit else None)


def _from_index(
    cursor: Cursor, query: Query, source: _Source, others: list[_Condition], low: int, high: int, limit: int
) -> Step:
    """Along an index: SQLite merges the terms and sorts nothing. Where other filters may refuse what is listed, only
    so far as one step may go."""
    order = f"ORDER BY position {_way(query)} LIMIT"
    ends: int | None = None
    if others:
        text, values = source.select("position", _between("i.position", low, high))
        ends = cursor.execute(f"{text} {order} 1 OFFSET {ENTRIES_MAX - 1}", values).get
        if ends is not None:
            low, high = (low, ends + 1) if query.owed else (ends - 1, high)
    text, values = source.select(ALL_COLUMNS, _between("i.position", low, high), *others)
    rows = [Row(*row) for row in cursor.execute(f"{text} {order} ?", (*values, limit))]
    return Step(rows, rows[-1].position if len(rows) == limit else ends)


def _ordered_by_status(sources: list[_Source]) -> bool:
    return any(source.ordered and "status" in source.answers for source in sources)


def _from_backlog(cursor: Cursor, query: Query, low: int, high: int, limit: int) -> Step:
    """Of very many that are open: they stand close together in the log, and where they do not they are sought out."""
    found = _from_log(cursor, query, low, high, limit)
    if found.rows or found.go_on is None:
        return found
    low, high = (found.go_on, high) if query.owed else (low, found.go_on)
    return _from_open(cursor, query, low, high, limit)


def _from_open(cursor: Cursor, query: Query, low: int, high: int, limit: int) -> Step:
    """One pass over what is owed, however long the history, keeps as many as one step may fetch."""
    lane, held = _OPEN_NOW
    bounds = _between("i.position", low, high)
    text, values = _Source(
        ("status",), (_both([_Condition(lane), bounds]), _both([_Condition(f"{held} AND holds_lane IS NULL"), bounds]))
    ).select("i.id, i.position")
    found = cursor.execute(f"{text} ORDER BY position {_way(query)} LIMIT {ENTRIES_MAX}", values).fetchall()
    among = json.encode([id for id, _ in found]).decode()
    text, values = _both(_conditions(query, None))
    rows = [
        Row(*row)
        for row in cursor.execute(
            f"SELECT {ALL_COLUMNS} FROM {_BY_ID} WHERE i.id IN (SELECT value FROM json_each(?) LIMIT {ENTRIES_MAX})"
            f" AND {text} ORDER BY i.position {_way(query)} LIMIT ?",
            (among, *values, limit),
        )
    ]
    ends = found[-1][1] if len(found) == ENTRIES_MAX else None
    return Step(rows, rows[-1].position if len(rows) == limit else ends)


def _from_log(cursor: Cursor, query: Query, low: int, high: int, limit: int) -> Step:
    """Over one stretch of the log, in which each intent stands at the position of its first event."""
    if query.owed:
        last = min(high, low + 1 + STRETCH_EVENTS)
        low, high, ends = low, last, None if last == high else last - 1
    else:
        first = max(low, high - 1 - STRETCH_EVENTS)
        low, high, ends = first, high, None if first == low else first + 1
    text, values = _both([_between("e.notification_id", low, high), *_conditions(query, None)])
    found = cursor.execute(
        f"SELECT {_ALL_OF_I} FROM {_LOG} AND {text} ORDER BY e.notification_id {_way(query)} LIMIT ?",
        (*values, limit),
    )
    rows = [Row(*row) for row in found]
    if len(rows) == limit:
        return Step(rows, rows[-1].position)
    return Step(rows, ends)


def _way(query: Query) -> str:
    return "ASC" if query.owed else "DESC"


# ---- other questions


def starting_with(cursor: Cursor, prefix: str, limit: int) -> list[str]:
    """Ids that begin so, in their order."""
    rows = cursor.execute(
        "SELECT id FROM intents WHERE id >= ? AND id < ? ORDER BY id LIMIT ?", (prefix, prefix + "\U0010ffff", limit)
    )
    return [row[0] for row in rows]


def before(cursor: Cursor, lane: str, position: int, now: int, limit: int) -> list[Row]:
    """What must be out of the way first: earlier intents that hold the lane at `now`, oldest first."""
    rows = cursor.execute(
        f"SELECT {ALL_COLUMNS} FROM intents WHERE lane = ? AND holds_lane IS NOT NULL AND holds_lane > ?"
        " AND position < ? ORDER BY position LIMIT ?",
        (lane, now, position, limit),
    )
    return [Row(*row) for row in rows]


def in_flight(cursor: Cursor) -> list[tuple[str, str]]:
    """(intent, owner) of every attempt in flight, as far as the ledger knows."""
    rows = cursor.execute("SELECT id, owner FROM intents WHERE status = 'sending' ORDER BY position")
    return [(row[0], row[1]) for row in rows]


def statuses(cursor: Cursor) -> dict[str, int]:
    """How many intents have each status."""
    found: Sequence[tuple[str, int]] = cursor.execute("SELECT status, count(*) FROM intents GROUP BY status").fetchall()
    return dict(found)
