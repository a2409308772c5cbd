"""Reading on the command line: page after page, every filter, and the past, in exact words for people and programs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgledger.ledger import decide
from msgledger.ledger import events as e
from msgledger.ledger.outcome import Accepted, FailureClass
from msgledger.ledger.steps import Start

from .kit import AT, TERMS, WORKER, Writer, intent_id, lines, run

pytestmark = pytest.mark.usefixtures("noon")


def listed(ledger: Path, *arguments: str) -> tuple[list[str], str]:
    done = run("--ledger", ledger, "intents", "list", "-i", *arguments)
    assert done.code == 0, done
    return [id[6:8] for id in done.lines], done.err


def test_page_after_page(ledger: Path) -> None:
    """SC-67: the next page is named; the last one names none."""
    assert listed(ledger, "--limit", "3") == (["04", "03", "02"], "more: --before 7, or raise --limit\n")
    assert listed(ledger, "--limit", "3", "--before", "7") == (["01"], "")
    assert listed(ledger, "--limit", "4") == (["04", "03", "02", "01"], "")
    assert listed(ledger, "--owed", "--limit", "2") == (["02", "03"], "more: --after 10, or raise --limit\n")
    assert listed(ledger, "--owed", "--limit", "2", "--after", "10") == (["04"], "")
    rows = run("--ledger", ledger, "intents", "list", "--json", "--limit", "2").lines
    assert [json.loads(row)["position"] for row in rows] == [13, 10]
    assert run("--ledger", ledger, "intents", "list", "-c", "--before", "10", "--json").out == '{"count":2}\n'


def test_several_values_of_a_filter(tmp_path: Path) -> None:
    """SC-67: the filters that Python has, each any number of times."""
    path = tmp_path / "l.db"
    with Writer(path) as w:
        w.sent(1, "1", target="a", session="s1")
        w.sent(2, "2", target="b", session="s2", channel="fax")
        w.sent(3, "3", target="c")
        held = w.record(4, target="d")
        w.start(held)
        w.fail(held, FailureClass.AUTH)
    assert listed(path, "--target", "a", "--target", "b")[0] == ["02", "01"]
    assert listed(path, "--session", "s1", "--session", "s2")[0] == ["02", "01"]
    assert listed(path, "--platform-id", "1", "--platform-id", "3")[0] == ["03", "01"]
    assert listed(path, "--key", "key-2", "--key", "key-9")[0] == ["02"]
    assert listed(path, "--hold", "config", "--failure", "auth")[0] == ["04"]
    assert listed(path, "--of", intent_id(1))[0] == []
    assert listed(path, "--channel", "qa", "--channel", "fax", "--status", "sent")[0] == ["03", "02", "01"]


def test_one_intent_as_it_stood(ledger: Path) -> None:
    """SC-67, OB-2: at a position, and at a time."""
    shown = run("--ledger", ledger, "intents", "show", "0193a701", "--as-of", "4").lines
    assert shown[0] == f"intent {intent_id(1)}  sending  (as of position 4)"
    assert [line.split("  ")[0] for line in shown if line[:1].isdecimal()] == ["0", "1"]
    assert "  accepted        not proven" in shown
    at = run("--ledger", ledger, "intents", "show", "0193a701", "--as-of", "2026-03-01T00:00:02").lines
    assert at[0] == f"intent {intent_id(1)}  sending  (as known at 2026-03-01 00:00:02.000Z)"
    assert at[1:] == shown[1:]
    found = json.loads(run("--ledger", ledger, "intents", "show", "0193a701", "--as-of", "5", "--json").out)
    assert found["intent"]["status"] == "committing" and len(found["events"]) == 3
    assert found["receipt"]["primary_platform_id"] == "1007"


def test_the_picture_as_it_stood(ledger: Path) -> None:
    drawn = run(
        "--ledger",
        ledger,
        "intents",
        "timeline",
        "0193a702",
        "--as-of",
        "2026-03-01T00:00:04",
        "--clock",
        "happened",
        env={"COLUMNS": "110"},
    )
    assert drawn.lines[:2] == [
        f"intent {intent_id(2)}",
        "sending (as it had happened by 2026-03-01 00:00:04.000Z), 1 attempt, 2 events in 1 s, from 2026-03-01",
    ]
    found = json.loads(run("--ledger", ledger, "intents", "timeline", "0193a702", "--as-of", "8", "--json").out)
    assert (found["status"], [row["name"] for row in found["rows"]]) == ("sending", ["intent", "attempt 1"])


def test_the_reason_as_it_stood(ledger: Path) -> None:
    """R2, R9: the rules as they applied then; what only the present knows is not said."""
    done = run("--ledger", ledger, "intents", "explain", "0193a703", "--as-of", "11")
    assert done.out == lines(
        [
            f"intent {intent_id(3)}  sending",
            "  why    attempt 1 is in flight; only what comes of it, or the loss of its owner, moves it on",
            "      rule R2: doubt belongs to an attempt, and only what names that attempt removes it",
            "      rule R9: right before each request the worker looks once more whether the attempt is still its own",
            "      event 0 IntentRecorded at 2026-03-01 00:00:05.000Z",
            "      event 1 AttemptStarted at 2026-03-01 00:00:06.000Z",
            "  next   nothing until 2026-03-01 00:00:51.000Z, in 45 s: an attempt is in flight",
            "  note   as of position 11: who was before it in its lane and which workers lived is not said",
            "  note   the default terms are used, because channel qa/default is not configured here: "
            "a gateway that knows the channel may do otherwise",
        ]
    )
    found = json.loads(run("--ledger", ledger, "intents", "explain", "0193a703", "--as-of", "11", "--json").out)
    assert (found["step"], found["at"], found["before"], found["unblock"]) == ("Wait", AT + 51_000, None, [])


@pytest.mark.parametrize(
    ("as_of", "line"),
    [
        ("2", f"intent {intent_id(1)} did not exist yet, as of position 2: it was recorded at position 3, 2026-03-01"),
        (
            "2026-03-01",
            f"intent {intent_id(1)} did not exist yet, as known at 2026-03-01 00:00:00.000Z: it was recorded",
        ),
        ("900", "position 900 is beyond the ledger's head, 13"),
        ("soon", "'soon' is no time: give 2h, 3d, today, yesterday, or ISO 8601"),
        ("99999999999999999999", "--as-of: 99999999999999999999 is no position"),
    ],
)
def test_a_past_that_was_not_is_said_so(ledger: Path, as_of: str, line: str) -> None:
    """SC-67: exit 2, one line, nothing shown."""
    for verb in ("show", "timeline", "explain"):
        done = run("--ledger", ledger, "intents", verb, "0193a701", "--as-of", as_of)
        assert (done.code, done.out) == (2, "")
        assert line in done.err and len(done.err.splitlines()) == 1


def test_a_long_lane_is_said_to_be_longer_than_what_is_shown(tmp_path: Path) -> None:
    """R7: ten are named; who waits behind more is not told that it is next after the tenth."""
    path = tmp_path / "l.db"
    with Writer(path) as w:
        for number in range(1, 14):
            w.record(number)

    def said(number: int) -> list[str]:
        shown = run("--ledger", path, "intents", "explain", intent_id(number)).lines
        return [line for line in shown if line.startswith(("  next", "  lane", "      0193a7"))]

    def found(number: int) -> tuple[int, bool]:
        found = json.loads(run("--ledger", path, "intents", "explain", intent_id(number), "--json").out)
        return len(found["before"]), found["before_more"]

    behind = said(11)
    assert behind[0].startswith(f"  next   it waits for its turn behind {intent_id(10)}; then: ")
    assert behind[1] == "  lane   10 messages before it:" and len(behind) == 12
    behind = said(13)
    assert behind[0].startswith(
        f"  next   it waits for its turn behind more than 10 messages, the first is {intent_id(1)}; then: "
    )
    assert behind[1] == "  lane   more than 10 messages before it, the first:" and len(behind) == 12
    assert (found(11), found(13)) == ((10, False), (10, True))


def test_what_was_accepted_beside_the_receipt_is_found_by_its_id(tmp_path: Path) -> None:
    """SC-67: people see a copy, and what arrived after it was given up; the ledger knows both ids."""
    path = tmp_path / "l.db"
    with Writer(path) as w:
        given_up = w.unknown(1, target="a")
        by = "operator:ann"
        w.append(given_up, decide.resolved(w.state(given_up), "discard", "gone", at=w.tick(), by=by))
        w.append(given_up, decide.accepted(1, 0, "text", Accepted("late"), at=w.tick(), by=by))
        twice = w.unknown(2, target="b", units=2)
        w.append(twice, decide.resolved(w.state(twice), "sent", "seen", at=w.tick(), by=by, platform_id="first"))
        w.append(twice, decide.accepted(1, 0, "text", Accepted("other"), at=w.tick(), by=by))
        assert w.store.verify_views() == []
        assert (w.state(given_up).contradictions, w.state(twice).copies) == (1, 1)
    for id, number in (("late", 1), ("first", 2), ("other", 2)):
        assert listed(path, "--platform-id", id)[0] == [f"0{number}"], id
        last = run("--ledger", path, "intents", "tail", "--after", "0", "--no-follow", "--platform-id", id).lines[-1]
        assert intent_id(number) in last


def test_an_attempt_goes_on_until_its_last_unit(tmp_path: Path) -> None:
    """OB-2: between two units of a batch a request is in flight, and the picture says so."""
    path, ends = tmp_path / "l.db", []
    with Writer(path) as w:
        stream = w.record(1, units=2)
        at, tries = w.tick(), (e.UnitTry(0, "k0", "ab"), e.UnitTry(1, "k1", "ab"))
        started = decide.start(w.state(stream), Start("first"), TERMS, at=at, boot_ms=0, owner=WORKER, tries=tries)
        w.append(stream, started)
        for number in range(2):
            w.accept(stream, f"m{number}")
            found = json.loads(run("--ledger", path, "intents", "timeline", stream, "--json").out)
            ends.append([row["ends_at"] for row in found["rows"][:2]])
    assert ends == [[None, None], [AT + 3_000, AT + 3_000]]
