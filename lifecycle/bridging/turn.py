"""A bridge and its turns, as a gateway sees them: wrappers around its payloads, with no way of their own to send."""

from __future__ import annotations

from collections.abc import AsyncIterable, Awaitable, Callable
from typing import Any, cast

from msgspec.structs import replace

from ...ledger.message import Message
from ..plan import Options
from .outcome import BridgeOutcome
from .payloads import Payloads, answering

NOTHING = Options()


class Bridge:
    """One channel's way in; made by `Gateway.bridge`."""

    def __init__(self, payloads: Payloads) -> None:
        self._payloads = payloads

    @property
    def counts(self) -> dict[str, int]:
        """How many payloads ended how, by `BridgeOutcome.label`: what is not durable is never counted as durable."""
        return dict(self._payloads.counts)

    def turn(self, *, inbound: str | None = None, run: str | None = None) -> Turn:
        """One run of the agent. `inbound`: the id of the message that it answers. `run` (else `inbound`) names it, so
        that the n-th payload of a turn that runs again stands for what was recorded the first time."""
        return Turn(self._payloads, inbound, run if run is not None else inbound)

    async def deliver(self, payload: Any) -> BridgeOutcome:
        """Deliver one payload: by the ledger where a policy says so and the channel can, else by the gateway's own
        callback, which is called once.

        Raises what the callback raises, `DeliveryFailed` where the ledger's delivery has failed for good, and any
        `LedgerError` that kept it from being recorded: then nothing was sent.
        """
        return self._payloads.noted(await self._payloads.carried(payload, NOTHING))

    async def durably(self, payload: Any) -> BridgeOutcome:
        """What the ledger makes of it, and no more: for a dispatcher that falls back, or raises, by itself."""
        return await self._payloads.durably(payload, NOTHING)


class Turn:
    """One run of an agent over a bridge."""

    def __init__(self, payloads: Payloads, inbound: str | None, run: str | None) -> None:
        self._payloads = payloads
        self._inbound, self._run = inbound, run
        self._ordinal = 0
        self.outcomes: list[BridgeOutcome] = []
        """Of each payload, in order, the one that raised included."""

    async def run(self, agent: Callable[[], Any]) -> list[BridgeOutcome]:
        """Run it and deliver what it gives: a payload, a list of them, or those of an async generator, one after the
        other. None is no payload.

        Raises like `Bridge.deliver`; what came before stands in `outcomes`.
        """
        given = agent()
        if isinstance(given, AsyncIterable):
            async for payload in cast("AsyncIterable[Any]", given):
                await self.deliver(payload)
        else:
            answer: Any = await given
            for payload in cast("list[Any]", answer) if isinstance(answer, list | tuple) else [answer]:
                if payload is not None:
                    await self.deliver(payload)
        if not self.outcomes:
            self._noted(BridgeOutcome(kind="handled_no_send", reason="the turn gave nothing to show"))
        return self.outcomes

    async def deliver(self, payload: Any) -> BridgeOutcome:
        """One payload, as `Bridge.deliver`."""
        return self._noted(await self._payloads.carried(payload, self._options(), self._inbound))

    async def send(self, message: Message) -> BridgeOutcome:
        """The ledger's own send, from within a prepared dispatcher: this message is durable from here on.

        Raises as `Gateway.send` does.
        """
        return self._noted(await self._payloads.sent(answering(message, self._inbound), self._options()))

    async def run_prepared(
        self, dispatch: Callable[[], Awaitable[Any]], *, record: Message | None = None
    ) -> list[BridgeOutcome]:
        """The gateway's own dispatcher. What it sends by itself is not durable; what it gives to `send` is.

        `record`: what it is about to show. Then the intent is durable before it is called, and after it the ids that it
        returned, or that nobody knows. Without, it leaves no trace in the ledger. Raises what it raises.
        """
        before = len(self.outcomes)
        if record is not None:
            message = answering(record, self._inbound)
            self._noted(await self._payloads.recorded(message, dispatch, self._options()))
            return self.outcomes
        outcome = await self._payloads.called(dispatch, "prepared")
        if outcome.error is not None or outcome.said is not None or len(self.outcomes) == before:
            self._noted(outcome)
        return self.outcomes

    def _options(self) -> Options:
        """A key for what is recorded, where the turn has a name."""
        if self._run is None:
            return NOTHING
        ordinal, self._ordinal = self._ordinal, self._ordinal + 1
        return replace(NOTHING, producer=f"bridge:{self._payloads.settings.channel}", run=self._run, ordinal=ordinal)

    def _noted(self, outcome: BridgeOutcome) -> BridgeOutcome:
        self.outcomes.append(outcome)
        return self._payloads.noted(outcome)
