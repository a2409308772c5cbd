"""What people write to a bot, in our words; and that no update, of whatever form, does more than be refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgledger.adapters.receiving import Hooked, Ignored, Incoming, Polled, Polls, Receives, Refused
from msgledger.adapters.telegram import TelegramAdapter, TelegramChannel
from msgledger.ledger.codec import as_json
from msgledger.ledger.errors import InvalidConfig
from msgledger.ledger.message import NO_RELATION, Origin, Reply
from msgledger.ledger.outcome import Rejected, Unknown
from msgledger.ledger.source import session_key

from .telegram_kit import SECRET, TOKEN, accepted, answer, offline, refusal

ANN = {"id": 42, "is_bot": False, "first_name": "Ann", "last_name": "Lee", "username": "ann"}
PRIVATE = {"id": 42, "type": "private", "first_name": "Ann"}
FORUM = {"id": -1001234567890, "type": "supergroup", "title": "Ops", "is_forum": True}
OURS = {"message_id": 3, "from": {"id": 424242, "is_bot": True}, "chat": FORUM, "text": "we"}


def update(
    text: str | None = "hi", chat: dict[str, Any] = PRIVATE, kind: str = "message", **more: Any
) -> dict[str, Any]:
    message = {"message_id": 9, "from": ANN, "chat": chat, "date": 1_700_000_000, **more}
    return {"update_id": 77, kind: message if text is None else {**message, "text": text}}


def incoming(event: dict[str, Any], **more: Any) -> Incoming:
    found = offline(username="our_bot", **more).normalize(event)
    assert isinstance(found, Incoming), found
    return found


def entity(text: str, part: str, type_: str, **more: Any) -> dict[str, Any]:
    at = len(text[: text.index(part)].encode("utf-16-le")) // 2
    return {"type": type_, "offset": at, "length": len(part.encode("utf-16-le")) // 2, **more}


def test_a_channel_receives() -> None:
    """ADP-1: it has what the core and the drivers ask for; with a webhook's secret it does not poll."""
    channel = TelegramChannel(TOKEN)
    assert isinstance(channel, Receives) and channel.ack_policy == "after_record"
    assert isinstance(channel.adapter, Polls) and isinstance(channel.adapter, Hooked)
    assert channel.adapter.poll_acknowledges is True
    assert hasattr(channel, "receive") and hasattr(channel, "verify") and hasattr(channel, "unpack")
    assert not hasattr(TelegramChannel(TOKEN, webhook_secret="s"), "receive")
    assert hasattr(TelegramChannel(TOKEN, webhook_secret="s", polling=True), "receive")


