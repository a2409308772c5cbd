"""Who waits for an intent, and when it has come to rest so that they should hear of it. Memory of one process only."""

from __future__ import annotations

import asyncio

import msgspec

from ..ledger.dossier import Dossier, receipt_of
from ..ledger.intent import IntentState, Status
from ..ledger.message import Receipt, ReceiptPart


class Settled(msgspec.Struct, frozen=True, gc=False):
    """What a waiting caller is told: the intent as it stands, and what its receipts say beyond ids."""

    state: IntentState
    details: dict[int, tuple[ReceiptPart, ...]] = {}
    sent_at: int | None = None

    @property
    def receipt(self) -> Receipt | None:
        return receipt_of(self.state, self.details, self.sent_at)


Waiter = asyncio.Future[Settled]


def settled(dossier: Dossier) -> Settled:
    return Settled(dossier.state, dossier.details, dossier.sent_at)


def at_rest(state: IntentState, now: int) -> bool:
    """Whether a caller should hear of it: it has ended, is unknown or held, or waits for a time to come."""
    if state.terminal or state.status is Status.UNKNOWN or state.hold is not None:
        return True
    return state.status is Status.PENDING and state.attempts > 0 and (state.due_at or 0) > now


class Waiters:
    """The futures of those who wait, by intent."""

    def __init__(self) -> None:
        self._futures: dict[str, set[Waiter]] = {}

    def __contains__(self, stream: str) -> bool:
        return stream in self._futures

    def streams(self) -> list[str]:
        return list(self._futures)

    def expect(self, stream: str) -> Waiter:
        """A future that is told when the intent comes to rest. To be given back with `forget`."""
        future: Waiter = asyncio.get_running_loop().create_future()
        self._futures.setdefault(stream, set()).add(future)
        return future

    def forget(self, stream: str, future: Waiter) -> None:
        futures = self._futures.get(stream)
        if futures is not None:
            futures.discard(future)
            if not futures:
                del self._futures[stream]

    def tell(self, dossier: Dossier, now: int) -> None:
        """Wake those who wait for this intent, once it has come to rest. `now`: UTC milliseconds."""
        futures = self._futures.get(dossier.state.id)
        if futures and at_rest(dossier.state, now):
            news = settled(dossier)
            for future in self._futures.pop(dossier.state.id):
                if not future.done():
                    future.set_result(news)

    def dismiss(self) -> None:
        """Nobody will be told anything more: their time is over, as far as this process goes."""
        for futures in self._futures.values():
            for future in futures:
                if not future.done():
                    future.set_exception(TimeoutError())
        self._futures.clear()
