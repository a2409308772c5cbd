"""`msgledger worker run`: a worker for the configured channels. It sends what is owed, until it is told to stop."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
import time
from collections.abc import Sequence
from typing import Final

import click

from ..adapters.surface import Channel
from ..ledger.errors import InvalidConfig
from ..lifecycle.gateway import Gateway
from ..projections.intents import Row
from . import opening
from .base import PROBLEMS, Group, setup
from .filters import span_s
from .output import emit, say

LOOK_EVERY_S: Final = 0.2


@click.group(cls=Group)
def worker() -> None:
    """Work on what the ledger owes.

    \b
    Example:
      msgledger worker run --until-idle
    """


@worker.command()
@click.option("--until-idle", is_flag=True, help="End once nothing is owed that can move by itself.")
@click.option("--for", "span", metavar="DURATION", help="End after 90s, 2h, ...")
@click.option("--quiet", is_flag=True, help="No log lines.")
def run(until_idle: bool, span: str | None, quiet: bool) -> None:
    """Serve the configured channels: send what is owed, recover what was in flight. One log line a change of status.

    SIGTERM and SIGINT end it in order: nothing new starts, what is in flight ends or becomes unknown, the rest stays
    owed. With --until-idle it exits 1 where something is left: held, or on a channel that is not configured.

    JSON: one object at the end: {"ended": "idle"|"time"|"signal", "owed": n, "held": n, "not_configured": n}.

    \b
    Examples:
      msgledger --config /etc/msgledger.toml worker run
      msgledger worker run --until-idle --for 10m
    """
    config = opening.config()
    channels = config.all_channels()
    if not channels:
        raise InvalidConfig(f"no channel is configured in {config.source or 'msgledger.toml'}: add [channels.NAME]")
    if not quiet:
        _log()
    seconds = None if span is None else span_s(span)
    path = opening.ledger_path(config)
    ended, owed = asyncio.run(_work(Gateway(path, channels), channels, until_idle, seconds))
    mine = {(channel.name, channel.account) for channel in channels}
    held = sum(row.hold is not None for row in owed)
    foreign = sum((row.channel, row.account) not in mine for row in owed)
    if setup().json:
        emit({"ended": ended, "owed": len(owed), "held": held, "not_configured": foreign})
    else:
        say(f"ended ({ended}): {len(owed)} owed, {held} held, {foreign} on channels that are not configured")
    if until_idle and owed:
        sys.exit(PROBLEMS)


async def _work(
    gateway: Gateway, channels: Sequence[Channel], until_idle: bool, seconds: float | None
) -> tuple[str, list[Row]]:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for sign in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(sign, stop.set)
    mine = {(channel.name, channel.account) for channel in channels}
    ends = None if seconds is None else time.monotonic() + seconds
    async with gateway:
        while True:
            if until_idle and not await _any_moves(gateway, mine):
                ended = "idle"
                break
            left = None if ends is None else ends - time.monotonic()
            if left is not None and left <= 0:
                ended = "time"
                break
            if await _told(stop, _until(until_idle, left)):
                ended = "signal"
                break
        owed = [row async for row in gateway.owed()]
    return ended, owed


async def _any_moves(gateway: Gateway, mine: set[tuple[str, str]]) -> bool:
    """Whether any can go on without a person, another configuration or another gateway."""
    async for row in gateway.owed():
        if row.hold is None and (row.channel, row.account) in mine:
            return True
    return False


def _until(until_idle: bool, left: float | None) -> float | None:
    if until_idle:
        return LOOK_EVERY_S if left is None else min(LOOK_EVERY_S, left)
    return left


async def _told(stop: asyncio.Event, seconds: float | None) -> bool:
    """Whether a signal came within the time."""
    try:
        async with asyncio.timeout(seconds):
            await stop.wait()
    except TimeoutError:
        return False
    return True


class _Lines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        moment = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(record.created))
        text = " ".join(super().format(record).split())
        return f"{moment}.{int(record.msecs):03d}Z {record.levelname.lower()} {text}"


def _log() -> None:
    """The ledger's own lines on standard error, and nobody else's."""
    handler = logging.StreamHandler()
    handler.setFormatter(_Lines("%(message)s"))
    log = logging.getLogger("msgledger")
    log.handlers[:] = [handler]
    log.setLevel(logging.INFO)
    log.propagate = False
