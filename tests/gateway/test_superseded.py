"""An attempt that another worker has gone on from: what its late owner learns names that attempt and no other."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import msgledger
from msgledger import Message, Target
from msgledger.ledger import decide
from msgledger.ledger import events as e
from msgledger.ledger.intent import IntentState, Status
from msgledger.ledger.limits import LOOK_FRESH_MS
from msgledger.ledger.store.append import Append
from msgledger.ledger.store.store import Store
from msgledger.projections import VIEWS


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


def go_on(path: Path, stream: str) -> IntentState:
    """What another worker does: it takes the attempt over and starts one of its own."""
    with Store.open(path, VIEWS, wall_ms=wall_ms) as store:
        state = store.state_of(stream)
        assert isinstance(state, IntentState) and state.current is not None
        lost = decide.taken_over(state, at=wall_ms(), by="worker:other")
        claim = e.AttemptStarted(
            at=wall_ms(),
            by="worker:other",
            attempt=2,
            owner="other",
            units=state.current.tries,
            deadline_ms=60_000,
            margin_ms=0,
            boot_ms=0,
            credential=state.current.credential,
            why="recovery",
            licence="window",
        )
        [result] = store.append_sync(Append(stream, (lost, claim), expected=state.head))
        assert not isinstance(result, Exception)
        after = store.state_of(stream)
        assert isinstance(after, IntentState)
        return after


def test_the_last_look_fails_its_own_attempt_and_not_its_successor(tmp_path: Path) -> None:
    """R2, R9, G5: the late owner sends nothing, and the newer attempt stays in flight."""
    path = tmp_path / "ledger.db"
    sent: list[str] = []

    async def deliver(unit: msgledger.RenderedUnit, context: msgledger.SendContext) -> str:
        await asyncio.get_running_loop().run_in_executor(None, go_on, path, context.intent)
        await asyncio.sleep((LOOK_FRESH_MS + 20) / 1000)
        assert context.last_look is not None
        await context.last_look()
        sent.append(context.provider_key)
        return "1"

    async def main() -> msgledger.Delivery:
        async with msgledger.open(path, channels=[msgledger.CallableChannel("fn", deliver)]) as gateway:
            return await gateway.send(Message.text("x", to=Target.group("fn", "a")), timeout_s=0.5)

    delivery = asyncio.run(main())
    assert sent == []
    with Store.open(path, VIEWS, wall_ms=wall_ms, read_only=True) as store:
        state = store.state_of(delivery.intent)
        failed = [one.event for one in store.events_of(delivery.intent) if isinstance(one.event, e.AttemptFailed)]
    assert [(event.attempt, event.code) for event in failed] == [(1, "superseded")]
    assert isinstance(state, IntentState) and state.current is not None
    assert (state.status, state.current.number, state.doubt) == (Status.SENDING, 2, ())
