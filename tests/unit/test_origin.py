"""Origins: made, written into metadata, read back, and kept as they came where they are not known."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgledger import Message, Origin, System, SystemReason, Target
from msgledger.ledger.origin import NO_ORIGIN, SOURCES, FailureCode, decode

CODES = get_args(FailureCode)
FAILURE = Origin.gateway_failure("missing_api_key")
TAG: dict[str, Any] = {
    "source": "gateway",
    "kind": "gateway_failure",
    "code": "missing_api_key",
    "echo_policy": "drop_bot_room_echo",
    "version": 1,
}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize("code", CODES)
def test_a_failure_of_each_code(code: Any) -> None:
    """ORG-2, TU-8: kind, code, policy and version, as a tag and back."""
    origin = Origin.gateway_failure(code)
    assert origin.tag() == {**TAG, "code": code}
    assert decode(origin.tag()) == origin
    assert origin.known and origin.fact() == origin


def test_there_are_three_codes() -> None:
    """ORG-2, TU-8: another one is refused with those that there are."""
    assert set(CODES) == {"agent_failed_before_reply", "missing_api_key", "model_login_expired"}
    with pytest.raises(ValueError, match=r"quota.*missing_api_key"):
        Origin.gateway_failure("quota")  # type: ignore[arg-type]


@pytest.mark.parametrize("names", [("version", "echo_policy"), ("schemaVersion", "echoPolicy")])
@pytest.mark.parametrize("source", ["gateway", "openclaw"])
def test_both_spellings_are_read(source: str, names: tuple[str, str]) -> None:
    """ORG-2: of the source, and of the names."""
    version, policy = names
    tag = {"source": source, "kind": TAG["kind"], "code": TAG["code"], policy: TAG["echo_policy"], version: 1}
    assert decode(tag) == FAILURE


@pytest.mark.parametrize("source", [source for source in SOURCES if source not in ("gateway", "unknown")])
def test_the_other_origins(source: str) -> None:
    """ORG-3, TU-8: each has its name and survives its tag."""
    origin = Origin.user() if source == "user" else Origin(source)
    assert decode(origin.tag()) == origin
    assert origin.known


def test_unknown_is_the_default() -> None:
    """ORG-3: of a message, and it leaves no tag."""
    assert Message.text("x", to=Target.group("plat", "g")).origin == NO_ORIGIN == Origin("unknown")
    assert NO_ORIGIN.tag() is None
    assert [Origin.user(), Origin.external_bot(), Origin.platform(), Origin.system()] == [
        *(Origin(source) for source in ("user", "external_bot", "platform", "system"))
    ]


@pytest.mark.parametrize(
    "changes",
    [
        {"version": 2},
        {"version": None},
        {"version": True},
        {"source": "somebody"},
        {"source": None},
        {"code": "quota"},
        {"code": None},
        {"kind": "gateway_joy"},
        {"echo_policy": "drop_everything"},
        {"severity": "high"},
    ],
    ids=str,
)
def test_what_is_not_known_is_kept_as_it_came(changes: dict[str, Any]) -> None:
    """ORG-2: whole, it goes out as it came in, nothing is concluded from it, and none of it is a fact."""
    tag = {**TAG, **changes}
    origin = decode(tag)
    assert origin is not None
    assert origin.opaque == tag == origin.tag()
    assert not origin.known
    assert origin.fact() == NO_ORIGIN
    again = msgspec.json.decode(msgspec.json.encode(origin), type=Origin)
    assert again == origin


@pytest.mark.parametrize("tag", [None, "gateway", 1, [], [TAG]])
def test_what_is_no_tag_is_none(tag: object) -> None:
    """ORG-3: and raises nothing."""
    assert decode(tag) is None


@given(st.dictionaries(st.sampled_from([*TAG, "schemaVersion", "echoPolicy", "x"]), JSON))
def test_any_tag_is_read_or_kept(tag: dict[str, Any]) -> None:
    """ORG-2, TU-8: whatever somebody sends: known and closed, or whole."""
    origin = decode(tag)
    assert origin is not None
    if origin.opaque is None:
        assert origin.source in SOURCES and origin.code in (None, *CODES)
    else:
        assert origin.opaque == tag


def test_facts_hold_nobodys_words() -> None:
    """ORG-2: also where a channel's own function fills the fields."""
    assert Origin("gateway", "Ann's phone", "555", "call her").fact() == Origin("gateway")
    assert Origin("Ann").fact() == NO_ORIGIN
    assert Origin("gateway", version=2).fact() == NO_ORIGIN


def test_origin_and_relation_are_two_fields() -> None:
    """ORG-1: an answer may be operational output, and a system's word a user's."""
    message = Message.text("x", to=Target.group("plat", "g"), relation=System(SystemReason.CRON), origin=Origin.user())
    again = msgspec.json.decode(msgspec.json.encode(message), type=Message)
    assert (again.relation, again.origin) == (System(SystemReason.CRON), Origin.user())
