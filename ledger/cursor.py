"""The polling cursor of one account and credential: how far the platform may forget. Pure."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from . import inbound_events as i
from .events import Event


class CursorState(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    id: str
    position: int
    head: int
    recorded_at: int
    updated_at: int
    key: str
    channel: str
    account: str
    credential: str
    cursor: str


def start(stream: str, event: i.CursorAdvanced, position: int, recorded_at: int) -> CursorState:
    return CursorState(
        id=stream,
        position=position,
        head=0,
        recorded_at=recorded_at,
        updated_at=recorded_at,
        key=event.key,
        channel=event.channel,
        account=event.account,
        credential=event.credential,
        cursor=event.cursor,
    )


def evolve(state: CursorState, event: Event, recorded_at: int) -> CursorState:
    state = replace(state, head=state.head + 1, updated_at=recorded_at)
    return replace(state, cursor=event.cursor) if isinstance(event, i.CursorAdvanced) else state
