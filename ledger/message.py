"""The values that a gateway hands over and gets back: messages, targets, relations, origins, batches, receipts.

All are frozen and JSON-shaped, so that what was recorded can be read back unchanged (msgspec does both). They
know no platform and make no decision.
"""

from __future__ import annotations

from enum import StrEnum
from mimetypes import guess_type
from pathlib import PurePath
from typing import Any, ClassVar, Final, Literal, Protocol, overload

import msgspec

from .origin import NO_ORIGIN, Origin

TargetKind = Literal["direct", "group", "channel", "thread"]
Direction = Literal["inbound", "outbound"]
Format = Literal["plain", "markdown", "html"]
UnitKind = Literal["text", "media", "voice", "card", "preview", "unknown"]
Atomicity = Literal["all_or_retry_remaining", "best_effort_parts"]
MediaKind = Literal["image", "audio", "video", "voice", "file"]


class Value(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Base of the values here: immutable, comparable, and without its defaults in JSON."""


class Target(Value, frozen=True, gc=False):
    """Where a message goes. Only `channel`, `id`, `space` and `thread` are identity; `label` is for people."""

    kind: TargetKind
    channel: str
    id: str
    space: str | None = None
    """Workspace, guild or tenant that the id belongs to."""
    parent: str | None = None
    thread: str | None = None
    label: str | None = None
    native_channel: str | None = None
    replayable: bool = True
    """False: only the callback that came with an event reaches it (a reply token, a command's private answer). Nothing
    else is ever sent there, and nothing that was meant for it is sent elsewhere."""

    @classmethod
    def direct(cls, channel: str, id: str, **more: Any) -> Target:
        return cls("direct", channel, id, **more)

    @classmethod
    def group(cls, channel: str, id: str, **more: Any) -> Target:
        return cls("group", channel, id, **more)

    @classmethod
    def room(cls, channel: str, id: str, **more: Any) -> Target:
        """A target of kind `channel`, the platform's public room."""
        return cls("channel", channel, id, **more)

    @classmethod
    def in_thread(cls, channel: str, id: str, thread: str, **more: Any) -> Target:
        return cls("thread", channel, id, thread=thread, **more)


class SystemReason(StrEnum):
    """Why the system itself speaks. A heartbeat is `cron`."""

    APPROVAL = "approval"
    TASK = "task"
    HOOK = "hook"
    CRON = "cron"
    SUBAGENT = "subagent"
    MESSAGE_TOOL = "message_tool"
    CLI = "cli"
    CONTROL_UI = "control_ui"
    AUTOMATION = "automation"
    ERROR = "error"


class Reply(Value, frozen=True, gc=False, tag="reply", tag_field="kind"):
    """An answer to an inbound message. `reply_to` is the platform id of what is quoted or answered."""

    inbound: str | None = None
    reply_to: str | None = None
    thread: str | None = None
    quote: str | None = None


class Followup(Value, frozen=True, gc=False, tag="followup", tag_field="kind"):
    """A later message of a conversation that no inbound message asks for."""

    session: str | None = None
    previous: str | None = None


class Broadcast(Value, frozen=True, gc=False, tag="broadcast", tag_field="kind"):
    """One message for many; nobody asked for it."""

    reason: str | None = None


class System(Value, frozen=True, gc=False, tag="system", tag_field="kind"):
    """The system's own word: an approval, a task's end, a cron job."""

    reason: SystemReason


Relation = Reply | Followup | Broadcast | System


NO_RELATION: Final = Followup()
"""The default, as one object: what is that very object is left out of the JSON."""


class Body(Value, frozen=True, gc=False):
    text: str
    format: Format = "plain"


class Attachment(Value, frozen=True, gc=False):
    """A file that goes with a message, from one source: `of_file`, `of_bytes`, or a `url`, which is passed on as it is.

    Of a file of ours a copy is kept from before the message is recorded until it has ended, and that copy is sent. What
    a channel cannot take along is named in the text.
    """

    name: str
    kind: MediaKind = "file"
    url: str | None = None
    media_type: str | None = None
    size: int | None = None
    """Bytes."""
    digest: str | None = None
    """Of a file of ours, once a copy of it is kept: its keyed digest, which the copy is found by."""
    path: str | None = None
    """Where the file is read from. Recorded only where it may not be copied."""
    data: bytes | None = None
    """The content itself. Never recorded."""
    may_copy: bool = True
    """False: no copy is kept, and the file is read from `path` when it is sent. Not for `required` messages."""

    @classmethod
    def of_file(
        cls,
        path: str | PurePath,
        *,
        name: str | None = None,
        kind: MediaKind | None = None,
        media_type: str | None = None,
        may_copy: bool = True,
    ) -> Attachment:
        """The file at `path`, as it is when the message is handed over. Type and kind are guessed from its name."""
        called = PurePath(path).name if name is None else name
        type_ = media_type or _guessed(called) or _guessed(PurePath(path).name)
        return cls(called, kind or _kind(type_), media_type=type_, path=str(path), may_copy=may_copy)

    @classmethod
    def of_bytes(
        cls, name: str, data: bytes, *, kind: MediaKind | None = None, media_type: str | None = None
    ) -> Attachment:
        """Content that is in no file."""
        type_ = media_type or _guessed(name)
        return cls(name, kind or _kind(type_), media_type=type_, data=data)

    @property
    def is_file(self) -> bool:
        """Whether it is a file of ours, and not a link or a mere name."""
        return self.url is None and not (self.path is None and self.data is None and self.digest is None)


def _guessed(name: str) -> str | None:
    return guess_type(name, strict=False)[0]


def _kind(media_type: str | None) -> MediaKind:
    match (media_type or "").partition("/")[0]:
        case "image" | "audio" | "video" as kind:
            return kind
        case _:
            return "file"


class _Text:
    """`Message.text(...)` makes the usual message; `message.text` is what it says."""

    @overload
    def __get__(self, message: None, owner: type[Message]) -> _MakesText: ...
    @overload
    def __get__(self, message: Message, owner: type[Message]) -> str: ...
    def __get__(self, message: Message | None, owner: type[Message]) -> _MakesText | str:
        if message is None:
            return _text_message
        return "" if message.body is None else message.body.text


class Message(Value, frozen=True, gc=False):
    """What should become visible, or what became visible to us."""

    target: Target
    body: Body | None = None
    attachments: tuple[Attachment, ...] = ()
    relation: Relation = NO_RELATION
    origin: Origin = NO_ORIGIN
    direction: Direction = "outbound"
    account: str | None = None
    id: str | None = None
    sender: str | None = None
    timestamp: int | None = None
    """UTC milliseconds on the platform's clock."""
    raw: dict[str, Any] | None = None

    text: ClassVar[_Text] = _Text()
    """Of the class: `text(words, to=target, ...)`, the usual outbound message. Of a message: the words, "" without."""


class _MakesText(Protocol):
    def __call__(
        self,
        text: str,
        *,
        to: Target,
        relation: Relation | None = None,
        format: Format = "plain",
        origin: Origin | None = None,
        account: str | None = None,
        attachments: tuple[Attachment, ...] = (),
    ) -> Message: ...


def _text_message(
    text: str,
    *,
    to: Target,
    relation: Relation | None = None,
    format: Format = "plain",
    origin: Origin | None = None,
    account: str | None = None,
    attachments: tuple[Attachment, ...] = (),
) -> Message:
    """The usual outbound message: a text for one target."""
    return Message(
        target=to,
        body=Body(text, format),
        attachments=attachments,
        relation=relation if relation is not None else NO_RELATION,
        origin=origin if origin is not None else NO_ORIGIN,
        account=account,
    )


def said_by(message: Message) -> Origin:
    """The origin that goes out with it. Where nothing is said of it, the system's own word is no input to bots."""
    unsaid = message.origin == NO_ORIGIN and isinstance(message.relation, System)
    return Origin.system() if unsaid else message.origin


class RenderedUnit(Value, frozen=True, gc=False):
    """One visible message of the platform, as it will be sent, so that a recovery needs no second rendering."""

    index: int
    kind: UnitKind = "text"
    text: str | None = None
    format: Format = "plain"
    media: Attachment | None = None
    payload: dict[str, Any] | None = None
    """What a channel needs beyond text and media, in its own words."""
    required: bool = True


class RenderedBatch(Value, frozen=True, gc=False):
    """Everything that one intent makes visible, in order. `marked` are the units with the duplicate marker."""

    units: tuple[RenderedUnit, ...]
    atomicity: Atomicity = "all_or_retry_remaining"
    marked: tuple[RenderedUnit, ...] = ()


class ReceiptPart(Value, frozen=True, gc=False):
    """One message that the platform holds now. Without `platform_id` the platform gives none on this channel."""

    index: int
    platform_id: str | None = None
    kind: UnitKind = "text"
    thread: str | None = None
    reply_to: str | None = None
    edit_token: str | None = None
    delete_token: str | None = None
    url: str | None = None


class Receipt(Value, frozen=True, gc=False):
    """What the platform took: every id of every part, one of them the primary for threading and editing."""

    NO_IDENTITY: ClassVar[str] = "none"

    parts: tuple[ReceiptPart, ...]
    primary_platform_id: str | None = None
    sent_at: int | None = None
    """UTC milliseconds: the platform's own time where it gives one, else ours."""
    thread: str | None = None
    reply_to: str | None = None
    duplicates: int = 0
    """Copies that went out under an at-least-once policy, each with the visible marker."""

    @property
    def platform_ids(self) -> tuple[str, ...]:
        return tuple(part.platform_id for part in self.parts if part.platform_id is not None)

    @property
    def identity(self) -> str:
        """`platform`, or `none` where the channel gives no ids."""
        return "platform" if self.primary_platform_id is not None else self.NO_IDENTITY
