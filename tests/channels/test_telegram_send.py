"""What goes out to Telegram: units, captions, marks, options, and the calls that they become."""

from __future__ import annotations

import json
from email.parser import BytesParser
from email.policy import HTTP
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgledger.adapters.exchange import Request
from msgledger.adapters.telegram_text import UTF16, read
from msgledger.adapters.text import DUPLICATE_MARKER, measure
from msgledger.ledger.errors import InvalidMessage
from msgledger.ledger.message import Attachment, Body, Message, RenderedUnit, Reply, Target
from msgspec.structs import replace

from .contract import context
from .telegram_kit import CHAT, GROUP, offline, plan

PHOTO = Attachment("a.png", "image", media_type="image/png", size=9, digest="ab" * 32)
LINK = Attachment("b.jpg", "image", url="https://files.example/b.jpg")


def call(unit: RenderedUnit, target: Target = CHAT, **more: Any) -> tuple[str, dict[str, Any]]:
    request = offline().build(unit, context(target, unit=unit.index, **more))
    assert request.method == "POST"
    return request.path, json.loads(request.body)


def marks(text: str, format: Any) -> tuple[str, list[tuple[str, str, str]]]:
    """The words, and each entity with the words that it covers, counted as the platform counts."""
    (unit,) = plan(Message.text(text, to=CHAT, format=format)).units
    wide = (unit.text or "").encode("utf-16-le")
    found = (unit.payload or {}).get("entities", [])
    covered = [
        (one["type"], wide[one["offset"] * 2 : (one["offset"] + one["length"]) * 2].decode("utf-16-le"))
        for one in found
    ]
    more = [one.get("url", one.get("language", "")) for one in found]
    return unit.text or "", [(*pair, extra) for pair, extra in zip(covered, more, strict=True)]


class TestMarks:
    """CH-1: HTML and Markdown become entities; no text can break them, and what has no form stays as words."""

    def test_markdown(self) -> None:
        text, found = marks(
            "# Top\n🙂 **bold _both_** `c` [l](https://e.example/a_b)\n- x\n\n```py\n1\n```\n> q", "markdown"
        )
        assert text == "Top\n\n🙂 bold both c l\n\n- x\n\n1\n\nq"
        assert found == [
            ("bold", "Top", ""),
            ("bold", "bold both", ""),
            ("italic", "both", ""),
            ("code", "c", ""),
            ("text_link", "l", "https://e.example/a_b"),
            ("pre", "1", "py"),
            ("blockquote", "q", ""),
        ]

    def test_html(self) -> None:
        text, found = marks(
            '<p>a &lt;b&gt; <b>c</b></p><pre><code class="language-py">x\n y</code></pre><a href="tg://x">t</a>', "html"
        )
        assert text == "a <b> c\n\nx\n y\n\nt"
        assert found == [("bold", "c", ""), ("pre", "x\n y", "py"), ("text_link", "t", "tg://x")]

    @pytest.mark.parametrize(
        "text", ["<b>open", "</b>shut", "a < b > c", "<b><i>x</b></i>", "*a _b* c_", "[x](", "`", "<" * 99]
    )
    def test_broken_markup_is_sent(self, text: str) -> None:
        for format in ("html", "markdown"):
            assert plan(Message.text(text + " z", to=CHAT, format=format)).units[0].text

    def test_a_link_of_a_foreign_scheme_is_its_text(self) -> None:
        assert marks('<a href="javascript:x">t</a>', "html") == ("t", [])

    def test_markdown_has_its_bound(self) -> None:
        """CAP-1: what would take seconds to read is refused before anything is recorded."""
        with pytest.raises(InvalidMessage, match="has 100001 characters, the most is 100000: give it as plain or html"):
            plan(Message.text("*a* " * 25_000 + "x", to=CHAT, format="markdown"))

    def test_plain_is_plain(self) -> None:
        assert marks("<b>*x*</b>", "plain") == ("<b>*x*</b>", [])

    @given(st.text(alphabet="<>/bi*_`[]() \n&;ap🙂-#1.", max_size=200), st.sampled_from(["html", "markdown"]))
    def test_entities_stay_within_their_text(self, text: str, format: Any) -> None:
        """FAIL-10: any text gives words, and marks within them."""
        rich = read(Body(text, format))
        if not rich.text.strip():
            return
        for unit in (batch := plan(Message.text(text, to=CHAT, format=format))).units + batch.marked:
            for one in (unit.payload or {}).get("entities", []):
                assert one["offset"] >= 0 and one["length"] > 0
                assert one["offset"] + one["length"] <= measure(unit.text or "", UTF16)

    def test_marks_go_along_when_a_text_is_split(self) -> None:
        """CAP-1, BAT-2: a mark that stands over a cut is in both pieces; the copy has it behind its marker."""
        batch = plan(Message.text("<b>" + "word 🙂 " * 1200 + "</b><i>end</i>", to=CHAT, format="html"))
        assert len(batch.units) == 3
        for unit, copy in zip(batch.units, batch.marked, strict=True):
            (bold, *rest) = (unit.payload or {})["entities"]
            assert bold["offset"] == 0 and (copy.payload or {})["entities"][0]["offset"] == len(DUPLICATE_MARKER)
            assert measure(copy.text or "", UTF16) <= 4096
        assert rest == [{"type": "italic", "offset": measure((unit.text or "")[:-3], UTF16), "length": 3}]


