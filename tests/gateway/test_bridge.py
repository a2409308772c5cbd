"""The bridge: durable by explicit policy only, five outcomes, and what a channel lacks is named."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from msgledger import (
    Attachment,
    BridgeOutcome,
    Delivery,
    DeliveryFailed,
    External,
    FailureClass,
    Message,
    Reply,
    Status,
)
from msgledger.adapters.surface import TextLimit
from msgledger.ledger.errors import InvalidConfig
from msgledger.lifecycle.bridging.outcome import of_delivery
from msgledger.lifecycle.bridging.payloads import Payloads

from .bridge_kit import REPLY, Own, message_of, nothing_recorded
from .kit import Bench, text, to
from .platform import accept

# ---- the policy


@pytest.mark.parametrize(
    ("durable", "path"),
    [
        ({}, "own"),
        ({"durable": None}, "own"),
        ({"durable": False}, "own"),
        ({"durable": "disabled"}, "own"),
        ({"durable": True}, "durable"),
        ({"durable": "required"}, "durable"),
        ({"durable": "best_effort"}, "durable"),
    ],
    ids=str,
)
def test_only_an_explicit_policy_makes_it_durable(bench: Bench, durable: dict[str, Any], path: str) -> None:
    """MIG-1, MIG-2, DUR-5, AC-8: a channel that could deliver is there, and is no reason to."""

    async def main() -> None:
        own = Own(bench)
        async with bench.gateway() as gateway:
            bridge = gateway.bridge("plat", own.deliver, project=message_of, **durable)
            outcome = await bridge.deliver({"text": "hello"})
            assert (outcome.kind, outcome.path, outcome.durable) == ("handled_visible", path, path == "durable")
            assert nothing_recorded(bench) is (path == "own")
            assert (own.shown, bench.platform.texts) == ((["hello"], []) if path == "own" else ([], ["hello"]))

    bench.run(main())


@pytest.mark.parametrize("durable", ["yes", 1, "always"], ids=repr)
def test_a_policy_that_is_none_is_refused(bench: Bench, durable: Any) -> None:
    """MIG-1: with the value and the way out, before anything is delivered."""

    async def main() -> None:
        async with bench.gateway() as gateway:
            with pytest.raises(InvalidConfig, match="'required'"):
                gateway.bridge("plat", Own(bench).deliver, durable=durable)

    bench.run(main())


# ---- five outcomes

DELIVERY = Delivery(intent="0193", key="k", status=Status.SENT)
ERROR = DeliveryFailed("it has failed", "0193")


@pytest.mark.parametrize(
    ("said", "own_calls", "ends_as"),
    [
        (BridgeOutcome(kind="handled_visible", path="durable", delivery=DELIVERY), 0, "handled_visible"),
        (BridgeOutcome(kind="handled_no_send", reason="muted"), 0, "handled_no_send"),
        (BridgeOutcome(kind="unsupported", missing=("silent",)), 1, "handled_visible"),
        (BridgeOutcome(kind="not_applicable"), 1, "handled_visible"),
        (BridgeOutcome(kind="failed", error=ERROR), 0, None),
    ],
    ids=lambda value: value.kind if isinstance(value, BridgeOutcome) else str(value),
)
def test_each_outcome_ends_falls_back_or_propagates(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, said: BridgeOutcome, own_calls: int, ends_as: str | None
) -> None:
    """MIG-5: two are the end, two fall back to the gateway's own delivery, one gets through."""

    async def durably(*_: Any) -> BridgeOutcome:
        return said

    async def main() -> None:
        monkeypatch.setattr(Payloads, "durably", durably)
        own = Own(bench)
        async with bench.gateway() as gateway:
            bridge = gateway.bridge("plat", own.deliver, durable=True)
            if ends_as is None:
                with pytest.raises(DeliveryFailed):
                    await bridge.deliver({"text": "x"})
            else:
                outcome = await bridge.deliver({"text": "x"})
                assert (outcome.kind, outcome.terminal) == (ends_as, True)
                assert outcome.instead_of is (said if own_calls else None)
            assert len(own.before) == own_calls
            assert said.terminal is (own_calls == 0)
            assert sum(bridge.counts.values()) == 1

    bench.run(main())


def owned(status: Status, **more: Any) -> Delivery:
    return Delivery(intent="0193", key="k", status=status, **more)


