"""`intents timeline` and `intents explain`: the picture, and the reasons that come from the product's own rules."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgledger.cli import opening
from msgledger.ledger.outcome import FailureClass
from msgledger.ledger.store.owner import Owner

from .kit import AT, WORKER, Writer, intent_id, lines, run

pytestmark = pytest.mark.usefixtures("noon")


@pytest.fixture
def rich_story(tmp_path: Path) -> Path:
    """An intent with a rate limit, a long wait, and a receipt."""
    path = tmp_path / "story.db"
    with Writer(path) as w:
        stream = w.record(1)
        w.start(stream)
        w.fail(stream)
        w.tick(60_000)
        w.start(stream)
        w.accept(stream, "1007")
    return path


def test_the_picture(rich_story: Path) -> None:
    done = run("--ledger", rich_story, "intents", "timeline", "0193", env={"COLUMNS": "80"})
    assert done.out == lines(
        [
            f"intent {intent_id(1)}",
            "sent, 2 attempts, 6 events in 1 min 4 s, from 2026-03-01 00:00:00.000Z",
            "",
            "            0            +1 s         +2 s               +1 min 3 s   +1 min 4 s",
            "            ┬            ┬            ┬≈≈≈≈≈≈≈≈≈≈≈≈≈≈≈≈≈≈┬             ┬",
            "intent      ●──────────────────────────────────────────────────────────■",
            "attempt 1                ●════════════✗",
            "attempt 2                                                ●═════════════✓",
            "receipts                                                               ✓",
            "",
            "  ●   0  +0 ms       recorded",
            "  ●   1  +1 s        attempt 1 started (first)",
            "  ✗   2  +2 s        attempt 1: not sent, rate_limit (rejected)",
            "  ●   3  +1 min 3 s  attempt 2 started (retry)",
            "  ✓   4  +1 min 4 s  attempt 2: unit 0 accepted -> unit 0: 1007",
            "  ■   5  +1 min 4 s  committed: sent",
        ]
    )


@pytest.mark.parametrize("columns", [20, 50, 63, 80, 200])
def test_the_picture_fits(rich_story: Path, columns: int) -> None:
    drawn = run("--ledger", rich_story, "intents", "timeline", "0193", env={"COLUMNS": str(columns)}).lines
    assert max(map(len, drawn)) <= max(columns, 50)
    [axis] = [line for line in drawn if "≈" in line]
    rows = {line.split("  ")[0]: line for line in drawn if line.startswith(("intent  ", "attempt", "receipts"))}
    assert rows["attempt 1"].index("✗") < axis.rindex("≈") < rows["attempt 2"].index("●")
    assert rows["attempt 2"].index("✓") == rows["receipts"].index("✓") == rows["intent"].index("■")


def test_the_picture_in_ascii(rich_story: Path) -> None:
    drawn = run("--ledger", rich_story, "intents", "timeline", "0193", "--ascii").out
    assert drawn.isascii()
    assert "o====" in drawn and "~~" in drawn


def test_the_picture_for_programs(rich_story: Path) -> None:
    found = json.loads(run("--ledger", rich_story, "intents", "timeline", "0193", "--json").out)
    assert (found["status"], found["begins_at"], found["ends_at"]) == ("sent", AT, AT + 64_000)
    assert [row["name"] for row in found["rows"]] == ["intent", "attempt 1", "attempt 2", "receipts"]
    assert found["rows"][1]["ends_at"] == AT + 2_000 and found["rows"][1]["lease_ends_at"] == AT + 46_000
    assert found["rows"][2]["owner"] == WORKER
    assert found["rows"][3]["marks"] == [{"number": 4, "at": AT + 64_000, "kind": "accepted", "text": "unit 0: 1007"}]


def test_what_is_still_going_on_is_open_to_the_right(ledger: Path) -> None:
    drawn = run("--ledger", ledger, "intents", "timeline", intent_id(3)).lines
    assert drawn[5].endswith(" ...")
    assert drawn[6].endswith("?")


def explained(ledger: Path, number: int) -> dict[str, object]:
    done = run("--ledger", ledger, "intents", "explain", intent_id(number), "--json")
    assert done.code == 0, done
    return json.loads(done.out)


def test_an_explanation_for_people(ledger: Path) -> None:
    """GAP-8: the lane is said, with who is before it."""
    done = run("--ledger", ledger, "intents", "explain", intent_id(4))
    assert done.out == lines(
        [
            f"intent {intent_id(4)}  pending",
            "  why    it is recorded and owed; no attempt has started",
            "      rule R7: one message of a lane at a time, and the earlier ones first",
            "      event 0 IntentRecorded at 2026-03-01 00:00:07.000Z",
            f"  next   it waits for its turn behind {intent_id(3)}; "
            "then: it is sent as soon as its lane is free and its channel is ready",
            "      rule R7: one message of a lane at a time, and the earlier ones first",
            "  lane   1 message before it:",
            f"      {intent_id(3)}  unknown_after_send, in the way until it ends",
            "  do     take it back while nothing of it was sent: "
            f"`msgledger intents cancel {intent_id(4)} --reason ...`",
            "  note   the default terms are used, because channel qa/default is not configured here: "
            "a gateway that knows the channel may do otherwise",
            "  note   no worker of this host is alive: "
            "nothing happens until a gateway or `msgledger worker run` starts",
        ]
    )


def test_each_status_has_its_reason(ledger: Path, tmp_path: Path) -> None:
    with Writer(tmp_path / "more.db") as w:
        for number, failure in ((1, FailureClass.INVALID_PAYLOAD), (2, FailureClass.AUTH)):
            stream = w.record(number, target=f"room-{number}")
            w.start(stream)
            w.fail(stream, failure)
        w.start(w.record(3, target="room-3"))
    more = tmp_path / "more.db"
    words = {
        "sent": (explained(ledger, 1), "has a receipt: 1007", "Wait"),
        "retry": (explained(ledger, 2), "provably sent nothing (rate_limit)", "Start"),
        "unknown": (explained(ledger, 3), "attempt 1 may have been taken, and nobody guesses", "Park"),
        "failed": (explained(more, 1), "the same request would be refused again (invalid_payload, code c)", "Wait"),
        "config": (explained(more, 2), "the platform refused our access (auth)", "Wait"),
        "sending": (explained(more, 3), "attempt 1 is in flight", "TakeOver"),
    }
    for name, (found, why, step) in words.items():
        assert why in found["why"]["text"], name  # type: ignore[index]
        assert found["step"] == step, name


def test_what_is_next_follows_the_channel_s_terms(
    ledger: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R5, R1: with a window it is sent again by its key, with a look-up it is asked for; by default it is held."""
    plain = explained(ledger, 3)
    assert plain["step"] == "Park" and "R6" in plain["next"]["rules"]  # type: ignore[index]
    config = tmp_path / "msgledger.toml"
    config.write_text('[channels.qa]\nkind = "qa"\nurl = "http://127.0.0.1:1"\n')
    configured = explained(ledger, 3)
    assert configured["step"] == "Check" and configured["terms"]["reconciles"]  # type: ignore[index]
    assert not any("default terms" in note for note in configured["notes"])  # type: ignore[attr-defined]
    config.write_text(config.read_text() + 'token = { env = "NOT_SET" }\n')
    broken = explained(ledger, 3)
    assert "NOT_SET is not set" in broken["notes"][0]  # type: ignore[index]
    monkeypatch.setattr(opening, "now_ms", lambda: AT + 6_500)
    config.unlink()
    early = explained(ledger, 3)
    assert early["step"] == "Wait" and early["at"] == AT + 51_000


def test_a_live_owner_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """OB-4, OB-12: while the owner holds its lock nobody takes over; with its lock free the next step is to do so."""
    path = tmp_path / "l.db"
    with Writer(path) as w:
        w.worker()
        w.start(w.record(1))
    monkeypatch.setattr(opening, "now_ms", lambda: AT + 5_000)
    owner = Owner(path)
    owner.hold(WORKER)
    alive = explained(path, 1)
    assert alive["step"] == "Wait" and alive["notes"] == [alive["notes"][0]]  # type: ignore[index]
    assert "no worker" not in alive["notes"][0]  # type: ignore[index]
    owner.release()
    dead = explained(path, 1)
    assert dead["step"] == "TakeOver" and "R10" in dead["next"]["rules"]  # type: ignore[index]
