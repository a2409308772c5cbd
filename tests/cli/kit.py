"""What the tests of the command line share: a ledger written event by event, with ids and times that never differ.

The history is made of the product's own decisions, so that a state that cannot come about cannot be shown either.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from click.testing import CliRunner, Result
from msgledger.cli.main import main
from msgledger.ledger import decide, inbound
from msgledger.ledger import events as e
from msgledger.ledger import inbound_events as i
from msgledger.ledger.dossier import contents
from msgledger.ledger.intent import IntentState
from msgledger.ledger.message import Body, Message, RenderedBatch, RenderedUnit, Target
from msgledger.ledger.outcome import Accepted, Cause, FailureClass, Rejected, Unknown
from msgledger.ledger.source import SessionSource
from msgledger.ledger.steps import Start, Terms
from msgledger.ledger.store.append import NEW, Append, Appended
from msgledger.ledger.store.store import Store
from msgledger.projections import VIEWS

AT = 1_772_323_200_000
"""2026-03-01 00:00:00 UTC."""
WORKER = "0193b000-0000-7000-8000-000000000001"
SECRET_TEXT = "the launch code is 4711"
TERMS = Terms(clock_bound_ms=0, config="c0ffee")


def intent_id(number: int) -> str:
    return f"0193a7{number:02x}-0000-7000-8000-{number:012x}"


class Writer:
    """Writes a ledger at `path`; each event a second after the one before."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.now = AT
        self.store = Store.open(path, VIEWS, wall_ms=lambda: self.now)

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *_: object) -> None:
        self.store.close()

    def tick(self, ms: int = 1_000) -> int:
        self.now += ms
        return self.now

    def append(self, stream: str, *events: e.Event, expected: int | None = None) -> Appended:
        [done] = self.store.append_sync(Append(stream, events, expected=expected))
        assert isinstance(done, Appended), done
        return done

    def worker(self, stopped: bool = False) -> str:
        started = e.WorkerStarted(
            at=self.now, by=f"worker:{WORKER}", host="host", boot="boot", pid=7, msgledger="0.1.0", channels={"qa": "1"}
        )
        self.append(WORKER, started, expected=NEW)
        if stopped:
            self.append(WORKER, e.WorkerStopped(at=self.tick(), by=f"worker:{WORKER}"))
        return WORKER

    def record(
        self,
        number: int,
        text: str = SECRET_TEXT,
        *,
        target: str = "room-one",
        channel: str = "qa",
        units: int = 1,
        session: str | None = None,
        **policy: Any,
    ) -> str:
        stream, at, names = intent_id(number), self.now, self.store.pseudonyms
        message = Message.text(text, to=Target.group(channel, target))
        batch = RenderedBatch(tuple(RenderedUnit(index, text=text) for index in range(units)))
        key = f"key-{number}"
        policy = {"max_attempts": 6, "expires_at": at + 21_600_000} | policy
        event = e.IntentRecorded(
            at=at,
            by=f"gateway:{WORKER}",
            key=names.key(key),
            content_mac=names.mac("content", text.encode()),
            channel=channel,
            account="default",
            lane=names.lane("default", message.target),
            place=names.place(message.target),
            relation="followup",
            session=None if session is None else names.session(session),
            policy=e.Policy(**policy),
            units=e.planned(batch.units),
            content=contents(key, message, batch),
        )
        self.append(stream, event, expected=NEW)
        return stream

    def state(self, stream: str) -> IntentState:
        state = self.store.state_of(stream)
        assert isinstance(state, IntentState)
        return state

    def start(self, stream: str) -> None:
        state = self.state(stream)
        step = Start("first" if state.attempts == 0 else "retry")
        tries = (e.UnitTry(state.next_unit or 0, "key", "ab"),)
        at = self.tick()
        self.append(stream, decide.start(state, step, TERMS, at=at, boot_ms=0, owner=WORKER, tries=tries))

    def accept(self, stream: str, platform_id: str = "1007") -> None:
        state, at, by = self.state(stream), self.tick(), f"worker:{WORKER}"
        accepted = decide.accepted(state.attempts, state.next_unit or 0, "text", Accepted(platform_id), at=at, by=by)
        last = decide.finish(self.append(stream, accepted).state, at=at, by=by)  # type: ignore[arg-type]
        if last is not None:
            self.append(stream, last)

    def fail(self, stream: str, failure: FailureClass = FailureClass.RATE_LIMIT) -> None:
        state, at, by = self.state(stream), self.tick(), f"worker:{WORKER}"
        outcome = Rejected(failure, "no", code="c", retry_after_s=30.0 if failure is FailureClass.RATE_LIMIT else None)
        failed = decide.failed(state, state.attempts, 0, outcome, at=at, by=by, terms=TERMS, chance=0.5)
        last = decide.finish(self.append(stream, failed).state, at=at, by=by)  # type: ignore[arg-type]
        if last is not None:
            self.append(stream, last)

    def lose(self, stream: str, cause: Cause = Cause.OWNER_LOST) -> None:
        state, at, by = self.state(stream), self.tick(), f"worker:{WORKER}"
        unit = state.next_unit or 0
        self.append(stream, decide.unknown(state, state.attempts, unit, Unknown(cause), at=at, by=by, chance=0.5))

    def sent(self, number: int, platform_id: str = "1007", **more: Any) -> str:
        stream = self.record(number, **more)
        self.start(stream)
        self.accept(stream, platform_id)
        return stream

    def unknown(self, number: int, **more: Any) -> str:
        stream = self.record(number, **more)
        self.start(stream)
        self.lose(stream)
        return stream


