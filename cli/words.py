"""What the rules, steps and statuses mean, in words for people. It only describes what `ledger.steps` decides."""

from __future__ import annotations

from typing import Final, NamedTuple

from ..ledger.intent import IntentState, Status
from ..ledger.outcome import Cause
from ..ledger.steps import Check, End, Finish, Park, Release, Start, Step, TakeOver, Terms, Wait
from .output import lasting, when

RULES: Final = {
    "R1": "silence proves nothing until the lease end of every attempt in doubt",
    "R2": "doubt belongs to an attempt, and only what names that attempt removes it",
    "R3": "a verdict is about one unit, and only the first one without a receipt can be in doubt",
    "R4": "pending means that nothing is in doubt; an unknown outcome is reopened by proof, by the platform's"
    " deduplication window, by an at-least-once policy or by a person, never by itself",
    "R5": "sending again by the same key needs a deduplication window that outlasts the whole attempt, counted from the"
    " first one",
    "R6": "a lane is freed by knowledge: an unknown outcome holds it, a held one lets it go at the lease end",
    "R7": "one message of a lane at a time, and the earlier ones first",
    "R8": "an intent whose attempts are spent ends as failed",
    "R9": "right before each request the worker looks once more whether the attempt is still its own",
    "R10": "time is measured, not compared: on one host a worker is dead when its file lock is free",
}

CAUSES: Final = {
    Cause.TIMEOUT.value: "no answer came before the deadline",
    Cause.RESET.value: "the connection broke before an answer came",
    Cause.SERVER_ERROR.value: "the platform answered with an error that does not say whether it took the message",
    Cause.MALFORMED.value: "the answer could not be understood",
    Cause.NO_IDENTITY.value: "the platform said yes without a message id",
    Cause.OWNER_LOST.value: "the worker died while its request was on its way",
    Cause.RAISED.value: "the channel's own function failed in the middle",
    Cause.CLOSING.value: "the gateway closed while its request was on its way",
}

ENDINGS: Final = {
    "rejected": ("the platform refused it, and the same request would be refused again", ()),
    "attempts_exhausted": ("all its attempts are spent", ("R8",)),
    "expired": ("it was not sent before its age limit, and a late message is worse than none", ("R4",)),
    "discarded": ("a person, or a cancel after some units were sent, left it as it is", ("R4", "R6")),
    "incomplete": ("its worker died before the content was whole", ()),
}


class Said(NamedTuple):
    """A sentence, and the rules behind it."""

    text: str
    rules: tuple[str, ...] = ()


def why(state: IntentState) -> Said:
    """Why it has the status that it has."""
    match state.status:
        case Status.PENDING:
            return _why_pending(state)
        case Status.SENDING:
            number = state.current.number if state.current is not None else state.attempts
            return Said(
                f"attempt {number} is in flight; only what comes of it, or the loss of its owner, moves it on",
                ("R2", "R9"),
            )
        case Status.COMMITTING:
            return Said("every required unit is settled; only the event that ends it is missing")
        case Status.UNKNOWN:
            return _why_unknown(state)
        case Status.SENT:
            ids = ", ".join(state.platform_ids) or "an acceptance without ids, as this channel gives none"
            return Said(f"every required unit has a receipt: {ids}")
        case Status.FAILED:
            text, rules = ENDINGS.get(state.reason or "", (state.reason or "it has ended", ()))
            failure = f" ({state.failure.value}{f', code {state.code}' if state.code else ''})" if state.failure else ""
            return Said(text + failure, rules)
        case Status.CANCELLED:
            return Said(f"it was taken back before anything was sent: {state.reason}", ("R4",))


def _why_pending(state: IntentState) -> Said:
    if state.hold == "config":
        failure = state.failure.value if state.failure is not None else "auth"
        return Said(f"the platform refused our access ({failure}); it waits until the channel's configuration changes")
    if state.hold == "channel":
        return Said("its channel is not in the configuration any more")
    if state.reopened:
        return Said("a person said that it was not sent, so it will be sent again", ("R4",))
    if state.attempts == 0:
        return Said("it is recorded and owed; no attempt has started", ("R7",))
    failure = state.failure.value if state.failure is not None else "nothing of it is in doubt"
    return Said(f"the last attempt provably sent nothing ({failure}), so it may be tried again", ("R4",))


def _why_unknown(state: IntentState) -> Said:
    cause = CAUSES.get(state.reason or "", "nobody knows what came of it")
    numbers = ", ".join(str(attempt.number) for attempt in state.doubt)
    text = f"{cause}: attempt {numbers} may have been taken, and nobody guesses" if numbers else cause
    if state.hold == "unresolved":
        return Said(f"{text}; it could not be settled and is held for a person, while its lane goes on", ("R4", "R6"))
    return Said(text, ("R2", "R4"))


def what_next(state: IntentState, step: Step, terms: Terms, now: int) -> Said:
    """What the next worker that looks will do, and when."""
    match step:
        case Start(licence="window"):
            assert terms.window_ms is not None
            return Said(
                "it is sent again with the same key and the same bytes: the platform still recognises them within "
                f"{lasting(terms.window_ms)} of the first attempt, so no second copy appears",
                ("R5",),
            )
        case Start(licence="at_least_once"):
            return Said("a copy with the visible duplicate marker is sent, as its at-least-once policy allows", ("R4",))
        case Start(licence="operator"):
            return Said("it is sent again on a person's word", ("R4",))
        case Start():
            return Said("it is sent as soon as its lane is free and its channel is ready", ("R7",))
        case Finish():
            return Said("the event that ends it is appended; the platform is not asked")
        case End(reason=reason):
            text, rules = ENDINGS[reason]
            return Said(f"it ends as failed ({reason}): {text}", rules)
        case TakeOver():
            return Said("its owner is gone, so the attempt is taken over and its outcome becomes unknown", ("R10",))
        case Check(conclusive=True):
            return Said(
                "the platform is asked; found means sent, and not found now proves that it was not sent", ("R1", "R3")
            )
        case Check():
            proof = " proves nothing yet" if terms.proves_absence and state.hold is None else " proves nothing"
            return Said(f"the platform is asked; found means sent, not found{proof}", ("R1", "R3"))
        case Park():
            return Said("it is held for a person, because nothing can settle it by itself; its lane goes on", ("R6",))
        case Release():
            return Said("what it was held for has changed, so it goes on")
        case Wait(until=None, what=what):
            return Said(f"nothing by itself: {what}")
        case Wait(until=until, what=what):
            assert until is not None
            far = f", in {lasting(until - now)}" if until > now else ""
            return Said(f"nothing until {when(until)}{far}: {what}", ("R1",) if state.status is Status.UNKNOWN else ())


def unblock(state: IntentState, step: Step) -> list[str]:
    """What a person could do about it."""
    short = state.id
    if state.terminal:
        return []
    if state.status is Status.UNKNOWN:
        ways = [f"say what you know: `msgledger intents resolve {short} --as sent|not-sent|discard --reason ...`"]
        if state.hold is None:
            ways.append("or wait: it is looked up or sent again where that is safe")
        return ways
    if state.hold == "config":
        return ["mend the credential or the rights on the platform, and start the worker with the new configuration"]
    if state.hold == "channel":
        return [f"put the channel {state.channel!r} back into the configuration, or cancel it"]
    if state.status is Status.PENDING and not isinstance(step, Finish | End):
        return [f"take it back while nothing of it was sent: `msgledger intents cancel {short} --reason ...`"]
    return []
