"""SIGKILL between every pair of receive steps: nothing lost, nothing dispatched twice, nothing acknowledged early."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from itertools import count
from pathlib import Path
from typing import Any

import apsw
import pytest
from msgledger.ledger.store.crash import INBOUND
from msgledger.ledger.store.store import Store
from msgledger.projections import VIEWS

from .inbound_process import Books

SCRIPT = Path(__file__).with_name("inbound_process.py")
BESIDE = ("before-commit", "after-commit", "before-record", "after-record", "before-deliver", "after-deliver")
"""Points of the writer and of the answer, which lie between."""
UPDATES = [
    {"n": 5, "chat": "room-one", "text": "first words"},
    {"n": 6, "chat": "room-two", "text": "other words"},
    {"n": 7, "chat": "room-one", "text": "last words"},
]
HITS_MAX = 2
"""The first passage is that of the first message, whose lane is free; the second, of one beside it."""
LIFE_S = 60


def life(folder: Path, policy: str, crash_at: str = "") -> int:
    environment = {**os.environ, "MSGLEDGER_CRASH_AT": crash_at, "PYTHONWARNINGS": "error"}
    done = subprocess.run(
        [sys.executable, "-P", str(SCRIPT), str(folder), policy],
        env=environment,
        timeout=LIFE_S,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr[-3000:]
    return done.returncode


def events(folder: Path) -> list[tuple[str, str, dict[str, Any]]]:
    """Stream, type and body, in order; from a copy, so that the next process meets what the killed one left."""
    path = folder / "ledger.db"
    if not path.exists():
        return []
    copy = folder / "look"
    copy.mkdir(exist_ok=True)
    for name in ("ledger.db", "ledger.db-wal"):
        if (folder / name).exists():
            (copy / name).write_bytes((folder / name).read_bytes())
    connection = apsw.Connection(str(copy / "ledger.db"))
    try:
        if not connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'events'").fetchone():
            return []
        rows = connection.execute("SELECT stream, type, data FROM events ORDER BY position").fetchall()
    finally:
        connection.close()
    return [(stream, type, json.loads(data)) for stream, type, data in rows]


def acknowledged_early(folder: Path, policy: str) -> list[int]:
    """Updates that the platform was told to forget although the policy's point was not durable."""
    told = max((line["offset"] for line in Books(folder).read("polls")), default=0)
    reached: set[int] = set()
    numbers: dict[str, int] = {}
    for stream, type, data in events(folder):
        if type == "InboundRecorded":
            numbers[stream] = int(data["content"]["key"])
        if type == ("InboundRecorded" if policy == "after_record" else "InboundCompleted"):
            reached.add(numbers[stream])
    return [update["n"] for update in UPDATES if update["n"] < told and update["n"] not in reached]


def check(folder: Path) -> None:
    found = events(folder)
    recorded = {data["content"]["key"]: stream for stream, type, data in found if type == "InboundRecorded"}
    assert sorted(recorded) == ["5", "6", "7"], "an update is lost, or recorded twice"
    for stream in recorded.values():
        types = [type for one, type, _ in found if one == stream]
        assert types.count("InboundCompleted") == 1
        assert types.count("Acknowledged") == 1
        assert types[types.index("InboundCompleted") :].count("InboundDispatched") == 0
    visible = Books(folder).read("visible")
    assert sorted(line["text"] for line in visible) == ["re: first words", "re: last words", "re: other words"]
    here = [line["text"] for line in visible if line["chat"] == "room-one"]
    assert here == ["re: first words", "re: last words"]
    with Store.open(folder / "ledger.db", VIEWS, wall_ms=lambda: 0, create=False, read_only=True) as store:
        assert store.verify_views() == []


@pytest.mark.parametrize("policy", ["after_record", "after_durable_send"])
@pytest.mark.parametrize("point", [*INBOUND, *BESIDE])
def test_killed_at_each_passage_and_started_again(tmp_path: Path, point: str, policy: str) -> None:
    """G10, ACKP-2, ACKP-3, RCV-3, OB-22, SC-55, SC-57, SC-58, G9: no update is lost, none dispatched again once it is
    done, none acknowledged before its policy's point is durable."""
    killed = 0
    for hit in count(1):
        folder = tmp_path / str(hit)
        folder.mkdir()
        (folder / "updates.json").write_text(json.dumps(UPDATES))
        status = life(folder, policy, f"{point}:{hit}")
        killed += status != 0
        assert acknowledged_early(folder, policy) == []
        if status != 0:
            assert life(folder, policy) == 0
        assert acknowledged_early(folder, policy) == []
        check(folder)
        if status == 0 or hit == HITS_MAX:
            break
    if point not in ("before-dispatch", "after-dispatch"):  # hit only where a turn was put off, or taken over
        assert killed > 0, f"{point} is never passed"


@pytest.mark.parametrize("point", ["before-dispatch", "after-dispatch"])
def test_killed_again_while_it_takes_over(tmp_path: Path, point: str) -> None:
    """G10, SC-49: a turn that was cut off is claimed anew, and that claim is cut off too."""
    (tmp_path / "updates.json").write_text(json.dumps(UPDATES))
    assert life(tmp_path, "after_record", "after-handler") != 0
    assert life(tmp_path, "after_record", point) != 0, f"{point} is never passed"
    assert life(tmp_path, "after_record") == 0
    check(tmp_path)
