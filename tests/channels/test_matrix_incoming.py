"""A Matrix event in our words, and what a sync may answer: pure, hostile shapes included."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgledger.adapters.exchange import Answer, Request
from msgledger.adapters.matrix import MatrixAdapter
from msgledger.adapters.receiving import Ignored, Incoming, Polled, Polls, ReadsOn, Receives
from msgledger.ledger.limits import POLL_REQUESTS_MAX
from msgledger.ledger.outcome import FailureClass, Rejected, Unknown

ME = "@bot:example.org"
EVENT = {
    "event_id": "$e1",
    "type": "m.room.message",
    "room_id": "!r:example.org",
    "sender": "@ann:example.org",
    "origin_server_ts": 7,
    "content": {"msgtype": "m.text", "body": "hi"},
}


def adapter() -> MatrixAdapter:
    return MatrixAdapter("https://example.org", user_id=ME, token="t", device_id="BOT", name="matrix", account=None)


def read(content: dict[str, Any] | None = None, **more: Any) -> Incoming | Ignored:
    event: dict[str, Any] = {**EVENT, **more}
    return adapter().normalize(event if content is None else {**event, "content": content})


def heard(content: dict[str, Any], **more: Any) -> Incoming:
    found = read(content, **more)
    assert isinstance(found, Incoming), found
    return found


def test_the_adapter_receives() -> None:
    """ADP-3: by polling, with further requests."""
    for protocol in (Receives, Polls, ReadsOn):
        assert isinstance(adapter(), protocol)
    assert adapter().dedupe_key(EVENT) == "$e1"


@pytest.mark.parametrize(
    ("spoken", "content"),
    [
        (False, {"body": "hi"}),
        (False, {"body": f"{ME}.au said so"}),
        (True, {"body": f"hi {ME}"}),
        (True, {"body": f"hi {ME}, there"}),
        (False, {"body": f"hi {ME}", "m.mentions": {}}),
        (True, {"body": "hi", "m.mentions": {"user_ids": [ME]}}),
        (True, {"body": "hi", "m.mentions": {"room": True}}),
        (False, {"body": "hi", "m.mentions": {"user_ids": ["@other:example.org"], "room": 1}}),
        (
            True,
            {
                "body": "hi",
                "format": "org.matrix.custom.html",
                "formatted_body": f'<a href="https://matrix.to/#/{ME}">B</a>',
            },
        ),
    ],
)
def test_who_is_spoken_to(spoken: bool, content: dict[str, Any]) -> None:
    """CH-5, RCV-6: the mentions decide, and our whole id in the text where a client has none."""
    assert heard({"msgtype": "m.text", **content}).addressed is spoken
    assert heard({"msgtype": "m.text", **content}, direct=True).addressed


def test_the_quote_of_an_answer_is_taken_off_and_other_quotes_stay() -> None:
    """CH-5: older clients repeat what they answer, and that names us where it was ours."""
    quoted = f"> <{ME}> the build\n> is green\n\nthanks"
    answer = {"m.in_reply_to": {"event_id": "$e0"}}
    found = heard({"msgtype": "m.text", "body": quoted, "m.relates_to": answer})
    assert (found.message.text, found.addressed) == ("thanks", True)
    own = heard({"msgtype": "m.text", "body": "> a line\nmine", "m.relates_to": answer})
    assert own.message.text == "> a line\nmine"


def test_files_are_named_and_not_fetched() -> None:
    """CH-5: with a caption where there is one; a notice is a bot's."""
    content = {"msgtype": "m.image", "body": "a.png", "url": "mxc://h/1", "info": {"mimetype": "image/png", "size": 5}}
    found = heard(content)
    [file] = found.message.attachments
    assert (file.name, file.kind, file.url, file.media_type, file.size) == (
        "a.png",
        "image",
        "mxc://h/1",
        "image/png",
        5,
    )
    assert found.message.body is None
    captioned = heard({**content, "filename": "a.png", "body": "look"})
    assert (captioned.message.text, captioned.message.attachments[0].name) == ("look", "a.png")
    assert heard({"msgtype": "m.notice", "body": "beep"}).source.is_bot


@pytest.mark.parametrize(
    ("what", "event"),
    [
        ("redacted", {"content": {}}),
        ("m.location", {"content": {"msgtype": "m.location", "body": "here"}}),
        ("an edit", {"content": {"msgtype": "m.text", "body": "x", "m.relates_to": {"rel_type": "m.replace"}}}),
        ("encrypted", {"type": "m.room.encrypted"}),
        ("a redaction", {"type": "m.room.redaction"}),
        ("m.sticker", {"type": "m.sticker"}),
    ],
)
def test_what_is_no_message_is_named(what: str, event: dict[str, Any]) -> None:
    """CH-5: and starts no turn."""
    found = read(**event)
    assert isinstance(found, Ignored) and what in found.what


def answer(body: Any, status: int = 200) -> Answer:
    return Answer(status, {}, msgspec.json.encode(body))


def synced(**timeline: Any) -> dict[str, Any]:
    room = {"timeline": {"events": [EVENT], **timeline}, "summary": {"m.joined_member_count": 3}}
    return {"next_batch": "s2", "rooms": {"join": {"!r:example.org": room}}}


