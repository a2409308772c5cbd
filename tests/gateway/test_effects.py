"""Effects: once the receipt or the commit is durable, live and recovered, over restarts, and never a resend."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgledger.projections import effects
from msgledger.projections.effects import Effect

from .kit import SHORT, Bench, TestGateway, parts, text
from .platform import lose


class Heard:
    """What an effect was called with."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.calls: list[tuple[str, str]] = []
        self.failures = 0
        self.durable = True

    async def __call__(self, effect: Effect) -> None:
        self.durable &= bool(self.bench.query("SELECT 1 FROM events WHERE position = ?", effect.position))
        if self.failures:
            self.failures -= 1
            raise RuntimeError("the hook is broken")
        self.calls.append((effect.intent, type(effect.event).__name__))

    async def until(self, count: int) -> None:
        for _ in range(2000):
            if len(self.calls) >= count:
                return
            await asyncio.sleep(0.002)
        raise AssertionError(f"only {self.calls}")


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effects, "AGAIN_S", 0.01)


async def listening(gateway: TestGateway, bench: Bench) -> tuple[Heard, Heard]:
    sent, commit = Heard(bench), Heard(bench)
    await gateway.on_sent("mine", sent)
    await gateway.on_commit("mine", commit)
    return sent, commit


def test_effects_run_for_a_message_sent_at_once(bench: Bench) -> None:
    """SND-5, SND-6: one call for each unit's receipt, one for the commit, both after they are durable."""

    async def main() -> None:
        async with bench.gateway(bench.platform.channel(text=SHORT)) as gateway:
            sent, commit = await listening(gateway, bench)
            delivery = await gateway.send(text(parts(2)))
            await sent.until(2)
            await commit.until(1)
            assert sent.calls == [(delivery.intent, "UnitAccepted")] * 2
            assert commit.calls == [(delivery.intent, "IntentCommitted")]
            assert sent.durable and commit.durable

    bench.run(main())


def test_effects_run_for_a_message_that_recovery_sent(bench: Bench) -> None:
    """SND-5: in the same way."""

    async def main() -> None:
        bench.platform.ready = False
        async with bench.gateway() as gateway:
            owed = await gateway.send(text("later"), wait=False)
        bench.platform.ready = True
        async with bench.gateway() as gateway:
            sent, commit = await listening(gateway, bench)
            await bench.clock.advance(1)
            await commit.until(1)
            await sent.until(1)
            assert sent.calls == [(owed.intent, "UnitAccepted")]

    bench.run(main())


def test_effects_run_for_a_message_that_a_look_up_found(bench: Bench) -> None:
    """SND-5, UNK-3: the receipt came from a look-up, and is a receipt."""

    async def main() -> None:
        bench.platform.looks_up = True
        bench.platform.plan(lose())
        async with bench.gateway() as gateway:
            sent, commit = await listening(gateway, bench)
            unknown = await gateway.send(text("found later"))
            await bench.clock.advance(60)
            await commit.until(1)
            await sent.until(1)
            assert sent.calls == [(unknown.intent, "OutcomeReconciled")]
        assert bench.platform.texts == ["found later"]

    bench.run(main())


def test_an_unsettled_look_up_is_no_receipt(bench: Bench) -> None:
    """SND-6: only a receipt calls `on_sent`."""

    async def main() -> None:
        bench.platform.looks_up = True
        bench.platform.lag_s = 1e6
        bench.platform.proves_absence = False
        bench.platform.plan(lose())
        async with bench.gateway() as gateway:
            sent, _ = await listening(gateway, bench)
            await gateway.send(text("never found"))
            await bench.clock.advance(600)
            await asyncio.sleep(0.05)
            assert sent.calls == []

    bench.run(main())


def test_an_effect_that_fails_is_called_again_and_sends_nothing(bench: Bench) -> None:
    """SND-6: at least once; no status changes and no other send."""

    async def main() -> None:
        async with bench.gateway() as gateway:
            sent, commit = await listening(gateway, bench)
            sent.failures = 2
            delivery = await gateway.send(text("one"))
            await sent.until(1)
            await commit.until(1)
            assert sent.failures == 0
            await bench.clock.advance(600)
            assert bench.types(delivery.intent)[-1] == "IntentCommitted"
        assert bench.platform.texts == ["one"]

    bench.run(main())


def test_an_effect_that_never_heard_of_an_event_hears_of_it_after_a_restart(bench: Bench) -> None:
    """SND-6: its position is durable; what it did not get through before the process died is called again."""

    async def main() -> None:
        async with bench.gateway() as gateway:
            sent, _ = await listening(gateway, bench)
            await gateway.send(text("heard"))
            await sent.until(1)
            await bench.clock.settle()
            sent.failures = 10**6
            missed = await gateway.send(text("missed"))
            await gateway.kill()
        again = bench.gateway()
        heard = Heard(bench)
        await again.on_sent("mine", heard)
        async with again:
            await heard.until(1)
            await asyncio.sleep(0.05)
        assert [intent for intent, _ in heard.calls][-1] == missed.intent
        assert len(heard.calls) <= 2
        assert bench.platform.texts == ["heard", "missed"]

    bench.run(main())


def test_a_new_effect_begins_where_the_ledger_stands(bench: Bench) -> None:
    """SND-6: it is not called for all of history."""

    async def main() -> None:
        async with bench.gateway() as gateway:
            await gateway.send(text("before"))
            sent, _ = await listening(gateway, bench)
            after = await gateway.send(text("after"))
            await sent.until(1)
            assert [intent for intent, _ in sent.calls] == [after.intent]

    bench.run(main())


def test_an_effect_outlives_a_locked_ledger(bench: Bench) -> None:
    """SND-6, G12: it could not note its position, and goes on all the same."""

    async def main() -> None:
        async with bench.gateway(lock_wait_s=0.05) as gateway:
            sent, _ = await listening(gateway, bench)
            locks: list[Any] = []

            async def locking(effect: Effect) -> None:
                if not locks:
                    locks.append(bench.locked())
                    locks[0].__enter__()
                await sent(effect)

            await gateway.on_sent("locking", locking)
            first = await gateway.send(text("first"))
            for _ in range(2000):
                if locks:
                    break
                await asyncio.sleep(0.002)
            await asyncio.sleep(0.15)
            locks[0].__exit__(None, None, None)
            second = await gateway.send(text("second"))
            await sent.until(4)
            assert {intent for intent, _ in sent.calls} == {first.intent, second.intent}
            for _ in range(500):
                if len([one for one, _ in sent.calls if one == second.intent]) >= 2:
                    break
                await asyncio.sleep(0.002)
            assert len([one for one, _ in sent.calls if one == second.intent]) == 2

    bench.run(main())


def test_a_cancelled_wait_inside_an_effect_is_a_failure_like_any_other(bench: Bench) -> None:
    """SND-5: it is called again, and for all that comes after it; only the gateway's end ends it."""
    calls: list[int] = []
    enough = asyncio.Event()

    async def effect(found: Effect) -> None:
        calls.append(found.position)
        if len(calls) == 1:
            waits = asyncio.create_task(asyncio.sleep(60))
            waits.cancel()
            await waits
        if len(calls) == 3:
            enough.set()
            await asyncio.sleep(60)

    async def main() -> None:
        async with bench.gateway() as gateway:
            await gateway.on_sent("mine", effect)
            await gateway.send(text("one"))
            await gateway.send(text("two"))
            async with asyncio.timeout(10):
                await enough.wait()
            assert calls[0] == calls[1] < calls[2]
        assert len(calls) == 3

    bench.run(main())
