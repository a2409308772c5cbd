"""Subscriptions deliver every event once and in order, wake up at once, hold a page, and end cleanly."""

from __future__ import annotations

import asyncio
import gc
import itertools
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

import pytest
from eventsourcing.persistence import Notification, OperationalError, StoredEvent
from eventsourcing.utils import get_topic
from msgledger.ledger import errors, limits
from msgledger.ledger.events import IntentRecorded
from msgledger.ledger.store import apsw, subscriptions
from msgledger.ledger.store.datastore import Datastore
from msgledger.ledger.store.subscriptions import ApswSubscription

from ..unit.store_kit import new, open_store

SOON_S = 5.0
T = TypeVar("T")


@pytest.fixture
def recorder(tmp_path: Path) -> Iterator[apsw.ApswApplicationRecorder]:
    datastore = Datastore.open(str(tmp_path / "l.db"), "uuid", create=True)
    yield apsw.ApswApplicationRecorder(datastore)
    datastore.close()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor() as threads:
        yield threads


def add(recorder: apsw.ApswApplicationRecorder, count: int, topic: str = "theirs", size: int = 1) -> None:
    stream = uuid4()
    recorder.insert_events([StoredEvent(stream, version, topic, b"x" * size) for version in range(count)])


def take(subscription: ApswSubscription, count: int) -> list[int]:
    return [notification.id for notification in itertools.islice(subscription, count)]


def ids(subscription: ApswSubscription) -> list[int]:
    """All until the end."""
    return [notification.id for notification in subscription]


def waiting(pool: ThreadPoolExecutor, subscription: ApswSubscription, work: Callable[..., T]) -> Future[T]:
    """Start `work(subscription)` on a thread; returns once it waits for news."""
    asleep = threading.Event()
    wait = subscription._news.wait

    def notice(timeout: float | None = None) -> bool:
        asleep.set()
        return wait(timeout)

    subscription._news.wait = notice
    ended = pool.submit(work, subscription)
    assert asleep.wait(SOON_S)
    return ended


