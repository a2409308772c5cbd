"""What became of a request to a Matrix room, by reading: the look-up of sends, edits and redactions.

A message or an edit is found by its transaction id in the room's history, read backwards through our own events. The
homeserver shows that id to the device that sent it, to nobody else, and keeps it when the event is redacted. For a
delete the event is read that it names: a redaction of an unknown event is accepted, and never shown in the history.

Absence is proved only where our own events were read back to before the first attempt, every one of them names another
transaction of this device, and we are still in the room. Anything less is unresolved. Should it be wrong all the same
(a clock that was set by more than `CLOCK_MARGIN_MS` meanwhile), the resend has the same transaction id.

Source: https://spec.matrix.org/latest/client-server-api/#get_matrixclientv3roomsroomidmessages; tried on Synapse.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast
from urllib.parse import quote

import msgspec

from ..ledger.limits import LOOK_UP_REQUESTS_MAX, MINUTE_MS
from ..ledger.message import RenderedUnit
from ..ledger.outcome import NotSent, Sent, Unresolved, Verdict
from .exchange import Answer, Request
from .matrix_events import MESSAGE, receipt, text_of
from .surface import SendContext

HORIZON_S: Final = 86_400.0
"""How far back absence is claimed. Behind it a homeserver may have purged what it held."""
CLOCK_MARGIN_MS: Final = 5 * MINUTE_MS
"""How much older than the first attempt an event must be to count as sent before it, by the homeserver's clock."""
PAGE_EVENTS_FIRST: Final = 8
PAGE_EVENTS_MAX: Final = 64
"""Events of a page: few at first, for each may have 64 KB twice and a longer answer is not read; then doubled."""
IDS_MAX: Final = 50
"""How many of the ids that were looked at are kept as evidence."""


def look_up(context: SendContext, user_id: str) -> Request:
    """The first request of a look-up."""
    if context.action == "delete":
        return Request("GET", f"{room_path(context)}/event/{quote(context.of_platform_id or '', safe='')}")
    return _page(context, user_id, 0, None)


def judge(unit: RenderedUnit, context: SendContext, user_id: str, answers: Sequence[Answer]) -> Verdict | Request:
    """What all answers so far come to: the verdict, or the next request."""
    if context.action == "delete":
        return _redaction(unit, context, answers[-1])
    read = _Read(context, user_id)
    for answer in answers:
        if not read.take(answer):
            return Unresolved(answer.excerpt(), evidence={**read.evidence(), "status": answer.status})
    if read.found is not None:
        return Sent(receipt(unit, context, read.found), read.evidence())
    if read.ended is None:
        if read.pages >= LOOK_UP_REQUESTS_MAX - 1:
            return Unresolved("too many events of ours since the first attempt", evidence=read.evidence())
        return _page(context, user_id, read.pages, read.token)
    doubt = read.doubt(answers[0])
    if doubt is not None:
        return Unresolved(doubt, evidence=read.evidence())
    if read.membership is None:
        return Request("GET", f"{room_path(context)}/state/m.room.member/{quote(user_id, safe='')}")
    if read.membership != "join":
        return Unresolved("not in the room any more, so its history may be hidden", evidence=read.evidence())
    return NotSent(read.evidence())


def room_path(context: SendContext) -> str:
    return f"/_matrix/client/v3/rooms/{quote(context.target.id, safe='')}"


def _page(context: SendContext, user_id: str, page: int, token: str | None) -> Request:
    """Our own messages, newest first."""
    wanted = msgspec.json.encode({"senders": [user_id], "types": [MESSAGE]}).decode()
    limit = min(PAGE_EVENTS_FIRST << page, PAGE_EVENTS_MAX)
    query = (("dir", "b"), ("limit", str(limit)), ("filter", wanted))
    return Request("GET", f"{room_path(context)}/messages", query if token is None else (*query, ("from", token)))


