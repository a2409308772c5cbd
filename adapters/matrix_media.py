"""Files in Matrix rooms: the upload, which shows nothing, and the event that shows it.

Pure functions. Each upload gets another content URI, so the URI is no part of what a request is digested as: there the
file stands by its keyed digest. An upload that no event names is the homeserver's to forget.

Source: https://spec.matrix.org/latest/client-server-api/#content-repository, and m.image, m.file, m.audio, m.video.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Final

from msgspec.structs import replace

from ..ledger.message import Attachment, Message, RenderedUnit
from .exchange import Answer, File, Request
from .surface import SendContext

UPLOADING: Final = Request("POST", "/_matrix/media/v3/upload")
LIMITS: Final = (
    Request("GET", "/_matrix/client/v1/media/config"),
    Request("GET", "/_matrix/media/v3/config"),
)
"""Where a homeserver says how much it takes: since version 1.11 of the specification, and before."""
UNTYPED: Final = "application/octet-stream"
MSGTYPES: Final = {"image": "m.image", "video": "m.video", "audio": "m.audio", "voice": "m.audio", "file": "m.file"}
VOICE: Final = "org.matrix.msc3245.voice"
"""What makes clients show an audio file as a voice message; not in the specification yet."""


def upload(unit: RenderedUnit, context: SendContext) -> Request | None:
    """The request that uploads the unit's file; None where it has none."""
    media = unit.media
    if media is None or not media.is_file or context.action != "send":
        return None
    headers = (("content-type", media.media_type or UNTYPED),)
    file = File(media.digest or "", media.size or 0, context.media)
    return dataclasses.replace(UPLOADING, query=(("filename", media.name),), headers=headers, file=file)


def uploaded(unit: RenderedUnit, answer: Answer) -> RenderedUnit | None:
    """The unit with the address of its upload; None where the answer names none."""
    uri = (answer.json() or {}).get("content_uri")
    if answer.status != 200 or not isinstance(uri, str) or not uri.startswith("mxc://"):
        return None
    return replace(unit, payload={**(unit.payload or {}), "uri": uri})


def media_content(unit: RenderedUnit, media: Attachment) -> dict[str, Any]:
    """The event of a file. A text of the unit, as the marker of a copy is, becomes its caption."""
    content: dict[str, Any] = {
        "msgtype": MSGTYPES[media.kind],
        "body": unit.text or media.name,
        "filename": media.name,
        "info": {"mimetype": media.media_type or UNTYPED, "size": media.size or 0},
        "url": (unit.payload or {}).get("uri", f"digest:{media.digest}"),
    }
    if media.kind == "voice":
        content[VOICE] = {}
    return content


def links_named(message: Message) -> Message:
    """The message with its links as mere names: a room shows what its homeserver holds, and nothing from elsewhere."""
    if all(file.url is None for file in message.attachments):
        return message
    named = [
        file if file.url is None else Attachment(f"{file.name}: {file.url}", file.kind) for file in message.attachments
    ]
    return replace(message, attachments=tuple(named))


def largest_bytes(answer: Answer) -> int | None:
    """The largest upload, where the answer says it."""
    size = (answer.json() or {}).get("m.upload.size")
    return size if answer.status == 200 and isinstance(size, int) and not isinstance(size, bool) and size > 0 else None
