"""Going away: callers that stop waiting, intents that are taken back, gateways that close or fail to open."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgledger import NoSuchIntent, NotPossible, Status
from msgledger.ledger.store.owner import Owner

from .kit import SHORT, Bench, parts, text
from .platform import accept, drop, gated, hang, refuse


def test_cancelling_a_send_cancels_the_waiting_only(bench: Bench) -> None:
    """FAIL-8, SND-7: the request goes on, and its outcome is recorded."""

    async def main() -> None:
        gate = asyncio.Event()
        bench.platform.plan(gated(gate))
        async with bench.gateway() as gateway:
            sending = asyncio.create_task(gateway.send(text("on its way"), key="a-key-of-mine"))
            while not bench.platform.requests:
                await asyncio.sleep(0.001)
            sending.cancel()
            with pytest.raises(asyncio.CancelledError):
                await sending
            gate.set()
            assert (await gateway.send(text("on its way"), key="a-key-of-mine")).status is Status.SENT
        assert bench.platform.texts == ["on its way"]

    bench.run(main())


def test_cancelling_before_the_record_came_back_loses_nothing(bench: Bench) -> None:
    """G7, FAIL-8: the append may have happened; then it is sent like any other."""

    async def main() -> None:
        async with bench.gateway() as gateway:
            sending = asyncio.create_task(gateway.send(text("hasty")))
            await asyncio.sleep(0)
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
            await bench.clock.advance(5)
            assert len(bench.platform.texts) == len(await gateway.intents(status="sent"))
            assert await gateway.owed() == []

    bench.run(main())


def test_closing_lets_attempts_end(bench: Bench) -> None:
    """SND-4, SC-02: and accepts nothing new."""

    async def main() -> None:
        gate = asyncio.Event()
        bench.platform.plan(gated(gate))
        gateway = bench.gateway()
        await gateway.start()
        delivery = await gateway.send(text("in flight"), timeout_s=0.05)
        closing = asyncio.create_task(gateway.close())
        await asyncio.sleep(0.05)
        assert not closing.done()
        with pytest.raises(NotPossible):
            await gateway.send(text("too late"))
        gate.set()
        await closing
        assert bench.types(delivery.intent)[-1] == "IntentCommitted"

    bench.run(main())


def test_closing_records_what_gets_no_answer_as_unknown(bench: Bench) -> None:
    """FAIL-8, SND-4: at its deadline, not before and not much later."""

    async def main() -> None:
        bench.platform.plan(hang)
        gateway = bench.gateway(bench.platform.channel(deadline_s=0.3))
        await gateway.start()
        delivery = await gateway.send(text("no answer"), timeout_s=0.05)
        async with asyncio.timeout(3):
            await gateway.close()
        assert bench.last(delivery.intent, "OutcomeUnknown")["cause"] == "timeout"

    bench.run(main())


def test_a_caller_that_waits_while_the_gateway_closes_hears_how_it_stands(bench: Bench) -> None:
    """RCP-5, SC-44: still owed; it is not cancelled itself."""

    async def main() -> None:
        bench.platform.ready = False
        gateway = bench.gateway()
        await gateway.start()
        waiting = asyncio.create_task(gateway.send(text("still owed")))
        while not bench.query("SELECT 1 FROM obligations"):
            await asyncio.sleep(0.005)
        await gateway.close()
        delivery = await waiting
        assert (delivery.status, delivery.retry) == (Status.PENDING, "ledger")

    bench.run(main())


def test_what_was_not_begun_can_be_taken_back(bench: Bench) -> None:
    """GAP-6, FAIL-8: cancelled, with the reason, and recovery sends nothing."""

    async def main() -> None:
        bench.platform.plan(refuse)
        async with bench.gateway() as gateway:
            owed = await gateway.send(text("taken back"))
            gone = await gateway.cancel(owed, "no longer wanted")
            assert (gone.status, gone.retry) == (Status.CANCELLED, None)
            assert bench.last(owed.intent, "IntentCancelled")["reason"] == "no longer wanted"
        async with bench.gateway():
            await bench.clock.advance(600)
        assert bench.platform.texts == []

    bench.run(main())


@pytest.mark.parametrize("state", ["sending", "unknown", "sent"])
def test_what_may_be_visible_cannot_be_cancelled(bench: Bench, state: str) -> None:
    """GAP-6, FAIL-8, R4: the error says what to do instead, and nothing changes."""

    async def main() -> None:
        gate = asyncio.Event()
        bench.platform.plan({"sending": gated(gate), "unknown": drop(), "sent": accept}[state])
        async with bench.gateway() as gateway:
            delivery = await gateway.send(text("out"), timeout_s=0.05 if state == "sending" else None)
            before = bench.types(delivery.intent)
            with pytest.raises(NotPossible, match=state):
                await gateway.cancel(delivery, "too late")
            assert bench.types(delivery.intent) == before
            gate.set()

    bench.run(main())


def test_cancelling_after_some_parts_is_a_discard(bench: Bench) -> None:
    """GAP-6: failed as `discarded`, with the partial receipt."""

    async def main() -> None:
        bench.platform.plan(accept, refuse)
        async with bench.gateway(bench.platform.channel(text=SHORT)) as gateway:
            delivery = await gateway.send(text(parts(2)))
            gone = await gateway.cancel(delivery, "no longer wanted")
            assert (gone.status, gone.reason) == (Status.FAILED, "discarded")
            assert gone.receipt is not None and gone.receipt.platform_ids == ("m1",)

    bench.run(main())


def test_an_intent_that_is_not_there_is_said_so(bench: Bench) -> None:
    """SC-67: a typed error, and a filter that is not there too."""

    async def main() -> None:
        async with bench.gateway() as gateway:
            with pytest.raises(NoSuchIntent):
                await gateway.intent("01890000-0000-7000-8000-000000000001")
            with pytest.raises(ValueError, match="no filter"):
                await gateway.intents(colour="green")

    bench.run(main())


def test_a_channel_that_cannot_open_leaves_nothing_behind(bench: Bench) -> None:
    """OB-12: the error gets through, the lock is free, and the same ledger opens again."""

    class Opening:
        """Delegates, and fails to open at first."""

        def __init__(self, inner: Any) -> None:
            self._inner = inner
            self.broken = True
            self.closed = 0

        def __getattr__(self, name: str) -> Any:
            return getattr(self._inner, name)

        async def open(self) -> None:
            if self.broken:
                raise ConnectionError("not now")

        async def close(self) -> None:
            self.closed += 1

    async def main() -> None:
        channel = Opening(bench.platform.channel())
        gateway = bench.gateway(channel)
        with pytest.raises(ConnectionError):
            await gateway.start()
        assert Owner(bench.path).is_dead(gateway.worker)
        channel.broken = False
        async with gateway:
            assert (await gateway.send(text("at last"))).status is Status.SENT
        assert channel.closed == 1

    bench.run(main())


def test_a_gateway_is_opened_once(bench: Bench) -> None:
    """SND-1: twice is an error, and closing twice is none."""

    async def main() -> None:
        gateway = bench.gateway()
        async with gateway:
            with pytest.raises(NotPossible, match="open already"):
                await gateway.start()
        await gateway.close()
        assert [one.type for one in bench.events()][-1] == "WorkerStopped"

    bench.run(main())
