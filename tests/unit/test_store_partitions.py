"""What guards are told: the members of a partition from memory, as the table has them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from msgledger.ledger import events as e
from msgledger.ledger import limits
from msgledger.ledger.errors import LaneBusy, StaleHead
from msgledger.ledger.store import rebuild
from msgledger.ledger.store.append import NEW, Append, Appended
from msgledger.ledger.store.batch import Batch
from msgledger.ledger.store.partitions import Partitions
from msgledger.ledger.store.store import Store
from msgledger.projections import VIEWS
from msgledger.projections.intents import LaneFree

from .store_kit import AT, BY, accepted, committed, failed, new, open_store, started, unknown

LANES = ("a", "b", "c")


def claim(stream: str, head: int, attempt: int, lane: str) -> Append:
    return Append(stream, (started(attempt),), head, LaneFree(lane, AT))


def remembered(store: Store) -> dict[str, dict[str, object]]:
    """What the writer knows by heart, and what the table says of the same."""

    def look(batch: Batch) -> tuple[dict, dict]:
        known = {lane: dict(batch._partitions._known[lane]) for lane in LANES if lane in batch._partitions._known}
        return known, {lane: Partitions().members(LaneFree(lane, AT), batch.cursor) for lane in known}

    known, table = store.transact_sync(look)
    assert known == table
    return known


@pytest.mark.parametrize("seed", range(6))
def test_what_is_remembered_is_what_the_table_says(tmp_path: Path, seed: int) -> None:
    """R7, G6: over records, claims, ends and another process's writing, alone and together in one transaction."""
    chance = random.Random(seed)
    clock = {"wall_ms": lambda: AT}
    compared = 0
    with open_store(tmp_path / "l.db", VIEWS, **clock) as ours, open_store(tmp_path / "l.db", VIEWS, **clock) as theirs:
        stands: dict[str, tuple[str, int, int, bool]] = {}  # stream: lane, head, attempts, in flight
        for _ in range(120):
            store = theirs if chance.random() < 0.1 else ours
            items: list[Append] = []
            for _ in range(chance.randint(1, 4)):
                busy = {item.stream for item in items}
                free = [stream for stream in stands if stream not in busy]
                if not free or chance.random() < 0.4:
                    items.append(new(lane=chance.choice(LANES)))
                    continue
                stream = chance.choice(free)
                lane, head, attempts, flying = stands[stream]
                if flying:
                    end = chance.choice(((accepted(attempts), committed()), (failed(attempts),), (unknown(attempts),)))
                    items.append(Append(stream, end, head))
                else:
                    items.append(claim(stream, head, attempts + 1, lane))
            for item, result in zip(items, store.append_sync(*items), strict=True):
                assert isinstance(result, Appended | LaneBusy), result
                if isinstance(result, Appended):
                    state = result.state
                    stands[item.stream] = (state.lane, state.head, state.attempts, state.current is not None)
                    if state.holds_lane() is None:
                        del stands[item.stream]
            compared += len(remembered(ours))
        assert compared > 100


def test_the_lane_is_free_only_for_its_first(tmp_path: Path) -> None:
    """R7: an earlier message that waits, and one that is in flight, refuse a claim; in one transaction and in later
    ones."""
    with open_store(tmp_path / "l.db", VIEWS) as store:
        first, second = new(lane="a"), new(lane="a")
        results = store.append_sync(first, second, claim(second.stream, 0, 1, "a"), claim(first.stream, 0, 1, "a"))
        assert [type(result) for result in results] == [Appended, Appended, LaneBusy, Appended]
        [refused] = store.append_sync(claim(second.stream, 0, 1, "a"))
        assert isinstance(refused, LaneBusy)
        ended = Append(first.stream, (accepted(), committed()), 1)
        results = store.append_sync(ended, claim(second.stream, 0, 1, "a"))
        assert [type(result) for result in results] == [Appended, Appended]


def test_a_crowded_lane_is_asked_of_the_table(tmp_path: Path) -> None:
    """R7: only the first of very many may go, and what is in flight further behind is seen."""
    with open_store(tmp_path / "l.db", VIEWS) as store:
        items = [new(lane="a") for _ in range(limits.PARTITION_MEMBERS + 20)]
        store.append_sync(*items)
        for refused in (items[1], items[-1]):
            [result] = store.append_sync(claim(refused.stream, 0, 1, "a"))
            assert isinstance(result, LaneBusy)
        assert remembered(store) == {}
        store.append_sync(Append(items[-1].stream, (started(),), 0))  # without a guard
        [result] = store.append_sync(claim(items[0].stream, 0, 1, "a"))
        assert isinstance(result, LaneBusy)
        store.append_sync(Append(items[-1].stream, (accepted(), committed()), 1))
        [result] = store.append_sync(claim(items[0].stream, 0, 1, "a"))
        assert isinstance(result, Appended)


