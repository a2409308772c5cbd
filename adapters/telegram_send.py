"""What goes out to a Telegram chat: how a message becomes units, and each unit one call of the Bot API.

Pure functions. Nothing here depends on the attempt, so that a copy is the same call. A file goes out with its message,
in one request; where one text fits beside one file it is the caption. What Telegram will not show in one form is
planned in another.

Source: https://core.telegram.org/bots/api, sendMessage, sendPhoto and its like, editMessageText, deleteMessage.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from ..ledger.errors import InvalidMessage
from ..ledger.message import Attachment, Body, Message, RenderedBatch, RenderedUnit, Reply
from .exchange import File, Pairs, Request
from .surface import Capabilities, SendContext, TextLimit
from .telegram_text import UTF16 as TEXT
from .telegram_text import Rich, Span, entities, moved, read, within
from .text import DUPLICATE_MARKER, ELLIPSIS, fits, mark, measure, note, render_text, shown

CAPTION: Final = TextLimit(1024, "utf16")
UNTYPED: Final = "application/octet-stream"
PHOTO_MAX_BYTES: Final = 10_000_000
"""A larger image goes out as a file."""
OWN: Final = "telegram"
"""The key of `Message.raw` whose fields are Telegram's own."""
EACH: Final = ("disable_notification", "protect_content", "link_preview_options")
"""Of those fields, what goes with every unit."""
LAST: Final = ("reply_markup",)
"""What goes with the last unit alone."""
GENERAL: Final = "1"
"""The topic that every forum has. The platform refuses it by its number and takes a message without one as its own."""

_CHAT: Final = re.compile(r"-?[1-9][0-9]{0,15}|@[A-Za-z][A-Za-z0-9_]{3,31}")
_ID: Final = re.compile(r"[1-9][0-9]{0,15}")
_PHOTOS: Final = frozenset({"image/jpeg", "image/png", "image/webp"})
_FIELDS: Final = {"image": "photo", "video": "video", "audio": "audio", "voice": "voice", "file": "document"}
_LINKED_FILES: Final = (".pdf", ".zip")
"""What Telegram fetches by itself where a file is given as a link."""


def render(message: Message, able: Capabilities, *, channel: str, edit: bool = False) -> RenderedBatch:
    """The units of a message. Raises `InvalidMessage` for what no chat, topic or message can be."""
    _check(message)
    own = _own(message)
    rich = read(message.body) if message.body is not None else Rich("")
    message = replace(message, body=Body(rich.text), attachments=tuple(map(_as_sent, message.attachments)))
    batch = render_text(message, replace(able, attachments="none") if edit else able, channel=channel)
    texts = [unit.text or "" for unit in batch.units if unit.media is None]
    spans = within(rich, texts)
    media = [unit for unit in batch.units if unit.media is not None]
    if edit and len(texts) > 1:
        raise InvalidMessage(
            f"the new text {shown(rich.text)} has {measure(rich.text, able.text)} {able.text.unit}, and an edit is one "
            f"message of at most {able.text.max}: shorten it, or send a new message"
        )
    if len(texts) == len(media) == 1 and fits(texts[0], CAPTION):
        made = [_pair(0, texts[0], spans[0], media[0].media, own, last=True)]
    else:
        whole = [(text, marks, None) for text, marks in zip(texts, spans, strict=True)]
        whole += [("", (), unit.media) for unit in media]
        made = [_pair(at, *parts, own, last=at == len(whole) - 1) for at, parts in enumerate(whole)]
    units, copies = zip(*made, strict=True)
    return RenderedBatch(units, marked=() if edit else copies)


