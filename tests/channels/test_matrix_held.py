"""What the gateway does when a real Synapse says no for a while: a token that is void in the middle of a lane, and a
limit on how often it may ask. Nothing is lost, nothing overtakes, and nothing is there twice.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ..counterparts.proxy import Proxy, Rule
from ..counterparts.synapse import Login, Room, Synapse
from ..crash.gateway_kit import Ledger, Op, Process, Way, until

pytest_plugins = ("tests.counterparts.fixtures",)
pytestmark = pytest.mark.synapse


@pytest.fixture
def process() -> Iterator[Process]:
    with Process() as made:
        yield made


def way(login: Login, url: str) -> Way:
    return Way(kind="matrix", at=url, user=login.user_id, token=login.token, deadline_s=2.0, settle_s=0.5)


def ops(room: Room, count: int) -> list[Op]:
    return [Op(key=f"k{n}", place=room.id, text=f"t{n}") for n in range(count)]


def holds(ledger: Ledger) -> list[str]:
    return [row["hold"] for row in ledger.intents().values() if row["hold"]] if ledger.said() else []


def stops_in_mid_lane(ledger: Ledger, process: Process, wanted: list[Op]) -> list[dict[str, Any]]:
    """One life that goes on until its token is void; what is owed then."""
    until(lambda: holds(ledger), "a refusal", 20)
    process.send(signal.SIGTERM)
    assert process.wait() == 0
    rows = list(ledger.end().values())
    sent = sum(row["status"] == "sent" for row in rows)
    assert 0 < sent < len(wanted) == len(rows)
    assert [row["status"] for row in rows] == ["sent"] * sent + ["pending"] * (len(rows) - sent)
    owed = rows[sent:]
    assert (owed[0]["hold"], owed[0]["failure"]) == ("config", "auth")
    tried = [row["attempts"] for row in owed]  # once its lease is over the next one may try, and is held as well
    assert tried == sorted(tried, reverse=True) and set(tried) <= {0, 1}
    assert [row["hold"] for row in owed] == ["config" if attempts else None for attempts in tried]
    return owed


def all_in_order_once(ledger: Ledger, room: Room, wanted: list[Op]) -> None:
    assert {row["status"] for row in ledger.end().values()} == {"sent"}
    assert room.bodies() == [op.text for op in wanted]


class TestTokens:
    def test_a_device_that_is_logged_out_in_mid_lane(
        self, tmp_path: Path, room: Room, proxy: Proxy, process: Process
    ) -> None:
        """FAIL-4, SC-04, G6, G7, CH-5: what it stops at is held until the configuration differs, the rest waits.

        The old token again asks nothing of the room; a new one of the same device lets all of it out, in order, once.
        """
        server, bot = room.server, room.bot
        reader = server.login(bot.user_id, "READER")
        ledger = Ledger(tmp_path / "l", way(bot, proxy.url))
        proxy.set(Rule(delay_s=0.1, nth=None))
        wanted = ops(room, 15)
        process.start(ledger.life(*wanted, wait=False, stays=True))
        truth = Room(server, reader, room.id)
        until(lambda: truth.count("t4") == 1, "some traffic")
        server.logout(bot)
        owed = stops_in_mid_lane(ledger, process, wanted)

        asked = len(proxy.passed)
        process.start(ledger.life(stays=True, settles=False))
        proxy.wait(lambda passed: len(passed) > asked)  # it asks whose token it has, and is refused
        process.send(signal.SIGTERM)
        assert process.wait() == 0
        assert [row["status"] for row in ledger.end().values()].count("pending") == len(owed)
        assert len(truth.bodies()) == len(wanted) - len(owed)

        proxy.set()
        ledger.way = way(server.login(bot.user_id, bot.device_id), proxy.url)
        assert process.run(ledger.life()) == 0
        all_in_order_once(ledger, truth, wanted)
        refusals = [body for _, body in ledger.events("AttemptFailed")]
        assert {(body["code"], body["status"]) for body in refusals} == {("M_UNKNOWN_TOKEN", 401)}

    def test_a_session_that_ends_in_mid_lane(self, synapse_installed: None, tmp_path: Path, process: Process) -> None:
        """FAIL-4, CH-5: a soft logout, which keeps the device: its new token goes on where the old one ended."""
        with Synapse(tmp_path / "s", session_s=6) as server:
            room = server.room()
            with Proxy(server.port) as proxy:
                proxy.set(Rule(delay_s=0.35, nth=None))
                ledger = Ledger(tmp_path / "l", way(room.bot, proxy.url))
                wanted = ops(room, 25)
                process.start(ledger.life(*wanted, wait=False, stays=True))
                stops_in_mid_lane(ledger, process, wanted)
                refusal = next(one for one in proxy.passed if one.status == 401)
                assert b'"soft_logout":true' in refusal.answer
                proxy.set()
                renewed = server.login(room.bot.user_id, room.bot.device_id)
                ledger.way = way(renewed, proxy.url)
                assert process.run(ledger.life()) == 0
                reader = server.login(room.bot.user_id, "READER")
                all_in_order_once(ledger, Room(server, reader, room.id), wanted)


class TestRateLimits:
    def test_a_burst_that_is_too_much(self, synapse_installed: None, tmp_path: Path, process: Process) -> None:
        """FAIL-2, SC-08, G6: it waits as long as it is told to, costs no attempt, and all arrives in order."""
        with Synapse(tmp_path / "s", messages_per_second=4, burst=3) as server:
            room = server.room()
            ledger = Ledger(tmp_path / "l", way(room.bot, server.url))
            wanted = ops(room, 7)
            assert process.run(ledger.life(*wanted, wait=False)) == 0
            assert process.run(ledger.life()) == 0
            all_in_order_once(ledger, room, wanted)
            refusals = [body for _, body in ledger.events("AttemptFailed")]
            assert {(body["failure"], body["code"]) for body in refusals} == {("rate_limit", "M_LIMIT_EXCEEDED")}
