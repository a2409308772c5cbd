"""Sending that stays with the gateway: a channel that only keeps the books, and one made of a function for one message.

Nothing here speaks to a platform. What the gateway says of its own send counts as a channel's answer does: it is taken
as it is, and silence until the deadline is an unknown outcome.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Literal, cast

import msgspec

from ..ledger.errors import InvalidConfig, InvalidMessage
from ..ledger.limits import DEADLINE_MS, ERROR_TEXT_MAX_CHARS, SETTLE_MS, TEXT_MAX_BYTES
from ..ledger.message import Body, Message, Receipt, ReceiptPart, RenderedBatch, RenderedUnit
from ..ledger.outcome import (
    Accepted,
    Cause,
    FailureClass,
    NotDispatched,
    Outcome,
    Proof,
    Rejected,
    Unknown,
    Unresolved,
    Verdict,
)
from .callable import Reconcile
from .checks import check_declared
from .surface import SURFACE, Capabilities, Channel, Lookup, RenderContext, SendContext, TextLimit

Said = Accepted | Receipt | str | int | None
"""What a send may give back: an id, a receipt, or None where the platform gives no id."""


class NoSend(msgspec.Struct, frozen=True):
    """Nothing is to become visible, and why: what a gateway's function returns instead of an id."""

    reason: str


class External:
    """A channel whose gateway sends by itself and says what came of it, over `record`, `attempting`, `delivered` and
    `failed`. Nothing is ever sent through it here.

    `reconcile(unit, context)` is the gateway's own look-up of an unknown outcome. `deadline_s`: how long the gateway
    has from `attempting` to its word; `settle_s`: the longest that a request may still be applied after that.
    """

    surface: int = SURFACE
    external = True
    ready = True
    reconcile: Reconcile
    """There only where a function was given."""

    def __init__(
        self,
        name: str,
        *,
        account: str = "default",
        receipt: Literal["required", "none"] = "required",
        reconcile: Reconcile | None = None,
        lookup: Lookup | None = None,
        deadline_s: float = DEADLINE_MS / 1000,
        settle_s: float = SETTLE_MS / 1000,
        version: str = "",
    ) -> None:
        """`lookup`: what `reconcile` can tell; without it a look-up whose absence proves nothing."""
        if reconcile is not None and lookup is None:
            lookup = Lookup("history_match")
        if lookup is not None and lookup.evidence == "proved":
            raise InvalidConfig(
                f"channel {name!r} declares its look-up as proved: a function's is at most `documented`"
            )
        self.capabilities = Capabilities(
            text=TextLimit(max=TEXT_MAX_BYTES),
            reconcile=lookup,
            receipt=receipt,
            threads=True,
            deadline_s=deadline_s,
            settle_s=settle_s,
        )
        check_declared(name, self.capabilities, reconciles=reconcile is not None)
        self.name, self.account, self.version = name, account, version
        self.credential = self.config = ""
        self._words: dict[tuple[str, int], Word] = {}
        if reconcile is not None:
            self._look = reconcile
            self.reconcile = self._reconcile

    def __repr__(self) -> str:
        return f"External({self.name!r}, account={self.account!r})"

    def render(self, message: Message, context: RenderContext) -> RenderedBatch:
        return whole(message)

    def expect(self, intent: str, attempt: int) -> Word:
        """Before the attempt begins: the gateway's word on it will be taken here."""
        word = self._words[intent, attempt] = Word()
        return word

    def expected(self, intent: str, attempt: int) -> Word | None:
        return self._words.get((intent, attempt))

    def forget(self, intent: str, attempt: int) -> None:
        self._words.pop((intent, attempt), None)

    async def deliver(self, unit: RenderedUnit, context: SendContext) -> Outcome:
        """Waits for the gateway's word; the core ends the wait at the deadline."""
        word = self._words.get((context.intent, context.attempt))
        if word is None:
            return NotDispatched(f"channel {self.name!r} is sent on by its gateway alone")
        return await word.heard_from()

    async def _reconcile(self, unit: RenderedUnit, context: SendContext) -> Verdict:
        try:
            return await self._look(unit, context)
        except Exception as error:
            return Unresolved(f"{type(error).__name__}: {error}"[:ERROR_TEXT_MAX_CHARS])


