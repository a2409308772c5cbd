"""`doctor`, `rebuild`, `channels`, `workers`, and every command in front of a ledger that it cannot read."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path

import apsw
import pytest
from msgledger.cli import doctor, explain
from msgledger.ledger import events as e
from msgledger.ledger.store import connection, schema
from msgledger.ledger.store.append import NEW
from msgledger.ledger.store.clock import boot_id, host_name
from msgledger.ledger.store.owner import Owner

from .kit import AT, WORKER, Writer, events_in, intent_id, lines, run
from .test_intents import damage

pytestmark = pytest.mark.usefixtures("noon")
READS = (["intents", "list"], ["intents", "show", "0193a701"], ["workers", "list"], ["intents", "explain", "0193a701"])
WRITES = (["rebuild"], ["intents", "cancel", intent_id(4), "--reason", "x", "--yes"])


def sql(ledger: Path, text: str) -> None:
    opened = apsw.Connection(str(ledger))
    opened.execute(text)
    opened.close()


def found(ledger: Path, *more: str) -> dict[str, tuple[str, str]]:
    done = run("--ledger", ledger, "doctor", "--json", *more)
    lines = [json.loads(line) for line in done.lines]
    assert done.code == int(any(line["level"] == "problem" for line in lines))
    return {line["what"]: (line["level"], line["found"]) for line in lines}


def test_a_sound_installation(ledger: Path) -> None:
    done = run("--ledger", ledger, "doctor", "--deep")
    assert done.out == lines(
        [
            f"ok       sqlite         SQLite {apsw.sqlite_lib_version()}",
            f"ok       file system    {ledger.parent} is local",
            "ok       configuration  none; a gateway that brings its own channels needs none",
            f"ok       ledger         {ledger} has mode 0600",
            f"ok       keys file      {ledger}.keys has mode 0600",
            "ok       log size       0.0 MiB",
            "ok       keys           belong to this ledger",
            "ok       integrity      quick_check finds nothing",
            "ok       views          stand at this version",
            "ok       held streams   none",
            "ok       views          a rebuild would change nothing",
            "ok       files          0 files kept, 0.0 MiB; 0 that nothing needs",
            "ok       workers        0 alive on this host",
            "warn     owed           3 intents owed, and no worker of this host lives",
            "                        -> start one",
        ]
    )
    assert (done.code, done.err) == (0, "")


def test_each_thing_that_is_wrong_is_found(ledger: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.chmod(ledger, 0o644)
    os.chmod(f"{ledger}.keys", 0o640)
    shown = found(ledger)
    assert shown["ledger"][0] == "warn" and "0644" in shown["ledger"][1]
    assert shown["keys file"][0] == "problem" and "0640" in shown["keys file"][1]
    with Path(f"{ledger}-wal").open("ab") as log:
        log.truncate(65 * 1_048_576)
    assert found(ledger)["log size"] == ("warn", f"{ledger}-wal has 65 MiB")
    Path(f"{ledger}-wal").unlink()
    monkeypatch.setattr(connection, "SQLITE_MIN", (99, 0, 0))
    assert found(ledger)["sqlite"][0] == "problem"


def test_held_streams_and_views_that_differ_are_problems(ledger: Path) -> None:
    """REC-12, G9: what cannot be read is named; a view that differs from a rebuilt one is found by --deep alone."""
    sql(ledger, f"UPDATE intents SET attempts = 7 WHERE id = '{intent_id(1)}'")
    assert found(ledger)["views"][0] == "ok"
    level, text = found(ledger, "--deep")["views"]
    assert level == "problem" and intent_id(1) in text
    assert run("--ledger", ledger, "rebuild").code == 0
    assert found(ledger, "--deep")["views"][0] == "ok"
    damage(ledger, intent_id(2), 1)
    level, text = found(ledger)["held stream"]
    assert level == "problem" and f"stream {intent_id(2)}: AttemptStarted does not decode" in text
    rebuilt = run("--ledger", ledger, "rebuild", "--json")
    assert rebuilt.code == 1
    assert [one["stream"] for one in json.loads(rebuilt.out)["held"]] == [intent_id(2)]


def test_a_damaged_file_is_a_problem(ledger: Path) -> None:
    raw = bytearray(ledger.read_bytes())
    for page in range(6, len(raw) // 4096):
        raw[page * 4096 : page * 4096 + 2_000] = b"\xff" * 2_000
    ledger.write_bytes(raw)
    done = run("--ledger", ledger, "doctor", "--json")
    assert done.code == 1
    assert any(json.loads(line)["level"] == "problem" for line in done.lines)


def test_attempts_of_the_dead(tmp_path: Path) -> None:
    """OB-12: a free lock is the proof; with another worker alive it is no problem, because that one takes over."""
    path = tmp_path / "l.db"
    with Writer(path) as w:
        w.worker()
        w.start(w.record(1))
    owner = Owner(path)
    owner.hold(WORKER)
    assert "in flight" not in found(path)
    owner.release()
    assert found(path)["in flight"] == ("problem", f"1 attempt of dead workers, the first is intent {intent_id(1)}")


def test_a_rebuild_for_people(ledger: Path) -> None:
    done = run("--ledger", ledger, "rebuild")
    assert done.out.startswith("rebuilt from 5 streams, 13 events in 0.") and done.out.endswith(" s; 0 held\n")
    assert events_in(ledger) == 13


def test_workers_and_their_lives(tmp_path: Path) -> None:
    path = tmp_path / "l.db"
    with Writer(path) as w:
        w.worker()
    shown = run("--ledger", path, "workers", "list").lines
    assert shown[0].split() == ["id", "life", "since", "stopped", "host", "pid", "in", "flight", "channels", "down"]
    assert shown[1].split()[:5] == [WORKER, "elsewhere", "2026-03-01", "00:00:00.000Z", "-"]
    sql(path, f"UPDATE workers SET host = '{host_name()}', boot = '{boot_id()}'")

    def life() -> str:
        return json.loads(run("--ledger", path, "workers", "list", "--json").out)["life"]

    assert life() == "gone"
    owner = Owner(path)
    owner.hold(WORKER)
    assert life() == "alive"
    owner.release()
    assert life() == "dead"
    sql(path, f"UPDATE workers SET stopped_at = {AT}")
    assert life() == "stopped"


def test_no_worker_ever(tmp_path: Path) -> None:
    with Writer(tmp_path / "l.db"):
        pass
    assert run("--ledger", tmp_path / "l.db", "workers", "list").out == "no worker ever opened this ledger\n"


def test_what_channels_promise() -> None:
    """CORE-2: no more than a channel can prove."""
    shown = run("channels").out
    assert "qa/default (qa): effectively once within 86400 s of the first attempt (key, proved)" in shown
    assert "your-own/default (python): at least once by policy; an unknown outcome is held for a person" in shown
    first = json.loads(run("channels", "--json").lines[0])
    assert first.keys() == {"name", "account", "kind", "promise", "capabilities"}
    assert first["capabilities"]["idempotency"]["window_s"] == 86_400.0


def test_configured_channels_are_checked(tmp_path: Path, ledger: Path) -> None:
    """ADP-5: a channel of another surface version is a problem that is named."""
    (tmp_path / "old_channels.py").write_text(
        "import msgledger\nasync def deliver(unit, context): return 'x'\n"
        "old = msgledger.CallableChannel('old', deliver)\nold.surface = 99\n"
    )
    (tmp_path / "token").write_text("hunter2")
    os.chmod(tmp_path / "token", 0o644)
    (tmp_path / "msgledger.toml").write_text(
        '[channels.old]\nkind = "python"\nobject = "old_channels:old"\npath = "."\n'
        '[channels.qa]\nkind = "qa"\nurl = "http://127.0.0.1:1"\ntoken = { file = "token" }\n'
    )
    done = run("--ledger", ledger, "doctor")
    assert done.code == 1
    assert "problem  channel old" in done.out and "speaks version 99 of the channel surface" in done.out
    assert "others may read" in done.out and "hunter2" not in done.out
    assert run("channels").code == 2


def refused(ledger: Path, code: int, part: str, commands: tuple[list[str], ...] = READS + WRITES) -> None:
    """Each command ends with one clear line and that code, and prints nothing."""
    for command in commands:
        done = run("--ledger", ledger, *command)
        assert (done.code, done.out) == (code, ""), (command, done)
        first, *causes = [line for line in done.err.splitlines() if not line.endswith("will be cancelled")]
        assert first.startswith("msgledger: ") and part in first, (command, first)
        assert all(cause.startswith("  caused by ") for cause in causes)


def test_a_missing_ledger_is_not_made(tmp_path: Path) -> None:
    refused(tmp_path / "none.db", 3, "none.db is not there; check the path")
    assert list(tmp_path.iterdir()) == []
    assert "none.db is not there" in run("--ledger", tmp_path / "none.db", "doctor").out


def test_a_file_that_is_no_ledger(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("this is no database, however long it may be" * 20)
    refused(tmp_path / "text.db", 3, "is not a SQLite database; give the path of a ledger")
    sql(tmp_path / "other.db", "CREATE TABLE t (a)")
    refused(tmp_path / "other.db", 3, "is a SQLite database, but no ledger")
    (tmp_path / "empty.db").touch()
    refused(tmp_path / "empty.db", 3, "is empty; give the path of a ledger", READS)


def test_missing_and_wrong_keys(ledger: Path, tmp_path: Path) -> None:
    with Writer(tmp_path / "other.db"):
        pass
    shutil.copy(tmp_path / "other.db.keys", f"{ledger}.keys")
    refused(ledger, 3, "belongs to another ledger")
    Path(f"{ledger}.keys").unlink()
    refused(ledger, 3, "ledger.db.keys is not there: put the keys that belong to")
    done = run("--ledger", ledger, "doctor")
    assert done.code == 1 and "ledger.db.keys is not there" in done.out


def test_a_ledger_of_a_later_version(ledger: Path) -> None:
    sql(ledger, f"PRAGMA user_version = {schema.SCHEMA_VERSION + 1}")
    refused(ledger, 3, f"has schema {schema.SCHEMA_VERSION + 1}, this msgledger knows {schema.SCHEMA_VERSION}: upgrade")


def test_a_locked_ledger_can_be_read_and_is_not_waited_for_long(ledger: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """OB-18, SC-70: a typed error within the bound, and nothing recorded."""
    from msgledger.ledger.store.store import Store

    before = events_in(ledger)
    monkeypatch.setitem(Store.open.__func__.__kwdefaults__, "wait_ms", 100)  # type: ignore[attr-defined]
    other = apsw.Connection(str(ledger))
    other.execute("BEGIN IMMEDIATE")
    try:
        assert run("--ledger", ledger, "intents", "list").code == 0
        refused(ledger, 3, "another process holds the lock", WRITES)
    finally:
        other.close()
    assert events_in(ledger) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else for a moment")
def test_a_ledger_that_may_not_be_written(ledger: Path) -> None:
    """What a gateway is at can be read by others and not written: a decision is refused, and nothing is recorded."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder, Writer(ledger):
        os.chmod(folder, 0o755)
        for path in ledger.parent.glob("ledger.db*"):
            shutil.copy(path, folder)
        theirs = Path(folder, ledger.name)
        for path in Path(folder).iterdir():
            os.chmod(path, 0o444)
        for command in (*READS, *WRITES):
            run("--ledger", ledger.parent / "none.db", *command)  # imported before the rights are gone
        before = theirs.read_bytes()
        os.seteuid(65_534)
        try:
            assert run("--ledger", theirs, "intents", "list", "-c").out == "4\n"
            refused(theirs, 3, "check", WRITES)
        finally:
            os.seteuid(0)
        assert theirs.read_bytes() == before


