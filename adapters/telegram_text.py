"""Text as Telegram takes it: plain words, and beside them entities that say which of them are bold, a link, code.

HTML and Markdown are read here and not by Telegram, so that no text can break its own markup, the limit counts what
people read, and a text can be split anywhere. Pure. What has no form on Telegram is kept as its words; a link of
another scheme than the usual ones is kept as its text alone.

Source: https://core.telegram.org/bots/api#messageentity; offsets and lengths are in UTF-16 units.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from html import unescape
from typing import TYPE_CHECKING, Any, Final

from ..ledger.errors import InvalidMessage
from ..ledger.message import Body, Value
from .surface import TextLimit
from .text import measure

if TYPE_CHECKING:
    from markdown_it.token import Token

UTF16: Final = TextLimit(4096, "utf16", chunking=True)
ENTITIES_MAX: Final = 100
"""Telegram reads so many entities of one message and ignores the rest, as documented for Bot API 10.1."""
URL_MAX: Final = 2048
MARKDOWN_MAX_CHARS: Final = 100_000
"""Reading Markdown takes about ten seconds a megabyte, and nothing else goes on meanwhile."""
LANGUAGE_MAX: Final = 64
DEPTH_MAX: Final = 32
"""How deep marks may stand in each other; deeper ones are left out, and their words are not."""

_KINDS: Final = {
    tag: kind
    for kind, tags in (
        ("bold", "b strong h1 h2 h3 h4 h5 h6"),
        ("italic", "i em"),
        ("underline", "u ins"),
        ("strikethrough", "s strike del"),
        ("code", "code"),
        ("pre", "pre"),
        ("blockquote", "blockquote"),
        ("spoiler", "tg-spoiler"),
    )
    for tag in tags.split()
}
_TAG: Final = re.compile(r"<(?P<closing>/?)(?P<name>[A-Za-z][A-Za-z0-9-]*+)(?P<rest>[^<>]*+)>|<!--[^<>]*+>")
_ATTRIBUTE: Final = re.compile(
    r"""\s(?P<name>[a-z-]++)\s*+=\s*+(?:"(?P<one>[^"]*+)"|'(?P<two>[^']*+)')""", re.IGNORECASE
)
_BLOCK_NAMES: Final = "p div blockquote pre ul ol table tr h1 h2 h3 h4 h5 h6 hr"
_BLOCKS: Final = frozenset(_BLOCK_NAMES.split())
_LINK: Final = re.compile(r"(?:https?|tg|mailto|tel):[^\s]+", re.IGNORECASE)


class Span(Value, frozen=True, gc=False):
    """What holds from character `start` up to `end` of a text."""

    start: int
    end: int
    kind: str
    more: str = ""
    """The address of a link, the language of code."""


class Rich(Value, frozen=True, gc=False):
    text: str
    spans: tuple[Span, ...] = ()


def read(body: Body) -> Rich:
    """The words of a body and how they are marked. Raises `InvalidMessage` where Markdown cannot be read."""
    match body.format:
        case "html":
            return _of_html(body.text)
        case "markdown":
            return _of_markdown(body.text)
        case _:
            return Rich(body.text)


def within(rich: Rich, pieces: Sequence[str]) -> list[tuple[Span, ...]]:
    """The spans of each piece, counted from its start. The pieces stand in the text in this order, with nothing but
    white space between them; one that is not of the text has none, and what follows the text in the first has none."""
    ranges: list[tuple[int, int]] = []
    at = 0
    for piece in pieces:
        begins = 0 if at == 0 and piece.startswith(rich.text) else rich.text.find(piece, at)
        at = at if begins < 0 else min(begins + len(piece), len(rich.text))
        ranges.append((max(begins, at) if begins < 0 else begins, at))
    found: list[list[Span]] = [[] for _ in pieces]
    ends = [end for _, end in ranges]
    for span in rich.spans:
        for index in range(bisect_right(ends, span.start), len(ranges)):
            begins, end = ranges[index]
            if begins >= span.end:
                break
            if end > begins:
                kept = Span(max(span.start, begins) - begins, min(span.end, end) - begins, span.kind, span.more)
                found[index].append(kept)
    return [tuple(spans) for spans in found]