class TestMessages:
    """CH-1: where it came from by numbers alone, who wrote it, what it answers, and whether it speaks to us."""

    def test_a_private_message(self) -> None:
        found = incoming(update())
        message, source = found.message, found.source
        assert (message.text, message.id, message.sender, message.direction) == ("hi", "9", "42", "inbound")
        assert message.timestamp == 1_700_000_000_000
        assert (message.target.kind, message.target.channel, message.target.id) == ("direct", "telegram", "42")
        assert (source.kind, source.chat, source.sender, source.sender_name) == ("dm", "42", "42", "Ann Lee")
        assert (found.own, found.addressed, source.is_bot) == (False, True, False)
        assert message.origin == Origin("user") and message.relation == NO_RELATION
        assert session_key(source) == "agent:main:telegram:dm:42"

    def test_a_topic(self) -> None:
        """A topic is a thread of its group; a number that only groups the answers to a message is none."""
        topic = {"message_thread_id": 17585, "is_topic_message": True}
        begun = {"message_id": 17585, "chat": FORUM, "forum_topic_created": {"name": "x"}, "from": ANN}
        found = incoming(update(chat=FORUM, **topic, reply_to_message=begun))
        assert (found.message.target.kind, found.message.target.thread) == ("group", "17585")
        assert session_key(found.source) == "agent:main:telegram:group:-1001234567890:thread=17585"
        assert found.message.relation == NO_RELATION
        assert incoming(update(chat=FORUM, message_thread_id=5)).source.thread is None

    def test_a_reply_with_its_quote(self) -> None:
        found = incoming(update(chat=FORUM, reply_to_message=OURS, quote={"text": "w", "position": 0}))
        assert found.message.relation == Reply(reply_to="3", quote="w")

    def test_a_channel_post(self) -> None:
        post = update(chat={"id": -100777, "type": "channel", "title": "News"}, kind="channel_post")
        del post["channel_post"]["from"]
        post["channel_post"]["sender_chat"] = {"id": -100777, "type": "channel", "title": "News"}
        found = incoming(post)
        assert (found.source.kind, found.message.target.kind, found.source.sender) == ("channel", "channel", "-100777")

    def test_an_anonymous_administrator_is_no_bot(self) -> None:
        known = {"from": {"id": 1087968824, "is_bot": True, "first_name": "Group"}, "sender_chat": FORUM}
        found = incoming(update(chat=FORUM, **known))
        assert (found.source.sender, found.source.is_bot) == ("-1001234567890", False)

    def test_a_bot_and_ourselves(self) -> None:
        bot = incoming(update(chat=FORUM, **{"from": {"id": 5, "is_bot": True, "first_name": "B"}}))
        assert bot.source.is_bot and not bot.own and bot.message.origin == Origin("external_bot")
        assert incoming(update(chat=FORUM, **{"from": {"id": 424242, "is_bot": True}})).own

    def test_files_are_named(self) -> None:
        """Files by their names and ids, the largest of a photo's sizes, nothing fetched."""
        sizes = [
            {"file_id": f"f{n}", "file_unique_id": f"u{n}", "file_size": n, "width": 1, "height": 1} for n in (1, 9, 4)
        ]
        found = incoming(update(None, photo=sizes, caption="look", media_group_id="g"))
        (photo,) = found.message.attachments
        assert (found.message.text, photo.name, photo.kind, photo.size) == ("look", "photo.jpg", "image", 9)
        assert found.message.raw == {
            "telegram": {"files": [{"file_id": "f9", "file_unique_id": "u9"}], "media_group_id": "g"}
        }
        document = {"file_id": "d", "file_name": "a/../b.pdf", "mime_type": "application/pdf", "file_size": 3}
        (file,) = incoming(update(None, document=document)).message.attachments
        assert (file.name, file.media_type, file.is_file) == ("a/../b.pdf", "application/pdf", False)

    def test_a_forwarded_message(self) -> None:
        found = incoming(update(forward_origin={"type": "user", "sender_user": ANN, "date": 1}))
        assert found.message.raw == {"telegram": {"forwarded": "user"}}

    def test_a_button(self) -> None:
        """What it carries is what was said, under the message that it stands on; the query's id goes along."""
        pressed = {"id": "4382", "from": ANN, "message": {**OURS, "message_id": 3}, "data": "yes", "chat_instance": "1"}
        found = incoming({"update_id": 1, "callback_query": pressed})
        assert (found.message.text, found.message.id, found.message.sender) == ("yes", "3", "42")
        assert found.message.relation == Reply(reply_to="3") and found.addressed and not found.own
        assert found.message.raw == {"telegram": {"callback_query_id": "4382"}}

    @pytest.mark.parametrize(
        ("event", "what"),
        [
            ({"update_id": 1, "edited_message": update()["message"]}, "edit"),
            ({"update_id": 1, "my_chat_member": {}}, "our own membership"),
            ({"update_id": 1, "of_next_year": {}}, "another kind of update"),
            (update(None, new_chat_members=[ANN]), "new_chat_members"),
            (update(None, migrate_to_chat_id=-1005), "migrate_to_chat_id"),
            (update(None, location={"latitude": 1, "longitude": 2}), "location"),
            (update(None, of_next_year={}), "a message without text"),
            (
                {"update_id": 1, "callback_query": {"id": "1", "from": ANN, "inline_message_id": "x", "data": "y"}},
                "a button of an inline message",
            ),
            (
                {"update_id": 1, "callback_query": {"id": "1", "from": ANN, "game_short_name": "x"}},
                "a button without data",
            ),
        ],
    )
    def test_what_starts_no_turn(self, event: dict[str, Any], what: str) -> None:
        assert offline().normalize(event) == Ignored(what)

    @pytest.mark.parametrize(
        ("text", "entities", "addressed"),
        [
            ("hello all", [], False),
            ("🙂 hello @Our_Bot", ["🙂 hello @Our_Bot", "@Our_Bot", "mention"], True),
            ("hello @our_bot_2", ["hello @our_bot_2", "@our_bot_2", "mention"], False),
            ("hello @our_bot", [], False),
            ("/start", ["/start", "/start", "bot_command"], True),
            ("/start@our_bot x", ["/start@our_bot x", "/start@our_bot", "bot_command"], True),
            ("/start@other_bot", ["/start@other_bot", "/start@other_bot", "bot_command"], False),
        ],
    )
    def test_whether_it_speaks_to_us(self, text: str, entities: list[str], addressed: bool) -> None:
        """In a group: named, answered, or commanded; counted in UTF-16, by what the platform says is a mention."""
        found = [entity(*entities)] if entities else []
        assert incoming(update(text, chat=FORUM, entities=found)).addressed is addressed
        assert incoming(update(text, entities=found)).addressed is True

    def test_an_answer_to_us_and_a_mention_without_a_name(self) -> None:
        assert incoming(update(chat=FORUM, reply_to_message=OURS)).addressed
        theirs = {**OURS, "from": ANN}
        assert not incoming(update(chat=FORUM, reply_to_message=theirs)).addressed
        named = [entity("hi Bot", "Bot", "text_mention", user={"id": 424242, "is_bot": True})]
        assert incoming(update("hi Bot", chat=FORUM, entities=named)).addressed

    def test_the_name_is_learned(self) -> None:
        """CH-1: until the server has said how the bot is called, a mention is nobody's."""
        adapter = offline()
        event = update("@a_bot", chat=FORUM, entities=[entity("@a_bot", "@a_bot", "mention")])
        assert not _addressed(adapter, event)
        adapter.learn(accepted({"id": 424242, "is_bot": True, "username": "A_Bot"}))
        assert _addressed(adapter, event)


