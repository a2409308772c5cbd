"""Making the views anew from the events, in slices, while others may go on appending.

A slice folds whole streams and shows them inside one write transaction, so it never overwrites something newer. Views
of another version are dropped and made first; the version is written last, so that a build that died is done again. A
held stream is left as it stands and reported.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

from .. import limits
from ..fold import State
from . import schema
from .batch import Batch
from .history import Held, events_of, fold_recorded, folded, head_position
from .sql import Cursor
from .view import View

_MADE: Final = re.compile(
    r"CREATE\s+(?:UNIQUE\s+)?(TABLE|INDEX|VIEW|TRIGGER)\s+IF\s+NOT\s+EXISTS\s+(\w+)", re.IGNORECASE
)


class RebuildReport(NamedTuple):
    streams: int
    events: int
    held: tuple[Held, ...]
    seconds: float


Transact = Callable[[Callable[[Batch], Any]], Any]
"""Runs a function in a write transaction of its own."""
Progress = Callable[[int, int], None]
"""Called after each slice with the numbers of streams and events so far."""


def outdated(cursor: Cursor, views: Sequence[View]) -> list[View]:
    """The views that do not stand at their version."""
    standing = dict(cursor.execute(schema.VIEW_VERSIONS).fetchall())
    return [view for view in views if standing.get(view.name) != view.version]


def make_anew(cursor: Cursor, views: Sequence[View]) -> list[View]:
    """Drop and create what does not stand at its version; the views that still have to be filled.

    A view that another process has begun to fill is not dropped under it: both fill it, with the same rows.
    """
    standing = dict(cursor.execute(schema.VIEW_VERSIONS).fetchall())
    unfilled: list[View] = []
    for view in views:
        found = standing.get(view.name)
        if found == view.version:
            continue
        unfilled.append(view)
        if found == -view.version:
            continue
        for text in reversed(view.ddl):
            made = _MADE.match(text.strip())
            if made is not None:
                cursor.execute(schema.drop(made[1].upper(), made[2]))
        for text in view.ddl:
            cursor.execute(text)
        cursor.execute(schema.VIEW_STANDS, (view.name, -view.version))
    return unfilled


def fill(transact: Transact, views: Sequence[View], *, prune: bool, progress: Progress | None = None) -> RebuildReport:
    """Fold every stream and show it. `prune` also removes rows that no state produces."""
    started = time.monotonic()
    start: int = transact(lambda batch: _prepare(batch, views, prune))
    after, streams, events = "", 0, 0
    held: list[Held] = []
    while True:
        last, more_streams, more_events, more_held = transact(lambda batch, after=after: _slice(batch, after, prune))
        streams += more_streams
        events += more_events
        held += more_held
        if last is None:
            break
        after = last
        if progress is not None:
            progress(streams, events)
    transact(lambda batch: _finish(batch, views, start, prune))
    return RebuildReport(streams, events, tuple(held), time.monotonic() - started)


def differences(cursor: Cursor, views: Sequence[View]) -> list[str]:
    """Where the live views differ from rebuilt ones, row by row, in sentences. Held streams are left out."""
    found: list[str] = []
    rebuilt: dict[str, dict[tuple[object, ...], tuple[object, ...]]] = {view.name: {} for view in views}
    excused: dict[str, set[tuple[object, ...]]] = {view.name: set() for view in views}
    for _, state, _ in folded(cursor):
        if state is None:
            continue
        for view in views:
            if not isinstance(state, Held):
                for row in view.rows(state):
                    rebuilt[view.name][_key(view, row)] = row
            elif state.before is not None:
                excused[view.name].update(_key(view, row) for row in view.rows(state.before))
    for view in views:
        live: dict[tuple[object, ...], tuple[object, ...]] = {}
        for row in cursor.execute(schema.rows_of(view.name, view.columns)):
            live[_key(view, row)] = row
        expected = rebuilt[view.name]
        for key in expected.keys() | live.keys():
            if key not in excused[view.name] and expected.get(key) != live.get(key):
                found.append(f"{view.name} {key}: live {live.get(key)}, rebuilt {expected.get(key)}")
    return sorted(found)


def _key(view: View, row: Sequence[object]) -> tuple[object, ...]:
    columns = list(view.columns)
    return tuple(row[columns.index(name)] for name in view.key)


def _prepare(batch: Batch, views: Sequence[View], prune: bool) -> int:
    if prune:
        for view in views:
            batch.cursor.execute(schema.drop("TABLE", schema.kept(view.name)))
            batch.cursor.execute(schema.make_kept(view.name, view.key))
    return head_position(batch.cursor)


def _slice(batch: Batch, after: str, prune: bool) -> tuple[str | None, int, int, list[Held]]:
    """One slice: the last stream of it, or None at the end; numbers of streams and events; held streams."""
    states: list[State] = []
    held: list[Held] = []
    last: str | None = None
    streams, events = 0, 0
    reading = batch.connection.cursor()
    try:
        for stream, state, count in islice(folded(reading, after), limits.REBUILD_BATCH_STREAMS):
            last = stream
            streams += 1
            events += count
            if isinstance(state, Held):
                held.append(state)
            elif state is not None:
                states.append(state)
    finally:
        reading.close(True)
    batch.upsert(states, anew=True)
    if prune:
        _keep(batch, [*states, *(found.before for found in held if found.before is not None)])
    return (last if streams == limits.REBUILD_BATCH_STREAMS else None), streams, events, held


def _keep(batch: Batch, states: Iterable[State]) -> None:
    shown = list(states)
    for view, _ in batch.views:
        keys = [_key(view, row) for state in shown for row in view.rows(state)]
        if keys:
            batch.cursor.executemany(schema.keep(view.name, view.key), keys)


def _finish(batch: Batch, views: Sequence[View], start: int, prune: bool) -> None:
    """Count in what came meanwhile, remove what no state produces, and say where the views stand."""
    cursor = batch.cursor
    if prune:
        for (stream,) in cursor.execute(schema.STREAMS_SINCE, (start,)).fetchall():
            state = fold_recorded(stream, events_of(cursor, stream))
            known = state.before if isinstance(state, Held) else state
            _keep(batch, () if known is None else (known,))
        for view in views:
            cursor.execute(schema.drop_unkept(view.name, view.key))
            cursor.execute(schema.drop("TABLE", schema.kept(view.name)))
        batch.distrust_views()
    for view in views:
        cursor.execute(schema.VIEW_STANDS, (view.name, view.version))
