"""`intents list`, `show` and `replay`: exact output for people and for programs, filters, prefixes, hidden content."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgledger.ledger import errors
from msgledger.ledger.outcome import FailureClass

from .kit import AT, SECRET_TEXT, Writer, intent_id, lines, run

pytestmark = pytest.mark.usefixtures("noon")


def listed(ledger: Path, *arguments: str | Path) -> list[str]:
    done = run("--ledger", ledger, "intents", "list", "-i", *arguments)
    assert done.code == 0, done
    return [id[6:8] for id in done.lines]


def test_a_list_for_people(ledger: Path) -> None:
    done = run("--ledger", ledger, "intents", "list")
    assert done.out == lines(
        [
            "id                                    status              channel     attempts  "
            "recorded                  platform id  note",
            f"{intent_id(4)}  pending             qa/default  0         2026-03-01 00:00:07.000Z  -",
            f"{intent_id(3)}  unknown_after_send  qa/default  1         2026-03-01 00:00:05.000Z  -"
            "            owner_lost",
            f"{intent_id(2)}  pending             qa/default  1         2026-03-01 00:00:03.000Z  -"
            "            rate_limit",
            f"{intent_id(1)}  sent                qa/default  1         2026-03-01 00:00:01.000Z  1007",
        ]
    )
    assert (done.code, done.err) == (0, "")


def test_a_list_for_programs(ledger: Path) -> None:
    done = run("--ledger", ledger, "intents", "list", "--json", "--status", "sent")
    [row] = [json.loads(line) for line in done.lines]
    assert row["id"] == intent_id(1)
    assert (row["status"], row["primary_platform_id"], row["recorded_at"]) == ("sent", "1007", AT + 1_000)
    assert {"of", "hold", "failure"} <= row.keys(), "fields at their defaults are there too"
    assert SECRET_TEXT not in done.out and "room-one" not in done.out


def test_each_filter_picks_its_own(ledger: Path) -> None:
    """SC-67: found by target and by platform id."""
    assert listed(ledger) == ["04", "03", "02", "01"]
    assert listed(ledger, "--owed") == ["02", "03", "04"]
    assert listed(ledger, "--status", "sent", "--status", "unknown_after_send") == ["03", "01"]
    assert listed(ledger, "--target", "room-three") == ["04", "03"]
    assert listed(ledger, "--target", "room-three", "--channel", "fax") == []
    assert listed(ledger, "--target", "room-one", "--space", "other") == []
    assert listed(ledger, "--platform-id", "1007") == ["01"]
    assert listed(ledger, "--session", "s1") == ["01"]
    assert listed(ledger, "--session", "s2") == []
    assert listed(ledger, "--failure", "rate_limit") == ["02"]
    assert listed(ledger, "--account", "default", "--channel", "qa", "--limit", "1") == ["04"]
    assert listed(ledger, "--since", "2026-03-01T00:00:04") == ["04", "03"]
    assert listed(ledger, "--until", "2026-03-01T01:00:03+01:00") == ["02", "01"]
    assert listed(ledger, "--older-than", "59m") == ["04", "03", "02", "01"]
    assert listed(ledger, "--older-than", "59m", "--until", "2026-03-01T00:00:03") == ["02", "01"]
    assert listed(ledger, "--older-than", "3596s", "--until", "now") == ["02", "01"]
    assert listed(ledger, "--older-than", "3594s") == ["03", "02", "01"]
    assert listed(ledger, "--since", "2h", "--until", "1h") == []
    assert listed(ledger, "--since", "today") == ["04", "03", "02", "01"]
    assert listed(ledger, "--until", "yesterday") == []


def test_a_count_says_all_whatever_the_limit(ledger: Path) -> None:
    assert run("--ledger", ledger, "intents", "list", "-c", "--limit", "1").out == "4\n"
    assert run("--ledger", ledger, "intents", "list", "-c", "--owed", "--json").out == '{"count":3}\n'
    assert "more: --before 13, or raise --limit" in run("--ledger", ledger, "intents", "list", "--limit", "1").err
    assert run("--ledger", ledger, "intents", "list", "--channel", "fax").err == "no intent matches\n"


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--since", "soon"], "'soon' is no time: give 2h, 3d, today, yesterday, or ISO 8601"),
        (["--older-than", "nan"], "'nan' is no duration: give one like 90s, 15m, 2h or 3d"),
        (["--older-than", "-5"], "'-5' is no duration"),
        (["--since", "9" * 320 + "h"], "is no duration"),
        (["--target", ""], "--target is empty"),
        (["--space", "x"], "--space goes with --target"),
    ],
)
def test_a_wrong_filter_is_refused(ledger: Path, arguments: list[str], line: str) -> None:
    done = run("--ledger", ledger, "intents", "list", *arguments)
    assert (done.code, done.out) == (2, "")
    assert line in done.err and len(done.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("prefix", "line"),
    [
        ("0193a7", f"'0193a7' begins several intents, give more digits: {intent_id(1)}, {intent_id(2)}"),
        ("ffff", "no intent begins with 'ffff'"),
        ("", "'' is no intent id"),
        ("%", "'%' is no intent id"),
        ("no id", "'no id' is no intent id"),
    ],
)
def test_an_id_that_names_not_exactly_one(ledger: Path, prefix: str, line: str) -> None:
    for verb in ("show", "replay", "timeline", "explain"):
        done = run("--ledger", ledger, "intents", verb, prefix)
        assert (done.code, done.out) == (2, "")
        assert line in done.err and len(done.err.splitlines()) == 1


def test_one_intent_for_people(ledger: Path) -> None:
    """OB-2: every event is there, and the five claims are kept apart."""
    done = run("--ledger", ledger, "intents", "show", "0193A701")
    worker = "worker:0193b000-0000-7000-8000-000000000001"
    gateway = "gateway:0193b000-0000-7000-8000-000000000001"
    assert done.out == lines(
        [
            f"intent {intent_id(1)}  sent",
            "  channel         qa/default, send, followup",
            "  attempts        1 (1 of 6 count)",
            "  expires         2026-03-01 06:00:01.000Z",
            "  receipt         1007, sent at 2026-03-01 00:00:03.000Z",
            "",
            "  intended        2026-03-01 00:00:01.000Z, event 0 IntentRecorded",
            "  attempted       2026-03-01 00:00:02.000Z, event 1 AttemptStarted",
            "  accepted        2026-03-01 00:00:03.000Z, event 2 UnitAccepted",
            "  delivered       not proven",
            "  read            not proven",
            "",
            "event  at                        type             by                                            says",
            f"0      2026-03-01 00:00:01.000Z  IntentRecorded   {gateway}"
            "  channel=qa  account=default  relation=followup",
            f"1      2026-03-01 00:00:02.000Z  AttemptStarted   {worker} "
            "  attempt=1  deadline_ms=30000  margin_ms=15000",
            f'2      2026-03-01 00:00:03.000Z  UnitAccepted     {worker}   attempt=1  unit=0  parts=[{{"id":"1007"}}]',
            f'3      2026-03-01 00:00:03.000Z  IntentCommitted  {worker}   platform_ids=["1007"]',
        ]
    )


def test_content_is_hidden_until_it_is_asked_for(ledger: Path) -> None:
    for verb in ("show", "replay"):
        for more in ([], ["--json"]):
            hidden = run("--ledger", ledger, "intents", verb, intent_id(1), *more).out
            assert SECRET_TEXT not in hidden and "room-one" not in hidden and "key-1" not in hidden
            shown = run("--ledger", ledger, "intents", verb, intent_id(1), *more, "--content").out
            assert SECRET_TEXT in shown and "room-one" in shown


def test_one_intent_for_programs(ledger: Path) -> None:
    found = json.loads(run("--ledger", ledger, "intents", "show", intent_id(3), "--json").out)
    assert found.keys() == {"intent", "claims", "receipt", "events", "held"}
    assert found["intent"]["status"] == "unknown_after_send"
    assert found["claims"]["accepted"] is None and found["receipt"] is None and found["held"] is None
    assert found["claims"]["attempted"]["version"] == 1
    assert [event["type"] for event in found["events"]] == ["IntentRecorded", "AttemptStarted", "OutcomeUnknown"]


def test_a_claim_is_proven_by_the_first_event_that_proves_it(tmp_path: Path) -> None:
    with Writer(tmp_path / "l.db") as w:
        stream = w.record(1)
        for _ in range(2):
            w.start(stream)
            w.fail(stream)
    found = json.loads(run("--ledger", tmp_path / "l.db", "intents", "show", stream, "--json").out)
    assert found["claims"]["attempted"]["version"] == 1 and len(found["events"]) == 5


def test_a_replay_shows_what_each_event_changed(ledger: Path) -> None:
    done = run("--ledger", ledger, "intents", "replay", intent_id(2))
    gateway, worker = (f"{kind}:0193b000-0000-7000-8000-000000000001" for kind in ("gateway", "worker"))
    assert done.lines[:10] == [
        "  0  2026-03-01 00:00:03.000Z  IntentRecorded  - -> pending",
        f"     by {gateway}",
        "     channel=qa  account=default  relation=followup",
        "  1  2026-03-01 00:00:04.000Z  AttemptStarted  pending -> sending",
        f"     by {worker}",
        "     attempt=1  deadline_ms=30000  margin_ms=15000",
        "     due_at: 2026-03-01 00:00:03.000Z -> none",
        "     current: none -> attempt 1",
        "     attempts: 0 -> 1",
        "     charged: 0 -> 1",
    ]
    assert "  2  2026-03-01 00:00:05.000Z  AttemptFailed  sending -> pending" in done.lines
    assert "     current: attempt 1 -> none" in done.lines
    assert "     failure: none -> rate_limit" in done.lines


def test_a_replay_ends_where_it_is_told(ledger: Path) -> None:
    def versions(*to: str) -> list[int]:
        done = run("--ledger", ledger, "intents", "replay", intent_id(1), "--json", *to)
        return [json.loads(line)["version"] for line in done.lines]

    assert versions() == [0, 1, 2, 3]
    assert versions("--to", "1") == [0, 1]
    assert versions("--to", "2026-03-01T00:00:02") == [0, 1]
    assert "(2 later events are left out)" in run("--ledger", ledger, "intents", "replay", "0193a701", "--to", "1").out


def test_a_replay_for_programs(ledger: Path) -> None:
    [_, started, _] = [
        json.loads(line) for line in run("--ledger", ledger, "intents", "replay", intent_id(2), "--json").lines
    ]
    assert (started["before"], started["after"]) == ("pending", "sending")
    assert started["changes"]["attempts"] == [0, 1]
    assert started["changes"]["current"][0] is None and started["changes"]["current"][1]["number"] == 1


def test_a_stream_that_cannot_be_read_is_shown_as_far_as_it_goes(ledger: Path) -> None:
    """REC-12: it is held and reported, with exit 1; every other intent is shown as ever."""
    damage(ledger, intent_id(2), 1)
    for verb, shown in (("show", "AttemptStarted does not decode"), ("replay", "IntentRecorded  - -> pending")):
        done = run("--ledger", ledger, "intents", verb, intent_id(2))
        assert done.code == 1
        assert shown in done.out
        assert len(done.err.splitlines()) == 1 and f"stream {intent_id(2)}: AttemptStarted does not decode" in done.err
    assert run("--ledger", ledger, "intents", "explain", intent_id(2)).code == 1
    drawn = run("--ledger", ledger, "intents", "timeline", intent_id(2))
    assert drawn.code == 0 and "held, " in drawn.out and "which this version cannot read" in drawn.out
    assert run("--ledger", ledger, "intents", "show", intent_id(3)).code == 0


def damage(ledger: Path, stream: str, version: int) -> None:
    import apsw

    connection = apsw.Connection(str(ledger))
    connection.execute(
        "UPDATE stored_events SET state = ? WHERE originator_id = ? AND originator_version = ?",
        (b'{"at": "never"}', stream, version),
    )
    connection.close()


def test_reads_write_nothing(ledger: Path) -> None:
    """A ledger that may not be written is read as ever, and a decision about it is refused with exit 3."""
    before = ledger.read_bytes()
    for verb in ("list", "show", "replay", "timeline", "explain"):
        assert run("--ledger", ledger, "intents", verb, *([] if verb == "list" else [intent_id(1)])).code == 0
    assert ledger.read_bytes() == before


def test_notes_say_what_a_person_should_see(tmp_path: Path) -> None:
    with Writer(tmp_path / "l.db") as w:
        refused = w.record(1)
        w.start(refused)
        w.fail(refused, FailureClass.INVALID_PAYLOAD)
        locked_out = w.record(2, target="b")
        w.start(locked_out)
        w.fail(locked_out, FailureClass.AUTH)
        twice = w.sent(3, target="c")
        w.accept(twice, "2000")
    shown = run("--ledger", tmp_path / "l.db", "intents", "list").out
    assert "rejected, invalid_payload" in shown
    assert "held (config), auth" in shown
    assert "1 contradiction" in shown


def test_errors_of_the_ledger_have_their_codes() -> None:
    from msgledger.cli.failure import code_of

    assert code_of(errors.StoreLocked("x")) == 3
    assert code_of(errors.KeysWrong("x")) == 3
    assert code_of(errors.WriteUncertain("x")) == 3
    assert code_of(errors.UnknownChannel("x")) == 2
    assert code_of(errors.IdempotencyConflict("x", "y")) == 2
    assert code_of(errors.NotPossible("x")) == 1
    assert code_of(ValueError("a bug")) is None