def without_fallback(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody looks unless told."""
    monkeypatch.setattr(limits, "FOLLOW_CHECK_S", 60.0)


def test_all_of_it_in_order_over_many_pages(
    recorder: apsw.ApswApplicationRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "PAGE_ROWS", 7)
    add(recorder, 50)
    with recorder.subscribe() as subscription:
        assert take(subscription, 50) == list(range(1, 51))
        add(recorder, 3)
        assert take(subscription, 3) == [51, 52, 53]
    with recorder.subscribe(gt=20) as subscription:
        assert take(subscription, 33) == list(range(21, 54))


def test_no_gap_and_no_repetition_while_several_threads_write(
    recorder: apsw.ApswApplicationRecorder, pool: ThreadPoolExecutor
) -> None:
    with recorder.subscribe() as subscription:
        writers = [pool.submit(lambda: [add(recorder, 3) for _ in range(40)]) for _ in range(4)]
        assert take(subscription, 480) == list(range(1, 481))
        assert all(writer.result(SOON_S) for writer in writers)


def test_a_page_at_a_time_is_in_memory(recorder: apsw.ApswApplicationRecorder, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page ends with its rows, and before that with its bytes."""
    monkeypatch.setattr(limits, "PAGE_BYTES", 10_000)
    monkeypatch.setattr(limits, "PAGE_ROWS", 20)
    add(recorder, 100, size=10)
    add(recorder, 20, size=4_000)
    held: list[int] = []
    with recorder.subscribe() as subscription:
        for notification in subscription:
            held.append(len(subscription._page) + 1)
            if notification.id == 120:
                break
    assert max(held) == 20
    assert max(held[100:]) == 3


def test_topics_are_picked_in_the_database_and_each_stretch_is_looked_through_once(
    recorder: apsw.ApswApplicationRecorder, monkeypatch: pytest.MonkeyPatch, pool: ThreadPoolExecutor
) -> None:
    """A rare topic must not cost a scan of everything at each commit."""
    monkeypatch.setattr(limits, "SCAN_POSITIONS", 10)
    looked: list[tuple[int, int]] = []
    read_page = subscriptions.read_page

    def noting(cursor, after, *rest):
        page = read_page(cursor, after, *rest)
        looked.append((after, page.reached))
        return page

    monkeypatch.setattr(subscriptions, "read_page", noting)
    add(recorder, 25, "common")
    add(recorder, 1, "rare")
    add(recorder, 25, "common")
    with recorder.subscribe(topics=["rare"]) as subscription:
        assert take(subscription, 1) == [26]
        second = waiting(pool, subscription, next)
        add(recorder, 5, "common")
        add(recorder, 1, "rare")
        assert second.result(SOON_S).id == 57
    moved = [(after, reached) for after, reached in looked if reached > after]
    assert [after for after, _ in moved] == [0, *[reached for _, reached in moved[:-1]]], "each goes on from the last"
    assert max(reached - after for after, reached in moved) <= 10
    assert [n.id for n in recorder.select_notifications(1, 5, topics=["rare"])] == [26, 57]


def test_a_selection_is_of_bounded_pages_and_keeps_to_its_ends(
    recorder: apsw.ApswApplicationRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SCAN_POSITIONS", 4)
    monkeypatch.setattr(limits, "PAGE_BYTES", 2)
    for _ in range(10):
        add(recorder, 1, "odd")
        add(recorder, 1, "even")

    def selected(*arguments: int | None, **more: object) -> list[int]:
        return [notification.id for notification in recorder.select_notifications(*arguments, **more)]

    assert selected(None, 100) == list(range(1, 21))
    assert selected(3, 4) == [3, 4, 5, 6]
    assert selected(3, 100, 9) == list(range(3, 10))
    assert selected(3, 2, 9, inclusive_of_start=False) == [4, 5]
    assert selected(3, 100, 9, ["even"]) == [4, 6, 8]
    assert selected(3, 100, 9, ["odd"], inclusive_of_start=False) == [5, 7, 9]
    assert selected(1, 3, None, ["even", "odd"]) == [1, 2, 3]
    assert selected(21, 100) == selected(5, 0) == selected(9, 10, 3) == []
    with pytest.raises(apsw.ProgrammingError, match="limit is -1"):
        recorder.select_notifications(1, -1)


@pytest.mark.parametrize("foreign", [False, True])
def test_it_wakes_up_without_looking_by_itself(
    tmp_path: Path,
    recorder: apsw.ApswApplicationRecorder,
    pool: ThreadPoolExecutor,
    monkeypatch: pytest.MonkeyPatch,
    foreign: bool,
) -> None:
    """By the commit of its own store, and of another connection to the file."""
    without_fallback(monkeypatch)
    with recorder.subscribe() as subscription, open_store(tmp_path / "l.db") as other:
        other.head_position()
        first = waiting(pool, subscription, next)
        if foreign:
            other.append_sync(new())
        else:
            add(recorder, 1)
        assert first.result(SOON_S).id == 1


def test_it_wakes_up_where_it_was_made_in_an_event_loop_that_is_gone(
    recorder: apsw.ApswApplicationRecorder, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_fallback(monkeypatch)

    async def subscribe() -> ApswSubscription:
        return recorder.subscribe()

    with asyncio.run(subscribe()) as subscription:
        first = waiting(pool, subscription, next)
        add(recorder, 1)
        assert first.result(SOON_S).id == 1


def test_news_that_nobody_told_of_are_found_after_a_while(
    recorder: apsw.ApswApplicationRecorder, pool: ThreadPoolExecutor
) -> None:
    with recorder.subscribe() as subscription:
        subscription._forget()  # as if the writer thread were dead
        first = waiting(pool, subscription, next)
        add(recorder, 1)
        assert first.result(SOON_S).id == 1


@pytest.mark.parametrize("end", ["stop", "leave", "close the datastore"])
def test_it_ends_cleanly_while_it_waits(
    recorder: apsw.ApswApplicationRecorder, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    without_fallback(monkeypatch)
    add(recorder, 2)
    subscription = recorder.subscribe()
    with subscription:
        ended = waiting(pool, subscription, ids)
        if end == "stop":
            subscription.stop()
            assert ended.result(SOON_S) == [1, 2]
        elif end == "close the datastore":
            recorder.datastore.close()
            assert ended.result(SOON_S) == [1, 2]
    assert ended.result(SOON_S) == [1, 2]
    assert list(subscription) == []
    assert recorder.datastore.store._writer._own == recorder.datastore.store._writer._foreign == []


def test_it_ends_when_somebody_else_closes_the_store(
    recorder: apsw.ApswApplicationRecorder, pool: ThreadPoolExecutor
) -> None:
    ended = waiting(pool, recorder.subscribe(), ids)
    recorder.datastore.store.close()
    assert ended.result(SOON_S) == []
    with pytest.raises(OperationalError, match="closed"):
        recorder.subscribe()


def test_a_stop_that_comes_at_any_moment_is_heard(
    recorder: apsw.ApswApplicationRecorder, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_fallback(monkeypatch)
    subscription = recorder.subscribe()
    clear = subscription._news.clear

    def stopped_before() -> None:
        subscription.stop()
        clear()

    subscription._news.clear = stopped_before
    assert pool.submit(list, subscription).result(SOON_S) == []


def test_a_ledger_that_cannot_be_read_is_an_error_and_no_end(
    recorder: apsw.ApswApplicationRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise errors.StoreBroken("the disk failed")

    with recorder.subscribe() as subscription:
        monkeypatch.setattr(subscriptions, "read_page", broken)
        with pytest.raises(OperationalError, match="disk failed"):
            next(subscription)


def test_one_that_is_forgotten_leaves_nothing_behind(recorder: apsw.ApswApplicationRecorder) -> None:
    add(recorder, 1)
    subscription = recorder.subscribe()
    assert isinstance(next(subscription), Notification)
    gone = weakref.ref(subscription)
    del subscription
    gc.collect()
    assert gone() is None
    assert recorder.datastore.store._writer._own == []


def test_topics_of_ours_may_be_named_as_that_library_names_them(tmp_path: Path) -> None:
    """Its `get_topic` puts the module before the name; a filter that matches nothing would go unnoticed."""
    with open_store(tmp_path / "l.db") as store:
        store.append_sync(new())
        recorder = apsw.ApswApplicationRecorder(Datastore(store, "text"))
        named = get_topic(IntentRecorded)
        assert len(recorder.select_notifications(None, 10, topics=[named])) == 1
        with recorder.subscribe(topics=[named]) as subscription:
            assert take(subscription, 1) == [1]
