"""Searching the intents: every answer equals the slow one, and no step costs what the history has grown to."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest
from msgledger import InvalidQuery
from msgledger.projections import receipts, search
from msgledger.projections.intents import Row
from msgledger.projections.log import position_at
from msgledger.projections.query import NAMES, Query
from msgledger.projections.receipts import by_platform_id

from .search_kit import AT, EVENTS_EACH, PLACES, SESSIONS, Filled, filled, target

FILTERS: dict[str, list[Any]] = {
    "status": [
        "sent",
        "failed",
        "cancelled",
        "pending",
        "unknown_after_send",
        ("failed", "cancelled"),
        ("failed", "sending"),
    ],
    "channel": ["telegram", "matrix", "rare", "never", ("rare", "matrix")],
    "account": ["default", "second", "third"],
    "target": [target(0), target(PLACES - 1), [target(1), target(2), target(3)], target(99)],
    "session": [f"s-{number}" for number in range(SESSIONS)] + ["s-none"],
    "failure": ["rate_limit", "not_found", ("auth", "rate_limit"), "conflict"],
    "hold": ["config", "unresolved", ("config", "channel")],
    "inbound": ["in-1", ("in-1", "in-2")],
    "of": ["of-3", "of-none"],
    "key": ["key-7", "key-none", ("key-1", "key-250")],
    "platform_id": ["7", ("3", "4"), "none"],
    "since": [AT + 30_000, AT + 200_000, AT - 1],
    "until": [AT + 100_500, AT + 10**9, AT - 1],
    "older_than": [150, 0.0],
}
"""Values of each filter: common ones, rare ones, several at once, and such as nothing has."""


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filled]:
    found = filled(tmp_path_factory.mktemp("search") / "ledger.db", 400)
    yield found
    found.store.close()


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds so small that a ledger of 400 intents needs every way there is, and many steps."""
    monkeypatch.setattr(search, "FEW", 12)
    monkeypatch.setattr(search, "ENTRIES_MAX", 9)
    monkeypatch.setattr(search, "STRETCH_EVENTS", 50)


def all_of(ledger: Filled, query: Query, limit: int) -> list[Row]:
    """Step by step to the end."""
    found: list[Row] = []
    for _ in range(1_000):
        rows, go_on = ledger.store.read_sync(search.step, query, limit)
        assert len(rows) <= limit
        found += rows
        if go_on is None:
            return found
        query = search.further(query, go_on)
    raise AssertionError("it does not come to an end")


def some_filters(chance: random.Random) -> dict[str, Any]:
    chosen = chance.sample(sorted(FILTERS), chance.randrange(4))
    filters = {name: chance.choice(FILTERS[name]) for name in chosen}
    if chance.random() < 0.2:
        filters["before"] = chance.randrange(1_300)
    if chance.random() < 0.2:
        filters["after"] = chance.randrange(1_300)
    return filters | {"owed": chance.random() < 0.3}


def test_every_filter_is_tried() -> None:
    assert set(FILTERS) == set(NAMES)


@pytest.mark.parametrize("name", sorted(FILTERS))
def test_each_filter_alone_finds_what_it_should(ledger: Filled, small: None, name: str) -> None:
    """SC-67: also in both directions."""
    for value in FILTERS[name]:
        for owed in (False, True):
            query = ledger.query(**{name: value}, owed=owed)
            assert all_of(ledger, query, 5) == ledger.expected(query)
            assert ledger.store.read_sync(search.count, query) == len(ledger.expected(query))


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("bounds", ["small", "real"])
def test_any_filters_together_find_what_they_should(
    ledger: Filled, seed: int, bounds: str, request: pytest.FixtureRequest
) -> None:
    """SC-67: whatever way is taken, page by page or all at once, and counted."""
    if bounds == "small":
        request.getfixturevalue("small")
    chance = random.Random(seed)
    for _ in range(25):
        filters = some_filters(chance)
        query = ledger.query(**filters)
        expected = ledger.expected(query)
        assert all_of(ledger, query, chance.choice([1, 7, 500])) == expected, filters
        assert ledger.store.read_sync(search.search, query, 13) == expected[:13], filters
        assert ledger.store.read_sync(search.count, query) == len(expected), filters


