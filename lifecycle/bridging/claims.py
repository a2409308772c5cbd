"""The four calls of a gateway that sends by itself: record, attempting, delivered, failed.

Its attempts are attempts like ours: claimed under this worker before anything may leave, one of a lane at a time, with
a deadline and a lease. Silence is an unknown outcome, what comes late is recorded as the fact that it is, and nothing
is ever sent again by anyone but the gateway.
"""

from __future__ import annotations

import asyncio

import msgspec
from msgspec.structs import replace

from ...adapters import calls
from ...adapters.external import External, accepted, refused
from ...ledger import decide, life
from ...ledger import events as e
from ...ledger.dossier import Dossier
from ...ledger.errors import Conflict, InvalidMessage, LaneBusy, NotPossible, StaleHead
from ...ledger.intent import IntentState, Status
from ...ledger.limits import DECIDE_TRIES_MAX, IN_FLIGHT_MAX
from ...ledger.message import Message
from ...ledger.outcome import Accepted, NotDispatched, Outcome, Unknown
from ...ledger.steps import End, Finish, Release, Start, Step, Wait
from ...ledger.store.append import Append, Appended
from ...projections.intents import LaneFree
from ...projections.waiting import settled
from ..plan import Options
from ..send import Delivery, Sender

WORD_WAIT_S = 10.0
"""How long `delivered` and `failed` wait for the ledger to take a word; it is taken all the same, as soon as it can."""


