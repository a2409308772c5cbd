"""docs/bridge.md is true: its Python runs as it stands, from the first step to the last, over one ledger."""

from __future__ import annotations

import ast
import asyncio
import inspect
import itertools
import re
from pathlib import Path
from typing import Any

import msgledger

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "bridge.md").read_text(encoding="utf-8")


class Bot:
    """The library that the reader's gateway sends with."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self._ids = itertools.count(1)

    async def send_message(self, chat: str, text: str) -> dict[str, Any]:
        self.sent.append(text)
        return {"message_id": f"m{next(self._ids)}"}


def test_every_block_runs(tmp_path: Path) -> None:
    """MIG-1, MIG-6, MIG-7, MIG-8, TGT-2: one after the other; each message becomes visible once, and none is lost."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    assert len(blocks) == 6
    bot = Bot()
    names: dict[str, Any] = {"path": tmp_path / "ledger.db", "bot": bot, "msgledger": msgledger}
    names |= {name: getattr(msgledger, name) for name in msgledger.__all__ if name[0].isupper()}
    names["bridge_checks"] = msgledger.bridge_checks

    async def run() -> None:
        async with asyncio.timeout(30):
            for block in blocks:
                result = eval(compile(block, "docs/bridge.md", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
                if inspect.isawaitable(result):
                    await result

    asyncio.run(run())
    assert bot.sent == [
        *("The build is green.", "Looking...", "Done.", "Deployed.", "Never attempted."),
        *("Owed by the ledger.", "Psst.", "Only you can see this."),
    ]


def test_the_page_names_every_path() -> None:
    """MIG-3: what a reader may count by."""
    from typing import get_args

    from msgledger.lifecycle.bridging.outcome import Path as Carried

    [line] = re.findall(r"`outcome\.path` says who carried a payload: (.+?); only", PAGE, re.S)
    assert re.findall(r"`(\w+)`", line) == list(get_args(Carried))