def moved(spans: Sequence[Span], by: int) -> tuple[Span, ...]:
    return tuple(Span(span.start + by, span.end + by, span.kind, span.more) for span in spans)


def entities(text: str, spans: Sequence[Span]) -> list[dict[str, Any]]:
    """As the platform wants them, outer ones first, the first `ENTITIES_MAX`."""
    marks = sorted(spans, key=lambda span: (span.start, -span.end))[:ENTITIES_MAX]
    made: list[dict[str, Any]] = []
    for span in marks:
        part = text[span.start : span.end].rstrip()
        if not part:
            continue
        entity = {"type": span.kind, "offset": measure(text[: span.start], UTF16), "length": measure(part, UTF16)}
        if span.kind == "text_link":
            entity["url"] = span.more
        elif span.kind == "pre" and span.more:
            entity["language"] = span.more
        made.append(entity)
    return made


class _Builder:
    """Collects words and marks. White space between blocks is never doubled, and none stands at the ends."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.length = 0
        self.spans: list[Span] = []
        self.open: list[tuple[str, int, str]] = []
        self.ends_with = ""

    def words(self, text: str) -> None:
        if text:
            self.parts.append(text)
            self.length += len(text)
            self.ends_with = (self.ends_with + text)[-2:]

    def lines(self, least: int) -> None:
        """As many line ends as are missing, none before the first word."""
        if self.length:
            there = len(self.ends_with) - len(self.ends_with.rstrip("\n"))
            self.words("\n" * max(0, least - there))

    def begin(self, kind: str, more: str = "") -> None:
        if len(self.open) < DEPTH_MAX:
            self.open.append((kind, self.length, more))

    def end(self, kind: str) -> None:
        """Ends the innermost of that kind, if one is open."""
        for index in range(len(self.open) - 1, -1, -1):
            if self.open[index][0] == kind:
                _, start, more = self.open.pop(index)
                self._span(start, self.length, kind, more)
                return

    def done(self) -> Rich:
        while self.open:
            self.end(self.open[-1][0])
        text = "".join(self.parts)
        kept = text.rstrip()
        lead = len(kept) - len(kept.lstrip("\n"))
        size = len(kept) - lead
        spans = (Span(max(0, s.start - lead), min(size, s.end - lead), s.kind, s.more) for s in self.spans)
        return Rich(kept[lead:], tuple(span for span in spans if span.end > span.start))

    def _span(self, start: int, end: int, kind: str, more: str) -> None:
        if kind == "text_link" and not more:
            return
        if end > start and kind:
            self.spans.append(Span(start, end, kind, more))


def _of_html(html: str) -> Rich:
    built, verbatim, at = _Builder(), 0, 0
    for tag in (*_TAG.finditer(html), None):
        text = unescape(html[at : len(html) if tag is None else tag.start()])
        if not verbatim:
            text = re.sub(r"\s+", " ", text)
            text = text.lstrip(" ") if built.ends_with[-1:] in ("", "\n", " ") else text
        built.words(text)
        if tag is None:
            break
        at, name, closing = tag.end(), (tag["name"] or "").lower(), bool(tag["closing"])
        if name == "br":
            built.words("\n")
        elif name == "li" and not closing:
            built.lines(1)
            built.words("- ")
        if name in _BLOCKS and closing:
            _ended(built, name)
            built.lines(2 if name in ("p", "pre", "blockquote") else 1)
        elif name in _BLOCKS:
            built.lines(2 if name in ("p", "pre", "blockquote") else 1)
            _begun(built, name, tag["rest"])
        elif closing:
            _ended(built, name)
        else:
            _begun(built, name, tag["rest"])
        if name == "pre":
            verbatim = 0 if closing else 1
    return built.done()


def _begun(built: _Builder, name: str, rest: str) -> None:
    told = {one["name"].lower(): unescape(one["one"] or one["two"] or "") for one in _ATTRIBUTE.finditer(rest)}
    if name == "a":
        built.begin("text_link", _link(told.get("href", "")))
    elif name == "span":
        built.begin("spoiler" if told.get("class") == "tg-spoiler" else "")
    elif name == "code" and built.open and built.open[-1][0] == "pre":
        kind, start, _ = built.open.pop()
        language = told.get("class", "").removeprefix("language-")[:LANGUAGE_MAX]
        built.open.append((kind, start, language))
    elif name in _KINDS:
        built.begin(_KINDS[name])


def _ended(built: _Builder, name: str) -> None:
    if name == "a":
        built.end("text_link")
    elif name == "span":
        built.end(next((kind for kind, _, _ in reversed(built.open) if kind in ("spoiler", "")), ""))
    elif name in _KINDS:
        built.end(_KINDS[name])


def _link(url: str) -> str:
    return url if _LINK.fullmatch(url) and len(url) <= URL_MAX else ""


_INLINE: Final = {"strong": "bold", "em": "italic", "s": "strikethrough"}


def _of_markdown(text: str) -> Rich:
    if len(text) > MARKDOWN_MAX_CHARS:
        raise InvalidMessage(
            f"the Markdown has {len(text)} characters, the most is {MARKDOWN_MAX_CHARS}: give it as plain or html, or "
            "attach it as a file"
        )
    try:
        from markdown_it import MarkdownIt
    except ImportError as error:
        raise InvalidMessage(
            "Markdown for Telegram needs markdown-it-py: install msgledger[telegram], or give the text as plain or html"
        ) from error
    parser = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"])
    built = _Builder()
    lists: list[int | None] = []
    """Of each list that is open, its next number; None where it has none."""
    for token in parser.parse(text):
        _block(built, token, lists)
    return built.done()


def _block(built: _Builder, token: Token, lists: list[int | None]) -> None:
    match token.type:
        case "paragraph_open":
            if built.ends_with[-1:] == "\n":
                built.lines(1 if token.hidden else 2)
        case "paragraph_close" | "table_close":
            built.lines(1 if token.hidden else 2)
        case "heading_open":
            built.lines(2)
            built.begin("bold")
        case "heading_close":
            built.end("bold")
            built.lines(2)
        case "blockquote_open":
            built.lines(2)
            built.begin("blockquote")
        case "blockquote_close":
            built.end("blockquote")
            built.lines(2)
        case "fence" | "code_block":
            built.lines(2)
            built.begin("pre", token.info.strip().split(" ")[0][:LANGUAGE_MAX])
            built.words(token.content.removesuffix("\n"))
            built.end("pre")
            built.lines(2)
        case "hr":
            built.lines(2)
            built.words("---")
            built.lines(2)
        case "bullet_list_open":
            lists.append(None)
        case "ordered_list_open":
            lists.append(int(token.attrGet("start") or 1))
        case "bullet_list_close" | "ordered_list_close":
            lists.pop()
            built.lines(1 if lists else 2)
        case "list_item_open":
            number = lists[-1]
            built.lines(1)
            built.words("  " * (len(lists) - 1) + ("- " if number is None else f"{number}. "))
            lists[-1] = None if number is None else number + 1
        case "tr_close":
            built.lines(1)
        case "th_close" | "td_close":
            built.words("  ")
        case "inline":
            for child in token.children or ():
                _inline(built, child)
        case _:
            pass


def _inline(built: _Builder, token: Token) -> None:
    stem, _, way = token.type.rpartition("_")
    match token.type:
        case "text":
            built.words(token.content)
        case "softbreak" | "hardbreak":
            built.words("\n")
        case "code_inline":
            built.begin("code")
            built.words(token.content)
            built.end("code")
        case "link_open":
            built.begin("text_link", _link(str(token.attrGet("href") or "")))
        case "link_close":
            built.end("text_link")
        case "image":
            built.begin("text_link", _link(str(token.attrGet("src") or "")))
            built.words(token.content or "image")
            built.end("text_link")
        case _ if stem in _INLINE and way == "open":
            built.begin(_INLINE[stem])
        case _ if stem in _INLINE:
            built.end(_INLINE[stem])
        case _:
            built.words(token.content)
