"""What is wrong with the file, the place, the keys, the disk or the process is a typed error, and nothing is lost."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import apsw
import pytest
from msgledger.ledger import errors
from msgledger.ledger.store import connection, filesystem, keys
from msgledger.ledger.store.append import Appended
from msgledger.ledger.store.batch import Batch

from .store_kit import Things, new, open_store

LOCK = """
import sqlite3, sys, time
c = sqlite3.connect(sys.argv[1], isolation_level=None)
c.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
time.sleep(float(sys.argv[2]))
"""

ASK = """
import fcntl, sys
with open(sys.argv[1], "r+b") as file:
    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 510, 0x40000002)
"""
"""Takes the bytes that every SQLite connection holds a shared lock on, or fails with BlockingIOError."""


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    path = tmp_path / "l.db"
    path.write_bytes(b"this is a text, and long enough to be taken for one" * 100)
    before = path.read_bytes()
    with pytest.raises(errors.NotALedger, match=r"not a SQLite database"):
        open_store(path)
    assert path.read_bytes() == before


def test_a_database_that_is_no_ledger_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "l.db"
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE t (x)")
    other.close()
    before = path.read_bytes()
    with pytest.raises(errors.NotALedger):
        open_store(path)
    assert path.read_bytes() == before
    assert sorted(os.listdir(tmp_path)) == ["l.db"]


def test_a_newer_schema(tmp_path: Path) -> None:
    with open_store(tmp_path / "l.db") as store:
        store.transact_sync(lambda batch: batch.cursor.execute("PRAGMA user_version = 99"))
    with pytest.raises(errors.NewerSchema, match="99"):
        open_store(tmp_path / "l.db")


def test_no_ledger_where_none_may_be_made(tmp_path: Path) -> None:
    for more in ({"create": False}, {"read_only": True}):
        with pytest.raises(errors.NotALedger):
            open_store(tmp_path / "l.db", **more)
    assert not os.listdir(tmp_path)
    with pytest.raises(errors.NotALedger, match="folder"):
        open_store(tmp_path / "nowhere" / "l.db")


def test_keys_that_are_missing_wrong_or_open_to_others(tmp_path: Path) -> None:
    path = tmp_path / "l.db"
    open_store(path).close()
    open_store(tmp_path / "other.db").close()
    file = keys.keys_path(path)
    secret = file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600
    assert path.stat().st_mode & 0o777 == 0o600
    assert keys.problems(path) == []
    file.chmod(0o644)
    [problem] = keys.problems(path)
    assert "0644" in problem
    file.write_bytes(keys.keys_path(tmp_path / "other.db").read_bytes())
    with pytest.raises(errors.KeysWrong):
        open_store(path)
    file.write_text(secret[:-10])
    with pytest.raises(errors.KeysWrong) as caught:
        open_store(path)
    assert secret[30:50] not in str(caught.value)
    assert caught.value.__context__ is None or caught.value.__suppress_context__
    file.unlink()
    with pytest.raises(errors.KeysMissing):
        open_store(path)
    file.write_text(secret)
    open_store(path).close()


def test_keys_of_a_maker_that_died_before_its_ledger_was_done_are_used(tmp_path: Path) -> None:
    made = keys.make(tmp_path / "l.db")
    with open_store(tmp_path / "l.db") as store:
        assert store.pseudonyms.check() == made.check()
    assert sorted(os.listdir(tmp_path)) == ["l.db", "l.db.keys"]


@pytest.mark.parametrize("kind", ["nfs4", "cifs", "fuse.sshfs", "9p", "ceph"])
def test_a_network_file_system(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The longest mount point that holds the path decides; blanks are octal."""
    place = tmp_path / "a share"
    place.mkdir()
    text = (
        f"2 1 0:5 / {str(place).replace(' ', chr(92) + '040')} rw,nosuid shared:1 - {kind} host:/export rw\n"
        f"3 1 0:6 / {tmp_path}/a rw - nfs host:/other rw\n"
        "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n"
    )
    (tmp_path / "mountinfo").write_text(text)
    monkeypatch.setattr(filesystem, "MOUNTS", tmp_path / "mountinfo")
    with pytest.raises(errors.NetworkFileSystem, match=kind):
        open_store(place / "l.db")
    assert not os.listdir(place)
    open_store(tmp_path / "l.db").close()


