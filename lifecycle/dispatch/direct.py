"""Sending without the ledger: what `disabled` asks for, and what `best_effort` falls back to when the store is away.

A best-effort send keeps its ordinary events in memory, bounded, and appends them when the store accepts again, marked
`late`, with their own times and their true outcome, also where the caller has gone. If the process dies first they are
lost; nothing can say so then.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from itertools import islice

from msgspec.structs import replace

from ...adapters import calls
from ...ledger import decide, life
from ...ledger import events as e
from ...ledger.dossier import Dossier
from ...ledger.errors import (
    KeyTaken,
    LedgerError,
    StaleHead,
    StoreUnavailable,
    Unappendable,
    WriteUncertain,
)
from ...ledger.intent import Status
from ...ledger.limits import GROUP_APPENDS_MAX, LATE_SENDS_MAX
from ...ledger.outcome import Accepted, Cause, Outcome, Rejected, Unknown
from ...ledger.steps import Start
from ...ledger.store.append import NEW, Append
from ...projections.intents import KeyFree
from ...projections.waiting import Settled, settled
from ..plan import Planned
from .loop import CLOSE_EXTRA_S, Dispatcher

log = logging.getLogger("msgledger")

AGAIN_S = 0.2


class Direct:
    """One per gateway."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self._late: deque[tuple[Planned, tuple[e.Event, ...]]] = deque()
        self._sending: dict[asyncio.Task[Settled], float] = {}
        """What is on its way, each with its deadline in seconds."""
        self._flushing: asyncio.Task[None] | None = None
        self._closing = False

    async def send(self, planned: Planned) -> Settled:
        """One attempt, and no record of it."""
        once, _ = await self._once(planned)
        return once

    async def send_late(self, planned: Planned, error: StoreUnavailable) -> Settled:
        """One attempt now; its events as soon as the ledger takes them. Raises `error` where too many wait already."""
        if self._closing or len(self._late) + len(self._sending) >= LATE_SENDS_MAX:
            raise error
        log.warning("intent %s goes out without the ledger: %s", planned.dossier.state.id, error)
        task = asyncio.get_running_loop().create_task(self._keep(planned, str(error)))
        self._sending[task] = planned.channel.capabilities.deadline_s
        task.add_done_callback(self._sending.pop)
        return await asyncio.shield(task)

    async def _keep(self, planned: Planned, error: str) -> Settled:
        once, events = await self._once(planned, late=True)
        self._late.append((planned, events))
        if self._flushing is None or self._flushing.done():
            self._flushing = asyncio.get_running_loop().create_task(self._flush(error))
        return once

    async def stop(self) -> None:
        """Let what is on its way end until its deadline; then a last try to write what is still in memory."""
        self._closing = True
        if self._sending:
            await asyncio.wait([*self._sending], timeout=max(self._sending.values()) + CLOSE_EXTRA_S)
        if late := [*self._sending]:
            for task in late:
                task.cancel()
            await asyncio.wait(late, timeout=CLOSE_EXTRA_S)
        if self._flushing is not None and not self._flushing.done():
            self._flushing.cancel()
            await asyncio.gather(self._flushing, return_exceptions=True)
        try:
            while self._late:
                await self._write("the gateway closed")
        except LedgerError as error:
            log.error("%d best-effort sends are not in the ledger: %s", len(self._late), error)

    async def _once(self, planned: Planned, *, late: bool = False) -> tuple[Settled, tuple[e.Event, ...]]:
        """One attempt and its events. A `late` one that is cancelled tells of it as unknown."""
        channel, dossier = planned.channel, planned.dossier
        attempts, clock, by = self._dispatcher.attempts, self._dispatcher.clock, self._dispatcher.by
        events: list[e.Event] = [replace(planned.event, late=True)]

        def happened(dossier: Dossier, event: e.Event) -> Dossier:
            events.append(event)
            return replace(dossier, state=life.evolve(dossier.state, event, event.at))

        dossier = happened(dossier, attempts.claim(dossier, channel, Start("first")))
        while dossier.state.status is Status.SENDING and (unit := dossier.state.next_unit) is not None:
            assert dossier.batch is not None
            context = attempts.context(channel, dossier, unit, 1, False)
            began = clock.boot_ms()
            outgoing = calls.outgoing(dossier.batch, unit, False)
            try:
                outcome: Outcome = await attempts.media.deliver(channel, outgoing, context)
            except asyncio.CancelledError:
                if not late:
                    raise
                outcome = Unknown(Cause.CLOSING)
            event = attempts.event(dossier.state, channel, 1, unit, outcome, clock.boot_ms() - began)
            dossier = happened(dossier, event)
            if isinstance(outcome, Accepted) and outcome.parts:
                dossier = replace(dossier, details={**dossier.details, unit: outcome.parts})
            if isinstance(outcome, Rejected) and dossier.state.status is not Status.SENDING:
                break
        last = decide.finish(dossier.state, at=clock.wall_ms(), by=by)
        if last is not None:
            dossier = happened(dossier, last)
        return settled(dossier), tuple(events)

    async def _flush(self, error: str) -> None:
        while self._late:
            await asyncio.sleep(AGAIN_S)
            try:
                await self._write(error)
            except (StoreUnavailable, WriteUncertain):
                continue

    async def _write(self, error: str, most: int = GROUP_APPENDS_MAX - 1) -> None:
        """What waits, as far as one transaction takes it, with the fact that it had to wait."""
        waiting = list(islice(self._late, most))
        items = [
            Append(planned.dossier.state.id, events, expected=NEW, guard=KeyFree(planned.event.key, planned.key))
            for planned, events in waiting
        ]
        lost = e.DurabilityLost(
            at=self._dispatcher.clock.wall_ms(),
            by=self._dispatcher.by,
            sends=len(waiting),
            error=error.split(":")[0][:80],
        )
        results: list[object]
        try:
            results = [*await self._dispatcher.store.append(*items, Append(self._dispatcher.worker, (lost,)))]
        except Unappendable as refusal:  # by itself, so that it takes no other with it
            if len(waiting) > 1:
                await self._write(error, 1)
                return
            results = [refusal]
        for (planned, _), result in zip(waiting, results, strict=False):
            self._late.popleft()
            stands = isinstance(result, KeyTaken) and result.intent == planned.dossier.state.id
            if isinstance(result, Exception) and not stands and not isinstance(result, StaleHead):
                log.error("a best-effort send is not in the ledger: %s", result)  # but for what an earlier try wrote
        self._dispatcher.wake()
