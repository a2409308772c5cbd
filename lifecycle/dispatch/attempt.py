"""One attempt, from the claim that is durable to the fact that is: the last look, the request, what came of it.

A unit's receipt is durable before the next unit starts. What the platform did is appended until the store takes it,
whoever owns the intent by then; only the word `unknown` needs the attempt still to be ours.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from ...adapters import calls
from ...adapters.gate import Gate
from ...adapters.surface import Channel, RenderContext, SendContext, falls_back
from ...ledger import decide, life
from ...ledger import events as e
from ...ledger.codec import to_json
from ...ledger.dossier import Dossier, receipt_of
from ...ledger.errors import Conflict, InvalidMessage, StoreClosed, StoreUnavailable, WriteUncertain
from ...ledger.intent import IntentState, Status
from ...ledger.limits import ERROR_TEXT_MAX_CHARS, LOOK_FRESH_MS
from ...ledger.message import ReceiptPart, RenderedBatch, Reply, said_by
from ...ledger.outcome import (
    Accepted,
    Cause,
    FailureClass,
    NotSent,
    Outcome,
    Rejected,
    Sent,
    Unknown,
    Unresolved,
    Verdict,
)
from ...ledger.steps import Check, Start, Terms
from ...ledger.store.append import Append, Appended
from ...ledger.store.apply import dossier_of
from ...ledger.store.clock import Clock
from ...ledger.store.crash import crash_point
from ...ledger.store.store import Store
from ...projections.intents import head_of
from .media import Media

log = logging.getLogger("msgledger")

APPEND_AGAIN_S = 0.05
FALLBACK_FOR = (FailureClass.INVALID_PAYLOAD, FailureClass.NOT_FOUND)

Changed = Callable[[Dossier], None]
AccountTurned = Callable[[tuple[str, str], bool, FailureClass | None], None]
"""Told when a platform can no longer be reached (False) and when it can again (True)."""


class Attempts:
    """What performs attempts and look-ups of one worker. `terms` of a channel are made once for each configuration."""

    def __init__(
        self,
        store: Store,
        *,
        worker: str,
        clock: Clock,
        chance: random.Random,
        gate: Gate,
        clock_bound_ms: int,
        turned: AccountTurned,
    ) -> None:
        self.store = store
        self.worker = worker
        self.by = f"worker:{worker}"
        self.clock = clock
        self.chance = chance
        self.gate = gate
        self.clock_bound_ms = clock_bound_ms
        self.turned = turned
        self.media = Media(store, clock)
        self._terms: dict[tuple[object, ...], Terms] = {}

    def terms(self, channel: Channel) -> Terms:
        known = (channel.name, channel.account, channel.credential, channel.config)
        terms = self._terms.get(known)
        if terms is None:
            terms = self._terms[known] = calls.terms(channel, self.store.pseudonyms, self.clock_bound_ms)
        return terms

    def claim(self, dossier: Dossier, channel: Channel, step: Start) -> e.AttemptStarted:
        """The event that claims the intent for this worker, for the head that the dossier has."""
        return decide.start(
            dossier.state,
            step,
            self.terms(channel),
            at=self.clock.wall_ms(),
            boot_ms=self.clock.boot_ms(),
            owner=self.worker,
            tries=self.tries(channel, dossier, marked=step.marked),
        )

    def tries(self, channel: Channel, dossier: Dossier, *, marked: bool = False) -> tuple[e.UnitTry, ...]:
        """What the next attempt would send: each unit that is still without a receipt, the first of them `marked`."""
        state, batch = dossier.state, dossier.batch
        if batch is None:
            return ()
        number, first = state.attempts + 1, state.next_unit
        return tuple(
            calls.unit_try(
                channel,
                calls.outgoing(batch, index, marked and index == first),
                self.context(channel, dossier, index, number, marked and index == first),
                self.store.pseudonyms,
            )
            for index in range(len(batch.units))
            if index not in state.receipts and index not in state.gaps
        )

    async def run(self, dossier: Dossier, channel: Channel, changed: Changed) -> None:
        """Send the units of the attempt that was just claimed, one after the other, until it ends."""
        state = dossier.state
        number = state.attempts
        account = (channel.name, channel.account)
        seen_ms = 0 if state.current is None else state.current.boot_ms
        self.gate.began(account)
        try:
            while (
                state.status is Status.SENDING
                and state.current is not None
                and state.current.number == number
                and (unit := state.next_unit) is not None
            ):
                dossier, outcome, seen_ms = await self._unit(dossier, channel, unit, seen_ms)
                state = dossier.state
                up = self.gate.ended(account, outcome)
                if up is not None:
                    self.turned(account, up, outcome.failure if isinstance(outcome, Rejected) else None)
                changed(dossier)
        finally:
            self.gate.ended(account, None)

    async def _unit(self, dossier: Dossier, channel: Channel, unit: int, seen_ms: int) -> tuple[Dossier, Outcome, int]:
        """One unit: the last look, one request, the fact.

        `seen_ms`, on the boot clock: the append before it was handed over then, so the ledger was seen no earlier. The
        same comes back for the next unit.
        """
        state, batch = dossier.state, dossier.batch
        current = state.current
        assert current is not None and batch is not None
        began = self.clock.boot_ms()
        left_ms = current.deadline_ms - (began - current.boot_ms)
        latest = dossier

        async def last_look() -> None:
            nonlocal latest, seen_ms
            if self.clock.boot_ms() - current.boot_ms >= current.deadline_ms:
                raise decide.superseded("its deadline has passed")
            if self.clock.boot_ms() - seen_ms <= LOOK_FRESH_MS:
                return
            seen_ms = self.clock.boot_ms()
            head = await self.store.read(head_of, state.id)
            if head != latest.state.head:
                latest = await self.reload(state.id)
                now = latest.state
                mine = now.status is Status.SENDING and now.current is not None and now.current.number == current.number
                if not mine or unit in now.receipts:
                    raise decide.superseded("another worker has gone on with it")

        outcome: Outcome
        looked = False
        try:
            await last_look()
            looked = True
            crash_point("before-deliver")
            copy = current.marks(unit)
            context = self.context(channel, dossier, unit, current.number, copy, left_ms / 1000, last_look)
            outcome = await self.media.deliver(channel, calls.outgoing(batch, unit, copy), context)
            crash_point("after-deliver")
        except Rejected as stopped:
            outcome = stopped
        except StoreUnavailable as error:
            outcome = decide.superseded(f"the last look was not possible: {error}")
        except asyncio.CancelledError:
            ending = Unknown(Cause.CLOSING) if looked else decide.superseded("the gateway closes")
            await self.record(latest, channel, current.number, unit, ending, self.clock.boot_ms() - began)
            raise
        answered = self.clock.boot_ms()
        took_ms = answered - began
        return await self.record(latest, channel, current.number, unit, outcome, took_ms), outcome, answered

    async def record(
        self, dossier: Dossier, channel: Channel, number: int, unit: int, outcome: Outcome, took_ms: int
    ) -> Dossier:
        """Append what came of attempt `number`, which need not be the newest any more, and the end it leads to."""
        while True:
            state = dossier.state
            event = self.event(state, channel, number, unit, outcome, took_ms)
            after = life.evolve(state, event, state.updated_at)
            events: tuple[e.Event, ...] = (event,)
            plan = self._fallback(dossier, channel, outcome, after)
            if plan is not None:
                events = (event, plan)
            elif (last := decide.finish(after, at=event.at, by=self.by)) is not None:
                events = (event, last)
            result = await self._insist(Append(state.id, events, expected=state.head))
            if not isinstance(result, Conflict):
                break
            if not isinstance(outcome, Unknown):
                result = await self._insist(Append(state.id, (event,)))
                if isinstance(result, Conflict):
                    raise result
                plan = None
                break
            dossier = await self.reload(state.id)
            current = dossier.state.current
            if current is None or current.number != number:
                return dossier
        crash_point("after-fact")
        changed = result.state
        assert isinstance(changed, IntentState)
        details = dossier.details
        if isinstance(outcome, Accepted) and outcome.parts:
            details = {**details, unit: outcome.parts}
        batch = plan.content.batch if plan is not None and plan.content is not None else dossier.batch
        sent_at = dossier.sent_at or (outcome.sent_at if isinstance(outcome, Accepted) else None)
        return replace(dossier, state=changed, details=details, batch=batch, sent_at=sent_at)

    def event(
        self, state: IntentState, channel: Channel, number: int, unit: int, outcome: Outcome, took_ms: int
    ) -> e.UnitAccepted | e.AttemptFailed | e.OutcomeUnknown:
        at = self.clock.wall_ms()
        match outcome:
            case Accepted():
                kind = state.units[unit].kind
                return decide.accepted(number, unit, kind, outcome, at=at, by=self.by, took_ms=took_ms)
            case Rejected():
                return decide.failed(
                    state,
                    number,
                    unit,
                    outcome,
                    at=at,
                    by=self.by,
                    terms=self.terms(channel),
                    chance=self.chance.random(),
                    took_ms=took_ms,
                )
            case Unknown():
                chance = self.chance.random()
                return decide.unknown(state, number, unit, outcome, at=at, by=self.by, chance=chance, took_ms=took_ms)

    def _fallback(
        self, dossier: Dossier, channel: Channel, outcome: Outcome, after: IntentState
    ) -> e.BatchPlanned | None:
        """Another plan for a batch that was refused whole, once an intent, where the channel has one."""
        if not (isinstance(outcome, Rejected) and outcome.failure in FALLBACK_FOR and falls_back(channel)):
            return None
        refused, message = dossier.batch, dossier.message
        if after.plan > 0 or after.receipts or after.doubt or not after.refused or refused is None or message is None:
            return None
        at = self.clock.wall_ms()
        context = RenderContext(at=at, intent=after.id)
        try:
            batch = channel.fallback(message, refused, outcome.failure, context, outcome.code)
        except InvalidMessage as error:
            log.warning("intent %s: the channel's fallback is refused: %s", after.id, error)
            return None
        if batch is None:
            return None
        return e.BatchPlanned(
            at=at,
            by=self.by,
            plan=after.plan + 1,
            units=e.planned(batch.units),
            atomicity=batch.atomicity,
            content_mac=self.store.pseudonyms.mac("content", to_json(batch)),
            why=outcome.failure,
            content=e.PlanContent(batch=batch),
        )

    async def check(self, dossier: Dossier, channel: Channel, step: Check, changed: Changed) -> None:
        """Ask the platform what became of the unit in doubt, and append the answer."""
        state, batch = dossier.state, dossier.batch
        if batch is None or not state.doubt:
            return
        from_at = self.clock.wall_ms()
        verdict, attempt = await self._look_up(dossier, channel, batch, step.unit)
        crash_point("after-look-up")
        at = self.clock.wall_ms()
        look = channel.capabilities.reconcile
        evidence: dict[str, object] = {"method": "" if look is None else look.kind, "from": from_at, "to": at}
        evidence |= verdict.evidence
        found = None
        retryable = True
        match verdict:
            case Sent(receipt=receipt):
                kind = state.units[step.unit].kind
                found = decide.accepted(attempt, step.unit, kind, receipt, at=at, by=self.by)
                word = "sent"
            case NotSent():
                word = "not_sent"
            case _:
                word, retryable = "unresolved", verdict.retryable
        event = decide.checked(
            state, step, word, at=at, by=self.by, evidence=evidence, retryable=retryable, found=found
        )
        if isinstance(verdict, Unresolved) and verdict.detail:  # a channel's words are content, never evidence
            event = replace(event, content=e.AcceptedContent(raw={"detail": verdict.detail[:ERROR_TEXT_MAX_CHARS]}))
        after = life.evolve(state, event, state.updated_at)
        last = decide.finish(after, at=at, by=self.by)
        events = (event,) if last is None else (event, last)
        [result] = await self.store.append(Append(state.id, events, expected=state.head))
        if isinstance(result, Conflict):
            return
        details = dossier.details
        if isinstance(verdict, Sent) and verdict.receipt.parts:
            details = {**details, step.unit: verdict.receipt.parts}
        assert isinstance(result.state, IntentState)
        changed(replace(dossier, state=result.state, details=details))

    async def _look_up(
        self, dossier: Dossier, channel: Channel, batch: RenderedBatch, unit: int
    ) -> tuple[Verdict, int]:
        """Ask for the attempts in doubt, each key once; the verdict for all of them, and the attempt that it is about.

        A marked copy went out under a key of its own. One that is found settles it; absence needs every answer.
        """
        verdict: Verdict = Unresolved("nothing is in doubt", retryable=False)
        asked: set[str] = set()
        for attempt in dossier.state.doubt:
            copy = attempt.marks(unit)
            context = self.context(channel, dossier, unit, attempt.number, copy)
            if context.provider_key in asked:
                continue
            answer = await calls.look_up(channel, calls.outgoing(batch, unit, copy), context)
            if isinstance(answer, Sent):
                return answer, attempt.number
            if not asked or isinstance(answer, Unresolved):
                verdict = answer
            asked.add(context.provider_key)
        return verdict, dossier.state.doubt[-1].number

    async def reload(self, stream: str) -> Dossier:
        """The intent as the ledger has it now."""
        return await self.store.read(dossier_of, stream)

    async def _insist(self, item: Append) -> Appended | Conflict:
        """Append what the platform did: again and again while the ledger cannot be written, until it is closed."""
        warned = False
        while True:
            try:
                [result] = await self.store.append(item)
                return result
            except StoreClosed:
                raise
            except (StoreUnavailable, WriteUncertain) as error:  # written twice it is still one fact
                if not warned:
                    log.warning("intent %s: an outcome waits for the ledger: %s", item.stream, error)
                    warned = True
                await asyncio.sleep(APPEND_AGAIN_S)

    def context(
        self,
        channel: Channel,
        dossier: Dossier,
        unit: int,
        attempt: int,
        marked: bool,
        deadline_s: float | None = None,
        last_look: Callable[[], Awaitable[None]] | None = None,
    ) -> SendContext:
        """What a channel is told. The same intent, unit and attempt give the same request."""
        state, message, batch = dossier.state, dossier.message, dossier.batch
        assert message is not None and batch is not None
        payload = batch.units[unit].payload or {}
        relation = message.relation
        return SendContext(
            intent=state.id,
            attempt=attempt,
            unit=unit,
            provider_key=calls.provider_key(state.id, state.plan, unit, attempt if marked else 0),
            deadline_s=channel.capabilities.deadline_s if deadline_s is None else deadline_s,
            target=message.target,
            action=state.action,
            of_platform_id=payload.get("platform_id", dossier.of_platform_id),
            of_token=payload.get("token") if "platform_id" in payload else dossier.of_token,
            reply_to=relation.reply_to if isinstance(relation, Reply) and unit == 0 else None,
            origin=said_by(message),
            receipts=self._earlier(dossier, unit),
            first_attempt_at=state.doubt[0].at if state.doubt else None,
            marked=marked,
            last_look=last_look,
        )

    def _earlier(self, dossier: Dossier, unit: int) -> tuple[ReceiptPart, ...]:
        if unit == 0 or not dossier.state.receipts:
            return ()
        receipt = receipt_of(dossier.state, dossier.details)
        return () if receipt is None else receipt.parts
