"""Text as platforms count it: measuring, splitting, the duplicate marker, and rendering that channels share.

Nothing is lost in silence: a text that does not fit is split or refused with a way out, an attachment that cannot go
along is named in the text. Only whitespace at a split is dropped; an error never echoes more than the start of a value.
"""

from __future__ import annotations

import unicodedata
from typing import Final

from ..ledger.errors import InvalidMessage
from ..ledger.limits import ATTACHMENTS_MAX, TEXT_MAX_BYTES, UNITS_MAX
from ..ledger.message import Attachment, Body, Message, RenderedBatch, RenderedUnit
from .surface import Capabilities, TextLimit

DUPLICATE_MARKER: Final = "[possible duplicate] "
"""Stands in front of a copy that goes out although the first one may have arrived."""
ELLIPSIS: Final = "…"
SHOWN_MAX_CHARS: Final = 80
CLUSTER_MAX_CHARS: Final = 32
"""How far back from a limit the end of a character cluster is looked for."""


def measure(text: str, limit: TextLimit) -> int:
    """The length in the channel's own unit."""
    if limit.unit == "codepoints":
        return len(text)
    if limit.unit == "bytes":
        return len(text.encode("utf-8"))
    return len(text) + sum(char > "\uffff" for char in text)


def fits(text: str, limit: TextLimit) -> bool:
    return measure(text, limit) <= limit.max


def shown(value: str) -> str:
    """A value as an error may show it."""
    return repr(value) if len(value) <= SHOWN_MAX_CHARS else f"{value[:SHOWN_MAX_CHARS]!r}..."


def split(text: str, limit: TextLimit, *, reserve: int = 0) -> list[str]:
    """Pieces within the limit, cut at a paragraph, else a line, else a space, else between two character clusters.

    Lossless up to whitespace: at a cut the spaces and line ends on both sides of it go away (indentation behind a line
    end stays). No piece is empty. `reserve` is room left free in each of several pieces.
    """
    if fits(text, limit):
        return [text] if text.strip() else []
    pieces: list[str] = []
    at = 0
    while at < len(text):
        room = limit.max - reserve
        end = _prefix_end(text, at, room, limit)
        cut, next_at = (end, end) if end == len(text) else _best_cut(text, at, end)
        piece = text[at:cut]
        if next_at < len(text) or pieces:
            piece = piece.rstrip()
        if piece.strip():
            pieces.append(piece)
        at = next_at
    return pieces


def mark(text: str, limit: TextLimit) -> str:
    """The text with the duplicate marker in front, within the limit; what does not fit is cut off, with an ellipsis."""
    marked = DUPLICATE_MARKER + text
    if fits(marked, limit):
        return marked
    room = limit.max - measure(DUPLICATE_MARKER + ELLIPSIS, limit)
    return DUPLICATE_MARKER + text[: _prefix_end(text, 0, max(room, 0), limit)].rstrip() + ELLIPSIS


def render_text(message: Message, capabilities: Capabilities, *, channel: str = "") -> RenderedBatch:
    """The batch of a message: its text, then its attachments. Raises `InvalidMessage` before anything is recorded.

    Attachments: a media unit where the channel takes them, else a line that names file and link (never where a file
    lies), behind the text or in a unit of its own (CAP-2). Threads and replies are not rendered but sent; see
    `thread_of` for the downgrade (CAP-3).
    """
    limit = capabilities.text
    body = message.body if message.body is not None else Body("")
    who = f"channel {channel!r}" if channel else "the channel"
    _check(body.text, message, who)
    media = [file for file in message.attachments if _goes_along(file, capabilities)]
    notes = [note(file) for file in message.attachments if not _goes_along(file, capabilities)]
    texts = _texts(body.text, notes, limit, who)
    units = [RenderedUnit(index, "text", text, body.format) for index, text in enumerate(texts)]
    units += [
        RenderedUnit(len(units) + index, "voice" if file.kind == "voice" else "media", media=file)
        for index, file in enumerate(media)
    ]
    if len(units) > UNITS_MAX:
        raise InvalidMessage(
            f"the message needs {len(units)} units on {who}, the most is {UNITS_MAX}: shorten it or send several"
        )
    return RenderedBatch(tuple(units), marked=marked(units, limit))


def marked(units: list[RenderedUnit], limit: TextLimit) -> tuple[RenderedUnit, ...]:
    """Each unit as a copy of it goes out: its text with the duplicate marker, or the marker as a caption."""
    return tuple(with_text(unit, mark(unit.text, limit) if unit.text else DUPLICATE_MARKER.strip()) for unit in units)


