"""What waits for the writer: a group of appends, or work that wants a transaction of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..errors import Conflict, StaleHead
from .append import Append, Appended, Body, encode
from .batch import Batch
from .waiting import Ticket


class Job:
    """Something to do in a transaction, and who waits for it until when."""

    __slots__ = ("alone", "size", "ticket", "until", "work")

    def __init__(
        self, work: Callable[[Batch], object], ticket: Ticket, until: float, *, size: int = 1, alone: bool = False
    ) -> None:
        self.work = work
        self.ticket = ticket
        self.until = until
        """On `time.monotonic`: how long it may wait for a locked ledger."""
        self.size = size
        self.alone = alone
        """Whether it has a transaction of its own."""


class Group:
    """Appends that were handed over together: each is refused alone, all stand in one transaction.

    Once one is refused, later ones of the group to the same stream are too: they were decided on what it would have
    made.
    """

    __slots__ = ("_bodies", "_items")

    def __init__(self, items: Sequence[Append]) -> None:
        self._items = items
        self._bodies: list[list[Body]] = [encode(item) for item in items]

    def __call__(self, batch: Batch) -> list[Appended | Conflict]:
        results: list[Appended | Conflict] = []
        refused: set[str] = set()
        for item, bodies in zip(self._items, self._bodies, strict=True):
            if item.stream in refused:
                results.append(StaleHead(f"an earlier append of this group to stream {item.stream} was refused"))
                continue
            try:
                results.append(batch.append(item, bodies))
            except Conflict as refusal:
                results.append(refusal)
                refused.add(item.stream)
        return results
