"""`msgledger workers`: who works on this ledger, since when, with which channels, and whether they live."""

from __future__ import annotations

from typing import Final, Literal

import click

from ..ledger.store.clock import boot_id, host_name
from ..ledger.store.owner import Owner
from ..projections.search import in_flight
from ..projections.workers import Worker
from ..projections.workers import workers as read_workers
from . import opening
from .base import Group, setup
from .output import emit, full, say, table, when

LIMIT: Final = 20
Life = Literal["alive", "stopped", "dead", "gone", "elsewhere"]


@click.group(cls=Group)
def workers() -> None:
    """The processes that have the ledger open to work on it.

    \b
    Example:
      msgledger workers list
    """


@workers.command("list")
@click.option("--limit", type=click.IntRange(1, 10_000), default=LIMIT, show_default=True)
def list_(limit: int) -> None:
    """Workers, newest first.

    alive: it holds its lock. stopped: it said goodbye. dead: its lock is free. gone: another start of this host, or its
    lock file was swept. elsewhere: another host, where only its lease tells.

    JSON: a line for each: id, host, boot, pid, msgledger, channels, down, lost, started_at, stopped_at, life and
    in_flight.

    \b
    Example:
      msgledger workers list --json
    """
    with opening.reading(opening.config()) as store:
        found = store.read_sync(read_workers, limit)
        owners = [owner for _, owner in store.read_sync(in_flight)]
        locks = Owner(store.path)
        lives = {one.id: life(one, locks) for one in found}
    if setup().json:
        for one in found:
            emit({**full(one), "life": lives[one.id], "in_flight": owners.count(one.id)})
        return
    if not found:
        say("no worker ever opened this ledger")
    table(
        ("id", "life", "since", "stopped", "host", "pid", "in flight", "channels", "down"),
        (
            [
                one.id,
                lives[one.id],
                when(one.started_at),
                when(one.stopped_at),
                one.host,
                one.pid,
                owners.count(one.id),
                " ".join(one.channels),
                " ".join(one.down) or "-",
            ]
            for one in found
        ),
    )


def life(worker: Worker, locks: Owner) -> Life:
    """What is proved of a worker's life."""
    if worker.stopped_at is not None:
        return "stopped"
    if worker.host != host_name():
        return "elsewhere"
    if locks.is_alive(worker.id):
        return "alive"
    if worker.boot == boot_id() and locks.is_dead(worker.id):
        return "dead"
    return "gone"
