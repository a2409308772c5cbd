"""Continuity where it is hard: suspended sessions, several gateways, clocks, what does not speak to us."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgledger import Message, SessionPolicy
from msgledger.ledger.errors import NoSuchStream
from msgledger.ledger.inbound import released
from msgledger.ledger.session import reset, suspended
from msgledger.ledger.store.apply import change_sync
from msgledger.lifecycle.inbound.resume import Resume

from .inbound_kit import channel, update
from .kit import Bench
from .test_sessions import DM, Told, said, sessions, words


async def cut_off_in(bench: Bench, agent: Told, event: dict[str, Any] | None = None, **options: Any) -> str | None:
    """A process that dies while the agent is at work; the stream of the event that it was given."""
    agent.gate = asyncio.Event()
    agent.begun.clear()
    gateway = bench.gateway(channel(bench), on_message=agent, **options)
    await gateway.start()
    stream = None if event is None else (await gateway.receive(event, channel="plat")).inbound
    await asyncio.wait_for(agent.begun.wait(), 10)
    await gateway.kill()
    agent.gate = None
    return stream


def test_a_turn_of_a_suspended_session_is_not_run_again_by_itself(bench: Bench) -> None:
    """CT-5, CT-8: whoever suspended it, and also where the process died between the suspension and the hold."""
    agent = Told()

    async def main() -> None:
        stream = await cut_off_in(bench, agent, update(1))
        assert stream is not None
        async with bench.gateway() as gateway:  # it handles nothing: only a person is at work here
            [(session,)] = bench.query("SELECT id FROM sessions")
            change_sync(gateway.store, session, lambda state: suspended(state, "it loops", at=0, by="person:x"))  # type: ignore[arg-type]
        async with bench.gateway(channel(bench), on_message=agent) as gateway:
            await bench.clock.settle()
            held = gateway.store.state_of(stream)
            assert (held.status, held.hold) == ("pending", "restarts")
            await said(bench, gateway, update(2, "and now?"))

    bench.run(main())
    assert agent.texts == ["hello there", "and now?"]
    assert agent.hows[-1] == ("reset", "suspended")


def test_a_held_turn_that_a_person_lets_run_is_told_that_it_was_interrupted(bench: Bench) -> None:
    """CT-12, CT-8: also where it was held at once."""
    agent = Told()

    async def main() -> None:
        stream = await cut_off_in(bench, agent, update(1))
        assert stream is not None
        async with bench.gateway() as gateway:
            [(session,)] = bench.query("SELECT id FROM sessions")
            change_sync(gateway.store, session, lambda state: suspended(state, "it loops", at=0, by="person:x"))  # type: ignore[arg-type]
        async with bench.gateway(channel(bench), on_message=agent) as gateway:
            await bench.clock.settle()
            now = bench.clock.wall_ms()
            change_sync(gateway.store, stream, lambda state: released(state, "mended", at=now, by="person:x"))  # type: ignore[arg-type]
            gateway.turns.wake()
            await bench.clock.settle()

    bench.run(main())
    assert agent.hows == [("new", None), ("resumed", None)]


def test_one_death_that_many_gateways_see_is_no_loop_of_restarts(bench: Bench, monkeypatch: Any) -> None:
    """CT-8: after a host came up again, every process of a gateway starts within a second."""
    agent = Told()
    all_here, begin = asyncio.Barrier(4), Resume.begin

    async def together(self: Resume, interrupted: list[str]) -> None:
        await all_here.wait()
        await begin(self, interrupted)

    async def main() -> None:
        stream = await cut_off_in(bench, agent, update(1))
        assert stream is not None
        monkeypatch.setattr(Resume, "begin", together)
        gateways = [bench.gateway(channel(bench), on_message=agent, seed=seed) for seed in range(4)]
        await asyncio.gather(*(gateway.start() for gateway in gateways))
        await bench.clock.settle()
        assert gateways[0].store.state_of(stream).status == "completed"
        for gateway in gateways:
            await gateway.close()

    bench.run(main())
    assert [one.data.get("interrupted", 0) for one in bench.events() if one.type == "WorkerStarted"] == [0, 1, 1, 1, 1]
    assert sum(one.type == "ResumeMarked" for one in bench.events()) == 1
    assert agent.hows == [("new", None), ("resumed", None)]


def test_a_start_that_runs_no_turns_counts_for_nothing(bench: Bench) -> None:
    """CT-8: somebody sends three messages by hand while the agent's process is down."""
    agent = Told()

    async def main() -> None:
        stream = await cut_off_in(bench, agent, update(1))
        assert stream is not None
        for _ in range(4):
            async with bench.gateway():
                pass
        async with bench.gateway(channel(bench), on_message=agent) as gateway:
            await bench.clock.settle()
            assert gateway.store.state_of(stream).status == "completed"

    bench.run(main())
    assert agent.hows == [("new", None), ("resumed", None)]


