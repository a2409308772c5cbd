"""What a caller does: send, edit, delete, cancel, or hold the transaction open with `sending`.

The intent is durable before anything leaves; the record and the first claim share a commit. What happens then belongs
to the dispatcher: a caller that goes away takes nothing with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Awaitable
from typing import Literal

import msgspec
from msgspec.structs import replace

from ..adapters.deadline import deadlines
from ..adapters.surface import Channel
from ..ledger import decide
from ..ledger import events as e
from ..ledger.dossier import Dossier
from ..ledger.errors import (
    Conflict,
    IdempotencyConflict,
    InvalidMedia,
    InvalidMessage,
    KeyTaken,
    LedgerError,
    MediaReleased,
    NotPossible,
    StoreClosed,
    StoreUnavailable,
    WriteUncertain,
)
from ..ledger.intent import IntentState, Status
from ..ledger.limits import WAIT_MAX_S
from ..ledger.message import Message, Receipt, RenderedBatch
from ..ledger.outcome import FailureClass
from ..ledger.steps import Start
from ..ledger.store.append import NEW, Append, Appended, Guard
from ..ledger.store.apply import apply
from ..ledger.store.crash import crash_point
from ..projections.intents import KeyFree, LaneFree, by_key
from ..projections.waiting import Settled, Waiter, at_rest, settled
from .dispatch.direct import Direct
from .dispatch.loop import Dispatcher
from .dispatch.media import Taken
from .plan import Options, Planned, Planner

log = logging.getLogger("msgledger")

Record = asyncio.Future[list[Appended | Conflict]]
"""A record, and the claim that may go with it, on their way to the store."""


class Delivery(msgspec.Struct, kw_only=True):
    """A snapshot of one intent as its sender sees it. `wait` gives a newer one.

    `retry`: who sends again if it is not sent yet: `ledger` (do not repeat it, the ledger owes it), `person`, `caller`
    (with a new key: the old one stands for what failed), or None where nothing is left to do.
    """

    intent: str
    key: str
    status: Status
    receipt: Receipt | None = None
    hold: e.Hold | None = None
    failure: FailureClass | None = None
    reason: str | None = None
    due_at: int | None = None
    attempts: int = 0
    repeated: bool = False
    """The key stood already: nothing new was recorded."""
    durable: bool = True
    """False where a best-effort send went out without the ledger."""
    sender: Sender | None = None

    @property
    def retry(self) -> Literal["ledger", "person", "caller"] | None:
        if self.status in (Status.SENT, Status.CANCELLED):
            return None
        if self.status is Status.FAILED:
            return "caller"
        return "person" if self.hold == "unresolved" else "ledger"

    async def wait(self, timeout_s: float | None = None) -> Delivery:
        """The same intent once it has ended or come to rest again, or as it is after `timeout_s`."""
        if self.sender is None:
            return self
        return await self.sender.follow(self, timeout_s)


class Sender:
    """The sending half of a gateway."""

    def __init__(self, planner: Planner, dispatcher: Dispatcher, direct: Direct) -> None:
        self.planner = planner
        self.dispatcher = dispatcher
        self.direct = direct
        self.store = dispatcher.store
        self.media = dispatcher.attempts.media
        self.clock = dispatcher.clock

    # ---- the short form

    async def send(self, message: Message, options: Options) -> Delivery:
        """See `Gateway.send`."""
        if not message.attachments:
            return await self._send(message, options)
        options = self.planner.numbered(options)
        try:
            return await self._send_files(message, options)
        except MediaReleased:  # another process let go of an equal copy right before the record
            return await self._send_files(message, options)

    async def _send_files(self, message: Message, options: Options) -> Delivery:
        try:
            async with self.media.taken(message, self.planner.channel(message), options.durability) as files:
                return await self._send(files.message, options, files)
        except InvalidMedia as error:
            key, _ = self.planner.key(options, "")
            return await self._send(await self.media.as_recorded(message, key, error), options)

    async def _send(self, message: Message, options: Options, files: Taken | None = None) -> Delivery:
        planned = self.planner.plan(message, options)
        if options.durability == "disabled":
            return self.delivery(planned.key, await self.direct.send(planned), durable=False)
        return await self.submit(planned, options, fall_back=options.durability == "best_effort", files=files)

    async def submit(
        self, planned: Planned, options: Options, *, fall_back: bool = False, files: Taken | None = None
    ) -> Delivery:
        """Record it, with the first claim where that is possible, and wait as the caller asked.

        `fall_back`: where it could not be recorded, and for no other reason, it goes out without the ledger.
        """
        stream = planned.dossier.state.id
        waiter = self.dispatcher.waiters.expect(stream)
        record: Record | None = None
        try:
            record = self._record(planned, waiter, options.wait)
            if files is not None:
                record.add_done_callback(files.let_go)
            timeout_s = options.timeout_s
            if timeout_s is None:
                timeout_s = planned.channel.capabilities.deadline_s
            news = await self._hear(stream, waiter, timeout_s, record)
        except KeyTaken as taken:
            return await self._standing(planned, taken.intent, options)
        except StoreUnavailable as error:
            unrecorded = record is None or (record.done() and record.exception() is error)
            if not fall_back or not unrecorded or isinstance(error, StoreClosed):
                raise
            return self.delivery(planned.key, await self.direct.send_late(planned, error), durable=False)
        finally:
            self.dispatcher.waiters.forget(stream, waiter)
        return self.delivery(planned.key, news)

    def _record(self, planned: Planned, waiter: Waiter, wait: bool) -> Record:
        """Hand the record to the store, and adopt what comes back, also when the caller has gone."""
        event, dossier, channel = planned.event, planned.dossier, planned.channel
        state = dossier.state
        guard: Guard | None = None if planned.fresh else KeyFree(state.key, planned.key)
        if state.media:
            guard = self.media.guard(state, guard)
        items = [Append(state.id, (event,), expected=NEW, guard=guard)]
        if event.not_before is None and self.dispatcher.may_claim(channel, state.lane):
            claim = self.dispatcher.attempts.claim(dossier, channel, Start("first"))
            items.append(Append(state.id, (claim,), expected=0, guard=LaneFree(state.lane, event.at)))
        crash_point("before-record")

        handed = self.dispatcher.handed
        handed.add(state.id)

        def recorded(done: Record) -> None:
            crash_point("after-record")
            handed.discard(state.id)
            error = done.exception()
            if isinstance(error, WriteUncertain):
                self.dispatcher.spawn(dossier, self._ask_again(dossier, channel, waiter, error))
                return
            results: list[Appended | Conflict] = [] if error is not None else done.result()
            kept = [result for result in results if isinstance(result, Appended)]
            if not kept:
                refused = error if error is not None else results[0]
                if not waiter.done():
                    waiter.set_exception(refused)  # pyright: ignore[reportArgumentType]
                return
            newest = kept[-1].state
            assert isinstance(newest, IntentState)
            now_is = replace(dossier, state=newest)
            if now_is.state.status is Status.SENDING:
                self.dispatcher.run_claimed(now_is, channel)
            else:
                self.dispatcher.note_waiting(state.lane)
            waits = now_is.state.status is Status.PENDING and not self.dispatcher.reachable(channel)
            if (waits or not wait) and not waiter.done():
                waiter.set_result(settled(now_is))

        try:
            record = self.store.append(*items)
        except BaseException:
            handed.discard(state.id)
            raise
        record.add_done_callback(recorded)
        return record

    async def _ask_again(self, dossier: Dossier, channel: Channel, waiter: Waiter, error: WriteUncertain) -> None:
        """The commit may have happened: the key tells. A claim of ours that stands has sent nothing yet; it goes on."""
        state = dossier.state
        with contextlib.suppress(LedgerError):
            if await self.store.read(by_key, state.key) == state.id:
                now_is = await self.dispatcher.attempts.reload(state.id)
                if now_is.state.status is Status.SENDING:
                    self.dispatcher.run_claimed(now_is, channel)
                else:
                    self.dispatcher.note_waiting(state.lane)
                return
        if not waiter.done():
            waiter.set_exception(error)

    async def _hear(self, stream: str, waiter: Waiter, timeout_s: float, record: Record | None = None) -> Settled:
        """What the waiter is told, or after the time how the intent stands then: not before its record is decided."""
        late = deadlines()
        late.put(waiter, timeout_s, lambda: _expire(waiter))
        try:
            return await waiter
        except TimeoutError:
            if record is not None and isinstance(refused := (await asyncio.shield(record))[0], Conflict):
                raise refused from None
            return settled(await self.dispatcher.attempts.reload(stream))
        finally:
            late.drop(waiter)

    async def _standing(self, planned: Planned, stands: str, options: Options) -> Delivery:
        """The key has its intent: return that, or say that its content is another."""
        dossier = await self.dispatcher.attempts.reload(stands)
        if planned.given and dossier.state.content_mac != planned.event.content_mac:
            raise IdempotencyConflict(
                f"key {planned.key[:80]!r} stands for intent {stands} with other content:"
                " use a new key for a new message, or `edit` to change the one that stands",
                stands,
            )
        delivery = self.delivery(planned.key, settled(dossier))
        delivery.repeated = True
        if options.wait and not at_rest(dossier.state, self.clock.wall_ms()):
            delivery = await self.follow(delivery, options.timeout_s or planned.channel.capabilities.deadline_s)
        return delivery

    async def follow(
        self, delivery: Delivery, timeout_s: float | None, start: Awaitable[None] | None = None
    ) -> Delivery:
        """A newer snapshot: once the intent has come to rest, or after the time. `start` is what sets it off."""
        stream = delivery.intent
        waiter = self.dispatcher.waiters.expect(stream)
        try:
            if start is not None:
                await start
            news = settled(await self.dispatcher.attempts.reload(stream))
            if not news.state.terminal:
                news = await self._hear(stream, waiter, timeout_s if timeout_s is not None else WAIT_MAX_S)
        finally:
            self.dispatcher.waiters.forget(stream, waiter)
        newer = self.delivery(delivery.key, news)
        newer.repeated = delivery.repeated
        return newer

    def delivery(self, key: str, news: Settled, *, durable: bool = True) -> Delivery:
        state = news.state
        return Delivery(
            intent=state.id,
            key=key,
            status=state.status,
            receipt=news.receipt,
            hold=state.hold,
            failure=state.failure,
            reason=state.reason,
            due_at=state.due_at,
            attempts=state.attempts,
            durable=durable,
            sender=self if durable else None,
        )

    # ---- edits and deletes are intents

    async def change(
        self, of: str, message: Message | None, action: Literal["edit", "delete"], options: Options
    ) -> Delivery:
        """Edit or delete what an intent made visible. Needs its receipt, and a channel that can."""
        dossier = await self.dispatcher.attempts.reload(of)
        state = dossier.state
        if dossier.message is None:
            raise NotPossible(f"the content of intent {of} was erased: its target is not known any more")
        if not state.platform_ids:
            way = "cancel it, or wait until it is sent" if not state.terminal else "there is nothing to change"
            raise NotPossible(f"intent {of} is {state.status.value} without a receipt: {way}")
        if action == "delete" and not state.terminal and state.owes:
            raise NotPossible(
                f"intent {of} is {state.status.value}: more of it may still become visible; wait until it has ended,"
                " or cancel or resolve it first"
            )
        if message is None:
            message = replace(dossier.message, body=None, attachments=())
        if action == "edit" and any(file.is_file for file in message.attachments):
            raise InvalidMessage("an edit changes the text: send the file as a message of its own")
        message = replace(message, target=dossier.message.target, account=state.account)
        channel = self.planner.channel(message)
        able = channel.capabilities.edit if action == "edit" else channel.capabilities.delete
        if able is None:
            raise NotPossible(f"channel {channel.name!r} cannot {action} a message")
        if able.window_s is not None and self.clock.wall_ms() > (state.accepted_at or 0) + able.window_s * 1000:
            raise NotPossible(f"channel {channel.name!r} allows {action} for {able.window_s:g} s, and those are over")
        return await self.submit(self.planner.plan(message, options, action, dossier), options)

    async def cancel(self, stream: str, reason: str, by: str) -> Delivery:
        """Take back what was not sent. Raises `NotPossible` where something may have been."""
        at = self.clock.wall_ms()
        await apply(self.store, stream, lambda state: decide.cancelled(state, reason, at=at, by=by))
        self.dispatcher.wake()
        dossier = await self.dispatcher.attempts.reload(stream)
        self.dispatcher.waiters.tell(dossier, self.clock.wall_ms())
        self.media.release(dossier.state.media)
        return self.delivery(dossier.key or stream, settled(dossier))

    # ---- the transaction held open

    @contextlib.asynccontextmanager
    async def sending(self, message: Message, options: Options) -> AsyncGenerator[Sending]:
        """The same transaction in steps. Nobody else sends it before one deadline has passed; leaving the block without
        `send` takes it back, an exception says why.
        """
        deadline_ms = int(self.planner.channel(message).capabilities.deadline_s * 1000)
        reserved = replace(options, not_before=self.clock.wall_ms() + deadline_ms, wait=False)
        async with self.media.taken(message, self.planner.channel(message), options.durability) as files:
            planned = self.planner.plan(files.message, reserved)
            begun = await self.submit(planned, reserved, files=files)
        transaction = Sending(self, planned, begun, options)
        try:
            yield transaction
        except BaseException as error:
            try:
                await self._take_back(transaction, f"{type(error).__name__} in the sending block")
            except LedgerError as second:  # the first error is the one to hear of
                log.warning("intent %s was not taken back: %s", transaction.intent, second)
            raise
        await self._take_back(transaction, "the sending block ended without a send")

    async def _take_back(self, transaction: Sending, reason: str) -> None:
        """Where the block outlived its reservation and the message has gone out, say what became of it."""
        try:
            await transaction.fail(reason)
        except NotPossible:
            now_is = settled(await self.dispatcher.attempts.reload(transaction.intent))
            transaction.delivery = self.delivery(transaction.delivery.key, now_is)


class Sending:
    """An intent that is durable and reserved: `send` it, or `fail` it. Both are told the ledger."""

    def __init__(self, sender: Sender, planned: Planned, delivery: Delivery, options: Options) -> None:
        self._sender = sender
        self._planned = planned
        self._options = options
        self.delivery = delivery
        self.ended = delivery.repeated

    @property
    def intent(self) -> str:
        return self.delivery.intent

    def render(self) -> RenderedBatch:
        """What will be sent: the stored plan, never a new rendering."""
        batch = self._planned.dossier.batch
        assert batch is not None
        return batch

    async def send(self) -> Delivery:
        """Claim and send now, and wait for the outcome as `gateway.send` does."""
        start = None if self.ended else self._sender.dispatcher.claim_now(self.intent)
        self.ended = True
        deadline_s = self._planned.channel.capabilities.deadline_s
        self.delivery = await self._sender.follow(self.delivery, deadline_s, start)
        return self.delivery

    async def fail(self, reason: str) -> Delivery:
        """Take it back: nothing was sent, and nothing will be."""
        if not self.ended:
            self.ended = True
            self.delivery = await self._sender.cancel(self.intent, reason, self._sender.planner.by)
        return self.delivery


def _expire(waiter: Waiter) -> None:
    if not waiter.done():
        waiter.set_exception(TimeoutError())