def inbound_id(number: int) -> str:
    return f"0193c1{number:02x}-0000-7000-8000-{number:012x}"


def receive(
    w: Writer, number: int, text: str = SECRET_TEXT, *, chat: str = "room-one", session: str | None = None, **more: Any
) -> str:
    """A message that came in, whose turn is owed."""
    stream, names = inbound_id(number), w.store.pseudonyms
    target = Target.group("qa", chat)
    message = Message(target, Body(text), direction="inbound", id=f"m{number}", sender="ann")
    source = SessionSource("qa", "group", chat=chat, sender="ann", message_id=f"m{number}")
    event = i.InboundRecorded(
        at=w.tick(),
        by=f"gateway:{WORKER}",
        event_key=names.event("qa", "default", f"update-{number}"),
        channel="qa",
        account="default",
        lane=names.lane("default", target),
        place=names.place(target),
        session=None if session is None else names.session(session),
        message_id=f"m{number}",
        content=i.InboundContent(key=f"update-{number}", message=message, source=source),
        **more,
    )
    w.append(stream, event, expected=NEW)
    return stream


def turn(w: Writer, stream: str, *, fails: int = 0, ends: bool = False) -> str:
    """Runs of its turn: so many that end badly, then one that ends well."""
    by = f"worker:{WORKER}"
    for _ in range(fails):
        at = max(w.tick(), inbound_state(w, stream).due_at or 0)
        w.now = at
        w.append(stream, inbound.dispatched(inbound_state(w, stream), "first", at=at, by=by, owner=WORKER))
        state = inbound_state(w, stream)
        w.append(stream, inbound.failed(state, state.runs, "ValueError", "no model", at=w.tick(), by=by))
    if ends:
        w.append(stream, inbound.dispatched(inbound_state(w, stream), "first", at=w.tick(), by=by, owner=WORKER))
        state = inbound_state(w, stream)
        w.append(stream, inbound.completed(state, state.runs, (intent_id(1),), at=w.tick(), by=by))
    return stream


def inbound_state(w: Writer, stream: str) -> inbound.InboundState:
    state = w.store.state_of(stream)
    assert isinstance(state, inbound.InboundState)
    return state


class Ran(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


def run(*arguments: str | Path, input: str | bytes | None = None, env: dict[str, str | None] | None = None) -> Ran:
    """The command in this process, with nobody's configuration."""
    clean: dict[str, str | None] = {"MSGLEDGER_LEDGER": None, "MSGLEDGER_CONFIG": None, "COLUMNS": "120"}
    done: Result = CliRunner().invoke(
        main, [str(one) for one in arguments], input=input, env={**clean, **(env or {})}, prog_name="msgledger"
    )
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return Ran(done.exit_code, done.stdout, done.stderr)


def spawn(*arguments: str | Path, cwd: Path, **more: Any) -> subprocess.CompletedProcess[str]:
    """The same as a process of its own, from a folder without a configuration."""
    command = [str(Path(sys.executable).with_name("msgledger")), *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=30, check=False, **more)


_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")
_TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}Z")


def normal(text: str) -> str:
    """Ids and times that differ from run to run as ID and TIME."""
    return _TIME.sub("TIME", _ID.sub("ID", text))


def events_in(path: Path) -> int:
    """How many events a ledger has: what a refused command must not change."""
    with Store.open(path, VIEWS, wall_ms=lambda: AT, create=False, read_only=True) as store:
        return store.head_position()


def lines(parts: Sequence[str]) -> str:
    return "".join(part + "\n" for part in parts)