def test_a_sqlite_that_can_lose_commits() -> None:
    with pytest.raises(errors.UnsafeSqlite, match=r"3\.50\.4"):
        connection.check_sqlite("3.50.4")
    connection.check_sqlite("3.51.3")


def test_never_less_than_full_synchronous(tmp_path: Path) -> None:
    """G2: WAL and synchronous=FULL on the connection that writes."""
    with open_store(tmp_path / "l.db") as store:
        for name, value in (("synchronous", 2), ("journal_mode", "wal")):
            assert store.transact_sync(lambda b, name=name: b.connection.execute(f"PRAGMA {name}").get) == value


def test_locked_by_another_process(tmp_path: Path) -> None:
    """G12, OB-18, SC-70, GAP-11: a typed error within the bound, and the event loop goes on meanwhile."""

    async def main() -> None:
        with open_store(tmp_path / "l.db", wait_ms=700) as store:
            with subprocess.Popen([sys.executable, "-c", LOCK, str(store.path), "10"], stdout=subprocess.PIPE) as other:
                assert other.stdout is not None
                other.stdout.readline()
                worst, last = 0.0, time.monotonic()
                began = last
                jobs = [store.append(new()) for _ in range(3)]
                while not all(job.done() for job in jobs):
                    await asyncio.sleep(0.005)
                    worst, last = max(worst, time.monotonic() - last), time.monotonic()
                took = time.monotonic() - began
                other.kill()
            for job in jobs:
                assert isinstance(job.exception(), errors.StoreLocked)
                assert isinstance(job.exception().__cause__, apsw.BusyError)
            assert 0.6 < took < 3
            assert worst < took / 3, "the loop stood still while the writer waited"
            assert isinstance((await store.append(new()))[0], Appended)
            assert store.head_position() == 1

    asyncio.run(main())


@pytest.mark.parametrize("again", [{}, {"create": False}, {"read_only": True}])
def test_opening_a_ledger_twice_in_a_process_keeps_its_locks(tmp_path: Path, again: dict[str, bool]) -> None:
    """Without them another process could take the write-ahead log away from under this one. The kernel drops them all
    when a process closes any descriptor of the file (sqlite.org/howtocorrupt.html, 2.2)."""
    path = tmp_path / "l.db"
    with open_store(path) as store, open_store(path, **again):
        assert store.head_position() == 0
        asked = subprocess.run([sys.executable, "-c", ASK, str(path)], capture_output=True, text=True, check=False)
        assert "BlockingIOError" in asked.stderr


def test_a_later_append_has_its_own_wait(tmp_path: Path) -> None:
    """SC-70: it is not refused with an earlier one of its batch, and goes in once the lock is free."""

    async def main() -> None:
        with open_store(tmp_path / "l.db", wait_ms=1_000) as store:
            command = [sys.executable, "-c", LOCK, str(store.path), "1.7"]
            with subprocess.Popen(command, stdout=subprocess.PIPE) as other:
                assert other.stdout is not None
                other.stdout.readline()
                first = store.append(new())
                await asyncio.sleep(0.5)
                second = store.append(new())
                await asyncio.sleep(0.4)
                third = store.append(new())
                results = await asyncio.gather(first, second, third, return_exceptions=True)
            assert isinstance(results[0], errors.StoreLocked)
            assert isinstance(results[1], errors.StoreLocked)
            assert isinstance(results[2], list), "it shared a batch with the second, and was refused with it"

    asyncio.run(main())


def test_a_full_disk(tmp_path: Path) -> None:
    """G12: refused with a type, nothing half written, and it goes on once there is space."""
    with open_store(tmp_path / "l.db") as store:
        store.append_sync(new())
        pages = store.read_sync(lambda cursor: cursor.execute("PRAGMA page_count").get)
        store.transact_sync(lambda batch: batch.cursor.execute(f"PRAGMA max_page_count = {pages}").fetchall())
        with pytest.raises(errors.StoreFull):
            store.append_sync(*[new() for _ in range(200)])
        store.transact_sync(lambda batch: batch.cursor.execute("PRAGMA max_page_count = 1000000").fetchall())
        head = store.head_position()
        assert store.append_sync(new())[0].position == head + 1
        assert not store.verify_views()


