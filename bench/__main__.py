"""Runs the measurements in turns, prints the table, writes the JSON. A missed target is reported, never a failure."""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

from . import floor, inbound, memory, opening, ours, peer, profiling, report, startup
from .drive import Round
from .sizes import FULL, TINY, Sizes

ROOT = Path(__file__).resolve().parents[1]


def main() -> None:
    ask = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    ask.add_argument("--tiny", action="store_true", help="a few seconds, to see that it runs; the numbers mean nothing")
    ask.add_argument("--profile", action="store_true", help="print where the time of 100 senders goes instead")
    ask.add_argument("--memory", type=int, metavar="N", help="send N messages and print the memory on the way instead")
    ask.add_argument("--json", type=Path, default=ROOT / "bench.json", help="where the figures are written")
    ask.add_argument("--folder", type=Path, help="on the disk to measure; default: build/ of this repository")
    said = ask.parse_args()
    sizes = TINY if said.tiny else FULL
    below = said.folder or ROOT / "build"
    below.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bench-", dir=below) as folder:
        if said.memory:
            print(memory.report(Path(folder), max(sizes.senders), said.memory))
            return
        if said.profile:
            print(profiling.report(Path(folder), max(sizes.senders), 4 * sizes.slice_s))
            return
        found = run(Path(folder), sizes)
    print(report.table(found))
    said.json.write_text(json.dumps(report.as_json(found), indent=1) + "\n")


def run(folder: Path, sizes: Sizes) -> report.Found:
    """Everything, each comparison in turns."""
    began = time.perf_counter()
    samples = ours.samples(folder)
    turns = [turn(folder, sizes, samples, number) for number in range(sizes.rounds)]
    small = opening.build(folder, sizes.small_events, sizes.owed, samples)
    big = opening.build(folder, sizes.big_events, sizes.owed, samples)
    opened: dict[Path, list[float]] = {small.path: [], big.path: []}
    for number in range(sizes.opens):
        for path in sorted(opened, reverse=number % 2 == 1):
            opened[path].append(opening.measure(path, sizes.owed))
    starts = startup.measure(folder, sizes.starts)
    came = inbound.run(folder, sizes, floor.measure)
    took_s = time.perf_counter() - began
    return report.Found(turns, small, big, opened[small.path], opened[big.path], starts, came, took_s)


def turn(folder: Path, sizes: Sizes, samples: list[ours.Written], number: int) -> report.Turn:
    """Each ledger once for each number of senders, every one afresh, who is first changing from turn to turn."""
    mine: dict[int, tuple[Round, float]] = {}
    theirs: dict[int, tuple[Round, float]] = {}
    across: dict[int, Round] = {}
    lowest: list[Round] = []
    for senders in sizes.senders:
        jobs = [
            lambda at, senders=senders: mine.update({senders: ours.measure(at, senders, sizes.slice_s)}),
            lambda at, senders=senders: theirs.update({senders: peer.measure(at, senders, sizes.slice_s)}),
            lambda at, senders=senders: across.update({senders: floor.across(at, samples, senders, sizes.slice_s)}),
        ]
        if senders == 1:
            jobs.append(lambda at: lowest.append(floor.measure(at, samples, sizes.slice_s)))
        for job in jobs[number % len(jobs) :] + jobs[: number % len(jobs)]:
            with tempfile.TemporaryDirectory(dir=folder) as at:
                job(Path(at))
    many = max(sizes.senders)
    return report.Turn(
        floor=lowest[0],
        across=across,
        ours={senders: found for senders, (found, _) in mine.items()},
        peer={senders: found for senders, (found, _) in theirs.items()},
        ours_bytes=mine[many][1],
        peer_bytes=theirs[many][1],
    )


if __name__ == "__main__":
    main()