@pytest.mark.parametrize("jump_s", [0, -3_600])
def test_restarts_that_lie_apart_are_no_loop(bench: Bench, jump_s: float) -> None:
    """CT-10, CT-8: three in an hour, also where the clock was set back to before all of them."""
    agent = Told()

    async def handler(inbound: Any) -> None:
        agent.begun.set()
        if inbound.attempt == 1:
            await asyncio.Event().wait()
        await agent(inbound)

    async def dies(number: int) -> str:
        gateway = bench.gateway(channel(bench), on_message=handler)
        await gateway.start()
        await bench.clock.until(lambda: len(agent.runs) == number, within_s=10)
        agent.begun.clear()
        taken = await gateway.receive(update(number, chat=f"room-{number}"), channel="plat")
        await asyncio.wait_for(agent.begun.wait(), 10)
        await gateway.kill()
        await bench.clock.advance(600)
        return taken.inbound

    async def main() -> None:
        streams = [await dies(number) for number in range(3)]
        bench.clock.jump(jump_s)
        async with bench.gateway(channel(bench), on_message=handler) as gateway:
            await bench.clock.until(lambda: len(agent.runs) == 3, within_s=10)
            await bench.clock.settle()
            assert {gateway.store.state_of(stream).status for stream in streams} == {"completed"}

    bench.run(main())


def test_a_mark_whose_turn_is_done_does_not_expire(bench: Bench) -> None:
    """CT-4, CT-7: also where the process that set it is gone, and another one ended the turn."""
    agent = Told()

    async def main() -> None:
        both = [bench.gateway(channel(bench), on_message=agent, seed=seed) for seed in range(2)]
        for gateway in both:
            await gateway.start()
        agent.fails.append(ValueError("no model"))
        stream = await cut_off_in(bench, agent, update(1))
        assert stream is not None
        await bench.clock.until(lambda: len(agent.runs) == 2, within_s=10)
        await bench.clock.settle()
        [marked] = [one.data["by"] for one in bench.events() if one.type == "ResumeMarked"]
        [marker] = [one for one in both if marked.endswith(one.worker)]
        [other] = [one for one in both if one is not marker]
        await marker.kill()
        await bench.clock.until(lambda: len(agent.runs) == 3, within_s=120)
        await bench.clock.settle()
        assert sessions(bench)[0][2] is None
        await bench.clock.advance(4_000)
        await said(bench, other, update(2))
        await other.close()

    bench.run(main())
    assert agent.hows[-1] == ("continued", None)


def test_a_mark_that_is_not_cleared_yet_does_not_expire_once_its_turn_is_done(bench: Bench) -> None:
    """CT-4, CT-6, CT-7: whoever routes a message looks for himself, and the modes count again."""
    agent = Told()

    async def nothing(self: Resume) -> None: ...

    async def main() -> None:
        await cut_off_in(bench, agent, update(1))
        policy = SessionPolicy(reset="idle", idle_minutes=120)
        async with bench.gateway(channel(bench), on_message=agent, sessions=policy) as gateway:
            gateway._receiving._resume.look = nothing.__get__(gateway._receiving._resume)
            await bench.clock.settle()
            assert sessions(bench)[0][2] is not None
            await bench.clock.advance(4_000)
            await said(bench, gateway, update(2))
            await bench.clock.advance(7_300)
            await said(bench, gateway, update(3))

    bench.run(main())
    assert agent.hows[1:] == [("resumed", None), ("continued", None), ("reset", "idle")]


def test_a_resume_that_nobody_comes_back_for_expires(bench: Bench) -> None:
    """CT-2, CT-3, CT-7: its turn is held, and the window is over; within it the conversation goes on."""
    agent = Told()

    async def main() -> None:
        await cut_off_in(bench, agent, update(1, chat="room-one"))
        await cut_off_in(bench, agent)
        await cut_off_in(bench, agent, update(2, chat="room-two"))  # its first interruption, the third restart
        async with bench.gateway(channel(bench), on_message=agent) as gateway:
            await bench.clock.settle()
            assert sessions(bench)[1][1] is None and sessions(bench)[1][2] is not None
            await bench.clock.advance(3_590)
            await said(bench, gateway, update(3, chat="room-two"))
            await bench.clock.advance(20)
            await said(bench, gateway, update(4, chat="room-two"))

    bench.run(main())
    assert agent.hows[-2:] == [("continued", None), ("reset", "resume_pending_expired")]


def test_no_end_of_an_interrupted_turn_is_overlooked(bench: Bench) -> None:
    """CT-4: a turn may end while it is looked whether it has ended."""
    agent = Told()

    async def main() -> None:
        await cut_off_in(bench, agent, update(1))
        gateway = bench.gateway(channel(bench), on_message=agent)
        agent.gate = asyncio.Event()
        agent.begun.clear()
        await gateway.start()
        await agent.begun.wait()
        receiving = gateway._receiving
        looked, go_on = asyncio.Event(), asyncio.Event()
        look = receiving._resume.look

        async def slow() -> None:
            await look()
            looked.set()
            await go_on.wait()

        receiving._resume.look = slow
        receiving.committed()
        await looked.wait()
        agent.gate.set()
        await bench.clock.until(lambda: not gateway.turns.busy, within_s=10)
        go_on.set()
        await bench.clock.settle()
        assert sessions(bench)[0][2] is None
        await gateway.close()

    bench.run(main())


