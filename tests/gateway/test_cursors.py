"""The polling cursor: kept for each credential, found after a restart, and never full."""

from __future__ import annotations

import asyncio

import pytest
from msgledger.lifecycle.inbound import cursors

from .inbound_kit import channel
from .kit import Bench


def test_another_credential_does_not_inherit_the_cursor(bench: Bench) -> None:
    """SC-57: and the first one finds its own again."""

    async def main() -> None:
        for credential, found in (("one", None), ("two", None), ("one", "7"), ("two", "7")):
            async with bench.gateway(channel(bench, credential=credential)) as gateway:
                intake = gateway.intake("plat", via="offset")
                assert await intake.cursor() == found
                await intake.advance("7")
                await intake.advance("7")

    bench.run(main())
    assert len([event for event in bench.events() if event.type == "CursorAdvanced"]) == 2


def test_a_cursor_goes_on_when_its_stream_is_full(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """WM-1, SC-57: also where two gateways advance it at once, and after a restart."""
    monkeypatch.setattr(cursors, "CURSOR_EVENTS_MAX", 3)

    async def main() -> None:
        async with bench.gateway(channel(bench)) as one, bench.gateway(channel(bench), seed=8) as other:
            intakes = [gateway.intake("plat", via="offset") for gateway in (one, other)]
            for number in range(10):
                await asyncio.gather(*(intake.advance(str(number)) for intake in intakes))
                assert await intakes[0].cursor() == str(number)
        async with bench.gateway(channel(bench)) as gateway:
            assert await gateway.intake("plat", via="offset").cursor() == "9"

    bench.run(main())
    streams = [event.stream for event in bench.events() if event.type == "CursorAdvanced"]
    assert len(set(streams)) > 2
    assert max(map(streams.count, streams)) <= 5
