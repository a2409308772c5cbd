"""Two gateways over one ledger, both sending and recovering: one attempt has one sender, and a lane one order."""

from __future__ import annotations

import random
import signal
from pathlib import Path

import msgspec
import pytest

from .gateway_kit import (
    KILLED,
    Crash,
    Ledger,
    Op,
    Process,
    QaPlatform,
    Way,
    own_truth,
    qa_truth,
    until,
)

PLACES = 3
EACH = 10


def ops_of(who: str) -> list[Op]:
    return [Op(key=f"{who}{n}", place=f"p{n % PLACES}", text=f"{who}{n}") for n in range(PLACES * EACH)]


@pytest.mark.parametrize("kind", ["own", "qa"])
def test_both_send_and_recover_and_one_is_killed(tmp_path: Path, kind: str) -> None:
    """G3, G5, G6, G7, OB-10, OB-21, REC-2, REC-9, R7, SC-27: in each lane the order of recording, and nothing twice."""
    with QaPlatform.start(tmp_path, faults="drop=0.05,slow=0.05", seed=5) as platform:
        own = tmp_path / "own"
        at = str(own) if kind == "own" else platform.url
        ledger = Ledger(tmp_path, Way(kind=kind, at=at, deadline_s=0.6, pause_s=0.01))
        truth = own_truth(own) if kind == "own" else qa_truth(platform)
        chance = random.Random(4)
        steady, mortal = ops_of("a"), ops_of("b")
        with Process() as one, Process() as other:
            one.start(ledger.life(*steady, said=str(tmp_path / "said-one"), settles=False))
            killed = 0
            for _ in range(6):
                goal = len(truth.lines()) + chance.randint(1, 8)
                other.start(ledger.life(*mortal, settles=False))
                until(lambda goal=goal: other.ended() or len(truth.lines()) > goal, "some traffic")
                if other.ended():
                    assert other.wait() == 0
                    break
                other.send(signal.SIGKILL)
                killed += other.wait() == KILLED
            assert other.run(ledger.life(*mortal, settles=False)) == 0
            assert one.wait() == 0
        assert killed >= 2
        assert {row["status"] for row in ledger.end().values()} == {"sent"}
        for place in range(PLACES):
            shown = truth.texts(f"p{place}")
            assert sorted(shown) == sorted(op.text for op in steady + mortal if op.place == f"p{place}")
            for who in ("a", "b"):
                assert [text for text in shown if text[0] == who] == sorted(
                    (text for text in shown if text[0] == who), key=lambda text: int(text[1:])
                )
        assert in_order_of_recording(ledger, truth.sends())


def in_order_of_recording(ledger: Ledger, lines: list[dict[str, object]]) -> bool:
    """Whether in each place the messages became visible in the order in which they were recorded."""
    position = {stream.replace("-", ""): number for number, (stream, _) in enumerate(ledger.events("IntentRecorded"))}
    last: dict[object, int] = {}
    for line in lines:
        now = position[str(line["key"])[:32]]
        if now < last.get(line["place"], -1):
            return False
        last[line["place"]] = now
    return True


def test_the_same_work_in_two_processes(tmp_path: Path) -> None:
    """SC-28, SC-44, SC-45, OB-3, OB-10: a one-shot program and a gateway send the same messages at once; each goes out
    once, and both callers are told of the same intents."""
    ledger = Ledger(tmp_path, Way(kind="own", at=str(tmp_path / "own"), deadline_s=2.0, pause_s=0.005))
    ops = ops_of("x")
    with Process() as one, Process() as other:
        one.start(ledger.life(*ops))
        other.start(ledger.life(*ops))
        assert one.wait() == other.wait() == 0
    assert sorted(own_truth(tmp_path / "own").texts()) == sorted(op.text for op in ops)
    told = {(line["key"], line["intent"], line["status"]) for line in ledger.said()}
    assert len(told) == len(ops)
    assert {row["status"] for row in ledger.end().values()} == {"sent"}


def test_a_living_owner_is_left_alone(tmp_path: Path) -> None:
    """OB-4, OB-12, SC-27: while its request is under way another gateway touches nothing, whatever its name."""
    with QaPlatform.start(tmp_path) as platform, Process() as owner, Process() as other:
        ledger = Ledger(tmp_path, Way(kind="qa", at=platform.url, deadline_s=10.0))
        platform.script({"do": "slow", "delay_s": 0.8})
        owner.start(ledger.life(Op(key="k", place="p", text="slow"), name="gate) S 1 (way"))
        until(platform.requests, "the request")
        other.start(ledger.life())
        assert owner.wait() == other.wait() == 0
        assert len(platform.requests()) == 1
        assert qa_truth(platform).texts() == ["slow"]
        (intent,) = ledger.end()
        assert ledger.topics(intent) == ["IntentRecorded", "AttemptStarted", "UnitAccepted", "IntentCommitted"]


