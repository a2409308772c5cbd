"""The gateway in virtual time over a real Synapse: the window that is counted from the first attempt, a resend that is
itself limited, and edits of edits. Days go by in an instant; what the room holds is the homeserver's own word.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgledger.adapters.matrix import MatrixChannel
from msgledger.ledger.errors import InvalidMessage
from msgledger.ledger.limits import HOUR_MS
from msgledger.ledger.message import Message
from msgledger.ledger.store.apply import dossier_of

from ..counterparts.proxy import Fate, Passed, Proxy, Rule
from ..counterparts.synapse import Room, Synapse
from ..gateway.kit import Bench, TestGateway, check
from .matrix_kit import READS, bot_of, channel_of, place, shown, spend

pytest_plugins = ("tests.counterparts.fixtures",)
pytestmark = pytest.mark.synapse

HOURS_S = HOUR_MS / 1000


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    made.clock.jump(time.time() - made.clock.wall_ms() / 1000)  # from the same time as the homeserver
    yield made
    check(made.path)


def channel(room: Room, proxy: Proxy) -> MatrixChannel:
    return channel_of(room.bot, proxy.url)


def writes(proxy: Proxy) -> list[Passed]:
    return [one for one in proxy.passed if one.method == "PUT"]


async def lost(bench: Bench, room: Room, proxy: Proxy, fate: Fate = Fate.LOSE_ANSWER) -> str:
    """A message whose answer never came, of a gateway that died then; the intent's id."""
    proxy.set(Rule(fate), READS)
    gateway = bench.gateway(channel(room, proxy))
    await gateway.start()
    message = Message.text("once", to=place(room))
    delivery = await gateway.send(message, timeout_s=0.3, max_age_s=72 * HOURS_S, max_attempts=2)
    await gateway.kill()
    assert len(writes(proxy)) == 1
    return delivery.intent


async def state(gateway: TestGateway, intent: str) -> Any:
    return (await gateway.store.read(dossier_of, intent)).state


class TestWindow:
    @pytest.mark.parametrize(("hours", "again"), [(23.9, True), (24.1, False)])
    def test_it_is_counted_from_the_first_attempt(
        self, bench: Bench, room: Room, proxy: Proxy, hours: float, again: bool
    ) -> None:
        """R5, UNK-1, CH-5: within it the same transaction comes back as the same event; behind it a person decides."""

        async def life() -> None:
            intent = await lost(bench, room, proxy)
            await bench.clock.advance(hours * HOURS_S)
            async with bench.gateway(channel(room, proxy)) as gateway:
                await bench.clock.advance(300)
                now = await state(gateway, intent)
                assert now.status.value == ("sent" if again else "unknown_after_send")
                assert now.hold == (None if again else "unresolved")
            assert len(writes(proxy)) == (2 if again else 1)
            assert room.bodies() == ["once"]

        bench.run(life())

    def test_what_is_read_needs_no_window(self, bench: Bench, room: Room, proxy: Proxy) -> None:
        """UNK-3, REC-6: two days later the room still shows the transaction, and nothing is sent."""

        async def life() -> None:
            intent = await lost(bench, room, proxy)
            await bench.clock.advance(48 * HOURS_S)
            proxy.set()
            async with bench.gateway(channel(room, proxy)) as gateway:
                await bench.clock.until(lambda: bench.types(intent)[-1] == "IntentCommitted", within_s=60)
                assert (await state(gateway, intent)).platform_ids == (room.messages()[0]["event_id"],)
            assert len(writes(proxy)) == 1

        bench.run(life())

    def test_another_device(self, bench: Bench, room: Room, proxy: Proxy) -> None:
        """R5, R6, G4, GAP-5, UNK-5: its keys are another's, and it is shown no transaction: held, the lane goes on.

        Back on the first device it is found, and nobody has to decide.
        """
        other = room.server.login(room.bot.user_id, "OTHER")

        async def life() -> None:
            intent = await lost(bench, room, proxy)
            proxy.set()
            async with bench.gateway(channel_of(other, proxy.url)) as gateway:
                await bench.clock.advance(150)
                now = await state(gateway, intent)
                assert (now.status.value, now.hold) == ("unknown_after_send", "unresolved")
                considered = [one.data["evidence"] for one in bench.events(intent) if one.type == "OutcomeReconciled"]
                assert considered[0]["ids"] == [room.messages()[0]["event_id"]], "what a person may look at"
                behind = await gateway.send(Message.text("behind", to=place(room)))
                assert behind.status == "sent"
            assert room.bodies() == ["once", "behind"]
            async with bench.gateway(channel(room, proxy)) as gateway:
                await bench.clock.until(
                    lambda: bench.types(intent)[-1] == "IntentCommitted", within_s=30 * HOURS_S, step_s=600
                )
            assert room.bodies() == ["once", "behind"]

        bench.run(life())


