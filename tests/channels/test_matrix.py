"""The Matrix adapter without a homeserver: what it would send, and what it takes an answer to mean."""

from __future__ import annotations

import asyncio
import json
import socket
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgledger.adapters.exchange import Answer
from msgledger.adapters.matrix import MATRIX, TEXT_MAX_BYTES, MatrixChannel, plain_text
from msgledger.adapters.surface import RenderContext, SendContext
from msgledger.adapters.text import DUPLICATE_MARKER
from msgledger.ledger.errors import InvalidConfig, InvalidMessage
from msgledger.ledger.message import Attachment, Format, Message, RenderedBatch, RenderedUnit, Target
from msgledger.ledger.outcome import Accepted, FailureClass, Outcome, Rejected, Unknown

from .contract import context

TOKEN = "syt_s3cret-of-the-tests"
ROOM = Target.group("matrix", "!ops/room:example.org")
PUT = "/_matrix/client/v3/rooms/%21ops%2Froom%3Aexample.org/send/m.room.message/"
CONTENT_MAX_BYTES = 65_536 - 3_000
"""What is left of an event for its content where all names that the homeserver adds are as long as they may be."""
AT = RenderContext(at=1, intent="i")


def channel(
    token: str = TOKEN, device_id: str | None = "BOT", homeserver: str = "https://example.org"
) -> MatrixChannel:
    return MatrixChannel(homeserver, user_id="@bot:example.org", token=token, device_id=device_id)


def whoami(status: int = 200, **said: Any) -> Answer:
    return Answer(status, {}, json.dumps(said or {"user_id": "@bot:example.org", "device_id": "BOT"}).encode())


def render(text: str, format: Format = "plain", **more: Any) -> RenderedBatch:
    return channel().render(Message.text(text, to=ROOM, format=format, **more), AT)


def content(unit: RenderedUnit, told: SendContext | None = None) -> dict[str, Any]:
    return json.loads(channel().adapter.build(unit, told or context(ROOM)).body)


def event_bytes(unit: RenderedUnit) -> int:
    """The content as canonical JSON counts it, with the longest relation; not by the adapter's own measure."""
    longest = "$" + "e" * 254
    said = content(unit, context(Target.in_thread("matrix", ROOM.id, longest), reply_to=longest))
    return len(json.dumps(said, ensure_ascii=False, separators=(",", ":")).encode())


def parse(status: int, body: object = None, **headers: str) -> Outcome:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    adapter, unit, told = channel().adapter, RenderedUnit(0, text="hi"), context(ROOM)
    return adapter.parse(unit, told, adapter.build(unit, told), Answer(status, headers, raw))


