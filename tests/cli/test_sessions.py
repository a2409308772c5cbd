"""`msgledger sessions`: which conversations there are, what was said, and a person who ends or begins one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import pytest
from msgledger.ledger import inbound_events as i
from msgledger.ledger.session import SessionState
from msgledger.ledger.source import SessionSource, session_key, shown_key
from msgledger.ledger.store.append import NEW

from .kit import SECRET_TEXT, WORKER, Writer, events_in, inbound_id, receive, run, turn

pytestmark = pytest.mark.usefixtures("noon")
WHY = ("--reason", "it loops", "--yes")
SOURCES = (SessionSource("qa", "dm", chat="99"), SessionSource("qa", "group", chat="room-one", sender="ann"))
KEYS = tuple(map(session_key, SOURCES))
STREAMS = ("0193d101-0000-7000-8000-000000000001", "0193d102-0000-7000-8000-000000000002")


class Spoken(NamedTuple):
    path: Path
    sent_at: int
    """Position before the answer was sent."""


@pytest.fixture
def spoken(tmp_path: Path) -> Spoken:
    """Two conversations; in the second a message and its answer, an interruption, and a reset before all that."""
    path = tmp_path / "ledger.db"
    with Writer(path) as w:
        w.worker()
        for stream, source, key in zip(STREAMS, SOURCES, KEYS, strict=True):
            opened = i.SessionOpened(
                at=w.tick(),
                by=f"gateway:{WORKER}",
                key=w.store.pseudonyms.session(key),
                session_id=f"20260301_00000{STREAMS.index(stream)}_deadbeef",
                shown=shown_key(source, w.store.pseudonyms),
                channel="qa",
                kind=source.kind,
                content=i.SessionContent(key=key, source=source),
            )
            w.append(stream, opened, expected=NEW)
        receive(w, 1, "before the reset", session=KEYS[1])
        w.append(
            STREAMS[1], i.SessionRotated(at=w.tick(), by="worker:x", session_id="20260302_000000_cafe", reason="idle")
        )
        turn(w, receive(w, 2, "hello there", session=KEYS[1]), ends=True)
        position = w.store.head_position()
        w.sent(1, "1007", session=KEYS[1])
        mark = i.ResumeMarked(at=w.tick(), by="worker:x", inbound=inbound_id(1), worker=WORKER)
        w.append(STREAMS[1], mark)
    return Spoken(path, position)


def state(path: Path, number: int) -> SessionState:
    with Writer(path) as w:
        found = w.store.state_of(STREAMS[number])
        assert isinstance(found, SessionState)
        return found


def test_the_list_shows_pseudonyms(spoken: Spoken) -> None:
    done = run("--ledger", spoken.path, "sessions", "list")
    head, newest, oldest = done.lines
    assert head.split() == ["session", "status", "key", "began", "why"]
    assert newest.split()[:2] == ["20260302_000000_cafe", "resume_pending"] and newest.endswith("idle")
    assert oldest.split()[:2] == ["20260301_000000_deadbeef", "active"]
    assert "room-one" not in done.out and "ann" not in newest


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        (("--status", "resume_pending"), ["20260302_000000_cafe"]),
        (("--status", "active"), ["20260301_000000_deadbeef"]),
        (("--status", "suspended"), []),
        (("--session", KEYS[0]), ["20260301_000000_deadbeef"]),
        (("--channel", "other"), []),
        (("--limit", "1"), ["20260302_000000_cafe"]),
    ],
)
def test_the_filters(spoken: Spoken, filters: tuple[str, ...], found: list[str]) -> None:
    done = run("--ledger", spoken.path, "sessions", "list", "-i", *filters)
    assert (done.code, done.lines) == (0, found)
    assert run("--ledger", spoken.path, "sessions", "list", "-c").out == "2\n"


@pytest.mark.parametrize(
    "name", ["20260302_000000_cafe", "20260302", "20260301_000001", STREAMS[1], "0193d102", KEYS[1]]
)
def test_a_session_is_named_by_its_ids_or_its_key(spoken: Spoken, name: str) -> None:
    """CT-1: by a session id that it had before, too."""
    shown = json.loads(run("--ledger", spoken.path, "sessions", "show", name, "--json").out)
    assert shown["session"]["id"] == STREAMS[1]
    assert shown["counts"] == {"inbound": 2, "intents": 1, "owed": 0, "last_at": shown["counts"]["last_at"]}


def test_show_tells_why_each_began(spoken: Spoken) -> None:
    """CT-7: and hides the key in the open."""
    done = run("--ledger", spoken.path, "sessions", "show", STREAMS[1])
    assert done.lines[0] == "session 20260302_000000_cafe  resume_pending"
    assert any("20260301_000001_deadbeef" in line and line.endswith("the first") for line in done.lines)
    assert any("20260302_000000_cafe" in line and line.endswith("idle") for line in done.lines)
    assert "  messages        2 in, 1 out, 0 owed" in done.lines
    assert KEYS[1] not in done.out
    assert KEYS[1] in run("--ledger", spoken.path, "sessions", "show", STREAMS[1], "--content").out


def said(spoken: Spoken, *arguments: object, name: str = "20260302") -> list[tuple[str, str]]:
    done = run("--ledger", spoken.path, "sessions", "history", name, "--content", "--json", *map(str, arguments))
    assert done.code == 0, done.err
    return [(one["role"], one["text"]) for one in map(json.loads, done.lines)]


def test_the_history_is_what_was_said(spoken: Spoken) -> None:
    """CT-9: of the present session id, or all of it, as of any position."""
    now = [("user", "hello there"), ("assistant", SECRET_TEXT)]
    assert said(spoken) == now
    assert said(spoken, "--all") == [("user", "before the reset"), *now]
    assert said(spoken, "--as-of", spoken.sent_at) == now[:1]
    assert said(spoken, "--limit", "1") == now[1:]
    first = run("--ledger", spoken.path, "sessions", "history", "20260301_000001", "--content")
    assert "before the reset" in first.out and "hello there" not in first.out


def test_a_beginning_of_several_session_ids_is_not_one(spoken: Spoken) -> None:
    """CT-9, CT-1: which of them is meant has to be said, and the whole of one is enough."""
    done = run("--ledger", spoken.path, "sessions", "history", "202603", "--before", "1")
    assert done.code == 2 and "begins several sessions" in done.err
    with Writer(spoken.path) as w:
        w.now += 3_600_000
        again = i.SessionRotated(at=w.tick(), by="worker:x", session_id="20260302_000000_cafebabe", reason="idle")
        w.append(STREAMS[1], again)
    done = run("--ledger", spoken.path, "sessions", "history", "20260302")
    assert (done.code, done.out) == (2, "")
    assert "begins several session ids" in done.err and "20260302_000000_cafe, 20260302_000000_cafebabe" in done.err
    assert said(spoken, name="20260302_000000_cafe") == [("user", "hello there"), ("assistant", SECRET_TEXT)]
    assert len(said(spoken, "--all")) == 3


def test_the_history_hides_the_words(spoken: Spoken) -> None:
    done = run("--ledger", spoken.path, "sessions", "history", "20260302")
    assert "hello there" not in done.out and "(11 characters)" in done.out
    [first, *_] = run("--ledger", spoken.path, "sessions", "history", "20260302", "--json").lines
    assert {"text", "message", "sender"}.isdisjoint(json.loads(first))
    empty = run("--ledger", spoken.path, "sessions", "history", STREAMS[0])
    assert (empty.code, empty.out, empty.err) == (0, "", "nothing was said in it\n")


def test_a_person_suspends_and_resumes_once(spoken: Spoken) -> None:
    """CT-5, CT-7."""
    assert run("--ledger", spoken.path, "sessions", "suspend", STREAMS[1], *WHY).out == (
        f"{STREAMS[1]}  suspended, session id 20260302_000000_cafe\n"
    )
    assert (state(spoken.path, 1).suspended, state(spoken.path, 1).resume) == ("operator", None)
    before = events_in(spoken.path)
    again = run("--ledger", spoken.path, "sessions", "suspend", STREAMS[1], *WHY, "--json")
    assert json.loads(again.out)["did"] == "already_suspended"
    assert events_in(spoken.path) == before
    assert "resumed" in run("--ledger", spoken.path, "sessions", "resume", STREAMS[1], *WHY).out
    assert state(spoken.path, 1).suspended is None
    done = json.loads(run("--ledger", spoken.path, "sessions", "resume", STREAMS[1], *WHY, "--json").out)
    assert done["did"] == "already_active"


def test_a_person_has_it_begin_anew(spoken: Spoken) -> None:
    """CT-7: what was said stays, under the old id."""
    done = json.loads(run("--ledger", spoken.path, "sessions", "reset", "20260302", *WHY, "--json").out)
    now = state(spoken.path, 1)
    assert (done["did"], done["session_id"]) == ("reset", now.session_id)
    assert (now.reason, now.spans[-2].session_id) == ("operator", "20260302_000000_cafe")
    assert said(spoken) == [("user", "hello there"), ("assistant", SECRET_TEXT)]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("show", "2026"), "begins several sessions"),
        (("show", "nobody"), "no session is 'nobody'"),
        (("show", " "), "no session is ''"),
        (("show", "a\udcff"), "its bytes are no text"),
        (("reset", "20260302"), "--reason"),
        (("suspend", "20260302", "--reason", "x"), "add --yes"),
        (("history", "20260302", "--as-of", "999999"), "beyond the ledger's head"),
    ],
)
def test_wrong_usage_says_what_is_wrong(spoken: Spoken, arguments: tuple[str, ...], told: str) -> None:
    done = run("--ledger", spoken.path, "sessions", *arguments)
    assert (done.code, told in done.err) == (2, True), done.err