@pytest.mark.parametrize(
    ("delivery", "kind", "reason"),
    [
        (owned(Status.SENT), "handled_visible", ""),
        (owned(Status.PENDING), "handled_visible", "pending: it waits for its turn"),
        (owned(Status.PENDING, attempts=2, due_at=17), "handled_visible", "pending: due at 17"),
        (owned(Status.PENDING, hold="config", failure=FailureClass.AUTH), "handled_visible", "pending: held (config)"),
        (owned(Status.SENDING), "handled_visible", "sending: "),
        (owned(Status.COMMITTING), "handled_visible", "committing: "),
        (owned(Status.UNKNOWN, reason="timeout"), "handled_visible", "unknown_after_send: timeout"),
        (owned(Status.CANCELLED, reason="taken back"), "handled_no_send", "taken back"),
        (owned(Status.FAILED, reason="expired"), "failed", "expired"),
    ],
    ids=lambda value: f"{value.status.value}-{value.hold}" if isinstance(value, Delivery) else "",
)
def test_each_status_is_an_outcome_with_a_reason(delivery: Delivery, kind: str, reason: str) -> None:
    """SC-68, MIG-5: what the ledger owes is nobody else's to deliver, and nothing ends without saying why."""
    outcome = of_delivery(delivery, "durable")
    assert (outcome.kind, outcome.status) == (kind, delivery.status)
    assert outcome.reason.startswith(reason) and bool(reason) is (delivery.status is not Status.SENT)
    assert (outcome.error is not None) is (kind == "failed")


@pytest.mark.parametrize("durable", [None, True])
@pytest.mark.parametrize(
    ("payload", "kind", "path"),
    [
        ({"text": "hello"}, "handled_visible", "durable"),
        ({"text": "", "mute": True}, "handled_no_send", None),
        ({"text": "typing", "typing": True}, "handled_visible", "own"),
        ({"text": "elsewhere", "to": to(channel="other")}, "handled_visible", "own"),
        ({"text": "x" * 500}, "handled_visible", "own"),
    ],
    ids=["a message", "turned off", "no message", "another channel", "too long"],
)
def test_every_payload_gives_an_outcome(
    bench: Bench, caplog: pytest.LogCaptureFixture, durable: Any, payload: Any, kind: str, path: str | None
) -> None:
    """SC-68, MIG-5: also one that a check before turned off, with its reason, in what comes back and in the log."""

    async def main() -> None:
        own = Own(bench)
        async with bench.gateway() as gateway:
            bridge = gateway.bridge("plat", own.deliver, project=message_of, durable=durable)
            outcome = await bridge.deliver(payload)
            if durable is None:
                assert (outcome.kind, outcome.path, own.shown) == ("handled_visible", "own", [payload["text"]])
                return
            assert (outcome.kind, outcome.path) == (kind, path)
            assert own.shown == ([payload["text"]] if path == "own" else [])
            if kind == "handled_no_send":
                assert outcome.reason == "the room is muted"
            if path == "own":
                assert outcome.instead_of is not None and outcome.instead_of.reason
            assert bridge.counts == {outcome.label: 1}

    with caplog.at_level(logging.INFO, "msgledger"):
        bench.run(main())
    assert sum(record.message.startswith("bridge plat: kind=") for record in caplog.records) == 1


# ---- what a channel lacks


@pytest.mark.parametrize(
    ("payload", "settings", "able", "missing"),
    [
        ({"reply": REPLY}, {}, {}, "reply_to"),
        ({"reply": Reply(quote="q")}, {}, {}, "quote"),
        ({"to": to(thread="t1")}, {}, {}, "threads"),
        ({}, {"needs": ("silent",)}, {}, "silent"),
        ({}, {"needs": lambda payload: ["silent"] if payload["text"] else []}, {}, "silent"),
        ({}, {"hooks": ("signature",)}, {}, "hooks"),
        ({"attachments": (Attachment("a", url="https://x/a"),)}, {}, {}, "attachments"),
        ({"attachments": (Attachment.of_bytes("a", b"1"),)}, {}, {"attachments": "remote_url"}, "upload"),
    ],
    ids=["reply target", "native quote", "thread", "silent", "silent by payload", "hooks", "link", "file"],
)
def test_what_the_channel_does_not_bring_along_is_named(
    bench: Bench, payload: Any, settings: Any, able: Any, missing: str
) -> None:
    """MIG-6: one missing thing, and the gateway's own delivery is preferred; with it declared, the ledger takes it."""

    async def main() -> None:
        own = Own(bench)
        whole = {"text": "hello", **payload}
        async with bench.gateway(bench.platform.channel(**able)) as gateway:
            bridge = gateway.bridge("plat", own.deliver, project=message_of, durable=True, **settings)
            raw = await bridge.durably(whole)
            assert (raw.kind, raw.missing) == ("unsupported", (missing,))
            assert missing in raw.reason
            outcome = await bridge.deliver(whole)
            assert (outcome.path, outcome.instead_of.missing) == ("own", (missing,))
            assert (own.shown, bench.platform.requests, nothing_recorded(bench)) == (["hello"], [], True)

    bench.run(main())


