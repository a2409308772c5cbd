"""What a run found, as a table for people and as JSON; and each target with its ratio, met or missed."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Sequence
from typing import Any, NamedTuple

import apsw
import msgledger

from . import inbound
from .drive import Round
from .opening import History


class Turn(NamedTuple):
    """One turn of the ledgers: rounds by number of senders, bytes a message."""

    floor: Round
    across: dict[int, Round]
    ours: dict[int, Round]
    peer: dict[int, Round]
    ours_bytes: float
    peer_bytes: float


class Found(NamedTuple):
    """All of a run."""

    turns: list[Turn]
    small: History
    big: History
    small_open_ms: list[float]
    big_open_ms: list[float]
    starts_ms: dict[str, float]
    inbound: inbound.Found
    took_s: float


class Target(NamedTuple):
    name: str
    value: float | None
    """None where it could not be measured."""
    at_least: float | None = None
    below: float | None = None

    @property
    def met(self) -> bool:
        if self.value is None:
            return False
        if self.at_least is not None:
            return self.value >= self.at_least
        return self.below is not None and self.value < self.below

    def line(self) -> str:
        wanted = f">= {self.at_least:g}" if self.at_least is not None else f"< {self.below:g}"
        value = "-" if self.value is None else f"{self.value:.2f}"
        return f"  {'met   ' if self.met else 'missed'}  {self.name:<58}{value:>8}  ({wanted})"


def targets(found: Found) -> list[Target]:
    """Ratios are taken within each turn, then their median."""
    turns = found.turns
    one, many = min(turns[0].ours), max(turns[0].ours)
    routing = found.inbound.routing_us
    few_sessions, many_sessions = min(routing), max(routing)
    routed = _median(routing[many_sessions]) / _median(routing[few_sessions])
    flat = statistics.median(big / small for big, small in zip(found.big_open_ms, found.small_open_ms, strict=True))
    return [
        Target(f"{one} sender, of the floor", _median(t.ours[one].rate / t.floor.rate for t in turns), at_least=0.75),
        Target(
            f"{one} sender, of the floor across threads",
            _median(t.ours[one].rate / t.across[one].rate for t in turns),
            at_least=0.75,
        ),
        Target(f"{many} senders, of {one}", _median(t.ours[many].rate / t.ours[one].rate for t in turns), at_least=8),
        Target(
            f"{many} senders, of the UPDATE ledger",
            _median(t.ours[many].rate / t.peer[many].rate for t in turns),
            at_least=0.75,
        ),
        Target(f"p99 with {many} senders, ms", _median(t.ours[many].p99_ms for t in turns), below=7),
        Target(f"opening {found.big.events:,} events, of opening {found.small.events:,}", flat, below=1.5),
        Target(f"routing among {many_sessions:,} sessions, of {few_sessions:,}", routed, below=1.5),
        Target("msgledger --version, ms", found.starts_ms.get("msgledger --version"), below=150),
    ]


def table(found: Found) -> str:
    """For people."""
    turns = found.turns
    lines = [
        f"msgledger {msgledger.__version__}, Python {platform.python_version()}, SQLite {apsw.sqlite_lib_version()},"
        f" {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; medians of {len(turns)} turns, {found.took_s:.0f} s",
        "",
        f"{'':<24}{'senders':>8}{'msg/s':>9}{'p50 ms':>9}{'p99 ms':>9}{'CPU us':>9}{'lag p99':>9}{'lag max':>9}",
        _line("floor", 1, [t.floor for t in turns]),
    ]
    for senders in turns[0].ours:
        lines.append(_line("floor across threads", senders, [t.across[senders] for t in turns]))
        lines.append(_line("msgledger", senders, [t.ours[senders] for t in turns]))
        lines.append(_line("UPDATE in place", senders, [t.peer[senders] for t in turns]))
    astray = sum(one.astray for t in turns for one in t.ours.values())
    if astray:
        handed = sum(one.messages for t in turns for one in t.ours.values())
        lines.append(f"{astray} of {handed:,} messages were not `sent` when `send` came back")
    lines += [
        "",
        f"{'bytes on disk a message':<40}{_median(t.ours_bytes for t in turns):>10.0f}"
        f"   UPDATE in place {_median(t.peer_bytes for t in turns):.0f}",
    ]
    for history, opened in ((found.small, found.small_open_ms), (found.big, found.big_open_ms)):
        lines.append(f"{f'open and list, {history.events:,} events, ms':<40}{statistics.median(opened):>10.1f}")
    came = found.inbound
    lines += [
        *(
            f"{f'recorded and acknowledged, {n} at once, a second':<48}{_median(one.rate for one in rounds):>9,.0f}"
            f"   p99 {_median(one.p99_ms for one in rounds):.2f} ms, {_median(one.cpu_us for one in rounds):.0f} us CPU"
            for n, rounds in came.rounds.items()
        ),
        f"{'  its floor: the same bytes, a commit each':<48}{_median(one.rate for one in came.floors):>9,.0f}",
        *(
            f"{f'finding a known session among {n:,}, us':<48}{_median(values):>9,.0f}"
            for n, values in came.routing_us.items()
        ),
        f"{f'history of {came.entries} entries, ms':<48}{_median(came.history_ms):>9.1f}"
        f"   the rows of its events alone {_median(came.rows_ms):.1f}",
        f"{'rebuild, events a second':<40}{found.big.events / found.big.rebuild_s:>10,.0f}"
        f"   {found.big.events:,} in {found.big.rebuild_s:.1f} s, after {found.big.write_s:.1f} s of writing them",
        *(f"{f'{name}, ms':<40}{value:>10.1f}" for name, value in found.starts_ms.items()),
        "",
        "targets",
        *(target.line() for target in targets(found)),
    ]
    return "\n".join(lines)


def as_json(found: Found) -> dict[str, Any]:
    """The same, and every turn."""
    turns = found.turns
    return {
        "machine": {
            "python": platform.python_version(),
            "sqlite": apsw.sqlite_lib_version(),
            "system": platform.platform(),
            "cores": os.cpu_count(),
            "load": os.getloadavg()[0],
        },
        "msgledger": msgledger.__version__,
        "took_s": found.took_s,
        "floor": _figures([t.floor for t in turns]),
        "floor_across_threads": {str(n): _figures([t.across[n] for t in turns]) for n in turns[0].across},
        "ours": {str(n): _figures([t.ours[n] for t in turns]) for n in turns[0].ours},
        "astray": sum(one.astray for t in turns for one in t.ours.values()),
        "update_in_place": {str(n): _figures([t.peer[n] for t in turns]) for n in turns[0].peer},
        "bytes_per_message": {
            "ours": _median(t.ours_bytes for t in turns),
            "update_in_place": _median(t.peer_bytes for t in turns),
        },
        "opening_ms": {
            str(found.small.events): statistics.median(found.small_open_ms),
            str(found.big.events): statistics.median(found.big_open_ms),
        },
        "rebuild": {
            "events": found.big.events,
            "seconds": found.big.rebuild_s,
            "events_per_s": found.big.events / found.big.rebuild_s,
            "write_s": found.big.write_s,
        },
        "starts_ms": found.starts_ms,
        "inbound": {
            "rounds": {str(n): _figures(rounds) for n, rounds in found.inbound.rounds.items()},
            "floor": _figures(found.inbound.floors),
            "routing_us": {str(n): _median(values) for n, values in found.inbound.routing_us.items()},
            "history_ms": _median(found.inbound.history_ms),
            "rows_ms": _median(found.inbound.rows_ms),
            "entries": found.inbound.entries,
        },
        "targets": [{**target._asdict(), "met": target.met} for target in targets(found)],
    }


def _median(values: Any) -> float:
    return statistics.median(values)


def _figures(rounds: Sequence[Round]) -> dict[str, Any]:
    medians = {name: statistics.median(getattr(one, name) for one in rounds) for name in Round._fields}
    return {**medians, "rates": [one.rate for one in rounds]}


def _line(name: str, senders: int, rounds: Sequence[Round]) -> str:
    mid = {field: statistics.median(getattr(one, field) for one in rounds) for field in Round._fields}
    text = f"{name:<24}{senders:>8}{mid['rate']:>9.0f}{mid['p50_ms']:>9.2f}{mid['p99_ms']:>9.2f}{mid['cpu_us']:>9.0f}"
    return text if name == "floor" else f"{text}{mid['lag_p99_ms']:>9.2f}{mid['lag_max_ms']:>9.2f}"
