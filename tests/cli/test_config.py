"""`msgledger.toml`: found in order, refused where it is wrong, and never a place for a credential."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgledger.cli import config as configuration
from msgledger.cli.config import QaSettings, Secret
from msgledger.ledger.errors import InvalidConfig

from .kit import Writer, events_in, run

QA = '[channels.qa]\nkind = "qa"\nurl = "http://127.0.0.1:1"\n'


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "msgledger.toml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ('ledgr = "x"\n', ["'ledgr'", "did you mean ledger?", "there is ledger, channels"]),
        (QA + "timeout = 3\n", ["[channels.qa]", "'timeout'", "there is kind, url, account, token, deadline_s"]),
        (QA + 'token = "hunter2-secret"\n', ["credential written into it as token", "{ env =", "{ file ="]),
        (QA + 'password = "hunter2-secret"\n', ["credential written into it as password"]),
        (QA + 'token = { env = "A", file = "b" }\n', ["either env or file"]),
        (QA + 'token = { vault = "A" }\n', ["'vault'", "there is env, file"]),
        (QA + 'token = { env = "NOT_SET_ANYWHERE" }\n', ["NOT_SET_ANYWHERE is not set"]),
        (QA + 'token = { file = "nowhere" }\n', ["nowhere cannot be read (No such file or directory)"]),
        (QA + 'deadline_s = "soon"\n', ["[channels.qa]: Expected `float | null`, got `str` - at `$.deadline_s`"]),
        ('[channels.qa]\nkind = "qa"\n', ["[channels.qa]: Object missing required field `url`"]),
        ('[channels.x]\nkind = "fax"\n', ["kind 'fax'", "there is qa, matrix, telegram, python"]),
        ('[channels.x]\nkind = "python"\nobject = "os"\n', ["'os' is no place", "package.module:channel"]),
        ('[channels.x]\nkind = "python"\nobject = "no_such_module:c"\n', ["'no_such_module:c' cannot be imported"]),
        ("channels = 3\n", ["channels must be tables"]),
        ("ledger = 3\n", ["ledger must be a path"]),
        ("ledger = \n", ["is no TOML"]),
    ],
)
def test_a_wrong_configuration_is_one_line_and_exit_2(tmp_path: Path, text: str, parts: list[str]) -> None:
    path = written(tmp_path, text)
    done = run("--config", path, "channels")
    assert done.code == 2, done
    first = done.err.splitlines()[0]
    assert str(path) in first
    assert all(part in first for part in parts), first
    assert "hunter2" not in done.err and done.out == ""
    assert all(line.startswith("  caused by ") for line in done.err.splitlines()[1:])


def test_a_missing_file_that_was_named_is_refused(tmp_path: Path) -> None:
    done = run("--config", tmp_path / "none.toml", "channels")
    assert done.code == 2
    assert "none.toml cannot be read (No such file or directory): check --config" in done.err


def test_an_argument_beats_the_environment_beats_the_file(tmp_path: Path) -> None:
    for name, number in (("file", 1), ("env", 2), ("argument", 3)):
        with Writer(tmp_path / f"{name}.db") as w:
            w.record(number)
    config = written(tmp_path, 'ledger = "file.db"\n')
    ids = ("intents", "list", "-i")
    assert "0193a701" in run(*ids).out
    assert "0193a701" in run("--config", config, *ids).out
    env = {"MSGLEDGER_LEDGER": str(tmp_path / "env.db")}
    assert "0193a702" in run("--config", config, *ids, env=env).out
    assert "0193a703" in run("--ledger", tmp_path / "argument.db", *ids, env=env).out
    assert "0193a703" in run(*ids, "--ledger", tmp_path / "argument.db", env=env).out
    other = tmp_path / "other"
    other.mkdir()
    elsewhere = written(other, 'ledger = "../env.db"\n')
    named = {"MSGLEDGER_CONFIG": str(elsewhere)}
    assert "0193a702" in run(*ids, env=named).out
    assert "0193a701" in run("--config", config, *ids, env=named).out


def test_no_ledger_at_all_says_how_to_name_one() -> None:
    done = run("intents", "list")
    assert (done.code, done.out) == (2, "")
    assert "give --ledger PATH, set MSGLEDGER_LEDGER, or put `ledger` into the configuration" in done.err


def test_a_credential_is_read_when_needed_and_shown_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QA_TOKEN", "hunter2-secret")
    (tmp_path / "token").write_text("hunter3-secret\n")
    path = written(
        tmp_path, QA + 'token = { env = "QA_TOKEN" }\n' + QA.replace("qa]", "two]") + 'token.file = "token"\n'
    )
    found = configuration.load(path)
    assert [channel.credential for channel in found.all_channels()] == ["hunter2-secret", "hunter3-secret"]
    assert isinstance(found.channels["qa"], QaSettings)
    for shown in (repr(found), repr(found.all_channels()), *run("channels", "--json"), *run("channels")):
        assert "hunter" not in str(shown)


def test_an_empty_credential_is_none(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(InvalidConfig, match="is empty: put the credential into it"):
        Secret(file="empty").read("here", tmp_path)


def test_a_homeserver_with_a_window_of_its_own(tmp_path: Path) -> None:
    """R5, CH-5: what is written is what resends go by, and is said to come from a document."""
    settings = 'kind = "matrix"\nurl = "http://127.0.0.1:1"\nuser = "@bot:example.org"\ntoken = { file = "token" }\n'
    (tmp_path / "token").write_text("t")
    path = written(tmp_path, f"[channels.day]\n{settings}[channels.short]\n{settings}window_s = 600\n")
    done = run("--config", path, "channels")
    assert "effectively once within 86400 s of the first attempt (txnId, proved)" in done.out
    assert "effectively once within 600 s of the first attempt (txnId, documented)" in done.out


def test_a_telegram_bot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CH-1: token and secret are named and never shown; one that is written down is refused, and so is a wrong form."""
    secret = "AAF-0123456789_hunter2"
    monkeypatch.setenv("BOT", f"4711:{secret}")
    monkeypatch.setenv("HOOK", "hunter3")
    head = '[channels.tg]\nkind = "telegram"\ntoken = { env = "BOT" }\n'
    path = written(tmp_path, head + 'username = "a_bot"\nwebhook_secret = { env = "HOOK" }\n')
    channel = configuration.load(path).channel("tg")
    assert (channel.name, channel.account) == ("tg", "4711")
    done = run("--config", path, "channels")
    assert "tg/4711 (telegram): at least once by policy; an unknown outcome is held for a person otherwise" in done.out
    assert "hunter" not in done.out + repr(channel) + repr(configuration.load(path))
    with pytest.raises(InvalidConfig, match="has a credential written into it as webhook_secret"):
        configuration.load(written(tmp_path, head + 'webhook_secret = "hunter4"\n'))
    monkeypatch.setenv("BOT", secret)
    with pytest.raises(InvalidConfig, match="bot token of another form") as refused:
        configuration.load(written(tmp_path, head)).channel("tg")
    assert "hunter" not in str(refused.value)


