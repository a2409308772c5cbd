"""`intents cancel` and `intents resolve`: a person decides, with a reason, once."""

from __future__ import annotations

import getpass
import json
import socket
from pathlib import Path

import pytest
from msgledger.ledger import events as e
from msgledger.ledger.store.store import Store
from msgledger.projections import VIEWS

from .kit import AT, Writer, events_in, intent_id, lines, run

pytestmark = pytest.mark.usefixtures("noon")
WHY = ("--reason", "the alert was wrong", "--yes")


def last_event(ledger: Path, stream: str) -> e.Event:
    with Store.open(ledger, VIEWS, wall_ms=lambda: AT, create=False, read_only=True) as store:
        found = store.events_of(stream)[-1].event
        assert isinstance(found, e.Event)
        return found


def test_a_cancel_is_an_event_with_reason_and_actor(ledger: Path) -> None:
    done = run("--ledger", ledger, "intents", "cancel", intent_id(4), *WHY)
    assert done == (0, f"{intent_id(4)}  cancelled\n", "1 intent will be cancelled\n")
    event = last_event(ledger, intent_id(4))
    assert isinstance(event, e.IntentCancelled)
    assert event.reason == "the alert was wrong"
    assert event.by == f"operator:{getpass.getuser()}@{socket.gethostname()}"


def test_a_decision_twice_changes_nothing_and_says_so(ledger: Path) -> None:
    decisions = [
        (["cancel", intent_id(4), *WHY], "already_cancelled"),
        (["resolve", intent_id(3), "--as", "discard", *WHY], "already_discarded"),
        (["resolve", intent_id(1), "--as", "sent", *WHY], "already_sent"),
    ]
    for arguments, word in decisions:
        run("--ledger", ledger, "intents", *arguments)
        before = events_in(ledger)
        again = run("--ledger", ledger, "intents", *arguments, "--json")
        assert (again.code, json.loads(again.out)["did"]) == (0, word)
        assert events_in(ledger) == before


def test_what_may_have_been_sent_cannot_be_cancelled(ledger: Path) -> None:
    """GAP-6: it is said what to do instead, exit 1, and nothing is recorded; the others are decided all the same."""
    before = events_in(ledger)
    done = run("--ledger", ledger, "intents", "cancel", intent_id(3), intent_id(4), *WHY)
    assert done.code == 1
    assert done.lines == [
        f"{intent_id(3)}  not_possible: intent {intent_id(3)} is unknown_after_send: "
        "it may have been sent; say what you know with `intents resolve`",
        f"{intent_id(4)}  cancelled",
    ]
    assert done.err == "2 intents will be cancelled\n"
    assert events_in(ledger) == before + 1


def test_resolved_as_sent_it_is_committed_with_the_id(ledger: Path) -> None:
    """UNK-3: the person's word settles it, and the end is recorded with it."""
    done = run("--ledger", ledger, "intents", "resolve", intent_id(3), "--as", "sent", "--platform-id", "4711", *WHY)
    assert (done.code, done.out) == (0, f"{intent_id(3)}  resolved_sent\n")
    assert isinstance(last_event(ledger, intent_id(3)), e.IntentCommitted)
    assert run("--ledger", ledger, "intents", "list", "-i", "--platform-id", "4711").lines == [intent_id(3)]


def test_resolved_as_not_sent_it_is_owed_again(ledger: Path) -> None:
    """UNK-4: only then it may be sent again."""
    done = run("--ledger", ledger, "intents", "resolve", intent_id(3), "--as", "not-sent", *WHY, "--json")
    assert json.loads(done.out) == {
        "intent": intent_id(3),
        "did": "resolved_not_sent",
        "status": "pending",
        "why": None,
    }
    again = run("--ledger", ledger, "intents", "resolve", intent_id(3), "--as", "not-sent", *WHY)
    assert again.out == f"{intent_id(3)}  already_not_sent, now pending\n"
    explained = json.loads(run("--ledger", ledger, "intents", "explain", intent_id(3), "--json").out)
    assert "on a person's word" in explained["next"]["text"]


def test_a_decision_about_a_settled_intent_is_not_possible(ledger: Path) -> None:
    before = events_in(ledger)
    for verdict in ("not-sent", "discard"):
        done = run("--ledger", ledger, "intents", "resolve", intent_id(1), "--as", verdict, *WHY)
        assert done.code == 1 and "is sent: only an unknown outcome can be resolved" in done.out
    assert events_in(ledger) == before


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["cancel", intent_id(4), "--yes"], "Missing option '--reason'"),
        (["cancel", intent_id(4), "--reason", " ", "--yes"], "--reason is empty"),
        (["cancel", intent_id(4), "--reason", "x" * 501, "--yes"], "--reason has 501 characters, the most is 500"),
        (["cancel", *WHY], "Missing argument 'ID...'"),
        (["cancel", intent_id(4), "0193a7", *WHY], "begins several intents"),
        (["resolve", intent_id(3), *WHY], "Missing option '--as'"),
        (["resolve", intent_id(3), "--as", "maybe", *WHY], "'maybe' is not one of"),
        (["resolve", intent_id(3), "--as", "discard", "--platform-id", "1", *WHY], "--platform-id goes with --as sent"),
        (["resolve", intent_id(3), "--as", "sent", "--platform-id", "", *WHY], "--platform-id must have 1 to 512"),
        (["resolve", intent_id(3), intent_id(4), "--as", "sent", "--platform-id", "1", *WHY], "names one message"),
    ],
)
def test_a_wrong_decision_is_refused_and_nothing_recorded(ledger: Path, arguments: list[str], line: str) -> None:
    before = events_in(ledger)
    done = run("--ledger", ledger, "intents", *arguments)
    assert (done.code, done.out) == (2, "")
    assert line in done.err and len(done.err.splitlines()) == 1
    assert events_in(ledger) == before


def test_it_asks_first_and_takes_no_for_an_answer(ledger: Path) -> None:
    before = events_in(ledger)
    ask = ("--ledger", ledger, "intents", "cancel", intent_id(4), "--reason", "x")
    no = run(*ask, input="n\n")
    assert (no.code, no.out) == (1, "")
    assert no.err.splitlines() == ["1 intent will be cancelled", "Go on? [y/N]: n", "nothing was changed"]
    nobody = run(*ask, input="")
    assert nobody.code == 2 and "nobody answers on standard input: add --yes" in nobody.err
    assert events_in(ledger) == before
    assert run(*ask, input="y\n").code == 0
    assert events_in(ledger) == before + 1


def test_half_a_batch_is_discarded_not_cancelled(tmp_path: Path) -> None:
    path = tmp_path / "l.db"
    with Writer(path) as w:
        stream = w.record(1, units=2)
        w.start(stream)
        w.accept(stream)
        w.fail(stream)
    done = run("--ledger", path, "intents", "cancel", stream, *WHY)
    assert done.out == f"{stream}  discarded, now failed\n"
    assert run("--ledger", path, "intents", "cancel", stream, *WHY).out == f"{stream}  already_discarded, now failed\n"


def test_all_are_named_before_any_is_decided(ledger: Path) -> None:
    before = events_in(ledger)
    done = run("--ledger", ledger, "intents", "cancel", intent_id(4), "ffff", *WHY)
    assert (done.code, done.out) == (2, "")
    assert events_in(ledger) == before
    twice = run("--ledger", ledger, "intents", "cancel", intent_id(4), "0193a704", *WHY)
    assert twice.out == lines([f"{intent_id(4)}  cancelled"])
