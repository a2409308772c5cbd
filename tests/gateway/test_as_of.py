"""One intent as it stood: at every moment of histories that really happened, it equals the fold of that part."""

from __future__ import annotations

from itertools import takewhile
from typing import Any

import pytest
from msgledger import InvalidQuery, NoSuchIntent
from msgledger.ledger import events as e
from msgledger.ledger.dossier import compile_dossier
from msgledger.ledger.fold import fold
from msgledger.ledger.store.append import Append
from msgledger.ledger.store.history import Recorded
from msgledger.projections.timeline import timeline

from .kit import SHORT, Bench, TestGateway, parts, text
from .platform import drop, lose, refuse, reject


def triples(events: list[Recorded]) -> list[tuple[Any, int, int]]:
    return [(one.event, one.position, one.recorded_at) for one in events]


async def histories(bench: Bench, gateway: TestGateway) -> list[str]:
    """Intents sent, refused, waiting, in doubt, looked up, cut in parts, edited, cancelled, and reported late."""
    platform = bench.platform
    plain = await gateway.send(text("text of plain", "room-plain"))
    platform.plan(refuse, reject("rate_limit", retry_after_s=3))
    waited = await gateway.send(text("text of waited", "room-waited"))
    platform.plan(reject("not_found"))
    refused = await gateway.send(text("text of refused", "room-refused"))
    platform.plan(lose(), drop())
    found = await gateway.send(text("text of found", "room-found"))
    lost = await gateway.send(text("text of lost", "room-lost"))
    several = await gateway.send(text(parts(3), "room-several"))
    edit = await gateway.edit(plain, text("text of plain, edited", "room-plain"))
    await bench.clock.advance(90)
    platform.ready = False
    owed = await gateway.send(text("text of owed", "room-owed"), wait=False)
    await gateway.cancel(owed, "not needed")
    late = e.UnitAccepted(at=1, by="worker:x", attempt=1, unit=0, parts=(e.AcceptedPart("m99"),))
    await gateway.store.append(Append(refused.intent, (late,)))
    return [one.intent for one in (plain, waited, refused, found, lost, several, edit, owed)]


def test_every_moment_of_every_history_is_the_fold_of_its_beginning(bench: Bench) -> None:
    """SC-67, OB-2: by position and by either clock; before its first event it did not exist."""
    bench.platform.looks_up = True

    async def main() -> None:
        async with bench.gateway(bench.platform.channel(text=SHORT)) as gateway:
            intents = await histories(bench, gateway)
            head = len(bench.events())
            moments = 0
            for id in intents:
                events = await gateway.intent(id).events()
                assert [one.position for one in events] == [one.position for one in bench.events(id)]
                for count in range(len(events) + 1):
                    begins = events[count - 1].position if count else 0
                    ends = events[count].position - 1 if count < len(events) else head
                    for position in {begins, ends}:
                        await check(gateway, id, events[:count], position=position)
                for moment in {one.recorded_at + near for one in events for near in (-1, 0)}:
                    await check(gateway, id, [one for one in events if one.recorded_at <= moment], recorded_at=moment)
                for moment in {happened(one) + near for one in events for near in (-1, 0)}:
                    known = list(takewhile(lambda one: happened(one) <= moment, events))  # noqa: B023
                    await check(gateway, id, known, at=moment)
                moments += len(events)
            assert moments > 40

    bench.run(main())


def happened(one: Recorded) -> int:
    assert isinstance(one.event, e.Event)
    return one.event.at


async def check(gateway: TestGateway, id: str, part: list[Recorded], **cut: int) -> None:
    then = gateway.intent(id).as_of(**cut)
    if not part:
        with pytest.raises(NoSuchIntent, match=f"intent {id} did not exist yet, .*: it was recorded at position"):
            await then
        return
    dossier = await then
    assert dossier.state == fold(id, triples(part))
    assert dossier == compile_dossier(id, triples(part))
    assert await then.events() == part
    assert await then.timeline() == timeline(id, triples(part))


def test_the_two_clocks_differ_where_news_came_late(bench: Bench) -> None:
    """SC-67: what had happened by then, and what was known then."""

    async def main() -> None:
        async with bench.gateway() as gateway:
            sent = await gateway.send(text("one"))
            happened = bench.clock.wall_ms()
            await bench.clock.advance(3_600)
            report = e.DeliveryReported(at=happened + 1_000, by="gateway:x", platform_id="m1", state="delivered")
            await gateway.store.append(Append(sent.intent, (report,)))
            read = gateway.intent(sent)
            assert (await read).state.delivery == "delivered"
            assert (await read.as_of(recorded_at=happened + 60_000)).state.delivery is None
            assert (await read.as_of(at=happened + 60_000)).state.delivery == "delivered"
            assert (await read.as_of(at=happened + 999)).state.delivery is None

    bench.run(main())


def test_what_cannot_be_asked_of_the_past_is_refused(bench: Bench) -> None:
    """SC-67: no guess where the question is wrong."""

    async def main() -> None:
        async with bench.gateway() as gateway:
            read = gateway.intent(await gateway.send(text("one")))
            head = len(bench.events())
            for wrong in ({}, {"position": 1, "at": 1}):
                with pytest.raises(InvalidQuery, match="as_of takes one of position, recorded_at"):
                    read.as_of(**wrong)
            with pytest.raises(InvalidQuery, match="position: -1 is no position"):
                read.as_of(position=-1)
            with pytest.raises(InvalidQuery, match="recorded_at: '1h' is no time"):
                read.as_of(recorded_at="1h")  # type: ignore[arg-type]
            assert (await read.as_of(position=head)).state == (await read).state
            with pytest.raises(InvalidQuery, match=f"position {head + 1} is beyond the ledger's head, {head}"):
                await read.as_of(position=head + 1)
            with pytest.raises(NoSuchIntent, match=r"no intent 0193: give the whole id"):
                await gateway.intent("0193")

    bench.run(main())
