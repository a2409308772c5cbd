"""docs/eventsourcing.md: the code that stands there runs as it stands, as one script, over the ledger of a gateway."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from pathlib import Path

import msgledger
from msgledger import Message, Target
from msgledger.ledger.store.apsw import Factory

PAGE = Path(__file__).parents[2] / "docs" / "eventsourcing.md"
MARK = "next block"
USE = """
with Application(env={"PERSISTENCE_MODULE": "msgledger.ledger.store.apsw", "MSGLEDGER_PATH": "ledger.db"}) as other:
    totals = other.factory.tracking_recorder(Totals)
    totals.add("qa", Tracking("app", 1))
    totals.add("qa", Tracking("app", 2))
    print(totals.get("qa"), totals.get("slack"))
app.close()
"""
"""What the page leaves to its reader: to construct the view that it shows, and to close."""


async def make_ledger(path: Path, messages: int) -> list[str]:
    """The ids of messages that were sent."""

    async def deliver(unit, context):
        return f"m{unit.text}"

    channel = msgledger.CallableChannel("qa", deliver=deliver)
    async with msgledger.open(path, channels=[channel]) as gateway:
        sent = [await gateway.send(Message.text(str(n), to=Target.group("qa", "ops"))) for n in range(messages)]
    return [delivery.intent for delivery in sent]


def test_its_code_runs_as_it_stands(tmp_path: Path) -> None:
    intents = asyncio.run(make_ledger(tmp_path / "ledger.db", 3))
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    script = tmp_path / "page.py"
    script.write_text(f"\nprint({MARK!r})\n".join([*blocks, USE]))
    ended = subprocess.run(
        [sys.executable, "-W", "error", script.name],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    printed = ended.stdout.split(f"{MARK}\n")
    assert len(printed) == 8
    assert f"2 IntentRecorded {intents[0]}\n" in printed[1] and printed[1].endswith("qa sent ('m0',)\n")
    assert printed[2] == f"IntentCommitted {intents[0]}\n"
    assert printed[3] == "3\n"
    assert [line.partition(" is of msgledger: ")[0] for line in printed[6].splitlines()] == [
        "IntentRecorded",
        f"stream {intents[0]}",
    ]
    assert printed[7] == "2 0\n"


def test_it_names_every_key_of_the_environment() -> None:
    keys = {value for name, value in vars(Factory).items() if name.isupper()}
    assert len(keys) == 4
    assert [key for key in sorted(keys) if f"`{key}`" not in PAGE.read_text()] == []
