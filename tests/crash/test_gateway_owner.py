"""Who counts as dead is told by a file lock: not by a process id, a state in /proc, or a name."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from .gateway_kit import SCRIPT, Ledger, Life, Op, Process, QaPlatform, Way, qa_truth, until

NAMESPACE = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child"]
"""A process with a numbering of its own, in which it is the first."""
DEADLINE_S = 20.0
AT_ONCE_S = 8.0
"""Far less than the lease: whoever is waited for so long was not seen to be dead."""


def started(life: Life, before: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen([*before, sys.executable, "-P", str(SCRIPT), msgspec.json.encode(life).decode()])


@pytest.fixture
def namespace() -> list[str]:
    tried = subprocess.run([*NAMESPACE, "true"], capture_output=True, text=True, check=False)
    if tried.returncode:
        pytest.skip(f"no process id namespaces here: {tried.stderr.strip()}")
    return NAMESPACE


def left_in_doubt(platform: QaPlatform, life: Life, before: list[str]) -> subprocess.Popen[bytes]:
    """A gateway whose request was accepted, and whose answer does not come."""
    platform.script({"do": "accept_hang", "after_s": 30}, method="POST")
    process = started(life, before)
    until(lambda: qa_truth(platform).texts(), "the message")
    return process


def taken_up(ledger: Ledger, platform: QaPlatform, run: Callable[[Life], int]) -> None:
    began = time.monotonic()
    assert run(ledger.life()) == 0
    assert time.monotonic() - began < AT_ONCE_S
    assert qa_truth(platform).texts() == ["once"]
    (row,) = ledger.end().values()
    assert row["status"] == "sent"


def test_a_zombie_with_an_odd_name_is_dead(tmp_path: Path) -> None:
    """OB-12, OB-6, G5: killed and not yet waited for, so that its process id still stands, with spaces in its name."""
    with QaPlatform.start(tmp_path) as platform, Process() as other:
        ledger = Ledger(tmp_path, Way(kind="qa", at=platform.url, deadline_s=DEADLINE_S))
        dead = left_in_doubt(platform, ledger.life(Op(key="k", place="p", text="once"), name="a b) R 1 ("), [])
        try:
            dead.kill()
            stat = Path(f"/proc/{dead.pid}/stat")
            until(lambda: ") Z " in stat.read_text(), "a zombie")
            taken_up(ledger, platform, other.run)
            assert ") Z " in stat.read_text()
        finally:
            dead.wait()


def test_a_living_process_under_the_dead_ones_id_changes_nothing(tmp_path: Path, namespace: list[str]) -> None:
    """OB-12, OB-13, G5: the owner was process 1 of its own numbering; there is another process 1 wherever one looks."""
    with QaPlatform.start(tmp_path) as platform:
        ledger = Ledger(tmp_path, Way(kind="qa", at=platform.url, deadline_s=DEADLINE_S))
        dead = left_in_doubt(platform, ledger.life(Op(key="k", place="p", text="once")), namespace)
        dead.kill()
        dead.wait()
        taken_up(ledger, platform, lambda life: started(life, namespace).wait(40))
        assert {body["pid"] for _, body in ledger.events("WorkerStarted")} == {1}


def test_equal_ids_over_one_ledger(tmp_path: Path, namespace: list[str]) -> None:
    """G5, OB-10, OB-4, SC-27, SC-28: two gateways, each process 1, send the same and recover at once."""
    with QaPlatform.start(tmp_path, faults="drop=0.1,slow=0.1", seed=3) as platform:
        ledger = Ledger(tmp_path, Way(kind="qa", at=platform.url, deadline_s=2.0))
        truth = qa_truth(platform)
        ops = [Op(key=f"k{n}", place=f"p{n % 3}", text=f"t{n}") for n in range(24)]
        life = ledger.life(*ops, settles=False)
        one, other = started(life, namespace), started(life, namespace)
        until(lambda: len(truth.lines()) > 8, "some traffic")
        other.kill()
        other.wait()
        assert started(life, namespace).wait(40) == one.wait(40) == 0
        for place in range(3):
            assert truth.texts(f"p{place}") == [op.text for op in ops if op.place == f"p{place}"]
        assert {row["status"] for row in ledger.end().values()} == {"sent"}
        assert {body["pid"] for _, body in ledger.events("WorkerStarted")} == {1}


def test_forks_of_one_process_have_ids_of_their_own(tmp_path: Path) -> None:
    """OB-10, G5: born of one parent, perhaps in one millisecond, no two workers share the random part of their ids."""
    ledger = Ledger(tmp_path, Way(kind="own", at=str(tmp_path / "own")))
    with Process() as process:
        assert [process.run(ledger.life()) for _ in range(3)] == [0, 0, 0]
    ledger.end()
    assert len({stream[-12:] for stream, _ in ledger.events("WorkerStarted")}) == 3
