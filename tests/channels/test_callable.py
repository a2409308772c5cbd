"""Channels made of a function, under the contract, and what their function may say or raise."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest
from msgledger.adapters import calls
from msgledger.adapters.callable import CallableChannel
from msgledger.adapters.receiving import Event
from msgledger.adapters.surface import (
    Capabilities,
    Change,
    Channel,
    FallsBack,
    Idempotency,
    Lookup,
    Reconciles,
    SendContext,
    TextLimit,
)
from msgledger.ledger.errors import InvalidConfig, InvalidMessage
from msgledger.ledger.message import Message, RenderedBatch, RenderedUnit, Target
from msgledger.ledger.origin import Origin, decode
from msgledger.ledger.outcome import (
    Accepted,
    Cause,
    FailureClass,
    NotDispatched,
    Proof,
    Rejected,
    Sent,
    Unknown,
    Unresolved,
)

from .contract import Bench, ChannelContract, Seen, context, deliver, opened, rendered, unique


class Wall:
    """A gateway's send code over a chat in memory."""

    def __init__(self) -> None:
        self.ids = itertools.count(1)
        self.messages: dict[str, Seen] = {}
        self.keys: dict[str, str] = {}
        self.tags: dict[str, Event] = {}
        self.next: Exception | str | None = None

    async def deliver(self, unit: RenderedUnit, told: SendContext) -> Any:
        todo, self.next = self.next, None
        if isinstance(todo, Rejected):
            raise todo
        if told.action == "delete":
            del self.messages[told.of_platform_id or ""]
            return Accepted(told.of_platform_id)
        name = told.of_platform_id if told.action == "edit" else str(next(self.ids))
        assert name is not None
        self.messages[name] = Seen(name, unit.text or "", reply_to=told.reply_to)
        self.tags[name] = {"tag": told.origin.tag()}
        self.keys[told.provider_key] = name
        if isinstance(todo, Exception):
            raise todo
        return None if todo == "no id" else name

    async def find(self, unit: RenderedUnit, told: SendContext) -> Sent | Unresolved:
        name = self.keys.get(told.provider_key)
        return Unresolved("not seen") if name is None else Sent(Accepted(name))


class WallBench(Bench):
    secret = "t0ken-of-the-wall"

    def __init__(self, **more: Any) -> None:
        self.wall = Wall()
        self.more = more
        self.place = unique("wall")

    def channel(self) -> Channel:
        look = {"reconcile": self.wall.find} if self.more.pop("looks", False) else {}
        self.more |= look
        if self.more.pop("tagging", False):
            self.more |= {"encode_origin": Origin.tag, "decode_origin": lambda event: decode(event["tag"])}
        return CallableChannel("wall", self.wall.deliver, credential=self.secret, config=self.secret, **self.more)

    def target(self, thread: str | None = None) -> Target:
        return Target.group("wall", self.place, thread=thread)

    def visible(self, target: Target) -> list[Seen]:
        return list(self.wall.messages.values())

    def events(self, target: Target) -> list[Event]:
        return list(self.wall.tags.values())

    def lose_next_answer(self) -> None:
        self.wall.next = ConnectionResetError("lost")

    def withhold_next_id(self) -> None:
        self.wall.next = "no id"

    def refuse_next(self, failure: FailureClass, retry_after_s: float | None = None) -> None:
        self.wall.next = (
            ValueError("what?") if failure is FailureClass.UNKNOWN else Rejected(failure, retry_after_s=retry_after_s)
        )


FORMS: dict[str, dict[str, Any]] = {
    "plain": {},
    "chunking utf16": {"text_max": 300, "text_unit": "utf16", "chunking": True},
    "bytes": {"text_max": 500, "text_unit": "bytes"},
    "looks up": {"looks": True},
    "tags": {"tagging": True, "chunking": True},
    "declared": {"capabilities": Capabilities(text=TextLimit(200), edit=Change(), delete=Change(60.0), receipt="none")},
}


@pytest.fixture(params=FORMS, ids=str)
def bench(request: pytest.FixtureRequest) -> WallBench:
    return WallBench(**FORMS[request.param])


