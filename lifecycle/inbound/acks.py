"""Acknowledgements: who waits for the point at which a platform may be told that we have its event.

Four things are called so, and only two of them are a policy's to give: the transport's and the polling offset's. The
record of a message is the third; signs for people, a read mark or a typing notice, are the fourth and no point of
durability. Nothing here is durable: what was waited for is asked of the ledger again after a restart.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Mapping
from typing import Final, get_args
from weakref import WeakValueDictionary

from ...adapters.receiving import Taken
from ...adapters.surface import Channel
from ...ledger.errors import InvalidConfig, NotPossible, StoreOverloaded
from ...ledger.inbound import InboundState
from ...ledger.inbound_events import AckPolicy
from ...ledger.limits import ACKS_WAITING_MAX
from ...ledger.store.crash import crash_point

REASONS: Final = ("webhook-timeout", "platform-contract")
"""Why a platform may be told before anything is durable. There is no third reason."""
Choice = str | Mapping[str, str]
"""One policy for all channels, or one for each by name. `immediate` is said with its reason: `immediate:<reason>`."""


def chosen(ack: Choice | None, channel: Channel) -> AckPolicy | None:
    """What the gateway says of a channel; None: nothing. Raises `InvalidConfig`."""
    said = ack.get(channel.name) if isinstance(ack, Mapping) else ack
    if said is None:
        return None
    policy, _, reason = said.partition(":")
    if policy not in get_args(AckPolicy):
        raise InvalidConfig(
            f"ack {said!r} of channel {channel.name!r}: there is {', '.join(get_args(AckPolicy))},"
            f" the first with its reason, as in immediate:{REASONS[0]}"
        )
    if (policy == "immediate") != (reason in REASONS) or (reason and policy != "immediate"):
        raise InvalidConfig(
            f"ack {said!r} of channel {channel.name!r}: immediate, and only that, needs its reason:"
            f" {' or '.join(REASONS)}"
        )
    return policy  # pyright: ignore[reportReturnType]


class Done:
    """To be waited for by several, of whom none takes it from the others by giving up."""

    def __init__(self, future: asyncio.Future[None]) -> None:
        self._future = future

    def __await__(self) -> Generator[object, None, None]:
        return asyncio.shield(self._future).__await__()


class Acks:
    """Those of one gateway that wait. Whom nobody waits for any more is not kept."""

    def __init__(self) -> None:
        self._waiting: WeakValueDictionary[str, asyncio.Future[None]] = WeakValueDictionary()

    def streams(self) -> list[str]:
        return list(self._waiting)

    def taken(self, state: InboundState, *, repeated: bool) -> Taken:
        """What a driver is told. Raises `StoreOverloaded` where too many wait already."""
        done = self.done(state)
        return Taken(inbound=state.id, repeated=repeated, reached=done.done(), done=Done(done))

    def given_up(self, stream: str) -> Taken:
        """What a driver is told of an event that is known, and that nothing but a person can move."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return Taken(inbound=stream, repeated=True, reached=True, done=Done(done))

    def done(self, state: InboundState) -> asyncio.Future[None]:
        """Comes when the policy's point is durable: at once, or when `tell` hears of it."""
        known = self._waiting.get(state.id)
        if known is not None and state.acknowledged_at is None:
            return known
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if state.acknowledged_at is not None:
            crash_point("before-acknowledge")
            future.set_result(None)
            return future
        if len(self._waiting) >= ACKS_WAITING_MAX:
            raise StoreOverloaded(f"{ACKS_WAITING_MAX} events wait for their acknowledgement: nothing more is taken")
        self._waiting[state.id] = future
        return future

    def tell(self, state: InboundState) -> None:
        """A message has another state now."""
        if state.acknowledged_at is None:
            return
        future = self._waiting.pop(state.id, None)
        if future is not None and not future.done():
            crash_point("before-acknowledge")
            future.set_result(None)

    def refuse(self, stream: str, why: str) -> None:
        """The platform is to be told that we do not have it: it delivers the event again."""
        future = self._waiting.pop(stream, None)
        if future is not None and not future.done():
            future.set_exception(NotPossible(f"inbound {stream} is not acknowledged: {why}"))
            future.exception()  # nobody has to wait for it

    def close(self) -> None:
        for stream in list(self._waiting):
            self.refuse(stream, "the gateway closes")
