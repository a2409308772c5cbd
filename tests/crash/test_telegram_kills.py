"""SIGKILL between every pair of receive steps on a real Bot API server: no update lost, none done twice, none
acknowledged early. What the server is told is judged at the moment when it is told, by the ledger as it stands then.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import apsw
import pytest
from msgledger.ledger.store.crash import INBOUND
from msgledger.ledger.store.store import Store
from msgledger.projections import VIEWS

from ..counterparts.crabline_telegram import CrablineTelegram
from ..counterparts.proxy import Passed, Proxy

pytest_plugins = ("tests.counterparts.fixtures",)
pytestmark = pytest.mark.crabline

SCRIPT = Path(__file__).with_name("telegram_process.py")
LIFE_S = 60
DONE = {
    "after_record": "SELECT count(*) FROM inbound WHERE event_key = ?",
    "after_durable_send": "SELECT count(*) FROM inbound WHERE event_key = ? AND status = 'completed'",
}
"""What must be so before the server may forget an update."""
PASSED_SELDOM = {"before-dispatch", "after-dispatch"}
"""A turn is begun in the commit of its record, unless an earlier one of its lane runs, or its worker died."""


class Judge:
    """Stands between the gateway and the server, and asks the ledger whenever the server is told to forget."""

    def __init__(self, path: Path, policy: str, first: int) -> None:
        self.path, self.policy, self.first = path, policy, first
        self.early: list[int] = []

    def __call__(self, request: Passed) -> None:
        offset = _offset(request)
        if offset is None:
            return
        names = self._names()
        connection = apsw.Connection(str(self.path), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            connection.set_busy_timeout(5_000)
            for number in range(self.first, offset):
                [(found,)] = connection.execute(DONE[self.policy], (names.get(number, "-"),)).fetchall()
                if not found:
                    self.early.append(number)
        finally:
            connection.close()

    def _names(self) -> dict[int, str]:
        """Update to the digest that stands for it, as the ledger's own records say."""
        connection = apsw.Connection(str(self.path), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            rows = connection.execute("SELECT data FROM events WHERE type = 'InboundRecorded'").fetchall()
        finally:
            connection.close()
        events = [json.loads(data) for (data,) in rows]
        return {int(event["content"]["key"]): event["event_key"] for event in events}


def _offset(request: Passed) -> int | None:
    """Of a poll: the server forgets what is before it."""
    if not urlsplit(request.path).path.endswith("/getUpdates"):
        return None
    asked = parse_qs(urlsplit(request.path).query).get("offset", [])
    if not asked and request.body:
        asked = re.findall(rb'"offset":\s*(\d+)', request.body) or []  # type: ignore[assignment]
    return int(asked[0]) if asked else None


def life(path: Path, url: str, token: str, policy: str, done: int, offset: int, crash_at: str = "") -> int:
    environment = {**os.environ, "MSGLEDGER_CRASH_AT": crash_at, "TELEGRAM_TOKEN": token}
    ended = subprocess.run(
        [sys.executable, "-P", str(SCRIPT), str(path), url, policy, str(done), str(offset)],
        env=environment,
        timeout=LIFE_S,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode in (0, -signal.SIGKILL), ended.stderr[-3000:]
    return ended.returncode


@pytest.mark.parametrize("policy", list(DONE))
@pytest.mark.parametrize("point", INBOUND)
def test_killed_between_two_steps(tmp_path: Path, bot_api: CrablineTelegram, point: str, policy: str) -> None:
    """G10, WM-1, ACKK-2, SC-55, SC-57, TC-1, TC-2: at the first passage of each point, under the stricter policy at the
    second too."""
    for hit in (1, 2) if policy == "after_durable_send" else (1,):
        path = tmp_path / f"ledger-{hit}.db"
        bot_api.api("deleteWebhook", drop_pending_updates=True)
        chat = bot_api.create_chat()
        updates = [bot_api.says(chat, f"words {number}")["update_id"] for number in range(2)]
        judge = Judge(path, policy, updates[0])
        with Proxy(bot_api.port, before=judge) as proxy:
            arguments = (path, proxy.url, bot_api.token, policy, 2, updates[-1] + 1)
            status = life(*arguments, crash_at=f"{point}:{hit}")
            if hit == 1 and point not in PASSED_SELDOM:
                assert status != 0, f"{point} is never passed"
            assert status == 0 or life(*arguments) == 0
            calls = [json.loads(one.body) for one in proxy.passed if one.path.endswith("/sendMessage")]
        assert judge.early == [], "the server was told to forget what was not done"
        check(path, updates, [call["text"] for call in calls])


def check(path: Path, updates: list[int], sent: list[str]) -> None:
    """Each update is one message with one completed turn and one answer, which the server was asked for once."""
    with Store.open(path, VIEWS, wall_ms=lambda: 0, create=False, read_only=True) as store:
        assert store.verify_views() == []
        rows = store.read_sync(
            lambda cursor: cursor.execute(
                "SELECT i.id, i.status, i.acknowledged_at IS NOT NULL, group_concat(o.status)"
                " FROM inbound i LEFT JOIN intents o ON o.inbound = i.id GROUP BY i.id ORDER BY i.position"
            ).fetchall()
        )
        events = {id: [one.topic for one in store.events_of(id)] for id, *_ in rows}
    assert len(rows) == len(updates), "an update is lost, or recorded twice"
    for number, (id, status, acknowledged, answers) in enumerate(rows):
        assert (status, acknowledged) == ("completed", 1)
        assert events[id].count("InboundCompleted") == 1
        assert "InboundDispatched" not in events[id][events[id].index("InboundCompleted") :]
        times = sent.count(f"re: words {number}")
        if answers == "sent":
            assert times == 1, "an answer went out twice, or never"
        else:  # the kill cut its request off, and Telegram can neither be asked nor given a key
            assert (answers, times <= 1) == ("unknown_after_send", True), "held, and not sent again"
