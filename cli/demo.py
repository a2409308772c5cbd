"""`msgledger demo`: forty messages, a platform that misbehaves, and a gateway that is killed three times in mid-send.

What it claims at the end it has counted: what should be there, from the list of messages; what is there, from the
platform's own record, which another process wrote; what is owed, from the ledger.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from ..adapters.calls import provider_key
from ..adapters.qa_process import QaPlatform
from ..ledger.errors import InvalidConfig, LedgerError
from ..ledger.fold import fold
from ..ledger.intent import IntentState
from ..ledger.store.store import Store
from ..projections import VIEWS
from ..projections.intents import Row
from ..projections.search import Query, in_flight, search
from ..projections.timeline import timeline
from . import opening
from .base import PROBLEMS, Command, setup
from .demo_books import TOTAL, Verdict, fate, judge, text_in
from .demo_gateway import CONVERSATIONS, MESSAGES
from .output import emit, full, plural, say, table, unicode, width
from .render import draw

GATEWAY: tuple[str, ...] = ("-P", "-m", f"{__package__}.demo_gateway")
FAULTS: Final = "drop=0.08,lose=0.03,rate=0.08,slow=0.08"
ACTIONS: Final[tuple[tuple[int, Any, str], ...]] = (
    (8, "accept_hang", "the platform takes the next message and does not answer"),
    (16, "hang", "the platform reads the next message and does nothing with it"),
    (24, {"do": "slow", "delay_s": 0.6}, "the platform takes its time with the next message"),
)
"""The kills: once so many messages are accepted, what the platform does to the message that will be in flight."""
SEEN_FOR_S: Final = 0.15
"""A request that is in flight for so long is one that the platform holds."""
TRIES: Final = 5
POLL_S: Final = 0.01
ENDS_AFTER_S: Final = 60.0


class Caught(msgspec.Struct, frozen=True):
    """A message that was in flight when the gateway was killed. `taken`: the platform had it already then."""

    intent: str
    text: str
    taken: bool


class Kill(msgspec.Struct, frozen=True):
    at_s: float
    accepted: int
    caught: tuple[Caught, ...]


@click.command(cls=Command)
@click.option("--keep", type=click.Path(file_okay=False, path_type=Path), help="Keep ledger and record in this folder.")
@click.option("--seed", type=click.IntRange(0, 2**31), default=7, show_default=True, help="Of the platform's faults.")
def demo(keep: Path | None, seed: int) -> None:
    """Kill a gateway three times in mid-send, and count what arrived. Takes about five seconds; needs no network.

    Exit 1 where anything is owed, lost, out of order or doubled.

    JSON: one object: seconds, kills, verdict, intent, timeline.

    \b
    Examples:
      msgledger demo
      msgledger demo --keep /tmp/demo && msgledger --ledger /tmp/demo/ledger.db intents list
    """
    with _folder(keep) as folder:
        quiet = setup().json
        try:
            with QaPlatform.start(folder, faults=FAULTS, seed=seed) as platform:
                story = Story(folder, platform, seed, quiet)
                story.tell()
        except RuntimeError as error:
            raise LedgerError(f"the demo cannot go on: {error}") from error
    if not story.verdict.good:
        sys.exit(PROBLEMS)


@contextlib.contextmanager
def _folder(keep: Path | None) -> Generator[Path]:
    """A folder of its own; kept where that is asked for, and never one with a ledger in it."""
    if keep is None:
        folder = Path(tempfile.mkdtemp(prefix="msgledger-demo-"))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return
    keep.mkdir(parents=True, exist_ok=True)
    if any(keep.iterdir()):
        raise InvalidConfig(f"--keep {keep} is not empty: name a new folder")
    yield keep.resolve()


class Story:
    """One run of the demo. It reads the ledger from outside, as any operator may."""

    verdict: Verdict

    def __init__(self, folder: Path, platform: QaPlatform, seed: int, quiet: bool) -> None:
        self.ledger = folder / "ledger.db"
        self.platform = platform
        self.seed = seed
        self.quiet = quiet
        self.log = folder / "gateway.log"
        self.began = time.monotonic()
        self.process: subprocess.Popen[bytes] | None = None
        self.kills: list[Kill] = []

    def tell(self) -> None:
        self._opening_words()
        try:
            self._run()
        finally:
            self._end()
        with Store.open(self.ledger, VIEWS, wall_ms=opening.now_ms, create=False, read_only=True) as store:
            self.verdict, rows = judge(store, self.platform.accepted())
            shown = self._interesting(store)
            self._closing_words(store, rows, shown)

    # ---- what happens

    def _run(self) -> None:
        self._start()
        for threshold, action, words in ACTIONS:
            self._await(lambda threshold=threshold: len(self.platform.accepted()) >= threshold)
            self._say(words)
            self._kill(action)
            self._start()
        self._await(lambda: self.process is not None and self.process.poll() is not None)
        if self.process is not None and self.process.returncode != 0:
            raise RuntimeError(f"the gateway ended with {self.process.returncode}: {self._last_words()}")
        self._say("nothing is owed any more, and the gateway ends by itself")

    def _start(self) -> None:
        command = [sys.executable, *GATEWAY, str(self.ledger), self.platform.url, str(self.seed)]
        again, task = ("", "") if not self.kills else (" again", ", and is asked for the same forty messages")
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log)
        self._say(f"the gateway starts{again} as process {self.process.pid}{task}")

    def _kill(self, action: Any) -> None:
        """SIGKILL while a request is in flight: proved by what the ledger says afterwards, else tried again."""
        assert self.process is not None
        for _ in range(TRIES):
            self.platform.script(action)
            self._await(self._request_is_held)
            self._end()
            caught = self._caught()
            if caught:
                break
            self._say("the gateway was killed between two requests; once more")
            self._start()
        else:
            raise RuntimeError("no request was in flight at any of the kills")
        accepted = len(self.platform.accepted())
        self.kills.append(Kill(round(self._seconds(), 3), accepted, caught))
        self._say(f"SIGKILL, with {plural(len(caught), 'request')} in flight and {accepted} of {TOTAL} accepted:")
        for one in caught:
            what = "taken, and its answer never came" if one.taken else "on its way, and not taken yet"
            self._say(f"    {one.text!r}: {what}")

    def _request_is_held(self) -> bool:
        """Whether one attempt has been in flight for so long that the platform must be holding it."""
        if self.process is None or self.process.poll() is not None:
            raise RuntimeError(f"the gateway ended before it could be killed: {self._last_words()}")
        before = self._flying()
        if not before:
            return False
        time.sleep(SEEN_FOR_S)
        return bool(before & self._flying())

    def _flying(self) -> set[tuple[str, int]]:
        """(intent, head) of what the ledger says is in flight; nothing while there is no ledger yet."""
        with contextlib.suppress(LedgerError), self._reading() as store:
            return {(row.id, row.head) for row in store.read_sync(search, Query(status=("sending",)), TOTAL)}
        return set()

    def _caught(self) -> tuple[Caught, ...]:
        keys = {entry["key"] for entry in self.platform.accepted()}
        with self._reading() as store:
            return tuple(
                Caught(intent, text_in(store, intent), provider_key(intent, 0, 0) in keys)
                for intent, _ in store.read_sync(in_flight)
            )

    def _reading(self) -> Store:
        return Store.open(self.ledger, VIEWS, wall_ms=opening.now_ms, create=False, read_only=True)

    def _await(self, done: Any) -> None:
        while not done():
            if self._seconds() > ENDS_AFTER_S:
                raise RuntimeError(f"it takes longer than {ENDS_AFTER_S:g} s: {self._last_words()}")
            time.sleep(POLL_S)

    def _end(self) -> None:
        """SIGKILL for the process that was started here, by its id; nothing where it has ended."""
        process, self.process = self.process, None
        if process is None:
            return
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
        process.wait()
        if process.stdin is not None:
            process.stdin.close()

    def _last_words(self) -> str:
        return " ".join(self.log.read_text(errors="replace").split())[-300:] or "it said nothing"

    def _seconds(self) -> float:
        return time.monotonic() - self.began

    # ---- what is told

    def _say(self, text: str) -> None:
        if not self.quiet:
            say(f"  {self._seconds():5.1f} s  {text}")
            sys.stdout.flush()

    def _opening_words(self) -> None:
        if self.quiet:
            return
        say(f"Forty messages in four conversations ({', '.join(CONVERSATIONS)}), and two processes.")
        say()
        say("  The platform loses answers and whole requests, asks to slow down, and is slow. It does not")
        say("  deduplicate: a message that is sent twice is there twice. But it can be asked what it has.")
        say("  The gateway sends. It will be killed three times (SIGKILL), each time with a request in flight.")
        say()

    def _interesting(self, store: Store) -> str:
        """Of the messages that were in flight at a kill, the one with the longest history."""
        caught = [one.intent for kill in self.kills for one in kill.caught]
        return max(caught, key=lambda intent: len(store.events_of(intent)))

    def _closing_words(self, store: Store, rows: list[Row], shown: str) -> None:
        history = store.read_sync(Store.history, shown)
        line = timeline(shown, history)
        state = fold(shown, history)
        status = state.status.value if isinstance(state, IntentState) else "held"
        if self.quiet:
            emit(
                {
                    "seconds": round(self._seconds(), 3),
                    "kills": self.kills,
                    "verdict": {**full(self.verdict), "good": self.verdict.good},
                    "intent": shown,
                    "timeline": line,
                }
            )
            return
        say()
        say("What became of the messages that were in flight at the kills:")
        say()
        for kill in self.kills:
            for one in kill.caught:
                say(f"  {one.text!r}: {fate(store.events_of(one.intent))}")
        say()
        say(f"What the ledger knows of {text_in(store, shown)!r}, which survived a kill:")
        say()
        for text in draw(line, status=status, width=width(), fancy=unicode()):
            say(f"  {text}".rstrip())
        say()
        say("Two books, kept by two processes that cannot see each other's:")
        say()
        self._books(rows)
        say()
        self._judgement()

    def _books(self, rows: list[Row]) -> None:
        accepted = Counter(entry["place"] for entry in self.platform.accepted())
        sent = Counter(_conversation(self.platform, row) for row in rows if row.status == "sent")
        table(
            ("  conversation", "asked for", "ledger: sent", "platform: accepted"),
            [(f"  {name}", MESSAGES, sent[name], accepted[name]) for name in CONVERSATIONS],
        )
        tries = sum(row.attempts for row in rows)
        say()
        say(f"  It took {plural(tries, 'attempt')} and {plural(len(self.kills), 'kill')}.")

    def _judgement(self) -> None:
        found = self.verdict
        say(
            f"  owed {found.owed}, lost {found.lost}, out of order {found.out_of_order}, doubled {found.doubled}"
            + (f", marked as possible copies {found.marked}" if found.marked else "")
            + (f", wrong receipts {found.mismatched}" if found.mismatched else "")
        )
        for one in found.which:
            say(f"    {one}")


def _conversation(platform: QaPlatform, row: Row) -> str:
    """Of a row that was sent: the place of the message that the platform has under its id."""
    places = {str(entry["id"]): entry["place"] for entry in platform.accepted()}
    return places.get(row.primary_platform_id or "", "")
