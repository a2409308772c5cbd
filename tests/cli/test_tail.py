"""`intents tail`: exact lines, filters, resuming; and followed live while the process that writes is killed."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from .kit import Writer, intent_id, lines, run

WAIT_S = 30.0
WRITER = """
import asyncio, sys
import msgledger
from msgledger import CallableChannel, Message, Target

async def deliver(unit, context):
    return unit.text

async def main():
    async with msgledger.open(sys.argv[1], channels=[CallableChannel("chat", deliver)]) as gateway:
        number = 0
        while True:
            await gateway.send(Message.text(f"n{number}", to=Target.group("chat", "ops")))
            number += 1
            print(number, flush=True)
            await asyncio.sleep(0.01)

asyncio.run(main())
"""


def test_each_event_is_a_line(ledger: Path) -> None:
    """OB-2: position, time, intent, what became of its status, and by what."""
    one, two, three, four = map(intent_id, (1, 2, 3, 4))
    done = run("--ledger", ledger, "intents", "tail", "--after", "3", "--no-follow")
    assert (done.code, done.err) == (0, "")
    assert done.out == lines(
        [
            f"     4  2026-03-01 00:00:02.000Z  {one}  pending -> sending             attempt 1 started (first)",
            f"     5  2026-03-01 00:00:03.000Z  {one}  sending -> committing          attempt 1: unit 0 accepted",
            f"     6  2026-03-01 00:00:03.000Z  {one}  committing -> sent             committed: sent",
            f"     7  2026-03-01 00:00:03.000Z  {two}  pending                        recorded",
            f"     8  2026-03-01 00:00:04.000Z  {two}  pending -> sending             attempt 1 started (first)",
            f"     9  2026-03-01 00:00:05.000Z  {two}  sending -> pending             "
            "attempt 1: not sent, rate_limit (rejected)",
            f"    10  2026-03-01 00:00:05.000Z  {three}  pending                        recorded",
            f"    11  2026-03-01 00:00:06.000Z  {three}  pending -> sending             attempt 1 started (first)",
            f"    12  2026-03-01 00:00:07.000Z  {three}  sending -> unknown_after_send  "
            "attempt 1: outcome unknown (owner_lost)",
            f"    13  2026-03-01 00:00:07.000Z  {four}  pending                        recorded",
        ]
    )


def test_the_same_for_programs(ledger: Path) -> None:
    """OB-2: with the status before and after, and no content."""
    done = run("--ledger", ledger, "intents", "tail", "--after", "5", "--no-follow", "--json", "--status", "sent")
    [found] = [json.loads(line) for line in done.lines]
    assert (found["position"], found["type"], found["before"], found["after"]) == (
        6,
        "IntentCommitted",
        "committing",
        "sent",
    )
    assert found["intent"] == intent_id(1) and "content" not in done.out
    assert found.keys() == {"intent", "version", "position", "recorded_at", "type", "data", "before", "after"}


def positions(ledger: Path, *arguments: str) -> list[int]:
    done = run("--ledger", ledger, "intents", "tail", "--no-follow", *arguments)
    assert done.code == 0, done
    return [int(line.split()[0]) for line in done.lines]


def test_filters_and_where_it_begins(ledger: Path, noon: None) -> None:
    """SC-67: filters are asked of the intent as it is after the event."""
    assert positions(ledger) == []
    assert positions(ledger, "--since", "2026-03-01T00:00:07") == [12, 13]
    assert positions(ledger, "--after", "0", "--target", "room-three") == [10, 11, 12, 13]
    assert positions(ledger, "--after", "0", "--session", "s1") == [3, 4, 5, 6]
    assert positions(ledger, "--after", "0", "--platform-id", "1007") == [5, 6]
    assert positions(ledger, "--after", "0", "--failure", "rate_limit") == [9]
    assert positions(ledger, "--after", "0", "--status", "unknown_after_send", "--status", "sent") == [6, 12]
    assert positions(ledger, "--after", "0", "--channel", "fax") == []


def test_wrong_beginnings_are_refused(ledger: Path) -> None:
    both = run("--ledger", ledger, "intents", "tail", "--after", "1", "--since", "1h")
    assert (both.code, both.out) == (2, "") and "--after and --since both say where to begin" in both.err
    beyond = run("--ledger", ledger, "intents", "tail", "--after", "14")
    assert (beyond.code, beyond.out) == (2, "") and "position 14 is beyond the ledger's head, 13" in beyond.err


def test_a_stream_that_cannot_be_read_is_shown_and_the_rest_goes_on(ledger: Path) -> None:
    """REC-12: its later events too."""
    from .test_intents import damage

    damage(ledger, intent_id(2), 1)
    shown = run("--ledger", ledger, "intents", "tail", "--after", "6", "--no-follow").lines
    assert [int(line.split()[0]) for line in shown] == [7, 8, 9, 10, 11, 12, 13]
    assert "pending -> held" in shown[1] and "AttemptStarted, which this version cannot read" in shown[1]
    assert "held" in shown[2]


class Tail:
    """The command as a process, and the lines that it has written."""

    def __init__(self, ledger: Path, *arguments: str) -> None:
        command = [str(Path(sys.executable).with_name("msgledger")), "--ledger", str(ledger), "intents", "tail"]
        self.process = subprocess.Popen(
            [*command, *arguments], cwd=ledger.parent, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
        )
        self._rest = b""

    def line(self) -> str:
        """The next line."""
        assert self.process.stdout is not None
        ends = time.monotonic() + WAIT_S
        while b"\n" not in self._rest:
            assert select.select([self.process.stdout], [], [], ends - time.monotonic())[0], "no line came"
            part = os.read(self.process.stdout.fileno(), 65_536)
            assert part, "it ended"
            self._rest += part
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode()

    def end(self) -> tuple[int, str]:
        """Ctrl-C: the exit code, and what it said about it."""
        self.process.send_signal(signal.SIGINT)
        _, said = self.process.communicate(timeout=WAIT_S)
        return self.process.returncode, said.decode()


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes that the test has started; none outlives it."""
    processes: list[subprocess.Popen[bytes]] = []
    yield processes
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.wait(WAIT_S)
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()