def test_a_worker_that_lives_long_is_not_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """OB-12: nor by `explain`, however many commands have come and gone since it started."""
    monkeypatch.setattr(doctor, "WORKERS_LOOKED_AT", 2)
    monkeypatch.setattr(explain, "WORKERS_LOOKED_AT", 2)
    path = tmp_path / "l.db"
    with Writer(path) as w:
        w.worker()
        w.record(1)
        for number in range(3):
            id, at = f"0193c000-0000-7000-8000-{number:012x}", w.tick()
            w.append(id, e.WorkerStarted(at=at, by="w", host="h", boot="b", pid=1, msgledger="0.1.0"), expected=NEW)
            w.append(id, e.WorkerStopped(at=at, by="w"))
    owner = Owner(path)
    owner.hold(WORKER)
    assert found(path)["workers"] == ("ok", "1 alive on this host")
    assert "no worker" not in run("--ledger", path, "intents", "explain", intent_id(1)).out
    owner.release()
    assert found(path)["workers"] == ("ok", "0 alive on this host")


def test_other_programs_streams_are_none_of_ours(ledger: Path, noon: None) -> None:
    """OB-12: aggregates of another program in the same file are no held streams, and no intents that are followed."""
    with Writer(ledger) as w:
        rows = [("another", version, "theirs.app:Order.Placed", b"\x00") for version in (1, 2)]
        w.store.transact_sync(lambda batch: batch.insert_raw(rows))
    assert found(ledger, "--deep")["held streams"] == ("ok", "none")
    assert run("--ledger", ledger, "rebuild").code == 0
    assert run("--ledger", ledger, "intents", "tail", "--after", "13", "--no-follow").out == ""
    with Writer(ledger) as w:
        w.store.transact_sync(lambda batch: batch.insert_raw([(intent_id(4), 1, "theirs.app:Order.Placed", b"\x00")]))
    assert found(ledger)["held stream"][0] == "problem", "in a stream of ours it is damage"
    assert intent_id(4) in run("--ledger", ledger, "intents", "tail", "--after", "13", "--no-follow").out
