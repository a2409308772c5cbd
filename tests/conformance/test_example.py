"""The example is run as its docstring says, killed in the middle of its work, and still counts everything once."""

from __future__ import annotations

import contextlib
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from msgledger.ledger import events as e
from msgledger.ledger.store.append import NEW, Append
from msgledger.ledger.store.store import Store
from msgspec.structs import replace

from ..unit.store_kit import AT, accepted, committed, open_store, recorded, started, stream_id

SCRIPT = Path(__file__).parents[2] / "examples" / "delivery_times.py"
KILLS = 5
WAIT_S = 30.0

Row = tuple[str, int, int, int, int, int]


class Truth:
    """Messages of three channels in the ledger, and the table that they must lead to."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._chance = random.Random(5)
        self._rows = {channel: [0, 0, 0, 0, 0] for channel in ("matrix", "qa", "slack")}

    def add(self, messages: int) -> None:
        """Some are sent, some fail, some are taken back, some stay open."""
        channels = sorted(self._rows)
        appends: list[Append] = []
        for number in range(messages):
            channel, stream = channels[number % 3], stream_id()
            row = self._rows[channel]
            row[0] += 1
            first = replace(recorded(f"k {stream}", lane=stream), channel=channel)
            fate = self._chance.choice(("sent", "sent", "sent", "failed", "cancelled", "open"))
            took_ms = self._chance.randrange(5_000)
            events: tuple[e.Event, ...] = (first,)
            if fate == "sent":
                events += started(), accepted(), replace(committed(), at=AT + took_ms)
                row[1] += 1
                row[3] += took_ms
                row[4] = max(row[4], took_ms)
            elif fate == "failed":
                events += (e.IntentFailed(at=AT + took_ms, by="gateway:g", reason="expired"),)
                row[2] += 1
            elif fate == "cancelled":
                events += (e.IntentCancelled(at=AT + took_ms, by="operator:o@h", reason="a mistake"),)
                row[2] += 1
            appends.append(Append(stream, events, NEW))
        self._store.append_sync(*appends)

    def table(self) -> list[Row]:
        return [(channel, *row) for channel, row in sorted(self._rows.items())]


class Times:
    """The example's file, looked at from outside."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def select(self, text: str) -> list[tuple]:
        with contextlib.closing(sqlite3.connect(self._path)) as connection:
            return connection.execute(text).fetchall()

    def position(self) -> int:
        """How far it has come; 0 before it began."""
        try:
            rows = self.select("SELECT notification_id FROM tracking WHERE application_name = 'LedgerApplication'")
        except sqlite3.OperationalError:
            return 0  # it has no tables yet
        return rows[0][0] if rows else 0


@contextlib.contextmanager
def running(*arguments: object) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-P", str(SCRIPT), *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def test_killed_again_and_again_it_misses_nothing_and_counts_nothing_twice(tmp_path: Path) -> None:
    path, times = tmp_path / "ledger.db", Times(tmp_path / "times.db")
    with open_store(path) as store:
        truth = Truth(store)
        truth.add(250)
        for _ in range(KILLS):
            before = times.position() + random.randrange(100)
            with running(path, times._path) as process:
                deadline = time.monotonic() + WAIT_S
                while times.position() <= before:
                    assert process.poll() is None, process.communicate()[1]
                    assert time.monotonic() < deadline
                truth.add(50)
                process.send_signal(signal.SIGKILL)
                process.wait(WAIT_S)
            assert before < times.position() < store.head_position(), "killed in the middle of it"
        with running(path, times._path, "--once") as process:
            printed, complaints = process.communicate(timeout=WAIT_S)
        assert (process.returncode, complaints) == (0, "")
        assert times.position() == store.head_position()
    found = times.select("SELECT channel, recorded, sent, unsent, total_ms, longest_ms FROM times ORDER BY channel")
    assert found == truth.table()
    left = times.select("SELECT count(*) FROM open_messages")[0][0]
    assert left == sum(recorded - sent - unsent for _, recorded, sent, unsent, _, _ in found)
    assert [line.split()[:4] for line in printed.splitlines()[1:]] == [list(map(str, row[:4])) for row in found]


def test_it_follows_until_it_is_interrupted(tmp_path: Path) -> None:
    path, times = tmp_path / "ledger.db", Times(tmp_path / "times.db")
    with open_store(path) as store:
        truth = Truth(store)
        truth.add(9)
        with running(path, times._path) as process:
            for _ in range(2):
                deadline = time.monotonic() + WAIT_S
                while times.position() < store.head_position():
                    assert process.poll() is None and time.monotonic() < deadline
                    time.sleep(0.005)
                truth.add(3)
            process.send_signal(signal.SIGINT)
            printed, complaints = process.communicate(timeout=WAIT_S)
        assert (process.returncode, complaints) == (0, "")
        assert printed.splitlines()[0].split()[:2] == ["channel", "recorded"]


def test_a_wrong_path_is_told(tmp_path: Path) -> None:
    with running(tmp_path / "none.db", tmp_path / "times.db", "--once") as process:
        _, complaints = process.communicate(timeout=WAIT_S)
    assert process.returncode == 1
    assert "none.db is not there; check the path" in complaints.splitlines()[-1]