def test_a_commit_that_may_have_happened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """DUR-6: an answer that was lost is `WriteUncertain`, and asking by key tells."""
    with open_store(tmp_path / "l.db") as store:
        item = new("k", guarded=True)

        def lost(self: Batch) -> None:
            self.cursor.execute("COMMIT")
            raise apsw.IOError("the disk did not answer")

        with monkeypatch.context() as patch:
            patch.setattr(Batch, "_commit", lost)
            with pytest.raises(errors.WriteUncertain) as caught:
                store.append_sync(item)
            assert isinstance(caught.value.__cause__, apsw.IOError)
        [again] = store.append_sync(new("k", guarded=True))
        assert isinstance(again, errors.KeyTaken)
        assert again.intent == item.stream


def test_a_commit_that_surely_did_not_happen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_store(tmp_path / "l.db") as store:

        def full(self: Batch) -> None:
            raise apsw.FullError("no space")

        with monkeypatch.context() as patch:
            patch.setattr(Batch, "_commit", full)
            with pytest.raises(errors.StoreFull):
                store.append_sync(new())
        assert store.append_sync(new())[0].position == 1


def test_a_writer_that_dies_leaves_nobody_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        store = open_store(tmp_path / "l.db")

        def die(self: Batch, until: float, *, careful: bool) -> None:
            raise SystemExit

        monkeypatch.setattr(Batch, "begin", die)
        with pytest.raises(errors.StoreClosed):
            await asyncio.wait_for(store.append(new()), 5)
        with pytest.raises(errors.StoreClosed):
            store.append_sync(new())
        store.close()

    asyncio.run(main())


READ_ONLY = """
import os, sys
from msgledger.ledger import errors
from msgledger.ledger.store.store import Store
os.setgid(65534); os.setuid(65534)
try:
    Store.open(sys.argv[1], (), wall_ms=lambda: 0)
except errors.LedgerError as error:
    print(type(error).__name__)
"""


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to become another user")
def test_a_file_that_may_not_be_written(tmp_path: Path) -> None:
    """G12: read-only is told at open, before anything is accepted."""
    folder = Path("/tmp") / f"msgledger-ro-{os.getpid()}"
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    try:
        open_store(folder / "l.db").close()
        (folder / "l.db").chmod(0o444)
        (folder / "l.db.keys").chmod(0o444)
        done = subprocess.run([sys.executable, "-c", READ_ONLY, str(folder / "l.db")], capture_output=True, text=True)
        assert done.stdout.strip() == "StoreReadOnly", done.stderr
    finally:
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()


def test_open_for_reading_only(tmp_path: Path) -> None:
    with open_store(tmp_path / "l.db") as store:
        item = new()
        store.append_sync(item)
        with open_store(tmp_path / "l.db", read_only=True) as inspection:
            assert inspection.state_of(item.stream) is not None
            with pytest.raises(errors.StoreReadOnly):
                inspection.append_sync(new())
        store.append_sync(new())
    with open_store(tmp_path / "l.db", read_only=True) as inspection:
        assert inspection.head_position() == 2


def test_a_read_cannot_write(tmp_path: Path) -> None:
    with open_store(tmp_path / "l.db") as store:
        with pytest.raises(errors.StoreReadOnly):
            store.read_sync(lambda cursor: cursor.execute("DELETE FROM things"))
        assert store.head_position() == 0


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_child_is_refused_and_the_parent_goes_on(tmp_path: Path) -> None:
    with open_store(tmp_path / "l.db") as store:
        store.append_sync(new())
        child = os.fork()
        if child == 0:
            refused = 0
            for call in (lambda: store.append_sync(new()), store.head_position):
                try:
                    call()
                except errors.StoreClosed:
                    refused += 1
            store.close()
            os._exit(refused)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2
        assert store.append_sync(new())[0].position == 2


def test_a_process_whose_views_were_taken_over_by_a_later_version_stops(tmp_path: Path) -> None:
    class Later(Things):
        version = 2

    with open_store(tmp_path / "l.db") as store:
        store.append_sync(new())
        with open_store(tmp_path / "l.db", [Later()]) as later:
            assert later.built is not None
            with pytest.raises(errors.NewerSchema, match="version 2"):
                store.append_sync(new())
            later.append_sync(new())
            assert not later.verify_views()
