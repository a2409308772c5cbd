"""What a handler is given: one inbound message, and the ways to answer it.

What it sends is owed by the ledger before the turn counts as done, under a key of the turn: a turn that runs again gets
the intents that stand, and sends nothing twice.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from msgspec.structs import replace

from ...ledger import inbound_events as i
from ...ledger.errors import NotPossible
from ...ledger.inbound import InboundState
from ...ledger.limits import TURN_SENDS_MAX
from ...ledger.message import Message, Reply
from ...ledger.source import SessionSource
from ...projections.conversation import Entry
from ..plan import Options
from ..send import Delivery, Sender
from .route import SessionContext
from .spoken import HISTORY_USUAL, spoken
from .turns import Refuse, Turn


class Skip(BaseException):
    """Ends the block of an event that is not to be answered. It never leaves `receiving`, and no handler of
    `Exception` holds it up."""


class Failed(Exception):
    """The handler said so."""


class Acknowledge(Protocol):
    """Acknowledging by hand."""

    async def __call__(self, state: InboundState) -> InboundState: ...


class Inbound:
    """One message that came in, in the run of its turn that goes on now.

    In a `receiving` block `skipped` says why there is no turn, where there is none: `repeated`, or why it was dropped.
    Then everything else ends the block quietly.
    """

    def __init__(
        self,
        turn: Turn,
        sender: Sender,
        acknowledge: Acknowledge,
        *,
        session: SessionContext | None = None,
        context: tuple[Message, ...] = (),
        durability: Any = "required",
        skipped: str | None = None,
    ) -> None:
        self._turn = turn
        self._sender = sender
        self._acknowledge = acknowledge
        self._session = session
        self._context = context
        self._durability = durability
        self._sends = 0
        self._intents: list[str] = []
        self.skipped = skipped
        self.refused: BaseException | None = None
        """What `fail` or `nack` said of this run."""
        self.nacked = False
        self.over = False
        """Whether the turn has ended: from then on nothing is sent in it."""

    def __repr__(self) -> str:
        return f"Inbound({self.id!r}, attempt={self._turn.state.runs})"

    # ---- what it is

    @property
    def id(self) -> str:
        """Its stream."""
        return self._turn.state.id

    @property
    def state(self) -> InboundState:
        return self._turn.state

    @property
    def message(self) -> Message:
        return self._content().message

    @property
    def source(self) -> SessionSource:
        """Who spoke, and where."""
        return self._content().source

    @property
    def session(self) -> SessionContext | None:
        """The conversation that it belongs to."""
        self._content()
        return self._session

    @property
    def context(self) -> tuple[Message, ...]:
        """What was said in the room since the last message that spoke to us, the oldest first."""
        self._content()
        return self._context

    async def history(self, limit: int = HISTORY_USUAL) -> list[Entry]:
        """What was said in its session before it: what came in and what was sent, the newest entries, oldest first."""
        self._content()
        if self._session is None:
            return []
        return await spoken(self._sender.store, self._session.session_id, limit=limit, before=self.state.position)

    @property
    def attempt(self) -> int:
        """Which run of its turn this is, from 1."""
        self._content()
        return self._turn.state.runs

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """Lines that name the message by its id."""
        return logging.LoggerAdapter(logging.getLogger("msgledger"), {"inbound": self.id})

    @property
    def intents(self) -> tuple[str, ...]:
        """What this run has the ledger owe so far."""
        return tuple(self._intents)

    def _content(self) -> i.InboundContent:
        if self.skipped is not None or self._turn.content is None:
            raise Skip(self.skipped)
        return self._turn.content

    # ---- answering

    async def reply(self, message: str | Message, *, quote: bool | None = None, **options: Any) -> Delivery:
        """Answer in the same conversation: durable before it leaves, and before the turn is done.

        `quote`: whether the answer points at the message; in a direct chat it does not where nothing is said. Takes the
        options of `Gateway.send`. A turn that runs again gets the delivery that stands (`repeated`).
        """
        content = self._content()
        asked = content.message
        points = quote if quote is not None else content.source.kind != "dm"
        relation = Reply(
            inbound=self.id, reply_to=asked.id if points else None, thread=asked.target.thread if points else None
        )
        if isinstance(message, str):
            answer = Message.text(message, to=asked.target, relation=relation, account=self._turn.state.account)
        else:
            answer = replace(message, target=asked.target, relation=relation, account=self._turn.state.account)
        return await self._owe(answer, options)

    async def send(self, message: Message, **options: Any) -> Delivery:
        """Send something else in this turn, to anywhere: under a key of the turn too."""
        self._content()
        return await self._owe(message, options)

    async def edit(self, of: str | Delivery, message: Message, **options: Any) -> Delivery:
        """Change the text of a message that was sent."""
        self._content()
        return await self._changed(of, message, "edit", options)

    async def delete(self, of: str | Delivery, **options: Any) -> Delivery:
        """Delete every part of a message that was sent."""
        self._content()
        return await self._changed(of, None, "delete", options)

    async def _owe(self, message: Message, options: dict[str, Any]) -> Delivery:
        return await self._noted(self._sender.send(message, self._options(options)))

    async def _changed(
        self, of: str | Delivery, message: Message | None, action: Any, options: dict[str, Any]
    ) -> Delivery:
        intent = of.intent if isinstance(of, Delivery) else of
        return await self._noted(self._sender.change(intent, message, action, self._options(options)))

    async def _noted(self, sending: Awaitable[Delivery]) -> Delivery:
        delivery = await sending
        if delivery.durable:
            self._intents.append(delivery.intent)
        return delivery

    def _options(self, options: dict[str, Any]) -> Options:
        """With the turn as the source of the key, where the caller gives none."""
        if self.over:
            raise NotPossible(f"the turn of inbound {self.id} is over: send with the gateway, not in it")
        if self._sends >= TURN_SENDS_MAX:
            raise NotPossible(f"inbound {self.id}: a turn may send {TURN_SENDS_MAX} messages, and those are sent")
        options.setdefault("durability", self._durability)
        options.setdefault("session", self._content().session)
        chosen = Options(**options, inbound=self.id)
        if chosen.key is not None or chosen.producer is not None:
            return chosen
        ordinal, self._sends = self._sends, self._sends + 1
        return replace(chosen, ordinal=ordinal)

    # ---- acknowledging and failing

    async def ack(self) -> None:
        """Tell the platform now that we have it: what the policy `manual` leaves to the handler. Twice is once."""
        self._content()
        mine = self._turn.state
        if mine.acknowledged_at is None:
            state = await self._acknowledge(mine)
            if (state.runs, state.owner) != (mine.runs, mine.owner):  # another run goes on: it is not ours to end
                state = replace(mine, acknowledged_at=state.acknowledged_at)
            self._turn = Turn(state, self._turn.content)

    def nack(self, reason: str) -> None:
        """Have the platform deliver it again, and the run count as failed. Raises `NotPossible` after an `ack`."""
        self._content()
        if self._turn.state.acknowledged_at is not None:
            raise NotPossible(f"inbound {self.id} was acknowledged: the platform will not deliver it again")
        self.refused, self.nacked = NotPossible(reason), True

    def fail(self, error: BaseException | str, *, retry: bool = True) -> None:
        """End this run badly once the handler returns: it runs again after a while, or without `retry` it is held."""
        self._content()
        if retry and not isinstance(error, str):
            self.refused = error
        else:
            self.refused = Failed(str(error)) if retry else Refuse(f"{error}")


Handler = Callable[[Inbound], Awaitable[None]]
"""What a gateway does with a message. Returning ends the turn, raising has it run again."""
