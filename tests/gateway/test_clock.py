"""Time: ages and their edges, clocks that are set forward and back, and an outage of an hour."""

from __future__ import annotations

import pytest
from msgledger import Broadcast, Followup, Reply, Status, System, SystemReason
from msgledger.ledger.message import Relation
from msgledger.lifecycle.dispatch import loop

from .kit import Bench, text
from .platform import DEADLINE_S, SETTLE_S, accept, drop, refuse, reject

HOUR_S = 3600.0
LEASE_MS = (DEADLINE_S + SETTLE_S) * 1000


class NoChance:
    """Draws the smallest wait there is."""

    def random(self) -> float:
        return 0.0


@pytest.mark.parametrize(
    ("relation", "hours"),
    [(Reply(), 6), (Followup(), 6), (Broadcast(), 24), (System(SystemReason.CRON), 24)],
    ids=["reply", "followup", "broadcast", "system"],
)
def test_a_message_past_its_age_expires_unsent(
    bench: Bench, relation: Relation, hours: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SC-16, OB-8, OB-14, GAP-4, G7: failed as `expired`, by its relation; not sent though the channel comes back."""
    monkeypatch.setattr(loop, "POLL_S", 60.0)

    async def main() -> None:
        bench.platform.ready = False
        async with bench.gateway() as gateway:
            delivery = await gateway.send(text("stale", relation=relation), wait=False)
            await bench.clock.advance(hours * HOUR_S - 120)
            assert (await gateway.intent(delivery.intent)).state.status is Status.PENDING
            await bench.clock.advance(300)
            bench.platform.ready = True
            await bench.clock.advance(300)
            [row] = await gateway.intents(status="failed")
            assert (row.id, row.reason) == (delivery.intent, "expired")
        assert bench.platform.requests == []

    bench.run(main())


@pytest.mark.parametrize("past_ms", [0, 1])
def test_the_edge_of_the_age_limit(bench: Bench, past_ms: int) -> None:
    """OB-9: at exactly its maximum age it is claimed, one millisecond later it expires."""

    async def main() -> None:
        bench.platform.plan(reject("rate_limit", retry_after_s=600))
        async with bench.gateway(chance=NoChance()) as gateway:
            delivery = await gateway.send(text("just in time"), max_age_s=(600_001 - past_ms) / 1000)
            due, edge = (
                bench.last(delivery.intent, "AttemptFailed")["next_attempt_at"],
                bench.last(delivery.intent, "IntentRecorded")["policy"]["expires_at"],
            )
            assert due - edge == past_ms
            await bench.clock.advance(601)
            state = (await gateway.intent(delivery.intent)).state
            assert state.status is (Status.FAILED if past_ms else Status.SENT)

    bench.run(main())


@pytest.mark.parametrize("jump_s", [HOUR_S, -HOUR_S], ids=["forward", "back"])
def test_a_jump_of_the_wall_clock_proves_nothing_early(bench: Bench, jump_s: float) -> None:
    """R10, R1, G4: the lease runs on the clock that no correction shortens; then it is sent, once."""

    async def main() -> None:
        bench.platform.looks_up = True
        bench.platform.plan(drop())
        async with bench.gateway() as gateway:
            began = bench.clock.boot_ms()
            delivery = await gateway.send(text("silence"))
            bench.clock.jump(jump_s)
            await bench.clock.advance(LEASE_MS / 1000 - 0.1)
            assert len(bench.platform.requests) == 1
            await bench.clock.advance(2 * HOUR_S)
            state = (await gateway.intent(delivery.intent)).state
            assert state.status in (Status.SENT, Status.UNKNOWN)
        assert all(request.at - began >= LEASE_MS for request in bench.platform.requests[1:])
        assert len(bench.platform.texts) <= 1
        if jump_s < 0:
            assert bench.platform.texts == ["silence"]

    bench.run(main())


@pytest.mark.parametrize("jump_s", [HOUR_S, -HOUR_S], ids=["forward", "back"])
def test_a_jump_takes_over_nobody_who_lives(bench: Bench, jump_s: float) -> None:
    """R10, OB-4, SC-27: an attempt in flight stays its owner's until its lease has really ended."""
    import asyncio

    from .platform import gated

    async def main() -> None:
        gate = asyncio.Event()
        bench.platform.plan(gated(gate))
        async with bench.gateway() as one, bench.gateway():
            delivery = await one.send(text("in flight"), timeout_s=0.05)
            bench.clock.jump(jump_s)
            bench.clock.free = True
            await bench.clock.advance(LEASE_MS / 1000 - 1)
            bench.clock.free = False
            assert bench.types(delivery.intent) == ["IntentRecorded", "AttemptStarted"]
            gate.set()
            assert (await delivery.wait(5)).status is Status.SENT
        assert bench.platform.texts == ["in flight"]

    bench.run(main())


@pytest.mark.parametrize("jump_s", [HOUR_S, -HOUR_S], ids=["forward", "back"])
@pytest.mark.parametrize("restart", [False, True], ids=["running", "restarted"])
def test_a_jump_loses_nothing_and_doubles_nothing(bench: Bench, jump_s: float, restart: bool) -> None:
    """R10, SC-26, G7: a retry that waits is made soon after its time, and a last attempt that seems to lie in the
    future counts as now."""

    async def main() -> None:
        bench.platform.plan(reject("transient"), reject("transient"))
        async with bench.gateway() as gateway:
            for number in range(3):
                await gateway.send(text(f"message {number}", f"room-{number:04}"))
            bench.clock.jump(jump_s)
            if not restart:
                await bench.clock.advance(120)
        if restart:
            async with bench.gateway():
                await bench.clock.advance(120)
        assert sorted(bench.platform.texts) == ["message 0", "message 1", "message 2"]

    bench.run(main())


def test_a_rate_limit_is_kept_also_when_the_clock_is_set_back(bench: Bench) -> None:
    """FAIL-2, R10: not earlier than the platform asked, measured."""

    async def main() -> None:
        bench.platform.plan(reject("rate_limit", retry_after_s=600))
        async with bench.gateway() as gateway:
            await gateway.send(text("slowly"))
            bench.clock.jump(-HOUR_S)
            await bench.clock.advance(3 * HOUR_S)
        first, second = [request.at for request in bench.platform.requests]
        assert second - first >= 600_000

    bench.run(main())


def test_an_hour_of_refused_connections_ends_with_everything_delivered_and_nothing_dead(bench: Bench) -> None:
    """GAP-4, SC-12, FAIL-11, G6, G7, OB-21: 20 messages in 5 lanes, recorded before and during the outage, in order."""

    async def main() -> None:
        bench.platform.rule = refuse
        async with bench.gateway() as gateway:
            for number in range(20):
                await gateway.send(text(f"{number:02}", f"room-{number % 5:04}"), wait=False)
                await bench.clock.advance(60)
            await bench.clock.advance(HOUR_S - 20 * 60)
            assert len(await gateway.owed()) == 20
            bench.platform.rule = accept
            await bench.clock.advance(300)
            assert await gateway.owed() == []
            assert await gateway.intents(status="failed") == []
            downs = [one.type for one in bench.events() if one.type in ("ChannelDown", "ChannelReady")]
            assert downs[-2:] == ["ChannelDown", "ChannelReady"]
        by_room: dict[str, list[str]] = {}
        for one in bench.platform.visible:
            by_room.setdefault(one.place, []).append(one.text)
        assert len(bench.platform.texts) == 20
        assert all(texts == sorted(texts) for texts in by_room.values())
        assert len(bench.platform.requests) < 400, "an outage is probed, not hammered"

    bench.run(main())


def test_not_before_is_kept(bench: Bench) -> None:
    """SND-2, GAP-4: recorded now, sent then; its age counts from then."""

    async def main() -> None:
        async with bench.gateway() as gateway:
            at = bench.clock.wall_ms() + 600_000
            delivery = await gateway.send(text("later"), not_before=at, wait=False, max_age_s=60)
            await bench.clock.advance(599)
            assert bench.platform.requests == []
            await bench.clock.advance(2)
            assert (await gateway.intent(delivery.intent)).state.status is Status.SENT

    bench.run(main())


def test_another_boot_of_the_host_is_timed_from_when_it_was_seen(bench: Bench) -> None:
    """R10, R1: a boot clock that began anew says nothing about an attempt of before."""
    from .platform import hang

    async def main() -> None:
        bench.platform.looks_up = True
        bench.platform.plan(hang)
        gateway = bench.gateway()
        await gateway.start()
        await gateway.send(text("in doubt"), timeout_s=0.05)
        await gateway.kill()
        bench.clock.boot_id = "boot-2"
        bench.clock._boot = 1_000
        bench.clock._offset = 1_800_000_100_000
        began = bench.clock.boot_ms()
        async with bench.gateway():
            await bench.clock.advance(LEASE_MS / 1000 - 1)
            assert len(bench.platform.requests) == 1
            await bench.clock.advance(120)
        assert bench.platform.texts == ["in doubt"]
        assert bench.platform.requests[1].at - began >= LEASE_MS

    bench.run(main())