def test_a_paused_owner_looks_again_before_it_sends(tmp_path: Path) -> None:
    """G5, R9, R10, REC-9: stopped between its claim and its request, beyond its lease; the other has sent by then."""
    ledger = Ledger(tmp_path, Way(kind="own", at=str(tmp_path / "own"), deadline_s=0.5))
    truth = own_truth(tmp_path / "own")
    stop = Crash(point="after-record", signal=signal.SIGSTOP)
    with Process() as paused, Process() as other:
        pid = paused.start(ledger.life(Op(key="k", place="p", text="once"), crash=stop))
        until(lambda: stopped(pid), "the pause")
        assert other.run(ledger.life()) == 0
        assert truth.texts() == ["once"]
        paused.send(signal.SIGCONT)
        assert paused.wait() == 0
    assert truth.texts() == ["once"]
    (row,) = ledger.end().values()
    assert (row["status"], row["attempts"]) == ("sent", 2)


def held_while_its_owner_pauses(ledger: Ledger, paused: Process, other: Process, then: Crash | None = None) -> None:
    """The owner has the platform's answer in hand and stops; the other takes over after the lease, and holds it."""
    stop = Crash(point="after-deliver", signal=signal.SIGSTOP)
    pid = paused.start(ledger.life(Op(key="k", place="p", text="once"), crash=stop, then=then))
    until(lambda: stopped(pid), "the pause")
    assert other.run(ledger.life()) == 0
    (row,) = ledger.intents().values()
    assert (row["status"], row["hold"]) == ("unknown_after_send", "unresolved")
    paused.send(signal.SIGCONT)


def test_what_a_late_owner_knows_is_recorded(tmp_path: Path) -> None:
    """G5, R2, R6, UNK-1, OB-11: nobody else could know; its answer settles what was held, and nothing is sent again."""
    ledger = Ledger(tmp_path, Way(kind="own", at=str(tmp_path / "own"), look_up=False, deadline_s=0.5))
    with Process() as paused, Process() as other:
        held_while_its_owner_pauses(ledger, paused, other)
        assert paused.wait() == 0
    assert own_truth(tmp_path / "own").texts() == ["once"]
    (row,) = ledger.end().values()
    assert (row["status"], row["contradictions"], row["hold"]) == ("sent", 0, None)


def test_a_receipt_without_its_commit_is_only_committed(tmp_path: Path) -> None:
    """SC-15, REC-3, GAP-3, G3: its late answer is durable when the owner dies; the next start asks nobody anything."""
    ledger = Ledger(tmp_path, Way(kind="own", at=str(tmp_path / "own"), look_up=False, deadline_s=0.5))
    with Process() as paused, Process() as other:
        held_while_its_owner_pauses(ledger, paused, other, Crash(point="after-fact"))
        assert paused.wait() == KILLED
        (row,) = ledger.intents().values()
        assert row["status"] == "committing"
        assert other.run(ledger.life()) == 0
    assert own_truth(tmp_path / "own").texts() == ["once"]
    (intent, row), *none = ledger.end().items()
    assert (row["status"], none) == ("sent", [])
    assert ledger.topics(intent)[-2:] == ["UnitAccepted", "IntentCommitted"]


def test_what_one_records_the_other_sends(tmp_path: Path) -> None:
    """REC-9, OB-5, SC-21, SC-03: recorded by one that was not connected and died; one that runs already sends it."""
    ledger = Ledger(tmp_path, Way(kind="own", at=str(tmp_path / "own"), deadline_s=20.0))
    truth = own_truth(tmp_path / "own")
    ops = [Op(key=f"k{n}", place="p", text=f"left{n}") for n in range(3)]
    with Process() as runs, Process() as dies:
        dies.start(ledger.life(*ops, way=msgspec.structs.replace(ledger.way, ready=False), wait=False, stays=True))
        until(lambda: len(ledger.said()) == 3, "the records")
        assert truth.texts() == []
        runs.start(ledger.life(stays=True))
        dies.kill()
        until(lambda: len(truth.texts()) == 3, "the other's messages", 10)
        runs.send(signal.SIGTERM)
        assert runs.wait() == 0
    assert truth.texts() == [op.text for op in ops]
    assert [row["attempts"] for row in ledger.end().values()] == [1, 1, 1]


def stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