def build(unit: RenderedUnit, context: SendContext) -> Request:
    """The one call. Raises `InvalidMessage` for an id that is none, or a change without its object."""
    if context.action == "send":
        return _sent(unit, context)
    of = context.of_platform_id
    if of is None or not _ID.fullmatch(of):
        raise InvalidMessage(f"there is no message to {context.action}: its receipt names {shown(of or 'none')}")
    fields: dict[str, Any] = {"chat_id": _chat(context.target.id), "message_id": int(of)}
    if context.action == "delete":
        return _call("deleteMessage", fields)
    caption = bool((unit.payload or {}).get("caption"))
    fields |= _words(unit, "caption" if caption else "text")
    allowed = ("reply_markup",) if caption else ("reply_markup", "link_preview_options")
    fields |= {key: value for key, value in _options(unit).items() if key in allowed}
    return _call("editMessageCaption" if caption else "editMessageText", fields)


def fallback(refused: RenderedBatch, code: str | None) -> RenderedBatch | None:
    """Another way to show all of a batch that was refused, or None.

    Plain words where the marks were, an image as a file, a link as its address, a new caption in place of a new text.
    Options stay, so that what is silent stays silent.
    """
    match code:
        case "entities":
            change = _plain
        case "photo":
            change = _as_document
        case "link":
            change = _link_named
        case "no_text":
            change = _as_caption
        case _:
            return None
    units, marked = tuple(map(change, refused.units)), tuple(map(change, refused.marked))
    too_long = any(unit.media is None and not fits(unit.text or "", TEXT) for unit in units)
    return None if units == refused.units or too_long else RenderedBatch(units, refused.atomicity, marked)


# ---- units


def _check(message: Message) -> None:
    target, relation = message.target, message.relation
    if not _CHAT.fullmatch(target.id):
        raise InvalidMessage(
            f"{shown(target.id)} is no Telegram chat: give its number, or the @name of a public group or channel"
        )
    if target.thread is not None and not _ID.fullmatch(target.thread):
        raise InvalidMessage(f"{shown(target.thread)} is no topic of a Telegram chat: give its message_thread_id")
    reply_to = relation.reply_to if isinstance(relation, Reply) else None
    if reply_to is not None and not _ID.fullmatch(reply_to):
        raise InvalidMessage(f"{shown(reply_to)} is no message of a Telegram chat: reply to its message_id")


def _own(message: Message) -> dict[str, Any]:
    """What the caller wants of Telegram alone."""
    own = (message.raw or {}).get(OWN)
    if own is None:
        return {}
    if not isinstance(own, dict):
        raise InvalidMessage(f"raw[{OWN!r}] of a message is {shown(repr(own))}: give a table of fields")
    fields = msgspec.convert(own, dict[str, Any])
    for key in fields:
        if key not in (*EACH, *LAST):
            raise InvalidMessage(f"raw[{OWN!r}] has the field {shown(key)}: there is {', '.join((*EACH, *LAST))}")
    return fields


def _as_sent(file: Attachment) -> Attachment:
    """Images that are no photos go as files, a link that Telegram would not fetch becomes a name."""
    name = _field(file)
    if file.url is not None and name == "document" and not file.url.lower().endswith(_LINKED_FILES):
        return Attachment(f"{file.name}: {file.url}", file.kind)
    return file


def _pair(
    index: int, text: str, spans: tuple[Span, ...], media: Attachment | None, own: dict[str, Any], *, last: bool
) -> tuple[RenderedUnit, RenderedUnit]:
    """A unit, and the copy of it that says so."""
    marked = mark(text, TEXT if media is None else CAPTION) if text else DUPLICATE_MARKER.strip()
    shifted = within(
        Rich(DUPLICATE_MARKER + text, moved(spans, len(DUPLICATE_MARKER))), [marked.removesuffix(ELLIPSIS)]
    )
    options = {key: own[key] for key in (*EACH, *(LAST if last else ())) if key in own}
    return (
        _unit(index, text, spans, media, options),
        _unit(index, marked, shifted[0] if marked != text else spans, media, options),
    )


def _unit(
    index: int, text: str, spans: tuple[Span, ...], media: Attachment | None, options: dict[str, Any]
) -> RenderedUnit:
    payload: dict[str, Any] = {}
    if options:
        payload["options"] = options
    if marks := entities(text, spans):
        payload["entities"] = marks
    if media is not None:
        payload["as"] = _field(media)
    kind = "text" if media is None else "voice" if media.kind == "voice" else "media"
    return RenderedUnit(index, kind, text or None, media=media, payload=payload or None)


