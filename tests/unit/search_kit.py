"""A ledger whose views are filled by SQL, and what a search must find in it, the slow way."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import apsw
from msgledger import Target
from msgledger.ledger.store.store import Store
from msgledger.projections import VIEWS, open_to_read
from msgledger.projections.intents import COLUMNS, Row
from msgledger.projections.query import Query, asked

AT = 1_772_323_200_000
EVENTS_EACH = 3
PLACES = 6
SESSIONS = 4
NAMES = [name for name, _ in COLUMNS]
OPEN = ("pending", "sending", "committing", "unknown_after_send")


class Filled(NamedTuple):
    path: Path
    store: Store
    rows: list[Row]
    """All intents, oldest first."""
    receipts: set[tuple[str, str]]
    """(platform id, intent)."""

    def query(self, **filters: Any) -> Query:
        return asked(
            {name: value for name, value in filters.items() if name not in ("owed", "before", "after")},
            self.store.pseudonyms,
            AT + len(self.rows) * 1_000,
            owed=filters.get("owed", False),
            before=filters.get("before"),
            after=filters.get("after"),
        )

    def expected(self, query: Query) -> list[Row]:
        found = [row for row in self.rows if self._matches(query, row)]
        return found if query.owed else found[::-1]

    def _matches(self, query: Query, row: Row) -> bool:
        columns = ("status", "channel", "account", "place", "session", "failure", "hold", "inbound", "of", "key")
        return (
            all(not getattr(query, name) or getattr(row, name) in getattr(query, name) for name in columns)
            and (not query.owed or row.status in OPEN)
            and (not query.platform_id or any((id, row.id) in self.receipts for id in query.platform_id))
            and (query.since is None or row.recorded_at >= query.since)
            and (query.until is None or row.recorded_at <= query.until)
            and (query.before is None or row.position < query.before)
            and (query.after is None or row.position > query.after)
        )


def target(number: int) -> Target:
    return Target.group("telegram", f"room-{number}")


def filled(path: Path, count: int, *, seed: int = 1, open_share: float = 0.1) -> Filled:
    """So many intents, each of three events a second apart, written past the store. Close the store at the end."""
    Store.open(path, VIEWS, wall_ms=lambda: AT).close()
    store = open_to_read(path, lambda: AT)
    chance = random.Random(seed)
    rows = [_row(store, chance, number, open_share) for number in range(count)]
    receipts = [_receipt(chance, row) for row in rows if row["status"] == "sent"]
    connection = apsw.Connection(str(path))
    with connection:
        put(connection, "intents", NAMES, [[row[name] for name in NAMES] for row in rows])
        named = ["platform_id", "channel", "account", "place", "intent", "unit", "part", "kind", "position"]
        put(connection, "receipts", named, receipts)
        columns = ["notification_id", "originator_id", "originator_version", "topic", "state", "recorded_at"]
        events = [
            [row["position"] + version, row["id"], version, "Event", b"{}", row["recorded_at"]]
            for row in rows
            for version in range(EVENTS_EACH)
        ]
        put(connection, "stored_events", columns, events)
    connection.close()
    return Filled(path, store, [Row(**row) for row in rows], {(one[0], one[4]) for one in receipts})


def put(connection: apsw.Connection, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    marks = ", ".join("?" * len(columns))
    connection.executemany(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})", rows)


def _row(store: Store, chance: random.Random, number: int, open_share: float) -> dict[str, Any]:
    """Values as a state could have them, as far as a search asks."""
    at = AT + number * 1_000
    names = store.pseudonyms
    status = (
        chance.choice(OPEN) if chance.random() < open_share else chance.choice(["sent"] * 8 + ["failed", "cancelled"])
    )
    held = status in ("pending", "unknown_after_send") and chance.random() < 0.4
    failed = status == "failed" or chance.random() < 0.1
    lane = f"{number:032x}"
    row: dict[str, Any] = dict.fromkeys(NAMES)
    row |= {"content_mac": "m", "action": "send", "head": 2, "relation": "followup", "origin": "gateway"}
    row |= dict.fromkeys(("attempts", "dismissed", "units", "accepted", "duplicates", "contradictions"), 0)
    row |= {
        "id": f"{at:012x}"[:8] + f"-{at & 0xFFFF:04x}-7000-8000-{chance.getrandbits(48):012x}",
        "key": names.key(f"key-{number}"),
        "position": number * EVENTS_EACH + 1,
        "channel": chance.choice(["telegram"] * 8 + ["matrix"]) if number else "rare",
        "account": chance.choice(["default", "second"]),
        "lane": lane,
        "holds_lane": None if status not in OPEN or (held and chance.random() < 0.5) else 2**63 - 1,
        "place": names.place(target(min(PLACES - 1, int(chance.expovariate(0.7))))),
        "session": names.session(f"s-{chance.randrange(SESSIONS)}") if chance.random() < 0.5 else None,
        "status": status,
        "hold": chance.choice(["config", "unresolved", "channel"]) if held else None,
        "failure": chance.choice(["rate_limit", "auth", "not_found"]) if failed else None,
        "expires_at": at,
        "recorded_at": at,
        "updated_at": at,
        "of": f"of-{number % 5}" if chance.random() < 0.1 else None,
        "inbound": f"in-{number % 5}" if chance.random() < 0.1 else None,
    }
    return row


def _receipt(chance: random.Random, row: dict[str, Any]) -> list[Any]:
    id = str(chance.randrange(40))
    return [id, row["channel"], row["account"], row["place"], row["id"], 0, 0, "text", row["position"]]
