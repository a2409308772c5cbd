"""The command line as a whole: starting up, help, exit codes, colours."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from msgledger.cli.main import main
from msgledger.version import __version__

from .kit import run, spawn

HEAVY = ("eventsourcing", "httpx2", "apsw", "msgspec", "asyncio", "rich")


def commands(group: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command below a group, with the words that call it."""
    yield path, group
    if isinstance(group, click.Group):
        context = click.Context(group)
        for name in group.list_commands(context):
            found = group.get_command(context, name)
            assert found is not None
            yield from commands(found, (*path, name))


ALL = list(commands(main))


def test_every_command_that_is_promised_is_there() -> None:
    leaves = {" ".join(path) for path, command in ALL if not isinstance(command, click.Group)}
    assert leaves == {
        *("send", "worker run", "workers list", "rebuild", "doctor", "channels", "demo"),
        *(f"sessions {verb}" for verb in ("list", "show", "history", "suspend", "resume", "reset")),
        *(f"inbound {verb}" for verb in ("list", "show", "retry", "drop")),
        *(f"intents {verb}" for verb in ("list", "show", "tail", "replay", "timeline", "explain", "cancel", "resolve")),
    }


@pytest.mark.parametrize(
    ("path", "command"), ALL, ids=lambda value: "-".join(value) if isinstance(value, tuple) else ""
)
def test_every_command_is_documented_with_an_example(path: tuple[str, ...], command: click.Command) -> None:
    shown = run(*path, "--help")
    assert shown.code == 0
    assert re.search(rf"Examples?:\n(.*\n)*? +.*msgledger .*{' '.join(path)}", shown.out), shown.out
    assert isinstance(command, click.Group) or path == ("demo",) or "JSON" in shown.out
    for option in ("--ledger", "--config", "--json"):
        assert option in shown.out


def test_version_imports_nothing_heavy(tmp_path: Path) -> None:
    code = (
        "import sys; from msgledger.cli.main import main\n"
        "try: main(['--version'])\n"
        f"except SystemExit: print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == f"msgledger {__version__}\n[]\n"


def test_version_by_name(tmp_path: Path) -> None:
    done = spawn("--version", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"msgledger {__version__}\n", "")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["nope"], "No such command 'nope'; see `msgledger --help`"),
        (["intents", "list", "--nope"], "No such option '--nope'"),
        (["intents", "show"], "Missing argument 'ID'; see `msgledger intents show --help`"),
        (["intents", "list", "--status", "nearly"], "Invalid value for '--status'"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_2(arguments: list[str], line: str) -> None:
    done = run(*arguments)
    assert done.code == 2
    assert done.out == ""
    assert len(done.err.splitlines()) == 1 and done.err.startswith("msgledger: ")
    assert line in done.err


def test_a_reader_that_has_seen_enough_is_no_error(ledger: Path, tmp_path: Path) -> None:
    theirs, ours = os.pipe()
    os.close(theirs)
    command = [str(Path(sys.executable).with_name("msgledger")), "--ledger", str(ledger), "intents", "list"]
    done = subprocess.run(command, cwd=tmp_path, stdout=ours, stderr=subprocess.PIPE, text=True, check=False)
    os.close(ours)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_error_cannot_steer_the_terminal() -> None:
    done = run("--config", "evil\x1b[2J\n.toml", "channels")
    assert (
        done.err
        == "msgledger: evil\\x1b[2J .toml cannot be read (No such file or directory): check --config and "
        + ("MSGLEDGER_CONFIG\n")
    )


def on_a_terminal(ledger: Path, *arguments: str, **env: str) -> str:
    """What the command writes to a terminal."""
    ours, theirs = pty.openpty()
    command = [str(Path(sys.executable).with_name("msgledger")), "--ledger", str(ledger), *arguments]
    clean = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "TERM", "COLUMNS")}
    with subprocess.Popen(
        command, stdout=theirs, stderr=theirs, stdin=theirs, env={**clean, "TERM": "xterm", "COLUMNS": "200", **env}
    ):
        os.close(theirs)
        shown = b""
        while True:
            try:
                part = os.read(ours, 65_536)
            except OSError:
                break
            if not part:
                break
            shown += part
    os.close(ours)
    return shown.decode()


def test_colours_are_for_terminals_only(ledger: Path) -> None:
    listing = ("intents", "list")
    assert "\x1b[" in on_a_terminal(ledger, *listing)
    assert "\x1b[" not in on_a_terminal(ledger, *listing, NO_COLOR="1")
    assert "\x1b[" not in run("--ledger", ledger, *listing).out


def test_what_a_ledger_holds_cannot_steer_the_terminal(tmp_path: Path) -> None:
    from .kit import Writer

    with Writer(tmp_path / "evil.db") as w:
        stream = w.sent(1, "\x1b]0;owned\x07", text="\x1b[2Jgone")
    for verb in ("show", "replay", "timeline", "explain"):
        more = ["--content"] if verb in ("show", "replay") else []
        done = run("--ledger", tmp_path / "evil.db", "intents", verb, stream, *more)
        assert done.code == 0
        assert "\x1b" not in done.out and "\x07" not in done.out
