"""Liveness by file lock: dead only where it is proved."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from msgledger.ledger.store.owner import Owner

HOLD = """
import sys, time
from pathlib import Path
from msgledger.ledger.store.owner import Owner
owner = Owner(Path(sys.argv[1])); owner.hold("other")
print("held", flush=True)
time.sleep(60)
"""


def test_alive_dead_and_unknown(tmp_path: Path) -> None:
    ledger = tmp_path / "l.db"
    owner, judge = Owner(ledger), Owner(ledger)
    assert not judge.is_dead("w1"), "a missing file proves nothing"
    owner.hold("w1")
    assert (tmp_path / "l.db.d" / "w1.lock").stat().st_mode & 0o777 == 0o600
    assert not judge.is_dead("w1"), "two gateways of one process are told apart"
    assert not owner.is_dead("w1")
    owner.release()
    assert judge.is_dead("w1")


def test_a_killed_process_is_dead(tmp_path: Path) -> None:
    ledger = tmp_path / "l.db"
    with subprocess.Popen([sys.executable, "-c", HOLD, str(ledger)], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        assert not Owner(ledger).is_dead("other")
        other.kill()
        other.wait()
    assert Owner(ledger).is_dead("other")


def test_a_sweep_takes_only_the_free_ones_that_nobody_asks_about(tmp_path: Path) -> None:
    ledger = tmp_path / "l.db"
    owners = {name: Owner(ledger) for name in ("alive", "kept", "gone")}
    for name, owner in owners.items():
        owner.hold(name)
    owners["kept"].release()
    owners["gone"].release()
    assert Owner(ledger).sweep({"kept"}) == ["gone"]
    assert sorted(os.listdir(tmp_path / "l.db.d")) == ["alive.lock", "kept.lock"]
    assert not Owner(ledger).is_dead("alive")
    owners["alive"].release()


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_child_does_not_keep_its_parent_alive(tmp_path: Path) -> None:
    ledger = tmp_path / "l.db"
    owner = Owner(ledger)
    owner.hold("w1")
    ready, go = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        os.write(ready[1], b"x")
        os.read(go[0], 1)
        os._exit(0)
    os.read(ready[0], 1)
    try:
        assert not Owner(ledger).is_dead("w1")
        owner.release()
        assert Owner(ledger).is_dead("w1")
    finally:
        os.write(go[1], b"x")
        os.waitpid(child, 0)
    for fd in (*ready, *go):
        os.close(fd)


def test_a_name_that_would_leave_the_folder(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="worker id"):
        Owner(tmp_path / "l.db").hold("../x")