def test_a_gap_that_is_too_long_is_told_and_not_waited_for() -> None:
    """CH-5, SC-55: the newest of it is read, and an event of its own says that some was left out."""
    plat = adapter()
    answers = [answer(synced(limited=True, prev_batch="t0")), answer({}, 404)]
    found = plat.parse_poll("s1", answers[0])
    assert isinstance(found, Request) and found.path.endswith("/account_data/m.direct")
    for number in range(POLL_REQUESTS_MAX):
        found = plat.parse_more("s1", answers)
        assert isinstance(found, Request), number
        query = dict(found.query)
        assert (query["dir"], query["from"], query["to"]) == ("b", f"t{number}", "s1")
        answers.append(answer({"chunk": [{**EVENT, "event_id": f"$old{number}"}], "end": f"t{number + 1}"}))
    done = plat.parse_more("s1", answers)
    assert isinstance(done, Polled) and done.cursor == "s2"
    gap, *others = done.arrivals
    told = plat.normalize(gap.event)
    assert isinstance(told, Ignored) and told.what.startswith("a gap")
    assert plat.dedupe_key(gap.event).startswith("msgledger.gap:")
    assert [one.event["event_id"] for one in others[-2:]] == ["$old0", "$e1"]
    assert len(others) == POLL_REQUESTS_MAX + 1


def test_nothing_is_taken_note_of_before_a_poll_is_whole() -> None:
    """SC-55: a further request that fails has the whole poll asked again."""
    plat = adapter()
    first = answer(synced(limited=True, prev_batch="t0"))
    refused = plat.parse_more("s1", [first, answer({"errcode": "M_LIMIT_EXCEEDED", "retry_after_ms": 900}, 429)])
    assert isinstance(refused, Rejected) and (refused.failure, refused.retry_after_s) == (FailureClass.RATE_LIMIT, 0.9)
    assert isinstance(plat.parse_more("s1", [first, answer({}, 404), answer("?", 502)]), Unknown)
    again = plat.parse_poll("s1", first)
    assert isinstance(again, Request) and again.path.endswith("m.direct"), "it was not learned"


def test_the_first_sync_hands_nothing_over() -> None:
    """CH-5: it says where the present is."""
    plat = adapter()
    asked = plat.poll(None, 25.0)
    assert dict(asked.query)["timeout"] == "0" and "since" not in dict(asked.query)
    found = plat.parse_more(None, [answer(synced()), answer({}, 404)])
    assert found == Polled((), "s2")
    assert dict(plat.poll("s2", 25.0).query)["since"] == "s2"


@pytest.mark.parametrize(
    ("failure", "status", "body"),
    [
        (FailureClass.AUTH, 401, {"errcode": "M_UNKNOWN_TOKEN"}),
        (FailureClass.PERMISSION, 403, {"errcode": "M_FORBIDDEN"}),
        (FailureClass.INVALID_PAYLOAD, 400, {"errcode": "M_UNKNOWN"}),
        (None, 401, {}),
        (None, 500, {"errcode": "M_UNKNOWN"}),
        (None, 200, {}),
        (None, 200, []),
    ],
)
def test_what_a_sync_may_be_answered_with(failure: FailureClass | None, status: int, body: Any) -> None:
    """FAIL-10: a refusal only with its code; anything else says nothing."""
    found = adapter().parse_poll("s1", answer(body, status))
    assert isinstance(found, Unknown if failure is None else Rejected)
    assert failure is None or found.failure is failure  # type: ignore[union-attr]


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6) | st.sampled_from(["m.text", "m.replace", "join"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["msgtype", "body", "m.relates_to", "m.mentions", "user_ids", "info", "events", "timeline"])
            | st.text(max_size=4),
            inner,
            max_size=4,
        )
    ),
    max_leaves=10,
)


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(st.sampled_from([*EVENT, "unsigned", "direct"]), VALUES))
def test_whatever_an_event_holds_it_is_read_or_refused(changes: dict[str, Any]) -> None:
    """CH-5, ADP-3: never another error than `ValueError`."""
    try:
        assert isinstance(read(**changes), Incoming | Ignored)
        assert adapter().dedupe_key({**EVENT, **changes})
    except ValueError:
        pass


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.sampled_from(["rooms", "account_data", "join"]), VALUES), VALUES, VALUES)
def test_whatever_a_homeserver_answers_it_is_read(body: dict[str, Any], room: Any, second: Any) -> None:
    """CH-5, FAIL-10: nothing is raised over the shape of an answer."""
    whole = {"next_batch": "s2", "rooms": {"join": {"!r:e": room}, "invite": {"!i:e": second}}, **body}
    for answers in ([answer(whole)], [answer(whole), answer(second)], [answer(whole), answer({}, 404), answer(second)]):
        assert isinstance(adapter().parse_more("s1", answers[:1]), Polled | Request | Unknown)
        first = adapter().parse_poll("s1", answers[0])
        if isinstance(first, Request) and len(answers) > 1:
            assert isinstance(adapter().parse_more("s1", answers[:2]), Polled | Request | Unknown)
