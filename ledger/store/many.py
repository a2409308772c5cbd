"""Writing many rows with few calls.

Each call into SQLite gives up the interpreter's lock and has to get it back, for which it may wait as long as the event
loop has work. Row by row, the writer would take turns with the loop; with many rows a call it runs beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Final

from .sql import Cursor, Values

SIZES: Final = (64, 16, 4, 1)
"""How many rows one call may take: few enough for all texts to stay prepared."""


class Many:
    """One statement for any number of rows. `text(n)` is its SQL for n of them."""

    __slots__ = ("_texts",)

    def __init__(self, text: Callable[[int], str]) -> None:
        self._texts = [(size, text(size)) for size in SIZES]

    def write(self, cursor: Cursor, rows: Sequence[Values]) -> None:
        """Run it for all rows, in their order."""
        done = 0
        for size, text in self._texts:
            while len(rows) - done >= size:
                cursor.execute(text, tuple(chain.from_iterable(rows[done : done + size])))
                done += size
