"""`send` and `worker run` against a real platform: what is said, what is recorded, and how it ends."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from msgledger.adapters.qa_process import QaPlatform

from .kit import events_in, lines, normal, run, spawn

pytestmark = pytest.mark.usefixtures("config")


def send(*more: str | Path, input: str | bytes | None = None) -> Any:
    return run("send", "--channel", "qa", "--to", "ops", *more, input=input)


def texts(platform: QaPlatform) -> list[str]:
    return [entry["text"] for entry in platform.accepted()]


def test_a_message_is_sent_and_its_receipt_shown(platform: QaPlatform) -> None:
    """REL-5, RCP-5: the command line uses the same way out, and gets the receipt."""
    done = send("--text", "sent plainly")
    [entry] = [entry for entry in platform.accepted() if entry["text"] == "sent plainly"]
    assert normal(done.out) == lines(["ID  sent", f"  receipt  {entry['id']}"])
    assert (done.code, done.err) == (0, "")
    assert entry["place"] == "ops"
    shown = run("intents", "show", done.out[:36]).out
    assert "qa/default, send, system" in shown and "operator" not in shown


def test_a_delivery_for_programs(platform: QaPlatform) -> None:
    found = json.loads(send("--text", "sent for a program", "--json").out)
    assert found.keys() == {
        *("intent", "key", "status", "receipt", "hold", "failure", "reason"),
        *("due_at", "attempts", "repeated", "durable", "retry"),
    }
    assert (found["status"], found["attempts"], found["repeated"], found["retry"]) == ("sent", 1, False, None)
    assert found["receipt"]["primary_platform_id"] == str(platform.accepted()[-1]["id"])


def test_the_text_from_standard_input(platform: QaPlatform) -> None:
    assert send("-", input="first line\nsecond line\n").code == 0
    assert send("--text", "-", input="dash as an option").code == 0
    assert send(input="no dash at all\n").code == 0
    assert texts(platform)[-3:] == ["first line\nsecond line", "dash as an option", "no dash at all"]


def test_thread_and_reply(platform: QaPlatform) -> None:
    assert send("--text", "threaded", "--thread", "t9", "--reply-to", "1001", "--kind", "thread").code == 0
    entry = platform.accepted()[-1]
    assert (entry["thread"], entry["reply_to"]) == ("t9", "1001")


def test_the_same_key_is_one_message(platform: QaPlatform) -> None:
    """OB-3, SC-44: the standing intent is returned and nothing new is sent; other content under it is a conflict."""
    first = send("--text", "once", "--key", "k1")
    again = send("--text", "once", "--key", "k1")
    assert again.code == 0
    assert again.lines[0] == f"{first.out[:36]}  sent  (the key stood already: nothing new was recorded)"
    assert texts(platform).count("once") == 1
    other = send("--text", "otherwise", "--key", "k1")
    assert (other.code, other.out) == (2, "")
    assert f"key 'k1' stands for intent {first.out[:36]} with other content" in other.err
    assert "otherwise" not in texts(platform)


def test_what_is_not_sent_exits_1_and_says_who_goes_on(platform: QaPlatform) -> None:
    platform.script({"do": "reject", "class": "invalid_payload", "code": "bad"}, text="refused")
    refused = send("--text", "refused")
    assert refused.code == 1
    assert normal(refused.out) == lines(
        [
            "ID  failed",
            "  because  rejected, invalid_payload",
            "  next     it will not be sent; send anew where you still want it",
        ]
    )
    platform.script({"do": "rate_limit", "retry_after_s": 600}, text="slow down")
    waiting = send("--text", "slow down", "--unordered")
    assert waiting.code == 1
    assert "pending" in waiting.lines[0] and "the ledger owes it, do not repeat it" in waiting.out
    run("intents", "cancel", waiting.out[:36], "--reason", "done with it", "--yes")


def test_no_wait_returns_once_it_is_durable(platform: QaPlatform) -> None:
    platform.script({"do": "slow", "delay_s": 0.3}, text="not waited for")
    done = send("--text", "not waited for", "--no-wait", "--json")
    assert done.code == 0
    assert json.loads(done.out)["status"] == "sending"
    assert "not waited for" in texts(platform), "closing let the request in flight end"


@pytest.mark.parametrize(
    ("arguments", "input", "line"),
    [
        (["--to", " ", "--text", "x"], None, "has no id: say where the message goes"),
        (["--to", "x" * 600, "--text", "x"], None, "longer than 512 bytes"),
        (["--text", ""], None, "has an empty text"),
        (["--text", " \n "], None, "has an empty text"),
        (["-"], "a\0b", "NUL"),
        (["-"], b"\xff\xfe", "not UTF-8 (byte 0): convert it"),
        (["-"], "x" * 1_048_578, "is longer than 1048576 bytes"),
        (["--text", "x", "-"], "y", "are two texts: give one"),
        (["--kind", "thread", "--text", "x"], None, "--kind thread needs --thread"),
        (["--text", "x", "--key", ""], None, "must have 1 to 512 bytes"),
        (["--text", "x", "--max-age", "0"], None, "must be positive"),
        (["--text", "x", "--max-age", "soon"], None, "'soon' is no duration"),
        (["--text", "x", "--account", "other"], None, "has no account 'other': it has default"),
        (["--text", "x", "--channel", "fax"], None, "no channel 'fax' is configured"),
    ],
)
def test_what_cannot_be_sent_is_refused_and_nothing_recorded(
    tmp_path: Path, platform: QaPlatform, arguments: list[str], input: str | bytes | None, line: str
) -> None:
    """OB-17: turned down with one line that says why; no intent stands, and nothing has left."""
    before = len(platform.accepted())
    done = send(*arguments, input=input)
    assert (done.code, done.out) == (2, ""), done
    assert line in done.err and len(done.err.splitlines()) == 1, done.err
    if (tmp_path / "own.db").exists():
        assert run("intents", "list", "-c").out == "0\n"
    assert len(platform.accepted()) == before


def test_bytes_on_the_command_line_that_are_no_text(tmp_path: Path) -> None:
    command = [str(Path(sys.executable).with_name("msgledger")), "send", "--channel", "qa", "--to", "ops", "--text"]
    done = subprocess.run([*command, b"broken \xff"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, ""), done
    first, cause = done.stderr.splitlines()
    assert "holds a lone surrogate: decode it properly" in first and cause.startswith("  caused by UnicodeEncodeError")


def test_a_channel_is_needed(tmp_path: Path) -> None:
    (tmp_path / "msgledger.toml").write_text('ledger = "own.db"\n')
    assert run("worker", "run").err == ("msgledger: no channel is configured in msgledger.toml: add [channels.NAME]\n")
    assert run("worker", "run").code == 2
    assert not (tmp_path / "own.db").exists()


def test_a_worker_finishes_what_is_owed_and_ends(platform: QaPlatform, tmp_path: Path) -> None:
    """REC-9, OB-6: an outcome in doubt is settled by the worker; one log line for each change of status."""
    platform.script("accept_drop", text="in doubt")
    left = send("--text", "in doubt", "--timeout", "0.3s")
    assert left.code == 1 and "unknown_after_send" in left.out
    done = run("worker", "run", "--until-idle", "--for", "20s")
    assert (done.code, done.out) == (0, "ended (idle): 0 owed, 0 held, 0 on channels that are not configured\n")
    assert texts(platform).count("in doubt") == 1
    said = [line for line in done.err.splitlines() if left.out[:36] in line]
    assert len(said) == len({line.split(" is ")[1] for line in said}), said
    assert said[-1].endswith(f"info intent {left.out[:36]} is sent")
    assert "in doubt" not in done.err


def test_a_worker_says_what_it_could_not_finish(tmp_path: Path, platform: QaPlatform) -> None:
    platform.script({"do": "reject", "class": "auth"}, text="locked out")
    assert send("--text", "locked out").code == 1
    done = run("worker", "run", "--until-idle", "--quiet", "--json")
    assert done.code == 1
    assert json.loads(done.out) == {"ended": "idle", "owed": 1, "held": 1, "not_configured": 0}
    assert done.err == ""


def test_a_worker_sends_what_its_new_configuration_lets_go(tmp_path: Path, platform: QaPlatform) -> None:
    """FAIL-4, OB-6: it is not idle while what was held for the configuration that it was started with is owed."""
    platform.script({"do": "reject", "class": "auth"}, text="locked out")
    assert send("--text", "locked out").code == 1
    platform.clear_script()
    config = tmp_path / "msgledger.toml"
    config.write_text(config.read_text().replace(platform.url, f"{platform.url}/"))
    done = run("worker", "run", "--until-idle", "--quiet", "--json", "--for", "20s")
    assert (done.code, json.loads(done.out)["owed"]) == (0, 0)
    assert texts(platform).count("locked out") == 1


def test_a_worker_for_a_time(tmp_path: Path) -> None:
    began = time.monotonic()
    done = run("worker", "run", "--for", "0.3s", "--quiet")
    assert (done.code, done.out) == (0, "ended (time): 0 owed, 0 held, 0 on channels that are not configured\n")
    assert 0.3 <= time.monotonic() - began < 5


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_worker_in_order(tmp_path: Path, sign: signal.Signals) -> None:
    command = [str(Path(sys.executable).with_name("msgledger")), "worker", "run"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as worker:
        assert worker.stderr is not None and worker.stdout is not None
        assert "channel qa/default is ready" in worker.stderr.readline()
        alive = json.loads(spawn("workers", "list", "--json", cwd=tmp_path).stdout)
        assert (alive["life"], alive["pid"]) == ("alive", worker.pid)
        worker.send_signal(sign)
        assert worker.wait(10) == 0
        assert worker.stdout.read().startswith("ended (signal): 0 owed")
        assert "Traceback" not in worker.stderr.read()
    assert json.loads(run("workers", "list", "--json").out)["life"] == "stopped"


def test_an_interrupt_says_that_the_message_may_go_out(tmp_path: Path, platform: QaPlatform) -> None:
    """DUR-1: whoever gave up waiting is told to look before they send it again."""
    platform.script({"do": "slow", "delay_s": 3.0}, text="slow")
    config = tmp_path / "msgledger.toml"
    config.write_text(config.read_text().replace("deadline_s = 1.0", "deadline_s = 20.0"))
    command = [str(Path(sys.executable).with_name("msgledger")), "send", "--channel", "qa", "--to", "ops"]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([*command, "--text", "slow"], cwd=tmp_path, **pipes) as sending:
        until = time.monotonic() + 20
        while not run("intents", "list", "--status", "sending", "-i").out:
            assert time.monotonic() < until and sending.poll() is None
            time.sleep(0.02)
        sending.send_signal(signal.SIGINT)
        out, err = sending.communicate(timeout=20)
    assert (sending.returncode, out) == (130, "")
    assert err == (
        "msgledger: interrupted; what was recorded is owed and may go out without you:"
        " look with `msgledger intents list` before you send it again\n"
    )


def test_a_ledger_that_cannot_be_written_sends_nothing(tmp_path: Path, platform: QaPlatform) -> None:
    """DUR-1: fail closed, with exit 3."""
    assert send("--text", "before").code == 0
    before = events_in(tmp_path / "own.db")
    (tmp_path / "own.db.keys").rename(tmp_path / "away")
    done = send("--text", "without keys")
    assert (done.code, done.out) == (3, "")
    assert "own.db.keys is not there" in done.err
    assert "without keys" not in texts(platform)
    (tmp_path / "away").rename(tmp_path / "own.db.keys")
    assert events_in(tmp_path / "own.db") == before
