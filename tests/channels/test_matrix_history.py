"""What the pages of a room's history prove, without a homeserver: answers that a real one cannot be made to give."""

from __future__ import annotations

import json
from email.utils import formatdate
from typing import Any

import pytest
from msgledger.adapters.exchange import Answer, Request
from msgledger.adapters.matrix_history import CLOCK_MARGIN_MS
from msgledger.ledger.limits import HOUR_MS, LOOK_UP_REQUESTS_MAX, MINUTE_MS
from msgledger.ledger.message import ReceiptPart, RenderedUnit
from msgledger.ledger.outcome import NotSent, Sent, Unresolved, Verdict

from .contract import context
from .matrix_kit import ROOM, offline

BEGAN = 1_700_000_000_000
NOW = BEGAN + MINUTE_MS
US = "@bot:example.org"
JOINED = {"membership": "join"}


def event(id: str, transaction: str | None = "other", at: int = BEGAN, **more: Any) -> dict[str, Any]:
    unsigned = {} if transaction is None else {"transaction_id": transaction}
    return {
        "event_id": id,
        "sender": US,
        "type": "m.room.message",
        "origin_server_ts": at,
        "unsigned": unsigned,
        **more,
    }


def page(*events: object, end: str | None = "t1") -> dict[str, Any]:
    return {"chunk": list(events), "start": "t9"} | ({} if end is None else {"end": end})


def judged(*bodies: object, status: int = 200, now: int = NOW, ahead_ms: int = 0, **more: Any) -> Verdict | Request:
    """What the answers come to, given one after the other; `ahead_ms`: by how much the homeserver's clock is."""
    adapter = offline().adapter
    told = context(ROOM, key="k", **{"first_attempt_at": BEGAN, **more})
    headers = {"date": formatdate((now + ahead_ms) / 1000, usegmt=True)}
    unit, found = RenderedUnit(0, text="hi"), adapter.look_up(RenderedUnit(0, text="hi"), told)
    answers: list[Answer] = []
    for body in bodies:
        assert isinstance(found, Request), f"it was decided before {body}"
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        answers.append(Answer(status, headers, raw, now / 1000))
        found = adapter.parse_look_up(unit, told, answers)
    return found


def before(margin_ms: int = 1_000) -> int:
    return BEGAN - CLOCK_MARGIN_MS - margin_ms


def asks_on(found: Verdict | Request) -> bool:
    """It wants another page, and has not come to the last question."""
    return isinstance(found, Request) and found.path.endswith("/messages")


def test_the_first_page_is_asked_of_the_newest() -> None:
    """UNK-3: our own messages, newest first, a few; the next one where that ended, and more of them."""
    adapter, told = offline().adapter, context(ROOM, first_attempt_at=BEGAN)
    first = adapter.look_up(RenderedUnit(0), told)
    assert (first.method, first.path) == ("GET", "/_matrix/client/v3/rooms/%21ops%2Froom%3Aexample.org/messages")
    assert dict(first.query) == {
        "dir": "b",
        "limit": "8",
        "filter": '{"senders":["@bot:example.org"],"types":["m.room.message"]}',
    }
    second = judged(page(event("$1")))
    assert isinstance(second, Request)
    assert (dict(second.query)["limit"], dict(second.query)["from"]) == ("16", "t1")


def test_absence_needs_everything() -> None:
    """UNK-4: read back to before the first attempt, each event of ours with another transaction, and still joined."""
    verdict = judged(page(event("$2"), event("$1", at=before())), JOINED)
    assert verdict == NotSent({"from": before(), "to": BEGAN, "pages": 1, "until": "before", "ids": ["$2"]})
    assert isinstance(judged(page(event("$1"), end=None), JOINED), NotSent)


@pytest.mark.parametrize("at", [before(-2_000), BEGAN, NOW])
def test_what_is_not_old_enough_is_read_past(at: int) -> None:
    """R10, UNK-5: within the margin of the clocks an event may be younger than the attempt: another page is asked."""
    assert asks_on(judged(page(event("$1", at=at))))


@pytest.mark.parametrize("ahead_ms", [-HOUR_MS, HOUR_MS])
def test_a_homeserver_with_another_clock(ahead_ms: int) -> None:
    """R10: its `Date` says how far its clock is from ours; event times are its own."""
    old = judged(page(event("$1", at=before(3_000) + ahead_ms)), JOINED, ahead_ms=ahead_ms)
    assert isinstance(old, NotSent)
    young = judged(page(event("$1", at=BEGAN + ahead_ms)), ahead_ms=ahead_ms)
    assert asks_on(young)