def test_a_resumed_turn_that_runs_is_not_given_up(bench: Bench) -> None:
    """CT-6, CT-7: a mark expires where nobody came back for the turn, not while somebody is at it."""
    agent = Told()

    async def main() -> None:
        policy = SessionPolicy(freshness_s=10)
        await cut_off_in(bench, agent, update(1), sessions=policy)
        gate = agent.gate = asyncio.Event()
        agent.begun.clear()
        async with bench.gateway(channel(bench), on_message=agent, sessions=policy) as gateway:
            await agent.begun.wait()
            bench.clock.free = True  # the handler is at work
            await bench.clock.advance(60)
            await gateway.receive(update(2), channel="plat")
            gate.set()
            bench.clock.free = False
            await bench.clock.settle()

    bench.run(main())
    assert agent.hows == [("new", None), ("resumed", None), ("continued", None)]


def test_what_does_not_speak_to_us_begins_and_keeps_up_nothing(bench: Bench) -> None:
    """CT-12, CT-6, RCV-6: it is heard, and the first message that speaks to us is told that it is the first."""
    agent = Told()

    async def main() -> None:
        policy = SessionPolicy(reset="idle", idle_minutes=10)
        async with bench.gateway(channel(bench), on_message=agent, sessions=policy) as gateway:
            await said(bench, gateway, update(1, "aside", addressed=False), update(2, "you there?"))
            await bench.clock.advance(601)
            await said(bench, gateway, update(3, "another aside", addressed=False), update(4, "hello again"))
            [(session,)] = bench.query("SELECT id FROM sessions")
            change_sync(gateway.store, session, lambda state: suspended(state, "it loops", at=0, by="person:x"))  # type: ignore[arg-type]
            await said(bench, gateway, update(5, "a third aside", addressed=False))
            assert sessions(bench)[0][1] == "operator"

    bench.run(main())
    assert agent.hows == [("new", None), ("reset", "idle")]
    assert agent.sessions[1].age_s >= 601
    assert agent.contexts == [["aside"], ["another aside"]]


def test_a_turn_that_runs_again_has_the_session_that_it_had(bench: Bench) -> None:
    """CT-12, CT-7: also where a person had it begin anew in between; the next message is the new one's."""
    agent = Told()

    async def main() -> None:
        await cut_off_in(bench, agent, update(1))
        async with bench.gateway() as gateway:
            [(stream,)] = bench.query("SELECT id FROM sessions")
            now = bench.clock.wall_ms()
            change_sync(gateway.store, stream, lambda state: reset(state, "anew", "asked for", at=now, by="person:x"))  # type: ignore[arg-type]
        async with bench.gateway(channel(bench), on_message=agent) as gateway:
            await bench.clock.settle()
            await said(bench, gateway, update(2))

    bench.run(main())
    first, again, second = agent.sessions
    assert (again.session_id, again.how) == (first.session_id, "resumed")
    assert (second.session_id, second.how, second.reason) == ("anew", "reset", "operator")


# ---- history


def test_a_session_id_that_did_not_exist_yet_has_no_history(bench: Bench) -> None:
    """CT-9: it is not given another one's."""
    agent = Told()

    async def main() -> None:
        policy = SessionPolicy(reset="idle", idle_minutes=1)
        async with bench.gateway(channel(bench), on_message=agent, sessions=policy) as gateway:
            await said(bench, gateway, update(1, "before", **DM))
            middle = bench.events()[-1].position
            await bench.clock.advance(100)
            await said(bench, gateway, update(2, "after", **DM))
            first, second = agent.sessions
            with pytest.raises(NoSuchStream, match="did not exist yet as of position"):
                await gateway.history(second, as_of=middle)
            before = [("user", "before"), ("assistant", "re: before")]
            assert words(await gateway.history(first, as_of=middle)) == before
            assert words(await gateway.history(first.key, as_of=middle)) == before

    bench.run(main())


def test_an_edited_reply_hides_what_stood_before(bench: Bench) -> None:
    """SC-50, CT-9: in the message as in the text; as of then it stood."""

    async def handler(inbound: Any) -> None:
        sent = await inbound.reply("the launch code is 4711")
        await inbound.edit(sent, Message.text("better words", to=inbound.message.target))

    async def main() -> None:
        async with bench.gateway(channel(bench), on_message=handler) as gateway:
            await said(bench, gateway, update(1))
            [(key,)] = bench.query("SELECT id FROM sessions")
            [_, reply] = await gateway.history(key)
            assert (reply.text, reply.message.text, reply.edited) == ("better words", "better words", True)
            sent = next(one.position for one in bench.events() if one.type == "IntentCommitted")
            [_, then] = await gateway.history(key, as_of=sent)
            assert (then.text, then.edited) == ("the launch code is 4711", False)

    bench.run(main())


def test_a_name_that_is_no_text_of_the_ledger_is_refused(bench: Bench) -> None:
    """CT-9, PS-8: a lone surrogate names no session."""

    async def main() -> None:
        async with bench.gateway() as gateway:
            with pytest.raises(NoSuchStream, match="no session"):
                await gateway.history("\ud800")

    bench.run(main())
