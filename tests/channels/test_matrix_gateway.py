"""The whole gateway, as a process that is killed, against a real Synapse: one event in the room for each message.

What the room holds is asked of the homeserver itself, past the gateway and past the proxy.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ..counterparts.proxy import Fate, Proxy, Rule
from ..counterparts.synapse import Login, Room
from ..crash.gateway_kit import Ledger, Op, Process, Way, until

pytest_plugins = ("tests.counterparts.fixtures",)
pytestmark = pytest.mark.synapse

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


def accepted_and_killed(ledger: Ledger, room: Room, proxy: Proxy, process: Process) -> None:
    """The homeserver has the event, and the gateway is killed before it hears of it."""
    proxy.set(Rule(hold_s=1.0))
    process.start(ledger.life(*ops(room)))
    proxy.wait(lambda passed: any(one.status == 200 and "/send/" in one.path for one in passed))
    process.kill()
    assert room.bodies() == ["t0"]
    ledger.look()
    proxy.set()


def ids(ledger: Ledger) -> list[str]:
    return [id for _, body in ledger.events("IntentCommitted") for id in body["platform_ids"]]


def test_killed_between_the_event_and_its_receipt(tmp_path: Path, room: Room, proxy: Proxy, process: Process) -> None:
    """UNK-1, SND-4, G3, G4, G14, OB-6, SC-39: after the restart there is one event, and its id is in the ledger."""
    ledger = Ledger(tmp_path / "l", way(room.bot, proxy.url))
    accepted_and_killed(ledger, room, proxy, process)
    assert process.run(ledger.life(*ops(room, 2))) == 0
    rows = ledger.end()
    assert [row["status"] for row in rows.values()] == ["sent", "sent"]
    assert room.bodies() == ["t0", "t1"]
    assert ids(ledger) == [event["event_id"] for event in room.messages()]


def test_a_lost_answer(tmp_path: Path, room: Room, proxy: Proxy, process: Process) -> None:
    """UNK-1, R5, G4, SC-39: sent again with the same transaction id and the same bytes, it is one event."""
    ledger = Ledger(tmp_path / "l", way(room.bot, proxy.url))
    proxy.set(Rule(Fate.LOSE_ANSWER))
    assert process.run(ledger.life(*ops(room))) == 0
    first, second = (one for one in proxy.passed if one.method == "PUT")
    assert (first.path, first.body) == (second.path, second.body)
    assert room.bodies() == ["t0"]
    ledger.end()
    assert ids(ledger) == [room.messages()[0]["event_id"]]
    again = [body for _, body in ledger.events("AttemptStarted")][1]
    assert again["licence"] == "window"


def test_a_homeserver_that_is_killed_in_mid_traffic(tmp_path: Path, room: Room, process: Process) -> None:
    """G3, G6, G7, OB-21, SC-12, FAIL-1: SIGKILL with requests under way, and a new start: all of it, once, in order."""
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


def test_a_new_token_of_the_same_device(tmp_path: Path, room: Room, proxy: Proxy, process: Process) -> None:
    """R5, UNK-1: the window belongs to the device: with a token that was made meanwhile it is one event still."""
    ledger = Ledger(tmp_path / "l", way(room.bot, proxy.url))
    accepted_and_killed(ledger, room, proxy, process)
    ledger.way = way(room.server.login(room.bot.user_id, room.bot.device_id), proxy.url)
    assert process.run(ledger.life()) == 0
    assert [row["status"] for row in ledger.end().values()] == ["sent"]
    assert room.bodies() == ["t0"]
    assert ids(ledger) == [room.messages()[0]["event_id"]]


def test_another_device(tmp_path: Path, room: Room, proxy: Proxy, process: Process) -> None:
    """R5, R6, G4, GAP-5, UNK-5: its keys are another's, the window is void: held for a person, and not sent twice."""
    ledger = Ledger(tmp_path / "l", way(room.bot, proxy.url))
    accepted_and_killed(ledger, room, proxy, process)
    ledger.way = way(room.server.login(room.bot.user_id, "OTHER"), proxy.url)
    assert process.run(ledger.life(ops(room, 2)[1])) == 0
    held, sent = ledger.end().values()
    assert (held["status"], held["hold"]) == ("unknown_after_send", "unresolved")
    assert sent["status"] == "sent"
    assert room.bodies() == ["t0", "t1"]