def test_a_channel_that_brings_it_all_along_takes_it(bench: Bench) -> None:
    """MIG-6: every need at once, declared."""

    async def main() -> None:
        own = Own(bench)
        channel = bench.platform.channel(carries=("reply_to", "quote", "silent", "hooks"), threads=True)
        async with bench.gateway(channel) as gateway:
            bridge = gateway.bridge(
                "plat", own.deliver, project=message_of, durable=True, needs=("silent",), hooks=("signature",)
            )
            reply = Reply(reply_to="m1", quote="q", thread="t1")
            outcome = await bridge.deliver({"text": "hello", "reply": reply, "to": to(thread="t1")})
            assert (outcome.path, own.shown) == ("durable", [])
            [seen] = bench.platform.visible
            assert (seen.text, seen.thread, seen.reply_to) == ("hello", "t1", "m1")
            assert bench.last(outcome.intent, "IntentRecorded")["hooks"] == ["signature"]

    bench.run(main())


@pytest.mark.parametrize("channels", ["none", "external"])
def test_no_channel_that_delivers_is_no_reason_to_fail(bench: Bench, channels: str) -> None:
    """MIG-6, DUR-5: unsupported, and the callback goes on delivering."""

    async def main() -> None:
        own = Own(bench)
        configured = bench.other("another").channel() if channels == "none" else External("plat")
        async with bench.gateway(configured) as gateway:
            bridge = gateway.bridge("plat", own.deliver, project=message_of, durable=True)
            outcome = await bridge.deliver({"text": "hello"})
            assert (outcome.path, outcome.instead_of.kind, own.shown) == ("own", "unsupported", ["hello"])

    bench.run(main())


SHORT_TEXT = TextLimit(max=200)


def test_a_payload_of_several_messages_is_one_intent(bench: Bench) -> None:
    """BAT-5, BAT-6: all of them or none; each within its own limit, in order."""

    async def main() -> None:
        async with bench.gateway(bench.platform.channel(text=SHORT_TEXT)) as gateway:
            bridge = gateway.bridge("plat", Own(bench).deliver, project=message_of, durable=True)
            outcome = await bridge.deliver({"text": ["one " * 40, "two " * 40, "three"]})
            assert outcome.receipt.platform_ids == ("m1", "m2", "m3")
            assert [shown.split()[0] for shown in bench.platform.texts] == ["one", "two", "three"]
            assert bench.types_of_intents().count("IntentRecorded") == 1

    bench.run(main())


def test_messages_for_several_places_are_not_one_payload(bench: Bench) -> None:
    """MIG-6, BAT-5: nothing of it is left out: the gateway's own delivery gets the whole payload."""

    async def main() -> None:
        own = Own(bench)

        def project(payload: Any) -> list[Message]:
            return [text("one", "room-a"), text("two", "room-b")]

        async with bench.gateway() as gateway:
            bridge = gateway.bridge("plat", own.deliver, project=project, durable=True)
            outcome = await bridge.deliver({"text": "both"})
            assert (outcome.path, own.shown, nothing_recorded(bench)) == ("own", ["both"], True)
            assert "several places" in outcome.instead_of.reason

    bench.run(main())


def test_a_projection_may_be_async_and_its_error_gets_through(bench: Bench) -> None:
    """MIG-5: nothing was sent, and nobody is asked to send what could not be read."""

    async def main() -> None:
        own = Own(bench)

        async def project(payload: Any) -> Message:
            if payload["text"] == "bad":
                raise KeyError("chat")
            return text(payload["text"])

        bench.platform.rule = accept
        async with bench.gateway() as gateway:
            bridge = gateway.bridge("plat", own.deliver, project=project, durable=True)
            assert (await bridge.deliver({"text": "good"})).durable
            with pytest.raises(KeyError):
                await bridge.deliver({"text": "bad"})
            assert own.shown == []

    bench.run(main())
