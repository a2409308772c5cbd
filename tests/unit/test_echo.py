"""The predicate that drops an echo, over all its inputs, and what bounds there may be."""

from __future__ import annotations

from itertools import product

import pytest
from msgledger import BotPolicy, Origin
from msgledger.ledger.echo import is_echo, is_operational, same_words
from msgledger.ledger.errors import InvalidConfig
from msgledger.ledger.origin import decode
from msgledger.ledger.source import ChatKind

ROWS = list(product((True, False), repeat=5))
ROOMS: tuple[ChatKind, ...] = ("group", "channel", "thread")


def echo(bot: bool, room: bool, ours: bool, failure: bool, policy: bool, place: ChatKind = "group") -> bool:
    return is_echo(
        bot=bot,
        place=place if room else "dm",
        origin=Origin(
            "gateway" if ours else "external_bot",
            "gateway_failure" if failure else None,
            "missing_api_key",
            "drop_bot_room_echo" if policy else None,
        ),
    )


@pytest.mark.parametrize("row", ROWS, ids=lambda row: "".join("ft"[one] for one in row))
def test_the_truth_table(row: tuple[bool, ...]) -> None:
    """ECHO-1, TU-8: of 32 rows the one where all is true drops."""
    assert len(ROWS) == 32
    assert echo(*row) is (row == (True,) * 5)


@pytest.mark.parametrize("place", ROOMS)
def test_what_is_like_a_room(place: ChatKind) -> None:
    """ECHO-1: whatever the platform calls it."""
    assert echo(True, True, True, True, True, place)


def test_the_other_spelling_is_ours_too() -> None:
    """ECHO-1, ORG-2: read from a tag, or made by a channel's own function."""
    tag = {**(Origin.gateway_failure("missing_api_key").tag() or {}), "source": "openclaw"}
    made = Origin("openclaw", "gateway_failure", "missing_api_key", "drop_bot_room_echo")
    for origin in (decode(tag), made):
        assert origin is not None and is_echo(bot=True, place="group", origin=origin)


@pytest.mark.parametrize("changes", [{"version": 2}, {"more": 1}, {"code": "quota"}], ids=str)
def test_what_is_opaque_drops_nothing(changes: dict[str, object]) -> None:
    """ORG-2, ECHO-1: a tag of tomorrow is nobody's reason today."""
    tag = (Origin.gateway_failure("missing_api_key").tag() or {}) | changes
    origin = decode(tag)
    assert origin is not None and not is_echo(bot=True, place="group", origin=origin)
    future = Origin("gateway", "gateway_failure", "missing_api_key", "drop_bot_room_echo", version=2)
    assert not is_echo(bot=True, place="group", origin=future)


def test_a_systems_output() -> None:
    """SC-63: of a bot, in whatever place; a person who passes it on is a person."""
    assert is_operational(bot=True, origin=Origin.system())
    assert not is_operational(bot=False, origin=Origin.system())
    assert not is_operational(bot=True, origin=Origin.external_bot())
    assert not is_operational(bot=True, origin=Origin("system", version=2))


def test_words_are_compared_without_their_spaces() -> None:
    """SC-62: platforms trim and join lines."""
    assert same_words("a  b\n\nc ", "a b c")
    assert not same_words("a b", "ab")
    assert not same_words(None, "")


@pytest.mark.parametrize(
    "policy",
    [
        BotPolicy(pair_turns=-1),
        BotPolicy(fuse_turns_per_minute=-1),
        BotPolicy(pair_window_s=0),
        BotPolicy(pair_window_s=float("nan")),
        BotPolicy(pair_window_s=float("inf")),
    ],
    ids=str,
)
def test_a_bound_that_cannot_be_is_refused(policy: BotPolicy) -> None:
    """SC-61, SC-63: with its name and value."""
    with pytest.raises(InvalidConfig, match=r"bots: (pair_turns|fuse_turns_per_minute|pair_window_s) is "):
        policy.check()
    BotPolicy(pair_turns=None, fuse_turns_per_minute=0).check()