class Watched:
    """A cursor that keeps the plan of each statement and counts what SQLite does for it."""

    def __init__(self, path: Path) -> None:
        self.connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        self.plans: list[tuple[str, list[str]]] = []
        self.steps = 0

    def execute(self, text: str, values: Any = ()) -> Any:
        explained = self.connection.execute(f"EXPLAIN QUERY PLAN {text}", values)
        self.plans.append((text, [row[3] for row in explained]))
        self.connection.set_progress_handler(self._step, 1)
        try:
            rows = self.connection.execute(text, values).fetchall()
        finally:
            self.connection.set_progress_handler(None)
        return Result(rows)

    def _step(self) -> bool:
        self.steps += 1
        return False


class Result(list[Any]):
    """Rows as a cursor gives them."""

    def fetchone(self) -> Any:
        return self.pop(0) if self else None

    def fetchall(self) -> Any:
        return list(self)

    @property
    def get(self) -> Any:
        return self[0][0] if self else None


def bad(text: str, plan: list[str]) -> list[str]:
    """Lines that say that something grows with the history."""
    sorts_few = f"LIMIT {search.FEW})" in text or f"LIMIT {search.ENTRIES_MAX})" in text
    over_owed = "holds_lane IS NULL" in text and text.endswith(f"LIMIT {search.ENTRIES_MAX}")
    small_sets = ("intents_lane", "intents_held", "sqlite_sequence", "json_each")
    return [
        line
        for line in plan
        if (line.startswith("SCAN") and "subquery" not in line and not any(name in line for name in small_sets))
        or ("TEMP B-TREE" in line and not sorts_few and not over_owed)
        or (sorts_few and line.startswith("SEARCH i USING INDEX intents_") and "COVERING" not in line)
    ]


@pytest.mark.parametrize("seed", range(10))
def test_no_step_scans_or_sorts_what_has_no_bound(ledger: Filled, small: None, seed: int) -> None:
    """G13: what SQLite says it does; only a set whose size is named is sorted."""
    chance = random.Random(100 + seed)
    watched = Watched(ledger.path)
    for _ in range(40):
        search.step(watched, ledger.query(**some_filters(chance)), 7)  # type: ignore[arg-type]
    assert [(text, lines) for text, plan in watched.plans if (lines := bad(text, plan))] == []
    assert len(watched.plans) > 40


def test_a_plan_that_scans_or_sorts_would_be_seen(ledger: Filled) -> None:
    watched = Watched(ledger.path)
    watched.execute("SELECT * FROM intents WHERE relation = 'x' ORDER BY position DESC LIMIT 3")
    [(text, plan)] = watched.plans
    assert len(bad(text, plan)) == 2


@pytest.mark.parametrize("one", [{"key": "key-7"}, {"channel": "rare"}, {"of": "of-none"}, {"platform_id": "none"}])
def test_the_filter_that_picks_fewest_is_followed(ledger: Filled, small: None, one: dict[str, Any]) -> None:
    """G13: beside filters that pick very many, a single step answers."""
    query = ledger.query(**one, target=[target(0), target(1)], status="sent", account=["default", "second"])
    rows, go_on = ledger.store.read_sync(search.step, query, 5)
    assert (rows, go_on) == (ledger.expected(query), None)


SPARSE: list[dict[str, Any]] = [
    {"failure": "rate_limit", "status": "cancelled", "session": "s-1"},
    {"target": target(0), "status": "cancelled", "failure": "auth", "channel": "matrix"},
    {"account": "second", "session": "s-1", "status": "failed", "target": target(1)},
    {"status": "sent", "since": AT, "failure": ("auth", "rate_limit"), "session": "s-0"},
]
"""Several lists that are all long, and hardly anything is in all of them."""


