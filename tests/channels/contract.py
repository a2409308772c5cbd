"""What every channel must show, whatever it speaks to: one class of tests that each channel's file subclasses.

A channel's test gives a `Bench`: a way to make the channel, and the platform's own word on what became visible. What a
capability does not declare is not asked for; what it declares is proved here (CAP-6).
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
import pytest
from msgledger import bridge_checks
from msgledger.adapters.receiving import Event, Receives
from msgledger.adapters.surface import SURFACE, Channel, Reconciles, RenderContext, Requests, SendContext, Tags
from msgledger.adapters.text import DUPLICATE_MARKER, measure
from msgledger.ledger.errors import InvalidMessage
from msgledger.ledger.message import Attachment, Message, RenderedUnit, Target
from msgledger.ledger.origin import NO_ORIGIN, Origin
from msgledger.ledger.outcome import Accepted, FailureClass, NotSent, Outcome, Rejected, Sent, Unknown, Unresolved

T = TypeVar("T")
ORIGINS = (
    NO_ORIGIN,
    Origin.gateway_failure("missing_api_key"),
    Origin.system(),
    Origin(opaque={"source": "somebody", "version": 3, "more": {"x": [1]}}),
)
OTHER = Origin.gateway_failure("model_login_expired")


@dataclass(frozen=True)
class Seen:
    """One visible message, as the platform itself has it now."""

    id: str | None
    text: str
    thread: str | None = None
    reply_to: str | None = None
    media_url: str | None = None


class Bench:
    """What a channel's tests hand to the contract. Whatever a platform cannot be made to do raises `pytest.skip`."""

    secret: str = ""
    """The credential's text, which must never show."""
    thread = "t1"
    message = "m1"
    """What a thread and a message may be called on this platform."""

    def channel(self) -> Channel:
        raise NotImplementedError

    def target(self, thread: str | None = None) -> Target:
        raise NotImplementedError

    def visible(self, target: Target) -> list[Seen]:
        """Everything that stands in the target now, in order, deleted messages left out."""
        raise NotImplementedError

    def lose_next_answer(self) -> None:
        """The platform carries out the next write and its answer never arrives."""
        pytest.skip("this platform cannot be made to lose an answer")

    def withhold_next_id(self) -> None:
        pytest.skip("this platform cannot be made to leave its id out")

    def events(self, target: Target) -> list[Event]:
        """What stands in the target, as somebody else who is there is told of it."""
        pytest.skip("this platform tells nobody else")

    def refuse_next(self, failure: FailureClass, retry_after_s: float | None = None) -> None:
        pytest.skip("this platform cannot be made to refuse on demand")


def unique(stem: str) -> str:
    return f"{stem}-{uuid.uuid4().hex[:12]}"


def context(target: Target, *, key: str | None = None, **more: Any) -> SendContext:
    return SendContext(
        **{
            "intent": "0192-intent",
            "attempt": 1,
            "unit": 0,
            "provider_key": key or unique("key"),
            "deadline_s": 10.0,
            "target": target,
            **more,
        }
    )


def opened(channel: Channel, steps: Callable[[Channel], Awaitable[T]]) -> T:
    """Runs `steps` with the channel opened, and closes it."""

    async def run() -> T:
        start, end = getattr(channel, "open", None), getattr(channel, "close", None)
        if start is not None:
            await start()
        try:
            return await steps(channel)
        finally:
            if end is not None:
                await end()

    return asyncio.run(run())


def rendered(channel: Channel, message: Message) -> tuple[RenderedUnit, ...]:
    return channel.render(message, RenderContext(at=1_700_000_000_000, intent="0192-intent")).units


def sent(channel: Channel, message: Message, **more: Any) -> list[Outcome]:
    """Delivers every unit of a message, each under a key of its own unless `key` is given."""

    async def steps(channel: Channel) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for unit in rendered(channel, message):
            outcomes.append(await deliver(channel, unit, context(message.target, unit=unit.index, **more)))
        return outcomes

    return opened(channel, steps)


async def deliver(channel: Channel, unit: RenderedUnit, told: SendContext) -> Outcome:
    """Raising is as good as returning."""
    try:
        return await channel.deliver(unit, told)
    except (Rejected, Unknown) as raised:
        return raised


def accepted(outcome: Outcome) -> Accepted:
    assert isinstance(outcome, Accepted), f"{outcome!r} {vars(outcome) if isinstance(outcome, Exception) else ''}"
    return outcome


def identity(receipt: Accepted) -> str | None:
    return receipt.platform_id or next((part.platform_id for part in receipt.parts), None)


