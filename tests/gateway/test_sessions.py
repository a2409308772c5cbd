"""Sessions: the right conversation goes on, also after a restart."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from msgledger import Message, SessionPolicy, Target
from msgledger.ledger.errors import InvalidConfig, InvalidQuery, NoSuchStream, UnroutableSource
from msgledger.ledger.source import session_key

from .inbound_kit import Agent, channel, update
from .kit import Bench

DM = {"kind": "dm"}


class Told(Agent):
    """Keeps the session of each run."""

    def __init__(self) -> None:
        super().__init__()
        self.sessions: list[Any] = []
        self.contexts: list[list[str]] = []

    async def __call__(self, inbound: Any) -> None:
        self.sessions.append(inbound.session)
        self.contexts.append([message.text for message in inbound.context])
        await super().__call__(inbound)

    @property
    def hows(self) -> list[tuple[str, str | None]]:
        return [(one.how, one.reason) for one in self.sessions]


async def said(bench: Bench, gateway: Any, *events: dict[str, Any]) -> None:
    for event in events:
        await gateway.receive(event, channel="plat")
        await bench.clock.settle()


def sessions(bench: Bench) -> list[Any]:
    return bench.query("SELECT session_id, suspended, resume, reason FROM sessions ORDER BY position")


def test_one_key_has_one_session_until_it_is_reset(bench: Bench) -> None:
    """CT-1, CT-12: two first messages at once get one; the next ones continue it, also after a restart."""
    agent = Told()

    async def main() -> None:
        async with bench.gateway(channel(bench), on_message=agent) as gateway:
            await asyncio.gather(*(gateway.receive(update(n, **DM), channel="plat") for n in range(5)))
            await bench.clock.settle()
        async with bench.gateway(channel(bench), on_message=agent) as gateway:
            await said(bench, gateway, update(9, **DM))

    bench.run(main())
    assert len({one.session_id for one in agent.sessions}) == 1
    assert sorted(agent.hows) == [("continued", None)] * 5 + [("new", None)]
    assert len(sessions(bench)) == 1


def test_what_an_agent_is_told(bench: Bench) -> None:
    """CT-12: id, key, source, how it goes on, freshness, who shares it, home."""
    agent = Told()
    home = {"plat": Target.group("plat", "home-room")}

    async def main() -> None:
        policy = SessionPolicy(profile="coder", home=home, freshness_s=60)
        async with bench.gateway(channel(bench), on_message=agent, sessions=policy) as gateway:
            await said(bench, gateway, update(1))
            await bench.clock.advance(61)
            await said(bench, gateway, update(2), update(3, thread="th-4711"))

    bench.run(main())
    first, second, third = agent.sessions
    assert first.key == "agent:coder:plat:group:room-4711:user=person-ann"
    assert (first.how, first.last_at, first.age_s, first.fresh, first.shared) == ("new", None, None, True, False)
    assert (second.how, second.fresh, second.session_id) == ("continued", False, first.session_id)
    assert second.age_s >= 61
    assert (third.shared, third.how, third.home) == (True, "new", home)
    assert third.key == "agent:coder:plat:group:room-4711:thread=th-4711"
    assert "room" not in third.shown and "ann" not in first.shown.partition("user_")[2]
    assert first.source.sender == "person-ann"


def test_an_idle_session_begins_anew_with_a_reason(bench: Bench) -> None:
    """CT-6, CT-7: and a daily one; not while a run or an obligation of it is open."""
    agent = Told()

    async def main() -> None:
        policy = SessionPolicy(reset="idle", idle_minutes=10)
        async with bench.gateway(channel(bench), on_message=agent, sessions=policy) as gateway:
            await said(bench, gateway, update(1))
            await bench.clock.advance(601)
            await said(bench, gateway, update(2))
            bench.platform.ready = False
            await gateway.receive(update(3), channel="plat")
            await bench.clock.advance(700)
            await said(bench, gateway, update(4))
            bench.platform.ready = True
            await bench.clock.advance(700)
            await said(bench, gateway, update(5))

    bench.run(main())
    assert agent.hows == [
        ("new", None),
        ("reset", "idle"),
        ("continued", None),
        ("continued", None),
        ("reset", "idle"),
    ]
    assert [event.data["reason"] for event in bench.events() if event.type == "SessionRotated"] == ["idle", "idle"]


@pytest.mark.parametrize("jump_h", [1, -1])
def test_a_clock_that_jumps_an_hour_loses_no_session(bench: Bench, jump_h: int) -> None:
    """CT-10: nor resumes one twice."""
    agent = Told()

    async def main() -> None:
        policy = SessionPolicy(reset="idle", idle_minutes=90)
        gateway = bench.gateway(channel(bench), on_message=agent, sessions=policy)
        await gateway.start()
        await said(bench, gateway, update(1))
        agent.gate = asyncio.Event()
        agent.begun.clear()
        await gateway.receive(update(2), channel="plat")
        await agent.begun.wait()
        await gateway.kill()
        bench.clock.jump(jump_h * 3600)
        agent.gate = None
        async with bench.gateway(channel(bench), on_message=agent, sessions=policy) as gateway:
            await bench.clock.settle()
            await said(bench, gateway, update(3))

    bench.run(main())
    assert len({one.session_id for one in agent.sessions}) == 1
    assert [how for how, _ in agent.hows] == ["new", "continued", "resumed", "continued"]
    assert bench.platform.texts == ["re: hello there"] * 3


def test_another_zone_changes_only_when_the_day_begins(bench: Bench) -> None:
    """CT-10: the same session, once in each zone."""
    agent = Told()

    async def main() -> None:
        for number, name in enumerate(("UTC", "Asia/Tokyo", "America/New_York")):
            policy = SessionPolicy(timezone=name, reset="daily")
            async with bench.gateway(channel(bench), on_message=agent, sessions=policy) as gateway:
                await said(bench, gateway, update(number))

    bench.run(main())
    assert len(sessions(bench)) == 1
    assert [how for how, _ in agent.hows] == ["new", "continued", "continued"]


def test_an_interrupted_turn_marks_its_session_until_it_is_done(bench: Bench) -> None:
    """CT-4: the agent is told that it is resumed."""
    agent = Told()

    async def main() -> None:
        agent.gate = asyncio.Event()
        gateway = bench.gateway(channel(bench), on_message=agent)
        await gateway.start()
        taken = await gateway.receive(update(1), channel="plat")
        await agent.begun.wait()
        await gateway.kill()
        agent.begun.clear()
        async with bench.gateway(channel(bench), on_message=agent):
            await agent.begun.wait()
            assert [row[2] for row in sessions(bench)] == [taken.inbound]
            agent.gate.set()
            await bench.clock.settle()
            assert [row[2] for row in sessions(bench)] == [None]

    bench.run(main())
    assert agent.hows == [("new", None), ("resumed", None)]
    [cleared] = [event for event in bench.events() if event.type == "ResumeCleared"]
    assert cleared.data["reason"] in ("completed", "sent")  # the reply was sent a moment before


def test_the_mark_goes_when_the_owed_reply_is_sent(bench: Bench) -> None:
    """CT-4, OB-22: not when a redelivery merely ran; over a second restart too."""
    agent = Told()
    bench.platform.ready = False

    async def handler(inbound: Any) -> None:
        await inbound.reply("the answer", wait=False)
        agent.begun.set()
        await asyncio.Event().wait()

    async def main() -> None:
        gateway = bench.gateway(channel(bench), on_message=handler)
        await gateway.start()
        await gateway.receive(update(1), channel="plat")
        await agent.begun.wait()
        await gateway.kill()
        agent.begun.clear()
        gateway = bench.gateway(channel(bench), on_message=handler)
        await gateway.start()
        await agent.begun.wait()
        assert sessions(bench)[0][2] is not None
        bench.platform.ready = True
        bench.clock.free = True  # the handler never ends
        while sessions(bench)[0][2] is not None:
            await bench.clock.advance(1)
        await gateway.kill()

    bench.run(main())
    assert bench.platform.texts == ["the answer"]
    assert [event.data["reason"] for event in bench.events() if event.type == "ResumeCleared"] == ["sent"]


async def cut_off(bench: Bench, handler: Any, agent: Agent) -> None:
    """A process that dies with the turn running."""
    gateway = bench.gateway(channel(bench), on_message=handler)
    await gateway.start()
    await bench.clock.settle() if agent.gate is None else await asyncio.wait_for(agent.begun.wait(), 10)
    agent.begun.clear()
    await gateway.kill()


def test_restarts_in_a_row_stop_the_resuming(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """CT-8: three within a minute; the turn is held, that is said, and a new message is answered."""
    caplog.set_level(logging.WARNING, "msgledger")
    agent = Told()
    agent.gate = asyncio.Event()

    async def main() -> None:
        agent.gate = asyncio.Event()
        gateway = bench.gateway(channel(bench), on_message=agent)
        await gateway.start()
        taken = await gateway.receive(update(1), channel="plat")
        await agent.begun.wait()
        agent.begun.clear()
        await gateway.kill()
        for _ in range(2):
            await cut_off(bench, agent, agent)
        agent.gate = None
        async with bench.gateway(channel(bench), on_message=agent) as gateway:
            await bench.clock.settle()
            state = gateway.store.state_of(taken.inbound)
            assert (state.status, state.hold) == ("pending", "restarts")
            await said(bench, gateway, update(2, "another", chat="room-two"))
            await said(bench, gateway, update(3, "the same room"))

    bench.run(main())
    assert [text for text, _ in agent.runs] == ["hello there"] * 3 + ["another", "the same room"]
    assert "3 restarts within 60 s with turns in flight: 1 turns are held" in caplog.text


def test_a_session_that_is_interrupted_three_times_is_suspended(bench: Bench) -> None:
    """CT-8, CT-5: however much time lies between; its next message begins anew."""
    agent = Told()

    async def main() -> None:
        agent.gate = asyncio.Event()
        gateway = bench.gateway(channel(bench), on_message=agent)
        await gateway.start()
        taken = await gateway.receive(update(1), channel="plat")
        await agent.begun.wait()
        agent.begun.clear()
        await gateway.kill()
        for _ in range(2):
            await bench.clock.advance(300)
            await cut_off(bench, agent, agent)
        await bench.clock.advance(300)
        agent.gate = None
        async with bench.gateway(channel(bench), on_message=agent) as gateway:
            await bench.clock.until(lambda: sessions(bench)[0][1] == "interrupted", within_s=10)
            await bench.clock.settle()
            assert gateway.store.state_of(taken.inbound).hold == "restarts"
            await said(bench, gateway, update(2))

    bench.run(main())
    assert agent.hows[-1] == ("reset", "suspended")
    assert len(agent.runs) == 4


# ---- history


def words(entries: list[Any]) -> list[tuple[str, str]]:
    return [(entry.role, entry.text) for entry in entries]


def test_the_history_is_the_conversation(bench: Bench) -> None:
    """CT-9, SC-53, SC-51: what came in and what was sent, in order, as of any position, after a restart, and a reply
    that a recovery sent like any other."""
    agent = Told()

    async def main() -> None:
        async with bench.gateway(channel(bench), on_message=agent) as gateway:
            await said(bench, gateway, update(1, "one"))
            middle = bench.events()[-1].position
            bench.platform.ready = False
            await said(bench, gateway, update(2, "two"), update(3, "elsewhere", chat="room-two"))
            [key] = {one.key for one in agent.sessions if "4711" in one.key}
            assert words(await gateway.history(key)) == [("user", "one"), ("assistant", "re: one"), ("user", "two")]
        bench.platform.ready = True
        async with bench.gateway(channel(bench), on_message=agent) as gateway:
            await bench.clock.until(lambda: len(bench.platform.texts) == 3, within_s=30)
            await bench.clock.settle()
            whole = [("user", "one"), ("assistant", "re: one"), ("user", "two"), ("assistant", "re: two")]
            for name in (agent.sessions[0], key, agent.sessions[0].session_id):
                assert words(await gateway.history(name)) == whole
            assert words(await gateway.history(key, as_of=middle)) == whole[:2]
            sent = next(one.position for one in bench.events() if one.type == "IntentCommitted")
            assert words(await gateway.history(key, as_of=sent - 1)) == whole[:1]
            newest = await gateway.history(key, limit=3)
            assert words(newest) == whole[1:]
            assert words(await gateway.history(key, before=newest[0].position)) == whole[:1]
            assert (newest[0].inbound, newest[1].inbound) == (
                (await gateway.history(key))[0].inbound,
                newest[1].inbound,
            )
            with pytest.raises(NoSuchStream, match="no session 'nobody'"):
                await gateway.history("nobody")
            with pytest.raises(InvalidQuery, match="limit: 0"):
                await gateway.history(key, limit=0)
            with pytest.raises(InvalidQuery, match="beyond the ledger's head"):
                await gateway.history(key, as_of=10**9)

    bench.run(main())


def test_a_reset_begins_a_history_of_its_own(bench: Bench) -> None:
    """CT-9, CT-1: the earlier one is there by its id, and all of them under the key."""
    agent = Told()

    async def main() -> None:
        policy = SessionPolicy(reset="idle", idle_minutes=1)
        async with bench.gateway(channel(bench), on_message=agent, sessions=policy) as gateway:
            await said(bench, gateway, update(1, "before"))
            await bench.clock.advance(100)
            await said(bench, gateway, update(2, "after"))
            first, second = agent.sessions
            assert words(await gateway.history(second)) == [("user", "after"), ("assistant", "re: after")]
            assert words(await gateway.history(first.key)) == words(await gateway.history(second))
            assert words(await gateway.history(first)) == [("user", "before"), ("assistant", "re: before")]
            assert len(await gateway.history(first.key, all=True)) == 4

    bench.run(main())


def test_what_was_taken_back_does_not_come_back(bench: Bench) -> None:
    """SC-50: edits count, deletions and cancellations too, and an answer that was not sent is not in it."""

    async def handler(inbound: Any) -> None:
        match inbound.message.text:
            case "please edit it":
                sent = await inbound.reply("first words")
                await inbound.edit(sent, Message.text("better words", to=inbound.message.target))
            case "please delete it":
                await inbound.delete(await inbound.reply("a secret"))
            case "please cancel it":
                bench.platform.ready = False
                owed = await inbound.reply("never sent", wait=False)
                await inbound_gateway[0].cancel(owed, "a mistake")
                bench.platform.ready = True
            case _:
                await inbound.reply("fine")

    inbound_gateway: list[Any] = []

    async def main() -> None:
        async with bench.gateway(channel(bench), on_message=handler) as gateway:
            inbound_gateway.append(gateway)
            for number, text in enumerate(("please edit it", "please delete it", "please cancel it", "and")):
                await said(bench, gateway, update(number, text))
            [(key,)] = bench.query("SELECT id FROM sessions")
            entries = await gateway.history(key)
            assert words(entries) == [
                ("user", "please edit it"),
                ("assistant", "better words"),
                ("user", "please delete it"),
                ("assistant", ""),
                ("user", "please cancel it"),
                ("user", "and"),
                ("assistant", "fine"),
            ]
            assert (entries[1].edited, entries[3].deleted, entries[3].message) == (True, True, None)

    bench.run(main())


def test_what_did_not_speak_to_us_is_context_for_what_does(bench: Bench) -> None:
    """RCV-6: recorded, over a restart, bounded, and handed over once."""
    agent = Told()

    async def main() -> None:
        async with bench.gateway(channel(bench), on_message=agent) as gateway:
            unheard = [update(n, f"aside {n}", addressed=False, **{"from": f"person-{n}"}) for n in range(60)]
            await said(bench, gateway, *unheard)
        async with bench.gateway(channel(bench), on_message=agent) as gateway:
            await said(bench, gateway, update(70, "you there?"))
            await said(bench, gateway, update(71, "aside 71", addressed=False), update(72, "and now?"))
            await said(bench, gateway, update(73, "other room", chat="room-two"))

    bench.run(main())
    assert agent.texts == ["you there?", "and now?", "other room"]
    assert agent.contexts == [[f"aside {n}" for n in range(10, 60)], ["aside 71"], []]


def test_a_topic_in_two_spellings_is_one_conversation(bench: Bench) -> None:
    """SC-52: `normalize` gives one form, which key, lane and target are made of."""
    agent = Told()

    def canonical(event: Any) -> Any:
        from .inbound_kit import normalize

        return normalize({**event, "thread": str(int(event["thread"]))})

    async def main() -> None:
        spelled = bench.platform.channel(normalize=canonical, dedupe_key=lambda event: str(event["update"]))
        async with bench.gateway(spelled, on_message=agent) as gateway:
            await said(bench, gateway, update(1, thread="017"), update(2, thread=17))

    bench.run(main())
    assert len({one.session_id for one in agent.sessions}) == 1
    assert {one.thread for one in bench.platform.visible} == {"17"}
    assert len(bench.query("SELECT DISTINCT lane FROM inbound")) == 1


def test_a_source_without_a_conversation_is_no_turn(bench: Bench) -> None:
    """SK-5: it is recorded as dropped with the reason, and nobody else's session hears it."""
    agent = Told()

    def nowhere(event: Any) -> Any:
        from msgspec.structs import replace

        from .inbound_kit import normalize

        incoming = normalize(event)
        return replace(incoming, source=replace(incoming.source, kind="dm", chat=None, sender=None))

    async def main() -> None:
        stray = bench.platform.channel(normalize=nowhere, dedupe_key=lambda event: str(event["update"]))
        async with bench.gateway(stray, on_message=agent) as gateway:
            await said(bench, gateway, update(1))

    bench.run(main())
    assert agent.runs == []
    [dropped] = [event.data for event in bench.events() if event.type == "InboundDropped"]
    assert dropped["reason"] == "unsupported" and "neither chat nor sender" in dropped["note"]
    assert UnroutableSource.__name__ not in dropped["note"]