@pytest.fixture(scope="module")
def short_and_long(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Filled]]:
    """One history, and one of ten times the length; as much is owed."""
    folder = tmp_path_factory.mktemp("lengths")
    found = [filled(folder / f"{count}.db", count, open_share=8 / count) for count in (800, 8_000)]
    yield found
    for one in found:
        one.store.close()


@pytest.mark.parametrize("filters", [{}, *({name: values[0]} for name, values in FILTERS.items()), *SPARSE])
def test_a_page_costs_the_same_however_long_the_history(
    short_and_long: list[Filled], small: None, filters: dict[str, Any]
) -> None:
    """G13: the steps that SQLite takes for a page of 5, with ten times the history."""
    steps: list[int] = []
    for ledger in short_and_long:
        watched = Watched(ledger.path)
        search.step(watched, ledger.query(**filters), 5)  # type: ignore[arg-type]
        steps.append(watched.steps)
    assert steps[1] <= steps[0] * 1.5 + 500


@pytest.mark.parametrize("filters", [{"owed": True}, {"status": "pending"}, {"owed": True, "target": target(0)}])
def test_what_is_owed_is_found_however_far_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, filters: dict[str, Any]
) -> None:
    """G13: more owed than are sorted at once, at both ends of a history: nothing between them is gone through."""
    monkeypatch.setattr(search, "FEW", 5)
    monkeypatch.setattr(search, "STRETCH_EVENTS", 30)
    steps: list[int] = []
    for count in (100, 3_000):
        ledger = filled(tmp_path / f"{count}.db", count, open_share=0.0)
        connection = apsw.Connection(str(ledger.path))
        change = "UPDATE intents SET status = 'pending', holds_lane = 1, place = ? WHERE position BETWEEN ? AND ?"
        place = ledger.store.pseudonyms.place(target(0))
        for first in (10, count - 20):
            connection.execute(change, (place, first * EVENTS_EACH, first * EVENTS_EACH + 12))
        connection.close()
        watched = Watched(ledger.path)
        rows, go_on = search.step(watched, ledger.query(**filters), 50)  # type: ignore[arg-type]
        places = [row.position for row in rows]
        assert len(places) == 8 and places == sorted(places, reverse="owed" not in filters) and go_on is None
        steps.append(watched.steps)
        ledger.store.close()
    assert steps[1] <= steps[0] * 1.5 + 200


def test_a_platform_id_of_too_many_conversations_must_name_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SC-67: an id is unique in one conversation only."""
    ledger = filled(tmp_path / "l.db", 300)
    common = Counter(id for id, _ in ledger.receipts).most_common(1)[0][0]
    alone = ledger.query(platform_id=common, channel="telegram")
    assert ledger.store.read_sync(by_platform_id, "telegram", common) == [row.id for row in ledger.expected(alone)]
    monkeypatch.setattr(receipts, "FOUND_MAX", 3)
    with pytest.raises(InvalidQuery, match=r"more than 3 messages of 'telegram': .* target="):
        ledger.store.read_sync(by_platform_id, "telegram", common)
    here = ledger.query(platform_id=common, channel="telegram", target=target(0))
    place = ledger.store.pseudonyms.place(target(0))
    assert ledger.store.read_sync(by_platform_id, "telegram", common, place) == [
        row.id for row in ledger.expected(here)
    ]
    ledger.store.close()


def test_where_a_time_stands_in_the_log(ledger: Filled) -> None:
    """OB-2: the first position that was recorded then or later."""
    expected = {AT - 5: 1, AT: 1, AT + 1: 4, AT + 1_000: 4, AT + 399_000: 1_198, AT + 399_001: 1_201, 2**60: 1_201}
    assert {at: ledger.store.read_sync(position_at, at) for at in expected} == expected