def _field(file: Attachment) -> str:
    """As what the file is sent."""
    if file.kind != "image":
        return _FIELDS[file.kind]
    if file.media_type == "image/gif":
        return "animation"
    small = file.size is None or file.size <= PHOTO_MAX_BYTES
    return "photo" if small and (file.url is not None or file.media_type in _PHOTOS) else "document"


def _plain(unit: RenderedUnit) -> RenderedUnit:
    return _without(unit, "entities")


def _as_document(unit: RenderedUnit) -> RenderedUnit:
    payload = unit.payload or {}
    return replace(unit, payload={**payload, "as": "document"}) if payload.get("as") == "photo" else unit


def _link_named(unit: RenderedUnit) -> RenderedUnit:
    if unit.media is None or unit.media.url is None:
        return unit
    words = "\n\n".join(part for part in (unit.text or "", note(unit.media)) if part)
    return replace(_without(unit, "as"), kind="text", text=words, media=None)


def _as_caption(unit: RenderedUnit) -> RenderedUnit:
    return replace(unit, payload={**(unit.payload or {}), "caption": True}) if fits(unit.text or "", CAPTION) else unit


def _without(unit: RenderedUnit, key: str) -> RenderedUnit:
    payload = {name: value for name, value in (unit.payload or {}).items() if name != key}
    return replace(unit, payload=payload or None)


# ---- calls


def _sent(unit: RenderedUnit, context: SendContext) -> Request:
    target, options, media = context.target, _options(unit), unit.media
    fields: dict[str, Any] = {"chat_id": _chat(target.id), **options}
    if target.thread is not None and not (target.thread == GENERAL and not target.id[0].isdigit()):
        fields["message_thread_id"] = _number(target.thread, "topic")
    if context.reply_to is not None and unit.index == 0:
        reply_to = _number(context.reply_to, "message")
        fields["reply_parameters"] = {"message_id": reply_to, "allow_sending_without_reply": True}
    if media is None:
        return _call("sendMessage", fields | _words(unit, "text"))
    fields.pop("link_preview_options", None)
    fields |= _words(unit, "caption") if unit.text else {}
    name = str((unit.payload or {}).get("as") or _field(media))
    method = f"send{name.capitalize()}"
    if media.url is not None:
        return _call(method, {**fields, name: media.url})
    if not media.is_file:
        raise InvalidMessage(f"the attachment {shown(media.name)} has neither content nor a link: name it in the text")
    file = File(media.digest or "", media.size or 0, context.media)
    return Request.of_form(f"/{method}", _texts(fields), name, file, media.name, media.media_type or UNTYPED)


def _call(method: str, fields: dict[str, Any]) -> Request:
    return Request.of_json("POST", f"/{method}", fields)


def _texts(fields: dict[str, Any]) -> Pairs:
    """As a form has them: what is no text is written as JSON."""
    return tuple(
        (key, value if isinstance(value, str) else msgspec.json.encode(value, order="deterministic").decode())
        for key, value in sorted(fields.items())
    )


def _words(unit: RenderedUnit, name: str) -> dict[str, Any]:
    marks = (unit.payload or {}).get("entities")
    key = "entities" if name == "text" else "caption_entities"
    return {name: unit.text or "", **({key: marks} if marks else {})}


def _options(unit: RenderedUnit) -> dict[str, Any]:
    return dict((unit.payload or {}).get("options", {}))


def _chat(id: str) -> int | str:
    if not _CHAT.fullmatch(id):
        raise InvalidMessage(f"{shown(id)} is no Telegram chat")
    return id if id.startswith("@") else int(id)


def _number(id: str, what: str) -> int:
    if not _ID.fullmatch(id):
        raise InvalidMessage(f"{shown(id)} is no {what} of a Telegram chat: give its number")
    return int(id)