@pytest.mark.parametrize("date", [None, "yesterday", ""])
def test_a_homeserver_without_a_date(date: str | None) -> None:
    """R10, UNK-5: where its clock is not known no time proves anything: the room is read to its start."""
    adapter, told = offline().adapter, context(ROOM, first_attempt_at=BEGAN)
    headers = {} if date is None else {"date": date}
    answer = Answer(200, headers, json.dumps(page(event("$1", at=0))).encode(), NOW / 1000)
    assert asks_on(adapter.parse_look_up(RenderedUnit(0), told, [answer]))
    untimed = Answer(200, {"date": formatdate(NOW / 1000, usegmt=True)}, answer.body)
    assert asks_on(adapter.parse_look_up(RenderedUnit(0), told, [untimed]))


def test_an_earlier_unit_is_early_enough() -> None:
    """UNK-4: whatever clocks say, an event whose receipt we had before stood before the attempt."""
    verdict = judged(page(event("$2"), event("$1")), JOINED, receipts=(ReceiptPart(0, "$1"),))
    assert isinstance(verdict, NotSent)
    assert (verdict.evidence["until"], verdict.evidence["ids"]) == ("earlier", ["$2"])


def test_found_wherever_it_is() -> None:
    """UNK-3: also behind what counts as older, on a later page, and without any content."""
    for pages in (
        [page(event("$k", "k", content={}))],
        [page(event("$2"), event("$1", at=before()), event("$k", "k", at=before()))],
        [page(event("$2")), page(), page(event("$k", "k"))],
    ):
        verdict = judged(*pages)
        assert isinstance(verdict, Sent)
        assert verdict.receipt.platform_id == "$k"


def test_what_is_not_ours_is_not_looked_at() -> None:
    """UNK-3: a homeserver that ignores the filter; somebody else's transaction says nothing."""
    theirs = [event("$1", "k", sender="@eve:example.org"), event("$2", "k", type="m.reaction"), "junk", None, {}]
    verdict = judged(page(*theirs, end=None), JOINED)
    assert isinstance(verdict, NotSent)
    assert verdict.evidence["ids"] == []


def test_an_event_without_its_transaction() -> None:
    """R5, UNK-5: it may be the one, sent by another device: unresolved, with its id for a person."""
    verdict = judged(page(event("$1", None), end=None))
    assert isinstance(verdict, Unresolved)
    assert verdict.evidence["ids"] == ["$1"]
    old = judged(page(event("$1", None, at=before()), end=None), JOINED)
    assert isinstance(old, NotSent), "what is older than the attempt cannot be it"


def test_a_room_without_end() -> None:
    """UNK-5: pages have a bound; what was not read to the end proves nothing."""
    pages = [page(event(f"${n}")) for n in range(LOOK_UP_REQUESTS_MAX - 1)]
    assert asks_on(judged(*pages[:-1]))
    verdict = judged(*pages)
    assert isinstance(verdict, Unresolved) and verdict.retryable
    assert (verdict.evidence["pages"], verdict.evidence["until"]) == (LOOK_UP_REQUESTS_MAX - 1, None)


@pytest.mark.parametrize("body", [b"<html>", b"", b"[]", {"end": "t1"}, {"chunk": {}}, {"errcode": "M_FORBIDDEN"}])
def test_an_answer_that_is_no_page(body: object) -> None:
    """FAIL-10, UNK-5: it proves nothing, as the first and as the second."""
    for pages in ([body], [page(event("$1")), body]):
        assert isinstance(judged(*pages), Unresolved)


@pytest.mark.parametrize("said", [{"membership": "leave"}, {"membership": "ban"}, {}, b"<html>"])
def test_who_is_not_in_the_room(said: object) -> None:
    """UNK-5: to whom its history may be closed, absence is not claimed."""
    assert isinstance(judged(page(end=None), said), Unresolved)


@pytest.mark.parametrize("status", [401, 403, 404, 429, 500, 502])
def test_a_refusal_is_unresolved(status: int) -> None:
    """UNK-3, FAIL-11: whatever it says of the reading, it says nothing of the message."""
    for more in ({}, {"action": "delete", "of_platform_id": "$of"}):
        verdict = judged({"errcode": "M_UNKNOWN", "event_id": "$of", "chunk": []}, status=status, **more)
        assert isinstance(verdict, Unresolved) and verdict.retryable
        assert verdict.evidence["status"] == status


@pytest.mark.parametrize("said", [{}, {"event_id": "$another", "unsigned": {}}, [], b"{"])
def test_an_answer_that_is_not_the_event(said: object) -> None:
    """FAIL-10, UNK-5: nothing is read off it."""
    assert isinstance(judged(said, action="delete", of_platform_id="$of"), Unresolved)
