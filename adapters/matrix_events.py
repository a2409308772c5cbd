"""What goes out to a Matrix room: the content of events, what they relate to, and how much fits into one.

Pure functions of the message and the unit. Nothing here may depend on the attempt, so that a resend is the same event;
and nothing may be rendered that the homeserver would refuse for its size.

Source: https://spec.matrix.org/latest/client-server-api/, Size limits, Event replacements, Rich replies, Threading.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import escape, unescape
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from ..ledger.errors import InvalidMessage
from ..ledger.message import Body, Message, ReceiptPart, RenderedBatch, RenderedUnit
from ..ledger.outcome import Accepted
from .matrix_media import links_named, media_content
from .surface import Capabilities, SendContext
from .text import DUPLICATE_MARKER, render_text, shown

EVENT_MAX_BYTES: Final = 65_536
"""The longest whole event, as canonical JSON, with all that the homeserver adds."""
ENVELOPE_BYTES: Final = 5_000
"""Left free of it for sender, room, hashes, signature, up to 20 previous events, and a reply in a thread."""
CONTENT_MAX_BYTES: Final = EVENT_MAX_BYTES - ENVELOPE_BYTES
TEXT_MAX_BYTES: Final = 60_000
ID_MAX_BYTES: Final = 255
SHRINKING: Final = (1, 2, 4, 8)
"""Parts of the text limit, tried until each event fits, as the last always does: JSON writes a character in at most six
times its bytes."""

MESSAGE: Final = "m.room.message"
HTML: Final = "org.matrix.custom.html"

_TAG: Final = re.compile(r"<(?P<closing>/?)(?P<name>[A-Za-z][A-Za-z0-9]*+)(?P<rest>[^<>]*+)>|<!--[^<>]*+>")
_HREF: Final = re.compile(r"""\shref\s*+=\s*+(?:"([^"]*+)"|'([^']*+)')""", re.IGNORECASE)
_BLOCKS: Final = "p div blockquote pre ul ol table tr h1 h2 h3 h4 h5 h6 hr"
_LINES: Final = {(name, closing): "\n" for name in _BLOCKS.split() for closing in (False, True)} | {
    ("p", False): "\n\n",
    ("p", True): "\n\n",
    ("br", False): "\n",
    ("li", False): "\n- ",
}
"""What an opening or a closing tag comes to in plain text."""


def render(message: Message, able: Capabilities, *, channel: str, edit: bool = False) -> RenderedBatch:
    """Events that fit, measured as they will be encoded. Raises `InvalidMessage` for a target that is no room.

    An edit is one event that carries its text twice. It has no marked copy: the same edit twice shows nothing twice.
    """
    room = message.target.id
    if not room.startswith("!") or len(room.encode()) > ID_MAX_BYTES:
        raise InvalidMessage(
            f"{shown(room)} is no Matrix room: give the room id, which starts with !, also of a direct chat"
        )
    message = links_named(message)
    body = message.body
    if body is None or body.format != "html":
        batch = _render(message, able, channel)
    else:
        plain = plain_text(body.text)
        batch = _render(replace(message, body=Body(plain)), able, channel)
        batch = _with_html(batch, plain, body.text, edit=edit) or batch
    return _one_edit(batch) if edit else batch


def message_content(unit: RenderedUnit) -> dict[str, Any]:
    """What the event says, apart from what it relates to. The place for each kind of unit."""
    if unit.media is not None:
        return media_content(unit, unit.media)
    content: dict[str, Any] = {"msgtype": "m.text", "body": unit.text or ""}
    if unit.payload is not None and "formatted_body" in unit.payload:
        content |= {"format": HTML, "formatted_body": unit.payload["formatted_body"]}
    return content


def sent_content(unit: RenderedUnit, context: SendContext) -> dict[str, Any]:
    """A new message. Its first event names what it answers, each of them the thread that it stands in."""
    content = message_content(unit)
    reply_to = context.reply_to if unit.index == 0 else None
    if relates_to := _relates_to(context.target.thread, reply_to):
        content["m.relates_to"] = relates_to
    return content


def edited_content(unit: RenderedUnit, of: str) -> dict[str, Any]:
    """The new content, and for clients that know no edits the same as a message with a star in front.

    A thread or a reply is named by neither: the event that is changed keeps what it relates to.
    """
    new = message_content(unit)
    starred = {key: f"* {new[key]}" for key in ("body", "formatted_body") if key in new}
    return new | starred | {"m.new_content": new, "m.relates_to": {"rel_type": "m.replace", "event_id": of}}


