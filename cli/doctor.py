"""`msgledger doctor`: is this installation sound. Each check says ok, warn or problem, and what to do."""

from __future__ import annotations

import math
import os
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import apsw
import click

from ..ledger.errors import LedgerError
from ..ledger.limits import WAL_KEEP_BYTES
from ..ledger.store import connection, keys, rebuild
from ..ledger.store.custody import Custody
from ..ledger.store.owner import Owner
from ..ledger.store.store import Store
from ..projections import VIEWS
from ..projections.media import NeededFile, needed
from ..projections.search import in_flight, statuses
from ..projections.workers import not_stopped
from . import opening
from .base import PROBLEMS, Command, setup
from .config import Config, MatrixSettings, QaSettings
from .output import emit, paint, plural, say

WORKERS_LOOKED_AT: Final = 1_000
SHOWN_MAX: Final = 5


class Finding(NamedTuple):
    level: Literal["ok", "warn", "problem"]
    what: str
    found: str
    do: str | None = None


@click.command(cls=Command)
@click.option(
    "--deep", is_flag=True, help="Also rebuild every view in memory, and read every kept file. Reads the whole ledger."
)
def doctor(deep: bool) -> None:
    """Check this installation: SQLite, file system, modes, keys, schema, integrity, held streams, files, workers,
    channels.

    Changes nothing. Exit 1 where there is a problem; a warning is none.

    JSON: a line for each check: {"level": "ok"|"warn"|"problem", "what", "found", "do"}.

    \b
    Examples:
      msgledger --ledger gateway.db doctor
      msgledger doctor --deep --json
    """
    config = opening.config()
    path = Path(os.path.realpath(opening.ledger_path(config)))
    bad = False
    for finding in _all(config, path, deep):
        bad = bad or finding.level == "problem"
        if setup().json:
            emit(finding._asdict())
        else:
            _print(finding)
    if bad:
        sys.exit(PROBLEMS)


def _print(finding: Finding) -> None:
    click.echo(f"{paint(finding.level)}{' ' * (9 - len(finding.level))}", nl=False)
    say(f"{finding.what:<14} {finding.found}")
    if finding.do is not None:
        say(f"{'':<9}{'':<14} -> {finding.do}")


def _all(config: Config, path: Path, deep: bool) -> Iterator[Finding]:
    yield _asked("sqlite", connection.check_sqlite, f"SQLite {apsw.sqlite_lib_version()}")
    yield _asked("file system", lambda: connection.check_place(path), f"{path.parent} is local")
    yield from _config(config)
    if not path.exists():
        yield Finding("problem", "ledger", f"{path} is not there", "check --ledger; a gateway makes it when it starts")
        return
    yield from _modes(path)
    try:
        store = Store.open(path, VIEWS, wall_ms=opening.now_ms, create=False, read_only=True)
    except LedgerError as error:
        yield Finding("problem", "ledger", str(error))
        return
    with store:
        yield Finding("ok", "keys", "belong to this ledger")
        yield from _inside(store, deep)


def _asked(what: str, check: Callable[[], object], fine: str) -> Finding:
    """A check that raises where something is wrong."""
    try:
        check()
    except LedgerError as error:
        return Finding("problem", what, str(error))
    return Finding("ok", what, fine)


def _config(config: Config) -> Iterator[Finding]:
    if config.source is None:
        yield Finding("ok", "configuration", "none; a gateway that brings its own channels needs none")
        return
    yield Finding("ok", "configuration", f"{config.source} with {plural(len(config.channels), 'channel')}")
    for name, settings in config.channels.items():
        secret = settings.token if isinstance(settings, QaSettings | MatrixSettings) else None
        file = None if secret is None else secret.path(config.folder)
        if file is not None and file.exists() and file.stat().st_mode & 0o077:
            yield Finding("warn", f"channel {name}", f"others may read {file}", f"chmod 600 {file}")
        try:
            channel = config.channel(name)
        except LedgerError as error:
            yield Finding("problem", f"channel {name}", str(error))
        else:
            yield Finding("ok", f"channel {name}", f"{channel.capabilities.promise()}")


def _modes(path: Path) -> Iterator[Finding]:
    for what, place in (("ledger", path), ("locks", path.with_name(path.name + ".d"))):
        if not place.exists():
            continue
        found = place.stat()
        mode = stat.S_IMODE(found.st_mode)
        if mode & 0o077:
            wanted = "700" if place.is_dir() else "600"
            yield Finding("warn", what, f"{place} has mode {mode:04o}: others may read it", f"chmod {wanted} {place}")
        elif found.st_uid != os.geteuid() and os.geteuid() != 0:
            yield Finding("warn", what, f"{place} belongs to uid {found.st_uid}", "run as that user")
        else:
            yield Finding("ok", what, f"{place} has mode {mode:04o}")
    wrong = keys.problems(path)
    for text in wrong:
        yield Finding("problem", "keys file", text)
    if not wrong:
        yield Finding("ok", "keys file", f"{keys.keys_path(path)} has mode 0600")
    log = path.with_name(path.name + "-wal")
    size = log.stat().st_size if log.exists() else 0
    if size > WAL_KEEP_BYTES:
        yield Finding(
            "warn",
            "log size",
            f"{log} has {size / 1_048_576:.0f} MiB",
            "a reader that stays open keeps it from shrinking: end long reads of other tools",
        )
    else:
        yield Finding("ok", "log size", f"{size / 1_048_576:.1f} MiB")