class Attempting(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt that is durable and the gateway's to make, now. A word on it names it, whatever has followed it."""

    intent: str
    attempt: int
    key: str
    """The same for each attempt: for platforms that recognise one."""
    deadline_s: float
    """Seconds within which the request has to be over and the word said; no request may begin after them."""
    message: Message


Named = str | Delivery | Attempting


class Claims:
    """One per gateway."""

    def __init__(self, sender: Sender) -> None:
        self._sender = sender
        self._dispatcher = sender.dispatcher
        self._attempts = sender.dispatcher.attempts

    async def record(self, message: Message, options: Options) -> Delivery:
        """See `Gateway.record`."""
        if options.on_unknown != "hold":
            raise InvalidMessage(
                "on_unknown 'at_least_once' sends a marked copy, which only a channel of ours does: leave it at 'hold'"
            )
        if options.durability != "required":
            raise InvalidMessage(f"durability {options.durability!r}: a record is durable, or it is none; leave it out")
        options = replace(options, wait=False, external=True, callback=not message.target.replayable)
        planned = self._sender.planner.plan(message, options)
        if options.callback:
            self._dispatcher.callbacks.keep(planned.dossier.state.id, planned.channel)
        return await self._sender.submit(planned, options)

    async def attempting(self, of: Named) -> Attempting:
        """See `Gateway.attempting`."""
        stream = _stream(of)
        for _ in range(DECIDE_TRIES_MAX):
            dossier = await self._attempts.reload(stream)
            channel = self._external(dossier.state)
            step = self._dispatcher.step(dossier, channel, self._attempts.terms(channel))
            if isinstance(step, Release):
                let_go = e.IntentHeld(at=self._sender.clock.wall_ms(), by=self._dispatcher.by)
                await self._sender.store.append(Append(stream, (let_go,), expected=dossier.state.head))
                continue
            if self._dispatcher.in_hand(stream) or not isinstance(step, Start):
                raise NotPossible(_why_not(dossier.state, step))
            if len(self._dispatcher.busy) >= IN_FLIGHT_MAX:
                raise NotPossible(f"{IN_FLIGHT_MAX} attempts are in flight: say what became of one first")
            begun = await self._begin(dossier, channel, step)
            if begun is not None:
                return begun
        raise StaleHead(f"intent {stream} changes faster than anyone can decide about it")

    async def _begin(self, dossier: Dossier, channel: External, step: Start) -> Attempting | None:
        """Claim it; None where somebody was first, so that it has to be decided again."""
        state, dispatcher = dossier.state, self._dispatcher
        claim = self._attempts.claim(dossier, channel, step)
        free = LaneFree(state.lane, self._sender.clock.wall_ms())
        word = channel.expect(state.id, claim.attempt)
        dispatcher.handed.add(state.id)

        def claimed(done: asyncio.Future[list[Appended | Conflict]]) -> None:
            """Also where the caller has gone: what is claimed is an attempt, and has an end."""
            dispatcher.handed.discard(state.id)
            result = None if done.cancelled() or done.exception() is not None else done.result()[0]
            if isinstance(result, Appended) and isinstance(result.state, IntentState):
                dispatcher.run_claimed(replace(dossier, state=result.state), channel)
                dispatcher.busy[state.id].add_done_callback(lambda _: channel.forget(state.id, claim.attempt))
            else:
                channel.forget(state.id, claim.attempt)

        try:
            append = self._sender.store.append(Append(state.id, (claim,), expected=state.head, guard=free))
        except BaseException:
            dispatcher.handed.discard(state.id)
            channel.forget(state.id, claim.attempt)
            raise
        append.add_done_callback(claimed)
        try:
            [result] = await asyncio.shield(append)
        except asyncio.CancelledError:
            word.say(NotDispatched("the caller was cancelled before it could send"))
            raise
        if isinstance(result, LaneBusy):
            dispatcher.note_waiting(state.lane)
            raise LaneBusy(f"{result}: say what became of that one first, or record with `ordered=False`") from result
        if isinstance(result, Conflict):
            return None
        assert dossier.message is not None
        context = self._attempts.context(channel, dossier, state.next_unit or 0, claim.attempt, False)
        return Attempting(
            intent=state.id,
            attempt=claim.attempt,
            key=context.provider_key,
            deadline_s=claim.deadline_ms / 1000,
            message=dossier.message,
        )

    async def delivered(self, of: Named, receipt: object) -> Delivery:
        """See `Gateway.delivered`."""
        outcome = accepted(receipt)
        return await self._word(of, outcome)

    async def failed(self, of: Named, error: BaseException | None) -> Delivery:
        """See `Gateway.failed`."""
        return await self._word(of, refused(error))

    async def _word(self, of: Named, outcome: Outcome) -> Delivery:
        """The gateway's word on an attempt, to the attempt while it waits for it, else to the ledger as a late fact."""
        outcome = calls.writable(outcome)
        stream = _stream(of)
        dossier = await self._attempts.reload(stream)
        state = dossier.state
        channel = self._external(state)
        number = of.attempt if isinstance(of, Attempting) else state.attempts
        if not 0 < number <= state.attempts:
            raise NotPossible(f"no attempt {number or 'at all'} of intent {stream} has begun: call `attempting` first")
        if isinstance(outcome, Accepted) and isinstance(calls.identified(channel, outcome), Unknown):
            raise InvalidMessage(
                f"intent {stream} was delivered without an id: give the platform's, or declare"
                f" `External({channel.name!r}, receipt='none')` where it has none"
            )
        word = channel.expected(stream, number)
        if word is not None and word.say(outcome):
            task = self._dispatcher.busy.get(stream)
            if task is not None:
                await asyncio.wait([task], timeout=WORD_WAIT_S)
            if word.heard:
                return await self._standing(stream)
        await self._late(await self._attempts.reload(stream), channel, number, outcome)
        return await self._standing(stream)

    async def _late(self, dossier: Dossier, channel: External, number: int, outcome: Outcome) -> None:
        """A fact about an attempt that nobody waits for: it settles what is open, or counts as a contradiction."""
        state = dossier.state
        if isinstance(outcome, Unknown) and (state.current is None or state.current.number != number):
            return  # nothing that the ledger does not know
        unit = min(state.next_unit or 0, len(state.units) - 1)
        if life.known(state, self._attempts.event(state, channel, number, unit, outcome, 0)):
            return
        dossier = await self._attempts.record(dossier, channel, number, unit, outcome, 0)
        self._dispatcher.waiters.tell(dossier, self._sender.clock.wall_ms())
        self._dispatcher.wake()

    async def _standing(self, stream: str) -> Delivery:
        dossier = await self._attempts.reload(stream)
        last = decide.finish(dossier.state, at=self._sender.clock.wall_ms(), by=self._dispatcher.by)
        if last is not None:  # the last fact came beside others: its end is still to be said
            await self._sender.store.append(Append(stream, (last,), expected=dossier.state.head))
            dossier = await self._attempts.reload(stream)
        return self._sender.delivery(dossier.key or stream, settled(dossier))

    def _external(self, state: IntentState) -> External:
        channel = self._dispatcher.channels.get((state.channel, state.account))
        if isinstance(channel, External):
            return channel
        raise NotPossible(
            f"intent {state.id} is for channel {state.channel}/{state.account}, which is not configured as `External`"
            " here: the ledger sends it, and nobody else may"
        )


def _stream(of: Named) -> str:
    return of if isinstance(of, str) else of.intent


def _why_not(state: IntentState, step: Step) -> str:
    """Why no attempt may begin, and what to do."""
    what = f"intent {state.id} is {state.status.value}"
    if state.terminal:
        return f"{what}: it has ended; record a new message"
    if state.status is Status.SENDING:
        return f"{what}: attempt {state.attempts} is in flight; say `delivered` or `failed` first"
    if state.status is Status.UNKNOWN:
        return (
            f"{what}: attempt {state.attempts} may have arrived; say `delivered` or `failed` if you know, otherwise a"
            " look-up or a person decides (`msgledger intents resolve`)"
        )
    match step:
        case Wait(until=until, what=why):
            return f"{what}: {why}" + ("" if until is None else f", until {until} (UTC ms)")
        case End(reason=reason):
            return f"{what}: it ends as {reason}"
        case Finish():
            return f"{what}: it is about to end"
        case _:
            return f"{what}: something else is done about it now"