class TestUnits:
    def test_one_text_and_one_file_are_a_captioned_file(self) -> None:
        """CAP-2: with its marks; of more files, or a longer text, the text stands before."""
        (unit,) = plan(Message.text("<b>see</b>", to=CHAT, format="html", attachments=(LINK,))).units
        path, body = call(unit)
        assert path == "/sendPhoto"
        assert body["photo"] == LINK.url and body["caption"] == "see"
        assert body["caption_entities"] == [{"type": "bold", "offset": 0, "length": 3}]
        assert [unit.kind for unit in plan(Message.text("x" * 1025, to=CHAT, attachments=(LINK,))).units] == [
            "text",
            "media",
        ]
        two = plan(Message.text("x", to=CHAT, attachments=(LINK, PHOTO)))
        assert [unit.kind for unit in two.units] == ["text", "media", "media"]

    @pytest.mark.parametrize(
        ("file", "method"),
        [
            (PHOTO, "sendPhoto"),
            (replace(PHOTO, size=10_000_001), "sendDocument"),
            (replace(PHOTO, media_type="image/tiff"), "sendDocument"),
            (replace(PHOTO, media_type="image/gif"), "sendAnimation"),
            (replace(PHOTO, kind="voice", media_type="audio/ogg"), "sendVoice"),
            (Attachment("a.pdf", url="https://e.example/a.PDF"), "sendDocument"),
        ],
    )
    def test_as_what_a_file_goes_out(self, file: Attachment, method: str) -> None:
        """CAP-2: as what the platform shows; what is no photo to it goes as a file."""
        (unit,) = plan(Message(CHAT, attachments=(file,))).units
        assert offline().build(unit, context(CHAT)).path == f"/{method}"

    def test_a_link_that_it_would_not_fetch_is_named(self) -> None:
        (unit,) = plan(
            Message.text("see", to=CHAT, attachments=(Attachment("a.txt", url="https://e.example/a.txt"),))
        ).units
        assert unit.text == "see\n\n[file] a.txt: https://e.example/a.txt"

    def test_a_form(self) -> None:
        """ADP-1: the file is streamed between the two ends of a form that any reader understands, each time alike."""
        (unit,) = plan(Message.text("c\r\n--", to=GROUP, attachments=(replace(PHOTO, name='q"\r\nx.png'),))).units
        request = offline().build(unit, context(GROUP, reply_to="5"))
        assert request.file is not None and request.file.length == 9
        head = b"".join(b"%s: %s\r\n" % (name.encode(), value.encode()) for name, value in request.headers)
        form = BytesParser(policy=HTTP).parsebytes(head + b"\r\n" + request.body + b"123456789" + request.tail)
        parts = {part.get_param("name", header="content-disposition"): part for part in form.iter_parts()}
        assert parts["photo"].get_payload(decode=True) == b"123456789"
        assert parts["photo"].get_filename() == "q%22%0D%0Ax.png"
        assert parts["caption"].get_payload(decode=True) == b"c\r\n--"
        assert json.loads(parts["reply_parameters"].get_payload()) == {
            "message_id": 5,
            "allow_sending_without_reply": True,
        }
        again = offline().build(unit, context(GROUP, reply_to="5", attempt=3, deadline_s=1.0))
        assert request.to_bytes() == again.to_bytes()

    def test_edits_are_one_message(self) -> None:
        """CAP-1: too long a new text is refused before anything is recorded; files are named; there is no copy."""
        batch = plan(Message.text("new", to=CHAT, attachments=(LINK,)), "edit")
        assert [unit.text for unit in batch.units] == ["new\n\n[image] b.jpg: https://files.example/b.jpg"]
        assert batch.marked == ()
        with pytest.raises(InvalidMessage, match="4097 utf16, and an edit is one"):
            plan(Message.text("x" * 4097, to=CHAT), "edit")
        assert call(batch.units[0], action="edit", of_platform_id="9") == (
            "/editMessageText",
            {"chat_id": 7001, "message_id": 9, "text": batch.units[0].text},
        )
        assert call(RenderedUnit(0), action="delete", of_platform_id="9") == (
            "/deleteMessage",
            {"chat_id": 7001, "message_id": 9},
        )


