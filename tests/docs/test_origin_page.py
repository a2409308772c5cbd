"""docs/origin.md is true: its Python runs as it stands, and what it says comes about."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
from pathlib import Path
from typing import Any, get_args

from msgledger import Message, Target
from msgledger.adapters.receiving import Incoming
from msgledger.ledger.message import Body
from msgledger.ledger.origin import SOURCES, FailureCode
from msgledger.ledger.source import SessionSource

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "origin.md").read_text(encoding="utf-8")


class Bot:
    """The library that the reader's gateway sends with."""

    def __init__(self) -> None:
        self.posted: list[tuple[str, Any]] = []
        self.heard = asyncio.Event()

    async def post(self, room: str, text: str, metadata: Any) -> str:
        self.posted.append((text, metadata))
        self.heard.set()
        return f"m{len(self.posted)}"


async def agent(text: str) -> str:
    raise ConnectionError("no model")


def normalize(event: Any) -> Incoming:
    message = Message(Target.group("chat", event["room"]), Body(event["text"]), direction="inbound", id=event["id"])
    return Incoming(message=message, source=SessionSource("chat", "group", chat=event["room"], sender=event["from"]))


def test_every_block_runs(tmp_path: Path) -> None:
    """ECHO-4, ADP-4: one after the other; the failure that comes of it is posted with its tag."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    assert len(blocks) == 3
    bot = Bot()
    names: dict[str, Any] = {"path": tmp_path / "l.db", "bot": bot, "agent": agent, "normalize": normalize}

    async def run() -> None:
        async with asyncio.timeout(30):
            for block in blocks:
                block = block.rstrip() + "\n" + ("    await bot.heard.wait()\n" if "async with" in block else "")
                result = eval(compile(block, "docs/origin.md", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
                if inspect.isawaitable(result):
                    await result

    asyncio.run(run())
    [(text, tag)] = bot.posted
    assert text == "I cannot answer now."
    assert (tag["kind"], tag["code"]) == ("gateway_failure", "agent_failed_before_reply")


def test_the_page_names_what_there_is() -> None:
    """ORG-2, ORG-3: each code and each origin."""
    for name in (*get_args(FailureCode), *(source for source in SOURCES if source not in ("gateway", "unknown"))):
        assert f"`{name}`" in PAGE or f"{name}()`" in PAGE, name
