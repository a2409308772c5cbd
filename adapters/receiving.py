"""The receiving side of a channel: what a platform's event says, how it is verified and polled for. Sans-I/O.

An adapter translates. It drops nothing, remembers nothing and acknowledges nothing: whether an event is a repetition,
an echo or a stranger's, and when the platform may be told that we have it, are decided by the core.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import msgspec

from ..ledger.inbound_events import AckPolicy
from ..ledger.message import Message, Value
from ..ledger.outcome import Rejected, Unknown
from ..ledger.source import SessionSource
from .exchange import Answer, Request

Event = Mapping[str, Any]
"""One event of the platform, as its JSON was decoded."""


class Incoming(Value, frozen=True, gc=False, kw_only=True):
    """An event in our words. `message.direction` is `inbound`, `message.id` the platform's id of the message."""

    message: Message
    source: SessionSource
    own: bool = False
    """The platform says that our own account wrote it."""
    addressed: bool = True
    """False: a message of a room that does not speak to us."""
    label: str | None = None
    """What we gave a message of ours when we sent it, where the platform gives it back (a transaction id, a nonce)."""


class Ignored(Value, frozen=True, gc=False):
    """An event that starts no turn on this channel, and what it is: an edit, a reaction, somebody who joined."""

    what: str


class Refused(Exception):
    """A request to a webhook that is not the platform's, or not readable. `status` is answered, `detail` is for the
    log alone."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail


class Response(Value, frozen=True, gc=False):
    """What a webhook answers at once, where the platform asks a question of its own: a challenge."""

    status: int = 200
    body: bytes = b""
    content_type: str = "text/plain; charset=utf-8"


class Arrival(Value, frozen=True, gc=False):
    """An event as it came by polling. `cursor`: where the platform may forget, once this and all before are done; None
    where only a later one says."""

    event: Event
    cursor: str | None = None


class Polled(Value, frozen=True, gc=False):
    """What one poll brought. `cursor`: where the platform may forget, once all of it is done."""

    arrivals: tuple[Arrival, ...] = ()
    cursor: str | None = None


class Frame(Value, frozen=True, gc=False):
    """What one message of a socket brought, and what is to be answered at once (a heartbeat)."""

    arrivals: tuple[Arrival, ...] = ()
    send: tuple[str, ...] = ()


@runtime_checkable
class Receives(Protocol):
    """What every channel has that receives."""

    @property
    def ack_policy(self) -> AckPolicy:
        """The policy where the gateway says nothing."""
        ...

    def dedupe_key(self, event: Event) -> str:
        """What the platform repeats when it delivers the event again, and never otherwise. Raises `ValueError`."""
        ...

    def normalize(self, event: Event) -> Incoming | Ignored:
        """Raises `ValueError` for an event that is not of the platform's form."""
        ...


@runtime_checkable
class Hooked(Protocol):
    """What a channel has that receives by webhook; beside, `content_types` where its bodies are not JSON."""

    def verify(self, headers: Mapping[str, str], body: bytes, at: int) -> None:
        """Raise `Refused` for a request that is not the platform's. `headers` in lower case, `at` in UTC ms."""
        ...

    def unpack(self, headers: Mapping[str, str], body: bytes) -> Sequence[Event] | Response:
        """The events of a verified body. Raises `Refused(400)` where it is not readable."""
        ...


@runtime_checkable
class Polls(Protocol):
    """What a channel has that receives by long polling."""

    @property
    def poll_acknowledges(self) -> bool:
        """Whether asking beyond an event tells the platform that we have it: then nothing is asked for beyond what is
        done."""
        ...

    def poll(self, cursor: str | None, wait_s: float) -> Request:
        """The request for what is behind the cursor (None: from where the platform has us), waiting up to `wait_s`."""
        ...

    def parse_poll(self, cursor: str | None, answer: Answer) -> Polled | Rejected | Unknown | Request:
        """What it brought; or the next request of the same poll, where the adapter has `parse_more`."""
        ...


@runtime_checkable
class ReadsOn(Protocol):
    """What a channel has one of whose polls may take several requests."""

    def parse_more(self, cursor: str | None, answers: Sequence[Answer]) -> Polled | Rejected | Unknown | Request:
        """What all answers of the poll so far come to, the newest last."""
        ...


@runtime_checkable
class Streams(Protocol):
    """What a channel has that receives over a WebSocket."""

    def connect(self, cursor: str | None) -> Request:
        """Target and headers of the socket; the driver adds the credential."""
        ...

    def opened(self, cursor: str | None) -> tuple[str, ...]:
        """What to send once it is open."""
        ...

    def frame(self, text: str) -> Frame: ...

    def acknowledge(self, arrival: Arrival) -> str | None:
        """What to send once the event may be acknowledged, where the socket has such a word."""
        ...


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """What became of an event that was handed over. `done` comes when the policy's point is durable; it may be waited
    for more than once, and raises where that point is not reached while the gateway is open."""

    inbound: str | None
    """Its stream."""
    repeated: bool = False
    reached: bool = False
    """Whether that point is durable already."""
    done: Awaitable[None]


class Intake(Protocol):
    """What the core gives a driver: the one way in, and the cursor.

    When `take` has returned, the event is durable or was before, except under `immediate`; it raises a
    `StoreUnavailable` where it could not be recorded: then nothing may be acknowledged.
    """

    @property
    def policy(self) -> AckPolicy: ...
    async def take(self, event: Event) -> Taken: ...
    async def cursor(self) -> str | None: ...
    async def advance(self, cursor: str) -> None:
        """Everything before it is done, durably."""
        ...


@runtime_checkable
class Receiver(Protocol):
    """A channel that fetches what there is by itself: by polling, or over a socket."""

    async def receive(self, intake: Intake) -> None:
        """Hand everything over, until cancelled. It survives whatever the platform and the ledger do."""
        ...
