"""docs/sessions.md is true: its Python runs as it stands, and its tables name what there is."""

from __future__ import annotations

import ast
import asyncio
import inspect
import itertools
import re
from pathlib import Path
from typing import Any, get_args

import msgledger.sync
import pytest
from click.testing import CliRunner
from msgledger import Body, CallableChannel, Incoming, Message, SessionContext, SessionSource, Target
from msgledger.cli.main import main
from msgledger.ledger.inbound_events import ResetReason
from msgledger.ledger.limits import HISTORY_MAX, MENTIONS_MAX, RESTARTS_MAX, RESUMES_MAX
from msgledger.ledger.source import session_key
from msgledger.lifecycle.inbound.route import VARIABLE, How

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "sessions.md").read_text(encoding="utf-8")


def normalize(event: dict[str, Any]) -> Incoming:
    target = Target("direct", "chat", event["chat"])
    message = Message(target, Body(event["text"]), direction="inbound", id=str(event["id"]), sender=event["from"])
    return Incoming(message=message, source=SessionSource("chat", "dm", chat=event["chat"], sender=event["from"]))


def test_every_block_runs(tmp_path: Path) -> None:
    """CT-1, CT-9, CT-12: one after the other, over one ledger."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    assert len(blocks) == 5
    ids = itertools.count(1)

    async def deliver(unit: Any, context: Any) -> str:
        return f"m{next(ids)}"

    chat = CallableChannel(
        "chat", deliver, normalize=normalize, dedupe_key=lambda event: str(event["id"]), ack_policy="after_durable_send"
    )
    names: dict[str, Any] = {"path": tmp_path / "ledger.db", "chat": chat}

    async def run() -> None:
        async with asyncio.timeout(30):
            for block in blocks:
                result = eval(compile(block, "docs/sessions.md", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
                if inspect.isawaitable(result):
                    await result

    asyncio.run(run())
    assert [context.how for context in names["asked"]] == ["new", "continued", "continued"]
    assert len(names["spoken"]) == 6 and len(names["newest"]) == len(names["page"]) == 2


KNOBS = ({}, {}, {}, {"per_user": False}, {}, {"per_user_in_threads": True}, {})
SOURCES = (
    SessionSource("telegram", "dm", chat="99", sender="7"),
    SessionSource("signal", "dm", sender="jordan"),
    SessionSource("discord", "group", chat="g", sender="alice"),
    SessionSource("discord", "group", chat="g", sender="alice"),
    SessionSource("telegram", "group", chat="-100", thread="17585", sender="42"),
    SessionSource("telegram", "group", chat="-100", thread="17585", sender="42"),
    SessionSource("slack", "channel", chat="C1", scope="T1", sender="U1"),
)


def test_the_table_of_keys_is_right() -> None:
    """SK-1, SK-3, SK-8, SK-9, SK-10, SK-11, SK-12."""
    shown = re.findall(r"^\| [^|]+ \| `([a-z]+:[^`]+)` \|$", PAGE, re.M)
    made = [session_key(source, **knobs) for source, knobs in zip(SOURCES, KNOBS, strict=True)]
    assert [f"agent:main:{key}" for key in shown] == made


def test_the_page_names_every_field_reason_and_bound() -> None:
    """CT-2, CT-7, CT-8, CT-12."""
    fields = [name for row in re.findall(r"^\| (`\w+`.*?) \|", PAGE, re.M) for name in re.findall(r"`(\w+)`", row)]
    assert sorted(fields) == sorted(SessionContext.__struct_fields__)
    for word in (*get_args(How), *get_args(ResetReason), VARIABLE):
        assert f"`{word}`" in PAGE, word
    assert (HISTORY_MAX, MENTIONS_MAX, RESTARTS_MAX, RESUMES_MAX) == (1_000, 50, 3, 3), "the page says them in words"


@pytest.mark.parametrize("command", sorted(set(re.findall(r"msgledger (\w+ \w+ --\w+ \w+)", PAGE))))
def test_its_commands_are_there(tmp_path: Path, command: str) -> None:
    """CT-8: on an empty ledger they find nothing, and complain of nothing else."""
    path = str(tmp_path / "ledger.db")
    with msgledger.sync.open(path):
        pass
    done = CliRunner().invoke(main, ["--ledger", path, *command.split(), "--json"])
    assert (done.exit_code, done.stdout) == (0, ""), done.output
