"""The steps of a send: what a channel is told, in which order things are recorded, and errors inside a transaction."""

from __future__ import annotations

from typing import Any

import pytest
from msgledger import NotPossible, Reply, Status

from .kit import SHORT, Bench, parts, text
from .platform import Request, drop, reject


def test_a_channel_is_told_all_it_needs(bench: Bench) -> None:
    """SND-1: intent, unit, attempt, key, deadline, target, reply-to, earlier receipts, first attempt, marker."""

    async def main() -> None:
        channel = bench.platform.channel(text=SHORT)
        async with bench.gateway(channel) as gateway:
            message = text(parts(2), relation=Reply(reply_to="quoted-77"))
            sent = await gateway.send(message)
            first, second = [request.context for request in bench.platform.requests]
            assert first.intent == second.intent == sent.intent
            assert (first.unit, second.unit, first.attempt) == (0, 1, 1)
            assert first.provider_key != second.provider_key
            assert 0 < first.deadline_s <= 5.0
            assert first.target == message.target
            assert (first.reply_to, second.reply_to) == ("quoted-77", None)
            assert first.receipts == ()
            assert [part.platform_id for part in second.receipts] == ["m1"]
            assert (first.first_attempt_at, first.marked) == (None, False)

    bench.run(main())


def test_a_copy_is_told_of_the_first_attempt(bench: Bench) -> None:
    """SND-1, UNK-7: its time, and that the marker is due."""

    async def main() -> None:
        bench.platform.plan(drop())
        async with bench.gateway() as gateway:
            began = bench.clock.wall_ms()
            await gateway.send(text("maybe"), on_unknown="at_least_once")
            await bench.clock.advance(60)
            copy = bench.platform.requests[1].context
            assert (copy.first_attempt_at, copy.marked, copy.attempt) == (began, True, 2)

    bench.run(main())


def test_the_stream_shows_the_order_of_the_steps(bench: Bench) -> None:
    """SND-2, OB-1, OB-2: record, attempt, receipt, commit; record and claim share one commit, receipt and end too."""

    async def main() -> None:
        statuses: list[str] = []

        async def look(request: Request) -> None:
            statuses.append(bench.query("SELECT status FROM obligations")[0][0])

        bench.platform.before = look
        async with bench.gateway() as gateway:
            sent = await gateway.send(text("in order"))
            assert sent.status is Status.SENT
            assert await gateway.owed() == []
        assert statuses == ["sending"]
        assert bench.types(sent.intent) == ["IntentRecorded", "AttemptStarted", "UnitAccepted", "IntentCommitted"]
        first, claim, receipt, commit = [
            row[0] for row in bench.query("SELECT position FROM events WHERE stream = ? ORDER BY 1", sent.intent)
        ]
        assert (claim, commit) == (first + 1, receipt + 1), "each pair in one transaction"

    bench.run(main())


def test_record_and_claim_go_together_and_so_do_receipt_and_commit(bench: Bench) -> None:
    """SND-2, G14: two transactions a message, one before the request and one after it."""

    async def main() -> None:
        async with bench.gateway() as gateway:
            await bench.clock.settle()
            handed: list[list[list[str]]] = []
            real = gateway.store.append

            def append(*items: Any) -> Any:
                handed.append([[type(event).__name__ for event in item.events] for item in items])
                return real(*items)

            gateway.store.append = append  # type: ignore[method-assign]
            await gateway.send(text("two transactions"))
            await bench.clock.settle()
            assert handed == [[["IntentRecorded"], ["AttemptStarted"]], [["UnitAccepted", "IntentCommitted"]]]

    bench.run(main())


def test_a_classified_failure_takes_the_place_of_the_receipt(bench: Bench) -> None:
    """SND-2, SND-7: `AttemptFailed`, and the end of the intent with it."""

    async def main() -> None:
        bench.platform.plan(reject("invalid_payload", code="bad_markup", status=400))
        async with bench.gateway() as gateway:
            failed = await gateway.send(text("refused"))
        assert (failed.status, failed.reason, failed.receipt) == (Status.FAILED, "rejected", None)
        assert bench.types(failed.intent)[2:] == ["AttemptFailed", "IntentFailed"]
        assert bench.last(failed.intent, "AttemptFailed")["proof"] == "declared"

    bench.run(main())


def test_a_transaction_held_open_is_durable_before_its_send(bench: Bench) -> None:
    """SND-2, SND-4: entered, it is owed; `send` claims and sends the stored plan."""

    async def main() -> None:
        async with bench.gateway() as gateway:
            async with gateway.sending(text("in steps")) as step:
                assert bench.types(step.intent) == ["IntentRecorded"]
                assert [unit.text for unit in step.render().units] == ["in steps"]
                await bench.clock.advance(1)
                assert bench.platform.requests == []
                delivery = await step.send()
            assert (delivery.status, bench.platform.texts) == (Status.SENT, ["in steps"])

    bench.run(main())


def test_an_exception_in_the_block_takes_the_send_back(bench: Bench) -> None:
    """SND-7: recorded with what it was, never with its text, and nothing goes out."""

    async def main() -> None:
        async with bench.gateway() as gateway:
            with pytest.raises(RuntimeError, match="secret-of-mine"):
                async with gateway.sending(text("never")) as step:
                    raise RuntimeError("secret-of-mine")
            await bench.clock.advance(60)
            assert (await gateway.intent(step.intent)).state.status is Status.CANCELLED
            assert "RuntimeError" in bench.last(step.intent, "IntentCancelled")["reason"]
        assert bench.platform.requests == []

    bench.run(main())


def test_a_block_that_ends_without_a_send_takes_it_back(bench: Bench) -> None:
    """SND-7: no intent is left pending because somebody forgot it."""

    async def main() -> None:
        async with bench.gateway() as gateway:
            async with gateway.sending(text("forgotten")) as step:
                pass
            assert step.delivery.status is Status.CANCELLED
            assert await gateway.owed() == []

    bench.run(main())


def test_an_exception_in_the_block_is_not_hidden_by_what_happened_meanwhile(bench: Bench) -> None:
    """SND-7: a block that took longer than its reservation; the message has gone out, the error still gets through."""

    async def outlive(gateway: Any) -> None:
        async with gateway.sending(text("too slow")):
            await bench.clock.advance(60)
            raise RuntimeError

    async def main() -> None:
        async with bench.gateway() as gateway:
            with pytest.raises(RuntimeError):
                await outlive(gateway)
            [row] = await gateway.intents(status="sent")
            assert row.attempts == 1

    bench.run(main())


def test_a_late_block_end_without_an_error_is_not_one(bench: Bench) -> None:
    """SND-7: what went out meanwhile cannot be taken back, and the block says what became of it."""

    async def main() -> None:
        async with bench.gateway() as gateway:
            async with gateway.sending(text("too slow")) as step:
                await bench.clock.advance(60)
            assert step.delivery.status is Status.SENT

    bench.run(main())


def test_the_public_methods_need_an_open_gateway(bench: Bench) -> None:
    """SND-1: used before or after its life, it says so."""

    async def main() -> None:
        gateway = bench.gateway()
        with pytest.raises(NotPossible, match="not open"):
            await gateway.send(text("too early"))
        async with gateway:
            pass
        with pytest.raises(NotPossible, match="not open"):
            await gateway.owed()

    bench.run(main())
