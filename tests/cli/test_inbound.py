"""`msgledger inbound`: what came in, and a person who lets a turn run again or drops it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgledger.ledger import inbound_events as i
from msgledger.ledger.store.append import NEW

from .kit import SECRET_TEXT, WORKER, Writer, events_in, inbound_id, inbound_state, receive, run, turn

pytestmark = pytest.mark.usefixtures("noon")
WHY = ("--reason", "the model is back", "--yes")
DONE, AGAIN, POISON, CONTEXT, ECHO = map(inbound_id, range(1, 6))


@pytest.fixture
def heard(tmp_path: Path) -> Path:
    """One done, one that waits after a bad end, one held, one that does not speak to us, an echo."""
    path = tmp_path / "ledger.db"
    with Writer(path) as w:
        w.worker(stopped=True)
        w.sent(1, "1007", session="s1")
        turn(w, receive(w, 1, session="s1"), ends=True)
        turn(w, receive(w, 2, chat="room-two"), fails=1)
        turn(w, receive(w, 3, chat="room-three"), fails=5)
        receive(w, 4, chat="room-four", addressed=False)
        echo = i.InboundDropped(
            at=w.tick(), by="gateway:x", reason="echo", event_key="e5", channel="qa", account="b", message_id="m5"
        )
        w.append(ECHO, echo, expected=NEW)
    return path


def ids(ledger: Path, *filters: str) -> list[str]:
    done = run("--ledger", ledger, "inbound", "list", "-i", *filters)
    assert done.code == 0, done.err
    return done.lines


def test_the_list_is_newest_first_and_says_what_a_person_should_notice(heard: Path) -> None:
    done = run("--ledger", heard, "inbound", "list")
    assert [line.split()[0] for line in done.lines[1:]] == [ECHO, CONTEXT, POISON, AGAIN, DONE]
    assert done.lines[3] == (
        f"{POISON}  pending    qa/default  5     2026-03-01 00:00:10.000Z  m3       held (attempts), ValueError"
    )
    assert SECRET_TEXT not in done.out


def test_what_is_owed_is_oldest_first(heard: Path) -> None:
    assert ids(heard, "--owed") == [AGAIN, POISON]


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        (("--status", "completed"), [DONE]),
        (("--status", "dropped", "--status", "context"), [ECHO, CONTEXT]),
        (("--hold", "attempts"), [POISON]),
        (("--dropped", "echo"), [ECHO]),
        (("--session", "s1"), [DONE]),
        (("--session", "s1", "--status", "pending"), []),
        (("--target", "room-two"), [AGAIN]),
        (("--target", "room-two", "--channel", "other"), []),
        (("--account", "b"), [ECHO]),
        (("--since", "2026-03-01T00:00:08", "--until", "2026-03-01T00:00:20"), [POISON]),
        (("--older-than", "3595s"), [DONE]),
        (("--limit", "2"), [ECHO, CONTEXT]),
        (("--owed", "--limit", "1"), [AGAIN]),
    ],
)
def test_the_filters(heard: Path, filters: tuple[str, ...], found: list[str]) -> None:
    assert ids(heard, *filters) == found


def test_pages_follow_one_another(heard: Path) -> None:
    first = run("--ledger", heard, "inbound", "list", "--limit", "2", "--json")
    last = json.loads(first.lines[-1])["position"]
    assert first.err == f"more: --before {last}, or raise --limit\n"
    assert ids(heard, "--before", str(last)) == [POISON, AGAIN, DONE]
    assert run("--ledger", heard, "inbound", "list", "-c").out == "5\n"
    assert json.loads(run("--ledger", heard, "inbound", "list", "-c", "--json", "--owed").out) == {"count": 2}


def test_show_has_every_event_and_hides_content(heard: Path) -> None:
    done = run("--ledger", heard, "inbound", "show", POISON[:8])
    assert done.lines[0] == f"inbound {POISON}  pending"
    assert "  hold            attempts" in done.lines
    assert [line.split()[3] for line in done.lines if line[:1].isdigit()] == [
        "InboundRecorded",
        *["InboundDispatched", "InboundFailed"] * 5,
    ]
    assert SECRET_TEXT not in done.out and "room-three" not in done.out
    assert SECRET_TEXT in run("--ledger", heard, "inbound", "show", POISON, "--content").out


def test_show_as_json_and_as_of(heard: Path) -> None:
    shown = json.loads(run("--ledger", heard, "inbound", "show", DONE, "--json", "--content").out)
    assert (shown["inbound"]["status"], shown["message"]["body"]["text"]) == ("completed", SECRET_TEXT)
    assert shown["source"]["chat"] == "room-one"
    then = json.loads(run("--ledger", heard, "inbound", "show", DONE, "--json", "--as-of", "2026-03-01T00:00:05").out)
    assert (then["inbound"]["status"], len(then["events"]), "message" in then) == ("running", 2, False)


def test_a_held_turn_is_let_run_again_once(heard: Path) -> None:
    """RCV-4: at once and with all its attempts; the second time nothing changes."""
    done = run("--ledger", heard, "inbound", "retry", POISON, *WHY)
    assert done == (0, f"{POISON}  released, now pending\n", "1 inbound message will run again\n")
    with Writer(heard) as w:
        state = inbound_state(w, POISON)
        assert (state.hold, state.failures, state.owner) == (None, 0, None)
        last = w.store.events_of(POISON)[-1].event
        assert isinstance(last, i.InboundHeld) and last.reason == "the model is back"
        assert last.by.startswith("operator:")
    before = events_in(heard)
    assert json.loads(run("--ledger", heard, "inbound", "retry", POISON, *WHY, "--json").out)["did"] == "already_due"
    assert events_in(heard) == before


def test_a_turn_is_dropped_once(heard: Path) -> None:
    assert run("--ledger", heard, "inbound", "drop", POISON, *WHY).out == f"{POISON}  dropped\n"
    assert ids(heard, "--dropped", "operator") == [POISON]
    before = events_in(heard)
    assert run("--ledger", heard, "inbound", "drop", POISON, *WHY).out == f"{POISON}  already_dropped, now dropped\n"
    assert events_in(heard) == before


def test_what_is_over_or_runs_is_neither_run_again_nor_dropped(heard: Path) -> None:
    """It is said why, exit 1, and the others are decided all the same."""
    with Writer(heard) as w:
        running = receive(w, 6, chat="room-six")
        w.append(running, i.InboundDispatched(at=w.tick(), by="worker:x", run=1, owner=WORKER))
    done = run("--ledger", heard, "inbound", "drop", DONE, running, AGAIN, *WHY)
    assert done.code == 1
    assert done.lines == [
        f"{DONE}  not_possible: inbound {DONE} is completed, run 1: its turn is not owed any more",
        f"{running}  not_possible: inbound {running} is running, run 1: a worker runs it now: wait until it ends",
        f"{AGAIN}  dropped",
    ]
    assert run("--ledger", heard, "inbound", "retry", running, *WHY).code == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("show", "0193c1"), "begins several inbound messages"),
        (("show", "beef"), "no inbound message begins with 'beef'"),
        (("show", "../x"), "is no inbound message id"),
        (("list", "--space", "T1"), "--space goes with --target"),
        (("retry", POISON, "--yes"), "--reason"),
        (("drop", POISON, "--reason", " ", "--yes"), "--reason is empty"),
        (("drop", POISON, "--reason", "why"), "nobody answers on standard input: add --yes"),
    ],
)
def test_wrong_usage_says_what_is_wrong(heard: Path, arguments: tuple[str, ...], said: str) -> None:
    done = run("--ledger", heard, "inbound", *arguments)
    assert (done.code, said in done.err) == (2, True), done.err
