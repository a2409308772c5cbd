"""Where a message came from, and the key that the conversation is known by. Pure, and without any platform's rules."""

from __future__ import annotations

from typing import Literal

from .message import Value

ChatKind = Literal["dm", "group", "channel", "thread"]


class SessionSource(Value, frozen=True, gc=False):
    """Who spoke, and where. `chat`, `sender` and `sender_alt` are canonical: the channel's `normalize` makes them so.

    Names are for people and never part of an identity.
    """

    platform: str
    kind: ChatKind
    chat: str | None = None
    thread: str | None = None
    scope: str | None = None
    """Workspace, guild or tenant."""
    sender: str | None = None
    sender_alt: str | None = None
    """A stable alternative id of the sender, which wins over `sender`."""
    chat_name: str | None = None
    sender_name: str | None = None
    is_bot: bool = False
    message_id: str | None = None
    profile: str | None = None
