"""Continuity, the pure part: what is fresh, when a conversation begins anew, and how a session changes."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from msgledger.ledger import inbound_events as i
from msgledger.ledger import session
from msgledger.ledger.errors import InvalidConfig, NotPossible
from msgledger.ledger.fold import evolve
from msgledger.ledger.session import SessionPolicy, SessionState, freshness_s, is_fresh, must_begin_anew, reset_due
from msgledger.ledger.store.calendar import day_began_at, session_id, zone

NOW = 1_772_366_400_000
"""2026-03-01 12:00:00 UTC."""
HOUR = 3_600_000
BY = "worker:w"


def opened(**more: Any) -> SessionState:
    event = i.SessionOpened(at=NOW, by=BY, key="k", session_id="s1", shown="agent", channel="qa", kind="dm")
    state = evolve(None, "stream", event, 10, NOW)
    for number, later in enumerate(more.get("then", ())):
        state = evolve(state, "stream", later, 11 + number, NOW)
    assert isinstance(state, SessionState)
    return state


class Row(NamedTuple):
    suspended: str | None = None
    resume: str | None = None
    resume_at: int | None = None


@pytest.mark.parametrize(
    ("said", "environment", "window"),
    [
        (None, None, 3600.0),
        (90.0, "7", 90.0),
        (None, "7", 7.0),
        (None, "0", 0.0),
        (None, "-1", -1.0),
        (None, "an hour", 3600.0),
        (None, "", 3600.0),
        (None, "nan", 3600.0),
        (float("inf"), None, 3600.0),
        (0.0, "7", 0.0),
    ],
)
def test_the_window_of_freshness(said: float | None, environment: str | None, window: float) -> None:
    """CT-2: the argument beats the environment, junk says nothing."""
    assert freshness_s(said, environment) == window


@pytest.mark.parametrize(
    ("marked_at", "window", "fresh"),
    [
        (NOW - HOUR, 3600, True),
        (NOW - HOUR - 1, 3600, False),
        (None, 3600, True),
        (NOW + HOUR, 3600, True),
        (NOW - 10_000 * HOUR, 0, True),
        (NOW - 10_000 * HOUR, -5, True),
    ],
)
def test_what_is_fresh(marked_at: int | None, window: float, fresh: bool) -> None:
    """CT-2, CT-3: the edge is fresh, so is an unknown time; the future is now; no window has no end."""
    assert is_fresh(marked_at, NOW, window) is fresh


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (Row(), None),
        (Row(suspended="operator"), "suspended"),
        (Row("interrupted", "in", NOW), "suspended"),
        (Row(resume="in", resume_at=NOW - HOUR), None),
        (Row(resume="in", resume_at=NOW - HOUR - 1), "resume_pending_expired"),
    ],
)
def test_what_begins_anew_whatever_the_mode(row: Row, reason: str | None) -> None:
    """CT-5, CT-7: suspended is stronger than a pending resume."""
    assert must_begin_anew(row, NOW, 3600) == reason


@pytest.mark.parametrize(
    ("mode", "last_at", "reason"),
    [
        ("none", NOW - 10_000 * HOUR, None),
        ("idle", NOW - 24 * HOUR, None),
        ("idle", NOW - 24 * HOUR - 1, "idle"),
        ("daily", NOW - 8 * HOUR, None),
        ("daily", NOW - 8 * HOUR - 1, "daily"),
        ("both", NOW - 8 * HOUR - 1, "daily"),
        ("both", NOW - 25 * HOUR, "idle"),
        ("both", None, None),
        ("both", NOW + HOUR, None),
    ],
)
def test_the_modes_of_reset(mode: Any, last_at: int | None, reason: str | None) -> None:
    """CT-6: strictly longer than the idle time; before the last time that it was four o'clock."""
    began = day_began_at(NOW, 4, zone("UTC"))
    assert reset_due(SessionPolicy(reset=mode), last_at, NOW, began) == reason


