"""The example agent, killed ten times in mid-conversation on a real Bot API server: its transcript is whole."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import msgledger
import pytest
from msgledger.ledger.store.store import Store
from msgledger.projections import VIEWS

from ..counterparts.crabline_telegram import CrablineTelegram

pytest_plugins = ("tests.counterparts.fixtures",)
pytestmark = pytest.mark.crabline

AGENT = Path(__file__).resolve().parents[2] / "examples" / "echo_agent" / "agent.py"
PATIENCE_S = 40.0
KILLS = (
    *("after-normalize", "before-record", "after-gate", "before-inbound", "after-completion"),
    *("after-handler", "after-completion", "before-inbound", "after-gate", "after-normalize"),
)
"""Where it dies while it handles the 1st, 2nd, ... message; two of them leave a turn in flight, as a third within a
minute would be a loop of restarts. Telegram can neither be asked nor given a key, so a kill around the request itself
leaves an answer that is held: tests/crash/test_telegram_kills.py shows those."""


def words(number: int) -> str:
    return f"word number {number}"


def expected(number: int) -> str:
    """What an agent says that has lost and doubled nothing."""
    if number == 0:
        return f"1: you said {words(0)!r}. I shall remember it."
    return (
        f"{number + 1}: you said {words(number)!r}, before that {words(number - 1)!r}, and first of all {words(0)!r}."
    )


def said(server: CrablineTelegram, chat: str) -> list[str]:
    """What the agent said in the chat, as the server took it."""
    calls = [entry["body"] for entry in server.recorded() if entry["path"].endswith("/sendMessage")]
    return [body["text"] for body in calls if str(body.get("chat_id")) == chat]


@contextlib.contextmanager
def running(process: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """Killed at the end, whatever it is at."""
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def done(path: Path) -> int:
    """How many turns are completed."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        connection.set_busy_timeout(5_000)
        [(number,)] = connection.execute("SELECT count(*) FROM inbound WHERE status = 'completed'").fetchall()
        return number
    finally:
        connection.close()


def wait(until: Callable[[], object], what: str) -> None:
    ends = time.monotonic() + PATIENCE_S
    while not until():
        assert time.monotonic() < ends, f"not within {PATIENCE_S:g} s: {what}"
        time.sleep(0.02)


def test_ten_kills_and_a_whole_transcript(tmp_path: Path, bot_api: CrablineTelegram) -> None:
    """CT-9, OB-22, G10, SC-53: it remembers everything, says everything once, and in order."""
    chat = bot_api.create_chat()

    def agent(crash_at: str) -> subprocess.Popen[bytes]:
        environment = {
            **os.environ,
            "MSGLEDGER_CRASH_AT": crash_at,
            "TELEGRAM_TOKEN": bot_api.token,
            "TELEGRAM_URL": bot_api.url,
            "AGENT_LEDGER": str(tmp_path / "agent.db"),
        }
        with (tmp_path / "agent.log").open("ab") as log:
            return subprocess.Popen([sys.executable, "-P", str(AGENT)], env=environment, stdout=log, stderr=log)

    for number, point in enumerate(KILLS):
        bot_api.says(chat, words(number))
        with running(agent(point)) as process:
            wait(lambda process=process: process.poll() is not None, f"{point} is passed")
            assert process.returncode == -signal.SIGKILL, (tmp_path / "agent.log").read_text()[-3000:]
        with running(agent("")):  # and killed again, as `running` leaves nothing alive
            wait(lambda number=number: len(said(bot_api, chat)) > number, "the answer")
            wait(lambda number=number: done(tmp_path / "agent.db") > number, "the end of its turn")
    bot_api.says(chat, words(len(KILLS)))
    with running(agent("")) as process:
        wait(lambda: done(tmp_path / "agent.db") > len(KILLS), "the last answer")
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
    whole = [expected(number) for number in range(len(KILLS) + 1)]
    assert said(bot_api, chat) == whole
    assert transcript(tmp_path / "agent.db") == [
        line for number in range(len(KILLS) + 1) for line in (words(number), expected(number))
    ]


def transcript(path: Path) -> list[str]:
    """The conversation as the ledger tells it."""

    async def read() -> list[str]:
        async with msgledger.reading(path) as ledger:
            return [entry.text for entry in await ledger.history(session, limit=1_000)]

    with Store.open(path, VIEWS, wall_ms=lambda: 0, create=False, read_only=True) as store:
        assert store.verify_views() == []
        [(session,)] = store.read_sync(lambda cursor: cursor.execute("SELECT session_id FROM sessions").fetchall())
    return asyncio.run(read())
