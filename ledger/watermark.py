"""How far a platform may forget: events arrive in order and are finished in any order. Pure."""

from __future__ import annotations

from collections import deque


class Watermark:
    """What arrived and is not behind the mark yet. `reached`: the cursor up to which everything is finished."""

    def __init__(self, reached: str | None = None) -> None:
        self.reached = reached
        self._arrived: deque[tuple[int, str | None]] = deque()
        self._finished: set[int] = set()
        self._next = 0

    def __len__(self) -> int:
        """How many arrived and are not finished."""
        return len(self._arrived) - len(self._finished)

    def arrive(self, cursor: str | None) -> int:
        """The next event in order; `cursor` is where the platform may forget once this and all before are finished,
        None where only a later one says. What comes back is what `finish` takes."""
        token, self._next = self._next, self._next + 1
        self._arrived.append((token, cursor))
        return token

    def finish(self, token: int) -> list[int]:
        """That event is done. The tokens that are behind the mark now and were not before; twice is once."""
        if not self._arrived or token < self._arrived[0][0]:
            return []
        self._finished.add(token)
        passed: list[int] = []
        while self._arrived and self._arrived[0][0] in self._finished:
            first, cursor = self._arrived.popleft()
            self._finished.discard(first)
            passed.append(first)
            if cursor is not None:
                self.reached = cursor
        return passed