def with_text(unit: RenderedUnit, text: str) -> RenderedUnit:
    return RenderedUnit(unit.index, unit.kind, text, unit.format, unit.media, unit.payload, unit.required)


def note(file: Attachment) -> str:
    """How an attachment is named where it cannot go along."""
    return f"[{file.kind}] {file.name}" + (f": {file.url}" if file.url else "")


def _goes_along(file: Attachment, capabilities: Capabilities) -> bool:
    if capabilities.attachments == "upload" and file.is_file:
        return True
    return capabilities.attachments != "none" and file.url is not None


def _check(text: str, message: Message, who: str) -> None:
    if len(message.attachments) > ATTACHMENTS_MAX:
        raise InvalidMessage(
            f"the message has {len(message.attachments)} attachments, the most is {ATTACHMENTS_MAX}: send several"
        )
    if not text.strip() and not message.attachments:
        raise InvalidMessage(f"the message for {who} has an empty text and no attachment: give it a text")
    for part in (text, *(note(file) for file in message.attachments)):
        if "\x00" in part:
            raise InvalidMessage(f"the text {shown(part)} holds a NUL character: take it out")
        try:
            part.encode("utf-8")
        except UnicodeEncodeError as error:
            raise InvalidMessage(
                f"the text {shown(part)} holds a lone surrogate: decode it properly before sending"
            ) from error
    size = len(text.encode("utf-8"))
    if size > TEXT_MAX_BYTES:
        raise InvalidMessage(
            f"the text {shown(text)} has {size} bytes, the most is {TEXT_MAX_BYTES}: attach it as a file"
        )


def _texts(text: str, notes: list[str], limit: TextLimit, who: str) -> list[str]:
    whole = "\n\n".join(part for part in (text, "\n".join(notes)) if part.strip())
    if fits(whole, limit):
        return [whole] if whole else []
    texts: list[str] = []
    for part in (text, *notes):
        if fits(part, limit):
            texts += [part] if part.strip() else []
        elif limit.chunking:
            texts += split(part, limit, reserve=measure(DUPLICATE_MARKER, limit))
        else:
            raise InvalidMessage(
                f"the text {shown(part)} has {measure(part, limit)} {limit.unit}, {who} takes {limit.max} and does not "
                "split: shorten it, or declare chunking"
            )
    return texts


def _prefix_end(text: str, at: int, room: int, limit: TextLimit) -> int:
    """Where the longest prefix of `text[at:]` within `room` ends, between two character clusters where that goes."""
    part = text[at : at + room]
    if limit.unit == "utf16":
        part = part.encode("utf-16-le")[: room * 2].decode("utf-16-le", "ignore")
    elif limit.unit == "bytes":
        part = part.encode("utf-8")[:room].decode("utf-8", "ignore")
    end = at + len(part)
    for back in range(end, max(at, end - CLUSTER_MAX_CHARS), -1):
        if back == len(text) or not _joined(text, back):
            return back
    return end


def _joined(text: str, at: int) -> bool:
    """Whether the characters on both sides of `at` belong to one cluster, as far as that can be told without tables."""
    before, after = text[at - 1], text[at]
    if before == "\r" and after == "\n":
        return True
    if before == "\u200d" or after == "\u200d" or unicodedata.category(after) in ("Mn", "Me", "Mc"):
        return True
    if "\U0001f3fb" <= after <= "\U0001f3ff" or "\U000e0020" <= after <= "\U000e007f":
        return True
    flags = 0
    while flags < min(at, CLUSTER_MAX_CHARS) and _is_flag(text[at - 1 - flags]):
        flags += 1
    return _is_flag(after) and flags % 2 == 1


def _is_flag(char: str) -> bool:
    return "\U0001f1e6" <= char <= "\U0001f1ff"


def _best_cut(text: str, at: int, end: int) -> tuple[int, int]:
    """Where the piece ends and the next begins: the latest paragraph or line end in the second half, else a space."""
    half = at + (end - at) // 2
    for separator, least in (("\n\n", half), ("\n", half), (" ", at + 1)):
        found = text.rfind(separator, least, end + len(separator))
        if found > at:
            behind = found
            while behind < len(text) and text[behind] in (" " if separator == " " else "\r\n"):
                behind += 1
            return found, behind
    return end, end
