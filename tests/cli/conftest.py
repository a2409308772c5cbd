"""Fixtures of the command line's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgledger.adapters.qa_process import QaPlatform
from msgledger.cli import opening

from .kit import AT, Writer


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No configuration of the machine, and none of the repository."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MSGLEDGER_LEDGER", raising=False)
    monkeypatch.delenv("MSGLEDGER_CONFIG", raising=False)


@pytest.fixture
def noon(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is an hour after the first event of the kit's ledgers."""
    monkeypatch.setattr(opening, "now_ms", lambda: AT + 3_600_000)


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    """One intent of each kind; see the ids in `kit.intent_id`."""
    path = tmp_path / "ledger.db"
    with Writer(path) as w:
        w.worker(stopped=True)
        w.sent(1, "1007", session="s1")
        retried = w.record(2, target="room-two")
        w.start(retried)
        w.fail(retried)
        w.unknown(3, target="room-three")
        w.record(4, target="room-three")
    return path


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QaPlatform]:
    with QaPlatform.start(tmp_path_factory.mktemp("qa"), token="s3cret-token") as platform:
        yield platform


@pytest.fixture
def config(tmp_path: Path, platform: QaPlatform, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration for the platform, its credential in the environment."""
    platform.clear_script()
    monkeypatch.setenv("QA_TOKEN", "s3cret-token")
    path = tmp_path / "msgledger.toml"
    path.write_text(
        f'ledger = "own.db"\n[channels.qa]\nkind = "qa"\nurl = "{platform.url}"\ndeadline_s = 1.0\n'
        'token = { env = "QA_TOKEN" }\n'
    )
    return path
