"""What the Matrix adapter would send, without a homeserver: requests, formats, relations, edits, and what fits."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgledger.adapters.matrix import MATRIX
from msgledger.adapters.matrix_events import TEXT_MAX_BYTES, plain_text
from msgledger.adapters.surface import RenderContext, SendContext
from msgledger.adapters.text import DUPLICATE_MARKER
from msgledger.ledger.errors import InvalidMessage
from msgledger.ledger.limits import ORIGIN_TAG_MAX_BYTES
from msgledger.ledger.message import Attachment, Format, Message, RenderedBatch, RenderedUnit, Target
from msgledger.ledger.origin import Origin

from .contract import context
from .matrix_kit import ROOM, edit_of, offline, untagged

PUT = "/_matrix/client/v3/rooms/%21ops%2Froom%3Aexample.org/send/m.room.message/"
CONTENT_MAX_BYTES = 65_536 - 3_000
"""What is left of an event for its content where all names that the homeserver adds are as long as they may be."""
AT = RenderContext(at=1, intent="i")
EDITED = {"action": "edit", "of_platform_id": "$of"}


def render(text: str, format: Format = "plain", **more: Any) -> RenderedBatch:
    return offline().render(Message.text(text, to=ROOM, format=format, **more), AT)


def content(unit: RenderedUnit, told: SendContext | None = None) -> dict[str, Any]:
    return untagged(json.loads(offline().adapter.build(unit, told or context(ROOM)).body))


def event_bytes(unit: RenderedUnit, **more: Any) -> int:
    """The content as canonical JSON counts it, with the longest relation and tag; not by the adapter's own measure."""
    longest = "$" + "e" * 254
    origin = Origin(opaque={"source": "s" * (ORIGIN_TAG_MAX_BYTES - 13)})
    told = context(
        Target.in_thread("matrix", ROOM.id, longest), reply_to=longest, of_platform_id=longest, origin=origin, **more
    )
    made = json.loads(offline().adapter.build(unit, told).body)
    return len(json.dumps(made, ensure_ascii=False, separators=(",", ":")).encode())


class TestRequest:
    def test_the_transaction_id_is_the_stored_key(self) -> None:
        """SC-39: the key of the unit goes out as txnId, in a path where the room is quoted."""
        (unit,) = render("Hello, wörld").units
        request = offline().adapter.build(unit, context(ROOM, key="0192abcd0000c1"))
        assert (request.method, request.path, request.query) == ("PUT", f"{PUT}0192abcd0000c1", ())
        assert untagged(json.loads(request.body)) == {"msgtype": "m.text", "body": "Hello, wörld"}

    @pytest.mark.parametrize("key", ["", "a/b", "a b", "a?b", "ü", "k" * 256])
    def test_what_is_no_transaction_id_is_not_sent(self, key: str) -> None:
        """SC-13: refused before any I/O, not bent into another key."""
        with pytest.raises(InvalidMessage, match="transaction id"):
            offline().adapter.build(RenderedUnit(0, text="hi"), context(ROOM, provider_key=key))

    @pytest.mark.parametrize("room", ["#ops:example.org", "@ann:example.org", "ops", "", "!" + "r" * 255])
    def test_only_rooms_are_targets(self, room: str) -> None:
        """CORE-6: Synapse would call an alias or a user a missing permission; it is refused before it is recorded."""
        with pytest.raises(InvalidMessage, match="no Matrix room"):
            offline().render(Message.text("hi", to=Target.group("matrix", room)), AT)

    def test_what_it_declares(self) -> None:
        """CAP-6: no upload and no preview yet."""
        assert MATRIX.edit is not None and MATRIX.delete is not None
        assert (MATRIX.live, MATRIX.attachments) == (False, "upload")

    @pytest.mark.parametrize("action", ["edit", "delete"])
    def test_a_change_needs_its_object(self, action: str) -> None:
        """CAP-6: without an event to change nothing goes out, least of all as a new message."""
        with pytest.raises(InvalidMessage, match=f"no event to {action}"):
            offline().adapter.build(RenderedUnit(0, text="hi"), context(ROOM, action=action))

    def test_a_redaction_names_its_event_in_the_path(self) -> None:
        """CH-5: each part by its own event, quoted, with the unit's key as transaction id."""
        told = context(ROOM, action="delete", of_platform_id="$a/b", key="k")
        request = offline().adapter.build(RenderedUnit(0), told)
        assert request.path == "/_matrix/client/v3/rooms/%21ops%2Froom%3Aexample.org/redact/%24a%2Fb/k"
        assert (request.method, request.body) == ("PUT", b"{}")

    def test_a_resend_is_the_same_request_with_any_token_of_the_device(self) -> None:
        """R5, SC-39: neither the token nor anything else that differs between attempts is in the bytes."""
        (unit,) = render("once").units
        first = context(ROOM, key="k", reply_to="$1")
        later = context(ROOM, key="k", reply_to="$1", attempt=4, deadline_s=0.1, first_attempt_at=7)
        assert offline().request_bytes(unit, first) == offline("another").request_bytes(unit, later)
        assert offline().request_bytes(unit, first) != offline(homeserver="https://b.org").request_bytes(unit, first)

    def test_a_reply_names_its_event_once(self) -> None:
        """CAP-3, REL-1: the first unit is the reply, the rest of a long text is not another one."""
        first, second = render("x" * (TEXT_MAX_BYTES + 1)).units
        assert content(first, context(ROOM, reply_to="$a"))["m.relates_to"] == {"m.in_reply_to": {"event_id": "$a"}}
        assert "m.relates_to" not in content(second, context(ROOM, reply_to="$a"))

    @pytest.mark.parametrize(("reply_to", "shown", "falling_back"), [(None, "$root", True), ("$a", "$a", False)])
    def test_a_thread_names_its_root(self, reply_to: str | None, shown: str, falling_back: bool) -> None:
        """CAP-3: and says of its `m.in_reply_to` whether it is a reply or only a help for clients without threads."""
        threaded = Target.in_thread("matrix", ROOM.id, "$root")
        (unit,) = render("in here").units
        assert content(unit, context(threaded, reply_to=reply_to))["m.relates_to"] == {
            "rel_type": "m.thread",
            "event_id": "$root",
            "is_falling_back": falling_back,
            "m.in_reply_to": {"event_id": shown},
        }