class TestOptions:
    """CH-1: what is Telegram's own goes along as it was given: silent with each unit, buttons with the last."""

    def test_they_go_along(self) -> None:
        keys = {"inline_keyboard": [[{"text": "ok", "callback_data": "1"}]]}
        raw = {"telegram": {"disable_notification": True, "reply_markup": keys}}
        message = replace(Message.text("word " * 1000, to=GROUP), raw=raw)
        first, last = (call(unit, GROUP)[1] for unit in plan(message).units)
        assert (first["disable_notification"], last["disable_notification"]) == (True, True)
        assert "reply_markup" not in first and last["reply_markup"] == keys

    def test_another_field_is_refused(self) -> None:
        for raw in ({"chat_id": 1}, {"parse_mode": "HTML"}, "silent"):
            with pytest.raises(InvalidMessage, match="telegram"):
                plan(replace(Message.text("x", to=CHAT), raw={"telegram": raw}))


class TestPlaces:
    @pytest.mark.parametrize("id", ["0", "general", "-", "1 2", "@a", "12345678901234567", "https://t.me/x", "@x" * 30])
    def test_what_is_no_chat_is_refused(self, id: str) -> None:
        """CAP-3: before anything is recorded, with the value and the way out."""
        with pytest.raises(InvalidMessage, match="is no Telegram chat: give"):
            plan(Message.text("x", to=Target.group("telegram", id)))

    def test_ids_of_other_platforms(self) -> None:
        with pytest.raises(InvalidMessage, match="no topic"):
            plan(Message.text("x", to=replace(GROUP, thread="general")))
        with pytest.raises(InvalidMessage, match="no message"):
            plan(Message.text("x", to=GROUP, relation=Reply(reply_to="$event")))

    def test_where_it_stands(self) -> None:
        """CAP-3, REL-1: the topic with each unit, what it answers with the first."""
        units = plan(Message.text("word " * 1000, to=replace(GROUP, thread="42"))).units
        first, second = (call(unit, replace(GROUP, thread="42"), reply_to="7")[1] for unit in units)
        assert (first["message_thread_id"], second["message_thread_id"]) == (42, 42)
        assert first["reply_parameters"]["message_id"] == 7 and "reply_parameters" not in second
        assert call(units[0], Target.room("telegram", "@news"))[1]["chat_id"] == "@news"


def test_a_request_has_no_credential() -> None:
    """CH-1: what is digested is the call; the address of the server is of the channel."""
    request = offline().build(RenderedUnit(0, text="x"), context(CHAT))
    assert isinstance(request, Request) and offline().authorize(request) == {}
    assert b"424242" not in request.to_bytes("https://api.telegram.org")