class TestCallable(ChannelContract):
    """ADP-2: a function alone is a whole channel."""


def says(answer: Any, **more: Any) -> Any:
    async def function(unit: RenderedUnit, told: SendContext) -> Any:
        if isinstance(answer, BaseException) and more.get("raised", True):
            raise answer
        return answer

    channel = CallableChannel("fn", function)
    return opened(
        channel, lambda channel: deliver(channel, RenderedUnit(0, text="x"), context(Target.direct("fn", "a")))
    )


@pytest.mark.parametrize(
    ("answer", "expected"),
    [("id-7", "id-7"), (7, "7"), (None, None), ("", None), (Accepted("a", duplicate=True), "a")],
)
def test_what_a_function_returns(answer: Any, expected: str | None) -> None:
    """ADP-1: an id, a receipt, or nothing, which is an acceptance without identity."""
    outcome = says(answer)
    assert isinstance(outcome, Accepted)
    assert outcome.platform_id == expected


@pytest.mark.parametrize("answer", [True, 1.5, {"id": 1}, object()])
def test_what_cannot_be_read_is_unknown(answer: Any) -> None:
    """FAIL-10: the message may be out, so an answer of another kind is no failure and no receipt."""
    outcome = says(answer)
    assert isinstance(outcome, Unknown)
    assert outcome.cause is Cause.RAISED


@pytest.mark.parametrize(
    "error", [ValueError("secret of the SDK"), TimeoutError(), OSError(), KeyError("x"), ConnectionRefusedError()]
)
def test_what_is_raised_is_unknown(error: Exception) -> None:
    """SND-7, FAIL-9: also a refused connection, because only the function knows what it did before."""
    outcome = says(error)
    assert isinstance(outcome, Unknown)
    assert outcome.cause is Cause.RAISED


@pytest.mark.parametrize("raised", [True, False])
def test_a_declared_failure_is_proof(raised: bool) -> None:
    """FAIL-11: `Rejected` and `NotDispatched`, raised or returned, are the function's own word."""
    refused = says(Rejected("permission", "no", code="c1"), raised=raised)
    assert isinstance(refused, Rejected)
    assert (refused.failure, refused.proof, refused.code) == (FailureClass.PERMISSION, Proof.DECLARED, "c1")
    unsent = says(NotDispatched("down"), raised=raised)
    assert (unsent.failure, unsent.proof, unsent.bytes_left) == (FailureClass.TRANSIENT, Proof.DECLARED, False)
    unsure = says(Unknown("timeout"), raised=raised)
    assert unsure.cause is Cause.TIMEOUT


def test_the_last_look_goes_through_unchanged() -> None:
    """R9: a function that looks once more and is stopped keeps the core's own proof."""
    stop = Rejected("cancelled", code="superseded", bytes_left=False, proof=Proof.NEVER_DISPATCHED)
    assert says(stop) is stop
    assert stop.proof is Proof.NEVER_DISPATCHED


def test_cancellation_comes_out() -> None:
    """FAIL-8: a cancel from outside is not an outcome of the channel."""
    with pytest.raises(asyncio.CancelledError):
        says(asyncio.CancelledError())


def test_the_deadline_is_hard() -> None:
    """R1: a function that does not come back is cut off at its deadline, and its outcome is unknown."""
    gone: list[str] = []

    async def never(unit: RenderedUnit, told: SendContext) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            gone.append("cut off")

    told = context(Target.direct("fn", "a"), deadline_s=0.05)
    outcome = opened(CallableChannel("fn", never), lambda ours: calls.deliver(ours, RenderedUnit(0, text="x"), told))
    assert isinstance(outcome, Unknown)
    assert (outcome.cause, gone) == (Cause.TIMEOUT, ["cut off"])


def test_a_look_up_that_raises_is_unresolved() -> None:
    """UNK-6."""

    async def broken(unit: RenderedUnit, told: SendContext) -> Any:
        raise OSError("down")

    channel = CallableChannel("fn", Wall().deliver, reconcile=broken)
    assert isinstance(channel, Reconciles)
    verdict = opened(channel, lambda _: channel.reconcile(RenderedUnit(0), context(Target.direct("fn", "a"))))
    assert isinstance(verdict, Unresolved)
    assert verdict.retryable


