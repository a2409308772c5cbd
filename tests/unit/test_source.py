"""Session keys: what leads to one conversation, and that nothing else does."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgledger.ledger.errors import UnroutableSource
from msgledger.ledger.pseudonym import Pseudonyms
from msgledger.ledger.safe import check_session_key
from msgledger.ledger.source import (
    KeyParts,
    SessionSource,
    escape,
    hash_chat,
    hash_id,
    key_parts,
    session_key,
    shown_key,
)

NAMES = Pseudonyms(b"s" * 32)


def source(platform: str, kind: Any, chat: str | None = None, **more: Any) -> SessionSource:
    return SessionSource(platform, kind, chat=chat, **more)


@pytest.mark.parametrize(
    ("came_from", "knobs", "key"),
    [
        # SK-1
        (source("telegram", "dm", "99", sender="7"), {}, "telegram:dm:99"),
        (source("telegram", "dm", "99", sender="8"), {}, "telegram:dm:99"),
        # SK-2
        (source("telegram", "dm", "99", thread="t1"), {}, "telegram:dm:99:thread=t1"),
        # SK-3
        (source("telegram", "dm", sender="jordan"), {}, "telegram:dm::user=jordan"),
        # SK-4
        (source("telegram", "dm", sender="p", sender_alt="alt"), {}, "telegram:dm::user=alt"),
        # SK-6
        (source("local", "dm", "cli"), {}, "local:dm:cli"),
        # SK-7
        (source("discord", "group", "g"), {}, "discord:group:g"),
        # SK-8
        (source("discord", "group", "g", sender="alice"), {}, "discord:group:g:user=alice"),
        # SK-9
        (source("discord", "group", "g", sender="alice"), {"per_user": False}, "discord:group:g"),
        # SK-10
        (
            source("telegram", "group", "-100", thread="17585", sender="42"),
            {},
            "telegram:group:-100:thread=17585",
        ),
        # SK-11
        (
            source("telegram", "group", "-100", thread="17585", sender="42"),
            {"per_user_in_threads": True},
            "telegram:group:-100:thread=17585:user=42",
        ),
        # SK-12
        (
            source("slack", "channel", "C1", scope="T1", sender="U1"),
            {},
            "slack:channel:C1:scope=T1:user=U1",
        ),
        # SK-13
        (
            source("google_chat", "group", "spaces/A", thread="spaces/A/threads/h"),
            {},
            "google_chat:group:spaces/A:thread=spaces/A/threads/h",
        ),
    ],
)
def test_the_key_of_a_source(came_from: SessionSource, knobs: dict[str, bool], key: str) -> None:
    assert session_key(came_from, **knobs) == f"agent:main:{key}"


def test_a_profile_is_part_of_the_key() -> None:
    """SK-15: and none may be called what a source without one has."""
    assert session_key(source("telegram", "dm", "99", profile="coder")) == "agent:coder:telegram:dm:99"
    with pytest.raises(UnroutableSource, match="'main'"):
        session_key(source("telegram", "dm", "99", profile="main"))


@pytest.mark.parametrize(
    ("came_from", "said"),
    [
        (source("telegram", "dm"), "neither chat nor sender"),
        (source("telegram", "dm", "", sender=""), "neither chat nor sender"),
        (source("telegram", "group", sender="a"), "names no chat"),
        (source("", "dm", "99"), "names no platform"),
        (source("telegram", "dm", "9" * 600), "the most is 512"),
        (source("telegram", "dm", "\ud800"), "gives no key"),
    ],
)
def test_a_source_without_a_conversation_is_refused(came_from: SessionSource, said: str) -> None:
    """SK-5: strangers never share a session."""
    with pytest.raises(UnroutableSource, match=said):
        session_key(came_from)


def phone(chat: str) -> str:
    """What a channel's `normalize` does with the spellings of one number."""
    return chat.partition("@")[0].partition(":")[0].lstrip("+")


