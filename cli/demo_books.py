"""The end of the demo: the ledger beside the platform's own record. It only counts, and believes neither of the two."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from ..adapters.text import DUPLICATE_MARKER
from ..ledger import events as e
from ..ledger.outcome import Cause
from ..ledger.store.apply import dossier_of
from ..ledger.store.history import Recorded
from ..ledger.store.store import Store
from ..projections.intents import Row
from ..projections.search import Query, search
from .demo_gateway import CONVERSATIONS, MESSAGES, text_of

TOTAL: Final = len(CONVERSATIONS) * MESSAGES


class Verdict(msgspec.Struct, frozen=True):
    """What the two books say. All but `expected`, `accepted` and `sent` should be 0."""

    expected: int
    sent: int
    """By the ledger."""
    accepted: int
    """By the platform."""
    owed: int
    lost: int
    out_of_order: int
    doubled: int
    marked: int
    """Copies that an at-least-once policy allowed, each with the visible marker. None is expected here."""
    mismatched: int
    """Receipts of the ledger that name another message than the platform's record does."""
    which: tuple[str, ...] = ()

    @property
    def good(self) -> bool:
        return not any((self.owed, self.lost, self.out_of_order, self.doubled, self.marked, self.mismatched))


def judge(store: Store, accepted: list[dict[str, Any]]) -> tuple[Verdict, list[Row]]:
    """The ledger beside the platform's own record."""
    expected = [text_of(name, number) for name in CONVERSATIONS for number in range(1, MESSAGES + 1)]
    rows = store.read_sync(search, Query(), TOTAL * 10)
    owed = [row for row in rows if row.status not in ("sent", "failed", "cancelled")]
    owed_texts = {text_in(store, row.id) for row in owed}
    plain = [entry["text"] for entry in accepted if not entry["text"].startswith(DUPLICATE_MARKER)]
    marked = [entry["text"] for entry in accepted if entry["text"].startswith(DUPLICATE_MARKER)]
    there = {text.removeprefix(DUPLICATE_MARKER) for text in [*plain, *marked]}
    lost = [text for text in expected if text not in there and text not in owed_texts]
    doubled = [text for text, times in Counter(plain).items() for _ in range(times - 1)]
    disorder = list(_out_of_order(plain))
    wrong = list(_mismatched(store, rows, accepted))
    which = [
        *(f"owed: {text}" for text in sorted(owed_texts)),
        *(f"lost: {text}" for text in lost),
        *(f"out of order: {text}" for text in disorder),
        *(f"doubled: {text}" for text in doubled),
        *(f"marked: {text}" for text in marked),
        *(f"wrong receipt: {text}" for text in wrong),
    ]
    verdict = Verdict(
        expected=len(expected),
        sent=sum(row.status == "sent" for row in rows),
        accepted=len(accepted),
        owed=len(owed),
        lost=len(lost),
        out_of_order=len(disorder),
        doubled=len(doubled),
        marked=len(marked),
        mismatched=len(wrong),
        which=tuple(which),
    )
    return verdict, rows


def _out_of_order(texts: list[str]) -> Iterator[str]:
    """Messages that appeared for the first time behind a later one of their conversation."""
    latest: dict[str, int] = {}
    for text in dict.fromkeys(texts):
        conversation, number = text.split()[0], int(text.split()[1])
        if number < latest.get(conversation, 0):
            yield text
        latest[conversation] = max(number, latest.get(conversation, 0))


def _mismatched(store: Store, rows: list[Row], accepted: list[dict[str, Any]]) -> Iterator[str]:
    """Messages that the ledger calls sent under an id that the platform does not have for that text."""
    texts = {str(entry["id"]): entry["text"].removeprefix(DUPLICATE_MARKER) for entry in accepted}
    for row in rows:
        if row.status == "sent" and texts.get(row.primary_platform_id or "") != text_in(store, row.id):
            yield f"{text_in(store, row.id)} as {row.primary_platform_id}"


def text_in(store: Store, intent: str) -> str:
    message = store.read_sync(dossier_of, intent).message
    return "" if message is None or message.body is None else message.body.text


def fate(events: list[Recorded]) -> str:
    """What happened after the worker that had started the attempt was gone."""
    lost = again = False
    for one in events:
        match one.event:
            case e.OutcomeUnknown(cause=Cause.OWNER_LOST):
                lost = True
            case e.OutcomeReconciled(verdict="sent") if lost:
                return "the platform was asked and has it, so it was not sent again"
            case e.OutcomeReconciled(verdict="not_sent") if lost:
                return "once its time was over the platform provably did not have it, so it was sent again"
            case e.AttemptStarted() if lost:
                again = True
            case _:
                pass
    if again:
        return "it was sent again without any proof"
    return "it is still in doubt" if lost else "its outcome was recorded before the kill"