def test_a_resend_that_is_itself_limited(synapse_installed: None, bench: Bench, tmp_path: Path) -> None:
    """FAIL-2, R2, R5, G4, CH-5: Synapse knows the transaction and refuses it all the same: it stays in doubt, costs no
    attempt of its two, is no copy, and comes back as the event that stands when the wait is over.
    """

    async def life(server: Synapse, room: Room, proxy: Proxy) -> None:
        intent = await lost(bench, room, proxy)
        server.kill()
        server.start()  # what it knew by heart is gone: from the database a known transaction counts as a message
        await asyncio.to_thread(spend, bot_of(room), room)
        proxy.set(READS)
        async with bench.gateway(channel(room, proxy)) as gateway:
            await bench.clock.until(lambda: len(writes(proxy)) == 2, within_s=60)
            now = await state(gateway, intent)
            assert (now.status.value, now.charged) == ("unknown_after_send", 1)
            failed = bench.last(intent, "AttemptFailed")
            assert (failed["failure"], failed["status"]) == ("rate_limit", 429)
            assert failed["next_attempt_at"] >= failed["at"] + failed["retry_after_ms"] >= failed["at"] + 1_000
            await asyncio.sleep(failed["retry_after_ms"] / 1000)  # the homeserver's own time
            await bench.clock.until(lambda: bench.types(intent)[-1] == "IntentCommitted", within_s=120)
            assert (await state(gateway, intent)).charged == 2
        assert [one.status for one in writes(proxy)] == [200, 429, 200]
        assert len({(one.path, one.body) for one in writes(proxy)}) == 1
        assert room.count("once") == 1

    with Synapse(tmp_path / "s", messages_per_second=0.3, burst=3) as server, Proxy(server.port) as proxy:
        bench.run(life(server, server.room(), proxy))


class TestChanges:
    def test_an_edit_of_an_edit_and_the_end_of_both(self, bench: Bench, room: Room, proxy: Proxy) -> None:
        """CH-5, RCP-3, RCP-4: whichever of them is edited, the message is; deleting an edit takes its text away too."""

        async def life() -> None:
            async with bench.gateway(channel(room, proxy)) as gateway:
                first = await gateway.send(Message.text("first", to=place(room)))
                second = await gateway.edit(first, Message.text("second", to=place(room)))
                third = await gateway.edit(second, Message.text("third", to=place(room)))
                assert [seen.text for seen in shown(room)] == ["third"]
                of = first.receipt.primary_platform_id if first.receipt else None
                assert third.receipt is not None and third.receipt.primary_platform_id == of
                assert await gateway.by_platform_id("matrix", of or "") == [third.intent, second.intent, first.intent]
                await gateway.delete(third)
                assert shown(room) == []
                assert room.bodies() == ["", "* second", ""]

        bench.run(life())

    def test_an_edit_that_is_too_long(self, bench: Bench, room: Room, proxy: Proxy) -> None:
        """CAP-1, CH-5: what is one message is too much for an edit; it is refused before anything is recorded."""

        async def life() -> None:
            async with bench.gateway(channel(room, proxy)) as gateway:
                first = await gateway.send(Message.text("x" * 40_000, to=place(room)))
                known = bench.types_of_intents()
                with pytest.raises(InvalidMessage, match="an edit carries its text twice"):
                    await gateway.edit(first, Message.text("y" * 40_000, to=place(room)))
                assert bench.types_of_intents() == known
                assert [seen.text[0] for seen in shown(room)] == ["x"]

        bench.run(life())