def test_an_unknown_channel_is_refused_and_nothing_recorded(ledger: Path, tmp_path: Path) -> None:
    written(tmp_path, QA)
    before = events_in(ledger)
    done = run("--ledger", ledger, "send", "--channel", "fax", "--to", "x", "--text", "y")
    assert (done.code, done.out) == (2, "")
    assert "no channel 'fax' is configured" in done.err and "there is qa" in done.err
    assert events_in(ledger) == before


def test_a_gateway_s_own_channel_by_its_name(tmp_path: Path) -> None:
    """A Python object is a channel of the configuration, if it goes by the same name."""
    (tmp_path / "own_channels.py").write_text(
        "import msgledger\nasync def deliver(unit, context): return 'id-1'\n"
        "mine = msgledger.CallableChannel('mine', deliver)\nthing = 3\n"
    )
    table = '[channels.{}]\nkind = "python"\nobject = "own_channels:{}"\npath = "."\n'
    written(tmp_path, table.format("mine", "mine"))
    done = run("--ledger", tmp_path / "own.db", "send", "--channel", "mine", "--to", "x", "--text", "y", "--json")
    assert done.code == 0 and '"primary_platform_id":"id-1"' in done.out
    written(tmp_path, table.format("yours", "mine"))
    assert "is channel 'mine', account 'default': name them alike" in run("channels").err
    written(tmp_path, table.format("thing", "thing"))
    assert run("channels").code == 2
