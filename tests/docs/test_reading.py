"""docs/reading.md is true: its Python runs as it stands, and its table of filters is the one that there is."""

from __future__ import annotations

import ast
import asyncio
import inspect
import itertools
import re
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from msgledger import CallableChannel
from msgledger.cli.main import main
from msgledger.projections.query import NAMES

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "reading.md").read_text(encoding="utf-8")


def test_every_block_runs(tmp_path: Path) -> None:
    """SC-67: one after the other, over one ledger."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    assert len(blocks) == 5
    ids = itertools.count(1)

    async def deliver(unit: Any, context: Any) -> str:
        return f"m{next(ids)}"

    names: dict[str, Any] = {"path": tmp_path / "ledger.db", "chat": CallableChannel("chat", deliver)}

    async def run() -> None:
        async with asyncio.timeout(30):
            for block in blocks:
                code = compile(block, "docs/reading.md", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
                result = eval(code, names)
                if inspect.isawaitable(result):
                    await result

    asyncio.run(run())
    assert names["rest"][0].id == names["sent"].intent
    assert names["event"].topic == "IntentCommitted"


def test_the_table_names_every_filter() -> None:
    """SC-67: and each with the option that there is."""
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines() if line.startswith("| `")
    ]
    assert sorted(name for row in rows for name in re.findall(r"`(\w+)`", row[0])) == list(NAMES)
    shown = CliRunner().invoke(main, ["intents", "list", "--help"]).output
    options = [option for row in rows for option in re.findall(r"--[\w-]+", row[1])]
    assert [option for option in options if option not in shown] == []
