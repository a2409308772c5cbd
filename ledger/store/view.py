"""What the store knows of a view: a table, its version, and the rows of a state. Nothing of what they mean.

Rows are computed from the folded state and upserted in the transaction of the append, never deleted, so that a rebuilt
view equals the live one and the same text serves every database.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from ..fold import State


class View(Protocol):
    """A table of the read side. `ddl` creates it and its indexes and SQL views (`CREATE ... IF NOT EXISTS`)."""

    @property
    def name(self) -> str: ...
    @property
    def version(self) -> int:
        """Raised when columns or their meaning change: the table is rebuilt at the next open."""
        ...

    @property
    def ddl(self) -> Sequence[str]: ...
    @property
    def columns(self) -> Sequence[str]: ...
    @property
    def key(self) -> Sequence[str]:
        """The columns of the primary key, on which an upsert decides."""
        ...

    @property
    def fixed(self) -> Sequence[str]:
        """The columns that never change once a row stands. Only a rebuild writes them again."""
        ...

    def rows(self, state: State) -> Iterable[tuple[object, ...]]:
        """The rows that stand for this state now, values in the order of `columns`. None where it has no row here."""
        ...
