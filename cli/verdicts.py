"""`intents cancel` and `intents resolve`: a person's decision, recorded with its reason.

What may be decided is `ledger.decide`'s business. Repeating a decision changes nothing and says so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

import click
import msgspec

from ..ledger import decide
from ..ledger.errors import NotPossible
from ..ledger.events import Event
from ..ledger.intent import IntentState, Status
from ..ledger.limits import KEY_MAX_BYTES
from ..ledger.store.apply import apply_sync, dossier_of
from ..ledger.store.store import Store
from . import opening
from .base import Command, setup
from .deciding import decisive, each
from .filters import the_intent
from .output import emit, say

Verdict = Literal["sent", "not-sent", "discard"]
DONE: Final = {"sent": "resolved_sent", "not-sent": "resolved_not_sent", "discard": "discarded"}


class Done(msgspec.Struct, frozen=True):
    """What a decision led to. `did`: cancelled, resolved_..., discarded, already_..., or not_possible."""

    intent: str
    did: str
    status: str
    why: str | None = None


@click.command(cls=Command)
@decisive("intents")
def cancel(intents: tuple[str, ...], reason: str, yes: bool) -> None:
    """Take back intents of which nothing was sent. What may have been sent cannot be cancelled: resolve it.

    JSON: a line for each: {"intent", "did", "status", "why"}; did is cancelled, discarded, already_... or not_possible.

    \b
    Example:
      msgledger intents cancel 0193a7 --reason "the alert was wrong"
    """

    def one(store: Store, stream: str) -> Done:
        state = store.read_sync(dossier_of, stream).state
        if state.status is Status.CANCELLED:
            return Done(stream, "already_cancelled", state.status.value)
        if state.status is Status.FAILED and state.reason == "discarded":
            return Done(stream, "already_discarded", state.status.value)
        now, by = opening.now_ms(), opening.actor()
        after = apply_sync(store, stream, lambda state: decide.cancelled(state, reason, at=now, by=by))
        return Done(stream, "cancelled" if after.status is Status.CANCELLED else "discarded", after.status.value)

    _each(intents, one, "will be cancelled", yes)


@click.command(cls=Command)
@decisive("intents")
@click.option(
    "--as", "verdict", type=click.Choice(["sent", "not-sent", "discard"]), required=True, help="What you know of it."
)
@click.option("--platform-id", metavar="ID", help="With --as sent: the id of the message that is there.")
def resolve(intents: tuple[str, ...], reason: str, verdict: Verdict, platform_id: str | None, yes: bool) -> None:
    """Say what became of messages whose outcome is unknown. You are believed: a wrong verdict loses or doubles one.

    sent: it is there, and is committed. not-sent: it is not there, and is sent again. discard: leave it as it is.

    JSON: a line for each: {"intent", "did", "status", "why"}.

    \b
    Examples:
      msgledger intents resolve 0193a7 --as sent --platform-id 4711 --reason "seen in the room"
      msgledger intents resolve 0193a7 --as not-sent --reason "the room never got it"
    """
    if platform_id is not None and verdict != "sent":
        raise click.UsageError("--platform-id goes with --as sent: nothing else has a message to name")
    if platform_id is not None and not 0 < len(platform_id.encode("utf-8", "replace")) <= KEY_MAX_BYTES:
        raise click.UsageError(f"--platform-id must have 1 to {KEY_MAX_BYTES} bytes")
    if platform_id is not None and len(intents) > 1:
        raise click.UsageError("--platform-id names one message: resolve one intent at a time")

    def one(store: Store, stream: str) -> Done:
        state = store.read_sync(dossier_of, stream).state
        if (already := _already(state, verdict)) is not None:
            return Done(stream, already, state.status.value)
        now, by = opening.now_ms(), opening.actor()
        after = apply_sync(
            store,
            stream,
            lambda state: decide.resolved(state, verdict, reason, at=now, by=by, platform_id=platform_id),
        )
        after = _ended(store, after, by)
        return Done(stream, DONE[verdict], after.status.value)

    _each(intents, one, f"will be resolved as {verdict}", yes)


def _already(state: IntentState, verdict: Verdict) -> str | None:
    """The word for a verdict that stands."""
    if verdict == "sent" and state.status in (Status.SENT, Status.COMMITTING):
        return "already_sent"
    if verdict == "discard" and state.status is Status.FAILED and state.reason == "discarded":
        return "already_discarded"
    if verdict == "not-sent" and state.status is Status.PENDING and state.reopened:
        return "already_not_sent"
    return None


def _ended(store: Store, state: IntentState, by: str) -> IntentState:
    """The event that ends it, where the verdict settled it; a worker that was faster has done the same."""

    def last(state: IntentState) -> Event:
        event = decide.finish(state, at=opening.now_ms(), by=by)
        if event is None:
            raise NotPossible(f"intent {state.id} is {state.status.value}")
        return event

    try:
        return apply_sync(store, state.id, last) if state.status is Status.COMMITTING else state
    except NotPossible:
        return store.read_sync(dossier_of, state.id).state


def _each(prefixes: tuple[str, ...], one: Callable[[Store, str], Done], will: str, yes: bool) -> None:
    def refused(stream: str, error: NotPossible) -> Done:
        return Done(stream, "not_possible", "unchanged", str(error))

    each(prefixes, the_intent, one, refused, _tell, noun="intent", will=will, yes=yes)


def _tell(done: Done) -> None:
    if setup().json:
        emit(done)
        return
    why = f": {done.why}" if done.why else "" if done.status in done.did else f", now {done.status}"
    say(f"{done.intent}  {done.did}{why}")