def test_it_is_followed_over_the_death_of_who_writes(tmp_path: Path, started: list[subprocess.Popen[bytes]]) -> None:
    """OB-2, OB-20: two writers, the first killed with SIGKILL; every position once, in order; Ctrl-C ends it with 0."""
    path = tmp_path / "live.db"
    with Writer(path) as w:
        w.sent(1)
    tail = Tail(path, "--after", "0", "--json")
    started.append(tail.process)
    seen = [json.loads(tail.line()) for _ in range(4)]
    for life in range(2):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], cwd=tmp_path, stdout=subprocess.PIPE)
        started.append(writer)
        assert writer.stdout is not None
        for _ in range(5):
            assert writer.stdout.readline()
        commits = 0
        while commits < 5:
            seen.append(json.loads(tail.line()))
            commits += seen[-1]["type"] == "IntentCommitted"
        if life == 0:
            writer.send_signal(signal.SIGKILL)
            assert writer.wait(WAIT_S) == -signal.SIGKILL
    assert tail.process.poll() is None, "it lives on"
    assert tail.end() == (0, "")
    places = [one["position"] for one in seen]
    expected = [
        int(line.split()[0]) for line in run("--ledger", path, "intents", "tail", "--after", "0", "--no-follow").lines
    ]
    assert places == expected[: len(places)]


def test_it_begins_with_what_happens_from_now_on(ledger: Path, started: list[subprocess.Popen[bytes]]) -> None:
    tail = Tail(ledger)
    started.append(tail.process)
    with Writer(ledger) as w:
        for number in range(20, 200):  # it starts some time between two of these
            w.record(number)
            time.sleep(0.02)
            assert tail.process.stdout is not None
            if select.select([tail.process.stdout], [], [], 0)[0]:
                break
    first = tail.line()
    assert int(first.split()[0]) > 13 and first.endswith("pending                        recorded")
    assert tail.end() == (0, "")


def test_a_chat_is_followed_on_channels_that_come_later(ledger: Path, started: list[subprocess.Popen[bytes]]) -> None:
    """OB-2: a chat without a channel is looked for on every channel, also on one that had no message when it began."""
    tail = Tail(ledger, "--after", "5", "--target", "room-one")
    started.append(tail.process)
    assert tail.line().split()[0] == "6"
    with Writer(ledger) as w:
        w.record(8, channel="fax", target="room-elsewhere")
        w.record(9, channel="fax", target="room-one")
    assert intent_id(9) in tail.line()
    assert tail.end() == (0, "")
