"""Views: rebuilt equals live (G9), whatever happened before."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from msgledger.ledger import limits
from msgledger.ledger.store.append import NEW, Append

from .store_kit import Things, accepted, committed, failed, new, open_store, recorded, started, unknown

EVENTS = {"started": started, "accepted": accepted, "failed": failed, "unknown": unknown, "committed": committed}


class Later(Things):
    version = 2
    columns = ("id", "key", "lane", "status", "head", "updated_at", "more")
    fixed = ()
    ddl = (
        "CREATE TABLE IF NOT EXISTS things (id TEXT PRIMARY KEY, key TEXT UNIQUE, lane TEXT, status TEXT,"
        " head INTEGER, updated_at INTEGER, more INTEGER) STRICT",
        "CREATE VIEW IF NOT EXISTS open_things AS SELECT id, more FROM things",
    )

    def rows(self, state):
        for row in super().rows(state):
            yield (*row, 7)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(sorted(EVENTS)), st.integers(1, 3)), max_size=25))
def test_rebuilt_equals_live_after_any_history(history) -> None:
    """G9, with two connections taking turns."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "l.db"
        with open_store(path) as one, open_store(path) as two:
            streams = [new() for _ in range(4)]
            one.append_sync(*streams)
            for number, (stream, kind, attempt) in enumerate(history):
                event = committed() if kind == "committed" else EVENTS[kind](attempt)
                (one, two)[number % 2].append_sync(Append(streams[stream].stream, (event,)))
            assert one.verify_views() == []
            one.rebuild()
            assert two.verify_views() == []


def test_another_version_is_built_at_open(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(limits, "REBUILD_BATCH_STREAMS", 2)
    path = tmp_path / "l.db"
    with open_store(path) as store:
        assert store.built is not None
        store.append_sync(*[new() for _ in range(5)])
    with open_store(path) as store:
        assert store.built is None
    with open_store(path, [Later()]) as store:
        assert store.built is not None
        assert (store.built.streams, store.built.events) == (5, 5)
        assert store.read_sync(lambda cursor: cursor.execute("SELECT sum(more) FROM open_things").get) == 35
        assert store.verify_views() == []


def test_a_build_that_died_is_done_again(tmp_path: Path) -> None:
    path = tmp_path / "l.db"
    with open_store(path) as store:
        store.append_sync(*[new() for _ in range(5)])
        store.transact_sync(lambda batch: batch.cursor.execute("DELETE FROM things WHERE rowid > 2"))
        store.transact_sync(lambda batch: batch.cursor.execute("UPDATE views SET version = -version"))
    with open_store(path) as store:
        assert store.built is not None
        assert store.verify_views() == []


def test_differences_are_found_and_rebuilding_removes_them(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(limits, "REBUILD_BATCH_STREAMS", 3)
    with open_store(tmp_path / "l.db") as store:
        store.append_sync(*[new() for _ in range(7)])
        store.transact_sync(
            lambda batch: [
                batch.cursor.execute(text)
                for text in (
                    "UPDATE things SET status = 'sent' WHERE rowid = 1",
                    "DELETE FROM things WHERE rowid = 2",
                    "INSERT INTO things VALUES ('nobody', 'k', 'l', 'pending', 0, 0)",
                )
            ]
        )
        assert len(store.verify_views()) == 3
        seen: list[tuple[int, int]] = []
        report = store.rebuild(lambda streams, events: seen.append((streams, events)))
        assert (report.streams, report.events, seen) == (7, 7, [(3, 3), (6, 6)])
        assert store.verify_views() == []


def test_a_held_stream_keeps_its_row_and_is_reported(tmp_path: Path) -> None:
    """REC-12: what cannot be read is left alone, and its obligation does not disappear."""
    with open_store(tmp_path / "l.db") as store:
        item, other = new(), new()
        store.append_sync(item, other)
        store.transact_sync(lambda batch: batch.insert_raw([(item.stream, 1, "AttemptStarted", b"{damaged")]))
        report = store.rebuild()
        assert [held.stream for held in report.held] == [item.stream]
        assert "AttemptStarted" in report.held[0].reason
        assert store.read_sync(lambda cursor: cursor.execute("SELECT count(*) FROM things").get) == 2
        assert store.verify_views() == []
        store.append_sync(Append(other.stream, (started(),), 0), Append("x", (recorded("x"),), NEW))