class ChannelContract:
    """Subclass it, give a fixture `bench`, and the channel is judged."""

    def test_it_is_one_complete_object(self, bench: Bench) -> None:
        """ADP-1, ADP-5: one object has all that the lifecycle uses, in this version of the surface."""
        channel = bench.channel()
        assert isinstance(channel, Channel)
        assert channel.surface == SURFACE
        assert channel.name and channel.account

    def test_functions_and_declarations_agree(self, bench: Bench) -> None:
        """ADP-2, UNK-2: a look-up is there exactly where it is declared."""
        channel = bench.channel()
        assert isinstance(channel, Reconciles) == (channel.capabilities.reconcile is not None)

    def test_capabilities_are_data(self, bench: Bench) -> None:
        """CAP-6: what a channel declares survives JSON unchanged, so that the documentation can be made from it."""
        declared = bench.channel().capabilities
        assert msgspec.json.decode(msgspec.json.encode(declared), type=type(declared)) == declared
        assert declared.promise()

    def test_a_bridged_path_may_be_moved_to_it(self, bench: Bench) -> None:
        """MIG-8: it meets each point of the list, or what it does not is what it declares."""
        channel = bench.channel()
        unmet = {check.name for check in bridge_checks(channel, bench.target()) if not check.met}
        assert unmet == (set() if channel.capabilities.receipt == "required" else {"all_ids"})

    def test_a_text_becomes_visible_once(self, bench: Bench) -> None:
        """ADP-1, CORE-1: one unit, one request, one visible message, with the platform's id as receipt."""
        channel, target = bench.channel(), bench.target()
        (outcome,) = sent(channel, Message.text("Hello, wörld 🙂", to=target))
        (seen,) = bench.visible(target)
        assert seen.text == "Hello, wörld 🙂"
        if channel.capabilities.receipt == "required":
            assert identity(accepted(outcome)) == seen.id

    def test_a_resend_has_the_same_bytes(self, bench: Bench) -> None:
        """G4, R5: the request depends on the unit and its key, not on the attempt, its time or its deadline."""
        channel, target = bench.channel(), bench.target(thread=bench.thread)
        if not isinstance(channel, Requests):
            pytest.skip("the channel does not say what it would send")
        for unit in rendered(channel, Message.text("again", to=target)):
            first = context(target, key="k", reply_to=bench.message)
            later = msgspec.structs.replace(first, attempt=3, deadline_s=1.5, first_attempt_at=1, intent="0192-intent")
            again = bench.channel()
            assert isinstance(again, Requests)
            assert channel.request_bytes(unit, first) == again.request_bytes(unit, later)
            if channel.capabilities.idempotency is not None:
                other = msgspec.structs.replace(first, provider_key="l")
                assert channel.request_bytes(unit, first) != channel.request_bytes(unit, other)

    def test_the_credential_never_shows(self, bench: Bench) -> None:
        """Neither what is digested nor what is printed holds the credential."""
        channel, target = bench.channel(), bench.target()
        if not bench.secret:
            pytest.skip("the channel has no credential")
        printed = f"{channel!r} {getattr(channel, 'adapter', None)!r} {channel}"
        assert bench.secret not in printed
        if isinstance(channel, Requests):
            (unit,) = rendered(channel, Message.text("hi", to=target))
            assert bench.secret.encode() not in channel.request_bytes(unit, context(target))

    def test_the_longest_text_is_taken(self, bench: Bench) -> None:
        """CAP-1: a text of exactly the declared length, in the declared unit, is one visible message."""
        channel, target = bench.channel(), bench.target()
        text = "x" * channel.capabilities.text.max
        (outcome,) = sent(channel, Message.text(text, to=target))
        accepted(outcome)
        assert [seen.text for seen in bench.visible(target)] == [text]

    def test_longer_text_is_split_or_refused(self, bench: Bench) -> None:
        """CAP-1, BAT-2: longer text is several units within the limit where that is declared, else refused unsent."""
        channel, target = bench.channel(), bench.target()
        limit = channel.capabilities.text
        text = "word 🙂 " * (limit.max // 4)
        if not limit.chunking:
            with pytest.raises(InvalidMessage) as refusal:
                rendered(channel, Message.text(text, to=target))
            assert len(str(refusal.value)) < 400
            return
        units = rendered(channel, Message.text(text, to=target))
        assert [unit.index for unit in units] == list(range(len(units)))
        assert all(measure(unit.text or "", limit) <= limit.max for unit in units)
        for outcome in sent(channel, Message.text(text, to=target)):
            accepted(outcome)
        assert " ".join(seen.text for seen in bench.visible(target)).split() == text.split()

    def test_the_marked_copy_fits(self, bench: Bench) -> None:
        """UNK-7: the marked variant of each unit says so and is within the limit."""
        channel, target = bench.channel(), bench.target()
        limit = channel.capabilities.text
        for text in ("short", "y" * limit.max):
            batch = channel.render(Message.text(text, to=target), RenderContext(at=1, intent="i"))
            assert [copy.index for copy in batch.marked] == [unit.index for unit in batch.units]
            for copy in batch.marked:
                assert (copy.text or "").startswith(DUPLICATE_MARKER.strip())
                assert measure(copy.text or "", limit) <= limit.max

    def test_it_says_truly_how_its_own_is_known(self, bench: Bench) -> None:
        """ADP-4, CAP-6: `native` has both functions that translate, a label is one that a receiver gives back."""
        channel = bench.channel()
        assert isinstance(channel, Tags) == (channel.capabilities.origin == "native")
        if channel.capabilities.origin == "label":
            assert isinstance(channel, Receives)

    @pytest.mark.parametrize("origin", ORIGINS, ids=lambda origin: origin.code or origin.source)
    def test_its_origin_survives_the_platform(self, bench: Bench, origin: Origin) -> None:
        """ADP-4, ORG-5: native, each unit carries it to whoever else is there; an unknown one as it is."""
        channel, target = bench.channel(), bench.target()
        if not isinstance(channel, Tags):
            pytest.skip("the platform carries no origin")
        words = "x" * (channel.capabilities.text.max * 2 if channel.capabilities.text.chunking else 10)
        outcomes = sent(channel, Message.text(words, to=target), origin=origin)
        said = [channel.decode_origin(event) for event in bench.events(target)]
        assert said == [None if origin == NO_ORIGIN else origin] * len(outcomes)

    @pytest.mark.parametrize("origin", ORIGINS, ids=lambda origin: origin.code or origin.source)
    def test_a_tag_is_part_of_the_request(self, bench: Bench, origin: Origin) -> None:
        """ORG-5, R5: the same origin gives the same bytes, another one other bytes."""
        channel, target = bench.channel(), bench.target()
        if not isinstance(channel, Tags) or not isinstance(channel, Requests):
            pytest.skip("the platform carries no origin, or does not say what it would send")
        (unit,) = rendered(channel, Message.text("tagged", to=target))
        made = [channel.request_bytes(unit, context(target, key="k", origin=one)) for one in (origin, OTHER)]
        again = bench.channel()
        assert isinstance(again, Requests)
        assert made[0] == again.request_bytes(unit, context(target, key="k", origin=origin, attempt=2))
        assert made[0] != made[1]

    def test_a_key_is_recognised(self, bench: Bench) -> None:
        """CAP-6, G4: a proved deduplication shows one message for two requests, and says that it was a duplicate."""
        channel, target = bench.channel(), bench.target()
        key = channel.capabilities.idempotency
        if key is None or key.evidence != "proved":
            pytest.skip("the channel does not claim a proved deduplication")
        message, own = Message.text("once", to=target), unique("key")
        first, second = (accepted(sent(channel, message, key=own)[0]) for _ in range(2))
        assert len(bench.visible(target)) == 1
        if key.on_duplicate == "returns_receipt":
            assert identity(second) == identity(first)

    def test_a_lost_answer_is_unknown(self, bench: Bench) -> None:
        """FAIL-9, FAIL-11: silence after the request left proves nothing."""
        channel, target = bench.channel(), bench.target()
        bench.lose_next_answer()
        (outcome,) = sent(channel, Message.text("lost", to=target))
        assert isinstance(outcome, Unknown)
        assert len(bench.visible(target)) == 1

    def test_a_look_up_finds_what_was_sent(self, bench: Bench) -> None:
        """UNK-3, CAP-6: after a lost answer the look-up gives the receipt of the one message that is there."""
        channel, target, own = bench.channel(), bench.target(), unique("key")
        if not isinstance(channel, Reconciles):
            pytest.skip("the channel has no look-up")
        bench.lose_next_answer()
        message = Message.text("looked up", to=target)
        sent(channel, message, key=own)
        (unit,) = rendered(channel, message)
        verdict = opened(channel, lambda _: channel.reconcile(unit, context(target, key=own)))
        assert isinstance(verdict, Sent)
        assert [identity(verdict.receipt)] == [seen.id for seen in bench.visible(target)]

    def test_a_look_up_says_not_sent_only_with_proof(self, bench: Bench) -> None:
        """UNK-4, UNK-5: absence is `not_sent` where it can be proved, and unresolved everywhere else."""
        channel, target = bench.channel(), bench.target()
        if not isinstance(channel, Reconciles):
            pytest.skip("the channel has no look-up")
        (unit,) = rendered(channel, Message.text("never sent", to=target))
        verdict = opened(channel, lambda _: channel.reconcile(unit, context(target)))
        look = channel.capabilities.reconcile
        assert look is not None
        assert isinstance(verdict, NotSent if look.can_prove_absence else Unresolved)

    def test_a_message_is_edited(self, bench: Bench) -> None:
        """CAP-6: an edit changes the message that it names and shows no other."""
        channel, target = bench.channel(), bench.target()
        if channel.capabilities.edit is None:
            pytest.skip("the channel declares no edits")
        (first,) = sent(channel, Message.text("before", to=target))
        of = identity(accepted(first))
        edit = Message.text("after", to=target)
        accepted(sent(channel, edit, action="edit", of_platform_id=of)[0])
        assert [(seen.id, seen.text) for seen in bench.visible(target)] == [(of, "after")]

    def test_a_message_is_deleted(self, bench: Bench) -> None:
        """CAP-6: a delete takes the message that it names away."""
        channel, target = bench.channel(), bench.target()
        if channel.capabilities.delete is None:
            pytest.skip("the channel declares no deletes")
        (first,) = sent(channel, Message.text("gone soon", to=target))
        of = identity(accepted(first))

        async def delete(channel: Channel) -> Outcome:
            return await deliver(channel, RenderedUnit(0), context(target, action="delete", of_platform_id=of))

        accepted(opened(channel, delete))
        assert bench.visible(target) == []

    def test_a_reply_and_its_thread(self, bench: Bench) -> None:
        """CAP-3, REL-1: both arrive where threads are declared; else the message does, without the thread."""
        channel, target = bench.channel(), bench.target()
        (first,) = sent(channel, Message.text("root", to=target))
        root = identity(accepted(first))
        threaded = msgspec.structs.replace(target, thread=root)
        accepted(sent(channel, Message.text("answer", to=threaded), reply_to=root)[0])
        answer = bench.visible(target)[-1]
        assert answer.text.endswith("answer")
        if channel.capabilities.threads:
            assert (answer.thread, answer.reply_to) == (root, root)
        else:
            assert answer.thread is None

    def test_no_attachment_is_dropped(self, bench: Bench) -> None:
        """CAP-2: an attachment is shown as media where that is declared, else named in the text."""
        channel, target = bench.channel(), bench.target()
        file = Attachment("plan.pdf", url="https://files.example/plan.pdf")
        for outcome in sent(channel, Message.text("see", to=target, attachments=(file,))):
            accepted(outcome)
        seen = bench.visible(target)
        if any(one.media_url for one in seen):
            assert channel.capabilities.attachments != "none"
            assert [one.media_url for one in seen] in ([None, file.url], [file.url]), "beside the text, or captioned"
            assert seen[0].text == "see"
        else:
            assert file.name in seen[-1].text and file.url is not None and file.url in seen[-1].text

    def test_a_success_without_an_id(self, bench: Bench) -> None:
        """CAP-5, GAP-10: without an id it is no receipt, except on a channel that gives none."""
        channel, target = bench.channel(), bench.target()
        bench.withhold_next_id()
        (outcome,) = sent(channel, Message.text("nameless", to=target))
        if channel.capabilities.receipt == "none":
            assert identity(accepted(outcome)) is None
        else:
            assert isinstance(outcome, Unknown) or identity(accepted(outcome)) is None

    @pytest.mark.parametrize("failure", [each for each in FailureClass if each is not FailureClass.UNKNOWN])
    def test_a_refusal_has_its_class(self, bench: Bench, failure: FailureClass) -> None:
        """FAIL-1 to FAIL-8, FAIL-11: a well-formed refusal comes out in its class and nothing became visible."""
        channel, target = bench.channel(), bench.target()
        bench.refuse_next(failure, retry_after_s=3600.0 if failure is FailureClass.RATE_LIMIT else None)
        (outcome,) = sent(channel, Message.text("refused", to=target))
        assert isinstance(outcome, Rejected)
        assert outcome.failure is failure
        assert bench.visible(target) == []
        if failure is FailureClass.RATE_LIMIT:
            assert outcome.retry_after_s == 3600.0

    def test_an_unknown_class_is_unknown(self, bench: Bench) -> None:
        """FAIL-10: what the platform does not class is never taken for a rejection."""
        bench.refuse_next(FailureClass.UNKNOWN)
        (outcome,) = sent(bench.channel(), Message.text("what?", to=bench.target()))
        assert isinstance(outcome, Unknown)