class Word:
    """What the gateway says of one attempt, once."""

    def __init__(self) -> None:
        self._said: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self.heard = False
        """Whether the attempt took it as its outcome."""

    def say(self, outcome: Outcome) -> bool:
        """False where something was said already."""
        if self._said.done():
            return False
        self._said.set_result(outcome)
        return True

    async def heard_from(self) -> Outcome:
        outcome = await self._said
        self.heard = True
        return outcome


class CallbackChannel:
    """One message's way out: the channel that it belongs to, with a function of the gateway in place of its send.

    What the function returns and raises is read as `CallableChannel` reads it; `NoSend` ends the message as cancelled.
    """

    surface: int = SURFACE

    def __init__(self, channel: Channel, callback: Callable[[], Awaitable[object]]) -> None:
        self._callback = callback
        self.name, self.account, self.version = channel.name, channel.account, channel.version
        self.credential, self.config = channel.credential, channel.config
        self.capabilities = channel.capabilities
        self.ready = True
        self.said: object = None
        """What the function returned."""
        self.raised: Exception | None = None

    def render(self, message: Message, context: RenderContext) -> RenderedBatch:
        return whole(message)

    async def deliver(self, unit: RenderedUnit, context: SendContext) -> Outcome:
        try:
            self.said = await self._callback()
            return accepted(self.said)
        except Exception as error:
            self.raised = error
            return refused(error)


def whole(message: Message) -> RenderedBatch:
    """The message as one unit, unshortened: how it becomes visible is the gateway's own business."""
    if any(file.is_file for file in message.attachments):
        raise InvalidMessage(
            f"the file {message.attachments[0].name!r} cannot be kept for a send of your own:"
            " name it with `Attachment(name)`, or send it through a channel of ours"
        )
    body = message.body if message.body is not None else Body("")
    media = message.attachments[0] if message.attachments else None
    if not body.text.strip() and media is None:
        raise InvalidMessage("the message has neither text nor attachment: say what will be visible")
    return RenderedBatch(
        (RenderedUnit(0, "media" if not body.text.strip() else "text", body.text, body.format, media),)
    )


def accepted(said: object) -> Accepted | Rejected:
    """A gateway's word that it was delivered. Raises `InvalidMessage` for what names no message."""
    kind = type(said).__name__
    match said:
        case Accepted():
            return said
        case Receipt():
            parts = tuple(ReceiptPart(i, p.platform_id, p.kind, *_details(p)) for i, p in enumerate(said.parts))
            return Accepted(said.primary_platform_id, parts, sent_at=said.sent_at)
        case NoSend():
            detail = said.reason[:ERROR_TEXT_MAX_CHARS]
            return Rejected(FailureClass.CANCELLED, detail, code="no_send", bytes_left=False, proof=Proof.DECLARED)
        case None | "":
            return Accepted(None)
        case str():
            return Accepted(said)
        case bool():
            pass
        case int():
            return Accepted(str(said))
        case list() | tuple():
            ids = cast("Sequence[object]", said)
            if ids and all(isinstance(id, str | int) and not isinstance(id, bool) and id != "" for id in ids):
                return Accepted(str(ids[0]), tuple(ReceiptPart(i, str(id)) for i, id in enumerate(ids)))
        case _:
            pass
    raise InvalidMessage(
        f"{kind} names no message: give the platform's id, a list of them, a Receipt, or None for no id"
    )


def refused(error: BaseException | None) -> Rejected | Unknown:
    """A gateway's word that it was not delivered. Only `Rejected` and `NotDispatched` say that nothing was sent."""
    match error:
        case Rejected():
            if isinstance(error, NotDispatched) or error.proof is Proof.REJECTED:
                error.proof = Proof.DECLARED
            return error
        case Unknown():
            return error
        case None:
            return Unknown(Cause.RAISED)
        case TimeoutError():
            return Unknown(Cause.TIMEOUT, str(error)[:ERROR_TEXT_MAX_CHARS])
        case _:
            return Unknown(Cause.RAISED, f"{type(error).__name__}: {error}"[:ERROR_TEXT_MAX_CHARS])


def _details(part: ReceiptPart) -> tuple[str | None, ...]:
    return part.thread, part.reply_to, part.edit_token, part.delete_token, part.url
