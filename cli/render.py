"""The timeline of one intent, drawn in the terminal: a row for the intent, each attempt and the receipts.

Time runs to the right, but not evenly: what matters happens within milliseconds, and then nothing for a minute. A gap
that is long beside the others is cut short and marked as such; the scale above says how long it was.
"""

from __future__ import annotations

from math import log2
from textwrap import wrap
from typing import Final, NamedTuple

from ..projections.timeline import Kind, Mark, Row, Timeline
from .output import lasting, plural, when

LABEL: Final = 12
"""Columns in front of the picture."""
LEGEND: Final = 21
"""Columns in front of what an event says, below the picture."""
STEP_LEAST: Final = 2
GAP_FACTOR: Final = 8
"""A pause this much longer than the median one is a gap."""
GAP_LEAST_MS: Final = 250


class Signs(NamedTuple):
    marks: dict[Kind, str]
    line: str
    flight: str
    lease: str
    gap: str
    tick: str


FANCY: Final = Signs(
    {
        "begin": "●",
        "accepted": "✓",
        "failed": "✗",
        "unknown": "?",
        "look": "◆",
        "committed": "■",
        "ended": "■",
        "note": "·",
    },
    "─",
    "═",
    "┄",
    "≈",
    "┬",
)
PLAIN: Final = Signs(
    {
        "begin": "o",
        "accepted": "+",
        "failed": "x",
        "unknown": "?",
        "look": "*",
        "committed": "#",
        "ended": "#",
        "note": ".",
    },
    "-",
    "=",
    ".",
    "~",
    "|",
)


class Scale:
    """Times to columns: each pause between two moments gets room by the logarithm of its length."""

    def __init__(self, moments: list[int], columns: int) -> None:
        self.moments = sorted(set(moments))
        pauses = [later - earlier for earlier, later in zip(self.moments, self.moments[1:], strict=False)]
        median = sorted(pauses)[len(pauses) // 2] if pauses else 0
        self.gaps = [pause >= max(GAP_LEAST_MS, median * GAP_FACTOR) for pause in pauses]
        weights = [log2(2 + pause) for pause in pauses]
        room = max(columns - 1 - STEP_LEAST * len(pauses), 0)
        total = sum(weights) or 1.0
        self.columns = [0]
        reached = 0.0
        for index, weight in enumerate(weights):
            reached += weight / total * room
            self.columns.append(int(reached) + STEP_LEAST * (index + 1))

    def column(self, at: int) -> int:
        """Of a moment of the picture, or of one between two of them."""
        index = max((n for n, moment in enumerate(self.moments) if moment <= at), default=0)
        if self.moments[index] == at or index + 1 == len(self.moments):
            return self.columns[index]
        start, end = self.moments[index], self.moments[index + 1]
        part = (at - start) / (end - start)
        return int(self.columns[index] + part * (self.columns[index + 1] - self.columns[index]))

    @property
    def end(self) -> int:
        return self.columns[-1]


def draw(line: Timeline, *, status: str, width: int, fancy: bool) -> list[str]:
    """The picture as lines of at most `width` columns, without colours."""
    signs = FANCY if fancy else PLAIN
    scale = Scale([mark.at for mark in line.marks] or [line.begins_at], max(width - LABEL - 8, 10))
    attempts = sum(row.name.startswith("attempt") for row in line.rows)
    took = lasting(line.ends_at - line.begins_at)
    events = {mark.number: mark for row in line.rows if row.name != "receipts" for mark in row.marks}
    summary = f"{status}, {plural(attempts, 'attempt')}, {plural(len(events), 'event')} in {took}, "
    lines = [f"intent {line.intent}", *wrap(summary + f"from {when(line.begins_at)}", width), ""]
    lines += _axis(line, scale, signs, width - LABEL)
    lines += [_row(row, scale, signs) for row in line.rows]
    lines.append("")
    ids = {mark.number: mark.text for row in line.rows if row.name == "receipts" for mark in row.marks}
    for number in sorted(events):
        text = _legend(events[number], line.begins_at, signs, ids.get(number))
        lines += wrap(text, width, subsequent_indent=" " * LEGEND)
    return [text[:width].rstrip() for text in lines]


def _axis(line: Timeline, scale: Scale, signs: Signs, room: int) -> list[str]:
    """The times that have room above their ticks, and the gaps between them."""
    labels = [" "] * (room + 1)
    ticks = [" "] * (scale.end + 1)
    free = 0
    for column, at in zip(scale.columns, scale.moments, strict=True):
        text = "0" if at == line.begins_at else f"+{lasting(at - line.begins_at)}"
        ticks[column] = signs.tick
        start = min(column, room - len(text))
        if start >= free:
            labels[start : start + len(text)] = text
            free = start + len(text) + 2
    for index, gap in enumerate(scale.gaps):
        if gap:
            for column in range(scale.columns[index] + 1, scale.columns[index + 1]):
                ticks[column] = signs.gap
    return [" " * LABEL + "".join(labels).rstrip(), " " * LABEL + "".join(ticks).rstrip()]


def _row(row: Row, scale: Scale, signs: Signs) -> str:
    cells = [" "] * (scale.end + 1)
    begin = scale.column(row.begins_at)
    if row.name == "intent":
        _fill(cells, begin, scale.end if row.ends_at is None else scale.column(row.ends_at), signs.line)
    elif row.name != "receipts":
        last = scale.end if row.ends_at is None else scale.column(row.ends_at)
        if row.lease_ends_at is not None and any(mark.kind == "unknown" for mark in row.marks):
            latest = max(mark.at for mark in row.marks)
            _fill(cells, last, scale.column(max(latest, min(row.lease_ends_at, scale.moments[-1]))), signs.lease)
        _fill(cells, begin, last, signs.flight)
    if row.name == "intent":
        cells[begin] = signs.marks["begin"]
    for mark in row.marks:
        cells[scale.column(mark.at)] = signs.marks[mark.kind]
    running = " ..." if row.ends_at is None and row.name != "receipts" else ""
    name = row.name if len(row.name) < LABEL else row.name[: LABEL - 1]
    return f"{name:<{LABEL}}{''.join(cells).rstrip()}{running}"


def _fill(cells: list[str], start: int, end: int, sign: str) -> None:
    for column in range(start, end + 1):
        cells[column] = sign


def _legend(mark: Mark, begins_at: int, signs: Signs, receipt: str | None) -> str:
    more = "" if receipt is None else f" -> {receipt}"
    return f"  {signs.marks[mark.kind]} {mark.number:>3}  +{lasting(mark.at - begins_at):<10} {mark.text}{more}"
