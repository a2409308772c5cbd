"""Gateways as processes that a test starts and kills; what became of everything; and the ledger, read from outside.

What a platform holds is told by its own record. The ledger is read from a copy of its files, made while nobody has it
open, so that the next process meets what the killed one left: nothing here repairs anything for it.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Self

import apsw
import msgspec
from msgledger.adapters.qa_platform import QaPlatform
from msgledger.adapters.text import DUPLICATE_MARKER
from msgledger.ledger.store.store import Store
from msgledger.projections import VIEWS

from .gateway_process import Crash, Life, Op, Way

SCRIPT = Path(__file__).with_name("gateway_process.py")
WAIT_S = 40.0
KILLED = -signal.SIGKILL

Line = dict[str, Any]


def until(true: Callable[[], object], what: str, timeout_s: float = WAIT_S) -> None:
    """Blocks until it is so; fails where it never comes to that."""
    ends = time.monotonic() + timeout_s
    while not true():
        if time.monotonic() > ends:
            raise AssertionError(f"not within {timeout_s:g} s: {what}")
        time.sleep(0.005)


class Process:
    """Lives of one gateway, one after the other. Use as a context manager; it leaves nothing running."""

    def __init__(self) -> None:
        self.pid: int | None = None
        """Of the life that goes on."""
        self._nursery = subprocess.Popen(
            [sys.executable, "-P", str(SCRIPT), "--nursery"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.pid is not None:
            with contextlib.suppress(AssertionError):
                self.kill()
        assert self._nursery.stdin is not None and self._nursery.stdout is not None
        self._nursery.stdin.close()
        self._nursery.wait(WAIT_S)
        self._nursery.stdout.close()

    def start(self, life: Life) -> int:
        assert self.pid is None and self._nursery.stdin is not None
        self._nursery.stdin.write(msgspec.json.encode(life) + b"\n")
        self.pid = self._number()
        return self.pid

    def wait(self, timeout_s: float = WAIT_S) -> int:
        """How the life ended: 0, or the signal as a negative number."""
        status = self._number(timeout_s)
        self.pid = None
        return status

    def run(self, life: Life) -> int:
        self.start(life)
        return self.wait()

    def send(self, number: int) -> None:
        """A life that has just ended by itself hears nothing; `wait` tells how it ended."""
        assert self.pid is not None
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL; returns when it is dead."""
        self.send(signal.SIGKILL)
        status = self.wait()
        assert status in (KILLED, 0), f"it had ended already, with {status}"

    def ended(self) -> bool:
        assert self._nursery.stdout is not None
        return bool(select.select([self._nursery.stdout], [], [], 0)[0])

    def _number(self, timeout_s: float = WAIT_S) -> int:
        assert self._nursery.stdout is not None
        ready, _, _ = select.select([self._nursery.stdout], [], [], timeout_s)
        assert ready, f"process {self.pid} goes on after {timeout_s:g} s"
        return int(self._nursery.stdout.readline())


