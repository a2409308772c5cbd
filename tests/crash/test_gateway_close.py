"""The orderly end of a gateway in the middle of its I/O, and answers that wait for a ledger that others hold locked."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from .gateway_kit import Crash, Ledger, Op, Process, QaPlatform, Way, own_truth, qa_truth, until

LOCK_WAIT_S = 0.3


def messages(count: int, places: int = 1) -> list[Op]:
    return [Op(key=f"k{n}", place=f"p{n % places}", text=f"t{n}") for n in range(count)]


def closed(process: Process) -> None:
    process.send(signal.SIGTERM)
    assert process.wait() == 0


def test_what_is_under_way_is_waited_for(tmp_path: Path) -> None:
    """FAIL-8, SC-02, G7: the answer comes while the gateway closes, and is recorded; what is behind it goes later."""
    with QaPlatform.start(tmp_path) as platform, Process() as process:
        ledger = Ledger(tmp_path, Way(kind="qa", at=platform.url, deadline_s=5.0))
        truth = qa_truth(platform)
        platform.script({"do": "slow", "delay_s": 0.6})
        process.start(ledger.life(*messages(4), stays=True, wait=False))
        until(lambda: platform.requests() and len(ledger.said()) == 4, "a request, and all that waits behind it")
        closed(process)
        assert truth.texts() == ["t0"]
        assert [row["status"] for row in ledger.end().values()] == ["sent", "pending", "pending", "pending"]
        assert [row["attempts"] for row in ledger.intents().values()] == [1, 0, 0, 0]
        assert process.run(ledger.life()) == 0
        assert truth.texts() == ["t0", "t1", "t2", "t3"]
        ledger.end()


def test_what_does_not_answer_is_unknown(tmp_path: Path) -> None:
    """FAIL-9, UNK-1, SC-06, G4: closing waits until the deadline, says that it does not know, and guesses nothing."""
    with QaPlatform.start(tmp_path) as platform, Process() as process:
        ledger = Ledger(tmp_path, Way(kind="qa", at=platform.url, deadline_s=0.8))
        platform.script({"do": "accept_hang", "after_s": 5})
        process.start(ledger.life(*messages(2), stays=True))
        until(platform.requests, "the request")
        closed(process)
        ledger.end()
        first, *_ = ledger.intents().values()
        assert first["status"] == "unknown_after_send"
        assert ledger.topics(first["id"]) == ["IntentRecorded", "AttemptStarted", "OutcomeUnknown"]
        assert process.run(ledger.life(*messages(2))) == 0
        assert qa_truth(platform).texts() == ["t0", "t1"]
        ledger.end()


def test_a_platform_that_is_down_meanwhile(tmp_path: Path) -> None:
    """SC-02, SC-12, FAIL-11: refused connections prove that nothing was sent, and the next start sends it all."""
    with QaPlatform.start(tmp_path) as platform, Process() as process:
        ledger = Ledger(tmp_path, Way(kind="qa", at=platform.url, deadline_s=2.0))
        platform.kill()
        process.start(ledger.life(*messages(3, places=3), stays=True, wait=False))
        until(lambda: len(ledger.said()) == 3, "the records")
        closed(process)
        assert {row["status"] for row in ledger.end().values()} == {"pending"}
        assert {body["proof"] for _, body in ledger.events("AttemptFailed")} <= {"never_dispatched"}
        platform.restart()
        assert process.run(ledger.life()) == 0
        assert sorted(qa_truth(platform).texts()) == ["t0", "t1", "t2"]
        ledger.end()


def test_closing_in_a_burst_leaves_no_doubt(tmp_path: Path) -> None:
    """SND-7, REC-8, G7: whenever SIGTERM comes, no attempt is left open, and nothing goes out that is not recorded."""
    ledger = Ledger(tmp_path, Way(kind="own", at=str(tmp_path / "own"), look_up=False, deadline_s=3.0, pause_s=0.004))
    truth = own_truth(tmp_path / "own")
    ops = messages(120, places=30)
    with Process() as process:
        for goal in (0, 3, 10, 25, 45):
            said = len(ledger.said())
            process.start(ledger.life(*ops, stays=True, wait=False, settles=False))
            until(lambda goal=goal, said=said: len(truth.lines()) >= goal and len(ledger.said()) > said, "traffic")
            closed(process)
            statuses = {row["status"] for row in ledger.end().values()}
            assert statuses <= {"sent", "pending"}
            sent = [row for row in ledger.intents().values() if row["status"] == "sent"]
            assert len(sent) == len(truth.lines())
        assert process.run(ledger.life(*ops)) == 0
    assert sorted(truth.texts()) == sorted(op.text for op in ops)
    assert {row["status"] for row in ledger.end().values()} == {"sent"}


@pytest.mark.parametrize("point", ["before-begin", "before-commit", "after-commit", "before-wake", "before-deliver"])
def test_closing_between_a_claim_and_its_request(tmp_path: Path, point: str) -> None:
    """SND-7, REC-8, G7: SIGTERM while a first claim is on its way to the disk: it is carried out, or was never made."""
    way = Way(kind="own", at=str(tmp_path / "own"), look_up=False, deadline_s=3.0, pause_s=0.01)
    ledger, truth = Ledger(tmp_path, way), own_truth(tmp_path / "own")
    ops = messages(24, places=24)
    term = Crash(point=point, signal=signal.SIGTERM)
    with Process() as process:
        for number in range(3):
            some = ops[8 * number : 8 * number + 8]
            assert process.run(ledger.life(*some, crash=term, stays=True, wait=False, settles=False)) == 0
            rows = ledger.end().values()
            assert {row["status"] for row in rows} <= {"sent", "pending"}
            assert len([row for row in rows if row["status"] == "sent"]) == len(truth.lines())
        assert process.run(ledger.life(*ops)) == 0
    assert sorted(truth.texts()) == sorted(op.text for op in ops)
    ledger.end()


@contextlib.contextmanager
def locked(ledger: Ledger) -> Iterator[None]:
    """Another program writes, and takes its time."""
    connection = apsw.Connection(str(ledger.path))
    connection.set_busy_timeout(5000)
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        connection.execute("ROLLBACK")
        connection.close()


@pytest.mark.parametrize("answer", ["of a send", "of a look-up", "of nobody"])
def test_an_answer_waits_for_a_locked_ledger(tmp_path: Path, answer: str) -> None:
    """SC-15, SC-70, G3, G12, UNK-3: it comes while another program holds the ledger for longer than an append waits;
    it is recorded all the same, nothing is asked for again, and what was to be decided meanwhile is decided later."""
    with QaPlatform.start(tmp_path) as platform, Process() as process:
        ledger = Ledger(tmp_path, Way(kind="qa", at=platform.url, key=False, deadline_s=4.0))
        slow = {"do": "slow", "delay_s": 0.4}
        if answer == "of a send":
            platform.script(slow)
        elif answer == "of a look-up":
            platform.script("accept_drop")
            platform.script(slow, method="GET")
        else:
            platform.script("accept_drop")
        wanted = "GET" if answer == "of a look-up" else "POST"
        process.start(ledger.life(*messages(1), lock_wait_s=LOCK_WAIT_S))
        until(lambda: wanted in {request["method"] for request in platform.requests()}, "the request")
        with locked(ledger):
            time.sleep(4 * LOCK_WAIT_S)
        assert process.wait() == 0
        assert process.run(ledger.life(*messages(2))) == 0
        assert qa_truth(platform).texts() == ["t0", "t1"]
        assert [request["method"] for request in platform.requests()].count("POST") == 2
        assert {row["status"] for row in ledger.end().values()} == {"sent"}
