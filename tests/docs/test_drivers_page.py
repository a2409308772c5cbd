"""docs/drivers.md is true: its Python runs as it stands, against our own platform and over one ledger."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
from pathlib import Path
from typing import Any

import msgledger
from msgledger.adapters.http import HttpChannel
from msgledger.adapters.qa import QaAdapter
from msgledger.adapters.qa_platform import QaPlatform

from ..channels.webhook_kit import SECRET, served

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "drivers.md").read_text(encoding="utf-8")


class Sdk:
    """The library that the reader fetches with."""

    def __init__(self) -> None:
        self.confirmed: list[str] = []

    async def fetch(self, after: str | None) -> list[dict[str, Any]]:
        event = {"type": "message", "place": "p", "kind": "group", "from": "ann"}
        return [{**event, "id": f"own{n}", "message": f"own{n}", "text": f"fetched {n}"} for n in range(2)]

    async def confirm(self, event: str) -> None:
        self.confirmed.append(event)


def said(text: str) -> dict[str, Any]:
    return {"place": "p", "from": "ann", "text": text}


async def until(true: Any) -> None:
    async with asyncio.timeout(30):
        while not await asyncio.to_thread(true):
            await asyncio.sleep(0.01)


def test_every_block_runs(tmp_path: Path) -> None:
    """CH-17, RCV-5, ADP-3, AC-2: each way in, one after the other; everything is answered once."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    assert len(blocks) == 4

    async def run(platform: QaPlatform) -> None:
        def channel(**more: Any) -> HttpChannel:
            return HttpChannel(QaAdapter(platform.url, secret=SECRET, **more))

        def answered(count: int) -> Any:
            return lambda: len(platform.accepted()) == count and not platform.pending()

        async def serve(app: Any) -> None:
            async with served(app) as url:
                await asyncio.to_thread(platform.say, said("pushed"))
                await asyncio.to_thread(platform.hook, f"{url}/hooks/qa", SECRET)
                await until(answered(2))

        sdk = Sdk()
        names: dict[str, Any] = {"asyncio": asyncio, "msgledger": msgledger, "path": tmp_path / "ledger.db"}
        names |= {"polled": channel(), "pushed": channel(polling=False), "listening": channel(socket=True)}
        names |= {"serve": serve, "sdk": sdk}
        async with asyncio.timeout(60):
            for number, block in enumerate(blocks):
                if number in (0, 2):
                    platform.say(said("polled" if number == 0 else "over a socket"))
                result = eval(compile(block, "docs/drivers.md", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
                if inspect.isawaitable(result):
                    await result
            assert sdk.confirmed == ["own0", "own1"]
            # What was confirmed is owed, whether its turn ran before the gateway closed or not.
            async with msgledger.open(names["path"], channels=[names["pushed"]], on_message=names["answer"]):
                await until(lambda: len(platform.accepted()) == 5)

    with QaPlatform.start(tmp_path) as platform:
        asyncio.run(run(platform))
        words = ["polled", "pushed", "over a socket", "fetched 0", "fetched 1"]
        assert [line["text"] for line in platform.accepted()] == [f"You said: {text}" for text in words]