def _addressed(adapter: TelegramAdapter, event: dict[str, Any]) -> bool:
    found = adapter.normalize(event)
    assert isinstance(found, Incoming)
    return found.addressed


class TestWhoItIs:
    """SC-04, FAIL-4: ready when the server has said who the bot is, or that the token is void."""

    def test_a_void_token_is_known(self) -> None:
        for found in (refusal(401, "Unauthorized"), refusal(404, "Not Found")):
            adapter = offline()
            adapter.learn(found)
            assert adapter.ready

    def test_what_says_nothing_changes_nothing(self) -> None:
        for found in (
            answer(404, b"not found"),
            refusal(500, "Internal"),
            answer(200, b"{}"),
            refusal(429, "Too Many"),
        ):
            adapter = offline()
            adapter.learn(found)
            assert not adapter.ready

    def test_another_bot(self) -> None:
        with pytest.raises(InvalidConfig, match="it is another"):
            offline().learn(accepted({"id": 5, "username": "a_bot"}))

    @pytest.mark.parametrize(
        ("more", "why"),
        [
            ({"token": SECRET}, "bot token of another form"),
            ({"base_url": f"https://api.example/bot{TOKEN}"}, "token in its base URL"),
            ({"username": "no name"}, "username 'no name'"),
            ({"webhook_secret": "with space"}, "webhook secret of another form"),
            ({"webhook_secret": ""}, "webhook secret of another form"),
        ],
    )
    def test_a_wrong_setting_is_named_without_the_secret(self, more: dict[str, Any], why: str) -> None:
        with pytest.raises(InvalidConfig, match=why) as refused:
            TelegramChannel(**{"token": TOKEN, **more})
        assert SECRET not in str(refused.value)


class TestPolls:
    """ACKK-2: the offset is what tells the platform that it may forget."""

    def test_what_is_asked(self) -> None:
        first, later = offline().poll(None, 25.7), offline().poll("78", 900.0)
        assert (first.method, first.path) == ("POST", "/getUpdates")
        assert json.loads(first.body)["timeout"] == 25 and "offset" not in json.loads(first.body)
        assert (json.loads(later.body)["offset"], json.loads(later.body)["timeout"]) == (78, 50)
        assert "message" in json.loads(first.body)["allowed_updates"]

    def test_what_came(self) -> None:
        """RCV-3: each update with the offset behind it; one without a number is handed over, and confirmed later."""
        odd = {"message": {}}
        found = offline().parse_poll("77", accepted([update(), odd, {**update(), "update_id": 80}]))
        assert isinstance(found, Polled)
        assert [(arrival.event.get("update_id"), arrival.cursor) for arrival in found.arrivals] == [
            (77, "78"),
            (None, None),
            (80, "81"),
        ]
        assert found.cursor == "81"
        assert offline().parse_poll("81", accepted([])) == Polled()
        assert offline().dedupe_key(update()) == "77"

    @pytest.mark.parametrize(
        ("found", "code", "way"),
        [
            (
                refusal(409, "Conflict: can't use getUpdates method while webhook is active; use deleteWebhook"),
                "webhook_set",
                "take it away",
            ),
            (
                refusal(
                    409, "Conflict: terminated by other getUpdates request; make sure that only one bot instance is"
                ),
                "second_poller",
                "let one process",
            ),
            (refusal(401, "Unauthorized"), "bad_token", "check it"),
        ],
    )
    def test_why_nothing_comes(self, found: Any, code: str, way: str) -> None:
        """CH-1: said with the way out."""
        refused = offline().parse_poll(None, found)
        assert isinstance(refused, Rejected)
        assert refused.code == code and way in refused.detail

    @pytest.mark.parametrize(
        "found", [answer(200, b"x"), accepted({}), accepted(["x"]), answer(502, b"x"), accepted(None)]
    )
    def test_what_is_no_list_is_asked_again(self, found: Any) -> None:
        assert isinstance(offline().parse_poll("5", found), Unknown)


