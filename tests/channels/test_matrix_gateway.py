"""The whole gateway, as a process that is killed, against real servers: one event in the room for each message.

What became of a message is told by reading the room, and where that is barred by the key. What the room holds is asked
of the server itself, past the gateway and past the proxy.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ..counterparts.proxy import Fate, Passed, Proxy, Rule
from ..counterparts.synapse import Login, Room
from ..crash.gateway_kit import Ledger, Op, Process, Way, until
from .matrix_kit import READS, shown

pytest_plugins = ("tests.counterparts.fixtures",)

BY = [pytest.param("reading", marks=pytest.mark.needs("read")), "key"]
DEADLINE_S = 2.0
SETTLE_S = 0.5


@pytest.fixture
def process() -> Iterator[Process]:
    with Process() as made:
        yield made


def way(login: Login, url: str) -> Way:
    return Way(kind="matrix", at=url, user=login.user_id, token=login.token, deadline_s=DEADLINE_S, settle_s=SETTLE_S)


def ops(room: Room, count: int = 1) -> list[Op]:
    return [Op(key=f"k{n}", place=room.id, text=f"t{n}") for n in range(count)]


def writes(proxy: Proxy) -> list[Passed]:
    return [one for one in proxy.passed if one.method == "PUT"]


def accepted_and_killed(ledger: Ledger, room: Room, proxy: Proxy, process: Process, op: Op | None = None) -> None:
    """The server has the event, and the gateway is killed before it hears of it."""
    known, op = len(writes(proxy)), op or ops(room)[0]
    proxy.set(Rule(hold_s=1.0, path="/send/|/redact/"))
    process.start(ledger.life(op))
    proxy.wait(lambda _: any(one.status == 200 for one in writes(proxy)[known:]))
    process.kill()
    ledger.look()
    proxy.set()


def evidence(ledger: Ledger) -> list[dict[str, Any]]:
    return [body["evidence"] for _, body in ledger.events("OutcomeReconciled")]


def ids(ledger: Ledger) -> list[str]:
    return [id for _, body in ledger.events("IntentCommitted") for id in body["platform_ids"]]


@pytest.mark.parametrize("by", BY)
def test_killed_between_the_event_and_its_receipt(
    tmp_path: Path, any_room: Room, any_proxy: Proxy, process: Process, by: str
) -> None:
    """UNK-1, UNK-3, REC-6, SND-4, G3, G4, G14, OB-6, SC-39: after the restart there is one event, and its id is known.

    Read, it is found and nothing is sent; where nothing can be read the same transaction comes back as the same event.
    """
    ledger = Ledger(tmp_path / "l", way(any_room.bot, any_proxy.url))
    accepted_and_killed(ledger, any_room, any_proxy, process)
    assert any_room.bodies() == ["t0"]
    any_proxy.set(*([READS] if by == "key" else []))
    assert process.run(ledger.life(*ops(any_room, 2))) == 0
    rows = ledger.end()
    assert [row["status"] for row in rows.values()] == ["sent", "sent"]
    assert any_room.bodies() == ["t0", "t1"]
    assert ids(ledger) == [event["event_id"] for event in any_room.messages()]
    assert len(writes(any_proxy)) == (2 if by == "reading" else 3)


@pytest.mark.parametrize("by", BY)
def test_a_lost_answer(tmp_path: Path, any_room: Room, any_proxy: Proxy, process: Process, by: str) -> None:
    """UNK-1, UNK-3, R5, G4, SC-39: found in the room, with the evidence, or sent again with the same bytes."""
    ledger = Ledger(tmp_path / "l", way(any_room.bot, any_proxy.url))
    any_proxy.set(Rule(Fate.LOSE_ANSWER), *([READS] if by == "key" else []))
    assert process.run(ledger.life(*ops(any_room))) == 0
    assert any_room.bodies() == ["t0"]
    ledger.end()
    (stands,) = (event["event_id"] for event in any_room.messages())
    assert ids(ledger) == [stands]
    if by == "reading":
        (found,) = evidence(ledger)
        assert (found["method"], found["pages"], found["ids"]) == ("history_match", 1, [stands])
        assert len(writes(any_proxy)) == 1
    else:
        first, second = writes(any_proxy)
        assert (first.path, first.body) == (second.path, second.body)
        again = [body for _, body in ledger.events("AttemptStarted")][1]
        assert again["licence"] == "window"


@pytest.mark.synapse
class TestSynapse:
    def test_a_request_that_never_arrived(self, tmp_path: Path, room: Room, proxy: Proxy, process: Process) -> None:
        """UNK-4, R1: the room shows that it is not there, and it is sent again as the same transaction.

        Whichever comes first, the proof or the open window, the homeserver sees one transaction.
        """
        ledger = Ledger(tmp_path / "l", way(room.bot, proxy.url))
        proxy.set(Rule(Fate.LOSE_REQUEST))
        assert process.run(ledger.life(*ops(room))) == 0
        assert room.bodies() == ["t0"]
        assert [row["status"] for row in ledger.end().values()] == ["sent"]
        assert len({one.path for one in writes(proxy)}) == 1
        assert evidence(ledger)[0]["until"] == "start"

    @pytest.mark.parametrize("by", ["reading", "key"])
    @pytest.mark.parametrize("do", ["edit", "delete"])
    def test_a_change_is_killed(
        self, tmp_path: Path, room: Room, proxy: Proxy, process: Process, do: str, by: str
    ) -> None:
        """CH-5, UNK-1, UNK-3, SND-4, G4: an edit and a redaction are intents, recovered to one event of their kind."""
        ledger = Ledger(tmp_path / "l", way(room.bot, proxy.url))
        assert process.run(ledger.life(*ops(room))) == 0
        op = Op(key="c", do=do, place=room.id, text="after", of="k0", of_text="t0")
        accepted_and_killed(ledger, room, proxy, process, op)
        proxy.set(*([READS] if by == "key" else []))
        assert process.run(ledger.life(op)) == 0
        assert [row["status"] for row in ledger.end().values()] == ["sent", "sent"]
        first, *changes = (
            event
            for event in room.server.history(room.bot, room.id)
            if event["type"] in ("m.room.message", "m.room.redaction")
        )
        assert [seen.text for seen in shown(room)] == (["after"] if do == "edit" else [])
        assert ids(ledger) == [first["event_id"], first["event_id"], changes[0]["event_id"]]
        assert (len(changes), len(writes(proxy))) == (1, 2 if by == "reading" else 3)

    def test_every_part_is_redacted(self, tmp_path: Path, room: Room, process: Process) -> None:
        """CH-5, RCP-3: a message of several events is gone whole, each redaction with a transaction of its own."""
        ledger = Ledger(tmp_path / "l", way(room.bot, room.server.url))
        long = Op(key="k0", place=room.id, text="word " * 26_000)
        gone = Op(key="c", do="delete", place=room.id, text="", of="k0", of_text=long.text)
        assert process.run(ledger.life(long, gone)) == 0
        assert [row["status"] for row in ledger.end().values()] == ["sent", "sent"]
        history = room.server.history(room.bot, room.id)
        messages = [event for event in history if event["type"] == "m.room.message"]
        assert len(messages) == 3 and all(event["content"] == {} for event in messages)
        redactions = [event for event in history if event["type"] == "m.room.redaction"]
        assert [one["redacts"] for one in redactions] == [event["event_id"] for event in messages]

    def test_a_homeserver_that_is_killed_in_mid_traffic(self, tmp_path: Path, room: Room, process: Process) -> None:
        """G3, G6, G7, OB-21, SC-12, FAIL-1: SIGKILL with requests under way, a new start: all of it, once, in order."""
        ledger = Ledger(tmp_path / "l", way(room.bot, room.server.url))
        wanted = ops(room, 30)
        process.start(ledger.life(*wanted, wait=False, stays=True))
        until(lambda: room.count("t4") == 1, "some traffic")
        room.server.kill()
        time.sleep(0.2)
        room.server.start()
        until(lambda: room.count("t29") == 1, "all of it", 30)
        process.send(signal.SIGTERM)
        assert process.wait() == 0
        assert process.run(ledger.life(*wanted)) == 0
        assert room.bodies() == [op.text for op in wanted]
        assert {row["status"] for row in ledger.end().values()} == {"sent"}
        assert ids(ledger) == [event["event_id"] for event in room.messages()]

    def test_a_new_token_of_the_same_device(self, tmp_path: Path, room: Room, proxy: Proxy, process: Process) -> None:
        """R5, UNK-1: the window belongs to the device: with a token that was made meanwhile it is one event still."""
        ledger = Ledger(tmp_path / "l", way(room.bot, proxy.url))
        accepted_and_killed(ledger, room, proxy, process)
        ledger.way = way(room.server.login(room.bot.user_id, room.bot.device_id), proxy.url)
        assert process.run(ledger.life()) == 0
        assert [row["status"] for row in ledger.end().values()] == ["sent"]
        assert room.bodies() == ["t0"]
        assert ids(ledger) == [room.messages()[0]["event_id"]]

    def test_another_device_and_nothing_arrived(
        self, tmp_path: Path, room: Room, proxy: Proxy, process: Process
    ) -> None:
        """UNK-4, R5, G4: the key is void, but a room without any event of ours proves that it was not sent."""
        ledger = Ledger(tmp_path / "l", way(room.bot, proxy.url))
        proxy.set(Rule(Fate.LOSE_REQUEST, delay_s=1.0))
        process.start(ledger.life(*ops(room)))
        proxy.wait(lambda _: bool(writes(proxy)))
        process.kill()
        ledger.look()
        proxy.set()
        ledger.way = way(room.server.login(room.bot.user_id, "OTHER"), proxy.url)
        assert process.run(ledger.life()) == 0
        assert [row["status"] for row in ledger.end().values()] == ["sent"]
        assert room.bodies() == ["t0"]
        assert [body["verdict"] for _, body in ledger.events("OutcomeReconciled")][-1] == "not_sent"

    def test_a_device_that_was_logged_out(self, tmp_path: Path, room: Room, proxy: Proxy, process: Process) -> None:
        """R5, REC-6: the homeserver forgot the key with the device, and cannot say so; the room is read first."""
        ledger = Ledger(tmp_path / "l", way(room.bot, proxy.url))
        accepted_and_killed(ledger, room, proxy, process)
        room.server.logout(room.bot)
        room.server.kill()
        room.server.start()
        again = room.server.login(room.bot.user_id, room.bot.device_id)
        ledger.way = way(again, proxy.url)
        assert process.run(ledger.life()) == 0
        assert [row["status"] for row in ledger.end().values()] == ["sent"]
        assert Room(room.server, again, room.id).bodies() == ["t0"]