def receipt(unit: RenderedUnit, context: SendContext, event_id: str | None, status: int | None = None) -> Accepted:
    """The event that stands. Of an edit or a redaction: the message that it names, then the event itself.

    So a later edit of an edit names the message itself, as it must, and deleting an edit takes both away.
    """
    if context.action == "send" or event_id is None:
        return Accepted(event_id, status=status)
    parts = (ReceiptPart(0, context.of_platform_id, unit.kind), ReceiptPart(1, event_id, unit.kind))
    return Accepted(event_id, parts, status=status)


def text_of(body: Mapping[str, Any], key: str) -> str | None:
    """The text that stands there, if one does."""
    value = body.get(key)
    return value if isinstance(value, str) and value else None


def plain_text(html: str) -> str:
    """What a client without HTML shows: the text with its lines and list items, and links behind their names."""
    parts: list[str] = []
    at, verbatim, link, link_from = 0, False, "", 0
    for tag in _TAG.finditer(html + "<br>"):
        text = unescape(html[at : tag.start()])
        if not verbatim:
            text = re.sub(r"\s+", " ", text)
            text = text if parts and not parts[-1].endswith("\n") else text.lstrip()
        if text:
            parts.append(text)
        at, name, closing = tag.end(), (tag["name"] or "").lower(), bool(tag["closing"])
        if name == "pre":
            verbatim = not closing
        elif name == "a" and not closing:
            href = _HREF.search(tag["rest"])
            link, link_from = unescape(href[1] or href[2] or "") if href else "", len(parts)
        elif name == "a" and link:
            if link not in "".join(parts[link_from:]):
                parts.append(f" ({link})")
            link = ""
        if lines := _LINES.get((name, closing)):
            parts.append(lines)
    lines = [line.rstrip() for line in "".join(parts).split("\n")]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip("\n")


def _render(message: Message, able: Capabilities, channel: str) -> RenderedBatch:
    limits = (replace(able, text=replace(able.text, max=able.text.max // part)) for part in SHRINKING)
    tries = (render_text(message, limited, channel=channel) for limited in limits)
    return next(batch for batch in tries if _all_fit(batch))


def _with_html(batch: RenderedBatch, plain: str, html: str, *, edit: bool) -> RenderedBatch | None:
    """The batch with the caller's HTML beside its one text, or None where that is too long for one event."""
    if [unit.index for unit in batch.units if unit.media is None] != [0] or len(batch.marked) != len(batch.units):
        return None
    notes = (batch.units[0].text or "").removeprefix(plain)
    html += escape(notes, quote=False).replace("\n", "<br>")
    unit, marked = (
        replace(one, format="html", payload={"formatted_body": formatted})
        for one, formatted in ((batch.units[0], html), (batch.marked[0], DUPLICATE_MARKER + html))
    )
    formatted = RenderedBatch((unit, *batch.units[1:]), marked=(marked, *batch.marked[1:]))
    fits = _edit_bytes(unit) <= CONTENT_MAX_BYTES if edit else _all_fit(formatted)
    return formatted if fits else None


def _one_edit(batch: RenderedBatch) -> RenderedBatch:
    first = batch.units[0]
    needed = sum(_edit_bytes(unit) for unit in batch.units)
    if needed > CONTENT_MAX_BYTES:
        raise InvalidMessage(
            f"the new text {shown(first.text or '')} needs {needed} bytes of an event, the most is {CONTENT_MAX_BYTES},"
            " and an edit carries its text twice: shorten it, or send a new message"
        )
    return RenderedBatch((first,))


def _all_fit(batch: RenderedBatch) -> bool:
    return all(_bytes(message_content(unit)) <= CONTENT_MAX_BYTES for unit in (*batch.units, *batch.marked))


def _edit_bytes(unit: RenderedUnit) -> int:
    return _bytes(edited_content(unit, "$" * ID_MAX_BYTES))


def _bytes(content: dict[str, Any]) -> int:
    return len(msgspec.json.encode(content))


def _relates_to(thread: str | None, reply_to: str | None) -> dict[str, Any] | None:
    """Clients without threads show a thread's messages as replies; `is_falling_back` says that it is only for them."""
    if thread is None:
        return None if reply_to is None else {"m.in_reply_to": {"event_id": reply_to}}
    return {
        "rel_type": "m.thread",
        "event_id": thread,
        "is_falling_back": reply_to is None,
        "m.in_reply_to": {"event_id": reply_to or thread},
    }