class TestEdits:
    def test_an_edit_says_it_twice(self) -> None:
        """CH-5: the new content, and for clients without edits the same with a star; what it names is the event."""
        assert content(edit_of("after"), context(ROOM, **EDITED, reply_to="$a")) == {
            "msgtype": "m.text",
            "body": "* after",
            "m.new_content": {"msgtype": "m.text", "body": "after"},
            "m.relates_to": {"rel_type": "m.replace", "event_id": "$of"},
        }

    def test_an_edit_of_html_says_it_four_times(self) -> None:
        """CH-5, SC-09: both forms in both places."""
        said = content(edit_of("<b>after</b>", "html"), context(ROOM, **EDITED))
        assert (said["body"], said["formatted_body"]) == ("* after", "* <b>after</b>")
        assert (said["m.new_content"]["body"], said["m.new_content"]["formatted_body"]) == ("after", "<b>after</b>")
        assert said["format"] == said["m.new_content"]["format"] == "org.matrix.custom.html"

    def test_what_fits_a_message_may_not_fit_an_edit(self) -> None:
        """CAP-1: refused before anything is recorded, with what it needs and the way out."""
        assert len(render("x" * 40_000).units) == 1
        with pytest.raises(InvalidMessage, match=r"80\d\d\d bytes .* carries its text twice: shorten it"):
            edit_of("x" * 40_000)

    def test_html_that_is_too_long_for_an_edit(self) -> None:
        """CAP-1: it goes out as its plain text, which fits."""
        html = "<p>" + "<b>word</b> " * 3_000 + "</p>"
        assert render(html, "html").units[0].format == "html"
        unit = edit_of(html, "html")
        assert (unit.payload, (unit.text or "").split()) == (None, ["word"] * 3_000)

    def test_an_edit_has_no_marked_copy(self) -> None:
        """UNK-7: the same edit twice shows nothing twice, so nothing is to be marked."""
        told = RenderContext(at=1, intent="i", action="edit")
        assert offline().render(Message.text("after", to=ROOM), told).marked == ()

    @settings(max_examples=60, deadline=None)
    @example('"', 30_000, "plain")
    @given(st.text(min_size=1, max_size=40), st.integers(1, 40_000), st.sampled_from(["plain", "markdown", "html"]))
    def test_every_edit_fits(self, text: str, times: int, format: Format) -> None:
        """CAP-1: or is refused."""
        try:
            unit = edit_of((text * times)[:100_000], format)
        except InvalidMessage:
            return
        assert event_bytes(unit, action="edit") <= CONTENT_MAX_BYTES


