"""A gateway's payloads: which of them the ledger may take, and which stay with the gateway's own callback.

Nothing is durable unless a policy says so, and no send of ours ever comes before the callback. Once the ledger has
taken a payload nobody else delivers it; what it cannot show as the gateway would is given back, with what is missing.
"""

from __future__ import annotations

import inspect
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection
from typing import Any, Literal, cast

import msgspec
from msgspec.structs import replace

from ...adapters.external import CallbackChannel, NoSend
from ...adapters.surface import is_external
from ...ledger.errors import InvalidConfig, InvalidMessage
from ...ledger.message import NO_RELATION, Body, Message, Reply
from ..plan import Durable, Options
from ..send import Sender
from .needs import missing, needs
from .outcome import FALLS_BACK, BridgeOutcome, Path, of_delivery, of_own

log = logging.getLogger("msgledger")

Callback = Callable[[Any], Awaitable[Any]]
Projection = Callable[[Any], Any]
"""From a payload to the message that it shows, a list of them, `NoSend`, or None for no message. It may be async."""
Explicit = bool | Literal["required", "best_effort", "disabled"] | None
"""None, False and `disabled` are not durable, True is `required`."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What a bridge is told of its channel. See `Gateway.bridge`."""

    channel: str
    account: str | None = None
    project: Projection | None = None
    durable: Explicit = None
    needs: Collection[str] | Callable[[Any], Collection[str]] = ()
    hooks: tuple[str, ...] = ()
    ids: Callable[[Any], Any] | None = None

    @property
    def policy(self) -> Durable | None:
        """None: not durable. Raises `InvalidConfig`."""
        if self.durable is None or self.durable is False or self.durable == "disabled":
            return None
        if self.durable is True:
            return "required"
        if self.durable in ("required", "best_effort"):
            return self.durable
        raise InvalidConfig(f"durable {self.durable!r}: say True, False, 'required', 'best_effort', or leave it out")


