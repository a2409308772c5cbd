"""Where the time of a send goes: cProfile of the event loop's thread, then of the writer's, in runs of their own.

A profiler slows what calls many small functions, so these runs are for shares, never for rates. Times are those of the
wall: a thread that waits for the disk or for the interpreter's lock shows it in the function where it waits. Beside
them stands how long each thread had the processor, without a profiler. Before Python 3.12 only: later ones have one
profiler for all threads.
"""

from __future__ import annotations

import asyncio
import cProfile
import io
import pstats
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgledger
from msgledger.ledger.store.writer import Writer

from .drive import Round, drive
from .ours import instant, send_for, sender

TOP = 20


def report(folder: Path, senders: int, seconds: float) -> str:
    """Three runs: processor time of the threads, functions of the loop, functions of the writer."""
    return "\n\n".join(
        (
            _threads(folder / "threads.db", senders, seconds),
            _loop(folder / "loop.db", senders, seconds),
            _writer(folder / "writer.db", senders, seconds),
        )
    )


def _threads(path: Path, senders: int, seconds: float) -> str:
    spent: list[tuple[float, float]] = []

    def around(run: Callable[[Any], None], writer: Any) -> None:
        cpu, wall = time.thread_time(), time.perf_counter()
        run(writer)
        spent.append((time.thread_time() - cpu, time.perf_counter() - wall))

    cpu, wall = time.thread_time(), time.perf_counter()
    found = _with_writer(around, path, senders, seconds)
    cpu, wall = time.thread_time() - cpu, time.perf_counter() - wall
    lines = [f"Processor time of the threads, {senders} senders, {found.messages} messages"]
    for name, (used, lived) in {"event loop": (cpu, wall), "writer": spent[0]}.items():
        lines.append(
            f"  {name:<12}{used / found.messages * 1e6:8.0f} us a message, busy {used / lived:.0%} of {lived:.2f} s"
        )
    return "\n".join(lines)


def _loop(path: Path, senders: int, seconds: float) -> str:
    profile = cProfile.Profile()

    async def work() -> Round:
        async with msgledger.open(path, channels=[instant()]) as gateway:
            profile.enable()
            try:
                return await drive(sender(gateway), senders, seconds)
            finally:
                profile.disable()

    found = asyncio.run(work())
    return _table("event loop", profile, found)


def _writer(path: Path, senders: int, seconds: float) -> str:
    profile = cProfile.Profile()

    def around(run: Callable[[Any], None], writer: Any) -> None:
        profile.enable()
        try:
            run(writer)
        finally:
            profile.disable()

    found = _with_writer(around, path, senders, seconds)
    return _table("writer", profile, found)


def _with_writer(around: Callable[[Callable[[Any], None], Any], None], path: Path, senders: int, s: float) -> Round:
    """A run whose writer thread runs inside `around`."""
    run = Writer._run
    Writer._run = lambda writer: around(run, writer)
    try:
        return asyncio.run(send_for(path, senders, s))
    finally:
        Writer._run = run


def _table(thread: str, profile: cProfile.Profile, found: Round) -> str:
    out = io.StringIO()
    stats = pstats.Stats(profile, stream=out)
    stats.sort_stats("tottime").print_stats(TOP)
    stats.sort_stats("cumtime").print_stats(r"(lifecycle|ledger|projections|adapters)/.*\.py", TOP)
    root = str(Path(__file__).resolve().parents[1])
    kept = [line.replace(f"{root}/", "") for line in out.getvalue().splitlines() if line.strip()]
    return f"{thread}: {found.messages} messages at {found.rate:.0f} a second, profiled\n" + "\n".join(kept)
