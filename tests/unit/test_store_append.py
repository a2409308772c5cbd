"""Appending: heads, facts, guards, groups, and what a refusal leaves behind."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest
from msgledger.ledger import limits
from msgledger.ledger.errors import KeyTaken, StaleHead, StoreClosed, StoreOverloaded, StreamHeld, Unappendable
from msgledger.ledger.store import schema
from msgledger.ledger.store.append import NEW, Append, Appended
from msgspec.structs import replace

from .store_kit import Clock, Free, Things, accepted, committed, failed, new, open_store, recorded, started, stream_id


def inject(store, stream: str, version: int, topic: str, body: bytes) -> None:
    store.transact_sync(lambda batch: batch.insert_raw([(stream, version, topic, body)]))


def test_an_append_is_there_at_once(tmp_path: Path) -> None:
    """G2: what is acknowledged can be read, by the store and by any SQLite tool."""
    with open_store(tmp_path / "l.db") as store:
        item = new()
        [result] = store.append_sync(item)
        assert isinstance(result, Appended)
        assert (result.stream, result.head, result.position, result.appended) == (item.stream, 0, 1, 1)
        assert store.state_of(item.stream) == result.state
        assert [found.event for found in store.events_of(item.stream)] == list(item.events)
        shown = store.read_sync(lambda cursor: cursor.execute("SELECT position, stream, type, data FROM events").get)
        assert shown[:3] == (1, item.stream, "IntentRecorded")
        assert shown[3].startswith('{"at":')
        assert not store.verify_views()


@pytest.mark.parametrize("expected", [NEW, 1, 7])
def test_another_head_is_refused(tmp_path: Path, expected: int) -> None:
    with open_store(tmp_path / "l.db") as store:
        item = new()
        store.append_sync(item)
        [result] = store.append_sync(Append(item.stream, (started(),), expected))
        assert isinstance(result, StaleHead)
        assert len(store.events_of(item.stream)) == 1


def test_a_stream_that_is_not_there_has_no_head(tmp_path: Path) -> None:
    with open_store(tmp_path / "l.db") as store:
        [result] = store.append_sync(Append(stream_id(), (started(),), 0))
        assert isinstance(result, StaleHead)


def test_versions_have_no_gaps_also_after_a_restart(tmp_path: Path) -> None:
    item = new()
    with open_store(tmp_path / "l.db") as store:
        store.append_sync(item, Append(item.stream, (started(), accepted()), 0))
    with open_store(tmp_path / "l.db") as store:
        [result] = store.append_sync(Append(item.stream, (committed(),), 2))
        assert result.head == 3
        assert [found.version for found in store.events_of(item.stream)] == [0, 1, 2, 3]


def test_a_fact_is_appended_at_whatever_head_and_only_once(tmp_path: Path) -> None:
    with open_store(tmp_path / "l.db") as store:
        item = new()
        store.append_sync(item, Append(item.stream, (started(),), 0))
        [first] = store.append_sync(Append(item.stream, (accepted(),)))
        [again] = store.append_sync(Append(item.stream, (accepted(),)))
        assert (first.appended, again.appended) == (1, 0)
        assert (again.head, again.state, again.position) == (first.head, first.state, first.position)
        [both] = store.append_sync(Append(item.stream, (accepted(), committed())))
        assert both.appended == 1
        assert len(store.events_of(item.stream)) == 4


def test_a_refused_append_fails_alone(tmp_path: Path) -> None:
    """A batch of one good group, one refused append and another good group commits the good ones."""

    async def main() -> None:
        with open_store(tmp_path / "l.db") as store:
            store.append_sync(taken := new("k"))
            a, b, c = await asyncio.gather(
                store.append(new()), store.append(new("k", guarded=True)), store.append(new())
            )
            assert isinstance(a[0], Appended)
            assert isinstance(c[0], Appended)
            assert isinstance(b[0], KeyTaken)
            assert b[0].intent == taken.stream
            assert store.head_position() == 3
            assert not store.verify_views()

    asyncio.run(main())


def test_after_a_refusal_later_appends_of_the_group_to_that_stream_are_refused(tmp_path: Path) -> None:
    with open_store(tmp_path / "l.db") as store:
        store.append_sync(new("k"))
        record = new("k", guarded=True)
        other = new()
        first, claim, fact, third = store.append_sync(
            record, Append(record.stream, (started(),), 0), Append(record.stream, (accepted(),)), other
        )
        assert isinstance(first, KeyTaken)
        assert isinstance(claim, StaleHead)
        assert isinstance(fact, StaleHead)
        assert isinstance(third, Appended)
        assert store.state_of(record.stream) is None


def test_a_guard_sees_what_its_own_batch_has_changed(tmp_path: Path) -> None:
    """Two appends with one key in one transaction: the second is told of the first."""
    with open_store(tmp_path / "l.db") as store:
        one, two = new("k", guarded=True), new("k", guarded=True)
        first, second = store.append_sync(one, two)
        assert isinstance(first, Appended)
        assert isinstance(second, KeyTaken)
        assert second.intent == one.stream


def test_a_guard_that_reads_half_an_answer_pins_no_snapshot(tmp_path: Path) -> None:
    kept = []

    class Half(Free):
        def members(self, cursor, limit):
            kept.append(cursor.execute("SELECT id FROM things"))
            kept[-1].fetchone()
            return {}

    with open_store(tmp_path / "l.db") as store, open_store(tmp_path / "l.db") as other:
        store.append_sync(new(), new())
        for _ in range(5):
            item = new()
            [result] = store.append_sync(replace(item, guard=Half(item.stream)))
            assert isinstance(result, Appended)
            other.append_sync(new())


def test_an_item_that_can_never_go_in_fails_alone(tmp_path: Path) -> None:
    """REC-12: one poisoned row stops nothing else of its batch."""

    async def main() -> None:
        with open_store(tmp_path / "l.db") as store:
            held = new()
            store.append_sync(held)
            inject(store, held.stream, 1, "FromTheFuture", b"{}")
            groups = [[new()], [Append(held.stream, (started(),), 0)], [new("twice")], [new("twice")]]
            groups += [[new(), Append(stream_id(), (started(),))], [new()]]
            jobs = [store.append(*group) for group in groups]
            results = await asyncio.gather(*jobs, return_exceptions=True)
            assert [type(result) for result in results] == [list, StreamHeld, list, Unappendable, Unappendable, list]
            assert store.head_position() == 5
            assert [found.position for found in store.page(0)] == [1, 2, 3, 4, 5]
            assert [found.stream for found in store.held_streams()] == [held.stream]
            assert not store.verify_views()

    asyncio.run(main())


def test_what_is_no_event_of_ours_is_refused_before_it_is_queued(tmp_path: Path) -> None:
    with open_store(tmp_path / "l.db") as store:
        with pytest.raises(Unappendable, match="no events"):
            store.append_sync(Append(stream_id(), (), NEW))
        with pytest.raises(Unappendable, match="cannot be encoded"):
            store.append_sync(Append(stream_id(), (object(),), NEW))  # type: ignore[arg-type]
        with pytest.raises(Unappendable, match="group"):
            store.append_sync(*[new() for _ in range(limits.GROUP_APPENDS_MAX + 1)])


def test_positions_have_no_gaps_and_are_never_used_again(tmp_path: Path) -> None:
    """Also after rollbacks, and after a last row that somebody removed."""
    with open_store(tmp_path / "l.db") as store:
        store.append_sync(new("a"))
        with pytest.raises(Unappendable):
            store.append_sync(new("b"), new("a"))  # no guard: the view's UNIQUE column refuses both
        store.append_sync(new("c"))
        assert [found.position for found in store.page(0)] == [1, 2]
        store.transact_sync(lambda batch: batch.cursor.execute("DELETE FROM stored_events WHERE notification_id = 2"))
    with open_store(tmp_path / "l.db") as store:
        [result] = store.append_sync(new("d"))
        assert result.position == 3


def test_recorded_at_never_goes_back(tmp_path: Path) -> None:
    clock = Clock()
    with open_store(tmp_path / "l.db", wall_ms=clock) as store:
        first = store.append_sync(new())[0].recorded_at
        clock.now -= 10_000
        assert store.append_sync(new())[0].recorded_at == first
    with open_store(tmp_path / "l.db", wall_ms=clock) as store:
        assert store.append_sync(new())[0].recorded_at == first
        clock.now += 10_001
        assert store.append_sync(new())[0].recorded_at == first + 1


def test_a_cancelled_append_still_commits(tmp_path: Path) -> None:
    async def main() -> None:
        with open_store(tmp_path / "l.db") as store:
            item = new()
            store.append(item).cancel()
            await store.append(new())
            assert store.state_of(item.stream) is not None

    asyncio.run(main())


def test_too_many_that_wait_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """OB-16: refused with a type, never dropped in silence."""
    monkeypatch.setattr(limits, "WRITER_QUEUE_ITEMS", 10)

    async def main() -> None:
        with open_store(tmp_path / "l.db") as store:
            taken, refused = [], 0
            gate = threading.Event()
            hold = asyncio.get_running_loop().run_in_executor(None, store.transact_sync, lambda batch: gate.wait(10))
            await asyncio.sleep(0.1)
            for _ in range(15):
                try:
                    taken.append(store.append(new()))
                except StoreOverloaded:
                    refused += 1
            gate.set()
            await hold
            results = await asyncio.gather(*taken)
            assert refused == 5
            assert all(isinstance(result[0], Appended) for result in results)

    asyncio.run(main())


def test_listeners_hear_of_own_and_of_foreign_commits(tmp_path: Path) -> None:
    async def main() -> None:
        with open_store(tmp_path / "l.db") as store, open_store(tmp_path / "l.db") as other:
            own: list[int] = []
            foreign = asyncio.Event()
            stop = store.on_commit(own.append)
            store.on_foreign_commit(foreign.set)
            await store.append(new())
            await asyncio.sleep(0)
            assert own == [1]
            assert not foreign.is_set()
            await asyncio.to_thread(other.append_sync, new())
            await asyncio.wait_for(foreign.wait(), 5)
            stop()
            await store.append(new())
            await asyncio.sleep(0)
            assert own == [1]

    asyncio.run(main())


def test_another_connections_commit_is_seen_as_another_head(tmp_path: Path) -> None:
    with open_store(tmp_path / "l.db") as store, open_store(tmp_path / "l.db") as other:
        item = new()
        store.append_sync(item)
        other.append_sync(Append(item.stream, (started(),), 0))
        [stale] = store.append_sync(Append(item.stream, (started(),), 0))
        assert isinstance(stale, StaleHead)
        [fact] = store.append_sync(Append(item.stream, (accepted(),)))
        assert (fact.head, fact.position) == (2, 3)
        assert not store.verify_views()


def test_a_small_cache_changes_nothing(tmp_path: Path) -> None:
    with open_store(tmp_path / "l.db") as store:
        store._writer._batch._streams._capacity = 1
        items = [new() for _ in range(5)]
        store.append_sync(*items)
        results = store.append_sync(*[Append(item.stream, (started(), failed()), 0) for item in items])
        assert [result.head for result in results] == [2] * 5
        assert not store.verify_views()


def test_tracking_comes_forward_only(tmp_path: Path) -> None:
    with open_store(tmp_path / "l.db") as store:
        assert store.tracked("effects") is None
        store.track_sync("effects", 5)
        store.track_sync("effects", 3)
        assert store.tracked("effects") == 5


def test_close_commits_what_waits_and_refuses_the_rest(tmp_path: Path) -> None:
    async def main() -> list[list[Appended]]:
        store = open_store(tmp_path / "l.db")
        jobs = [store.append(new()) for _ in range(500)]
        store.close()
        store.close()
        with pytest.raises(StoreClosed):
            store.append(new())
        with pytest.raises(StoreClosed):
            store.head_position()
        return await asyncio.gather(*jobs)

    assert len(asyncio.run(main())) == 500
    with open_store(tmp_path / "l.db") as store:
        assert store.head_position() == 500
        assert store.read_sync(lambda cursor: cursor.execute("PRAGMA user_version").get) == schema.SCHEMA_VERSION


def test_pages_by_topic(tmp_path: Path) -> None:
    with open_store(tmp_path / "l.db", [Things()]) as store:
        item = new()
        store.append_sync(item, Append(item.stream, (started(), accepted()), 0), new())
        assert [found.topic for found in store.page(1, 2)] == ["AttemptStarted", "UnitAccepted"]
        assert [found.position for found in store.page(0, 10, ["IntentRecorded"])] == [1, 4]
        assert recorded("x").key == "x"
