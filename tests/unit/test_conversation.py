"""The history of a session against a naive telling of the same events, as of any position and in pages of any size."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any, NamedTuple

import msgledger
import pytest
from msgledger.ledger import events as e
from msgledger.ledger import inbound_events as i
from msgledger.ledger.dossier import contents
from msgledger.ledger.errors import NoSuchStream
from msgledger.ledger.message import Message, RenderedBatch, RenderedUnit, Target
from msgledger.ledger.source import SessionSource, session_key, shown_key
from msgledger.ledger.store.append import NEW

from ..cli.kit import WORKER, Writer, intent_id, receive

SOURCES = tuple(SessionSource("qa", "dm", chat=f"chat-{number}") for number in range(2))
KEYS = tuple(map(session_key, SOURCES))
STREAMS = tuple(f"0193d10{number}-0000-7000-8000-00000000000{number}" for number in range(2))
BY = f"gateway:{WORKER}"

KINDS = ("in", "in", "aside", "reply", "reply", "reply", "owed", "edit", "edit", "unsent edit", "delete", "rotate")


class Said(NamedTuple):
    """A message of the naive telling: where it was recorded and where it was sent (what came in: the same)."""

    session: int
    role: str
    stream: str
    recorded: int
    sent: int
    text: str


class Book:
    """Writes the steps into a ledger, and keeps what they mean in lists."""

    def __init__(self, w: Writer) -> None:
        self.w = w
        self.said: list[Said] = []
        self.changes: list[tuple[str, int, str | None]] = []
        """Intent, where the change was sent, the new words or None for a deletion."""
        self.spans: tuple[list[tuple[str, int]], ...] = ([], [])
        self.count = 0
        w.worker()
        for number, key in enumerate(KEYS):
            opened = i.SessionOpened(
                at=w.tick(),
                by=BY,
                key=w.store.pseudonyms.session(key),
                session_id=f"s{number}-0",
                shown=shown_key(SOURCES[number], w.store.pseudonyms),
                channel="qa",
                kind="dm",
                content=i.SessionContent(key=key, source=SOURCES[number]),
            )
            self.spans[number].append((f"s{number}-0", w.append(STREAMS[number], opened, expected=NEW).position))

    @property
    def head(self) -> int:
        return self.w.store.head_position()

    def take(self, kind: str, session: int, pick: int) -> None:
        self.count += 1
        words = f"{kind} {self.count}"
        sent = [one for one in self.said if one.session == session and one.role == "assistant" and one.sent]
        match kind:
            case "in" | "aside":
                stream = receive(
                    self.w, self.count, words, chat=f"chat-{session}", session=KEYS[session], addressed=kind == "in"
                )
                self.said.append(Said(session, "user", stream, self.head, self.head, words))
            case "reply" | "owed":
                stream = self.w.record(self.count, words, target=f"chat-{session}", session=KEYS[session])
                recorded = self.head
                if kind == "reply":
                    self.finish(stream)
                self.said.append(
                    Said(session, "assistant", stream, recorded, self.head if kind == "reply" else 0, words)
                )
            case "edit" | "unsent edit" | "delete" if sent:
                of = sent[pick % len(sent)].stream
                if (of, None) in [(intent, text) for intent, _, text in self.changes]:
                    return
                self.change(of, session, None if kind == "delete" else words)
                if kind != "unsent edit":
                    self.finish(intent_id(self.count))
                    self.changes.append((of, self.head, None if kind == "delete" else words))
            case "rotate":
                id = f"s{session}-{self.count}"
                rotated = i.SessionRotated(at=self.w.tick(), by=BY, session_id=id, reason="operator")
                self.spans[session].append((id, self.w.append(STREAMS[session], rotated).position))
            case _:
                pass

    def finish(self, stream: str) -> None:
        self.w.start(stream)
        self.w.accept(stream, f"m{self.count}")

    def change(self, of: str, session: int, words: str | None) -> None:
        stream, names = intent_id(self.count), self.w.store.pseudonyms
        message = Message.text(words or "gone", to=Target.group("qa", f"chat-{session}"))
        batch = RenderedBatch((RenderedUnit(0, text=words or ""),))
        event = e.IntentRecorded(
            at=self.w.tick(),
            by=BY,
            key=names.key(stream),
            content_mac=names.mac("content", b""),
            action="delete" if words is None else "edit",
            of=of,
            channel="qa",
            account="default",
            lane=names.lane("default", message.target),
            place=names.place(message.target),
            relation="followup",
            session=names.session(KEYS[session]),
            policy=e.Policy(max_attempts=6, expires_at=self.w.now + 21_600_000),
            units=e.planned(batch.units),
            content=contents(stream, message, batch),
        )
        self.w.append(stream, event, expected=NEW)

    def told(self, session: int, name: str, cut: int, everything: bool) -> list[tuple[int, str, str]] | None:
        """What the history has to be: (position, role, words)."""
        spans = [span for span in self.spans[session] if span[1] <= cut]
        names = [id for id, _ in spans]
        if not spans or (name not in names and name != KEYS[session]):
            return None
        index = names.index(name) if name in names else len(spans) - 1
        low = 0 if everything else spans[index][1]
        high = 2**40 if everything or index + 1 == len(spans) else spans[index + 1][1]
        found: list[tuple[int, str, str]] = []
        for one in self.said:
            if one.session == session and low < one.recorded < high and one.sent and one.sent <= cut:
                words = one.text
                for of, at, new in self.changes:
                    if of == one.stream and at <= cut:
                        words = new or ""
                found.append((one.recorded, one.role, words))
        return found


@pytest.mark.parametrize("seed", range(4))
def test_the_history_is_what_a_naive_reader_would_tell(tmp_path: Path, seed: int) -> None:
    """CT-9, SC-50, SC-53: whatever was said, edited, deleted, never sent and begun anew; at each position, by each
    name, in pages of any size."""
    path, chance = tmp_path / "ledger.db", random.Random(seed)
    with Writer(path) as w:
        book = Book(w)
        for _ in range(60):
            book.take(chance.choice(KINDS), int(chance.random() < 0.3), chance.randrange(6))
        head = book.head
    assert {"edit", "delete"} <= {"delete" if text is None else "edit" for _, _, text in book.changes}

    async def main() -> None:
        async with msgledger.reading(path) as ledger:
            for cut in (None, *range(1, head + 1)):
                session = chance.randrange(2)
                name = chance.choice([KEYS[session], *(id for id, _ in book.spans[session])])
                everything, size = chance.random() < 0.3, chance.randrange(1, 8)
                expected = book.told(session, name, head if cut is None else cut, everything)
                found = await paged(ledger, name, size, as_of=cut, all=everything)
                assert found == expected, (cut, name, everything, size)

    asyncio.run(main())


async def paged(ledger: Any, name: str, size: int, **more: Any) -> list[tuple[int, str, str]] | None:
    """The whole of it, the newest page first, as a reader goes through it."""
    found: list[tuple[int, str, str]] = []
    before: int | None = None
    while True:
        try:
            page = await ledger.history(name, limit=size, before=before, **more)
        except NoSuchStream:
            return None
        assert [one.text for one in page if one.message is not None] == [
            one.message.text for one in page if one.message is not None
        ]
        found = [(one.position, one.role, one.text) for one in page] + found
        if len(page) < size:
            return found
        before = page[0].position
