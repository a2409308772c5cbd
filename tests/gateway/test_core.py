"""What the ledger promises: owed before it is sent, sent once, one way in, no platform in the core."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from msgledger import Status
from msgledger.ledger import decide
from msgledger.ledger.errors import NotPossible

from .kit import Bench, text
from .platform import Request, lose

ROOT = Path(__file__).resolve().parents[2]
PLATFORMS = (
    "telegram|discord|slack|whatsapp|matrix|mattermost|teams|feishu|qqbot|imessage|googlechat|google_chat"
    "|nextcloud|irc|nostr|synology|tlon|twitch|zalo|openclaw|hermes"
)
WORDS_TOO = ("signal", "line")
"""Platforms whose names are ordinary words: looked for as a value only."""


def sources(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def test_another_connection_sees_intent_and_attempt_when_the_channel_is_called(bench: Bench) -> None:
    """CORE-1, G1, SC-01: durable before it leaves, for sends, edits and deletes; the receipt is durable afterwards."""
    seen: list[list[str]] = []

    async def look(request: Request) -> None:
        seen.append(bench.types(request.context.intent))

    async def main() -> None:
        bench.platform.before = look
        async with bench.gateway() as gateway:
            sent = await gateway.send(text("The build is green."))
            edit = await gateway.edit(sent, text("The build is red."))
            gone = await gateway.delete(sent)
            assert [one.status for one in (sent, edit, gone)] == [Status.SENT] * 3
            assert bench.types(sent.intent)[2:] == ["UnitAccepted", "IntentCommitted"]

    bench.run(main())
    assert seen == [["IntentRecorded", "AttemptStarted"]] * 3


def test_what_is_owed_is_worked_on_until_it_is_sent(bench: Bench) -> None:
    """CORE-2, G7: a restart does not forget it, and it ends in an event."""

    async def main() -> None:
        bench.platform.ready = False
        async with bench.gateway() as gateway:
            delivery = await gateway.send(text("still owed"), wait=False)
        bench.platform.ready = True
        async with bench.gateway() as gateway:
            assert (await gateway.owed())[0].id == delivery.intent
            await bench.clock.advance(1)
            assert await gateway.owed() == []
            assert bench.types(delivery.intent)[-1] == "IntentCommitted"

    bench.run(main())


def test_a_channel_without_key_or_look_up_says_at_least_once_and_holds_what_is_unknown(bench: Bench) -> None:
    """CORE-2: no more is claimed than a channel can prove."""

    async def main() -> None:
        channel = bench.platform.channel()
        assert channel.capabilities.promise().startswith("at least once")
        bench.platform.plan(lose())
        async with bench.gateway(channel) as gateway:
            delivery = await gateway.send(text("ambiguous"))
            await bench.clock.advance(7200)
            assert (await gateway.intent(delivery.intent)).state.hold == "unresolved"
        assert bench.platform.texts == ["ambiguous"]

    bench.run(main())


def test_a_committed_intent_is_never_sent_again(bench: Bench) -> None:
    """CORE-7, G3, REC-3, SC-14: not by a restart, and a new attempt on it is refused."""

    async def main() -> None:
        async with bench.gateway() as gateway:
            delivery = await gateway.send(text("once"))
        for _ in range(3):
            async with bench.gateway() as gateway:
                await bench.clock.advance(60)
                state = (await gateway.intent(delivery.intent)).state
                with pytest.raises(NotPossible):
                    decide.cancelled(state, "too late", at=0, by="gateway:x")
                await gateway.dispatcher.claim_now(delivery.intent)
                await bench.clock.advance(60)
        assert bench.platform.texts == ["once"]
        assert len(bench.platform.requests) == 1

    bench.run(main())


def test_only_the_store_writes(bench: Bench) -> None:
    """CORE-4: no other folder holds a statement that changes a row."""
    statement = re.compile(r"\b(INSERT\s+(OR\s+\w+\s+)?INTO|UPDATE\s+\w+\s+SET|DELETE\s+FROM|REPLACE\s+INTO)\b", re.I)
    assert any(statement.search(path.read_text()) for path in sources("ledger/store"))
    writers = [path.name for path in sources("projections", "adapters", "lifecycle", "cli") if "qa" not in path.name]
    assert len(writers) > 15
    found = [
        str(path.relative_to(ROOT))
        for path in sources("projections", "adapters", "lifecycle", "cli")
        if "qa" not in path.name and statement.search(path.read_text())
    ]
    assert found == []


def test_the_core_names_no_platform() -> None:
    """CORE-5: what differs between channels is read from their capabilities."""
    name = re.compile(rf"(?<!\w)({PLATFORMS})(?!\w)|['\"]({'|'.join(WORDS_TOO)})['\"]", re.I)
    assert name.search('if channel == "slack":') and name.search('if channel == "signal":')
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in sources("ledger", "projections", "lifecycle")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if name.search(line)
    ]
    assert [line for line in found if not line.startswith("ledger/origin.py")] == []
    assert len(found) == 1, "there is one older spelling of our own origin, and it is no platform"


def test_a_channel_gets_finished_units_only(bench: Bench) -> None:
    """CORE-6: each request carries a whole rendered unit of the plan that is stored, nothing grows."""

    async def main() -> None:
        async with bench.gateway() as gateway:
            sent = await gateway.send(text("a finished text"))
            plan = (await gateway.intent(sent.intent)).units
            assert [request.unit for request in bench.platform.requests] == list(plan)
            assert not any("stream" in name or "delta" in name for name in dir(gateway))

    bench.run(main())
