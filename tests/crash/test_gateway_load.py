"""Gateways under load over several lanes, killed again and again, on platforms that fail in every way they can.

Kills come by what the platform has accepted, not by the clock, so that they fall into the middle of the traffic however
slow the machine is. Messages of one place are handed over one after the other, and must become visible in that order.
"""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

import pytest

from .gateway_kit import KILLED, Ledger, Life, Op, Process, QaPlatform, Truth, Way, own_truth, qa_truth, until

PLACES = 5
EACH = 8
KILLS = 6


def traffic(places: int = PLACES, each: int = EACH) -> list[Op]:
    """Single messages and some of three parts, in several places."""
    return [
        Op(key=f"{place}/{number}", place=f"p{place}", text=f"p{place}-{number}", parts=3 if number % 4 == 3 else 1)
        for place in range(places)
        for number in range(each)
    ]


def texts_of(op: Op) -> list[str]:
    return [op.text] if op.parts == 1 else [f"{op.text}.{part}" for part in range(op.parts)]


def all_once_in_order(truth: Truth, ops: list[Op]) -> None:
    for place in sorted({op.place for op in ops}):
        wanted = [text for op in ops if op.place == place for text in texts_of(op)]
        assert truth.texts(place) == wanted


def killed_often(process: Process, ledger: Ledger, truth: Truth, life: Life, *, seed: int, kills: int) -> int:
    """Lives that are killed after a few more messages, and one to the end. How many were killed."""
    chance = random.Random(seed)
    killed = 0
    for _ in range(kills):
        goal = len(truth.lines()) + chance.randint(0, 6)
        process.start(life)
        until(lambda goal=goal: process.ended() or len(truth.lines()) > goal, "some traffic")
        time.sleep(chance.random() * 0.02)
        if process.ended():
            assert process.wait() == 0
            break
        ledger.peek()
        process.send(signal.SIGKILL)
        killed += process.wait() == KILLED
        ledger.look()
    assert process.run(life) == 0, (ledger.folder / "said.log").read_text()[-3000:]
    return killed


@pytest.mark.parametrize("way", ["key", "look_up", "own"])
def test_killed_in_the_middle_of_load(tmp_path: Path, way: str) -> None:
    """G2, G3, G4, G6, G7, G9, OB-7, OB-21, UNK-1, REC-9, SC-36, SC-37, SC-38: every part once, in order, nothing owed.

    Kills come during recovery too: a life begins with what the one before it left.
    """
    ops = traffic()
    with Process() as process:
        if way == "own":
            ledger = Ledger(tmp_path, Way(kind="own", at=str(tmp_path / "own"), deadline_s=0.6, pause_s=0.01))
            truth = own_truth(tmp_path / "own")
            killed = killed_often(process, ledger, truth, ledger.life(*ops, settles=False), seed=1, kills=KILLS)
        else:
            with QaPlatform.start(tmp_path, faults="drop=0.05,error=0.05,slow=0.02,lose=0.05", seed=7) as platform:
                by_key = way == "key"
                channel = Way(
                    kind="qa", at=platform.url, key=by_key, look_up=not by_key, deadline_s=2 if by_key else 0.6
                )
                ledger, truth = Ledger(tmp_path, channel), qa_truth(platform)
                killed = killed_often(process, ledger, truth, ledger.life(*ops, settles=False), seed=2, kills=KILLS)
        assert killed >= 3
        all_once_in_order(truth, ops)
        assert {row["status"] for row in ledger.end().values()} == {"sent"}


def test_a_copy_is_marked_however_often_recovery_dies(tmp_path: Path) -> None:
    """OB-7, UNK-7, G4, G7: under an at-least-once policy nothing is lost, and of an unmarked message there is one."""
    ops = [Op(key=f"k{n}", place=f"p{n % 3}", text=f"t{n}", copies=True) for n in range(18)]
    ledger = Ledger(tmp_path, Way(kind="own", at=str(tmp_path / "own"), look_up=False, deadline_s=1.0, pause_s=0.02))
    truth = own_truth(tmp_path / "own")
    with Process() as process:
        killed = killed_often(process, ledger, truth, ledger.life(*ops, settles=False), seed=3, kills=10)
    assert killed >= 4
    assert {row["status"] for row in ledger.end().values()} == {"sent"}
    unmarked = truth.unmarked()
    assert len(unmarked) == len(set(unmarked)), "an unmarked copy"
    seen = {text.split()[-1] for text in truth.texts()}
    assert seen == {op.text for op in ops}
    allowed = [body for _, body in ledger.events("AttemptStarted") if body.get("marked")]
    assert len(truth.texts()) - len(unmarked) <= len(allowed)