@pytest.mark.parametrize("chat", ["15551234567@s.whatsapp.net", "15551234567:47@s.whatsapp.net", "+15551234567"])
def test_several_spellings_of_one_number_are_one_conversation(chat: str) -> None:
    """SK-14: the channel makes them canonical, the key knows no platform."""
    assert session_key(source("whatsapp", "dm", phone(chat))) == "agent:main:whatsapp:dm:15551234567"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (source("x", "group", "a:b", thread="c"), source("x", "group", "a", thread="b:c")),
        (source("x", "group", "g", sender="55"), source("x", "group", "g", thread="55")),
        (source("x", "dm", "7"), source("x", "dm", sender="7")),
        (source("x", "dm", "7"), source("x", "dm", "7", thread="7")),
        (source("x", "channel", "C1", scope="T1"), source("x", "channel", "C1", scope="T2")),
        (source("x", "group", "g:user=a"), source("x", "group", "g", sender="a")),
        (source("x", "group", "g%3A"), source("x", "group", "g:")),
        (source("x", "dm", "main:x"), source("x:dm", "dm", "main")),
        (source("x", "dm", "Ann\u2026"), source("x", "dm", "Ann...")),
    ],
)
def test_different_sources_have_different_keys(one: SessionSource, other: SessionSource) -> None:
    """SK-16."""
    assert session_key(one) != session_key(other)


def test_new_names_and_devices_keep_the_key() -> None:
    """SK-17: names, the message and the bot flag are no identity."""
    before = source("signal", "group", "g", sender="+1555", sender_alt="uuid-1", chat_name="Ops", sender_name="Ann")
    after = source("signal", "group", "g", sender="+1777", sender_alt="uuid-1", chat_name="Ops 2", message_id="m2")
    assert session_key(before) == session_key(after)


pieces = st.text(st.sampled_from("ab:=%.~/ \\\x00\n") | st.characters(codec="utf-8"), max_size=6)
maybe = st.none() | pieces
sources = st.builds(
    SessionSource,
    platform=st.sampled_from(("x", "x:y", "y")),
    kind=st.sampled_from(("dm", "group", "channel", "thread")),
    chat=maybe,
    thread=maybe,
    scope=maybe,
    sender=maybe,
    sender_alt=maybe,
)


@given(sources, sources)
def test_equal_keys_mean_equal_parts(one: SessionSource, other: SessionSource) -> None:
    """SK-16: over whatever ids a platform may think of; and every key is a safe one."""
    found: list[tuple[KeyParts, str]] = []
    for came_from in (one, other):
        try:
            found.append((key_parts(came_from), session_key(came_from)))
        except UnroutableSource:
            return
    (parts, key), (others, other_key) = found
    assert (parts == others) == (key == other_key)
    assert check_session_key(key) == key


@given(st.text(st.sampled_from("a. ") | st.sampled_from("\u2024\u2025\u2026\uff0e\u2488"), min_size=1, max_size=8))
def test_whatever_a_platform_calls_a_chat_can_be_a_key(chat: str) -> None:
    """SK-16, PS-2: signs that only read like dots are no climbing path, and no reason to drop a message."""
    assert check_session_key(session_key(source("x", "dm", chat)))


@given(pieces, pieces)
def test_escaping_keeps_two_components_apart(one: str, other: str) -> None:
    """SK-16."""
    assert (escape(one) == escape(other)) == (one == other)
    assert not set(escape(one)) & {":", "=", "\n", "\x00"}


def test_pseudonyms_without_a_secret_are_the_known_ones() -> None:
    """SK-16: 12 digits; a chat keeps what stands before its first colon."""
    assert hash_id("12345") == "5994471abb01"
    assert hash_chat("telegram:12345") == "telegram:5994471abb01"
    assert hash_chat("a:b:c") == "a:333edf7c3ca3"
    for id in (":12345", "!room:example.org", "15551234567:47@s.whatsapp.net"):
        assert hash_chat(id) == hash_id(id), "what may be a part of the id is hidden with it"


def test_what_is_shown_hides_chat_thread_workspace_and_people() -> None:
    """SK-8, SK-12: with the installation's secret, because a phone number's plain hash can be guessed."""
    came_from = source("slack", "channel", "C-secret", scope="T-secret", thread="th-secret", sender="U-secret")
    shown = shown_key(came_from, NAMES, threads=True)
    assert "secret" not in shown
    assert shown == (
        f"agent:main:slack:channel:{hash_id('C-secret', NAMES)}:scope={hash_id('T-secret', NAMES)}"
        f":thread={hash_id('th-secret', NAMES)}:user=user_{hash_id('U-secret', NAMES)}"
    )
    assert hash_id("12345", NAMES) != hash_id("12345")
    assert shown_key(source("x", "dm", sender="jordan"), NAMES).startswith("agent:main:x:dm::user=user_")
