"""What comes in from Matrix: `/sync`, with the gaps of its timelines read from the rooms' history. Sans-I/O.

The first sync says where the present is, and nothing before it is ever handed over; from there on nothing is left out.
Each event is handed over with its room and whether that is a direct chat. Of a room that we just joined, what was said
before counts as history.

Source: https://spec.matrix.org/latest/client-server-api/#syncing; tried on Synapse 1.163.2.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast
from urllib.parse import quote

import msgspec

from ..ledger.inbound_events import AckPolicy
from ..ledger.limits import ERROR_TEXT_MAX_CHARS, PLACES_REMEMBERED, POLL_REQUESTS_MAX
from ..ledger.outcome import FailureClass, Rejected, Unknown
from .exchange import Answer, Request, retry_after_s, without_class
from .matrix_events import text_of
from .matrix_incoming import GAP, INVITE, MatrixIncoming
from .receiving import Arrival, Polled

Json = dict[str, Any]
Said = Polled | Rejected | Unknown

TIMELINE_EVENTS: Final = 50
"""How many events of a room one answer has; what is between them and the last answer is asked for by itself."""
PAGE_EVENTS: Final = 100
MEMBER: Final = "m.room.member"
TYPES: Final = ("m.room.message", "m.room.encrypted", "m.room.redaction", MEMBER)
_FAILURES: Final = {
    401: FailureClass.AUTH,
    403: FailureClass.PERMISSION,
    429: FailureClass.RATE_LIMIT,
}


@dataclass(slots=True)
class _Room:
    """What one answer says of one room that we are in."""

    id: str
    events: list[Json]
    limited: bool
    before: str | None
    joined: bool
    """We came in since the last answer."""
    members: int | None
    came_and_went: bool
    lost: bool = field(default=False)


class MatrixSync(MatrixIncoming):
    """The polling side of `MatrixAdapter`."""

    ack_policy: AckPolicy = "after_record"
    poll_acknowledges: bool = False
    user_id: str
    _direct: frozenset[str] | None = None
    """The rooms that our account calls direct; None: not asked yet."""
    _members: dict[str, int]
    """How many are in a room, where that is known."""

    def poll(self, cursor: str | None, wait_s: float) -> Request:
        wait_ms = "0" if cursor is None else str(int(wait_s * 1000))
        query = [("filter", _filter(self.user_id, 1 if cursor is None else TIMELINE_EVENTS)), ("timeout", wait_ms)]
        query += [("set_presence", "offline")] + ([] if cursor is None else [("since", cursor)])
        return Request("GET", "/_matrix/client/v3/sync", tuple(query))

    def parse_poll(self, cursor: str | None, answer: Answer) -> Said | Request:
        return self.parse_more(cursor, [answer])

    def parse_more(self, cursor: str | None, answers: Sequence[Answer]) -> Said | Request:
        """What all answers so far come to. Nothing is taken note of before the last."""
        steps = self._steps(cursor)
        try:
            found = next(steps)
            for answer in answers:
                assert found is None or isinstance(found, Request)
                found = steps.send(answer)
        except StopIteration as end:
            return cast("Said", end.value)
        assert found is not None
        return found

    def _steps(self, cursor: str | None) -> Generator[Request | None, Answer, Said]:
        answer = yield None
        said = answer.json()
        token = None if said is None else text_of(said, "next_batch")
        if answer.status != 200 or said is None or token is None:
            return _refused(answer)
        direct, members = self._direct, dict(self._members)
        for event in _objects(_inner(said, "account_data").get("events")):
            direct = _direct_rooms(event.get("content")) if event.get("type") == "m.direct" else direct
        if direct is None:
            answer = yield Request(
                "GET", f"/_matrix/client/v3/user/{quote(self.user_id, safe='')}/account_data/m.direct"
            )
            if answer.status not in (200, 404):
                return _refused(answer)
            direct = _direct_rooms(answer.json()) if answer.status == 200 else frozenset[str]()
        arrivals: list[Arrival] = []
        if cursor is not None:
            rooms = _inner(said, "rooms")
            for room_id, invite in _inner(rooms, "invite").items():
                arrivals.append(Arrival({"type": INVITE, "room_id": room_id, "state": invite}))
            for room_id, told in _inner(rooms, "join").items():
                room = _room(room_id, told, self.user_id)
                if room.limited:
                    refused = yield from self._fill(room, cursor)
                    if refused is not None:
                        return refused
                talked = [event for event in room.events if event.get("type") != MEMBER]
                if room.came_and_went or room.members is not None:
                    members.pop(room_id, None)
                if room.members is not None:
                    members[room_id] = room.members
                if talked and room_id not in direct and room_id not in members:
                    answer = yield Request("GET", f"/_matrix/client/v3/rooms/{quote(room_id, safe='')}/joined_members")
                    if answer.status == 200:
                        members[room_id] = len(_inner(answer.json() or {}, "joined"))
                    elif answer.status not in (403, 404):
                        return _refused(answer)
                private = room_id in direct or members.get(room_id, 0) == 2
                if room.lost:
                    arrivals.append(Arrival({"type": GAP, "room_id": room_id, "since": cursor}))
                arrivals += [Arrival({**event, "room_id": room_id, "direct": private}) for event in talked]
        while len(members) > PLACES_REMEMBERED:
            del members[next(iter(members))]
        self._direct, self._members = direct, members
        return Polled(tuple(arrivals), token)

    def _fill(self, room: _Room, since: str) -> Generator[Request, Answer, Rejected | Unknown | None]:
        """What was said between the last answer and the start of this one's timeline, put before it."""
        before, pages = room.before, 0
        while before is not None:
            if pages == POLL_REQUESTS_MAX:
                room.lost = True
                return None
            pages += 1
            query = [("dir", "b"), ("from", before), ("limit", str(PAGE_EVENTS))]
            query += [("filter", _json({"types": TYPES}))] + ([] if room.joined else [("to", since)])
            path = f"/_matrix/client/v3/rooms/{quote(room.id, safe='')}/messages"
            answer = yield Request("GET", path, tuple(query))
            said = answer.json()
            if answer.status in (403, 404):
                return None  # we are not in it any more
            if answer.status != 200 or said is None:
                return _refused(answer)
            chunk = _objects(said.get("chunk"))
            ours = [index for index, event in enumerate(chunk) if _joins(event, self.user_id)]
            room.events[:0] = reversed(chunk[: ours[0]] if ours else chunk)
            end = text_of(said, "end")
            before = None if ours or not chunk or end == before else end
        return None