class TestFormats:
    @pytest.mark.parametrize("format", ["plain", "markdown"])
    def test_only_html_is_formatted(self, format: Format) -> None:
        """BAT-2: markdown goes out as it is written; nobody's text is taken for HTML."""
        (unit,) = render("**bold** <b>", format).units
        assert content(unit) == {"msgtype": "m.text", "body": "**bold** <b>"}

    def test_html_has_plain_text_beside_it(self) -> None:
        """SC-09: both forms are in the stored unit and go out of it; so does the marker, in both."""
        batch = render("<p>Ready &amp; <b>green</b></p>", "html")
        (unit,) = batch.units
        assert content(unit) == {
            "msgtype": "m.text",
            "body": "Ready & green",
            "format": "org.matrix.custom.html",
            "formatted_body": "<p>Ready &amp; <b>green</b></p>",
        }
        copy = content(*batch.marked)
        assert copy["body"] == DUPLICATE_MARKER + "Ready & green"
        assert copy["formatted_body"] == DUPLICATE_MARKER + "<p>Ready &amp; <b>green</b></p>"

    def test_a_stored_unit_is_sent_as_it_was_stored(self) -> None:
        """SC-09, BAT-8: through JSON and back, the same bytes."""
        (unit,) = render("<b>x</b>", "html").units
        again = msgspec.json.decode(msgspec.json.encode(unit), type=RenderedUnit)
        assert offline().request_bytes(again, context(ROOM, key="k")) == offline().request_bytes(
            unit, context(ROOM, key="k")
        )

    def test_an_attachment_is_named_in_both_forms(self) -> None:
        """CAP-2: the plain and the formatted text name the file and its link."""
        file = Attachment("a<b>.pdf", url="https://files.example/a")
        (unit,) = render("<b>see</b>", "html", attachments=(file,)).units
        said = content(unit)
        assert said["body"] == "see\n\n[file] a<b>.pdf: https://files.example/a"
        assert said["formatted_body"] == "<b>see</b><br><br>[file] a&lt;b&gt;.pdf: https://files.example/a"

    def test_html_that_is_too_long_is_sent_as_plain_text(self) -> None:
        """CAP-1: all of its text, and no half tag."""
        units = render("<p>" + "<b>word</b> " * 8_000 + "</p>", "html").units
        assert all(unit.payload is None for unit in units)
        assert " ".join(unit.text or "" for unit in units).split() == ["word"] * 8_000

    @pytest.mark.parametrize(
        ("html", "plain"),
        [
            ("a<br>b<br/>c", "a\nb\nc"),
            ("<p>one\ntwo</p>\n<p>three</p>", "one two\n\nthree"),
            ("<ul>\n<li>one</li>\n<li>two</li>\n</ul>after", "- one\n- two\nafter"),
            ("<pre><code>def f():\n    return 1\n</code></pre>", "def f():\n    return 1"),
            ('<a href="https://x.y/?a=1&amp;b=2">here</a>', "here (https://x.y/?a=1&b=2)"),
            ("<a href='https://x.y'><b>https://x.y</b></a>", "https://x.y"),
            ("1 < 2 &lt;b&gt; <!-- not shown --> end", "1 < 2 <b>  end"),
        ],
    )
    def test_plain_text_of_html(self, html: str, plain: str) -> None:
        """SC-09: what a client shows that has no HTML."""
        assert plain_text(html) == plain

    @given(st.text("<>/ab &;#\"'=!-\n pre", max_size=200))
    def test_any_html_has_a_plain_text(self, html: str) -> None:
        """SC-22: a broken document is text, not an error."""
        assert isinstance(plain_text(html), str)


class TestLimits:
    def test_the_declared_length_is_one_event(self) -> None:
        """CAP-1: exactly the limit is one unit, one byte more is two."""
        assert len(render("x" * TEXT_MAX_BYTES).units) == 1
        assert len(render("x" * (TEXT_MAX_BYTES + 1)).units) == 2
        assert len(render("é" * (TEXT_MAX_BYTES // 2)).units) == 1

    @pytest.mark.parametrize("char", ['"', "\\", "\x01", "\x7f", "🙂", "\u200b"])
    def test_what_json_escapes_counts_as_it_is_sent(self, char: str) -> None:
        """CAP-1: the event is measured as it is encoded, and no character is lost at the cuts."""
        text = char * (TEXT_MAX_BYTES // len(char.encode()))
        batch = render(text)
        assert len(batch.marked) == len(batch.units)
        assert all(event_bytes(unit) <= CONTENT_MAX_BYTES for unit in (*batch.units, *batch.marked))
        assert "".join(unit.text or "" for unit in batch.units) == text

    @settings(max_examples=60, deadline=None)
    @example('"' + "x" * 21, 2727, "plain")
    @given(st.text(min_size=1, max_size=40), st.integers(1, 70_000), st.sampled_from(["plain", "markdown", "html"]))
    def test_every_event_fits(self, text: str, times: int, format: Format) -> None:
        """CAP-1: whatever the text, each unit and the marked copy leave room for what the homeserver adds."""
        try:
            batch = render((text * times)[:200_000], format)
        except InvalidMessage:
            return
        assert len(batch.marked) == len(batch.units)
        assert all(event_bytes(unit) <= CONTENT_MAX_BYTES for unit in (*batch.units, *batch.marked))