def test_one_behind_a_crowd_that_ends_in_the_same_transaction_still_waits_for_its_turn(tmp_path: Path) -> None:
    """R7, G6: what the table gave as the first of the lane may all be out of the way already."""
    with open_store(tmp_path / "l.db", VIEWS) as store:
        items = [new(lane="a") for _ in range(limits.PARTITION_MEMBERS + 6)]
        store.append_sync(*items)
        cancelled = (e.IntentCancelled(at=AT, by=BY, reason="all of them"),)
        ends = [Append(item.stream, cancelled, 0) for item in items[: limits.PARTITION_MEMBERS]]
        last, first = items[-1].stream, items[limits.PARTITION_MEMBERS].stream
        results = store.append_sync(*ends, claim(last, 0, 1, "a"), claim(first, 0, 1, "a"))
        assert [type(result) for result in results[-2:]] == [LaneBusy, Appended]
        remembered(store)


def test_a_lane_that_fills_is_remembered_no_longer(tmp_path: Path) -> None:
    """R7, REC-1: a backlog is not gone through at each claim, and its first may still go."""
    with open_store(tmp_path / "l.db", VIEWS) as store:
        first = new(lane="a")
        store.append_sync(first)
        store.append_sync(
            Append(first.stream, (started(),), 0, LaneFree("a", AT)), Append(first.stream, (failed(),), 1)
        )
        assert len(remembered(store)["a"]) == 1
        for _ in range(3):
            store.append_sync(*[new(lane="a") for _ in range(limits.PARTITION_MEMBERS)])
            assert remembered(store) == {}
        [result] = store.append_sync(claim(first.stream, 2, 2, "a"))
        assert isinstance(result, Appended)


def test_what_was_learned_of_a_damaged_view_is_forgotten_with_a_rebuild(tmp_path: Path) -> None:
    """G9, R7: the guard judges what the rebuilt view says."""
    damage = "UPDATE intents SET holds_lane = NULL WHERE id = ?"
    with open_store(tmp_path / "l.db", VIEWS) as store:
        first, second, third = (new(lane="a") for _ in range(3))
        store.append_sync(first, second, third)
    with open_store(tmp_path / "l.db", VIEWS) as store:
        store.transact_sync(lambda batch: batch.cursor.execute(damage, (first.stream,)).get)
        [learned] = store.append_sync(claim(third.stream, 0, 1, "a"))
        assert isinstance(learned, LaneBusy)
        store.rebuild()
        [result] = store.append_sync(claim(second.stream, 0, 1, "a"))
        assert isinstance(result, LaneBusy)


def test_what_a_rebuild_removes_is_not_remembered(tmp_path: Path) -> None:
    """G9, R7: also where it was learned between the last slice and the end."""
    with open_store(tmp_path / "l.db", VIEWS) as store:
        first = new(lane="a")
        store.append_sync(first)
        columns = ", ".join(store.views[0].columns)
        copied = ", ".join({"id": "'0'", "key": "'0'", "position": "0"}.get(one, one) for one in store.views[0].columns)
        phantom = f"INSERT INTO intents ({columns}) SELECT {copied} FROM intents"
        store.transact_sync(lambda batch: batch.cursor.execute(phantom).get)
        refused: list[object] = []

        def learning(work: Any) -> Any:
            """Somebody tries to claim before each step of the rebuild."""
            refused.extend(store.append_sync(claim(first.stream, 0, 1, "a")))
            return store.transact_sync(work)

        rebuild.fill(learning, store.views, prune=True)
        assert refused and all(isinstance(one, LaneBusy) for one in refused)
        [result] = store.append_sync(claim(first.stream, 0, 1, "a"))
        assert isinstance(result, Appended)


@pytest.mark.parametrize("damage", ["id = 'zzz' WHERE id = ?1", "status = iif(id = ?1, 'pending', 'sending')"])
def test_a_rebuild_goes_over_rows_that_contradict_the_true_ones(tmp_path: Path, damage: str) -> None:
    """G9: a key or a place in flight that a damaged row has taken."""
    with open_store(tmp_path / "l.db", VIEWS) as store:
        first, second = new("key-1", lane="a"), new("key-2", lane="a")
        store.append_sync(first, second, Append(first.stream, (started(),), 0))
        store.transact_sync(lambda batch: batch.cursor.execute(f"UPDATE intents SET {damage}", (first.stream,)).get)
        assert store.verify_views() != []
        store.rebuild()
        assert store.verify_views() == []


def test_a_new_stream_that_stands_already_is_a_stale_head(tmp_path: Path) -> None:
    """The table is asked only after the insert was refused, and the others of that transaction go in."""
    with open_store(tmp_path / "l.db", VIEWS) as store:
        item = new("a")
        store.append_sync(item)
        store.append_sync(Append(item.stream, (started(),), 0), Append(item.stream, (accepted(), committed()), 1))
        again, other = Append(item.stream, item.events, NEW), new("b")
        results = store.append_sync(again, other)
        assert [type(result) for result in results] == [StaleHead, Appended]
        [alone] = store.append_sync(again)
        assert isinstance(alone, StaleHead)
        assert [found.position for found in store.page(0)] == [1, 2, 3, 4, 5]