def _room(room_id: str, told: object, user_id: str) -> _Room:
    found = cast("Json", told) if isinstance(told, dict) else {}
    timeline = _inner(found, "timeline")
    events = _objects(timeline.get("events"))
    ours = [index for index, event in enumerate(events) if _joins(event, user_id)]
    state = _objects(_inner(found, "state").get("events"))
    count = _inner(found, "summary").get("m.joined_member_count")
    return _Room(
        room_id,
        events[ours[-1] + 1 :] if ours else events,
        timeline.get("limited") is True and not ours,
        text_of(timeline, "prev_batch"),
        bool(ours) or any(_joins(event, user_id) for event in state),
        count if isinstance(count, int) and not isinstance(count, bool) else None,
        any(event.get("type") == MEMBER for event in (*events, *state)),
    )


def _joins(event: Json, user_id: str) -> bool:
    """Whether we came into the room with it; a new name of ours is no coming in."""
    if event.get("type") != MEMBER or event.get("state_key") != user_id:
        return False
    unsigned = _inner(event, "unsigned")
    earlier = _inner(unsigned, "prev_content") or _inner(event, "prev_content")
    return _inner(event, "content").get("membership") == "join" and earlier.get("membership") != "join"


def _direct_rooms(content: object) -> frozenset[str]:
    """Of `m.direct`: from users to their rooms."""
    lists = cast("Json", content).values() if isinstance(content, dict) else ()
    rooms = [cast("list[Any]", one) for one in lists if isinstance(one, list)]
    return frozenset(room for one in rooms for room in one if isinstance(room, str))


def _filter(user_id: str, limit: int) -> str:
    nothing = {"not_types": ["*"]}
    state = {"types": [MEMBER], "senders": [user_id]}
    room = {"timeline": {"types": TYPES, "limit": limit}, "state": state, "ephemeral": nothing, "account_data": nothing}
    return _json({"presence": nothing, "account_data": {"types": ["m.direct"]}, "room": room})


def _json(value: Json) -> str:
    return msgspec.json.encode(value).decode()


def _inner(value: Json, name: str) -> Json:
    found = value.get(name)
    return cast("Json", found) if isinstance(found, dict) else {}


def _objects(value: object) -> list[Json]:
    if not isinstance(value, list):
        return []
    return [cast("Json", one) for one in cast("list[Any]", value) if isinstance(one, dict)]


def _refused(answer: Answer) -> Rejected | Unknown:
    """A refusal counts only with an `errcode`, as elsewhere."""
    code = text_of(answer.json() or {}, "errcode")
    failure = _FAILURES.get(answer.status, FailureClass.INVALID_PAYLOAD if 400 <= answer.status < 500 else None)
    if code is None or failure is None:
        return without_class(answer)
    return Rejected(
        failure, code=code[:ERROR_TEXT_MAX_CHARS], status=answer.status, retry_after_s=retry_after_s(answer)
    )
