"""docs/receiving.md is true: its Python runs as it stands, and its tables name what there is."""

from __future__ import annotations

import ast
import asyncio
import inspect
import itertools
import re
import sqlite3
from pathlib import Path
from typing import Any, get_args

import msgledger
from msgledger import CallableChannel, Message, Target
from msgledger.adapters.receiving import Event, Incoming
from msgledger.ledger.inbound_events import AckPolicy
from msgledger.ledger.message import Body
from msgledger.ledger.source import SessionSource
from msgledger.lifecycle.inbound.acks import REASONS
from msgledger.lifecycle.inbound.context import Inbound

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "receiving.md").read_text(encoding="utf-8")
INSIDE = {"state", "intents", "skipped"}
"""What an `Inbound` has besides: told elsewhere on the page, or of no use to a handler."""


def normalize(event: Event) -> Incoming:
    target = Target.group("chat", event["room"])
    message = Message(
        target, Body(event["text"]), direction="inbound", id=f"in-{event['id']}", sender=event.get("from", "ann")
    )
    source = SessionSource("chat", "group", chat=event["room"], sender=event.get("from", "ann"))
    return Incoming(message=message, source=source)


def test_every_block_runs(tmp_path: Path) -> None:
    """RCV-1, AC-2: one after the other, over one ledger; each is answered once, the refused leaves no text."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    assert len(blocks) == 5
    ids = itertools.count(1)
    shown: list[str] = []

    async def deliver(unit: Any, context: Any) -> str:
        shown.append(unit.text)
        return f"m{next(ids)}"

    chat = CallableChannel("chat", deliver, normalize=normalize, dedupe_key=lambda event: str(event["id"]))
    names: dict[str, Any] = {"path": tmp_path / "ledger.db", "chat": chat}

    async def run() -> None:
        async with asyncio.timeout(60):
            for block in blocks:
                result = eval(compile(block, "docs/receiving.md", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
                if inspect.isawaitable(result):
                    await result
            async with msgledger.open(names["path"], channels=[chat], on_message=names["answer"]):
                while len(shown) < 5:  # what was still owed when the last block closed
                    await asyncio.sleep(0.01)

    asyncio.run(run())
    said = ["hello", "and again", None, "one", "two"]
    assert sorted(shown) == sorted("noted" if text is None else f"You said: {text}" for text in said)
    with sqlite3.connect(names["path"]) as ledger:
        found = ledger.execute("SELECT status, count(*) FROM inbound GROUP BY status").fetchall()
    assert dict(found) == {"completed": 5, "dropped": 1}
    assert b"a secret" not in names["path"].read_bytes()


def test_the_tables_name_every_policy_and_every_part() -> None:
    """ACKP-1, RCV-1: none is left out, and none is invented."""
    rows = [line.strip("|").split("|") for line in PAGE.splitlines() if line.startswith("| `")]
    first = [name for row in rows for name in re.findall(r"`([\w:-]+)(?:\(\))?`", row[0])]
    policies = {name.partition(":")[0] for name in first}
    assert set(get_args(AckPolicy)) <= policies
    assert {name.partition(":")[2] for name in first if ":" in name} == set(REASONS)
    parts = {name for name in vars(Inbound) if not name.startswith("_")}
    assert policies - set(get_args(AckPolicy)) == parts - INSIDE