def test_no_claim_of_a_function_is_proved() -> None:
    """CAP-6: at most `documented`, and without a word about it unproven, which is no licence to send again."""
    fn = Wall().deliver
    proved = Idempotency("client_key", "k", 60, evidence="proved")
    with pytest.raises(InvalidConfig, match="documented"):
        CallableChannel("fn", fn, capabilities=Capabilities(idempotency=proved))
    with pytest.raises(InvalidConfig, match="documented"):
        CallableChannel(
            "fn", fn, capabilities=Capabilities(reconcile=Lookup("by_key", evidence="proved")), reconcile=Wall().find
        )
    documented = Capabilities(idempotency=Idempotency("client_key", "k", 60, evidence="documented"))
    assert "within 60 s" in CallableChannel("fn", fn, capabilities=documented).capabilities.promise()
    assert Idempotency("client_key", "k", 60).evidence == "unproven"
    assert CallableChannel("fn", fn).capabilities.idempotency is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"capabilities": Capabilities(reconcile=Lookup("by_key"))},
        {"capabilities": Capabilities(), "reconcile": Wall().find},
        {"text_max": 5},
        {"capabilities": Capabilities(live=True)},
        {"capabilities": Capabilities(deadline_s=0)},
        {"capabilities": Capabilities(settle_s=float("nan"))},
        {"capabilities": Capabilities(idempotency=Idempotency("client_key", "k", -1))},
    ],
)
def test_a_wrong_declaration_is_refused(wrong: dict[str, Any]) -> None:
    """UNK-2: at construction, with the channel's name."""
    with pytest.raises(InvalidConfig, match="'fn'"):
        CallableChannel("fn", Wall().deliver, **wrong)


def test_its_settings() -> None:
    """ADP-1: readiness may be a function, rendering may be the gateway's own, and it falls back on nothing."""
    up = [False]
    channel = CallableChannel(
        "fn", Wall().deliver, account="b", ready=lambda: up[0], version="2", credential="c", config="d"
    )
    assert (channel.account, channel.ready, channel.version) == ("b", False, "2")
    up[0] = True
    assert channel.ready
    assert not isinstance(channel, FallsBack)
    own = CallableChannel(
        "fn", Wall().deliver, render=lambda message, told: RenderedBatch((RenderedUnit(0, text="own"),))
    )
    assert rendered(own, Message.text("x", to=Target.direct("fn", "a")))[0].text == "own"


@pytest.mark.parametrize("text", ["", "  \n", "a\x00b", "\ud800", "z" * 5000, "é" * 600_000])
def test_an_unsendable_text_is_refused(text: str) -> None:
    """CAP-1, CORE-1: before anything is recorded, naming the start of the value and the way out."""
    with pytest.raises(InvalidMessage, match=":") as refusal:
        rendered(CallableChannel("fn", Wall().deliver), Message.text(text, to=Target.direct("fn", "a")))
    assert len(str(refusal.value)) < 600
    assert "z" * 81 not in str(refusal.value)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"encode_origin": Origin.tag}, "not both of encode_origin and decode_origin"),
        ({"decode_origin": lambda event: None}, "together"),
        ({"capabilities": Capabilities(origin="native")}, "not both of encode_origin and decode_origin"),
        (
            {"capabilities": Capabilities(), "encode_origin": Origin.tag, "decode_origin": lambda event: None},
            "declares origin 'registry'",
        ),
        ({"capabilities": Capabilities(echo_horizon_s=0)}, "echo_horizon_s 0"),
    ],
)
def test_an_origin_is_declared_as_it_is(more: dict[str, Any], said: str) -> None:
    """ADP-4: a declaration without its functions, or the other way round, is refused with the way out."""
    with pytest.raises(InvalidConfig, match=said):
        CallableChannel("wall", Wall().deliver, **more)
