"""The bench runs: with tiny numbers, as `make bench` runs it, it prints its table and writes its figures."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def bench(folder: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "bench", "--tiny", "--folder", str(folder / "work"), *arguments]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr
    assert list((folder / "work").iterdir()) == [], "it leaves nothing behind"
    return ended.stdout


def test_it_prints_a_table_and_writes_its_figures(tmp_path: Path) -> None:
    printed = bench(tmp_path, "--json", str(tmp_path / "bench.json"))
    for line in (
        "floor",
        "floor across threads",
        "msgledger",
        "UPDATE in place",
        "bytes on disk a message",
        "open and list",
        "rebuild",
    ):
        assert f"\n{line}" in printed
    figures = json.loads((tmp_path / "bench.json").read_text())
    assert set(figures["ours"]) == set(figures["update_in_place"]) == {"1", "10", "100"}
    assert all(one["rate"] > 0 and one["p99_ms"] >= one["p50_ms"] > 0 for one in figures["ours"].values())
    assert figures["rebuild"]["events"] == 4_000 and figures["rebuild"]["events_per_s"] > 0
    judged = [line.split()[0] for line in printed.partition("\ntargets\n")[2].splitlines()]
    assert judged == ["met" if target["met"] else "missed" for target in figures["targets"]]
    assert len(judged) == 8


def test_it_shows_where_the_time_goes(tmp_path: Path) -> None:
    printed = bench(tmp_path, "--profile")
    for text in ("Processor time of the threads", "event loop: ", "writer: ", "lifecycle/plan.py", "store/batch.py"):
        assert text in printed


def test_it_shows_the_memory_on_the_way(tmp_path: Path) -> None:
    lines = bench(tmp_path, "--memory", "2000").splitlines()
    steps = [line.split() for line in lines[2:-1]]
    assert [int(step[0].replace(",", "")) for step in steps] == list(range(200, 2001, 200))
    assert all(float(step[1]) > 1 for step in steps)
