"""SIGKILL between each pair of the four calls, and what the next process finds: nothing lost, nothing sent twice."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from msgledger import CallableChannel, External, Gateway, NotPossible, Status
from msgledger.adapters.surface import Capabilities, TextLimit
from msgledger.ledger.store.crash import POINTS

from .four_calls_process import DEADLINE_S, SETTLE_S, STEPS
from .gateway_kit import events_in

SCRIPT = Path(__file__).with_name("four_calls_process.py")
WAIT_S = 50.0
WRITER = ("before-begin", "after-begin", "after-insert", "before-commit", "after-commit", "before-wake")


def live(folder: Path, way: str, die_at: str, point: str = "") -> int:
    """One life; how it ended."""
    environment = {**os.environ, "MSGLEDGER_CRASH_AT": point}
    arguments = [str(folder / "ledger.db"), str(folder / "platform"), way, die_at]
    done = subprocess.run(
        [sys.executable, "-P", str(SCRIPT), *arguments], env=environment, timeout=WAIT_S, capture_output=True, text=True
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode


def shown(folder: Path) -> list[str]:
    file = folder / "platform"
    return file.read_text().splitlines() if file.exists() else []


def topics(folder: Path) -> list[str]:
    rows = events_in(folder / "ledger.db")
    return [row[3] for row in rows if not row[3].startswith(("Worker", "Channel"))]


async def rested(gateway: Gateway) -> Any:
    """The one intent, once the next process has done with it what it can do by itself."""
    async with asyncio.timeout(WAIT_S):
        while True:
            rows = await gateway.intents()
            if not rows or rows[0].status in ("pending", "sent", "failed") or rows[0].hold is not None:
                return rows[0] if rows else None
            await asyncio.sleep(0.01)


async def next_gateway(folder: Path, channel: Any) -> tuple[Any, bool]:
    """What a later process makes of it: the row, and whether the gateway may attempt it again."""
    async with Gateway(folder / "ledger.db", [channel]) as gateway:
        row = await rested(gateway)
        if row is None:
            return None, False
        try:
            attempt = await gateway.attempting(row.id)
        except NotPossible:
            return row, False
        await gateway.delivered(attempt, "m1")
        return (await gateway.intent(row.id)).state, True


@pytest.mark.parametrize(
    ("die_at", "left", "ends", "again"),
    [
        ("opened", [], None, False),
        ("recorded", ["IntentRecorded"], Status.SENT, True),
        ("attempting", ["IntentRecorded", "AttemptStarted"], "held", False),
        ("requested", ["IntentRecorded", "AttemptStarted"], "held", False),
        ("delivered", ["IntentRecorded", "AttemptStarted", "UnitAccepted", "IntentCommitted"], "sent", False),
    ],
    ids=STEPS[:-1],
)
def test_killed_between_the_calls(tmp_path: Path, die_at: str, left: list[str], ends: Any, again: bool) -> None:
    """G1, G2, G3, G4, UNK-1: each call is durable when it returns; from `attempting` on, only a word settles it."""
    assert live(tmp_path, "calls", die_at) == -signal.SIGKILL
    assert topics(tmp_path) == left
    assert shown(tmp_path) == (["hello"] if die_at in ("requested", "delivered") else [])
    row, attempted = asyncio.run(next_gateway(tmp_path, External("own", deadline_s=DEADLINE_S, settle_s=SETTLE_S)))
    assert attempted is again
    if ends == "held":
        assert (row.status, row.hold) == ("unknown_after_send", "unresolved")
    else:
        assert (row and row.status) == ends
    if die_at in ("attempting", "requested"):  # nothing else sends it: not even a channel that could
        sent: list[str] = []

        async def deliver(unit: Any, context: Any) -> str:
            sent.append(unit.text)
            return "m9"

        able = Capabilities(text=TextLimit(200), deadline_s=DEADLINE_S, settle_s=SETTLE_S)
        asyncio.run(next_gateway_of_ours(tmp_path, CallableChannel("own", deliver, capabilities=able)))
        assert sent == []


async def next_gateway_of_ours(folder: Path, channel: Any) -> None:
    async with Gateway(folder / "ledger.db", [channel]) as gateway:
        row = await rested(gateway)
        assert (row.status, row.hold) == ("unknown_after_send", "unresolved")


@pytest.mark.parametrize("die_at", ["attempting", "requested", "delivered"])
def test_a_prepared_dispatcher_that_dies(tmp_path: Path, die_at: str) -> None:
    """TI-3, G3, G4: its callback is never called again, also by a turn of the same name in the next process."""
    assert live(tmp_path, "prepared", die_at) == -signal.SIGKILL
    before = shown(tmp_path)
    assert live(tmp_path, "prepared", "never") == 0
    assert shown(tmp_path) == before
    row, again = asyncio.run(next_gateway(tmp_path, External("own", deadline_s=DEADLINE_S, settle_s=SETTLE_S)))
    assert not again
    assert row.status == ("sent" if die_at == "delivered" else "unknown_after_send")


@pytest.mark.parametrize("hits", [2, 3, 4])
@pytest.mark.parametrize("point", WRITER)
def test_killed_inside_each_commit_of_the_calls(tmp_path: Path, point: str, hits: int) -> None:
    """G2, G3: the second commit is the record, the third the claim, the fourth the receipt; the same life again never
    shows it twice."""
    assert set(WRITER) <= set(POINTS)
    live(tmp_path, "calls", "never", f"{point}:{hits}")
    known = topics(tmp_path)
    visible = shown(tmp_path)
    assert len(visible) <= 1
    if visible:
        assert known[:2] == ["IntentRecorded", "AttemptStarted"], "nothing is visible without its attempt"
    row, again = asyncio.run(next_gateway(tmp_path, External("own", deadline_s=DEADLINE_S, settle_s=SETTLE_S)))
    if visible:
        assert not again
        assert row.status in ("sent", "unknown_after_send")
    elif row is not None:
        assert again is (len(known) == 1)
