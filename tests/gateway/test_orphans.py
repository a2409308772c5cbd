"""Messages whose channel nobody serves are held for people to see, and only those."""

from __future__ import annotations

import pytest
from msgledger.ledger import events as e
from msgledger.ledger.store.append import NEW, Append
from msgledger.lifecycle.dispatch import holds

from .kit import Bench, TestGateway, text


async def come_and_go(gateway: TestGateway, count: int) -> None:
    """So many short-lived workers, as `msgledger send` is one."""
    for number in range(count):
        id, at = f"0193c000-0000-7000-8000-{number:012x}", gateway._clock.wall_ms() + 1 + number
        started = e.WorkerStarted(at=at, by=f"worker:{id}", host="h", boot="b", pid=1, msgledger="0.1.0")
        stopped = e.WorkerStopped(at=at, by=f"worker:{id}")
        await gateway.store.append(Append(id, (started, stopped), expected=NEW))


def test_a_worker_that_lives_long_is_not_forgotten(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many came and went after it, what it serves is not held by another gateway."""
    monkeypatch.setattr(holds, "WORKERS_MAX", 5)
    bench.platform.ready = False

    async def main() -> None:
        other = bench.gateway(bench.other("fax").channel())
        async with other:
            async with bench.gateway() as gateway:
                sent = await gateway.send(text("not yet"), wait=False)
                await come_and_go(gateway, 6)
                assert await other.dispatcher.holds.hold_orphans(bench.clock.wall_ms()) == 0
                assert (await gateway.intent(sent)).state.hold is None
            assert await other.dispatcher.holds.hold_orphans(bench.clock.wall_ms()) == 1
            assert (await other.intent(sent)).state.hold == "channel"

    bench.run(main())