@pytest.mark.parametrize(
    ("name", "now", "began"),
    [
        ("UTC", "2026-03-01T12:00", "2026-03-01T04:00"),
        ("UTC", "2026-03-01T03:59", "2026-02-28T04:00"),
        ("UTC", "2026-03-01T04:00", "2026-03-01T04:00"),
        ("Asia/Tokyo", "2026-03-01T18:00", "2026-02-28T19:00"),
        ("Asia/Tokyo", "2026-03-01T19:00", "2026-03-01T19:00"),
        ("Europe/Berlin", "2026-03-29T12:00", "2026-03-29T02:00"),
        ("Europe/Berlin", "2026-10-25T12:00", "2026-10-25T03:00"),
    ],
)
def test_the_day_begins_in_its_own_zone(name: str, now: str, began: str) -> None:
    """CT-6, CT-10: also on the two days a year that have another length."""
    from datetime import datetime

    def ms(text: str) -> int:
        return int(datetime.fromisoformat(text + "+00:00").timestamp() * 1000)

    assert day_began_at(ms(now), 4, zone(name)) == ms(began)


def test_an_unknown_zone_is_refused() -> None:
    """CT-6."""
    with pytest.raises(InvalidConfig, match="'Mars/Olympus' is not known"):
        zone("Mars/Olympus")


def test_a_session_id_has_a_date() -> None:
    """CT-1."""
    assert session_id(NOW, "deadbeef") == "20260301_120000_deadbeef"


def test_each_reset_is_an_event_with_its_reason() -> None:
    """CT-7: the session ids of a key and where each begins stay known."""
    state = opened(
        then=(
            i.SessionRotated(at=NOW, by=BY, session_id="s2", reason="idle"),
            i.SessionRotated(at=NOW, by=BY, session_id="s3", reason="operator"),
        )
    )
    assert [tuple(span) for span in state.spans] == [("s1", 10, None), ("s2", 11, "idle"), ("s3", 12, "operator")]


def test_a_mark_is_made_once_and_cleared_by_its_own_end() -> None:
    """CT-4."""
    state = opened()
    [mark] = session.marked(state, "in-1", "w-dead", at=NOW, by=BY)
    state = opened(then=(mark,))
    assert (state.resume, state.interrupted) == ("in-1", 1)
    assert session.marked(state, "in-1", "w-dead", at=NOW, by=BY) == ()
    other = opened(then=(mark, i.ResumeCleared(at=NOW, by=BY, inbound="in-0", reason="completed")))
    assert other.resume == "in-1"
    cleared = opened(then=(mark, i.ResumeCleared(at=NOW, by=BY, inbound="in-1", reason="sent")))
    assert (cleared.resume, cleared.resume_at, cleared.interrupted) == (None, None, 0)
    assert session.marked(cleared, "in-1", "w-dead", at=NOW, by=BY) == (), "somebody who saw the same death comes late"
    assert session.marked(cleared, "in-1", "w-next", at=NOW, by=BY) != ()


def test_the_third_interruption_in_a_row_suspends() -> None:
    """CT-8."""
    events: tuple[Any, ...] = ()
    for number in range(3):
        events += session.marked(opened(then=events), "in-1", f"w{number}", at=NOW, by=BY)
    assert [type(event).__name__ for event in events] == [*["ResumeMarked"] * 3, "SessionSuspended"]
    state = opened(then=events)
    assert (state.suspended, state.resume) == ("interrupted", None)


def test_a_suspended_session_is_not_marked() -> None:
    """CT-5: by nobody, not even by an event that comes late."""
    suspended = session.suspended(opened(), "why", at=NOW, by=BY)
    state = opened(then=(suspended,))
    with pytest.raises(NotPossible, match="suspended"):
        session.marked(state, "in-1", "w", at=NOW, by=BY)
    late = opened(then=(suspended, i.ResumeMarked(at=NOW, by=BY, inbound="in-1", worker="w")))
    assert late.resume is None
    with pytest.raises(NotPossible, match="already"):
        session.suspended(state, "again", at=NOW, by=BY)
    again = opened(then=(suspended, session.resumed(state, "mended", at=NOW, by=BY)))
    assert again.suspended is None
    with pytest.raises(NotPossible, match="not suspended"):
        session.resumed(again, "again", at=NOW, by=BY)