class TestHooks:
    """RCV-5, CH-1: only who knows the secret is heard."""

    @pytest.mark.parametrize("given", [None, "", "our-secret_2", "OUR-SECRET_1", "our-secret_1 ", "ünïcode", "\udcff"])
    def test_without_the_secret(self, given: str | None) -> None:
        headers = {} if given is None else {"x-telegram-bot-api-secret-token": given}
        with pytest.raises(Refused) as refused:
            offline(webhook_secret="our-secret_1").verify(headers, b"{}", 0)
        assert refused.value.status == 401 and "our-secret_1" not in refused.value.detail

    def test_with_it(self) -> None:
        headers = {"x-telegram-bot-api-secret-token": "our-secret_1"}
        offline(webhook_secret="our-secret_1").verify(headers, b"{}", 0)
        with pytest.raises(Refused, match="no webhook secret") as refused:
            offline().verify(headers, b"{}", 0)
        assert refused.value.status == 403

    def test_what_is_unpacked(self) -> None:
        assert offline().unpack({}, json.dumps(update()).encode()) == (update(),)
        for body in (b"", b"[]", b"{", b"1", b"[" * 100_000, b"\xff", b'{"a": "\\ud800"}'):
            with pytest.raises(Refused) as refused:
                offline().unpack({}, body)
            assert refused.value.status == 400


WILD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6) | st.just(10**300),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
FIELDS = [
    *("message_id", "from", "chat", "date", "text", "caption", "entities", "photo", "document", "sticker", "voice"),
    *("reply_to_message", "quote", "sender_chat", "message_thread_id", "is_topic_message", "forward_origin"),
    *("new_chat_members", "media_group_id", "caption_entities"),
]
GOOD = update("🙂 @our_bot", chat=FORUM, entities=[entity("🙂 @our_bot", "@our_bot", "mention")], reply_to_message=OURS)


@given(
    kind=st.sampled_from(["message", "channel_post", "callback_query", "edited_message", "poll"]),
    bent=st.dictionaries(st.sampled_from(FIELDS), WILD, max_size=4),
    inner=st.tuples(
        st.sampled_from(["from", "chat", "reply_to_message"]), st.sampled_from(["id", "type", "message_id"]), WILD
    ),
    whole=WILD,
    id=WILD,
)
def test_no_update_does_harm(kind: str, bent: dict[str, Any], inner: Any, whole: Any, id: Any) -> None:
    """CH-1, FAIL-10: a message, something that starts no turn, or a ValueError never more."""
    adapter = offline(username="our_bot")
    message = {**GOOD["message"], **bent}
    of, field, value = inner
    if isinstance(message.get(of), dict):
        message[of] = {**message[of], field: value}
    pressed = {"id": "1", "from": ANN, "message": message, "data": "x", **bent}
    for event in ({"update_id": id, kind: message}, {kind: whole, "update_id": id}, {"callback_query": pressed}):
        for read in (adapter.dedupe_key, adapter.normalize):
            found = _read(read, event)
            assert isinstance(found, str | Ignored | Incoming)
            if isinstance(found, Incoming):
                assert session_key(found.source) and found.message.id
                as_json(found)


def _read(read: Any, event: dict[str, Any]) -> Any:
    try:
        return read(event)
    except ValueError as error:
        return str(error)[:200]