class Payloads:
    """One per bridge."""

    def __init__(self, sender: Callable[[], Sender], deliver: Callback, settings: Settings) -> None:
        if not callable(deliver):
            raise InvalidConfig(f"deliver has to be an async function, not {type(deliver).__name__}")
        self.settings = settings
        self.policy = settings.policy
        self.counts: Counter[str] = Counter()
        self._sender = sender
        self._deliver = deliver

    async def carried(self, payload: Any, options: Options, inbound: str | None = None) -> BridgeOutcome:
        """By the ledger where the policy says so and the channel can, else by the callback, called once. An error is
        in the outcome, for `noted` to raise."""
        before: BridgeOutcome | None = None
        if self.policy is not None:
            before = await self.durably(payload, options, inbound)
            if before.kind not in FALLS_BACK:
                return before
        return await self.called(lambda: self._deliver(payload), "own", before)

    async def durably(self, payload: Any, options: Options, inbound: str | None = None) -> BridgeOutcome:
        """What the ledger makes of it, and nothing else."""
        if self.policy is None:
            return BridgeOutcome(kind="unsupported", reason="no policy makes it durable")
        try:
            shown = await self._shown(payload)
            if isinstance(shown, BridgeOutcome):
                return shown
            messages = [answering(message, inbound) for message in shown]
            if not messages[0].target.replayable:
                return await self.recorded(joined(messages), lambda: self._deliver(payload), options)
            if (refused := self._unsupported(payload, messages)) is not None:
                return refused
            parts = tuple(messages) if len(messages) > 1 else ()
            options = replace(options, durability=self.policy, hooks=self.settings.hooks, parts=parts)
            return await self.sent(joined(messages), options)
        except InvalidMessage as error:  # nothing was recorded, and nothing was called
            return BridgeOutcome(kind="unsupported", reason=str(error))
        except Exception as error:
            return BridgeOutcome(kind="failed", reason=f"{type(error).__name__}: {error}", error=error)

    async def sent(self, message: Message, options: Options) -> BridgeOutcome:
        """By the ledger, which owes it from here on."""
        delivery = await self._sender().send(message, options)
        return of_delivery(delivery, "durable" if delivery.durable else "best_effort")

    async def recorded(
        self, message: Message, callback: Callable[[], Awaitable[Any]], options: Options
    ) -> BridgeOutcome:
        """By the callback, with the record around it: the intent and its one attempt are durable before it is called,
        what came of it after. Nobody ever sends it in another way.

        Raises `InvalidMessage` with nothing recorded and nothing called.
        """
        sender = self._sender()
        options = replace(options, durability="required", callback=True, max_attempts=1, hooks=self.settings.hooks)
        planned = sender.planner.plan(message, options)
        stream = planned.dossier.state.id

        async def named() -> Any:
            return self._named(await callback())

        way = CallbackChannel(planned.channel, named)
        callbacks = sender.dispatcher.callbacks
        callbacks.keep(stream, way)
        try:
            delivery = await sender.submit(replace(planned, channel=way), options)
        except Exception:
            callbacks.drop(stream)
            raise
        if delivery.intent != stream:  # the key has its intent, with a callback of its own
            callbacks.drop(stream)
        outcome = of_delivery(delivery, "recorded")
        if way.raised is not None:
            why = f"{type(way.raised).__name__}: {way.raised}"
            return replace(outcome, kind="failed", reason=why, error=way.raised)
        if isinstance(way.said, NoSend):
            outcome = replace(outcome, reason=way.said.reason)
        return replace(outcome, said=way.said)

    async def called(
        self, callback: Callable[[], Awaitable[Any]], path: Path, instead_of: BridgeOutcome | None = None
    ) -> BridgeOutcome:
        """By the gateway alone: no trace in the ledger, and its receipt all the same."""
        try:
            said = await callback()
        except Exception as error:
            said = error
        if isinstance(said, Exception):  # `Rejected` and `Unknown` may be returned as well as raised
            reason = f"{type(said).__name__}: {said}"
            return BridgeOutcome(kind="failed", path=path, reason=reason, error=said, instead_of=instead_of)
        try:
            named = self._named(said)
        except Exception as error:  # it was delivered, whatever is wrong with reading its ids
            named = error
        return of_own(said, named, path, instead_of)

    def noted(self, outcome: BridgeOutcome) -> BridgeOutcome:
        """Count it and say so; raises the error of one that failed."""
        self.counts[outcome.label] += 1
        log.info(
            "bridge %s: kind=%s path=%s durable=%s intent=%s",
            self.settings.channel,
            outcome.kind,
            outcome.path or "none",
            "yes" if outcome.durable else "no",
            outcome.intent or "none",
        )
        if outcome.error is not None:
            raise outcome.error
        return outcome

    def _named(self, said: Any) -> Any:
        """The part of what a function returned that names the messages."""
        ids = self.settings.ids
        return said if ids is None or said is None or isinstance(said, NoSend | Exception) else ids(said)

    def _unsupported(self, payload: Any, messages: list[Message]) -> BridgeOutcome | None:
        """What the channel lacks to show it as the gateway would. Raises `UnknownChannel`."""
        settings = self.settings
        channel = self._sender().planner.channel(messages[0])
        if is_external(channel):
            return BridgeOutcome(kind="unsupported", reason=f"channel {channel.name!r} is sent on by its gateway alone")
        extra = settings.needs(payload) if callable(settings.needs) else settings.needs
        needed = {need for message in messages for need in needs(message, extra=extra, hooks=settings.hooks)}
        lacks = missing(channel, sorted(needed))
        if not lacks:
            return None
        reason = f"channel {channel.name!r} does not bring along: {', '.join(lacks)}"
        return BridgeOutcome(kind="unsupported", reason=reason, missing=lacks)

    async def _shown(self, payload: Any) -> list[Message] | BridgeOutcome:
        """The messages that the payload shows on this channel, or why there is none."""
        project = self.settings.project
        shown: Any = payload if project is None else project(payload)
        if inspect.isawaitable(shown):
            shown = await shown
        if isinstance(shown, NoSend):
            return BridgeOutcome(kind="handled_no_send", reason=shown.reason)
        found: list[Any] = list(cast("list[Any]", shown)) if isinstance(shown, list | tuple) else [shown]
        messages = [replace(one, account=one.account or self.settings.account) for one in found if _is_message(one)]
        if not messages or len(messages) < len(found):
            return BridgeOutcome(kind="not_applicable", reason="the payload shows no message, or something else too")
        target = messages[0].target
        if target.channel != self.settings.channel:
            reason = f"it is for channel {target.channel!r}, the bridge is that of {self.settings.channel!r}"
            return BridgeOutcome(kind="not_applicable", reason=reason)
        if any(one.target != target or one.account != messages[0].account for one in messages):
            return BridgeOutcome(kind="unsupported", reason="its messages go to several places: make payloads of them")
        return messages


def _is_message(value: object) -> bool:
    return isinstance(value, Message)


def answering(message: Message, inbound: str | None) -> Message:
    """As a reply to an inbound message of the ledger, where its relation says nothing else."""
    relation = message.relation
    if inbound is None:
        return message
    if relation == NO_RELATION:
        return replace(message, relation=Reply(inbound=inbound))
    if isinstance(relation, Reply) and relation.inbound is None:
        return replace(message, relation=replace(relation, inbound=inbound))
    return message


def joined(messages: list[Message]) -> Message:
    """Several messages for one place as the one that their plan belongs to, with all that they say."""
    first = messages[0]
    if len(messages) == 1:
        return first
    bodies = [message.body for message in messages if message.body is not None]
    text = "\n\n".join(body.text for body in bodies)
    files = tuple(file for message in messages for file in message.attachments)
    return replace(first, body=Body(text, bodies[0].format) if bodies else None, attachments=files)