class TestRequest:
    def test_the_transaction_id_is_the_stored_key(self) -> None:
        """SC-39: the key of the unit goes out as txnId, in a path where the room is quoted."""
        (unit,) = render("Hello, wörld").units
        request = channel().adapter.build(unit, context(ROOM, key="0192abcd0000c1"))
        assert (request.method, request.path, request.query) == ("PUT", f"{PUT}0192abcd0000c1", ())
        assert json.loads(request.body) == {"msgtype": "m.text", "body": "Hello, wörld"}

    @pytest.mark.parametrize("key", ["", "a/b", "a b", "a?b", "ü", "k" * 256])
    def test_what_is_no_transaction_id_is_not_sent(self, key: str) -> None:
        """SC-13: refused before any I/O, not bent into another key."""
        with pytest.raises(InvalidMessage, match="transaction id"):
            channel().adapter.build(RenderedUnit(0, text="hi"), context(ROOM, provider_key=key))

    @pytest.mark.parametrize("room", ["#ops:example.org", "@ann:example.org", "ops", "", "!" + "r" * 255])
    def test_only_rooms_are_targets(self, room: str) -> None:
        """CORE-6: Synapse would call an alias or a user a missing permission; it is refused before it is recorded."""
        with pytest.raises(InvalidMessage, match="no Matrix room"):
            channel().render(Message.text("hi", to=Target.group("matrix", room)), AT)

    def test_what_it_cannot_do_yet_is_refused(self) -> None:
        """CAP-6: no edit and no delete is declared, and none goes out as a new message."""
        assert (MATRIX.edit, MATRIX.delete, MATRIX.live, MATRIX.attachments) == (None, None, False, "none")
        for action in ("edit", "delete"):
            with pytest.raises(InvalidMessage, match=action):
                channel().adapter.build(RenderedUnit(0, text="hi"), context(ROOM, action=action, of_platform_id="$1"))

    def test_a_resend_is_the_same_request_with_any_token_of_the_device(self) -> None:
        """R5, SC-39: neither the token nor anything else that differs between attempts is in the bytes."""
        (unit,) = render("once").units
        first = context(ROOM, key="k", reply_to="$1")
        later = context(ROOM, key="k", reply_to="$1", attempt=4, deadline_s=0.1, first_attempt_at=7)
        assert channel().request_bytes(unit, first) == channel("another").request_bytes(unit, later)
        assert channel().request_bytes(unit, first) != channel(homeserver="https://b.org").request_bytes(unit, first)

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
        assert channel().request_bytes(again, context(ROOM, key="k")) == channel().request_bytes(
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


class TestAnswers:
    @pytest.mark.parametrize(
        ("status", "errcode", "failure"),
        [
            (401, "M_UNKNOWN_TOKEN", FailureClass.AUTH),
            (401, "M_MISSING_TOKEN", FailureClass.AUTH),
            (403, "M_FORBIDDEN", FailureClass.PERMISSION),
            (404, "M_NOT_FOUND", FailureClass.NOT_FOUND),
            (400, "M_BAD_JSON", FailureClass.INVALID_PAYLOAD),
            (400, "M_NOT_JSON", FailureClass.INVALID_PAYLOAD),
            (400, "M_UNKNOWN", FailureClass.INVALID_PAYLOAD),
            (413, "M_TOO_LARGE", FailureClass.INVALID_PAYLOAD),
            (429, "M_LIMIT_EXCEEDED", FailureClass.RATE_LIMIT),
        ],
    )
    def test_a_refusal_has_its_class(self, status: int, errcode: str, failure: FailureClass) -> None:
        """FAIL-2, FAIL-3, FAIL-4, FAIL-5, FAIL-11: a well-formed refusal, with the platform's own code."""
        outcome = parse(status, {"errcode": errcode, "error": "No."})
        assert isinstance(outcome, Rejected)
        assert (outcome.failure, outcome.code, outcome.status, outcome.detail) == (failure, errcode, status, "No.")

    @pytest.mark.parametrize(
        ("status", "body"),
        [
            (500, {"errcode": "M_UNKNOWN", "error": "Internal server error"}),
            (502, b"<html>Bad Gateway</html>"),
            (504, {"errcode": "M_UNKNOWN"}),
            (403, b"<html>Forbidden</html>"),
            (404, b""),
            (404, {"error": "no code"}),
            (400, {"errcode": 7}),
            (413, b"<html>Request Entity Too Large</html>"),
            (429, ["M_LIMIT_EXCEEDED"]),
            (408, {"errcode": "M_UNKNOWN"}),
            (409, {"errcode": "M_UNKNOWN"}),
            (301, {"errcode": "M_UNKNOWN"}),
            (200, b'{"event_id": "$cut'),
            (200, b"[]"),
            (202, {"event_id": "$1"}),
        ],
    )
    def test_everything_else_proves_nothing(self, status: int, body: object) -> None:
        """FAIL-9, FAIL-10, FAIL-11: a server error, another shape, or a proxy's page may hide an event that stands."""
        outcome = parse(status, body)
        assert isinstance(outcome, Unknown)
        assert outcome.status == status

    def test_a_rate_limit_says_how_long(self) -> None:
        """FAIL-2, SC-08: the longer of header and body, for the whole account."""
        said = {"errcode": "M_LIMIT_EXCEEDED", "error": "Too Many Requests", "retry_after_ms": 4_500}
        for headers, wait_s in (({}, 4.5), ({"retry-after": "5"}, 5.0), ({"retry-after": "3600"}, 3600.0)):
            outcome = parse(429, said, **headers)
            assert isinstance(outcome, Rejected)
            assert (outcome.retry_after_s, outcome.scope) == (wait_s, "account")
        silent = parse(429, {"errcode": "M_LIMIT_EXCEEDED"})
        assert isinstance(silent, Rejected)
        assert silent.retry_after_s is None

    def test_an_acceptance_is_the_event_id(self) -> None:
        """RCP-1, CAP-5, GAP-10: without one it is no receipt, and the core takes it as unknown."""
        assert parse(200, {"event_id": "$1"}) == Accepted("$1", status=200)
        assert parse(200, {}) == parse(200, {"event_id": ""}) == parse(200, {"event_id": 5}) == Accepted(status=200)


class TestIdentity:
    def test_it_is_ready_once_the_token_has_a_device(self) -> None:
        """REC-11: and not before, whether the device was given or is learned."""
        for made in (channel(), channel(device_id=None)):
            assert not made.adapter.ready
            made.adapter.learn(whoami())
            assert made.adapter.ready
            assert made.credential == "https://example.org @bot:example.org device BOT"

    def test_the_window_belongs_to_the_device(self) -> None:
        """R5: a new token of the device keeps the credential, another device is another one; no token is in it."""
        first, renewed, other = channel(device_id=None), channel("renewed", None), channel(device_id=None)
        unlearned = first.credential
        for made, device in ((first, "BOT"), (renewed, "BOT"), (other, "TWO")):
            made.adapter.learn(whoami(user_id="@bot:example.org", device_id=device))
        assert first.credential == renewed.credential
        assert len({first.credential, other.credential, unlearned, channel("renewed", None).credential}) == 4
        assert TOKEN not in first.credential + unlearned

    @pytest.mark.parametrize(("status", "errcode"), [(401, "M_UNKNOWN_TOKEN"), (403, "M_USER_DEACTIVATED")])
    def test_a_refused_token_is_ready_to_be_refused(self, status: int, errcode: str) -> None:
        """FAIL-4, SC-04: its intents are held as `auth`; they do not wait for a channel that never comes."""
        made = channel(device_id=None)
        made.adapter.learn(whoami(status, errcode=errcode))
        assert made.adapter.ready
        assert "device" not in made.credential

    @pytest.mark.parametrize("answer", [Answer(502, {}, b"<html>"), Answer(401, {}, b"<html>"), Answer(200, {}, b"{}")])
    def test_an_answer_that_says_nothing_changes_nothing(self, answer: Answer) -> None:
        """REC-11: a proxy's page names no device."""
        made = channel()
        made.adapter.learn(answer)
        assert not made.adapter.ready

    @pytest.mark.parametrize(
        ("said", "wrong"),
        [
            ({"user_id": "@eve:example.org", "device_id": "BOT"}, "@eve:example.org"),
            ({"user_id": "@bot:example.org", "device_id": "TWO"}, "TWO"),
            ({"user_id": "@bot:example.org"}, "without a device"),
        ],
    )
    def test_somebody_elses_token_is_refused(self, said: dict[str, str], wrong: str) -> None:
        """CAP-6, SC-04: its window would be another's; the error names what is wrong and never the token."""
        made = channel()
        with pytest.raises(InvalidConfig, match=wrong) as refusal:
            made.adapter.learn(whoami(**said))
        assert not made.adapter.ready
        assert TOKEN not in str(refusal.value)

    @pytest.mark.parametrize("user_id", ["bot", "@bot", "bot:example.org", "@bot: example.org", ""])
    def test_a_user_id_is_needed(self, user_id: str) -> None:
        """CAP-6: it is part of what the window belongs to."""
        with pytest.raises(InvalidConfig, match="user id"):
            MatrixChannel("https://example.org", user_id=user_id, token=TOKEN)

    def test_the_token_is_in_the_header_alone(self) -> None:
        """It is in nothing that is printed, recorded or digested."""
        made = channel()
        (unit,) = render("hi").units
        request = made.adapter.build(unit, context(ROOM))
        assert made.adapter.authorize(request) == {"authorization": f"Bearer {TOKEN}"}
        printed = f"{made!r} {made.adapter!r} {request!r} {vars(made)}"
        assert TOKEN not in printed
        assert TOKEN.encode() not in made.request_bytes(unit, context(ROOM))

    def test_a_homeserver_that_is_down_is_asked_again(self) -> None:
        """REC-11, SC-23: not ready, asked with growing waits, and quiet after `close`."""
        waits: list[float] = []

        async def run() -> bool:
            enough = asyncio.Event()

            async def pause(seconds: float) -> None:
                waits.append(seconds)
                if len(waits) == 7:
                    enough.set()
                    await asyncio.Event().wait()

            with socket.socket() as taken:
                taken.bind(("127.0.0.1", 0))  # and never listening: refused
                url = f"http://127.0.0.1:{taken.getsockname()[1]}"
                made = MatrixChannel(url, user_id="@bot:example.org", token=TOKEN, pause=pause)
                await made.open()
                await asyncio.wait_for(enough.wait(), 10)
                ready = made.ready
                await made.close()
            assert asyncio.all_tasks() == {asyncio.current_task()}
            return ready

        assert asyncio.run(run()) is False
        assert waits == [1.0, 2.0, 5.0, 10.0, 30.0, 30.0, 30.0]