class Ledger:
    """One ledger file from outside. `look` after each death: what was there must still be there, byte for byte."""

    def __init__(self, folder: Path, way: Way) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.way = folder, way
        self.path = folder / "ledger.db"
        self.rows: list[tuple[Any, ...]] = []

    def life(self, *ops: Op, **more: Any) -> Life:
        more = {"way": self.way, "said": str(self.folder / "said")} | more
        return Life(ledger=str(self.path), ops=list(ops), **more)

    def said(self) -> list[Line]:
        """What callers were told, by whichever life."""
        path = self.folder / "said"
        return [json.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []

    def look(self) -> None:
        """History only grows, its positions have no gaps, and what a caller was told is in it."""
        if not self.path.exists():
            return
        copy = self.folder / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        copy.mkdir()
        for name in ("ledger.db", "ledger.db-wal"):
            with contextlib.suppress(FileNotFoundError):
                shutil.copy(self.folder / name, copy / name)
        self.grown(events_in(copy / "ledger.db"), self.said())

    def peek(self) -> None:
        """What can be read while it is written: from then on it must stay."""
        said = self.said()
        with contextlib.suppress(apsw.Error):  # it is being made
            self.grown(events_in(self.path, apsw.SQLITE_OPEN_READONLY), said)

    def grown(self, rows: list[tuple[Any, ...]], said: list[Line]) -> None:
        assert rows[: len(self.rows)] == self.rows, "an event that was readable is gone or changed"
        assert [row[0] for row in rows] == list(range(1, len(rows) + 1)), "positions have a gap"
        versions: dict[str, int] = {}
        for row in rows:
            assert row[2] == versions.get(row[1], -1) + 1, f"stream {row[1]} has a gap at {row[2]}"
            versions[row[1]] = row[2]
        self.rows = rows
        lost = [line for line in said if line["intent"] not in versions]
        assert lost == [], "a caller was told of an intent that is not in the ledger"

    def events(self, topic: str = "") -> list[tuple[str, Line]]:
        """(stream, body) of the events of one kind, in order."""
        return [(row[1], json.loads(row[4])) for row in self.rows if not topic or row[3] == topic]

    def topics(self, intent: str) -> list[str]:
        return [row[3] for row in self.rows if row[1] == intent]

    def committed(self) -> set[str]:
        return {row[1] for row in self.rows if row[3] == "IntentCommitted"}

    def intents(self) -> dict[str, Line]:
        """The rows of the view by intent."""
        connection = apsw.Connection(str(self.path), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            cursor = connection.execute("SELECT * FROM intents ORDER BY position")
            names = [name for name, *_ in cursor.getdescription()] if cursor else []
            return {row[0]: dict(zip(names, row, strict=True)) for row in cursor}
        except apsw.ExecutionCompleteError:
            return {}
        finally:
            connection.close()

    def needs(self) -> int:
        """How many files beside it are still needed."""
        connection = apsw.Connection(str(self.path), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            return connection.execute("SELECT count(*) FROM media WHERE needed_until IS NOT NULL").get
        finally:
            connection.close()

    def end(self) -> dict[str, Line]:
        """The checks after the last life: rebuilt views are the live ones. Returns the rows of the view."""
        self.look()
        with Store.open(self.path, VIEWS, wall_ms=lambda: time.time_ns() // 1_000_000, read_only=True) as store:
            assert store.verify_views() == []
        return self.intents()


def events_in(path: Path, flags: int = apsw.SQLITE_OPEN_READWRITE) -> list[tuple[Any, ...]]:
    connection = apsw.Connection(str(path), flags=flags)
    try:
        if not connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'stored_events'").get:
            return []
        columns = "notification_id, originator_id, originator_version, topic, state, recorded_at"
        return list(connection.execute(f"SELECT {columns} FROM stored_events ORDER BY notification_id"))
    finally:
        connection.close()


class Truth:
    """What became visible on a platform, in its order, from the platform's own record."""

    def __init__(self, requests: Callable[[], Iterable[Line]]) -> None:
        self.requests = requests
        """Every request that it took, also where it recognised its key and showed nothing."""

    def lines(self) -> list[Line]:
        return [line for line in self.requests() if line["action"] != "recognised"]

    def sends(self, place: str | None = None) -> list[Line]:
        return [x for x in self.lines() if x["action"] == "send" and place in (None, x["place"])]

    def texts(self, place: str | None = None) -> list[str]:
        """First word of every message, or the name of its file; a marked copy keeps its marker."""
        return [token(line["text"] or line["media"]["name"]) for line in self.sends(place)]

    def unmarked(self, place: str | None = None) -> list[str]:
        return [text for text in self.texts(place) if not text.startswith(DUPLICATE_MARKER.strip())]

    def of(self, action: str, id: object) -> list[Line]:
        return [line for line in self.lines() if line["action"] == action and str(line["id"]) == str(id)]

    def count(self, text: str) -> int:
        return self.texts().count(text)


def token(text: str) -> str:
    """What tells one message of a test from the others: its first word, behind the marker where it has one."""
    marker = DUPLICATE_MARKER.strip()
    bare = text.removeprefix(DUPLICATE_MARKER)
    word = bare.split()[0]
    return word if bare == text else f"{marker} {word}"


def marked(text: str) -> str:
    return f"{DUPLICATE_MARKER.strip()} {text}"


def qa_truth(platform: QaPlatform) -> Truth:
    return Truth(lambda: platform.accepted(recognised=True))


def own_truth(file: Path) -> Truth:
    def lines() -> list[Line]:
        return [json.loads(line) for line in file.read_bytes().splitlines()] if file.exists() else []

    return Truth(lines)


__all__ = ["KILLED", "Crash", "Ledger", "Life", "Op", "Process", "QaPlatform", "Truth", "Way", "own_truth", "qa_truth"]
