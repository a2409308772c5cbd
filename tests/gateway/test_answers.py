"""Answers of channels that are told in odd values: what the platform did is recorded, and its stream can be read."""

from __future__ import annotations

from typing import Any

import pytest
from msgledger import Accepted, NotSent, Rejected, Sent, Status, Unknown
from msgledger.adapters.surface import ReceiptPart
from msgledger.ledger import limits

from .kit import Bench, text
from .platform import Request, drop

LONE = "m\udc80"
ACCEPTED: dict[str, Any] = {
    "number": Accepted(4711),  # type: ignore[arg-type]
    "surrogate": Accepted(LONE),
    "status": Accepted("4711", status="ok"),  # type: ignore[arg-type]
    "object": Accepted("4711", raw={"message": object()}),
    "loop": Accepted("4711", raw=(loop := {})),
    "long": Accepted("4711", raw={"x": "y" * limits.EVENT_MAX_BYTES}),
    "parts": Accepted(parts=[ReceiptPart(0, 4711, url=LONE), ReceiptPart(1, "4712")]),  # type: ignore[arg-type]
    "bare": Accepted(parts=(4711, 4712)),  # type: ignore[arg-type]
}
loop["itself"] = loop


@pytest.mark.parametrize("name", ACCEPTED)
def test_what_was_accepted_is_sent_however_it_was_told(bench: Bench, name: str) -> None:
    """SND-7: the ids are kept as texts; what cannot be written down beside them is left out."""

    async def answer(request: Request) -> Any:
        request.platform.apply(request)
        return ACCEPTED[name]

    async def main() -> None:
        bench.platform.plan(answer)
        async with bench.gateway() as gateway:
            delivery = await gateway.send(text("once"), timeout_s=5)
            assert delivery.status is Status.SENT
            dossier = await gateway.intent(delivery.intent)
            assert dossier.state.platform_ids[0] == ("m?" if name == "surrogate" else "4711")
            assert len(dossier.state.platform_ids) == (2 if name in ("parts", "bare") else 1)
        assert bench.platform.texts == ["once"]

    bench.run(main())


@pytest.mark.parametrize("answer", [Rejected("not_found", f"no {LONE}", code=404, status="no"), Unknown("reset", LONE)])  # type: ignore[arg-type]
def test_what_was_said_of_a_failure_is_recorded_as_it_was_meant(bench: Bench, answer: Any) -> None:
    """SND-7: a rejection stays one, also with a text that no JSON can hold."""

    async def say(request: Request) -> Any:
        return answer

    async def main() -> None:
        bench.platform.plan(say)
        async with bench.gateway() as gateway:
            delivery = await gateway.send(text("once"), timeout_s=5)
            dossier = await gateway.intent(delivery.intent)
            if isinstance(answer, Rejected):
                assert (dossier.state.status, dossier.state.code) == (Status.FAILED, "404")
            else:
                assert (dossier.state.status, dossier.state.reason) == (Status.UNKNOWN, "reset")

    bench.run(main())


@pytest.mark.parametrize(
    ("verdict", "status"),
    [
        (Sent(Accepted(4711), {"seen": object()}), Status.SENT),  # type: ignore[arg-type]
        (NotSent({"seen": object()}), Status.SENT),
        (None, Status.UNKNOWN),
    ],
    ids=["sent", "not-sent", "nothing"],
)
def test_what_a_look_up_says_counts_however_it_was_told(bench: Bench, verdict: Any, status: Status) -> None:
    """SND-7: and one that says nothing that can be understood is not asked again and again."""

    async def main() -> None:
        bench.platform.looks_up = True
        bench.platform.look = lambda unit, context: verdict
        bench.platform.plan(drop())
        async with bench.gateway() as gateway:
            delivery = await gateway.send(text("once"), timeout_s=5)
            await bench.clock.advance(120)
            assert (await gateway.intent(delivery.intent)).state.status is status
        assert len(bench.platform.looked_up) <= 3

    bench.run(main())