FATES = [
    "accept_drop",
    "drop",
    "accept_truncated",
    "server_error",
    "malformed",
    "accept_no_id",
    "hang",
    "late",
    "limit",
]


@pytest.mark.parametrize("by", ["key", "look_up"])
def test_a_platform_that_fails_in_every_way_and_is_killed(tmp_path: Path, by: str) -> None:
    """G3, G4, G6, G7, R1, R3, R6, UNK-3, UNK-4, BAT-7, SC-38, SC-39, FAIL-2, FAIL-9: nothing lost, nothing doubled.

    It takes a message and loses the answer, or loses the message, cuts the answer off, answers nonsense or 500 after it
    took it, gives no id, hangs, takes it later than it said, or asks the whole account to wait; and is killed twice.
    """
    ops = traffic(places=len(FATES), each=3)
    with QaPlatform.start(tmp_path) as platform, Process() as process:
        way = Way(kind="qa", at=platform.url, key=by == "key", look_up=by != "key", deadline_s=0.6, settle_s=0.6)
        ledger, truth = Ledger(tmp_path, way), qa_truth(platform)
        platform.settings(text_max=2000)
        fates(platform)
        process.start(ledger.life(*ops, wait=False, stays=True))
        for goal in (6, 14):
            until(lambda goal=goal: len(truth.lines()) >= goal, "some traffic")
            platform.kill()
            time.sleep(0.3)
            platform.restart()
        parts = sum(op.parts for op in ops)
        until(lambda: len(truth.lines()) >= parts, "all of it")
        process.send(signal.SIGTERM)
        assert process.wait() == 0
        assert process.run(ledger.life(*ops)) == 0  # what was not acknowledged is done again; the rest stands
        all_once_in_order(truth, ops)
        assert {row["status"] for row in ledger.end().values()} == {"sent"}


def fates(platform: QaPlatform) -> None:
    """One for each place; `all` of them come before the platform is killed for the first time."""
    actions = {
        "server_error": {"do": "server_error", "accepted": True},
        "hang": {"do": "accept_hang", "after_s": 2},
        "late": {"do": "accept_late", "after_s": 0.3},
        "limit": {"do": "rate_limit", "retry_after_s": 0.3, "scope": "account"},
    }
    for number, fate in enumerate(FATES):
        platform.script(actions.get(fate, fate), place=f"p{number}")


def test_what_is_taken_late_is_waited_for(tmp_path: Path) -> None:
    """R1, UNK-4, UNK-5, G4: not there yet is no proof while the lease runs; taken for one, each comes twice."""
    ops = [Op(key=f"k{n}", place=f"p{n}", text=f"t{n}") for n in range(6)]
    with QaPlatform.start(tmp_path) as platform, Process() as process:
        way = Way(kind="qa", at=platform.url, key=False, deadline_s=0.8, settle_s=0.8)
        ledger = Ledger(tmp_path, way)
        platform.script({"do": "accept_late", "after_s": 0.6}, times=6)
        assert process.run(ledger.life(*ops)) == 0
        time.sleep(0.8)  # whatever was late is there by then
        assert sorted(qa_truth(platform).texts()) == [op.text for op in ops]
        assert {row["status"] for row in ledger.end().values()} == {"sent"}


def test_a_short_outage_under_many_lanes_stays_short(tmp_path: Path) -> None:
    """SC-12, REC-9, FAIL-11: requests that are refused together are one failure, not a dozen in a row."""
    ops = [Op(key=f"k{n}", place=f"p{n}", text=f"t{n}") for n in range(24)]
    with QaPlatform.start(tmp_path) as platform, Process() as process:
        ledger = Ledger(tmp_path, Way(kind="qa", at=platform.url, deadline_s=2.0))
        platform.kill()
        process.start(ledger.life(*ops, wait=False, stays=True))
        until(lambda: len(ledger.said()) == len(ops), "the records")
        platform.restart()
        until(lambda: len(platform.accepted()) == len(ops), "all of it", 10)
        process.send(signal.SIGTERM)
        assert process.wait() == 0
        assert {row["status"] for row in ledger.end().values()} == {"sent"}
