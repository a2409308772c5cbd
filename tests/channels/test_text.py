"""Measuring, splitting, marking and rendering text."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgledger.adapters.surface import Capabilities, TextLimit
from msgledger.adapters.text import DUPLICATE_MARKER, ELLIPSIS, fits, mark, measure, render_text, split
from msgledger.ledger.errors import InvalidMessage
from msgledger.ledger.limits import ATTACHMENTS_MAX, TEXT_MAX_BYTES, UNITS_MAX
from msgledger.ledger.message import Attachment, Message, Target

HERE = Target.group("c", "p")
FAMILY = "👩‍👩‍👧"
TEXTS = st.text(
    st.sampled_from([*"ab \n\té🙂", "\u0301", "\u200d", "🏽", "🇩", "🇪", "\r"])
    | st.characters(exclude_categories=["Cs"]),
    max_size=300,
)
LIMITS = st.builds(
    TextLimit, max=st.integers(40, 90), unit=st.sampled_from(["utf16", "codepoints", "bytes"]), chunking=st.just(True)
)


def squeezed(text: str) -> str:
    return "".join(text.split())


@pytest.mark.parametrize(("unit", "length"), [("codepoints", 2), ("utf16", 3), ("bytes", 6)])
def test_a_length_in_each_unit(unit: str, length: int) -> None:
    """CAP-1."""
    assert measure("é🙂", TextLimit(100, unit)) == length  # pyright: ignore[reportArgumentType]


@settings(max_examples=500, deadline=None)
@given(text=TEXTS, limit=LIMITS, reserve=st.integers(0, 21))
def test_splitting_loses_only_whitespace(text: str, limit: TextLimit, reserve: int) -> None:
    """CAP-1: within the limit, no empty piece, every character in its order."""
    pieces = split(text, limit, reserve=reserve)
    assert all(fits(piece, limit) and piece.strip() for piece in pieces)
    assert squeezed("".join(pieces)) == squeezed(text)
    if len(pieces) > 1:
        assert all(measure(piece, limit) <= limit.max - reserve for piece in pieces)
    for piece in pieces:
        piece.encode("utf-16-le").decode("utf-16-le")


def test_where_it_cuts() -> None:
    """CAP-1: at a paragraph before a line, at a line before a space, and indentation stays."""
    limit = TextLimit(40, chunking=True)
    assert split("a" * 25 + "\n\n" + "b" * 5 + "\n" + "c" * 30, limit) == ["a" * 25, "b" * 5 + "\n" + "c" * 30]
    assert split("a " * 12 + "\n    " + "b" * 30, limit) == [("a " * 12).strip(), "    " + "b" * 30]
    assert split("x" * 30 + " " + "y" * 30, limit) == ["x" * 30, "y" * 30]
    assert split("z" * 90, limit) == ["z" * 40, "z" * 40, "z" * 10]
    assert split("w" * 40 + " " + "v", limit) == ["w" * 40, "v"]
    assert split("a" * 40 + "\t" * 100 + "b", limit) == ["a" * 40, "\t" * 20 + "b"]


@pytest.mark.parametrize("cluster", [FAMILY, "e\u0301", "👍🏽", "🇩🇪", "\r\n"])
def test_a_cluster_stays_whole(cluster: str) -> None:
    """CAP-1: what a person sees as one character is not torn where that can be helped."""
    for lead in range(33, 41):
        pieces = split("x" * lead + cluster + "y" * 40, TextLimit(40, chunking=True))
        assert any(cluster.strip() in piece for piece in pieces) or not cluster.strip()


@settings(max_examples=300, deadline=None)
@given(text=TEXTS.filter(lambda text: text.strip()), limit=LIMITS)
def test_the_marker_is_within_the_limit(text: str, limit: TextLimit) -> None:
    """UNK-7: cut off with an ellipsis only where it does not fit."""
    marked = mark(text, limit)
    assert fits(marked, limit)
    assert marked.startswith(DUPLICATE_MARKER)
    if fits(DUPLICATE_MARKER + text, limit):
        assert marked == DUPLICATE_MARKER + text
    else:
        assert marked.endswith(ELLIPSIS)


def test_a_split_message_keeps_its_text_in_the_marked_copy() -> None:
    """UNK-7: each of several units leaves room for the marker, so that a copy loses nothing."""
    able = Capabilities(text=TextLimit(100, chunking=True))
    batch = render_text(Message.text("x" * 250, to=HERE), able)
    assert [copy.text for copy in batch.marked] == [DUPLICATE_MARKER + (unit.text or "") for unit in batch.units]
    assert [copy.index for copy in batch.marked] == [0, 1, 2, 3]
    assert "".join(unit.text or "" for unit in batch.units) == "x" * 250


def test_attachments_in_each_form() -> None:
    """CAP-2: media behind the text, a line in it, a unit of its own where the line does not fit."""
    files = (Attachment("a.png", "image", url="https://h/a.png"), Attachment("b.txt"))
    message = Message.text("see", to=HERE, attachments=files)
    (only,) = render_text(message, Capabilities()).units
    assert only.text == "see\n\n[image] a.png: https://h/a.png\n[file] b.txt"
    text, media = render_text(message, Capabilities(attachments="remote_url")).units
    assert (text.text, media.kind, media.media) == ("see\n\n[file] b.txt", "media", files[0])
    tight = render_text(Message.text("t" * 95, to=HERE, attachments=files), Capabilities(text=TextLimit(100)))
    assert [unit.text for unit in tight.units] == ["t" * 95, "[image] a.png: https://h/a.png", "[file] b.txt"]
    alone = render_text(Message(HERE, attachments=files[:1]), Capabilities(attachments="upload"))
    assert [unit.kind for unit in alone.units] == ["media"]
    assert [(copy.text, copy.media) for copy in alone.marked] == [(DUPLICATE_MARKER.strip(), files[0])]


def test_too_much_of_everything() -> None:
    """Every list has a bound, and passing it is refused before anything is recorded."""
    many = tuple(Attachment(str(index)) for index in range(ATTACHMENTS_MAX + 1))
    with pytest.raises(InvalidMessage, match="attachments"):
        render_text(Message.text("x", to=HERE, attachments=many), Capabilities())
    with pytest.raises(InvalidMessage, match=f"the most is {TEXT_MAX_BYTES}"):
        render_text(Message.text("é" * TEXT_MAX_BYTES, to=HERE), Capabilities(text=TextLimit(10**7)))
    with pytest.raises(InvalidMessage, match="units"):
        render_text(Message.text("x" * (41 * UNITS_MAX), to=HERE), Capabilities(text=TextLimit(40, chunking=True)))


def test_a_secret_tail_is_not_echoed() -> None:
    """An error shows 80 characters of a text and no more."""
    with pytest.raises(InvalidMessage) as refusal:
        render_text(Message.text("a" * 80 + "TAIL" + "b" * 5000, to=HERE), Capabilities(), channel="c")
    assert "TAIL" not in str(refusal.value)
    assert "5084" in str(refusal.value)