def _inside(store: Store, deep: bool) -> Iterator[Finding]:
    wrong = store.read_sync(_quick_check)
    if wrong:
        yield Finding("problem", "integrity", "; ".join(wrong), "restore a backup, and keep this file for a rescue")
        return
    yield Finding("ok", "integrity", "quick_check finds nothing")
    outdated = store.read_sync(rebuild.outdated, VIEWS)
    names = ", ".join(view.name for view in outdated)
    if outdated:
        yield Finding("warn", "views", f"{names} stand at another version", "they are rebuilt when a gateway opens it")
        return
    yield Finding("ok", "views", "stand at this version")
    held = store.held_streams()
    for one in held[:SHOWN_MAX]:
        yield Finding(
            "problem", "held stream", one.reason, "upgrade msgledger where a later one wrote it; else see docs"
        )
    if not held:
        yield Finding("ok", "held streams", "none")
    elif len(held) > SHOWN_MAX:
        yield Finding("problem", "held streams", f"{len(held) - SHOWN_MAX} more")
    if deep:
        different = store.verify_views()
        for text in different[:SHOWN_MAX]:
            yield Finding("problem", "views", text, "msgledger rebuild")
        if not different:
            yield Finding("ok", "views", "a rebuild would change nothing")
    yield from _files(store, deep)
    yield from _workers(store)


def _files(store: Store, deep: bool) -> Iterator[Finding]:
    """The copies of files that messages owe. They are measured; `deep` reads them."""
    custody = Custody(store.path, store.pseudonyms)
    owed = _owed_files(store)
    wrong = 0
    for one in owed.values():
        try:
            problem = custody.problem(one.digest, one.size, deep=deep)
        except LedgerError as error:
            problem = str(error)
        if problem is None:
            continue
        wrong += 1
        if wrong <= SHOWN_MAX:
            advice = f"put it back from a backup of {custody.folder}; without it the message fails as media_lost"
            yield Finding("problem", "files", f"intent {one.intent} needs a file: {problem}", advice)
    if wrong > SHOWN_MAX:
        yield Finding("problem", "files", f"{wrong - SHOWN_MAX} more that are needed are missing or damaged")
    count = total = unneeded = 0
    for digest, size, _ in custody.listed(math.inf):
        count, total, unneeded = count + 1, total + size, unneeded + (digest not in owed)
    kept = f"{plural(count, 'file')} kept, {total / 1_048_576:.1f} MiB; {unneeded} that nothing needs"
    yield Finding("ok", "files", f"{kept}, which a gateway sweeps" if unneeded else kept)


def _owed_files(store: Store) -> dict[str, NeededFile]:
    found: dict[str, NeededFile] = {}
    after = ""
    while page := store.read_sync(needed, opening.now_ms(), after):
        found |= {one.digest: one for one in page}
        after = page[-1].digest
    return found


def _workers(store: Store) -> Iterator[Finding]:
    locks = Owner(store.path)
    alive = [one for one in store.read_sync(not_stopped, WORKERS_LOOKED_AT) if locks.is_alive(one.id)]
    lost = [(intent, owner) for intent, owner in store.read_sync(in_flight) if locks.is_dead(owner)]
    counted = store.read_sync(statuses)
    owed = sum(counted.get(name, 0) for name in ("pending", "sending", "committing", "unknown_after_send"))
    yield Finding("ok", "workers", f"{len(alive)} alive on this host")
    if lost:
        what = f"{plural(len(lost), 'attempt')} of dead workers, the first is intent {lost[0][0]}"
        if alive:
            yield Finding("warn", "in flight", what, "a worker that lives takes them over within a second")
        else:
            yield Finding("problem", "in flight", what, "start the gateway, or `msgledger worker run`")
    if owed and not alive:
        yield Finding("warn", "owed", f"{plural(owed, 'intent')} owed, and no worker of this host lives", "start one")
    else:
        yield Finding("ok", "owed", plural(owed, "intent"))


def _quick_check(cursor: Any) -> list[str]:
    found = [row[0] for row in cursor.execute("PRAGMA quick_check(5)")]
    return [] if found == ["ok"] else found
