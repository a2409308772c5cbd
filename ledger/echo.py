"""Whether what a bot says is the echo of a gateway's own failure, and how often bots may answer each other. Pure.

It goes by the tag, never by the text: the same words without the tag are a bot's like any other.
"""

from __future__ import annotations

from typing import Final

import msgspec

from .errors import InvalidConfig
from .limits import BOT_PAIR_TURNS, BOT_PAIR_WINDOW_S, FUSE_TURNS_PER_MINUTE
from .origin import DROP_BOT_ROOM_ECHO, FAILURE, SPELLINGS, SYSTEM, Origin
from .source import ChatKind

ROOM_LIKE: Final = frozenset[ChatKind](("group", "channel", "thread"))


def is_echo(*, bot: bool, place: ChatKind, origin: Origin) -> bool:
    """The one predicate: a bot, in a place that is like a room, with our tag, of a failure, whose policy says so."""
    return (
        bot
        and place in ROOM_LIKE
        and origin.known
        and origin.source in SPELLINGS
        and origin.kind == FAILURE
        and origin.echo_policy == DROP_BOT_ROOM_ECHO
    )


def is_operational(*, bot: bool, origin: Origin) -> bool:
    """A bot's message that says of itself that it is a system's output, which is no input to anybody."""
    return bot and origin.known and origin.source == SYSTEM


def same_words(one: str | None, other: str) -> bool:
    """Whether two texts read the same, whatever a platform made of their spaces and line ends."""
    return one is not None and one.split() == other.split()


class BotPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How much of bots a gateway answers; None: without bound. People are never counted, and never cut off."""

    pair_turns: int | None = BOT_PAIR_TURNS
    """So many turns one bot may cause in one place, until a person says something there."""
    pair_window_s: float = BOT_PAIR_WINDOW_S
    """How long a turn counts."""
    fuse_turns_per_minute: int | None = FUSE_TURNS_PER_MINUTE
    """More messages of bots a minute in one place blow its fuse. Once there are fewer, it is whole again."""

    def check(self) -> None:
        """Raises `InvalidConfig`."""
        for name, value in (("pair_turns", self.pair_turns), ("fuse_turns_per_minute", self.fuse_turns_per_minute)):
            if value is not None and value < 0:
                raise InvalidConfig(f"bots: {name} is {value}: give 0 or more, or None for no bound")
        if not 0 < self.pair_window_s < float("inf"):
            raise InvalidConfig(f"bots: pair_window_s is {self.pair_window_s}: give a number of seconds above 0")


BOTS: Final = BotPolicy()
"""What a gateway has that says nothing of bots."""