def _redaction(unit: RenderedUnit, context: SendContext, answer: Answer) -> Verdict:
    """The event that was to go. Whoever redacted it, it is gone; unredacted it shows that no redaction arrived."""
    event = answer.json() or {}
    if answer.status != 200 or event.get("event_id") != context.of_platform_id:
        return Unresolved(answer.excerpt(), evidence={"status": answer.status})
    because = _object(_object(event.get("unsigned")).get("redacted_because"))
    by = text_of(because, "event_id")
    if by is None:
        return NotSent({"ids": [event["event_id"]]})
    ours = _object(because.get("unsigned")).get("transaction_id") == context.provider_key
    return Sent(receipt(unit, context, by), {"ids": [event["event_id"], by], "ours": ours})


@dataclass
class _Read:
    """The pages so far, folded."""

    context: SendContext
    user_id: str
    pages: int = 0
    token: str | None = None
    found: str | None = None
    ended: str | None = None
    """Why it need not be read any further back."""
    membership: str | None = None
    ids: list[str] = field(default_factory=list[str])
    nameless: list[str] = field(default_factory=list[str])
    """Events of ours whose transaction this device is not shown."""
    oldest: int | None = None
    newest: int | None = None

    def take(self, answer: Answer) -> bool:
        """Whether it could be read."""
        body = answer.json() or {}
        if answer.status != 200:
            return False
        if self.ended is not None:
            self.membership = text_of(body, "membership")
            return self.membership is not None
        chunk: object = body.get("chunk")
        if not isinstance(chunk, list):
            return False
        self.pages += 1
        before = self._before(answer)
        for event in map(_object, cast("list[object]", chunk)):
            self._event(event, before)
        self.token = text_of(body, "end")
        if self.ended is None and self.token is None:
            self.ended = "start"
        return True

    def doubt(self, first: Answer) -> str | None:
        """Why what was not found may be there all the same."""
        began, at = self.context.first_attempt_at, first.at
        if self.nameless:
            return f"{len(self.nameless)} events of ours there are of another device, one of them may be it"
        if began is not None and (at is None or not began <= at * 1000 <= began + HORIZON_S * 1000):
            return f"the first attempt is more than {HORIZON_S:g} s ago, or the clock was set back"
        return None

    def evidence(self) -> dict[str, Any]:
        """Times of the homeserver, in UTC milliseconds; `until`: before, earlier or start, where all was read."""
        return {
            "from": self.oldest,
            "to": self.newest,
            "pages": self.pages,
            "until": self.ended,
            "ids": self.ids[:IDS_MAX],
        }

    def _event(self, event: dict[str, Any], before: int | None) -> None:
        id, ts = text_of(event, "event_id"), event.get("origin_server_ts")
        if id is None or event.get("sender") != self.user_id or event.get("type") != MESSAGE:
            return
        if isinstance(ts, int):
            self.oldest = ts if self.oldest is None else min(self.oldest, ts)
            self.newest = ts if self.newest is None else max(self.newest, ts)
        transaction = _object(event.get("unsigned")).get("transaction_id")
        if transaction == self.context.provider_key:
            self.found = id
        if self.ended is None:
            if id in self._earlier():
                self.ended = "earlier"
            elif before is not None and isinstance(ts, int) and ts < before:
                self.ended = "before"
            else:
                self.ids.append(id)
                if transaction is None:
                    self.nameless.append(id)

    def _earlier(self) -> set[str | None]:
        """What certainly stood before the first attempt: earlier units, and the message that is edited."""
        return {self.context.of_platform_id, *(part.platform_id for part in self.context.receipts)} - {None}

    def _before(self, answer: Answer) -> int | None:
        """The homeserver's time before which an event is older than the first attempt; None where it cannot be told."""
        began, ahead_s = self.context.first_attempt_at, answer.clock_ahead_s()
        return None if began is None or ahead_s is None else int(began + ahead_s * 1000) - CLOCK_MARGIN_MS


def _object(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
