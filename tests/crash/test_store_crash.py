"""SIGKILL at every point of the writer, and two processes that append hard to one file."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from msgledger.ledger.store.crash import POINTS

STORE_POINTS = ("before-begin", "after-begin", "after-insert", "before-commit", "after-commit", "before-wake")
KIT = Path(__file__).resolve().parents[1] / "unit" / "store_kit.py"
PRELUDE = f"""
import importlib.util, sys, time
spec = importlib.util.spec_from_file_location("store_kit", {str(KIT)!r})
kit = importlib.util.module_from_spec(spec); spec.loader.exec_module(kit)
"""
APPEND = (
    PRELUDE
    + """
store = kit.open_store(sys.argv[1])
for n in range(20):
    item = kit.new(f"key {sys.argv[2]} {n}", stream=f"{sys.argv[2]}-{n:06}", guarded=True)
    results = store.append_sync(item, kit.Append(item.stream, (kit.started(), kit.accepted()), 0))
    print(item.stream, results[1].position, flush=True)
store.close()
"""
)
HARD = (
    PRELUDE
    + """
store = kit.open_store(sys.argv[1], wait_ms=5_000)
print("open", flush=True)
sys.stdin.readline()
worst, count, end = 0.0, 0, time.monotonic() + 1.5
while time.monotonic() < end:
    began = time.monotonic()
    store.append_sync(kit.new(f"{sys.argv[2]} {count}", stream=f"{sys.argv[2]}-{count:06}", guarded=True))
    worst, count = max(worst, time.monotonic() - began), count + 1
print(count, worst, flush=True)
store.close()
"""
)


def run(code: str, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, **env},
    )


def test_the_points_are_in_the_registry() -> None:
    assert set(STORE_POINTS) <= set(POINTS)


@pytest.mark.parametrize("point", STORE_POINTS)
def test_what_was_acknowledged_survives_a_kill_at_any_point(point: str, tmp_path: Path) -> None:
    """G2, G9: acknowledged appends are there whole, no other half, positions without gaps, rebuilt = live."""
    from ..unit.store_kit import new, open_store

    killed = run(APPEND, str(tmp_path / "l.db"), "a", MSGLEDGER_CRASH_AT=f"{point}:7")
    assert killed.returncode == -signal.SIGKILL, f"{point} was never hit: {killed.stderr}"
    acknowledged = [line.split() for line in killed.stdout.splitlines()]
    with open_store(tmp_path / "l.db") as store:
        for stream, position in acknowledged:
            events = store.events_of(stream)
            assert len(events) == 3
            assert events[-1].position == int(position)
        streams = {found.stream for found in store.page(0)}
        assert len(acknowledged) <= len(streams) <= len(acknowledged) + 1
        assert all(len(store.events_of(stream)) == 3 for stream in streams)
        assert [found.position for found in store.page(0)] == list(range(1, 3 * len(streams) + 1))
        assert store.verify_views() == []
        assert store.append_sync(new())[0].position == 3 * len(streams) + 1


@pytest.mark.parametrize("hits", [1, 2, 3])
def test_a_kill_while_the_ledger_is_made_leaves_one_that_opens(hits: int, tmp_path: Path) -> None:
    from ..unit.store_kit import new, open_store

    killed = run(APPEND, str(tmp_path / "l.db"), "a", MSGLEDGER_CRASH_AT=f"before-commit:{hits}")
    assert killed.returncode == -signal.SIGKILL
    with open_store(tmp_path / "l.db") as store:
        store.append_sync(new())
        assert store.verify_views() == []


def test_two_processes_make_one_ledger_and_neither_starves(tmp_path: Path) -> None:
    """Both open and make the file at once; both append hard; the worst wait is bounded."""
    from ..unit.store_kit import open_store

    both = [
        subprocess.Popen(
            [sys.executable, "-c", HARD, str(tmp_path / "l.db"), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in ("a", "b")
    ]
    for process in both:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
    for process in both:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    counts, waits = [], []
    for process in both:
        answer, _ = process.communicate(timeout=60)
        count, worst = answer.split()
        counts.append(int(count))
        waits.append(float(worst))
        assert process.returncode == 0
    assert min(counts) > max(counts) / 10, counts
    assert max(waits) < 1.5, waits
    with open_store(tmp_path / "l.db") as store:
        assert store.head_position() == sum(counts)
        assert store.verify_views() == []
    print(counts, waits)