@pytest.mark.parametrize(
    ("wrong", "said_of_it"),
    [
        ({"reset": "weekly"}, "reset 'weekly'"),
        ({"at_hour": 24}, "at_hour 24"),
        ({"idle_minutes": 0}, "idle_minutes 0"),
        ({"timezone": "Nowhere"}, "timezone 'Nowhere'"),
        ({"profile": "main"}, "profile 'main'"),
        ({"profile": "../x"}, "profile: "),
    ],
)
def test_a_wrong_policy_is_refused_at_the_start(bench: Bench, wrong: dict[str, Any], said_of_it: str) -> None:
    """CT-6, PS-2."""

    async def main() -> None:
        with pytest.raises(InvalidConfig, match=said_of_it):
            await bench.gateway(sessions=SessionPolicy(**wrong)).start()

    bench.run(main())


def test_routing_asks_by_index_only(bench: Bench) -> None:
    """CT-11: no scan in what routing a known session runs, so that it costs the same with many."""
    from msgledger.ledger.store.store import Store
    from msgledger.projections import VIEWS
    from msgledger.projections.sessions import BEFORE, BUSY, LAST_HEARD, SPAN_AT

    with Store.open(bench.path, VIEWS, wall_ms=lambda: 0) as store:
        for statement, values in (
            ("SELECT * FROM sessions WHERE key = ?", 1),
            (LAST_HEARD, 1),
            (BUSY, 3),
            (BEFORE, 2),
            (SPAN_AT, 2),
        ):
            plan = store.read_sync(
                lambda cursor, text, count: cursor.execute(f"EXPLAIN QUERY PLAN {text}", ("x",) * count).fetchall(),
                statement,
                values,
            )
            scans = [line[3] for line in plan if line[3].startswith("SCAN") and "INDEX" not in line[3]]
            assert [scan for scan in scans if "CONSTANT" not in scan] == [], plan


def test_keys_are_digests_outside_of_content(bench: Bench) -> None:
    """SK-1: what the ledger shows of a session hides chat and people."""
    agent = Told()

    async def main() -> None:
        async with bench.gateway(channel(bench), on_message=agent) as gateway:
            await said(bench, gateway, update(1))

    bench.run(main())
    [(shown, key)] = bench.query("SELECT shown, key FROM sessions")
    assert key != session_key(agent.sessions[0].source)
    assert "4711" not in shown and "person-ann" not in shown
